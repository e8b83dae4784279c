"""What runs leave in their place, so that a kill at any moment leaves the last complete answer, in any file system.

    out/commits/000000007.json        which run is the answer, and where its tables are
    out/runs/000007-1b9d6bcf/manifest.json     what was counted, and the result
                             setting/          subscriptions with their numbers, topology, transitions
                             partials/NAME/    partial aggregates, from which the next run goes on
                             tables/NAME/      the tables

A run writes a folder of its own and then one small object, the commit with the next number: it appears whole or not at
all, and then all tables change together for whoever follows the last commit (`table_paths`). The answer before stays
until the next commit, for those who are reading it; older ones are removed. Two runs at a time are harmless: who
commits second is refused.
"""

import time
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from tidings.errors import InputError
from tidings.model.tables import Commit
from tidings.pipeline._manifest import Manifest
from tidings.pipeline._storage import Log, Storage, place_of, storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Run", "RunStore", "open_store", "table_paths"]

ABANDONED_S: Final = 86_400
"""A run that is not committed and has written nothing for so long is removed by the next one."""

_MANIFEST: Final = "manifest.json"
_SETTING: Final = ("subscriptions", "topology", "transitions")


class Run:
    """One run's folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    def partials(self, name: str) -> str:
        return f"{self.folder}/partials/{name}"

    def table(self, name: str) -> str:
        return f"{self.folder}/tables/{name}"

    def setting(self, name: str) -> str:
        return f"{self.folder}/setting/{name}"

    def scratch(self, name: str) -> str:
        """A place for what is no longer needed when the run is complete."""
        return f"{self.folder}/scratch/{name}"


class RunStore:
    """The place of the runs over one trace; made by `open_store`."""

    def __init__(self, storage: Storage, out: str) -> None:
        self.storage, self.out = storage, out
        self._log = Log(storage, f"{out}/commits")

    def last(self) -> tuple[Run, Manifest] | None:
        """The last complete run, or None."""
        found = self._commits()
        if not found:
            return None
        run = self._run(found[0][1].run)
        return run, Manifest.decode(self.storage.read(f"{run.folder}/{_MANIFEST}"), f"{run.folder}/{_MANIFEST}")

    def tables(self) -> dict[str, str]:
        """Where the tables of the last complete run are, and those of its setting; {} if there is none."""
        found = self._commits()
        return {name: f"{self.out}/{path}" for name, path in found[0][1].tables.items()} if found else {}

    def begin(self) -> Run:
        """The folder of a new run; what was abandoned is removed."""
        found = self._commits()
        self._clean({commit.run for _, commit in found}, found[0][0] if found else 0)
        number = 1 + (found[0][0] if found else 0)
        # No two runs have the same name, also if one was aborted or two begin at the same time.
        return self._run(f"{number:06}-{uuid4().hex[:8]}")

    def commit(self, run: Run, manifest: Manifest, tables: Iterable[str]) -> None:
        """Make a run the answer; an InputError if another one has become it since this one began."""
        self.storage.delete(run.scratch("").rstrip("/"))
        self.storage.write_new(f"{run.folder}/{_MANIFEST}", msgspec.json.encode(manifest))
        inside = {**{name: run.table(name) for name in tables}, **{name: run.setting(name) for name in _SETTING}}
        paths = {name: path.removeprefix(f"{self.out}/") for name, path in inside.items()}
        number = int(run.name.partition("-")[0])
        if not self._log.append(number, msgspec.json.encode(Commit(run=run.name, tables=paths))):
            raise InputError(
                f"{self.out}: another run has been completed here since this one began, and its answer stands; run "
                "again, one at a time"
            )
        self._clean({commit.run for _, commit in self._commits()}, number)

    def _commits(self) -> list[tuple[int, Commit]]:
        """The last first."""
        try:
            return [(number, msgspec.json.decode(data, type=Commit)) for number, data in self._log.records()]
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self.out}/commits: cannot be read ({error}); is this the place of a pipeline run? give another"
            ) from None

    def _run(self, name: str) -> Run:
        return Run(f"{self.out}/runs/{name}")

    def _clean(self, kept: set[str], number: int) -> None:
        """Remove runs before this number, and later ones that were abandoned; one of this number may be at work."""
        newest_ns: dict[str, int] = {}
        for file in self.storage.list(f"{self.out}/runs"):
            name = file.below.partition("/")[0]
            newest_ns[name] = max(newest_ns.get(name, 0), file.modified_ns)
        abandoned_ns = time.time_ns() - ABANDONED_S * 10**9
        for name, modified_ns in newest_ns.items():
            begun = name.partition("-")[0]
            is_over = begun.isdigit() and (int(begun) < number or modified_ns < abandoned_ns)
            if is_over and name not in kept:
                self.storage.delete(f"{self.out}/runs/{name}")


def open_store(
    out: str | PathLike[str], session: "SparkSession | Callable[[], SparkSession] | None" = None
) -> RunStore:
    """The store of a place; a session is needed where that is not on this machine."""
    place = place_of(out)
    return RunStore(storage_of(place, session), place)


def table_paths(
    out: str | PathLike[str], session: "SparkSession | Callable[[], SparkSession] | None" = None
) -> dict[str, str]:
    """The tables of the last complete run in `out`, by name, as paths for `spark.read.parquet`.

    With them are the setting's `subscriptions`, `topology` and `transitions`. A session is needed where `out` is not
    on this machine.
    """
    store = open_store(out, session)
    found = store.tables()
    if not found:
        raise InputError(
            f"{store.out}: no pipeline run is complete here; `tidings pipeline run TRACE --out DIR` makes one"
        )
    return found
