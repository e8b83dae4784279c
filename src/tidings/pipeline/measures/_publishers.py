"""Publishers: how often they publish, how regularly, how much, and from where.

Gaps are those between events of consecutive sequence numbers inside a chunk; the one gap in CHUNK_EVENTS that crosses
from a chunk to the next is left out, and a sample of the events has gaps only where neighbours were sampled. The rate
is that of sequence numbers over the time between the first and the last departure, so a sample does not change it.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.measures._estimates import (
    duration,
    duration_columns,
    floats,
    partial_columns,
    scv_columns,
    scv_of,
)
from tidings.pipeline.measures._sums import Total, merged_value
from tidings.pipeline.rows import (
    EventRows,
    Groups,
    Names,
    Values,
    grouped,
    grouped_value,
    packed,
    stable_order,
    table_of,
)
from tidings.statistics import events_interval, ratio

__all__ = [
    "PARTIAL_PUBLISHERS",
    "PUBLISHERS",
    "PUBLISHER_TOTALS",
    "finish_publishers",
    "publishers_of",
]

PUBLISHERS = (
    "publisher string, brokers array<string>, events bigint, first_ns bigint, last_ns bigint, rate_per_s double, "
    f"rate_low_per_s double, rate_high_per_s double, {duration_columns('gap')}, {scv_columns('gap')}, "
    "size_mean_bytes double, size_min_bytes bigint, size_max_bytes bigint"
)


PARTIAL_PUBLISHERS: Final = (
    "publisher string, chunk bigint, brokers array<string>, events bigint, first_sequence bigint, "
    "last_sequence bigint, first_ns bigint, last_ns bigint, size_sum bigint, size_min bigint, size_max bigint, "
    f"{partial_columns('gap')}"
)


def publishers_of(events: EventRows) -> pa.Table:
    """The partials (PARTIAL_PUBLISHERS) of these events."""
    unit = packed(events.publisher.codes, events.chunk)
    order = stable_order(packed(unit, events.sequence))
    ordered = unit[order]
    sequence, departure = events.sequence[order], events.departure_ns.at(order)
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = (ordered[1:] == ordered[:-1]) & (sequence[1:] == sequence[:-1] + 1)
    gap = departure.minus(departure.at(np.arange(len(order)) - 1)).where(follows)
    groups = grouped(ordered)
    size, broker = events.size_bytes.at(order), events.broker.at(order)
    bounds = Values(sequence, np.ones(len(order), np.bool_))
    firsts = order[groups.firsts]
    columns = {
        "publisher": events.publisher.at(firsts),
        "chunk": events.chunk[firsts],
        "brokers": _sets(groups, broker),
        "events": groups.counts(),
        "first_sequence": groups.least(bounds),
        "last_sequence": groups.greatest(bounds),
        "first_ns": groups.least(departure),
        "last_ns": groups.greatest(departure),
        "size_sum": groups.sums(size.values),
        "size_min": groups.least(size),
        "size_max": groups.greatest(size),
        **grouped_value("gap", groups, gap),
    }
    return table_of(columns, PARTIAL_PUBLISHERS)


def _sets(groups: Groups, names: Names) -> list[list[str]]:
    """The names in each group, in order."""
    of_row = np.repeat(np.arange(len(groups.starts)), groups.counts())
    distinct = grouped(of_row, names.codes[groups.order]).firsts
    found: list[list[str]] = [[] for _ in groups.starts]
    words = names.names.to_pylist()
    for group, code in zip(of_row[distinct].tolist(), names.codes[groups.order][distinct].tolist(), strict=True):
        found[group] += [words[code]] if code >= 0 else []
    return [sorted(each) for each in found]


PUBLISHER_TOTALS: Final = (
    Total("events", "sum"),
    Total("first_sequence", "least"),
    Total("last_sequence", "greatest"),
    Total("first_ns", "least"),
    Total("last_ns", "greatest"),
    Total("size_sum", "exact"),
    Total("size_min", "least"),
    Total("size_max", "greatest"),
    *merged_value("gap"),
)


def finish_publishers(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    gap = duration(batch, "gap")
    steps = floats(batch, "last_sequence") - floats(batch, "first_sequence")
    rate = ratio(steps, (floats(batch, "last_ns") - floats(batch, "first_ns")) / 1e9)
    low, high = events_interval(rate, steps, gap["gap_scv"], level=level)
    return {
        **gap,
        **scv_of(batch, "gap", gap["gap_scv"], level=level),
        "rate_per_s": rate,
        "rate_low_per_s": low,
        "rate_high_per_s": high,
        "size_mean_bytes": ratio(floats(batch, "size_sum"), floats(batch, "events")),
    }
