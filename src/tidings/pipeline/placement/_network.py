"""The small tables of a trace as a placement needs them: the overlay, and subscriptions by number.

The driver holds both; workers get the overlay. Brokers are numbered in the order of their names, so that numbers do not
depend on files; readers are subscribers at a broker, each with all its subscriptions there. A subscriber that has been
at several brokers is a reader at each, and is now where the subscription is that it still has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidings.errors import InputError
from tidings.pipeline.ingest import (
    Mapping,
    TraceFile,
    check_rows,
    known_brokers,
    read_table,
    require_attributes,
    split,
)
from tidings.pipeline.interest import Interests, parse_filters
from tidings.routing import Overlay

__all__ = ["NetworkTables", "ReaderPlace", "read_network"]

Positions = dict[str, tuple[float, float]]


class ReaderPlace(NamedTuple):
    """A subscriber at a broker, and whether it is still there."""

    name: str
    broker: int
    is_there: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkTables:
    """`brokers` (broker, at), `links` (source, target, link) and `subscribed` (subscription, number, at, reader,
    max_delay_ns) are to join with; `at` is a broker's number, `reader` a place in `readers`."""

    overlay: Overlay
    positions: Positions
    interests: Interests
    readers: tuple[ReaderPlace, ...]
    brokers: DataFrame
    links: DataFrame
    subscribed: DataFrame

    @property
    def is_tree(self) -> bool:
        """Then events have one route only, and the links that they used need not be known."""
        ends = zip(self.overlay.source.tolist(), self.overlay.target.tolist(), strict=True)
        return len({frozenset(pair) for pair in ends}) == self.overlay.broker_count - 1


def read_network(spark: SparkSession, files: Sequence[TraceFile], mapping: Mapping | None = None) -> NetworkTables:
    """Read the topology and the subscriptions, good rows only."""
    raw = read_table(spark, "topology", files, mapping=mapping)
    good, _ = split("topology", check_rows("topology", raw, brokers=known_brokers(raw)))
    topology = good.toArrow().to_pylist()
    names = sorted(row["source"] for row in topology if row["kind"] == "broker")
    if not names:
        raise InputError(f"{files[0].path}: the trace's topology names no broker, so nobody can be placed")
    numbers = {name: number for number, name in enumerate(names)}
    joined = sorted((numbers[row["source"]], numbers[row["target"]]) for row in topology if row["kind"] == "link")
    overlay = _overlay(names, joined)
    brokers = spark.createDataFrame(pa.table({"broker": names, "at": pa.array(range(len(names)), pa.int32())}))
    subscribed, interests, readers = _subscriptions(spark, files, brokers, numbers, mapping)
    return NetworkTables(
        overlay=overlay,
        positions={
            row["source"]: (row["x"], row["y"])
            for row in topology
            if row["kind"] == "broker" and row["x"] is not None and row["y"] is not None
        },
        interests=interests,
        readers=readers,
        brokers=brokers,
        links=_link_table(spark, overlay),
        subscribed=subscribed,
    )


def _overlay(names: list[str], joined: list[tuple[int, int]]) -> Overlay:
    nothing = np.zeros(len(joined))
    return Overlay(
        brokers=tuple(names),
        source=np.array([source for source, _ in joined], np.int32),
        target=np.array([target for _, target in joined], np.int32),
        slowness_mean_s_per_kb=nothing,
        slowness_variance_s2_per_kb2=nothing,
        propagation_mean_s=nothing,
    )


def _link_table(spark: SparkSession, overlay: Overlay) -> DataFrame:
    named = [(overlay.brokers[s], overlay.brokers[t]) for s, t in zip(overlay.source, overlay.target, strict=True)]
    table = {
        "source": pa.array([source for source, _ in named], pa.string()),
        "target": pa.array([target for _, target in named], pa.string()),
        "link": pa.array(range(len(named)), pa.int32()),
    }
    return spark.createDataFrame(pa.table(table))


def _subscriptions(
    spark: SparkSession,
    files: Sequence[TraceFile],
    brokers: DataFrame,
    numbers: dict[str, int],
    mapping: Mapping | None,
) -> tuple[DataFrame, Interests, tuple[ReaderPlace, ...]]:
    raw = read_table(spark, "subscriptions", files, mapping=mapping)
    good, _ = split("subscriptions", check_rows("subscriptions", raw, brokers=brokers))
    table = good.toArrow().sort_by("subscription")
    if not len(table):
        raise InputError(f"{files[0].path}: the trace has no subscription, so there is nobody to be near to")
    number = pa.array(np.arange(len(table), dtype=np.int32))
    interests, unread = parse_filters(table.append_column("number", number))
    require_attributes(files, interests.attributes)
    assert not unread, "subscriptions whose filter does not parse are bad rows"
    owners = list(zip(table["subscriber"].to_pylist(), table["broker"].to_pylist(), strict=True))
    readers = {owner: place for place, owner in enumerate(sorted(set(owners)))}
    columns = {
        "subscription": table["subscription"],
        "number": number,
        "at": pa.array([numbers[broker] for _, broker in owners], pa.int32()),
        "reader": pa.array([readers[owner] for owner in owners], pa.int32()),
        "max_delay_ns": table["max_delay_ns"],
    }
    there = _present(owners, table["from_ns"].to_pylist(), table["until_ns"].to_pylist())
    places = tuple(ReaderPlace(name, numbers[broker], there.get(name) == broker) for name, broker in readers)
    return spark.createDataFrame(pa.table(columns)), interests, places


def _present(owners: list[tuple[str, str]], from_ns: list[int | None], until_ns: list[int | None]) -> dict[str, str]:
    """By subscriber the broker where it is at the end of the trace: that of the last subscription it still has."""
    lasting = [
        (since_ns or 0, owner)
        for owner, since_ns, end_ns in zip(owners, from_ns, until_ns, strict=True)
        if end_ns is None
    ]
    return {name: broker for _, (name, broker) in sorted(lasting)}
