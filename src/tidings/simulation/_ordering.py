"""Order at the receivers of a run: what reaches a subscription is held as a policy says before the application gets it.

A receiver's holding does not feed back into the network, so it is worked out beside the event loop, in blocks, by the
compiled replay that experiments and the pipeline use (`ordering.OngoingReplay`). Memory does not grow with the length
of a run: a block ends when enough rows wait, and what is decided leaves (`_streams` says what is kept of publications).

With ordering an event is on time if the application gets it before the deadline; no receiver holds one until that has
passed, and whatever stands before it in line leaves with it.
"""

from typing import Final

import msgspec
import numpy as np

from tidings.errors import ConfigurationError
from tidings.ordering import COUNTS, STILL_HELD, OngoingReplay, Policy
from tidings.simulation._layout import DELIVERY, EVENT, NEVER_NS, Array
from tidings.simulation._options import Options
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._publications import Chunk
from tidings.simulation._result import Batches, OrderingFigures, Result, SubscriberResult
from tidings.simulation._streams import Received
from tidings.simulation._trace import TraceOutput
from tidings.statistics import BATCHES, LogHistogram

__all__ = ["OrderedOutput", "ordering_policy"]

BLOCK_ROWS: Final = 65_536
ROWS_PER_STREAM: Final = 64
"""A block has so many rows for each stream if that is more: to take up a stream again costs as much as ten rows."""

WAITING: Final = np.dtype([("row", DELIVERY), *((name, np.int64) for name in ("published", "deadline", "delivered"))])


def ordering_policy(plan: SimulationPlan, options: Options) -> Policy | None:
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
    """Puts what arrives in order, and passes everything on to `writer`, if there is one.

    `rows_peak` is the most rows that were ever kept: publications, matches and arrivals together.
    """

    def __init__(self, plan: SimulationPlan, policy: Policy, writer: TraceOutput | None) -> None:
        self._plan, self._policy, self._writer = plan, policy, writer
        self._received = Received(plan, policy)
        self._replay = OngoingReplay(policy)
        self._fresh: list[Array] = []  # what arrived since the last block
        self._waiting = np.zeros(0, WAITING)  # what was replayed and cannot be written yet, in the order of arrival
        self._held = np.zeros(0, np.int64)  # which of them are held, as the replay numbers them
        self._due = BLOCK_ROWS
        self.rows_peak = 0
        self._on_time = np.zeros((BATCHES, len(plan.subscriptions)), np.int64)  # by the batch of the publication
        self._late = self._on_time.copy()
        self._delivered, self._hold_ns = 0, 0
        self._holds = LogHistogram()

    def write_publications(self, chunk: Chunk) -> None:
        self._received.publish(chunk)
        if self._writer is not None:
            self._writer.write_publications(chunk)

    def write_hops(self, rows: Array) -> None:
        if self._writer is not None:
            self._writer.write_hops(rows)

    def write_deliveries(self, rows: Array, delivered_ns: Array | None = None) -> None:
        assert delivered_ns is None, "they are put in order here"
        self._fresh.append(rows.copy())

    def write_transitions(self, rows: Array) -> None:
        if self._writer is not None:
            self._writer.write_transitions(rows)

    def reached(self, now_ns: int, events: Array) -> None:
        kept = self._count_kept()
        if kept >= self._due:
            self._order(now_ns, events)
            self._due = self._count_kept() + max(BLOCK_ROWS, ROWS_PER_STREAM * self._received.streams)

    def end(self) -> None:
        """Everything has arrived: put the rest in order."""
        self._count_kept()
        self._order(NEVER_NS, np.zeros(0, EVENT))
        assert not len(self._waiting), "no timer is for ever"

    def _count_kept(self) -> int:
        kept = self._received.rows + sum(len(rows) for rows in self._fresh) + len(self._waiting)
        self.rows_peak = max(self.rows_peak, kept)
        return kept

    def _order(self, now_ns: int, events: Array) -> None:
        """Replay what arrived before now; what arrived at this instant waits for the next block, as more may do so."""
        fresh = np.concatenate([np.zeros(0, DELIVERY), *self._fresh])
        block, rest = np.split(fresh, [int(np.searchsorted(fresh["arrived"], now_ns))])
        self._fresh = [rest.copy()]
        self._replay.insert(*self._received.insert(block))
        taken = self._received.taken(block)
        more = np.zeros(len(block), WAITING)
        more["row"], more["published"], more["deadline"] = block, taken.published_ns, taken.deadline_ns
        place = np.concatenate([len(self._waiting) + taken.order, self._held])
        self._waiting = np.concatenate([self._waiting, more])
        delivered_ns = self._replay.go_on(taken.streams, now_ns)
        self._waiting["delivered"][place] = delivered_ns
        self._held = place[delivered_ns == STILL_HELD]
        self._leave(int(self._held.min(initial=len(self._waiting))))
        self._received.forget(now_ns, events, rest)

    def _leave(self, count: int) -> None:
        """Count and write the first of what waits, all of which is decided."""
        rows, self._waiting = self._waiting[:count], self._waiting[count:].copy()
        self._held -= count
        arrived, delivered_ns = np.ascontiguousarray(rows["row"]), np.ascontiguousarray(rows["delivered"])
        is_counted, is_on_time = rows["published"] >= self._plan.warmup_ns, delivered_ns < rows["deadline"]
        cell = self._plan.batch_numbers(rows["published"]) * len(self._plan.subscriptions) + arrived["subscription"]
        for counts, wanted in ((self._on_time, is_on_time), (self._late, ~is_on_time)):
            counts += np.bincount(cell[is_counted & wanted], minlength=counts.size).reshape(counts.shape)
        held_ns = delivered_ns - arrived["arrived"]
        self._holds.add(held_ns)
        self._delivered, self._hold_ns = self._delivered + count, self._hold_ns + int(held_ns.sum())
        if self._writer is not None:
            self._writer.write_deliveries(arrived, delivered_ns)

    def _figures(self) -> OrderingFigures:
        totals = dict(zip(COUNTS, self._replay.counts.sum(axis=0).tolist(), strict=True))
        out_of_order, violations = totals["out_of_order"], totals["violations"]
        p50_ns, p99_ns = (self._holds.quantile(share) for share in (0.5, 0.99))
        return OrderingFigures(
            policy=self._policy.name,
            received=totals["received"],
            out_of_order=out_of_order,
            violations=violations,
            repaired=1.0 - violations / out_of_order if out_of_order else None,
            forgotten=totals["forgotten"],
            hold_ms_mean=self._hold_ns / max(self._delivered, 1) / 1e6,
            hold_ms_p50=p50_ns / 1e6,
            hold_ms_p99=p99_ns / 1e6,
        )

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
            ordering=self._figures(),
        )
