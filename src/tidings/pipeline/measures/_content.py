"""Content: a publisher's events by match signature, the set of subscriptions that they match, and by lifetime.

For what a network does with it, an event is its signature, its lifetime and its size; so a publisher's content is the
count of each. Signatures are kept as names, since the numbers of subscriptions hold for one run only. No signature is
dropped or merged, however many there are; a publisher with more than MOST_SIGNATURES rows is marked `is_crowded`: its
signatures hardly repeat, and whoever works through them has to expect as much work as with the events themselves.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled
from tidings.errors import InputError
from tidings.pipeline.rows import Audience, EventRows, grouped, table_of

__all__ = ["MOST_SIGNATURES", "PARTIAL_CONTENT", "content_of"]

Array = npt.NDArray[Any]

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


def _signatures(events: EventRows) -> tuple[Array, list[bytes]]:
    """For each event the number of its signature, and the signatures: the bytes of their numbers.

    Hashes of signatures are compared first; each distinct one is then looked at once, unless two signatures share it.
    """
    hashes = hashes_of(events.numbers, events.starts)
    _, first, alike = np.unique(hashes, return_index=True, return_inverse=True)
    is_same = are_equal(events.numbers, events.starts, first[alike])
    chosen = first if is_same else np.arange(len(hashes))
    data, starts = np.ascontiguousarray(events.numbers, np.int32).view(np.uint8), 4 * events.starts
    known: dict[bytes, int] = {}
    begins, ends = starts[chosen].tolist(), starts[chosen + 1].tolist()
    found = [known.setdefault(data[begin:end].tobytes(), len(known)) for begin, end in zip(begins, ends, strict=True)]
    numbered = np.array(found, np.int64)
    return numbered[alike] if is_same else numbered, list(known)


@compiled
def hashes_of(numbers: Array, starts: Array) -> Array:
    """Of ascending numbers: equal for equal lists."""
    found = np.zeros(len(starts) - 1, np.uint64)
    for event in range(len(found)):
        for place in range(starts[event], starts[event + 1]):
            mixed = (np.uint64(numbers[place]) + np.uint64(1)) * _MIXER
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXER
            found[event] += mixed ^ (mixed >> np.uint64(32))
    return found


@compiled
def are_equal(numbers: Array, starts: Array, other: Array) -> bool:
    """Whether the list of each event is the same as that of the other event."""
    for event in range(len(other)):
        first, length = starts[other[event]], starts[event + 1] - starts[event]
        if starts[other[event] + 1] - first != length:
            return False
        for place in range(length):
            if numbers[starts[event] + place] != numbers[first + place]:
                return False
    return True
