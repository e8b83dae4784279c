"""Subscribers that move too: what each reads of the traced events, where it should be, and what that gives it.

`place_readers` lets readers take turns over the whole network, so it runs in one place, on the driver. What that holds
is bounded by the network and the traced sessions, not by the trace; if it would still be too much (FLAGS_MAX), fewer
events have to be traced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import ConfigurationError
from tidings.pipeline.placement._network import NetworkTables
from tidings.pipeline.placement._sessions import SESSION_EVENTS, Events, wanted_of
from tidings.placement import (
    Reader,
    Scatter,
    Source,
    Times,
    Traced,
    chance_on_time,
    place_readers,
    reach,
    saved_in_turn,
)

__all__ = ["ReaderMove", "ReaderMoves", "move_readers"]

FLAGS_MAX: Final = 1 << 29
"""Counts by publisher, broker and traced event, and flags by reader and traced event, that the driver may hold."""
_FAR_NS: Final = 1 << 60
"""Stands for a broker that events cannot reach; readers do not move there."""


@dataclass(frozen=True, kw_only=True)
class ReaderMove:
    """One subscriber that should be elsewhere, with what it is like for itself: delays and shares, now and then."""

    name: str
    home: int
    target: int
    read_per_s: float
    messages_per_s: float
    """By how much all brokers handle more after this move: below 0, or 0."""
    busiest: float
    delay_s: tuple[float, float]
    on_time: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class ReaderMoves:
    """`moved` (number, moved_to) are the subscriptions that go with the subscribers; None if nobody moves."""

    moves: list[ReaderMove]
    stay: int
    moved: DataFrame | None


def move_readers(
    spark: SparkSession,
    tables: NetworkTables,
    events: Events,
    publishers: Sequence[Traced],
    times: Times,
    loads_per_s: NDArray[np.float64],
) -> ReaderMoves:
    """Where subscribers should be, with these publishers at their targets (the roots of their trees).

    `loads_per_s` is what brokers handle while subscribers are where they were.
    """
    numbers = {publisher.name: number for number, publisher in enumerate(publishers)}
    _check_size(tables, publishers)
    positions = _positions(events, numbers)
    routes = [reach(tables.overlay, times, each.tree, each.ping_ns) for each in publishers]
    sources = [
        Source(
            tree=each.tree,
            rate_per_s=each.rate_per_s,
            events=len(positions[number]),
            reach_ns=np.rint(np.minimum(route.mean_ns, _FAR_NS)).astype(np.int64),
        )
        for number, (each, route) in enumerate(zip(publishers, routes, strict=True))
    ]
    names, readers = _readers(tables, events, numbers, positions, publishers)
    plan = place_readers(sources, readers)
    movers = [place for place, reader in enumerate(readers) if plan.targets[place] != reader.broker]
    promises = _promises(spark, tables, events, [names[place] for place in movers]) if movers else {}
    moves = []
    for place, change_per_s in saved_in_turn(sources, readers, plan.targets):
        busiest = float(((loads_per_s + change_per_s) * times.service.mean_s).max())
        own = [(numbers[name], deadline, count) for name, deadline, count in promises[names[place]]]
        figures = _Reading(reader=readers[place], sources=sources, routes=routes, promises=own)
        home, target = readers[place].broker, plan.targets[place]
        moves.append(
            ReaderMove(
                name=tables.readers[names[place]].name,
                home=home,
                target=target,
                read_per_s=sum(figures.read_per_s.values()),
                messages_per_s=float(change_per_s.sum()),
                busiest=busiest,
                delay_s=(figures.delay_s(home), figures.delay_s(target)),
                on_time=(figures.on_time(home), figures.on_time(target)) if figures.has_deadline else None,
            )
        )
    moved = None
    if movers:
        table = {"reader": [names[p] for p in movers], "moved_to": [plan.targets[p] for p in movers]}
        targets = spark.createDataFrame(pa.table({key: pa.array(value, pa.int32()) for key, value in table.items()}))
        moved = tables.subscribed.join(fn.broadcast(targets), "reader", "inner").select("number", "moved_to")
    return ReaderMoves(moves=moves, stay=len({reader.name for reader in tables.readers}) - len(moves), moved=moved)


def _check_size(tables: NetworkTables, publishers: Sequence[Traced]) -> None:
    events = sum(each.traced for each in publishers)
    most = events * max(tables.overlay.broker_count, len(tables.readers) // max(1, len(publishers)))
    if most > FLAGS_MAX:
        enough = max(SESSION_EVENTS, int(events / len(publishers) * FLAGS_MAX / most))
        raise ConfigurationError(
            f"{events:,} traced events of {len(publishers):,} publishers are too many to place {len(tables.readers):,} "
            f"subscribers: trace fewer of each, with --traced {enough}"
        )


def _positions(events: Events, numbers: Mapping[str, int]) -> list[NDArray[np.int64]]:
    """By publisher which bits of its words stand for events that were published."""
    own = fn.expr("shiftleft(1L, bit)")
    words = events.published.groupBy("publisher", "word").agg(fn.bit_or(own).alias("bits")).toArrow()
    found: list[list[NDArray[np.int64]]] = [[] for _ in numbers]
    for row in words.sort_by("word").to_pylist():
        found[numbers[row["publisher"]]].append(_bits(row["bits"]) + row["word"] * SESSION_EVENTS)
    return [np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in found]


def _bits(word: int) -> NDArray[np.int64]:
    raw = np.array([word], np.int64).view(np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little")).astype(np.int64)


def _readers(
    tables: NetworkTables,
    events: Events,
    numbers: Mapping[str, int],
    positions: Sequence[NDArray[np.int64]],
    publishers: Sequence[Traced],
) -> tuple[list[int], list[Reader]]:
    """The subscribers that read something, by their numbers and as `place_readers` takes them."""
    each = events.published.select("publisher", "word", "bit", fn.explode("matches").alias("number"))
    owned = each.join(fn.broadcast(tables.subscribed.select("number", "reader")), "number", "inner")
    own = fn.bit_or(fn.expr("shiftleft(1L, bit)")).alias("bits")
    rows = owned.groupBy("reader", "publisher", "word").agg(own).toArrow().sort_by("reader").to_pylist()
    matches: dict[int, dict[int, NDArray[np.bool_]]] = {}
    for row in rows:
        number = numbers[row["publisher"]]
        reader = row["reader"]
        if publishers[number].tree.position[tables.readers[reader].broker] < 0:
            continue  # where events of this publisher cannot get there is nothing to read
        flags = matches.setdefault(reader, {}).setdefault(number, np.zeros(len(positions[number]), np.bool_))
        flags[np.searchsorted(positions[number], _bits(row["bits"]) + row["word"] * SESSION_EVENTS)] = True
    # The delay from a broker to a subscriber is known for its own broker only: it counts as the same everywhere.
    access_ns = np.zeros(tables.overlay.broker_count, np.int64)
    names = sorted(matches)
    return names, [
        Reader(
            broker=tables.readers[name].broker,
            matches=dict(sorted(matches[name].items())),
            access_ns=access_ns,
            movable=tables.readers[name].is_there,
        )
        for name in names
    ]


def _promises(
    spark: SparkSession, tables: NetworkTables, events: Events, movers: Sequence[int]
) -> dict[int, list[tuple[str, float, int]]]:
    """For each reader that moves: publisher, deadline (infinite: none) and how many deliveries were promised."""
    wanted = spark.createDataFrame(pa.table({"reader": pa.array(movers, pa.int32())}))
    own = tables.subscribed.join(fn.broadcast(wanted), "reader", "left_semi")
    found: dict[int, list[tuple[str, float, int]]] = {reader: [] for reader in movers}
    for row in wanted_of(events.published, own, "reader").toArrow().to_pylist():
        deadline = float("inf") if row["deadline_ns"] is None else float(row["deadline_ns"])
        found[row["reader"]].append((row["publisher"], deadline, row["promised"]))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reading:
    """What one reader gets of each publisher, wherever it is; promises are (publisher, deadline, deliveries)."""

    reader: Reader
    sources: Sequence[Source]
    routes: Sequence[Scatter]
    promises: Sequence[tuple[int, float, int]]

    @property
    def read_per_s(self) -> dict[int, float]:
        return {number: float(flags.sum()) * self._rate(number) for number, flags in self.reader.matches.items()}

    @property
    def has_deadline(self) -> bool:
        return any(np.isfinite(deadline) for number, deadline, _ in self.promises if number in self.reader.matches)

    def delay_s(self, broker: int) -> float:
        read = self.read_per_s
        total = sum(rate * float(self.routes[number].mean_ns[broker]) for number, rate in read.items())
        return total / sum(read.values()) / 1e9

    def on_time(self, broker: int) -> float:
        chances, weights = [], []
        for number, deadline_ns, promised in self.promises:
            if number in self.reader.matches:
                chances.append(float(chance_on_time(self.routes[number], broker, np.array([deadline_ns]))[0]))
                weights.append(promised * self._rate(number))
        return float(np.average(chances, weights=weights))

    def _rate(self, number: int) -> float:
        return self.sources[number].rate_per_s / self.sources[number].events
