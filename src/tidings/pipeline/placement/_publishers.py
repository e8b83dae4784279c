"""One row for each publisher, and what a worker makes of it: where it should be, and what that comes to.

A row holds a publisher's pooled sessions as lists that are bounded by brokers, words and deadlines. Workers
turn it into the values of `tidings.placement` and ask that for the rest, so a decision is the same wherever it is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline.interest import Shipped
from tidings.pipeline.placement._network import NetworkTables
from tidings.pipeline.placement._sessions import Events, bits_of, wanted_of
from tidings.placement import Aim, Figures, Times, Traced, Wanted, choose, figures_at, loads_at, tree_of_use
from tidings.routing import Overlay

__all__ = ["DECIDED", "JUDGED", "Deciding", "Judging", "Known", "sessions_of", "traced_in"]

_FIGURES: Final = ("messages_per_s", "delay_s", "on_time")
DECIDED: Final = (
    "publisher string, home int, target int, deliveries_per_s double, promised_per_s double, "
    + ", ".join(f"{name}_{when} double" for when in ("now", "then") for name in _FIGURES)
    + ", loads_now array<double>, loads_then array<double>"
)
"""A publisher at its home and at its target, by itself: all else, and all waits, as they are."""
JUDGED: Final = (
    "publisher string, deliveries_per_s double, promised_per_s double, "
    + ", ".join(f"{name} double" for name in _FIGURES)
    + ", loads array<double>"
)
"""A publisher at the broker `target`."""

Batches = Iterator[pa.RecordBatch]


def sessions_of(
    tables: NetworkTables,
    spans: DataFrame,
    events: Events,
    legs: DataFrame,
    *,
    lasted_s: float,
    moved: DataFrame | None = None,
) -> DataFrame:
    """A row for each publisher; `moved` (number, moved_to) are subscriptions that are at other brokers now."""
    delivered, subscribed = events.delivered, tables.subscribed
    named = delivered.join(fn.broadcast(tables.brokers), "broker", "inner")
    if moved is None:
        bits = bits_of(named, fn.col("at"))
    else:
        bits = bits_of(named.join(fn.broadcast(moved), "number", "left"), fn.coalesce("moved_to", "at"))
        elsewhere = subscribed.join(moved, "number", "left")
        subscribed = elsewhere.withColumn("at", fn.coalesce("moved_to", "at")).drop("moved_to")
    wanted = wanted_of(events.published, subscribed, "at")
    access = legs.where("source IS NULL").groupBy("publisher")
    ping = access.agg(fn.rint(fn.sum("transfer_total_ns") / fn.sum("transfer_samples")).cast("bigint").alias("ping_ns"))
    traced = events.published.groupBy("publisher").agg(fn.count("*").alias("traced"))
    homes = tables.brokers.toDF("home", "at")
    table = (
        spans.join(fn.broadcast(homes), "home", "inner")
        .join(traced, "publisher", "inner")
        .join(ping, "publisher", "left")
        .join(_listed("bits", bits, "at", "word", "bits", "deliveries"), "publisher", "left")
        .join(_listed("wanted", wanted, "at", "deadline_ns", "promised"), "publisher", "left")
    )
    nothing = fn.array().cast("array<struct<link: int, receptions: bigint>>")
    if not tables.is_tree:
        used = legs.join(fn.broadcast(tables.links), ["source", "target"], "inner")
        table = table.join(_listed("used", used, "link", "receptions"), "publisher", "left")
    else:
        table = table.withColumn("used", nothing)
    return table.select(
        "publisher",
        fn.col("at").alias("home"),
        fn.col("words").cast("int").alias("words"),
        (fn.col("sent") / fn.lit(lasted_s)).alias("rate_per_s"),
        fn.coalesce("ping_ns", fn.lit(0)).alias("ping_ns"),
        "traced",
        *(fn.coalesce(name, fn.array().cast(kind)).alias(name) for name, kind in _LISTS.items()),
    )


_LISTS: Final = {
    "bits": "array<struct<at: int, word: int, bits: bigint, deliveries: bigint>>",
    "wanted": "array<struct<at: int, deadline_ns: bigint, promised: bigint>>",
    "used": "array<struct<link: int, receptions: bigint>>",
}


def _listed(name: str, rows: DataFrame, *columns: str) -> DataFrame:
    """By publisher a list, in order: so that sums over it do not depend on where its rows came from."""
    return rows.groupBy("publisher").agg(fn.array_sort(fn.collect_list(fn.struct(*columns))).alias(name))


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What all workers know of the network."""

    overlay: Overlay
    times: Times


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """Arrow batches of `sessions_of` in, of DECIDED out. Where rows have a `target`, it has been decided already."""

    known: Shipped
    aim: Aim

    def __call__(self, batches: Batches) -> Batches:
        known: Known = self.known.value()
        overlay, times = known.overlay, known.times
        for batch in batches:
            rows = []
            for row, traced in traced_in(batch, overlay):
                target = row["target"] if "target" in row else choose(traced, overlay, times, self.aim)
                session = traced.session(overlay, times)
                found = _shown(traced) | {"home": traced.home, "target": target}
                for when, broker in (("now", traced.home), ("then", target)):
                    figures = figures_at(traced, overlay, times, broker)
                    found |= {f"{name}_{when}": getattr(figures, name) for name in _FIGURES}
                    found[f"loads_{when}"] = loads_at(traced, session, broker)
                rows.append(found)
            yield _batch(rows, DECIDED)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Arrow batches of `sessions_of` with a `target` in, of JUDGED out.

    A publisher's tree is that of the target: readers may have moved to where its old one did not go.
    """

    known: Shipped

    def __call__(self, batches: Batches) -> Batches:
        known: Known = self.known.value()
        for batch in batches:
            rows = []
            for row, traced in traced_in(batch, known.overlay, from_target=True):
                figures: Figures = figures_at(traced, known.overlay, known.times, row["target"])
                session = traced.session(known.overlay, known.times)
                loads = loads_at(traced, session, row["target"])
                rows.append(_shown(traced) | figures._asdict() | {"loads": loads})
            yield _batch(rows, JUDGED)


def traced_in(
    batch: pa.RecordBatch | pa.Table, overlay: Overlay, *, from_target: bool = False
) -> Iterator[tuple[dict[str, Any], Traced]]:
    """Each row's small columns, and the publisher that it shows; `from_target`: as if it were at its target."""
    lists = {name: batch.column(name) for name in _LISTS}
    small = batch.select([name for name in batch.schema.names if name not in lists]).to_pylist()
    for place, row in enumerate(small):
        bits, wanted, used = (_fields(lists[name][place]) for name in _LISTS)
        shape = (overlay.broker_count, row["words"])
        words, deliveries = np.zeros(shape, np.uint64), np.zeros(overlay.broker_count, np.int64)
        if bits is not None:
            words[bits["at"], bits["word"]] = bits["bits"].astype(np.int64).view(np.uint64)
            np.add.at(deliveries, bits["at"].astype(np.int64), bits["deliveries"].astype(np.int64))
        use = {} if used is None else dict(zip(used["link"].tolist(), used["receptions"].tolist(), strict=True))
        root = row["target"] if from_target else row["home"]
        yield (
            row,
            Traced(
                name=row["publisher"],
                rate_per_s=row["rate_per_s"],
                tree=tree_of_use(overlay, root, _both_directions(overlay, use) if root != row["home"] else use),
                bits=words,
                deliveries=deliveries,
                traced=row["traced"],
                wanted=_promises(wanted),
                ping_ns=row["ping_ns"],
            ),
        )


def _both_directions(overlay: Overlay, used: dict[int, int]) -> dict[int, int]:
    """A link counts with its other direction: after a move events take the same routes, some of them in reverse."""
    back = overlay.links_between(overlay.target, overlay.source).tolist()
    counted = dict(used)
    for link, count in used.items():
        if back[link] >= 0:
            counted[back[link]] = counted.get(back[link], 0) + count
    return counted


def _fields(value: Any) -> dict[str, NDArray[Any]] | None:
    """A list of structs as arrays by field; None if it is empty. NULLs become NaN."""
    values = value.values
    if values is None or not len(values):
        return None
    names = [values.type.field(place).name for place in range(values.type.num_fields)]
    return {name: values.field(name).to_numpy(zero_copy_only=False) for name in names}


def _promises(wanted: dict[str, NDArray[Any]] | None) -> Wanted:
    if wanted is None:
        return Wanted(broker=np.zeros(0, np.int64), deadline_s=np.zeros(0), deliveries=np.zeros(0))
    deadline_s = wanted["deadline_ns"].astype(np.float64) / 1e9
    finite = np.where(np.isnan(deadline_s), np.inf, deadline_s)
    return Wanted(broker=wanted["at"], deadline_s=finite, deliveries=wanted["promised"])


def _shown(traced: Traced) -> dict[str, Any]:
    promised = float(traced.wanted.deliveries.sum()) * traced.rate_per_s / traced.traced
    return {"publisher": traced.name, "deliveries_per_s": traced.deliveries_per_s, "promised_per_s": promised}


_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "double": pa.float64(),
    "array<double>": pa.list_(pa.float64()),
}


def _batch(rows: list[dict[str, Any]], columns: str) -> pa.RecordBatch:
    fields = [field.split(" ") for field in columns.split(", ")]
    return pa.RecordBatch.from_pydict(
        {name: pa.array([row[name] for row in rows], _ARROW[kind]) for name, kind in fields}
    )
