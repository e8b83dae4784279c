"""A scenario's subscriptions and contents on Spark: blocks of filters go to tasks, matches come back.

The driver has the network, and so every filter; it only reads the tests by which they distinguish contents. A task
builds the index of its block, matches every kind of events against it, and returns the result of each subscription and
the brokers that want events. So no process but the driver holds more than a block, and none an index of all filters.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tidings.matching import MatchingIndex
from tidings.model.scenario import Network
from tidings.pipeline.prediction._rows import MATCHED
from tidings.prediction import ContentSpace, EventKinds, Knowledge
from tidings.prediction.parts import (
    BALANCE_SAMPLE,
    Asked,
    IntArray,
    LongArray,
    Samples,
    deadlines_of,
    homes_of,
    match_columns,
    outline_of_network,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ScenarioContent"]

BLOCK: Final = 10_000  # subscriptions that a task matches at a time
CELLS_PER_SLICE: Final = 4_096

Batches = Iterator[pa.RecordBatch]


class ScenarioContent:
    """What `predict_on_spark` needs of a scenario: see `_rows` for the tables."""

    def __init__(self, spark: "SparkSession", network: Network, *, alpha: float) -> None:
        self._spark, self._network, self._homes = spark, network, homes_of(network)
        space = ContentSpace((s.filter for s in network.subscriptions), seed=network.seed)
        kinds = [space.kinds(publisher.attributes, alpha=alpha) for publisher in network.publishers]
        different = list({id(each): each for each in kinds}.values())
        place = {id(each): number for number, each in enumerate(different)}
        self.content_of = [place[id(each)] for each in kinds]
        """By publisher, the number of its content."""
        self._blocks = self._make_blocks()
        self._matched = self._blocks.mapInArrow(_matching(different), MATCHED).persist()

    def outline(self) -> Knowledge:
        """All that is known but for subscriptions and content."""
        return outline_of_network(self._network, self._homes, self._asked_for)

    def wanted(self) -> "DataFrame":
        return self._matched.where("cell IS NULL").select("content", "subscription", "home", "max_delay_s", "share")

    def asked(self) -> "DataFrame":
        return self._matched.where("cell IS NOT NULL").select("content", "slice", "cell", "share", "homes")

    def release(self) -> None:
        """Let go of what was kept between the two passes."""
        self._matched.unpersist()

    def _make_blocks(self) -> "DataFrame":
        deadlines_s, rows = deadlines_of(self._network), []
        subscriptions = self._network.subscriptions
        for start in range(0, len(subscriptions), BLOCK):
            block = subscriptions[start : start + BLOCK]
            rows.append(
                pickle.dumps(
                    (
                        [s.id for s in block],
                        self._homes[start : start + BLOCK],
                        deadlines_s[start : start + BLOCK],
                        [s.filter for s in block],
                    ),
                    protocol=5,
                )
            )
        table = pa.table({"block": pa.array(rows, pa.large_binary() if sum(map(len, rows)) > 2**30 else pa.binary())})
        # One task for each block: what is in it is far more work than its size says.
        return self._spark.createDataFrame(table).repartition(max(1, len(rows)))

    def _asked_for(self, samples: Sequence[Samples]) -> Iterable[Asked]:
        """For balanced routes: by publisher which brokers want which event of its sample."""
        found = self._blocks.mapInArrow(_sampling(samples), "publisher int, event int, homes array<int>")
        asked = np.zeros((len(samples), BALANCE_SAMPLE, len(self._network.topology.brokers)), np.bool_)
        for row in found.toLocalIterator():
            asked[row["publisher"], row["event"], row["homes"]] = True
        return list(asked)


def _matching(contents: Sequence[EventKinds]) -> Callable[[Batches], Batches]:
    def match_blocks(batches: Batches) -> Batches:
        for names, homes, deadlines_s, index in _blocks_in(batches):
            is_matched = np.zeros(len(names), np.bool_)
            for number, kinds in enumerate(contents):
                offsets, matched = kinds.match(index)
                weights = kinds.weights
                shares = np.bincount(matched, np.repeat(weights, np.diff(offsets)), minlength=len(names))
                held = np.flatnonzero(shares > 0.0)
                is_matched[held] = True
                yield _wanted(number, names, homes, deadlines_s, held, shares[held])
                yield _asked(number, weights, *_homes_by_event(offsets, homes[matched]))
            yield _wanted(None, names, homes, deadlines_s, np.flatnonzero(~is_matched), None)

    return match_blocks


def _sampling(samples: Sequence[Samples]) -> Callable[[Batches], Batches]:
    def match_samples(batches: Batches) -> Batches:
        for _, homes, _, index in _blocks_in(batches):
            for number, columns in enumerate(samples):
                offsets, matched = match_columns(index, columns, BALANCE_SAMPLE)
                events, ends, brokers = _homes_by_event(offsets, homes[matched])
                yield pa.record_batch(
                    {
                        "publisher": pa.array(np.full(len(events), number, np.int32)),
                        "event": pa.array(events.astype(np.int32)),
                        "homes": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(brokers, pa.int32())),
                    }
                )

    return match_samples


def _blocks_in(batches: Batches) -> Iterator[tuple[list[str], IntArray, Any, MatchingIndex]]:
    for batch in batches:
        for packed in batch.column(0):
            names, homes, deadlines_s, filters = pickle.loads(packed.as_buffer())
            yield names, homes, deadlines_s, MatchingIndex(enumerate(filters))


def _homes_by_event(offsets: LongArray, brokers: IntArray) -> tuple[LongArray, LongArray, IntArray]:
    """The events that somebody here wants, and between the ends the different brokers of those who do."""
    event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    width = int(brokers.max(initial=0)) + 1
    pairs = np.unique(event * width + brokers)
    events, counts = np.unique(pairs // width, return_counts=True)
    return events, np.concatenate([[0], np.cumsum(counts)]), (pairs % width).astype(np.int32)


def _wanted(
    content: int | None, names: list[str], homes: IntArray, deadlines_s: Any, held: LongArray, shares: Any
) -> pa.RecordBatch:
    count = len(held)
    none = {"slice": pa.int32(), "cell": pa.int64(), "homes": pa.list_(pa.int32())}
    columns = {
        "content": pa.array([content] * count, pa.int32()),
        "subscription": pa.array([names[k] for k in held.tolist()], pa.string()),
        "home": pa.array(homes[held], pa.int32()),
        "max_delay_s": pa.array(deadlines_s[held], pa.float64()),
        "share": pa.array(np.zeros(count) if shares is None else shares, pa.float64()),
    }
    return pa.record_batch(columns | {name: pa.nulls(count, kind) for name, kind in none.items()})


def _asked(content: int, weights: Any, cells: LongArray, ends: LongArray, brokers: IntArray) -> pa.RecordBatch:
    count = len(cells)
    none = {"subscription": pa.string(), "home": pa.int32(), "max_delay_s": pa.float64()}
    nothing = {name: pa.nulls(count, kind) for name, kind in none.items()}
    return pa.record_batch(
        {
            "content": pa.array(np.full(count, content, np.int32)),
            **nothing,
            "share": pa.array(weights[cells], pa.float64()),
            "slice": pa.array((cells // CELLS_PER_SLICE).astype(np.int32)),
            "cell": pa.array(cells, pa.int64()),
            "homes": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(brokers, pa.int32())),
        }
    )
