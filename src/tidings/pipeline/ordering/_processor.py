"""The part of a watch that has state: a processor for transformWithState, keyed by publisher and bucket.

A bucket holds some of the subscriptions, so that a busy publisher can be worked on in several places; with as many
buckets as subscriptions the key is the pair. State is bounded: a publisher's last events and waiting deliveries
(`Known`), and for each pair the receivers of all policies, a map in the state store of which only what a batch touches
is read and written.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tidings.ordering import Policy
from tidings.pipeline.ordering._monitor import FIGURES, Known, PairMonitor

__all__ = ["COUNTED", "ROWS", "OrderProcessor"]

ROWS: Final = "publisher string, bucket int, subscription int, sequence bigint, time_ns bigint, matches array<int>"
"""A publication (`subscription` -1, `time_ns` its departure) or a delivery (`time_ns` its arrival, no matches)."""

COUNTED: Final = "publisher string, subscription int, policy int, " + ", ".join(
    f"{name} bigint, new_{name} bigint" for name in FIGURES
)
"""A pair that a batch has touched: FIGURES since the beginning, and those of this batch. One row of a key has neither
subscription nor policy: `received` is then how many deliveries were given up as `unknown`."""

PUBLICATION: Final = -1


class OrderProcessor(StatefulProcessor):
    """Feeds what comes to the receivers of each pair, and says what they have counted."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self._policies = policies

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._known = handle.getValueState("known", "data binary")
        self._pairs = handle.getMapState("pairs", "subscription int", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, ARG002
        known = self._load()
        given_up = known.unknown
        published, arrived = [], []
        for row in rows:
            if row["subscription"] == PUBLICATION:
                published.append((row["sequence"], row["time_ns"], list(row["matches"])))
            else:
                arrived.append((row["subscription"], row["sequence"], row["time_ns"]))
        ready = known.add(published, arrived)
        start = 0
        while start < len(ready):
            subscription, stop = ready[start][0], start
            while stop < len(ready) and ready[stop][0] == subscription:
                stop += 1
            yield from self._pair(key[0], subscription, known, ready[start:stop])
            start = stop
        if known.unknown > given_up:
            yield _counted(key[0], None, None, (known.unknown,), (given_up,))
        known.trim()
        self._known.update((msgspec.msgpack.encode(known),))

    def close(self) -> None:
        pass

    def _load(self) -> Known:
        stored = self._known.get() if self._known.exists() else None
        return Known() if stored is None else msgspec.msgpack.decode(stored[0], type=Known)

    def _pair(
        self, publisher: str, subscription: int, known: Known, arrived: list[tuple[int, int, int]]
    ) -> Iterator[Row]:
        name = (subscription,)
        stored = self._pairs.getValue(name) if self._pairs.containsKey(name) else None
        monitor = PairMonitor(self._policies, None if stored is None else bytes(stored[0]))
        before = monitor.figures()
        record = max(policy.record for policy in self._policies)
        for _, number, arrival_ns in arrived:
            monitor.receive(known.stamp(number, subscription, record), arrival_ns)
        self._pairs.updateValue(name, (monitor.state(),))
        for policy, (now, then) in enumerate(zip(monitor.figures(), before, strict=True)):
            yield _counted(publisher, subscription, policy, now, then)


def _counted(
    publisher: str, subscription: int | None, policy: int | None, now: tuple[int, ...], then: tuple[int, ...]
) -> Row:
    figures: dict[str, int | None] = {}
    for place, name in enumerate(FIGURES):
        has = place < len(now)
        figures[name] = now[place] if has else None
        figures[f"new_{name}"] = now[place] - then[place] if has else None
    return Row(publisher=publisher, subscription=subscription, policy=policy, **figures)
