"""Publisher trees as the pieces of a prediction: what a task does for one tree, and what is added up over trees.

Flows: the mass of every filter union of a tree, slice by slice of its kinds of events (`add_masses`). Then, with waits
settled by the driver, a tree's share in R' of each of its subscriptions (`with_chances`), and the sum over the trees of
each subscription (`as_subscribers`). The mathematics is that of `tidings.prediction`; sums go in the order of slices
and of publishers, as in one process, whatever task they happen in.
"""

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidings.pipeline.prediction._rows import MASSES, PARTS, SUBSCRIBERS
from tidings.prediction import Knowledge, Model, Prediction
from tidings.prediction.parts import (
    FloatArray,
    IntArray,
    PathDelays,
    Stations,
    Waits,
    arrival_chances,
    layout_of,
    union_masses,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SettledNetwork", "add_masses", "as_subscribers", "with_chances"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True, eq=False)
class SettledNetwork:
    """What the driver has settled, small enough to travel with a task: nothing in it grows with the subscriptions."""

    model: Model
    outline: Knowledge
    mass: FloatArray
    stations: Stations
    waits: Waits
    wait_s: FloatArray
    has_converged: bool

    def packed(self) -> bytes:
        return zlib.compress(pickle.dumps(self, protocol=5), 1)

    @classmethod
    def unpacked(cls, packed: bytes) -> Prediction:
        """The prediction for brokers and links, with the delays along all trees and no subscriptions."""
        plan: SettledNetwork = pickle.loads(zlib.decompress(packed))
        return plan.prediction()

    def prediction(self) -> Prediction:
        layout = layout_of(self.outline, self.mass)
        return Prediction(
            model=self.model,
            knowledge=self.outline,
            layout=layout,
            stations=self.stations,
            waits=self.waits,
            wait_s=self.wait_s,
            delays=PathDelays(layout, self.stations, self.waits),
            by_formulas=np.zeros(0),
            matched_per_s=np.zeros(0),
            has_converged=self.has_converged,
        )


def add_masses(asked: "DataFrame", outline: Knowledge, content_of: Sequence[int]) -> FloatArray:
    """By [publisher, broker]: the share of the publisher's events that somebody at or behind the broker wants."""
    trees: dict[int, list[tuple[int, IntArray, IntArray]]] = {}
    for publisher, content in enumerate(content_of):
        tree = outline.publishers[publisher].tree
        trees.setdefault(content, []).append((publisher, tree.parent, tree.position))
    brokers = np.arange(len(outline.brokers), dtype=np.int32)

    def of_slice(group: pa.Table) -> pa.Table:
        rows = group.combine_chunks().sort_by("cell")
        first = np.unique(rows.column("cell").to_numpy(), return_index=True)[1]
        homes = rows.column("homes").combine_chunks()
        ends = np.concatenate([homes.offsets.to_numpy()[first], homes.offsets.to_numpy()[-1:]]).astype(np.int64)
        asked_for = homes.values.to_numpy().astype(np.int32)
        shares = rows.column("share").to_numpy()[first]
        found = trees[rows.column("content")[0].as_py()]
        masses = [union_masses(shares, ends, asked_for, brokers, parent, position) for _, parent, position in found]
        return pa.table(
            {
                "publisher": pa.array([publisher for publisher, _, _ in found], pa.int32()),
                "slice": pa.array([rows.column("slice")[0].as_py()] * len(found), pa.int32()),
                "masses": pa.array([mass.tobytes() for mass in masses], pa.binary()),
            }
        )

    mass = np.zeros((len(content_of), len(brokers)))
    slices = asked.groupBy("content", "slice").applyInArrow(of_slice, MASSES)
    for row in slices.groupBy("publisher").applyInArrow(_added, MASSES).toLocalIterator():
        mass[row["publisher"]] = np.frombuffer(row["masses"])
    return mass


def _added(group: pa.Table) -> pa.Table:
    rows = group.combine_chunks().sort_by("slice")
    total = np.frombuffer(rows.column("masses")[0].as_py()).copy()
    for each in rows.column("masses")[1:]:
        total += np.frombuffer(each.as_py())
    first = rows.slice(0, 1).select(["publisher", "slice"])
    return first.append_column("masses", pa.array([total.tobytes()], pa.binary()))


def with_chances(wanted: "DataFrame", packed: bytes) -> "DataFrame":
    """Rows of `wanted` with their `publisher` instead of the content: how much of it is matched, and on time."""

    def of_trees(batches: Batches) -> Batches:
        answer = SettledNetwork.unpacked(packed)
        for batch in batches:
            publishers = batch.column("publisher").fill_null(-1).to_numpy()
            homes, shares = batch.column("home").to_numpy(), batch.column("share").to_numpy()
            deadlines_s = batch.column("max_delay_s").to_numpy()
            rate, on_time = np.zeros(len(publishers)), np.zeros(len(publishers))
            for number in np.unique(publishers[publishers >= 0]).tolist():
                rows = np.flatnonzero(publishers == number)
                rate[rows] = answer.knowledge.publishers[number].rate_per_s * shares[rows]
                chance = arrival_chances(answer.knowledge, answer.layout, answer.delays, number)
                on_time[rows] = rate[rows] * _asked_once(chance, homes[rows], deadlines_s[rows])
            yield pa.record_batch(
                {
                    "subscription": batch.column("subscription"),
                    "home": batch.column("home"),
                    "publisher": batch.column("publisher"),
                    "rate_per_s": pa.array(rate),
                    "on_time_per_s": pa.array(on_time),
                }
            )

    # The rows of a tree that go to the same broker stay together: their chances are the same.
    return wanted.repartition("publisher", "home").mapInArrow(of_trees, PARTS)


def _asked_once(
    chance: Callable[[IntArray, FloatArray], FloatArray], homes: IntArray, deadlines_s: FloatArray
) -> FloatArray:
    """The chance of each row; rows alike in home and deadline are asked for once."""
    kinds, place = np.unique(np.stack([homes.astype(np.float64), deadlines_s]), axis=1, return_inverse=True)
    return chance(kinds[0].astype(np.int32), kinds[1])[place]


def as_subscribers(parts: "DataFrame", packed: bytes) -> "DataFrame":
    """One row for each subscription: R', rate, mean delay, and the route that most of its events take."""
    from pyspark.sql import functions as fn

    part = fn.when(fn.col("publisher").isNotNull(), fn.struct("publisher", "rate_per_s", "on_time_per_s"))
    grouped = parts.groupBy("subscription").agg(
        fn.any_value("home").alias("home"), fn.sort_array(fn.collect_list(part)).alias("parts")
    )

    def of_subscriptions(batches: Batches) -> Batches:
        answer = SettledNetwork.unpacked(packed)
        journeys = _Journeys(answer)
        for batch in batches:
            if batch.num_rows:
                yield _summed(batch, answer, journeys)

    return grouped.select("subscription", "home", "parts").mapInArrow(of_subscriptions, SUBSCRIBERS)


class _Journeys:
    """Mean delays and overloads of the trees that a task has met."""

    def __init__(self, answer: Prediction) -> None:
        self._answer = answer
        self._known: dict[int, tuple[FloatArray, Any]] = {}

    def of(self, publisher: int) -> tuple[FloatArray, Any]:
        if publisher not in self._known:
            self._known[publisher] = self._answer.mean_delays(publisher)
        return self._known[publisher]


def _summed(batch: pa.RecordBatch, answer: Prediction, journeys: _Journeys) -> pa.RecordBatch:
    parts, homes, count = batch.column("parts"), batch.column("home").to_numpy(), batch.num_rows
    values = parts.flatten()
    publishers, rate, on_time = (values.field(name).to_numpy() for name in ("publisher", "rate_per_s", "on_time_per_s"))
    row = np.repeat(np.arange(count), parts.value_lengths().to_numpy())
    delay_s, arriving = np.zeros(len(row)), np.zeros(len(row))
    for number in np.unique(publishers).tolist():
        at = np.flatnonzero(publishers == number)
        where = homes[row[at]]
        mean_s = journeys.of(number)[0][where]
        is_finite = np.isfinite(mean_s)
        arriving[at] = np.where(is_finite, rate[at] * answer.layout.kept[number][where], 0.0)
        delay_s[at] = arriving[at] * np.where(is_finite, mean_s, 0.0)
    # `bincount` adds in the order of the rows, which is that of the publishers.
    matched, good, spent, came = (
        np.bincount(row, each, minlength=count) for each in (rate, on_time, delay_s, arriving)
    )
    main = np.full(count, -1)
    order = np.lexsort((publishers, -rate, row))
    first = order[np.unique(row[order], return_index=True)[1]]
    main[row[first]] = publishers[first]
    names = [broker.name for broker in answer.knowledge.brokers]
    paths, stuck = [], []
    for number, home in zip(main.tolist(), homes.tolist(), strict=True):
        tree = answer.knowledge.publishers[number].tree if number >= 0 else None
        paths.append([names[broker] for broker in tree.path(home)] if tree is not None and home in tree else [])
        station = int(journeys.of(number)[1][home]) if number >= 0 else -1
        stuck.append(answer.station_name(station) if station >= 0 else None)
    is_known, is_here = matched > 0.0, came > 0.0
    return pa.record_batch(
        {
            "subscription": batch.column("subscription"),
            "broker": pa.array([names[home] for home in homes.tolist()], pa.string()),
            "on_time_reliability": pa.array(good / np.where(is_known, matched, 1.0), mask=~is_known),
            "matched_per_s": pa.array(matched),
            "mean_delay_s": pa.array(spent / np.where(is_here, came, 1.0), mask=~is_here),
            "path": pa.array(paths, pa.list_(pa.string())),
            "overloaded_at": pa.array(stuck, pa.string()),
        }
    )
