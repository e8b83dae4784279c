"""Content: a publisher's events by match signature, the set of subscriptions that they match, and by lifetime.

For what a network does with it, an event is its signature, its lifetime and its size; so a publisher's content is the
count of each. Signatures are kept as names, since the numbers of subscriptions hold for one run only. No signature is
dropped or merged, however many there are; a publisher with more than MOST_SIGNATURES rows is marked `is_crowded`: its
signatures hardly repeat, and whoever works through them has to expect as much work as with the events themselves.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.errors import InputError
from tidings.pipeline.measures._sums import Total, totals
from tidings.pipeline.rows import Audience, EventRows, grouped, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MOST_SIGNATURES", "PARTIAL_CONTENT", "content_of", "merge_content"]

_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)

MOST_SIGNATURES: Final = 10_000
"""Rows of one publisher from which on its content is marked as crowded."""


PARTIAL_CONTENT: Final = (
    "publisher string, chunk bigint, subscriptions array<string>, lifetime_ns bigint, events bigint, size_sum bigint"
)


def content_of(events: EventRows, audience: Audience) -> pa.Table:
    """The partials (PARTIAL_CONTENT) of these events. Names are put in place of numbers after counting."""
    if len(events.numbers) and events.numbers.max() >= len(audience):
        raise InputError(f"events match subscription number {events.numbers.max()}, and there is none")
    signature, distinct = _signatures(events)
    lifetime = events.lifetime_ns
    groups = grouped(events.publisher.codes, events.chunk, signature, lifetime.known.astype(np.int64), lifetime.values)
    firsts = groups.firsts
    names = audience.subscriptions.to_pylist()
    shown = [sorted(names[number] for number in np.frombuffer(each, np.int32).tolist()) for each in distinct]
    columns = {
        "publisher": events.publisher.at(firsts),
        "chunk": events.chunk[firsts],
        "subscriptions": [shown[each] for each in signature[firsts].tolist()],
        "lifetime_ns": lifetime.at(firsts),
        "events": groups.counts(),
        "size_sum": groups.sums(events.size_bytes.values),
    }
    return table_of(columns, PARTIAL_CONTENT)


def _signatures(events: EventRows) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """For each event the number of its signature, and the signatures: the bytes of their numbers.

    Hashes of signatures are compared first; each distinct one is then looked at once, unless two signatures share it.
    """
    lengths = np.diff(events.starts)
    hashes = _hashes(events.numbers, events.starts[:-1], lengths)
    _, first, alike = np.unique(hashes, return_index=True, return_inverse=True)
    is_same = _are_equal(events.numbers, events.starts[:-1], lengths, first[alike])
    chosen = first if is_same else np.arange(len(lengths))
    data, starts = events.numbers.astype(np.int32).tobytes(), 4 * events.starts
    known: dict[bytes, int] = {}
    begins, ends = starts[chosen].tolist(), starts[chosen + 1].tolist()
    found = [known.setdefault(data[begin:end], len(known)) for begin, end in zip(begins, ends, strict=True)]
    numbered = np.array(found, np.int64)
    return numbered[alike] if is_same else numbered, list(known)


def _hashes(numbers: npt.NDArray[Any], starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Of ascending numbers: equal for equal lists."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * _MIXER
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXER
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed ^ (mixed >> np.uint64(32)), dtype=np.uint64)))
    found: npt.NDArray[np.uint64] = sums[starts + lengths] - sums[starts]
    return found


def _are_equal(
    numbers: npt.NDArray[Any], starts: npt.NDArray[Any], lengths: npt.NDArray[Any], other: npt.NDArray[Any]
) -> bool:
    """Whether each list is the same as that of the other event."""
    if not np.array_equal(lengths, lengths[other]):
        return False
    shift = np.repeat(starts[other] - starts, lengths)
    return bool(np.array_equal(numbers, numbers[np.arange(len(numbers)) + shift]))


def merge_content(partials: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    merged = partials.groupBy("publisher", "subscriptions", "lifetime_ns").agg(
        *totals(Total("events", "sum"), Total("size_sum", "exact"))
    )
    of_publisher = Window.partitionBy("publisher")
    return merged.select(
        "publisher",
        "subscriptions",
        "lifetime_ns",
        "events",
        (fn.col("events") / fn.sum("events").over(of_publisher)).alias("share"),
        (fn.col("size_sum").cast("double") / fn.col("events")).alias("size_mean_bytes"),
        (fn.count("*").over(of_publisher) > MOST_SIGNATURES).alias("is_crowded"),
    )
