"""The directory of runs: what is committed stands, what is aborted vanishes, whatever happens to the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidings.errors import InputError

pytest.importorskip("pyspark.sql")

from tidings.pipeline._manifest import FORMAT, Manifest
from tidings.pipeline._store import open_store


def manifest(answer: int) -> Manifest:
    return Manifest(format=FORMAT, files=[], options={}, setting="", result={"answer": answer})


def write_table(place: str, text: str) -> None:
    Path(place).mkdir(parents=True)
    (Path(place) / "part").write_text(text)


def test_a_committed_run_is_the_answer_and_replaces_the_one_before(tmp_path: Path) -> None:
    for answer in (1, 2, 3):
        with open_store(tmp_path) as store:
            run = store.begin()
            write_table(run.table("links"), str(answer))
            write_table(run.scratch("units"), "")
            store.commit(run, manifest(answer), ["links"])
        with open_store(tmp_path) as store:
            last = store.last()
            assert last is not None
            assert last[1].result == {"answer": answer}
        assert (tmp_path / "links" / "part").read_text() == str(answer)
        assert len(list((tmp_path / "runs").iterdir())) == 1
        assert not Path(last[0].scratch("")).exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from tidings.pipeline._manifest import FORMAT, Manifest
from tidings.pipeline._store import Store, open_store

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

with open_store(Path(sys.argv[1])) as store:
    run = store.begin()
    Path(run.table("links")).mkdir(parents=True)
    (Path(run.table("links")) / "part").write_text("new")
    if sys.argv[2] == "before-commit":
        kill()
    if sys.argv[2] == "before-link":
        store._link = kill
    store._remove_others = kill
    store.commit(run, Manifest(format=FORMAT, files=[], options={}, setting="", result={"answer": 2}), ["links"])
"""


@pytest.mark.parametrize(
    ("moment", "text"), [("before-commit", "1"), ("before-link", "1"), ("after-link", "new")], ids=str
)
def test_a_kill_at_any_moment_leaves_a_complete_answer(tmp_path: Path, moment: str, text: str) -> None:
    with open_store(tmp_path) as store:
        run = store.begin()
        write_table(run.table("links"), "1")
        store.commit(run, manifest(1), ["links"])
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), moment], check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "links" / "part").read_text() == text
    with open_store(tmp_path) as store:
        last = store.last()
        assert last is not None
        assert last[1].result == {"answer": 1 if text == "1" else 2}
        store.begin()
        assert len(list((tmp_path / "runs").iterdir())) == 2, "what was left is gone"


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(InputError, match="another run is writing here"), open_store(tmp_path):
        pass


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    with open_store(tmp_path) as store:
        run = store.begin()
        with pytest.raises(InputError, match="links is in the way"):
            store.commit(run, manifest(1), ["links"])


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), open_store(tmp_path / "file" / "out"):
        pass


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = store.begin()
        store.commit(run, manifest(1), [])
        (run.folder / "manifest.json").write_text("{")
        with pytest.raises(InputError, match="--from-scratch"):
            store.last()
        assert store.begin().folder.name.startswith("000002-"), "a run from scratch does without it"


def test_no_two_runs_have_the_same_name(tmp_path: Path) -> None:
    """Neither those that were aborted nor those of a directory that began anew."""
    names = set()
    for _ in range(3):
        with open_store(tmp_path) as store:
            names.add(store.begin().folder.name)
    assert len(names) == 3
    assert {name.partition("-")[0] for name in names} == {"000001"}
