"""What happened to every event of a partition, as arrays, and the audience.

A deadline is the tighter of the publisher's and the subscriber's; the deadline of a hop is the loosest of the
subscriptions that its event matches: whatever is received later can be on time for nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline.rows._columns import Names, Values, values_of

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
