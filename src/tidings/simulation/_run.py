"""A run from beginning to end: publications in, the event loop on, traces out, a result at the end.

Memory does not grow with the length of a run: publications come in chunks, and rows of the trace leave in parts. An
interruption or an error leaves complete files of all that happened before it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network
from tidings.simulation._engine import advance
from tidings.simulation._layout import (
    ALIVE,
    COPIES_USED,
    DELIVERIES_OUT,
    DELIVERY,
    HEAP_SIZE,
    HOP,
    HOPS_OUT,
    INPUT_USED,
    NANOSECONDS,
    NEXT_PUBLICATION,
    NOW,
    OUTPUT_FULL,
    OVERLOADED,
    POOL_FULL,
    PUBLICATION,
    PUBLISHED,
    STEPS,
    TRAFFIC,
    WIDEST,
    Array,
)
from tidings.simulation._options import Options
from tidings.simulation._ordering import OrderedOutput, ordering_policy
from tidings.simulation._plan import Plan, plan
from tidings.simulation._pools import grown, make_pools, settle_unfinished
from tidings.simulation._publications import Chunk, chunks
from tidings.simulation._result import Result, make_result
from tidings.simulation._tracing import TraceOutput, TraceWriter, unfinished_hops
from tidings.simulation.failing import FailingRun, plan_failing

__all__ = ["simulate"]

OUTPUT_ROWS = 65_536

Progress = Callable[[float], None]


def simulate(
    network: Network,
    options: Options | None = None,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a network, and write its trace to a directory if one is given.

    `progress` is called now and then with the simulated share of the run. The same network and options give the same
    result and the same files, byte for byte. A ConfigurationError ends a run that holds too many copies in flight.
    """
    began_s = time.perf_counter()
    chosen = Options() if options is None else options
    failing = plan_failing(network, chosen) if network.has_failures else None
    planned = plan(network, chosen) if failing is None else failing.base
    writer = None if out is None else TraceWriter(out, planned, sample=chosen.sample)
    policy = ordering_policy(planned, chosen)
    ordered = None if policy is None else OrderedOutput(planned, policy, writer)
    output = writer if ordered is None else ordered
    run = _Run(planned, chosen, output, progress) if failing is None else FailingRun(failing, chosen, output, progress)
    try:
        run.go()
        if ordered is not None:
            ordered.order()
    finally:
        if writer is not None:
            writer.close()
    result = run.result(time.perf_counter() - began_s)
    return result if ordered is None else ordered.counted(result)


class _Run:
    def __init__(self, planned: Plan, options: Options, writer: TraceOutput | None, progress: Progress | None) -> None:
        self._plan, self._options, self._writer, self._progress = planned, options, writer, progress
        self._pools = make_pools()
        self._links, self._brokers = planned.links.copy(), planned.brokers.copy()
        self._subscriptions, self._laws = planned.subscriptions.copy(), planned.laws.copy()
        rows = 0 if writer is None else OUTPUT_ROWS
        self._hops, self._deliveries = np.zeros(rows, HOP), np.zeros(rows, DELIVERY)
        sources = planned.links["source"]
        self._fan_out = int(np.bincount(sources[sources >= 0], minlength=1).max()) + 1

    def go(self) -> None:
        """Publish, drain, and count what is left."""
        traced = self._writer is not None
        for chunk in chunks(
            self._plan, events=self._options.chunk_events, sample=self._options.sample, is_traced=traced
        ):
            if self._writer is not None:
                self._writer.write_publications(chunk)
            self._advance(chunk)
        nothing = np.zeros(0, PUBLICATION)
        self._advance(
            Chunk(horizon_ns=self._plan.drained_ns, events=nothing, matches=np.zeros(0, np.int64), attributes=None)
        )
        pools = self._pools
        if self._writer is not None:
            self._writer.write_hops(self._unfinished())
        settle_unfinished(
            pools.copies,
            pools.events,
            pools.subscription,
            pools.origin,
            pools.state,
            self._subscriptions,
            pools.control,
        )

    def result(self, wall_s: float) -> Result:
        control = self._pools.control
        return make_result(
            self._plan,
            subscriptions=self._subscriptions,
            links=self._links,
            brokers=self._brokers,
            published=int(control[PUBLISHED]),
            traffic=int(control[TRAFFIC]),
            steps=int(control[STEPS]),
            wall_s=wall_s,
        )

    def _advance(self, chunk: Chunk) -> None:
        """Run the loop to the chunk's horizon, giving it room and taking its output whenever it comes back."""
        planned, options, control = self._plan, self._options, self._pools.control
        control[NEXT_PUBLICATION] = 0
        control[WIDEST] = max(control[WIDEST], int(chunk.events["count"].max(initial=0)))
        while True:
            reason = advance(
                self._pools,
                planned.routes,
                self._links,
                self._brokers,
                self._subscriptions,
                self._laws,
                planned.law_rows,
                planned.access_link,
                chunk.events,
                chunk.matches,
                self._hops,
                self._deliveries,
                chunk.horizon_ns,
                options.steps_per_call,
                self._fan_out,
                options.copies_max,
                planned.warmup_ns,
                planned.end_ns,
                planned.is_dropping,
            )
            self._drain(is_full=reason == OUTPUT_FULL)
            if reason == POOL_FULL:
                self._grow()
            elif reason == OVERLOADED:
                raise ConfigurationError(self._overload())
            if self._progress is not None:
                self._progress(min(1.0, float(control[NOW]) / planned.end_ns))
            if reason == INPUT_USED:
                return

    def _grow(self) -> None:
        control = self._pools.control
        entries = 2 * int(control[WIDEST]) * (self._fan_out + 1)
        heap = int(control[HEAP_SIZE]) + self._fan_out + 2
        self._pools = grown(self._pools, copies=self._fan_out + 2, heap=heap, entries=entries + 1)

    def _drain(self, *, is_full: bool) -> None:
        if self._writer is None:
            return
        control = self._pools.control
        hops, deliveries = int(control[HOPS_OUT]), int(control[DELIVERIES_OUT])
        self._writer.write_hops(self._hops[:hops])
        self._writer.write_deliveries(self._deliveries[:deliveries])
        control[HOPS_OUT] = control[DELIVERIES_OUT] = 0
        if is_full and hops < len(self._hops) // 2 and deliveries < len(self._deliveries) // 2:
            # One step needs more rows than there are: a long queue of expired events, or very many subscribers.
            self._hops, self._deliveries = (
                np.zeros(2 * len(self._hops), HOP),
                np.zeros(2 * len(self._deliveries), DELIVERY),
            )

    def _unfinished(self) -> Array:
        """Rows of the trace for the sampled copies that are still on their way at the end."""
        pools = self._pools
        copies = pools.copies[: pools.control[COPIES_USED]]
        return unfinished_hops(copies[copies["event"] >= 0], pools.events, self._plan.drained_ns)

    def _overload(self) -> str:
        control, topology = self._pools.control, self._plan.network.topology
        longest = int(np.argmax(self._links["length"]))
        waiting = int(self._links["length"][longest])
        if longest >= len(topology.links):
            where = f"publisher {self._plan.network.publishers[longest - len(topology.links)].name!r}"
        else:
            where = f"link {topology.links[longest].source!r} -> {topology.links[longest].target!r}"
        if waiting * 2 > control[ALIVE]:
            place = f"the longest queue is at {where}, {waiting:,} events"
        else:
            place = f"the busiest broker is {topology.brokers[int(np.argmax(self._brokers['busy_ns']))].name!r}"
        return (
            f"overload: after {control[NOW] / NANOSECONDS:.6g} s there are more than {self._options.copies_max:,} "
            f'copies in flight, and {place}; lower the rates, give deadlines with expired = "drop", shorten the '
            "run, or raise copies_max"
        )
