"""Brokers: what they have to do, how long they take for it and how long it waits.

Two tables, since they are cut differently. `brokers` (by chunk, from the partials of _links.py): service and waiting
times of what each broker received. `arrivals` (by slice of time): the gaps between consecutive receptions whoever
published them; these need the receptions of all publishers in order of time, a second shuffle, of times by the
thousand.
Gaps across slices are added in the merge, so the table does not depend on where slices end.

The service time is `ended_ns` - `began_ns`, with any processing that keeps nobody waiting; the waiting time is
`began_ns` - `received_ns`. Utilisation is the time served over the time from the first reception to the last end: the
busy share of a broker with one server. Waiting times are not independent of each other, so their scv has no interval.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline.measures._estimates import (
    duration,
    duration_columns,
    floats,
    partial_columns,
    scv_columns,
    scv_of,
    sum_of_products,
    whole,
)
from tidings.pipeline.measures._sums import Total, merged_value
from tidings.pipeline.rows import (
    Groups,
    HopRows,
    Values,
    grouped,
    grouped_value,
    names_of,
    packed,
    table_of,
    truncated_quotient,
    values_of,
)
from tidings.statistics import events_interval, moments, ratio, scv_interval

__all__ = [
    "ARRIVALS",
    "ARRIVAL_TOTALS",
    "BROKERS",
    "PARTIAL_ARRIVALS",
    "RECEPTIONS",
    "SLICE_NS",
    "finish_arrivals",
    "finish_brokers",
    "receptions_of",
]

SLICE_NS: Final = 60_000_000_000
"""Length of a slice: slice = received_ns div SLICE_NS."""

BROKERS = (
    "broker string, arrivals bigint, first_ns bigint, last_ns bigint, arrival_rate_per_s double, utilisation double, "
    f"{duration_columns('service')}, {scv_columns('service')}, {duration_columns('waiting')}"
)

ARRIVALS = (
    "broker string, arrivals bigint, first_ns bigint, last_ns bigint, rate_per_s double, rate_low_per_s double, "
    f"rate_high_per_s double, gap_mean_s double, gap_scv double, {scv_columns('gap')}"
)


def finish_brokers(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    service = duration(batch, "service")
    first_ns = floats(batch, "first_ns")
    return {
        **service,
        **scv_of(batch, "service", service["service_scv"], level=level),
        **duration(batch, "waiting"),
        "arrival_rate_per_s": ratio(floats(batch, "arrivals") - 1.0, (floats(batch, "last_ns") - first_ns) / 1e9),
        "utilisation": ratio(floats(batch, "service_sum"), floats(batch, "last_ended_ns") - first_ns),
    }


RECEPTIONS: Final = "broker string, slice bigint, received_ns binary"
"""When a broker received something in a slice: times as bytes, which Spark passes on without looking at them."""
PARTIAL_ARRIVALS: Final = (
    "broker string, slice bigint, arrivals bigint, first_ns bigint, last_ns bigint, "
    f"{partial_columns('gap', sketch=False)}"
)


def receptions_of(hops: HopRows, *, by_unit: bool = False) -> pa.Table:
    """When each broker received something (RECEPTIONS): one row instead of thousands is shuffled.

    `by_unit` keeps those of different units apart, and says which unit each row is of.
    """
    received = hops.times_ns["received_ns"]
    mine = np.flatnonzero(received.known)
    at_ns, target = received.values[mine], hops.target.at(mine)
    publisher, chunk = hops.publisher.at(mine), hops.chunk[mine]
    unit = [publisher.codes, chunk] if by_unit else []
    groups = grouped(*unit, target.codes, truncated_quotient(at_ns, SLICE_NS))
    ends = np.concatenate(([0], np.cumsum(groups.counts()))) * at_ns.itemsize
    columns = {
        "broker": target.at(groups.firsts),
        "slice": truncated_quotient(at_ns[groups.firsts], SLICE_NS),
        "received_ns": _as_bytes(ends, at_ns[groups.order]),
    }
    if not by_unit:
        return table_of(columns, RECEPTIONS)
    own = {"publisher": publisher.at(groups.firsts), "chunk": chunk[groups.firsts]}
    return table_of({**own, **columns}, f"publisher string, chunk bigint, {RECEPTIONS}")


def _as_bytes(ends: npt.NDArray[Any], values: npt.NDArray[Any]) -> pa.Array:
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _times_of(column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """How many times each row has, and the times."""
    array = column.combine_chunks()
    ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2], np.uint8)[ends[0] : ends[-1]]
    return np.diff(ends) // np.dtype(np.int64).itemsize, data.view(np.int64)


def arrivals_of(receptions: pa.Table) -> pa.Table:
    """The partials (PARTIAL_ARRIVALS) of slices whose receptions are all here."""
    counts, received = _times_of(receptions["received_ns"])
    of_list = np.repeat(np.arange(len(receptions)), counts)
    broker, number = names_of(receptions["broker"]), values_of(receptions["slice"]).values
    owner = packed(broker.codes, number)
    found, at_ns = _in_order(owner[of_list], received)
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1]))[: len(found)])
    groups = Groups(np.arange(len(at_ns)), starts)
    times = Values(at_ns, np.ones(len(at_ns), np.bool_))
    is_first = np.zeros(len(at_ns), np.bool_)
    is_first[starts] = True
    gaps = Values(np.diff(at_ns, prepend=0), ~is_first)
    known, firsts = np.unique(owner, return_index=True)
    firsts = firsts[np.searchsorted(known, found[starts])]
    columns = {
        "broker": broker.at(firsts),
        "slice": number[firsts],
        "arrivals": groups.counts(),
        "first_ns": groups.least(times),
        "last_ns": groups.greatest(times),
        **grouped_value("gap", groups, gaps, sketch=False),
    }
    return table_of(columns, PARTIAL_ARRIVALS)


def _in_order(owner: npt.NDArray[Any], at_ns: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both by owner and time. Sorted as one number where that is possible: to find the order takes far longer."""
    if not len(at_ns):
        return owner, at_ns
    least_ns = int(at_ns.min())
    span = int(at_ns.max()) - least_ns + 1
    if (int(owner.max()) + 1) * span < 1 << 62:
        key = np.sort(owner * span + (at_ns - least_ns))
        return key // span, key % span + least_ns
    order = np.lexsort((at_ns, owner))
    return owner[order], at_ns[order]


ARRIVAL_TOTALS: Final = (
    Total("arrivals", "sum"),
    Total("first_ns", "least"),
    Total("last_ns", "greatest"),
    *merged_value("gap", sketch=False),
)


def finish_arrivals(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    parts = [name for name in ("gap", "border") if f"{name}_count" in batch.schema.names]
    count, total = (np.sum([whole(batch, f"{name}_{of}") for name in parts], axis=0) for of in ("count", "sum"))
    squares = np.sum([sum_of_products(batch, f"{name}_squares") for name in parts], axis=0)
    gaps = moments(count, total, squares)
    rate = ratio(1e9, gaps.mean)
    low, high = events_interval(rate, count.astype(np.float64), gaps.scv, level=level)
    scv_low, scv_high = scv_interval(gaps.scv, count.astype(np.float64), level=level)
    return {
        "rate_per_s": rate,
        "rate_low_per_s": low,
        "rate_high_per_s": high,
        "gap_mean_s": gaps.mean / 1e9,
        "gap_scv": gaps.scv,
        "gap_scv_low": scv_low,
        "gap_scv_high": scv_high,
    }
