"""The tables of a run from the sums of its partials (_sums.py).

Each table is made in three steps (`Made`), so that one process and many can do it. `first` takes rows out of sums;
there may be many such sums, each of some of the partials. `last` puts those rows of all of them together that have the
same values in `keys`; `finish` makes the estimates, row by row. A table of shares has to know in between how clustered
its rows are as a rule (`usual`). `tables_of` does all this for sums of everything, and pipeline/_merges.py by Spark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.arrow._sums import (
    DEPARTURES,
    PAIR_SUMS,
    PAIRS,
    Sums,
    batches_of,
    exploded,
    joined_slices,
    merged_components,
    merged_content,
    merged_publishers,
    numbered,
)
from tidings.pipeline.arrow._totals import (
    batch_sums,
    batches_by,
    clustering,
    codes_of,
    finished,
    quantile_lists,
    rows_by,
    shown,
    summed,
    usual,
)
from tidings.pipeline.measures import LEVEL, MOST_SIGNATURES
from tidings.pipeline.measures._batch_sums import sum_columns
from tidings.pipeline.measures._brokers import ARRIVAL_TOTALS, ARRIVALS, BROKERS, finish_arrivals, finish_brokers
from tidings.pipeline.measures._components import COMPONENTS, finish_components
from tidings.pipeline.measures._links import LINKS, TRAFFIC, TRANSMISSION_TOTALS, finish_links, traffic_counts
from tidings.pipeline.measures._pair_scores import QUANTILES, SCORES, finish_scores
from tidings.pipeline.measures._pair_sums import SCORE_TOTALS, SHARES
from tidings.pipeline.measures._pairs import MIDDLES, finish_pairs
from tidings.pipeline.measures._pairs import PAIRS as PAIRS_TABLE
from tidings.pipeline.measures._publishers import PUBLISHERS, finish_publishers
from tidings.pipeline.measures._sums import PROBABILITIES, Total

__all__ = ["MADE", "Made", "tables_of", "with_usual"]

Finish = Callable[[pa.Table, float], pa.Table]


@dataclass(frozen=True, kw_only=True)
class Made:
    """How a table is made (see above). `share` is that of which its rows have the sums of batches; "" for none."""

    name: str
    keys: tuple[str, ...]
    first: Callable[[Sums], pa.Table]
    last: Callable[[pa.Table], pa.Table]
    finish: Finish
    share: str = ""

    def of(self, rows: pa.Table, *, level: float = LEVEL) -> pa.Table:
        """The table, where these rows are all there are."""
        whole = self.last(rows)
        return self.finish(with_usual(whole, self.share, usual(whole, self.share)) if self.share else whole, level)


def tables_of(sums: Sums, *, level: float = LEVEL) -> dict[str, pa.Table]:
    """Every table by name; `level` is that of the intervals."""
    return {
        "quarantine": sums["quarantine"],
        **{made.name: made.of(made.first(sums), level=level) for made in MADE},
    }


def with_usual(rows: pa.Table, share: str, value: float) -> pa.Table:
    return rows.append_column(f"{share}_usual", pa.array(np.full(len(rows), value)))


# Scores, and pairs of a publisher and a subscription: rows come with their batches of time as lists.


def _known(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that have a value in each of these columns."""
    return table.filter(pa.array(np.logical_and.reduce([np.asarray(table[name].is_valid()) for name in keys])))


def _first_of_pairs(sums: Sums, of: str, keys: Sequence[str], by: Sequence[str], totals: Sequence[Total]) -> pa.Table:
    """Sums by these columns (of which `by` have values), and the batches by `by` of each."""
    rows, batches = summed(_known(sums[of], by), keys, totals), _known(sums[batches_of(by)], by)
    number = numbered(*codes_of(pa.concat_tables([rows.select(by), batches.select(by)]), by))
    row_of = np.full(number.max() + 1 if len(number) else 0, -1)
    row_of[number[: len(rows)]] = np.arange(len(rows))
    owner = row_of[number[len(rows) :]]
    order = np.argsort(owner, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(rows))))).astype(np.int32)
    for name in batches.column_names:
        if name not in by:
            flat = batches[name].take(pa.array(order)).combine_chunks()
            column = name if name == "batch_ns" else f"batch_{name}"
            rows = rows.append_column(column, pa.ListArray.from_arrays(pa.array(ends), flat))
    return rows


def _last_of_pairs(
    rows: pa.Table, keys: Sequence[str], by: Sequence[str], totals: Sequence[Total], share: str
) -> pa.Table:
    """All rows with the same keys as one, with the sums of batches that the interval of a share is made of."""
    whole = summed(rows, keys, totals)
    batches = batch_sums(batches_by(rows, *exploded(rows), by), by, share, *SHARES[share])
    both = pa.concat_tables([whole.select(by), batches.select(by)])
    number = numbered(*codes_of(both, by))
    places = np.full(number.max() + 1 if len(number) else 0, -1)
    places[number[len(whole) :]] = np.arange(len(batches))
    found = places[number[: len(whole)]]
    taken = pa.array(found, mask=found < 0)
    for name in sum_columns(share):
        whole = whole.append_column(name, batches[name].take(taken))
    return whole.append_column("clustering", clustering(whole, share))


_SCORE_SUMS: Final = (*SCORE_TOTALS, Total("earned", "exact"))


def _finish_scores(rows: pa.Table, level: float, keys: Sequence[str]) -> pa.Table:
    earnings = [int(each) / 10**9 for each in rows["earned"].to_pylist()]
    rows = rows.append_column("earnings", pa.array(earnings, pa.float64()))
    for end in ("min", "max"):
        rows = rows.append_column(f"delay_{end}_ns", rows[f"delay_{end}"])
    lists = quantile_lists(rows["delay_sketch"], QUANTILES)
    for place, probability in enumerate(QUANTILES):
        rows = rows.append_column(f"delay_p{round(100 * probability)}_ns", pc.list_element(lists, place))
    kinds = ["bigint" if pa.types.is_integer(rows[key].type) else "string" for key in keys]
    columns = ", ".join([*(f"{key} {kind}" for key, kind in zip(keys, kinds, strict=True)), SCORES])
    return finished(rows, partial(finish_scores, level=level), columns)


def _scores(name: str, of: str, keys: tuple[str, ...]) -> Made:
    return Made(
        name=f"{name}_scores",
        keys=keys,
        first=partial(_first_of_pairs, of=of, keys=keys, by=keys, totals=_SCORE_SUMS),
        last=partial(_last_of_pairs, keys=keys, by=keys, totals=_SCORE_SUMS, share="on_time"),
        finish=partial(_finish_scores, keys=keys),
        share="on_time",
    )


_PAIR: Final = ("publisher", "subscription")


def _finish_pairs(rows: pa.Table, level: float) -> pa.Table:
    rows = shown(rows, "delay")
    rows = rows.append_column("difference_quantiles_ns", quantile_lists(rows["difference_sketch"], PROBABILITIES))
    for name in ("delay", "difference"):
        rows = rows.append_column(f"{name}_grid", quantile_lists(rows[f"{name}_sketch"], MIDDLES))
    return finished(rows, partial(finish_pairs, level=level), PAIRS_TABLE)


# All others.


def _finish_traffic(rows: pa.Table, _level: float) -> pa.Table:
    return finished(rows.select(["source", "target"]), lambda _: traffic_counts(rows), TRAFFIC)


def _finish_links(rows: pa.Table, level: float) -> pa.Table:
    sent = rows.rename_columns({"first_sent_ns": "first_ns", "last_sent_ns": "last_ns"})
    return finished(shown(sent, "wait", "delay"), partial(finish_links, level=level), LINKS)


def _finish_brokers(rows: pa.Table, level: float) -> pa.Table:
    received = rows.filter(pc.greater(rows["arrivals"], 0)).rename_columns(
        {"target": "broker", "first_received_ns": "first_ns", "last_received_ns": "last_ns"}
    )
    return finished(shown(received, "service", "waiting"), partial(finish_brokers, level=level), BROKERS)


def _finish_publishers(rows: pa.Table, level: float) -> pa.Table:
    sizes = {f"size_{end}": f"size_{end}_bytes" for end in ("min", "max")}
    return finished(shown(rows, "gap").rename_columns(sizes), partial(finish_publishers, level=level), PUBLISHERS)


CONTENT = (
    "publisher string, subscriptions array<string>, lifetime_ns bigint, events bigint, share double, "
    "size_mean_bytes double, is_crowded boolean"
)


def _last_content(rows: pa.Table) -> pa.Table:
    whole = merged_content(rows)
    of = rows_by(whole, ["publisher"])
    events = np.asarray(whole["events"])
    number = np.empty(len(events), np.int64)
    number[of.order] = np.repeat(np.arange(len(of.starts)), of.counts())
    columns = {
        "share": events / of.sums(events)[number],
        "size_mean_bytes": np.asarray(whole["size_sum"].cast(pa.float64(), safe=False)) / events,
        "is_crowded": (of.counts() > MOST_SIGNATURES)[number],
    }
    return finished(whole, lambda _: columns, CONTENT)


_COMPONENT: Final = ("kind", "source", "target")


def _finish_components(rows: pa.Table, level: float) -> pa.Table:
    found = rows.select([*_COMPONENT, "at_ns", "up", "first_ns", "last_ns"]).to_pylist()
    times = [[row[end], row["at_ns"]] for row in found for end in ("first_ns", "last_ns")]
    known = [time for some in times for time in some if time is not None]
    first, last = (min(known), max(known)) if known else (None, None)
    moves: dict[tuple[Any, ...], set[tuple[int, bool]]] = {}
    for row in found:
        if row["kind"] is not None:
            mine = moves.setdefault((row["kind"], row["source"], row["target"]), set())
            if row["at_ns"] is not None:
                mine.add((row["at_ns"], row["up"]))
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
    return finished(merged, partial(finish_components, level=level), COMPONENTS)


def _last_arrivals(rows: pa.Table) -> pa.Table:
    """The gaps inside slices, and those from one slice of a broker to the next that has any."""
    return joined_slices(summed(rows, ["broker", "slice"], ARRIVAL_TOTALS))


def _finish_arrivals(rows: pa.Table, level: float) -> pa.Table:
    return finished(rows, partial(finish_arrivals, level=level), ARRIVALS)


def _as_it_is(rows: pa.Table, _level: float) -> pa.Table:
    return rows


def _of(sums: Sums, name: str) -> pa.Table:
    return sums[name]


def _by(name: str, of: str, keys: tuple[str, ...], totals: Sequence[Total], finish: Finish = _as_it_is) -> Made:
    """A table of sums by these columns."""
    add = partial(summed, keys=keys, totals=totals)
    return Made(name=name, keys=keys, first=lambda sums: add(sums[of]), last=add, finish=finish)


MADE: Final = (
    _scores("subscriber", PAIRS, ("subscription", "subscriber")),
    _scores("publisher", PAIRS, ("publisher",)),
    _scores("topic", DEPARTURES, ("topic",)),
    _scores("window", DEPARTURES, ("window_ns",)),
    Made(
        name="pairs",
        keys=_PAIR,
        first=partial(_first_of_pairs, of=PAIRS, keys=(*_PAIR, "subscriber"), by=_PAIR, totals=PAIR_SUMS),
        last=partial(_last_of_pairs, keys=(*_PAIR, "subscriber"), by=_PAIR, totals=PAIR_SUMS, share="arrived"),
        finish=_finish_pairs,
        share="arrived",
    ),
    _by("traffic", "transmissions", ("source", "target"), TRANSMISSION_TOTALS, _finish_traffic),
    _by("brokers", "transmissions", ("target",), TRANSMISSION_TOTALS, _finish_brokers),
    _by("links", "transmissions", ("source", "target"), TRANSMISSION_TOTALS, _finish_links),
    _by("rows", "rows", ("table",), [Total("rows", "sum")]),
    Made(
        name="publishers",
        keys=("publisher",),
        first=partial(_of, name="publishers"),
        last=merged_publishers,
        finish=_finish_publishers,
    ),
    Made(
        name="content",
        keys=("publisher",),
        first=partial(_of, name="content"),
        last=_last_content,
        finish=_as_it_is,
    ),
    Made(
        name="components",
        keys=(),
        first=partial(_of, name="components"),
        last=merged_components,
        finish=_finish_components,
    ),
    Made(
        name="arrivals",
        keys=("broker",),
        first=partial(_of, name="arrivals"),
        last=_last_arrivals,
        finish=_finish_arrivals,
    ),
)
"""Every table but the quarantine, which is its own rows."""
