"""The place of runs: what is committed stands, what is aborted does not count, whatever happens to the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidings.errors import InputError
from tidings.model.tables import has_table, table_place

pytest.importorskip("pyspark.sql")

from tidings.pipeline import table_paths
from tidings.pipeline._manifest import FORMAT, Manifest
from tidings.pipeline._run_store import ABANDONED_S, Run, RunStore, open_store
from tidings.pipeline._storage import Log, place_of, storage_of


def manifest(answer: int) -> Manifest:
    return Manifest(format=FORMAT, files=[], options={}, setting="", result={"answer": answer})


def write_table(place: str, text: str) -> None:
    Path(place).mkdir(parents=True)
    (Path(place) / "part").write_text(text)


def complete(store: RunStore, answer: int) -> Run:
    run = store.begin()
    write_table(run.table("links"), str(answer))
    write_table(run.scratch("units"), "")
    store.commit(run, manifest(answer), ["links"])
    return run


def names(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "runs").iterdir())


def test_a_committed_run_is_the_answer_and_the_one_before_stays_for_its_readers(tmp_path: Path) -> None:
    runs = []
    for answer in (1, 2, 3):
        runs.append(complete(open_store(tmp_path), answer))
        last = open_store(tmp_path).last()
        assert last is not None
        assert last[1].result == {"answer": answer}
        assert (table_place(tmp_path, "links") / "part").read_text() == str(answer)
        assert table_paths(tmp_path)["links"] == str(table_place(tmp_path, "links"))
        assert names(tmp_path) == [run.name for run in runs[-2:]]
        assert not Path(last[0].scratch("units")).exists()
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from tidings.pipeline import _storage
from tidings.pipeline._manifest import FORMAT, Manifest
from tidings.pipeline._run_store import open_store

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

store = open_store(sys.argv[1])
run = store.begin()
Path(run.table("links")).mkdir(parents=True)
(Path(run.table("links")) / "part").write_text("new")
if sys.argv[2] == "before-commit":
    kill()
if sys.argv[2] == "in-commit":
    store._log.append = kill
store._clean = kill
store.commit(run, Manifest(format=FORMAT, files=[], options={}, setting="", result={"answer": 2}), ["links"])
"""


@pytest.mark.parametrize(
    ("moment", "text"), [("before-commit", "1"), ("in-commit", "1"), ("after-commit", "new")], ids=str
)
def test_a_kill_at_any_moment_leaves_a_complete_answer(tmp_path: Path, moment: str, text: str) -> None:
    complete(open_store(tmp_path), 1)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), moment], check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert (table_place(tmp_path, "links") / "part").read_text() == text
    last = open_store(tmp_path).last()
    assert last is not None
    assert last[1].result == {"answer": 1 if text == "1" else 2}
    complete(open_store(tmp_path), 3)
    complete(open_store(tmp_path), 4)
    assert len(names(tmp_path)) == 2, "what was left is gone"


def test_who_commits_second_is_refused(tmp_path: Path) -> None:
    stores = [open_store(tmp_path), open_store(tmp_path)]
    runs = [store.begin() for store in stores]
    for run in runs:
        write_table(run.table("links"), run.name)
    stores[0].commit(runs[0], manifest(1), ["links"])
    with pytest.raises(InputError, match="another run has been completed here since this one began"):
        stores[1].commit(runs[1], manifest(2), ["links"])
    assert (table_place(tmp_path, "links") / "part").read_text() == runs[0].name


def test_a_run_at_work_is_left_alone_until_it_is_abandoned(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = store.begin()
    write_table(run.setting("topology"), "")
    store.begin()
    assert names(tmp_path) == [run.name]
    part = Path(run.setting("topology")) / "part"
    long_ago = part.stat().st_mtime - ABANDONED_S - 1
    os.utime(part, (long_ago, long_ago))
    store.begin()
    assert names(tmp_path) == []


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file" / "out")
    with pytest.raises(InputError, match="cannot be written"):
        store.commit(store.begin(), manifest(1), [])


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = complete(store, 1)
    (Path(run.folder) / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="--from-scratch"):
        store.last()
    assert store.begin().name.startswith("000002-"), "a run from scratch does without it"
    (tmp_path / "commits" / "000000001.json").write_text("{")
    with pytest.raises(InputError, match="is this the place of a pipeline run"):
        store.last()
    with pytest.raises(InputError, match="not the record of a pipeline run"):
        table_place(tmp_path, "links")


def test_a_place_without_a_run(tmp_path: Path) -> None:
    assert not has_table(tmp_path, "links")
    with pytest.raises(InputError, match=r"there is no table 'links' in .*commits; `tidings pipeline run"):
        table_place(tmp_path, "links")
    with pytest.raises(InputError, match="no pipeline run is complete here"):
        table_paths(tmp_path)


def test_a_log_has_one_record_of_each_number_and_passes_over_one_that_was_never_finished(tmp_path: Path) -> None:
    log = Log(storage_of(str(tmp_path), None), f"{tmp_path}/log")
    assert log.records() == []
    assert log.append(1, b"one")
    assert not log.append(1, b"again")
    assert log.append(2, b"two")
    assert log.append(3, b"three")
    assert log.records() == [(3, b"three"), (2, b"two")]
    (tmp_path / "log" / "000000004.json").write_bytes(b"")
    assert log.records()[0] == (3, b"three")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("a/../b") == place_of(Path("b")) == place_of(f"file://{tmp_path}/b/") == f"{tmp_path}/b"
    assert place_of("s3a://store/x/") == place_of(Path("s3a://store/x")) == "s3a://store/x"
    assert place_of("hdfs:///user/x") == "hdfs:///user/x"
    with pytest.raises(InputError, match="s3a://store/x: is not on this machine, and can be read with Spark only"):
        storage_of("s3a://store/x", None)
