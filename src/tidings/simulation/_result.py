"""The figures of a run."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.scenario import Network
from tidings.simulation._layout import PUBLISHED, STEPS, TRAFFIC, Array
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._world import World
from tidings.statistics import BATCHES, ReliabilityInterval, reliability_intervals

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Batches", "FaultFigures", "OrderingFigures", "Result", "SubscriberResult", "make_result"]


class SubscriberResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that one subscription matched, warm-up excluded.

    matched = on_time + late + lost + in_flight. `lost` events never arrived; `dropped` says how many of those were
    deleted in a queue because they were expired or hopeless. `on_time_reliability` is on_time / matched, None for a
    subscription that no event matched; `interval` is its interval of 95 %, in which events that are late together count
    for less than independent ones.
    """

    matched: int
    on_time: int
    late: int
    lost: int
    dropped: int
    in_flight: int
    on_time_reliability: float | None
    interval: ReliabilityInterval | None


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheme costs where brokers or links fail, over the whole run.

    `messages` counts transmissions between brokers: data (events, each hop for the first time), ack, retransmission,
    refresh (one for all subscriptions of a home broker) and link-state. `duplicates` are events that a broker had
    already. `storage_peak` is the most events that were stored at once in all brokers together, waiting for an
    acknowledgement or for a subscription to come back.
    """

    scheme: str
    messages: dict[str, int]
    duplicates: int
    storage_peak: int


class RelocationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Where publishers are at the end of a run, and how often one of them moved."""

    policy: str
    moves: int
    homes: dict[str, str]


class OrderingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What receivers did about order, over the whole run, warm-up included.

    Of `received` events `out_of_order` came after one that was sent later; `violations` reached the application so,
    `repaired` is the share of the others (None: nothing came out of order). `hold` is delivery less arrival.
    """

    policy: str
    received: int
    out_of_order: int
    violations: int
    repaired: float | None
    forgotten: int
    hold_ms_mean: float
    hold_ms_p50: float
    hold_ms_p99: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run.

    `published` counts events after the warm-up, `matched` and the counts after it pairs of an event and a subscription
    (as in SubscriberResult). `delivery_rate` is on_time / matched (paper C, equation 1; None if nothing matched),
    `earnings` the sum of the prices of what came on time (equation 2), `traffic` how often a broker received one of
    the events published after the warm-up, their home brokers included. Utilisation is the busy share of the time from
    the end of the warm-up to the end of publishing, by broker, and by link as "source -> target". `steps` counts
    happenings; `wall_s` is the time that took, the only figure that the seed does not decide. `faults` is None where
    nothing ever fails, `ordering` where receivers do nothing about order; where they do, what is on time is what the
    application gets in time.
    """

    title: str
    seed: int
    duration_s: float
    warmup_s: float
    published: int
    matched: int
    on_time: int
    late: int
    lost: int
    dropped: int
    in_flight: int
    delivery_rate: float | None
    earnings: float
    traffic: int
    subscribers: dict[str, SubscriberResult]
    brokers: dict[str, float]
    links: dict[str, float]
    steps: int
    wall_s: float
    faults: FaultFigures | None = None
    ordering: OrderingFigures | None = None
    relocation: RelocationFigures | None = None

    def to_arrow(self) -> "pa.Table":
        """One row per subscription: its counts, its on-time share and the interval of that share."""
        return arrow_table(self._columns())

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns())

    def _repr_html_(self) -> str:
        """The totals, and the subscriptions, the lowest on-time share first."""
        facts = {
            "simulated time": f"{self.duration_s:,.0f} s, seed {self.seed}",
            "events": f"{self.published:,}",
            "on-time share": _percent(self.delivery_rate),
            "on time, late, lost": f"{self.on_time:,}, {self.late:,}, {self.lost:,} of {self.matched:,}",
            "earnings": f"{self.earnings:,.0f}",
        }
        ordered = sorted(self.subscribers.items(), key=lambda each: _share(each[1].on_time_reliability))
        rows = [
            (name, _percent(row.on_time_reliability), *(f"{each:,}" for each in (row.matched, row.late, row.lost)))
            for name, row in ordered
        ]
        heads = ("subscription", "on-time share", "matched", "late", "lost")
        return html_page(self.title or "Simulation", html_table(("", ""), facts.items()), html_table(heads, rows))

    def _columns(self) -> dict[str, Column]:
        rows = list(self.subscribers.values())
        counts = ("matched", "on_time", "late", "lost", "dropped", "in_flight")
        return {
            "subscription": Column("text", list(self.subscribers)),
            "on_time_share": Column("number", [row.on_time_reliability for row in rows]),
            "low": Column("number", [None if row.interval is None else row.interval.low for row in rows]),
            "high": Column("number", [None if row.interval is None else row.interval.high for row in rows]),
            **{name: Column("number", [getattr(row, name) for row in rows]) for name in counts},
        }


def _percent(share: float | None) -> str:
    return "no matches" if share is None else f"{100.0 * share:.1f} %"


def _share(share: float | None) -> float:
    """Subscriptions without matches come last."""
    return 2.0 if share is None else share


class Batches:
    """The counted part of a run, cut into batches of equal time, from which intervals are computed."""

    def __init__(self, plan: SimulationPlan) -> None:
        self._ends_ns = plan.batch_ends_ns
        self._counts = np.zeros((BATCHES, 2, len(plan.subscriptions)), np.int64)

    def count(self, now_ns: int, subscriptions: Array) -> None:
        """What was matched and on time up to now; what comes after the last batch was published in it."""
        going_on = int(np.searchsorted(self._ends_ns, now_ns))
        self._counts[min(going_on, BATCHES - 1) :] = subscriptions["matched"], subscriptions["on_time"]

    def intervals(self, on_time: Array | None = None) -> list[ReliabilityInterval | None]:
        """By subscription, with what was on time by [batch, subscription] if that is not what was counted."""
        matched, counted = np.diff(self._counts, axis=0, prepend=0).transpose(1, 0, 2)
        return reliability_intervals(counted if on_time is None else on_time, matched)


def make_result(
    plan: SimulationPlan,
    world: World,
    batches: Batches,
    *,
    faults: FaultFigures | None,
    relocation: RelocationFigures | None,
) -> Result:
    """The result from the counters of a run that has ended; `wall_s` is for whoever measured it."""
    network, rows = plan.network, world.subscriptions
    counts = {name: int(rows[name].sum()) for name in ("matched", "on_time", "late", "lost", "discarded", "in_flight")}
    counted_ns = plan.end_ns - plan.warmup_ns
    return Result(
        title=network.title,
        seed=network.seed,
        duration_s=network.duration_s,
        warmup_s=network.warmup_s,
        published=int(world.control[PUBLISHED]),
        matched=counts["matched"],
        on_time=counts["on_time"],
        late=counts["late"],
        lost=counts["lost"] + counts["discarded"],
        dropped=counts["discarded"],
        in_flight=counts["in_flight"],
        delivery_rate=counts["on_time"] / counts["matched"] if counts["matched"] else None,
        earnings=float(np.dot(rows["price"], rows["on_time"].astype(np.float64))),
        traffic=int(world.control[TRAFFIC]),
        subscribers=_subscribers(network, rows, batches),
        brokers={
            broker.name: float(busy_ns / counted_ns)
            for broker, busy_ns in zip(plan.written.topology.brokers, world.brokers["busy_ns"], strict=False)
        },
        links={
            f"{link.source} -> {link.target}": float(busy_ns / counted_ns)
            for link, busy_ns in zip(network.topology.links, world.links["busy_ns"], strict=False)
        },
        steps=int(world.control[STEPS]),
        wall_s=0.0,
        faults=faults,
        relocation=relocation,
    )


def _subscribers(network: Network, rows: Array, batches: Batches) -> dict[str, SubscriberResult]:
    subscribers, intervals = {}, batches.intervals()
    for number, subscription in enumerate(network.subscriptions):
        row = rows[number]
        matched, on_time = int(row["matched"]), int(row["on_time"])
        subscribers[subscription.id] = SubscriberResult(
            matched=matched,
            on_time=on_time,
            late=int(row["late"]),
            lost=int(row["lost"] + row["discarded"]),
            dropped=int(row["discarded"]),
            in_flight=int(row["in_flight"]),
            on_time_reliability=on_time / matched if matched else None,
            interval=intervals[number],
        )
    return subscribers
