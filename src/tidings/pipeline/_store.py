"""What a run leaves in its directory, so that a kill at any moment leaves the last complete answer.

    out/runs/000007-1b9d6bcf/manifest.json     what was counted, and the result
                    setting/          subscriptions with their numbers, topology, transitions
                    partials/NAME/    partial aggregates, from which the next run goes on
                    tables/NAME/      the tables
    out/current -> runs/000007-1b9d6bcf
    out/NAME -> current/tables/NAME

A run writes a folder of its own and then replaces the one link `current`, which the file system does at once or not at
all; every table is reached through it, so all change together. Folders that `current` does not lead to are what an
aborted run left, or the answer before: the next run removes them. Two runs at a time on one directory are refused.
"""

import contextlib
import fcntl
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from tidings.errors import InputError
from tidings.pipeline._manifest import Manifest

__all__ = ["Run", "Store", "open_store"]

_RUNS: Final = "runs"
_CURRENT: Final = "current"
_MANIFEST: Final = "manifest.json"


class Run:
    """One run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def partials(self, name: str) -> str:
        return self._place("partials", name)

    def table(self, name: str) -> str:
        return self._place("tables", name)

    def setting(self, name: str) -> str:
        return self._place("setting", name)

    def scratch(self, name: str) -> str:
        """A place for what is no longer needed when the run is complete."""
        return self._place("scratch", name)

    def _place(self, kind: str, name: str) -> str:
        return str(self.folder / kind / name)


class Store:
    """The directory of the runs over one trace; made by `open_store`."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def last(self) -> tuple[Run, Manifest] | None:
        """The last complete run, or None."""
        folder = self._current()
        return None if folder is None else (Run(folder), Manifest.read(folder / _MANIFEST))

    def begin(self) -> Run:
        """An empty folder for a new run; what aborted runs left is removed."""
        last = self._current()
        self._remove_others(last)
        number = 1 if last is None else int(last.name.partition("-")[0]) + 1
        # No two runs have the same name, also if one was aborted or everything began anew.
        folder = self._out / _RUNS / f"{number:06}-{uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        return Run(folder.resolve())

    def commit(self, run: Run, manifest: Manifest, tables: Iterable[str]) -> None:
        """Make a run the answer."""
        shutil.rmtree(run.scratch(""), ignore_errors=True)
        manifest.write(run.folder / _MANIFEST)
        self._link(_CURRENT, f"{_RUNS}/{run.folder.name}")
        for table in tables:
            self._link(table, f"{_CURRENT}/tables/{table}")
        self._remove_others(run.folder)

    def table(self, name: str) -> Path:
        """Where a table is found, run after run."""
        return self._out / name

    def _current(self) -> Path | None:
        link = self._out / _CURRENT
        return link.resolve() if link.exists() else None

    def _link(self, name: str, target: str) -> None:
        link = self._out / name
        if link.is_symlink() and str(link.readlink()) == target:
            return
        if link.exists() and not link.is_symlink():
            raise InputError(f"{link} is in the way: it is not of a pipeline run; move it, or give another directory")
        temporary = self._out / f".{name}.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        temporary.replace(link)

    def _remove_others(self, kept: Path | None) -> None:
        runs = self._out / _RUNS
        for folder in runs.iterdir() if runs.is_dir() else ():
            if kept is None or folder.name != kept.name:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def open_store(out: Path) -> Iterator[Store]:
    """The store of a directory, for this process alone; the lock goes with the process, however it ends."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}; give another directory") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{out}: another run is writing here; wait for it, or give another directory") from None
        yield Store(out)
