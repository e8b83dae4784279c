"""Partials put together in one process, so that what is put together can be added up again.

`sums_of` makes the sums of partials, `added` those of several such sums, and the tables of a run (_tables.py) are made
of sums alone. Whole numbers, extremes and batches of time are the same however the partials were split and in whatever
order they were added; sketches are within their accuracy. So who keeps sums needs no partials: a watch forgets those
of units that are closed (streaming/_state.py).

Two measures look beyond their unit. An event at the end of a chunk may be overtaken from a later one: violations are
counted among the partials that are given together, so a chunk has to be summed beside those that follow it. Gaps
between receptions go on from one slice of time to the next: `joined_slices` puts the gap between two into their sum.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.arrow._totals import batches_by, codes_of, earned, later_least, rows_by, summed
from tidings.pipeline.measures._brokers import ARRIVAL_TOTALS
from tidings.pipeline.measures._links import TRANSMISSION_TOTALS
from tidings.pipeline.measures._pair_sums import BATCHED, PAIR_TOTALS, SETS
from tidings.pipeline.measures._publishers import PUBLISHER_TOTALS
from tidings.pipeline.measures._sums import Total
from tidings.pipeline.rows import Values, grouped, grouped_value, names_of, values_of

__all__ = [
    "DEPARTURES",
    "PAIRS",
    "PAIR_SUMS",
    "Sums",
    "added",
    "batches_of",
    "exploded",
    "joined_slices",
    "merged_components",
    "merged_content",
    "merged_publishers",
    "numbered",
    "sums_of",
    "with_violations",
]

Sums = dict[str, pa.Table]
"""Sums by what they are of: PAIRS, DEPARTURES, `batches_of(keys)`, and the kinds of partials."""

PAIRS: Final = "pairs"
DEPARTURES: Final = "departures"
"""By topic and window of departure."""
PAIR_SUMS: Final = (*PAIR_TOTALS, Total("earned", "exact"))
_BATCH_COUNTS: Final = ("matched", "on_time", "arrived")
_QUARANTINE: Final = ("table", "file", "reasons", "row", "rows")


def batches_of(keys: Sequence[str]) -> str:
    """The name of the batches of time by these columns, one of BATCHED."""
    return f"batches by {' and '.join(keys)}"


def sums_of(partials: Mapping[str, pa.Table], arrivals: pa.Table) -> Sums:
    """The sums of the partials of units by kind, and of slices of time."""
    pairs = with_violations(partials["pairs"])
    pairs = pairs.append_column("earned", earned(pairs))
    parents, batches = exploded(pairs)
    return {
        **{name: summed(pairs, keys, PAIR_SUMS) for name, keys in zip((PAIRS, DEPARTURES), SETS, strict=True)},
        **{batches_of(keys): batches_by(pairs, parents, batches, keys) for keys in BATCHED},
        **_others(
            {
                **{name: partials[name] for name in ("transmissions", "publishers", "rows")},
                "content": partials["content"],
                "components": partials["components"],
                "quarantine": partials["quarantine"].select(_QUARANTINE),
                "arrivals": arrivals,
            }
        ),
    }


def exploded(rows: pa.Table) -> tuple[Any, pa.Table]:
    """The batches of time that rows have as lists, and the row of each."""
    lists = rows["batch_ns"].combine_chunks()
    parents = np.repeat(np.arange(len(rows)), np.asarray(lists.value_lengths().fill_null(0)))
    counts = {name: rows[f"batch_{name}"].combine_chunks().flatten() for name in _BATCH_COUNTS}
    return parents, pa.table({"batch_ns": lists.flatten(), **counts})


def added(*given: Sums) -> Sums:
    """The sums of all of these together."""
    whole = {name: pa.concat_tables([sums[name] for sums in given], promote_options="permissive") for name in given[0]}
    found: Sums = {
        name: summed(whole[name], keys, PAIR_SUMS) for name, keys in zip((PAIRS, DEPARTURES), SETS, strict=True)
    }
    for keys in BATCHED:
        rows = whole[batches_of(keys)]
        counts = rows.select(["batch_ns", *_BATCH_COUNTS])
        found[batches_of(keys)] = batches_by(rows, np.arange(len(rows)), counts, keys)
    return {**found, **_others(whole)}


def _others(rows: Mapping[str, pa.Table]) -> Sums:
    return {
        "transmissions": summed(rows["transmissions"], ["source", "target"], TRANSMISSION_TOTALS),
        "publishers": merged_publishers(rows["publishers"]),
        "content": merged_content(rows["content"]),
        "components": merged_components(rows["components"]),
        "quarantine": rows["quarantine"],
        "rows": summed(rows["rows"], ["table"], [Total("rows", "sum")]),
        "arrivals": summed(rows["arrivals"], ["broker", "slice"], ARRIVAL_TOTALS),
    }


def with_violations(pairs: pa.Table) -> pa.Table:
    """Partials with `fifo_violations`: those inside each chunk, and those that later chunks make of its border."""
    if "fifo_violations" in pairs.column_names:
        return pairs
    overtaken = values_of(pairs["overtaken"]).values
    publisher, subscription = names_of(pairs["publisher"]).codes, names_of(pairs["subscription"]).codes
    chunk, first = values_of(pairs["chunk"]).values, values_of(pairs["first_delivered_ns"])
    groups = grouped(publisher, subscription, chunk)
    pair = numbered(publisher, subscription)
    least = groups.least(first)
    later, has_later = later_least(pair[groups.firsts], least.values, least.known)
    of_row = np.empty(len(pairs), np.int64)
    of_row[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.counts())
    border = pairs["border_ns"].combine_chunks()
    parents = np.repeat(np.arange(len(pairs)), np.asarray(border.value_lengths().fill_null(0)))
    delivered = np.asarray(border.flatten())
    is_overtaken = has_later[of_row[parents]] & (delivered > later[of_row[parents]]) & (publisher[parents] >= 0)
    crossing = np.bincount(parents[is_overtaken], minlength=len(pairs))
    return pairs.append_column("fifo_violations", pa.array(overtaken + crossing))


def numbered(*columns: Any) -> Any:
    """A number for each row that rows with equal values share, in the columns' order."""
    groups = grouped(*columns)
    number = np.empty(len(groups.order), np.int64)
    number[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.counts())
    return number


def merged_publishers(rows: pa.Table) -> pa.Table:
    groups = rows_by(rows, ["publisher"])
    lists, order = rows["brokers"].to_pylist(), groups.order.tolist()
    ends = [*groups.starts.tolist(), len(order)]
    brokers = [sorted({name for row in order[begin:end] for name in lists[row]}) for begin, end in pairwise(ends)]
    merged = summed(rows, ["publisher"], PUBLISHER_TOTALS, groups)
    return merged.append_column("brokers", pa.array(brokers, pa.list_(pa.string())))


def merged_content(rows: pa.Table) -> pa.Table:
    signatures: dict[tuple[str, ...], int] = {}
    names = [signatures.setdefault(tuple(names), len(signatures)) for names in rows["subscriptions"].to_pylist()]
    codes = codes_of(rows, ["publisher", "lifetime_ns"])
    groups = grouped(codes[0], np.array(names, np.int64), *codes[1:])
    totals = [Total("events", "sum"), Total("size_sum", "exact")]
    return summed(rows, ["publisher", "subscriptions", "lifetime_ns"], totals, groups)


def merged_components(rows: pa.Table) -> pa.Table:
    """The small tables' own rows as they are; of all units one row that says from when to when the trace goes."""
    own = rows.filter(pc.is_valid(rows["kind"]))
    units = rows.filter(pc.is_null(rows["kind"]))
    totals = [Total("first_ns", "least"), Total("last_ns", "greatest")]
    spans = summed(units, ["kind"], totals)
    names = ["kind", "source", "target", "at_ns", "up", "first_ns", "last_ns"]
    return pa.concat_tables([own.select(names), spans], promote_options="default")


def joined_slices(arrivals: pa.Table) -> pa.Table:
    """Slices that follow each other as one: their gaps, and those from one slice of a broker to the next."""
    broker = names_of(arrivals["broker"]).codes
    order = np.lexsort((values_of(arrivals["slice"]).values, broker))
    ordered, codes = arrivals.take(pa.array(order)), broker[order]
    follows = np.concatenate(([False], codes[1:] == codes[:-1]))[: len(codes)]
    first, last = values_of(ordered["first_ns"]).values, values_of(ordered["last_ns"]).values
    gaps = Values(np.where(follows, first - np.roll(last, 1), 0), follows)
    groups = rows_by(ordered, ["broker"])
    borders: dict[str, Any] = {"broker": ordered["broker"].take(pa.array(groups.firsts))}
    for name, values in grouped_value("gap", groups, gaps, sketch=False).items():
        borders[name] = values.to_arrow() if isinstance(values, Values) else pa.array(values)
    joined = summed(ordered, ["broker"], (*ARRIVAL_TOTALS, Total("slice", "greatest")), groups)
    both = pa.concat_tables([joined, _exact(pa.table(borders))], promote_options="permissive")
    return summed(both, ["broker"], (*ARRIVAL_TOTALS, Total("slice", "greatest")))


def _exact(rows: pa.Table) -> pa.Table:
    """With the whole numbers that are kept in floating point as such."""
    kept = [total for total in ARRIVAL_TOTALS if total.name in rows.column_names]
    return summed(rows, ["broker"], kept)
