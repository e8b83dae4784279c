"""What a worker does: Arrow arrays of departures and attributes in, an Arrow array of lists of numbers out."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.compiled import compiled
from tidings.matching import MatchingIndex
from tidings.pipeline.interest._subscriptions import ALWAYS_NS, Array, Interests

__all__ = ["Matcher"]

NO_DEPARTURE_NS = ALWAYS_NS - 1  # before every lifetime


class Matcher:
    """An index of the distinct filters, and whose each of them is. Travels to the workers by pickle."""

    def __init__(self, interests: Interests) -> None:
        self._index = MatchingIndex(enumerate(interests.filters))
        self._starts = interests.starts
        self._numbers = interests.numbers
        self._from_ns = interests.from_ns
        self._until_ns = interests.until_ns

    def matches(self, departures: pa.Array, attributes: Mapping[str, pa.Array]) -> pa.Array:
        """For each event the numbers of the subscriptions that it matches, ascending, as a list of int32."""
        # The column of nulls stands for no attribute: it gives the batch its length if there are no others.
        columns = [pa.nulls(len(departures)), *(_comparable(values) for values in attributes.values())]
        offsets, found = self._index.match_batch(pa.RecordBatch.from_arrays(columns, ["", *attributes]))
        times = pc.fill_null(departures, NO_DEPARTURE_NS).to_numpy(zero_copy_only=False)
        ends, numbers = expanded(offsets, found, self._starts, self._numbers, self._from_ns, self._until_ns, times)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(numbers))


def _comparable(values: pa.Array) -> pa.Array:
    """A NaN or an infinity compares with nothing, so it counts as a missing value."""
    if not pa.types.is_floating(values.type):
        return values
    finite = pc.is_finite(values)
    return values if pc.all(finite).as_py() is not False else pc.if_else(finite, values, pa.scalar(None, values.type))


@compiled
def expanded(
    offsets: Array, found: Array, starts: Array, numbers: Array, from_ns: Array, until_ns: Array, departures: Array
) -> tuple[Array, Array]:
    """From the filters that each event satisfies to the subscriptions: those alive when it departs, ascending.

    Returns where each event's numbers end (with a 0 before) and the numbers.
    """
    ends = np.zeros(len(departures) + 1, np.int32)
    most = 0
    for i in range(len(found)):
        most += starts[found[i] + 1] - starts[found[i]]
    out = np.empty(most, np.int32)
    count = 0
    for event in range(len(departures)):
        first = count
        at_ns = departures[event]
        for i in range(offsets[event], offsets[event + 1]):
            for s in range(starts[found[i]], starts[found[i] + 1]):
                out[count] = numbers[s]
                count += from_ns[s] <= at_ns < until_ns[s]
        out[first:count].sort()
        ends[event + 1] = count
    return ends, out[:count]
