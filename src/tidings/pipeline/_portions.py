"""Rows of whole units, matched, in portions of bounded rows x fan-out.

What is computed of a unit needs the matches of all its events at once, and an event may have thousands. So the units of
a partition are matched some at a time, and what is computed together has MATCHES_MOST matches or is one unit.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.interest import Matcher
from tidings.pipeline.rows import GATHERED, grouped, names_of, truncated_quotient, values_of

__all__ = ["portions"]

EVENTS_LEAST: Final = CHUNK_EVENTS
"""Events that are matched at a time, however many subscriptions there are."""
MATCHES_MOST: Final = 1 << 23
"""Matches that are held at a time; a unit with more of them is computed alone."""


def portions(rows: pa.Table, matcher: Matcher, subscriptions: int) -> Iterator[pa.Table]:
    """The rows as GATHERED: `attributes`, if there are any, make place for `matches`."""
    is_event = np.asarray(rows["of"]) == 0
    events_most = max(EVENTS_LEAST, MATCHES_MOST // max(1, subscriptions))
    held, matches = list[pa.Table](), 0
    for some in _units(rows, is_event, events_most):
        table = _matched(some, matcher)
        found = pc.sum(pc.list_value_length(table["matches"])).as_py() or 0
        if held and matches + found > MATCHES_MOST:
            yield pa.concat_tables(held)
            held, matches = [], 0
        held.append(table)
        matches += found
    yield pa.concat_tables(held)


def _units(rows: pa.Table, is_event: npt.NDArray[np.bool_], events_most: int) -> Iterator[pa.Table]:
    """Whole units with at most so many events together, or one unit."""
    if is_event.sum() <= events_most:
        yield rows
        return
    names, sequence = names_of(rows["publisher"]), values_of(rows["sequence"])
    units = grouped(names.codes, sequence.known, truncated_quotient(sequence.values, CHUNK_EVENTS))
    ordered = rows.take(pa.array(units.order))
    ends = [*units.starts[1:].tolist(), len(rows)]
    events = np.concatenate(([0], np.cumsum(is_event[units.order])))
    begin = end = 0
    for after in ends:
        if end > begin and events[after] - events[begin] > events_most:
            yield ordered.slice(begin, end - begin)
            begin = end
        end = after
    yield ordered.slice(begin)


def _matched(rows: pa.Table, matcher: Matcher) -> pa.Table:
    is_event = np.asarray(rows["of"]) == 0
    events = rows.filter(pa.array(is_event)).combine_chunks()
    attributes: dict[str, Any] = {}
    if "attributes" in rows.column_names and len(events):
        held = events["attributes"].chunk(0)
        attributes = dict(zip((field.name for field in held.type), held.flatten(), strict=True))
    departures = events["departure_ns"].chunk(0) if len(events) else pa.array([], pa.int64())
    found = matcher.matches(departures, attributes)
    lengths = np.zeros(len(rows), np.int32)
    lengths[is_event] = np.diff(np.asarray(found.offsets))
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32)))
    found = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), found.values, mask=pa.array(~is_event))
    columns = [found if name == "matches" else rows[name] for name in GATHERED.names]
    return pa.table(columns, names=GATHERED.names)
