"""The subscriptions of one broker's clients as rows of its trace: one file, replaced when they change, kept across
restarts.

A subscription is named `client/name`; if it returns on other terms, or after it ended, it gets a number:
`client/name#2`. The last MAX_ENDED ended ones are remembered.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from tidings.live.traces._trace_files import write_rows
from tidings.protocol import wire

__all__ = ["SubscriptionRows"]

MAX_ENDED: Final = 10_000
_SUBSCRIPTION: Final = msgspec.msgpack.Decoder(tuple[str, wire.Entry])


class SubscriptionRows:
    """The present and former subscriptions of one broker's clients."""

    def __init__(self, directory: Path, broker: str) -> None:
        self.has_changed = False
        self._directory = directory
        self._broker = broker
        self._current: dict[tuple[str, str], dict[str, Any]] = {}
        self._ended: list[dict[str, Any]] = []
        self._names: set[str] = set()
        for row in self._kept():
            self._names.add(row["subscription"])
            if row["until_ns"] is None:
                name = row["subscription"][len(row["subscriber"]) + 1 :].partition("#")[0]
                self._current[row["subscriber"], name] = row
            else:
                self._ended.append(row)

    def note(self, key: str, value: bytes | None, now_ns: int) -> None:
        """A subscription was stored under this key of the durable store, or erased."""
        if value is None:
            _, length, rest = key.split("/", 2)
            client, name = rest[: int(length)], rest[int(length) + 1 :]
            self._end(client, name, now_ns)
            return
        client, entry = _SUBSCRIPTION.decode(value)
        self._end(client, entry.name, now_ns)
        self.has_changed = True
        self._current[client, entry.name] = {
            "subscription": self._new_name(client, entry.name),
            "subscriber": client,
            "broker": self._broker,
            "filter": entry.filter,
            "max_delay_ns": entry.max_delay_ns,
            "price": entry.price,
            "from_ns": now_ns,
            "until_ns": None,
        }

    def name_of(self, client: str, name: str) -> str:
        """The name of a subscription in the trace."""
        row = self._current.get((client, name))
        return f"{client}/{name}" if row is None else str(row["subscription"])

    def taken(self) -> list[dict[str, Any]]:
        """All rows, for another thread to write."""
        self.has_changed = False
        return [*self._ended, *self._current.values()]

    def write(self, rows: list[dict[str, Any]], sample: float) -> None:
        """Write all rows, replacing the previous file."""
        write_rows(self._directory, "subscriptions", f"part-{self._broker}", rows, sample, replace=True)

    def _end(self, client: str, name: str, now_ns: int) -> None:
        row = self._current.pop((client, name), None)
        if row is not None:
            self._ended.append({**row, "until_ns": now_ns})
            del self._ended[:-MAX_ENDED]
            self.has_changed = True

    def _new_name(self, client: str, name: str) -> str:
        new, number = f"{client}/{name}", 1
        while new in self._names:
            number += 1
            new = f"{client}/{name}#{number}"
        self._names.add(new)
        return new

    def _kept(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        file = self._directory / "subscriptions" / f"part-{self._broker}.parquet"
        return list(pq.read_table(file).to_pylist()) if file.exists() else []
