"""What a durable store costs a broker: LMDB against SQLite (WAL, synchronous=FULL), for the protocol's own writes.

Every event is stored (1.2 kB), remembered as delivered (a short value) and erased with a later commit; events come in
groups, as group commit makes them, and each commit is on disk before the next begins. Three sizes of group:

- `events/s`: the wall clock, while nothing else happens in the process;
- `us/event`: processor time of the process for it, which the event loop's thread cannot use;
- `busy ev/s`: the same while the main thread computes, as an event loop under load does: what the interpreter's lock
  costs.

`load` is how long it takes to read a store of 100,000 events, as at a restart. The store is the live broker's own
(`tidings.live.storage`; the node seals and checks values, whatever the store); SQLite's is the best of several layouts
that were tried (a table with row numbers, statements of 256 rows).
"""

import queue
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tidings.live.broker._supervisor import SWITCH_S
from tidings.live.storage._store import Store

GROUPS = (16, 128, 1_024)
EVENTS = {16: 1_600, 128: 6_400, 1_024: 20_480}
LOADED = 100_000
VALUE = bytes(range(256)) * 5
ROWS = 256

Writes = Mapping[str, bytes | None]


class AnyStore(Protocol):
    """What both are: `prepare` is for the event loop's thread, `finish` for the one that waits for the disk."""

    def prepare(self, writes: Writes) -> Any: ...

    def finish(self, prepared: Any) -> None: ...

    def load(self) -> dict[str, bytes]: ...

    def close(self) -> None: ...


class Sqlite:
    """A table of keys and values in SQLite."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(directory / "store.db", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL)")

    def prepare(self, writes: Writes) -> Writes:
        """Writing rows is most of the work here, so all of it is left to the other thread."""
        return writes

    def finish(self, prepared: Writes) -> None:
        """Many rows per statement: each statement gives the interpreter's lock away, and has to get it back."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        put: list[str | bytes] = []
        erased = []
        for key, value in prepared.items():
            if value is None:
                erased.append(key)
            else:
                put += (key, value)
        for first in range(0, len(put), 2 * ROWS):
            part = put[first : first + 2 * ROWS]
            execute("INSERT OR REPLACE INTO kept VALUES " + ", ".join(["(?, ?)"] * (len(part) // 2)), part)
        for first in range(0, len(erased), ROWS):
            keys = erased[first : first + ROWS]
            execute(f"DELETE FROM kept WHERE key IN ({', '.join('?' * len(keys))})", keys)
        execute("COMMIT")

    def load(self) -> dict[str, bytes]:
        """Everything."""
        return dict(self._connection.execute("SELECT key, value FROM kept"))

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def main() -> None:
    sys.setswitchinterval(SWITCH_S)  # as a broker process does
    print("live_store: durable writes of a broker (store, remember, erase; 1.2 kB), on disk at every commit")
    print(f"{'store':10}{'group':>8}{'events/s':>12}{'us/event':>10}{'busy ev/s':>12}{'load ms':>10}")
    with tempfile.TemporaryDirectory() as scratch:
        for name, make in (("LMDB", _lmdb), ("SQLite", Sqlite)):
            load_ms = _load_ms(make, Path(scratch) / name)
            for group in GROUPS:
                idle, cpu_us = _rate(make, Path(scratch) / name, group, is_busy=False)
                busy, _ = _rate(make, Path(scratch) / name, group, is_busy=True)
                print(f"{name:10}{group:>8,}{idle:>12,.0f}{cpu_us:>10.1f}{busy:>12,.0f}{load_ms:>10,.0f}")


def _lmdb(directory: Path) -> AnyStore:
    return Store.open(directory)


def _group(first: int, count: int, before: int) -> Writes:
    writes: dict[str, bytes | None] = {f"event/1763279000000000/{n}/publisher": None for n in range(before, first)}
    for number in range(first, first + count):
        writes[f"event/1763279000000000/{number}/publisher"] = VALUE
        writes[f"seen/1763279000000000/{number}/publisher"] = b"1763279000000000000"
    return writes


def _rate(make: Callable[[Path], AnyStore], directory: Path, group: int, *, is_busy: bool) -> tuple[float, float]:
    """Events per second, and microseconds of processor time per event."""
    shutil.rmtree(directory, ignore_errors=True)
    store = make(directory)
    groups = [_group(n, group, max(n - group, 0)) for n in range(0, EVENTS[group] // (4 if is_busy else 1), group)]
    work: queue.SimpleQueue[Any] = queue.SimpleQueue()
    idle = threading.Event()

    def finish() -> None:
        while (prepared := work.get()) is not None:
            store.finish(prepared)
            idle.set()

    thread = threading.Thread(target=finish)
    thread.start()
    used_s, began_s = time.process_time(), time.perf_counter()
    for writes in groups:
        idle.clear()
        work.put(store.prepare(writes))
        while not idle.is_set():
            if is_busy:
                sum(range(100))
            else:
                idle.wait()
    took_s = time.perf_counter() - began_s
    used_s = time.process_time() - used_s
    work.put(None)
    thread.join()
    store.close()
    events = len(groups) * group
    return events / took_s, used_s / events * 1e6


def _load_ms(make: Callable[[Path], AnyStore], directory: Path) -> float:
    store = make(directory)
    for first in range(0, LOADED, 10_000):
        writes = {f"event/1/{n}/publisher": VALUE for n in range(first, first + 10_000)}
        store.finish(store.prepare(writes))
    store.close()
    began_s = time.perf_counter()
    store = make(directory)
    kept = store.load()
    took_s = time.perf_counter() - began_s
    store.close()
    assert len(kept) >= LOADED
    return took_s * 1e3


if __name__ == "__main__":
    main()
