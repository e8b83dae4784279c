"""The tables of a run from its partials, in one process; what they show is said where Spark makes the same ones.

Sums, extremes and sketches are put together by `_totals.py`, estimates are made by the functions that Spark's tables
go through as well (`finish_*`), so both engines give the same numbers.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.arrow._totals import (
    batch_sums,
    codes_of,
    earned,
    exact_sum,
    finished,
    later_least,
    quantile_lists,
    rows_by,
    shown,
    summed,
    usual,
)
from tidings.pipeline.profiles import LEVEL, MOST_SIGNATURES
from tidings.pipeline.profiles._batch_sums import sum_columns
from tidings.pipeline.profiles._brokers import ARRIVAL_TOTALS, ARRIVALS, BROKERS, finish_arrivals, finish_brokers
from tidings.pipeline.profiles._components import COMPONENTS, finish_components
from tidings.pipeline.profiles._links import LINKS, TRANSMISSION_TOTALS, finish_links
from tidings.pipeline.profiles._pair_sums import PAIR_TOTALS, SCORE_TOTALS, SETS, SHARES
from tidings.pipeline.profiles._pairs import MIDDLES, PAIRS, finish_pairs
from tidings.pipeline.profiles._publishers import PUBLISHER_TOTALS, PUBLISHERS, finish_publishers
from tidings.pipeline.profiles._sums import PROBABILITIES, Total
from tidings.pipeline.rows import Values, grouped, grouped_value, names_of, values_of
from tidings.pipeline.scores._pairs import QUANTILES, SCORES, finish_scores
from tidings.pipeline.scores._traffic import TRAFFIC, traffic_counts

__all__ = ["tables_of"]

Partials = Mapping[str, pa.Table]


def tables_of(partials: Partials, arrivals: pa.Table) -> dict[str, pa.Table]:
    """Every table by name, from the partials of units by kind and those of slices of time."""
    return {
        **_of_pairs(partials["pairs"]),
        **_of_transmissions(partials["transmissions"]),
        "quarantine": partials["quarantine"].select(["table", "file", "reasons", "row", "rows"]),
        "rows": summed(partials["rows"], ["table"], [Total("rows", "sum")]),
        "publishers": _publishers(partials["publishers"]),
        "content": _content(partials["content"]),
        "components": _components(partials["components"]),
        "arrivals": _arrivals(arrivals),
    }


def _of_pairs(partials: pa.Table) -> dict[str, pa.Table]:
    counted = partials.append_column("fifo_violations", pa.array(_violations(partials)))
    money = earned(partials)
    sums = {}
    for keys in SETS:
        groups = rows_by(counted, keys)
        merged = summed(counted, keys, PAIR_TOTALS, groups)
        # Whole units of the last decimal, which no table shows.
        sums[keys] = merged, groups.sums(money) if len(groups.starts) else np.zeros(0, object)
    tables = {
        f"{name}_scores": _scores(partials, *sums[keys], by)
        for name, keys, by in (
            ("subscriber", SETS[0], ("subscription", "subscriber")),
            ("publisher", SETS[0], ("publisher",)),
            ("topic", SETS[1], ("topic",)),
            ("window", SETS[1], ("window_ns",)),
        )
    }
    return {**tables, "pairs": _pairs(partials, sums[SETS[0]][0])}


def _violations(partials: pa.Table) -> Any:
    """Those inside each chunk, and those that deliveries of later chunks make of the border's events."""
    overtaken = values_of(partials["overtaken"]).values
    publisher, subscription = names_of(partials["publisher"]).codes, names_of(partials["subscription"]).codes
    chunk, first = values_of(partials["chunk"]).values, values_of(partials["first_delivered_ns"])
    groups = grouped(publisher, subscription, chunk)
    pair = grouped_number(publisher, subscription)
    least = groups.least(first)
    later, has_later = later_least(pair[groups.firsts], least.values, least.known)
    of_row = np.empty(len(partials), np.int64)
    of_row[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.counts())
    border = partials["border_ns"].combine_chunks()
    parents = np.repeat(np.arange(len(partials)), np.asarray(border.value_lengths().fill_null(0)))
    delivered = np.asarray(border.flatten())
    is_overtaken = has_later[of_row[parents]] & (delivered > later[of_row[parents]]) & (publisher[parents] >= 0)
    return overtaken + np.bincount(parents[is_overtaken], minlength=len(partials))


def grouped_number(*columns: Any) -> Any:
    """A number for each row that rows with equal values share, in the columns' order."""
    groups = grouped(*columns)
    number = np.empty(len(groups.order), np.int64)
    number[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.counts())
    return number


def _known(table: pa.Table, keys: Sequence[str]) -> Any:
    """Which rows have a value in each of these columns."""
    return np.logical_and.reduce([np.asarray(table[name].is_valid()) for name in keys])


def _with_shares(rows: pa.Table, partials: pa.Table, keys: Sequence[str], share: str) -> pa.Table:
    """The rows with the sums of batches that the interval of a share is made of; NULL where nothing was counted."""
    sums = batch_sums(partials, keys, share, *SHARES[share])
    both = pa.concat_tables([rows.select(keys), sums.select(keys)])
    number = grouped_number(*codes_of(both, keys))
    places = np.full(number.max() + 1 if len(number) else 0, -1)
    places[number[len(rows) :]] = np.arange(len(sums))
    found = places[number[: len(rows)]]
    taken = pa.array(found, mask=found < 0)
    for name in sum_columns(share):
        rows = rows.append_column(name, sums[name].take(taken))
    return rows.append_column(f"{share}_usual", pa.array(np.full(len(rows), usual(rows, share))))


def _scores(partials: pa.Table, merged: pa.Table, money: Any, keys: Sequence[str]) -> pa.Table:
    known = np.flatnonzero(_known(merged, keys))
    mine, groups = merged.take(pa.array(known)), rows_by(merged.take(pa.array(known)), keys)
    rows = summed(mine, keys, SCORE_TOTALS, groups)
    totals: Any = groups.sums(money[known]) if len(groups.starts) else []
    rows = rows.append_column("earnings", pa.array([int(total) / 10**9 for total in totals], pa.float64()))
    rows = _with_shares(rows, partials, keys, "on_time")
    for end in ("min", "max"):
        rows = rows.append_column(f"delay_{end}_ns", rows[f"delay_{end}"])
    lists = quantile_lists(rows["delay_sketch"], QUANTILES)
    for place, probability in enumerate(QUANTILES):
        rows = rows.append_column(f"delay_p{round(100 * probability)}_ns", pc.list_element(lists, place))
    kinds = ["bigint" if pa.types.is_integer(rows[key].type) else "string" for key in keys]
    columns = ", ".join([*(f"{key} {kind}" for key, kind in zip(keys, kinds, strict=True)), SCORES])
    return finished(rows, finish_scores, columns)


def _pairs(partials: pa.Table, merged: pa.Table) -> pa.Table:
    keys = ("publisher", "subscription")
    rows = _with_shares(merged.filter(pa.array(_known(merged, keys))), partials, keys, "arrived")
    rows = shown(rows, "delay")
    rows = rows.append_column("difference_quantiles_ns", quantile_lists(rows["difference_sketch"], PROBABILITIES))
    for name in ("delay", "difference"):
        rows = rows.append_column(f"{name}_grid", quantile_lists(rows[f"{name}_sketch"], MIDDLES))
    return finished(rows, partial(finish_pairs, level=LEVEL), PAIRS)


def _of_transmissions(partials: pa.Table) -> dict[str, pa.Table]:
    links = summed(partials, ["source", "target"], TRANSMISSION_TOTALS)
    at_brokers = summed(partials, ["target"], TRANSMISSION_TOTALS)
    received = at_brokers.filter(pc.greater(at_brokers["arrivals"], 0)).rename_columns(
        {"target": "broker", "first_received_ns": "first_ns", "last_received_ns": "last_ns"}
    )
    sent = links.rename_columns({"first_sent_ns": "first_ns", "last_sent_ns": "last_ns"})
    return {
        "traffic": finished(links.select(["source", "target"]), lambda _: traffic_counts(links), TRAFFIC),
        "brokers": finished(shown(received, "service", "waiting"), partial(finish_brokers, level=LEVEL), BROKERS),
        "links": finished(shown(sent, "wait", "delay"), partial(finish_links, level=LEVEL), LINKS),
    }


def _publishers(partials: pa.Table) -> pa.Table:
    groups = rows_by(partials, ["publisher"])
    merged = shown(summed(partials, ["publisher"], PUBLISHER_TOTALS, groups), "gap")
    lists = partials["brokers"].to_pylist()
    ends = [*groups.starts.tolist(), len(groups.order)]
    order = groups.order.tolist()
    brokers = [sorted({name for row in order[begin:end] for name in lists[row]}) for begin, end in pairwise(ends)]
    merged = merged.append_column("brokers", pa.array(brokers, pa.list_(pa.string())))
    sizes = {f"size_{end}": f"size_{end}_bytes" for end in ("min", "max")}
    return finished(merged.rename_columns(sizes), partial(finish_publishers, level=LEVEL), PUBLISHERS)


CONTENT = (
    "publisher string, subscriptions array<string>, lifetime_ns bigint, events bigint, share double, "
    "size_mean_bytes double, is_crowded boolean"
)


def _content(partials: pa.Table) -> pa.Table:
    signatures: dict[tuple[str, ...], int] = {}
    numbers = [signatures.setdefault(tuple(names), len(signatures)) for names in partials["subscriptions"].to_pylist()]
    publisher, lifetime = names_of(partials["publisher"]).codes, values_of(partials["lifetime_ns"])
    groups = grouped(publisher, np.array(numbers, np.int64), lifetime.known.astype(np.int64), lifetime.values)
    merged = summed(partials, ["publisher", "subscriptions", "lifetime_ns"], [Total("events", "sum")], groups)
    of = grouped(publisher[groups.firsts])
    events = np.asarray(merged["events"])
    number = np.empty(len(events), np.int64)
    number[of.order] = np.repeat(np.arange(len(of.starts)), of.counts())
    sizes = np.asarray(exact_sum(partials["size_sum"], groups).cast(pa.float64()))
    columns = {
        "share": events / of.sums(events)[number],
        "size_mean_bytes": sizes / events,
        "is_crowded": (of.counts() > MOST_SIGNATURES)[number],
    }
    return finished(merged, lambda _: columns, CONTENT)


def _components(partials: pa.Table) -> pa.Table:
    rows = partials.select(["kind", "source", "target", "at_ns", "up", "first_ns", "last_ns"]).to_pylist()
    times = [[row[end], row["at_ns"]] for row in rows for end in ("first_ns", "last_ns")]
    known = [time for some in times for time in some if time is not None]
    first, last = (min(known), max(known)) if known else (None, None)
    moves: dict[tuple[Any, ...], set[tuple[int, bool]]] = {}
    for row in rows:
        if row["kind"] is not None:
            found = moves.setdefault((row["kind"], row["source"], row["target"]), set())
            if row["at_ns"] is not None:
                found.add((row["at_ns"], row["up"]))
    ordered = [sorted(some) for some in moves.values()]
    merged = pa.table(
        {
            **{name: pa.array([key[place] for key in moves], pa.string()) for place, name in enumerate(_COMPONENT)},
            "first_ns": pa.array([first] * len(moves), pa.int64()),
            "last_ns": pa.array([last] * len(moves), pa.int64()),
            "at_ns": pa.array([[at for at, _ in some] for some in ordered], pa.list_(pa.int64())),
            "up": pa.array([[up for _, up in some] for some in ordered], pa.list_(pa.bool_())),
        }
    )
    return finished(merged, partial(finish_components, level=LEVEL), COMPONENTS)


_COMPONENT = ("kind", "source", "target")


def _arrivals(partials: pa.Table) -> pa.Table:
    """The gaps inside slices, and those from one slice of a broker to the next that has any."""
    broker = names_of(partials["broker"]).codes
    order = np.lexsort((values_of(partials["slice"]).values, broker))
    ordered = partials.take(pa.array(order))
    codes = broker[order]
    follows = np.concatenate(([False], codes[1:] == codes[:-1]))[: len(codes)]
    first, last = values_of(ordered["first_ns"]).values, values_of(ordered["last_ns"]).values
    gaps = Values(np.where(follows, first - np.roll(last, 1), 0), follows)
    groups = rows_by(ordered, ["broker"])
    merged = summed(ordered, ["broker"], ARRIVAL_TOTALS, groups)
    for name, values in grouped_value("border", groups, gaps, sketch=False).items():
        merged = merged.append_column(name, values.to_arrow() if isinstance(values, Values) else pa.array(values))
    return finished(merged, partial(finish_arrivals, level=LEVEL), ARRIVALS)
