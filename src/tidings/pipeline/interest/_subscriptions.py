"""Subscriptions as the driver holds them: numbers, parsed filters, lifetimes.

Rules:

- A subscription counts for the events that depart in [from_ns, until_ns). NULL leaves an end open.
- A text that is no filter is not an exception: it is a fault, for the quarantine, and the others go on.
- A text is parsed once, however many subscriptions it has, and matched once for all of them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import FilterError, InputError
from tidings.model.filters import Filter
from tidings.pipeline.interest._filter_reader import read_filter

__all__ = ["BAD_FILTER", "SUBSCRIPTIONS", "FilterFault", "Interests", "are_no_filters", "fingerprint", "parse_filters"]

Array = npt.NDArray[Any]

BAD_FILTER: Final = "bad-filter"
"""The reason under which a subscription whose filter does not parse goes to the quarantine."""

SUBSCRIPTIONS: Final = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("filter", pa.string()),
        pa.field("from_ns", pa.int64()),
        pa.field("until_ns", pa.int64()),
    ]
)
"""What `parse_filters` reads of a table of subscriptions; other columns are left alone."""

ALWAYS_NS: Final = np.iinfo(np.int64).min + 1
"""A subscription from then on counts for every event; one below it is the departure of an event that has none."""
NEVER_NS: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class FilterFault:
    """A subscription that cannot be matched, and why."""

    number: int
    filter: str | None
    message: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Interests:
    """Subscriptions that can be matched.

    Filter i is that of the subscriptions ``starts[i]:starts[i + 1]``, whose numbers and lifetimes stand in the other
    arrays.
    """

    filters: tuple[Filter, ...]
    starts: Array  # i64[filters + 1]
    numbers: Array  # i32
    from_ns: Array  # i64
    until_ns: Array  # i64

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The attributes that some filter reads."""
        return frozenset().union(*(filter.attributes for filter in self.filters))


def parse_filters(subscriptions: pa.Table) -> tuple[Interests, list[FilterFault]]:
    """The subscriptions of a table (see SUBSCRIPTIONS) that can be matched, and the faults of those that cannot."""
    table = _checked(subscriptions)
    coded = table["filter"].combine_chunks().dictionary_encode()
    texts: list[str] = coded.dictionary.to_pylist()
    filters: list[Filter] = []
    messages: dict[int, str] = {}
    filter_of = np.full(len(texts) + 1, -1, np.int64)  # by text; the last is that of a subscription without one
    messages[len(texts)] = "the subscription has no filter; write TRUE to accept every event"
    for position, text in enumerate(texts):
        try:
            filters.append(read_filter(text))
            filter_of[position] = len(filters) - 1
        except FilterError as error:
            messages[position] = str(error)
    text_of = pc.fill_null(coded.indices.cast(pa.int64()), len(texts)).to_numpy(zero_copy_only=False)
    owner = filter_of[text_of]
    numbers = table["number"].to_numpy()
    faults = [
        FilterFault(
            number=int(numbers[row]),
            filter=texts[text_of[row]] if text_of[row] < len(texts) else None,
            message=messages[int(text_of[row])],
        )
        for row in np.flatnonzero(owner < 0).tolist()
    ]
    order = np.lexsort((numbers, owner))[len(faults) :]
    interests = Interests(
        filters=tuple(filters),
        starts=np.searchsorted(owner[order], np.arange(len(filters) + 1)),
        numbers=numbers[order].astype(np.int32),
        from_ns=_times(table["from_ns"], ALWAYS_NS)[order],
        until_ns=_times(table["until_ns"], NEVER_NS)[order],
    )
    return interests, faults


def _checked(subscriptions: pa.Table) -> pa.Table:
    """The columns of SUBSCRIPTIONS, in their types; InputError if one is missing or a number is there twice."""
    missing = [name for name in SUBSCRIPTIONS.names if name not in subscriptions.column_names]
    if missing:
        raise InputError(
            f"the table of subscriptions has no column {missing[0]!r}; it needs {', '.join(SUBSCRIPTIONS.names)}"
        )
    table = subscriptions.select(SUBSCRIPTIONS.names).cast(SUBSCRIPTIONS)
    if pc.count_distinct(table["number"]).as_py() != len(table):
        raise InputError("two subscriptions have the same number: give each a number of its own")
    return table


def _times(column: pa.ChunkedArray, without: int) -> Array:
    times: Array = pc.fill_null(column, without).to_numpy()
    return times


def are_no_filters(filters: pa.ChunkedArray) -> pa.Array:
    """Which of these texts do not parse; one that is missing is another fault."""
    wrong = {None: False}
    for text in pc.unique(filters).drop_null().to_pylist():
        try:
            read_filter(text)
            wrong[text] = False
        except FilterError:
            wrong[text] = True
    return pa.array([wrong[text] for text in filters.to_pylist()], pa.bool_())


def fingerprint(subscriptions: pa.Table, brokers: Sequence[str] | None) -> str:
    """Of the subscriptions in order of their numbers, and of the brokers in order of their names."""
    digest = hashlib.sha256()
    for row in subscriptions.to_pylist():
        digest.update(repr(sorted(row.items())).encode())
    digest.update(repr(brokers).encode())
    return digest.hexdigest()
