"""The tables of a run from the sums of its partials (_sums.py), in one process: the same tables as Spark makes.

Estimates are made by the functions that Spark's tables go through as well (`finish_*`), so both engines give the same
numbers.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.arrow._sums import DEPARTURES, PAIRS, Sums, batches_of, joined_slices, numbered
from tidings.pipeline.arrow._totals import batch_sums, codes_of, finished, quantile_lists, rows_by, shown, summed, usual
from tidings.pipeline.measures import LEVEL, MOST_SIGNATURES
from tidings.pipeline.measures._batch_sums import sum_columns
from tidings.pipeline.measures._brokers import ARRIVALS, BROKERS, finish_arrivals, finish_brokers
from tidings.pipeline.measures._components import COMPONENTS, finish_components
from tidings.pipeline.measures._links import LINKS, TRAFFIC, TRANSMISSION_TOTALS, finish_links, traffic_counts
from tidings.pipeline.measures._pair_scores import QUANTILES, SCORES, finish_scores
from tidings.pipeline.measures._pair_sums import SCORE_TOTALS, SHARES
from tidings.pipeline.measures._pairs import MIDDLES, finish_pairs
from tidings.pipeline.measures._pairs import PAIRS as PAIRS_TABLE
from tidings.pipeline.measures._publishers import PUBLISHERS, finish_publishers
from tidings.pipeline.measures._sums import PROBABILITIES, Total

__all__ = ["tables_of"]


def tables_of(sums: Sums) -> dict[str, pa.Table]:
    """Every table by name."""
    return {
        **_of_pairs(sums),
        **_of_transmissions(sums["transmissions"]),
        "quarantine": sums["quarantine"],
        "rows": sums["rows"],
        "publishers": _publishers(sums["publishers"]),
        "content": _content(sums["content"]),
        "components": _components(sums["components"]),
        "arrivals": _arrivals(sums["arrivals"]),
    }


def _of_pairs(sums: Sums) -> dict[str, pa.Table]:
    tables = {
        f"{name}_scores": _scores(sums, of, by)
        for name, of, by in (
            ("subscriber", PAIRS, ("subscription", "subscriber")),
            ("publisher", PAIRS, ("publisher",)),
            ("topic", DEPARTURES, ("topic",)),
            ("window", DEPARTURES, ("window_ns",)),
        )
    }
    return {**tables, "pairs": _pairs(sums)}


def _known(table: pa.Table, keys: Sequence[str]) -> Any:
    """Which rows have a value in each of these columns."""
    return np.logical_and.reduce([np.asarray(table[name].is_valid()) for name in keys])


def _with_shares(rows: pa.Table, sums: Sums, keys: Sequence[str], share: str) -> pa.Table:
    """The rows with the sums of batches that the interval of a share is made of; NULL where nothing was counted."""
    batches = batch_sums(sums[batches_of(keys)], keys, share, *SHARES[share])
    both = pa.concat_tables([rows.select(keys), batches.select(keys)])
    number = numbered(*codes_of(both, keys))
    places = np.full(number.max() + 1 if len(number) else 0, -1)
    places[number[len(rows) :]] = np.arange(len(batches))
    found = places[number[: len(rows)]]
    taken = pa.array(found, mask=found < 0)
    for name in sum_columns(share):
        rows = rows.append_column(name, batches[name].take(taken))
    return rows.append_column(f"{share}_usual", pa.array(np.full(len(rows), usual(rows, share))))


def _scores(sums: Sums, of: str, keys: Sequence[str]) -> pa.Table:
    mine = sums[of].filter(pa.array(_known(sums[of], keys)))
    rows = summed(mine, keys, (*SCORE_TOTALS, Total("earned", "exact")))
    rows = rows.append_column(
        "earnings", pa.array([int(each) / 10**9 for each in rows["earned"].to_pylist()], pa.float64())
    )
    rows = _with_shares(rows, sums, keys, "on_time")
    for end in ("min", "max"):
        rows = rows.append_column(f"delay_{end}_ns", rows[f"delay_{end}"])
    lists = quantile_lists(rows["delay_sketch"], QUANTILES)
    for place, probability in enumerate(QUANTILES):
        rows = rows.append_column(f"delay_p{round(100 * probability)}_ns", pc.list_element(lists, place))
    kinds = ["bigint" if pa.types.is_integer(rows[key].type) else "string" for key in keys]
    columns = ", ".join([*(f"{key} {kind}" for key, kind in zip(keys, kinds, strict=True)), SCORES])
    return finished(rows, finish_scores, columns)


def _pairs(sums: Sums) -> pa.Table:
    keys = ("publisher", "subscription")
    rows = _with_shares(sums[PAIRS].filter(pa.array(_known(sums[PAIRS], keys))), sums, keys, "arrived")
    rows = shown(rows, "delay")
    rows = rows.append_column("difference_quantiles_ns", quantile_lists(rows["difference_sketch"], PROBABILITIES))
    for name in ("delay", "difference"):
        rows = rows.append_column(f"{name}_grid", quantile_lists(rows[f"{name}_sketch"], MIDDLES))
    return finished(rows, partial(finish_pairs, level=LEVEL), PAIRS_TABLE)


def _of_transmissions(links: pa.Table) -> dict[str, pa.Table]:
    at_brokers = summed(links, ["target"], TRANSMISSION_TOTALS)
    received = at_brokers.filter(pc.greater(at_brokers["arrivals"], 0)).rename_columns(
        {"target": "broker", "first_received_ns": "first_ns", "last_received_ns": "last_ns"}
    )
    sent = links.rename_columns({"first_sent_ns": "first_ns", "last_sent_ns": "last_ns"})
    return {
        "traffic": finished(links.select(["source", "target"]), lambda _: traffic_counts(links), TRAFFIC),
        "brokers": finished(shown(received, "service", "waiting"), partial(finish_brokers, level=LEVEL), BROKERS),
        "links": finished(shown(sent, "wait", "delay"), partial(finish_links, level=LEVEL), LINKS),
    }


def _publishers(sums: pa.Table) -> pa.Table:
    sizes = {f"size_{end}": f"size_{end}_bytes" for end in ("min", "max")}
    return finished(shown(sums, "gap").rename_columns(sizes), partial(finish_publishers, level=LEVEL), PUBLISHERS)


CONTENT = (
    "publisher string, subscriptions array<string>, lifetime_ns bigint, events bigint, share double, "
    "size_mean_bytes double, is_crowded boolean"
)


def _content(sums: pa.Table) -> pa.Table:
    of = rows_by(sums, ["publisher"])
    events = np.asarray(sums["events"])
    number = np.empty(len(events), np.int64)
    number[of.order] = np.repeat(np.arange(len(of.starts)), of.counts())
    columns = {
        "share": events / of.sums(events)[number],
        "size_mean_bytes": np.asarray(sums["size_sum"].cast(pa.float64(), safe=False)) / events,
        "is_crowded": (of.counts() > MOST_SIGNATURES)[number],
    }
    return finished(sums, lambda _: columns, CONTENT)


def _components(sums: pa.Table) -> pa.Table:
    rows = sums.select(["kind", "source", "target", "at_ns", "up", "first_ns", "last_ns"]).to_pylist()
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


def _arrivals(sums: pa.Table) -> pa.Table:
    """The gaps inside slices, and those from one slice of a broker to the next that has any."""
    return finished(joined_slices(sums), partial(finish_arrivals, level=LEVEL), ARRIVALS)
