"""Order at the receivers of a run: what reaches a subscriber is held as a policy says before the application gets it.

A receiver's holding does not feed back into the network, so it is worked out when the run has ended, by the compiled
replay that experiments and the pipeline use, over what each subscription received of each publisher. The run's output
passes through `OrderedOutput`, which keeps publications and deliveries until then; memory grows with them, unlike that
of a run without ordering.

With ordering an event is on time if the application gets it before the deadline; no receiver holds one until that has
passed, and whatever stands before it in line leaves with it.
"""

from typing import Final

import msgspec
import numpy as np

from tidings.errors import ConfigurationError
from tidings.ordering import FALSE_MATCHES, Arrivals, Policy, Publications, recorded_streams, replay
from tidings.simulation._layout import DELIVERY, PUBLICATION, Array
from tidings.simulation._options import Options
from tidings.simulation._plan import Plan
from tidings.simulation._publications import Chunk
from tidings.simulation._result import Batches, OrderingFigures, Result, SubscriberResult
from tidings.simulation._tracing import TraceOutput, TraceWriter
from tidings.statistics import BATCHES

__all__ = ["OrderedOutput", "ordering_policy"]

NEVER_NS: Final = 2**62


def ordering_policy(plan: Plan, options: Options) -> Policy | None:
    """What the scenario's receivers do about order; ConfigurationError if the run cannot show it."""
    name = plan.network.policies.ordering
    if name is None:
        return None
    if options.sample < 1.0:
        raise ConfigurationError(
            f"ordering {name}: a receiver sees every event, so a sample of {options.sample:g} is not enough; leave "
            "--sample out"
        )
    return Policy.parse(name)


class OrderedOutput(TraceOutput):
    """Keeps what has to be ordered, and passes the rest on to the trace, if there is one."""

    def __init__(self, plan: Plan, policy: Policy, writer: TraceWriter | None) -> None:
        self._plan, self._policy, self._writer = plan, policy, writer
        self._events: list[Array] = []
        self._wanted: list[tuple[Array, Array]] = []
        self._rows = 0
        self._arrived: list[Array] = []
        self._figures: OrderingFigures | None = None
        self._on_time = np.zeros((BATCHES, len(plan.subscriptions)), np.int64)  # by the batch of the publication
        self._late = self._on_time.copy()

    def write_publications(self, chunk: Chunk) -> None:
        events = chunk.events
        if self._policy.record:
            row = np.repeat(np.arange(len(events)), events["count"])
            within = np.arange(row.size) - np.repeat(np.cumsum(events["count"]) - events["count"], events["count"])
            self._wanted.append((row + self._rows, chunk.matches[events["first"][row] + within]))
        self._events.append(events.copy())
        self._rows += len(events)
        if self._writer is not None:
            self._writer.write_publications(chunk)

    def write_hops(self, rows: Array) -> None:
        if self._writer is not None:
            self._writer.write_hops(rows)

    def write_deliveries(self, rows: Array) -> None:
        self._arrived.append(rows.copy())

    def write_transitions(self, rows: Array) -> None:
        if self._writer is not None:
            self._writer.write_transitions(rows)

    def order(self, batches: Batches) -> None:
        """Put everything in order, now that the run has ended, and write what was delivered."""
        plan = self._plan
        events = np.concatenate([np.zeros(0, PUBLICATION), *self._events])
        arrived = np.concatenate([np.zeros(0, DELIVERY), *self._arrived])
        nothing = np.zeros(0, np.int64)
        published = Publications(
            publisher=np.ascontiguousarray(events["publisher"]),
            sequence=np.ascontiguousarray(events["sequence"]),
            departure_ns=np.ascontiguousarray(events["time"]),
            key=np.arange(len(plan.publishers), dtype=np.int64),
            wanted_row=np.concatenate([nothing, *(rows for rows, _ in self._wanted)]),
            wanted_by=np.concatenate([nothing, *(by for _, by in self._wanted)]),
        )
        names = ("publisher", "subscription", "sequence", "arrived")
        recorded = recorded_streams(
            published,
            Arrivals(*(np.ascontiguousarray(arrived[name]) for name in names)),
            records=self._policy.record > 0,
            false_matches=FALSE_MATCHES,
            seed=plan.network.seed,
        )
        assert recorded.unknown == recorded.early == 0, "what arrives was published before"
        since_ns, deadline_ns = self._deadlines(events, arrived)
        # Before the deadline, strictly; what is late already has nothing to lose by being held.
        until_ns = np.where(arrived["arrived"] < deadline_ns, deadline_ns - 1, NEVER_NS)[recorded.row]
        streams = recorded.streams.held_until(until_ns).shared_by(recorded.subscription)
        replayed = replay(streams, [self._policy])[self._policy.name]
        delivered_ns = np.empty(len(arrived), np.int64)
        delivered_ns[recorded.row] = replayed.delivered_ns
        is_counted = since_ns >= self._plan.warmup_ns
        row = batches.numbers(since_ns) * len(plan.subscriptions) + arrived["subscription"]
        for counts, wanted in ((self._on_time, delivered_ns < deadline_ns), (self._late, delivered_ns >= deadline_ns)):
            counts += np.bincount(row[is_counted & wanted], minlength=counts.size).reshape(counts.shape)
        held_ns = delivered_ns - arrived["arrived"]
        total = {name: int(replayed.total(name).sum()) for name in ("received", "out_of_order", "violations")}
        p50, p99 = np.quantile(held_ns, (0.5, 0.99)) / 1e6 if held_ns.size else (0.0, 0.0)
        self._figures = OrderingFigures(
            policy=self._policy.name,
            repaired=replayed.mitigation,
            forgotten=int(replayed.total("forgotten").sum()),
            hold_ms_mean=replayed.mean_hold_ns / 1e6,
            hold_ms_p50=float(p50),
            hold_ms_p99=float(p99),
            **total,
        )
        if self._writer is not None:
            self._writer.write_deliveries(arrived, delivered_ns)

    def _deadlines(self, events: Array, arrived: Array) -> tuple[Array, Array]:
        """Of each arrival: when its event was published, and until when it is on time."""
        order = np.lexsort((events["sequence"], events["publisher"]))
        starts = np.searchsorted(events["publisher"][order], np.arange(len(self._plan.publishers)))
        event = events[order[starts[arrived["publisher"]] + arrived["sequence"]]]
        allowed_ns = np.minimum(event["lifetime"], self._plan.subscriptions["allowed"][arrived["subscription"]])
        # Who has no deadline is allowed more than a sum can hold.
        return event["time"], event["time"] + np.minimum(allowed_ns, NEVER_NS - event["time"])

    def counted(self, result: Result, batches: Batches) -> Result:
        """The result with what is on time, late and lost as the applications see it."""
        subscribers, intervals = {}, batches.intervals(self._on_time)
        for number, (name, row) in enumerate(result.subscribers.items()):
            on_time = int(self._on_time[:, number].sum())
            subscribers[name] = SubscriberResult(
                matched=row.matched,
                on_time=on_time,
                late=int(self._late[:, number].sum()),
                lost=row.lost,
                dropped=row.dropped,
                in_flight=row.in_flight,
                on_time_reliability=on_time / row.matched if row.matched else None,
                interval=intervals[number],
            )
        on_time = int(self._on_time.sum())
        return msgspec.structs.replace(
            result,
            on_time=on_time,
            late=int(self._late.sum()),
            delivery_rate=on_time / result.matched if result.matched else None,
            earnings=float(np.dot(self._plan.subscriptions["price"], self._on_time.sum(axis=0).astype(np.float64))),
            subscribers=subscribers,
            ordering=self._figures,
        )
