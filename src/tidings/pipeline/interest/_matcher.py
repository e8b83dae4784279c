"""What a worker does: Arrow arrays of departures and attributes in, an Arrow array of lists of numbers out.

An attribute whose files disagree about its kind comes as a struct with a field for each kind, one of which has the
value. Such rows are matched kind by kind, so a filter sees each value as what it was.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.compiled import compiled
from tidings.matching import MatchingIndex
from tidings.pipeline.interest._subscriptions import ALWAYS_NS, Array, Interests

__all__ = ["Matcher", "by_kind"]

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
        parts = by_kind(len(departures), attributes)
        found = [self._matches(departures.take(rows) if len(parts) > 1 else departures, some) for rows, some in parts]
        if len(parts) == 1:
            return found[0]
        places = np.concatenate([np.asarray(rows) for rows, _ in parts])
        return pa.concat_arrays(found).take(pa.array(np.argsort(places)))

    def _matches(self, departures: pa.Array, attributes: Mapping[str, pa.Array]) -> pa.Array:
        # The column of nulls stands for no attribute: it gives the batch its length if there are no others.
        columns = [pa.nulls(len(departures)), *(_comparable(values) for values in attributes.values())]
        offsets, found = self._index.match_batch(pa.RecordBatch.from_arrays(columns, ["", *attributes]))
        times = pc.fill_null(departures, NO_DEPARTURE_NS).to_numpy(zero_copy_only=False)
        ends, numbers = expanded(offsets, found, self._starts, self._numbers, self._from_ns, self._until_ns, times)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(numbers))


def by_kind(length: int, attributes: Mapping[str, pa.Array]) -> list[tuple[pa.Array, dict[str, pa.Array]]]:
    """So many rows of attributes as parts in which every attribute has one kind: (the rows' places, their attributes).

    Every row is in exactly one of them; where no attribute is mixed, there is one part.
    """
    return _taken_apart(pa.array(np.arange(length)), dict(attributes))


def _taken_apart(places: pa.Array, columns: dict[str, pa.Array]) -> list[tuple[pa.Array, dict[str, pa.Array]]]:
    """Rows by the kind of their first mixed attribute, and so on with the next."""
    mixed = next((name for name, column in columns.items() if pa.types.is_struct(column.type)), None)
    if mixed is None:
        return [(places, columns)]
    kinds = [pc.struct_field(columns[mixed], [number]) for number in range(columns[mixed].type.num_fields)]
    parts = []
    left = pa.array(np.ones(len(places), np.bool_))
    for number, values in enumerate(kinds):
        chosen = left if number == len(kinds) - 1 else pc.and_(left, pc.is_valid(values))
        left = pc.and_not(left, chosen)
        if number == 0 or pc.any(chosen).as_py():
            rows = {name: (values if name == mixed else column).filter(chosen) for name, column in columns.items()}
            parts += _taken_apart(places.filter(chosen), rows)
    return parts


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
