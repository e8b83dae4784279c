"""kill -9 of a Spark job in the middle of a batch, twice: from its checkpoint nothing is lost, nothing is doubled."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

import tidings

pytestmark = [pytest.mark.spark, pytest.mark.full]

JOB = """
import json, sys, threading
from pathlib import Path
from tidings.pipeline import TidingsSource, open_session

address, folder, is_last = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "last"
new = []


def write(batch, number):
    rows = sorted([row._sequence, row.n, row._age_ns] for row in batch.collect())
    if not rows:
        return
    file = folder / "out" / f"{number}.json"
    if file.exists():
        same = json.loads(file.read_text()) == rows
        (folder / "replayed" / f"{number}").write_text(str(same))
    else:
        new.append(number)
    file.with_suffix(".new").write_text(json.dumps(rows))
    file.with_suffix(".new").rename(file)
    if not is_last and len(new) == 2:
        threading.Event().wait()  # it is killed here: written, and not committed


with open_session(master="local[1]", memory="1g") as spark:
    spark.dataSource.register(TidingsSource)
    frame = (
        spark.readStream.format("tidings")
        .options(address=address, name="job", secret="of-the-job", spool=str(folder / "spool"), idle="5 s")
        .options(filter="n >= 0", metadata="sequence,age_ns", maxEventsPerTrigger="20")
        .load()
    )
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    (writer.trigger(availableNow=True) if is_last else writer).start().awaitTermination()
"""
KILLS = 2


def test_a_job_that_is_killed_goes_on_where_it_was(
    broker: str, tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    for name in ("out", "replayed"):
        (tmp_path / name).mkdir()
    done = Event()
    published = 0

    def start(*words: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "job.log").open("ab") as log:
            run = [sys.executable, "-c", JOB, broker, str(tmp_path), *words]
            return subprocess.Popen(run, stdout=log, stderr=log, start_new_session=True)

    def publish() -> None:
        nonlocal published
        with tidings.connect_blocking(broker, name="exchange") as client:
            while not done.wait(0.02):
                client.publish({"n": published})
                published += 1

    thread = Thread(target=publish)
    try:
        for kill in range(KILLS):
            job = start("more")
            written = len(list((tmp_path / "out").glob("*.json")))
            if kill == 0:
                until(lambda: any((tmp_path / "checkpoint" / "offsets").glob("[0-9]*")))
                thread.start()
            until(lambda before=written: len(list((tmp_path / "out").glob("*.json"))) >= before + 2)
            assert job.poll() is None, (tmp_path / "job.log").read_text()
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    finally:
        done.set()
        thread.join()
    assert start("last").wait(900) == 0, (tmp_path / "job.log").read_text()
    rows = [row for path in (tmp_path / "out").glob("*.json") for row in json.loads(path.read_text())]
    assert sorted(n for _, n, _ in rows) == list(range(published))
    replayed = [path.read_text() for path in (tmp_path / "replayed").iterdir()]
    assert replayed
    assert set(replayed) == {"True"}, "a batch that ran again had other rows"
