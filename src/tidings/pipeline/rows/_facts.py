"""The facts of a partition as arrays (see `_facts.py` of the pipeline for what the columns mean), and the audience."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline.rows._columns import Names, Values, names_of, values_of

__all__ = ["Audience", "EventRows", "FateRows", "HopRows", "audience_of"]

Array = npt.NDArray[Any]

TIMES: Sequence[str] = ("enqueued_ns", "sent_ns", "received_ns", "began_ns", "ended_ns")


@dataclass(frozen=True, kw_only=True)
class Audience:
    """Who subscribes, in order of the subscriptions' numbers; a deadline that is not known is none."""

    subscriptions: pa.Array
    subscribers: pa.Array
    prices: pa.Array
    delays_ns: Values

    def __len__(self) -> int:
        return len(self.subscriptions)


def audience_of(subscriptions: pa.Table) -> Audience:
    """Of a table with `number`, `subscription` and, where they are known, `subscriber`, `price`, `max_delay_ns`."""
    ordered = subscriptions.sort_by("number").combine_chunks()
    has_delays = "max_delay_ns" in ordered.column_names
    delays = ordered["max_delay_ns"] if has_delays else pa.nulls(len(ordered), pa.int64())
    return Audience(
        subscriptions=_one(ordered["subscription"]),
        subscribers=_one(ordered["subscriber"]),
        prices=_one(ordered["price"]),
        delays_ns=values_of(delays),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


@dataclass(frozen=True, kw_only=True)
class EventRows:
    """Events; the numbers of the subscriptions that event i matches are ``numbers[starts[i]:starts[i + 1]]``."""

    publisher: Names
    chunk: Array
    sequence: Array
    departure_ns: Values
    broker: Names
    size_bytes: Values
    lifetime_ns: Values
    starts: Array
    numbers: Array

    @classmethod
    def of(cls, table: pa.Table) -> "EventRows":
        matches = _one(table["matches"])
        return cls(
            publisher=names_of(table["publisher"]),
            chunk=values_of(table["chunk"]).values,
            sequence=values_of(table["sequence"]).values,
            departure_ns=values_of(table["departure_ns"]),
            broker=names_of(table["broker"]),
            size_bytes=values_of(table["size_bytes"]),
            lifetime_ns=values_of(table["lifetime_ns"]),
            starts=np.concatenate(([0], np.cumsum(np.asarray(matches.value_lengths().fill_null(0))))).astype(np.int64),
            numbers=np.asarray(matches.flatten()),
        )


@dataclass(frozen=True, kw_only=True)
class FateRows:
    """Pairs of an event and a subscription that it matches; `delay_ns` is from departure to arrival.

    `is_surely_on_time` and `is_maybe_on_time` are for the ends of what the clocks' errors leave open.
    """

    publisher: Names
    chunk: Array
    sequence: Array
    number: Array
    topic: Names
    departure_ns: Array
    delay_ns: Values
    delivered_ns: Values
    is_on_time: Array
    is_surely_on_time: Array
    is_maybe_on_time: Array
    is_late: Array
    duplicates: Array

    @classmethod
    def of(cls, table: pa.Table) -> "FateRows":
        departure = values_of(table["departure_ns"])
        fate = names_of(table["fate"])
        words = [*fate.names.to_pylist(), None]
        is_on_time = np.array([word == "on-time" for word in words])[fate.codes]
        return cls(
            publisher=names_of(table["publisher"]),
            chunk=values_of(table["chunk"]).values,
            sequence=values_of(table["sequence"]).values,
            number=values_of(table["number"]).values,
            topic=names_of(table["topic"]),
            departure_ns=departure.values,
            delay_ns=values_of(table["arrived_ns"]).minus(departure),
            delivered_ns=values_of(table["delivered_ns"]),
            is_on_time=is_on_time,
            is_surely_on_time=is_on_time,
            is_maybe_on_time=is_on_time,
            is_late=np.array([word == "late" for word in words])[fate.codes],
            duplicates=values_of(table["duplicates"]).values,
        )


@dataclass(frozen=True, kw_only=True)
class HopRows:
    """Transmissions; `outcome` are numbers into OUTCOMES of the ingest."""

    publisher: Names
    chunk: Array
    source: Names
    target: Names
    times_ns: dict[str, Values]
    outcome: Array
    departure_ns: Values
    size_bytes: Values
    deadline_ns: Values

    @classmethod
    def of(cls, table: pa.Table, outcomes: Sequence[str]) -> "HopRows":
        outcome = names_of(table["outcome"])
        places = [outcomes.index(word) for word in outcome.names.to_pylist()]
        return cls(
            publisher=names_of(table["publisher"]),
            chunk=values_of(table["chunk"]).values,
            source=names_of(table["source"]),
            target=names_of(table["target"]),
            times_ns={name: values_of(table[name]) for name in TIMES},
            outcome=np.array([*places, -1])[outcome.codes],
            departure_ns=values_of(table["departure_ns"]),
            size_bytes=values_of(table["size_bytes"]),
            deadline_ns=values_of(table["deadline_ns"]),
        )
