"""A run from beginning to end: publications in, the event loop on, traces out, a result at the end.

Memory does not grow with the length of a run: publications come in chunks, and rows of the trace leave in parts. An
interruption or an error leaves complete files of all that happened before it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tidings.compiled import lend
from tidings.errors import ConfigurationError
from tidings.model.policies import DEFAULT_RELOCATION
from tidings.model.scenario import Network
from tidings.simulation._engine import advance, finish
from tidings.simulation._layout import (
    ALIVE,
    COPIES_USED,
    DELIVERIES_OUT,
    DELIVERY,
    DUPLICATES,
    EVENTS_USED,
    HELD,
    HOP,
    HOPS_OUT,
    INPUT_USED,
    MESSAGES,
    NANOSECONDS,
    NEXT_PUBLICATION,
    NOW,
    OUTPUT_FULL,
    OVERLOADED,
    POOL_FULL,
    PUBLICATION,
    STORED_PEAK,
    TRANSITION_OUT,
    TRANSITIONS_OUT,
    WIDEST,
    Array,
)
from tidings.simulation._options import Options
from tidings.simulation._ordering import OrderedOutput, ordering_policy
from tidings.simulation._plan import SimulationPlan, plan
from tidings.simulation._publications import Chunk, chunks
from tidings.simulation._relocation import Relocation
from tidings.simulation._result import Batches, FaultFigures, RelocationFigures, Result, make_result
from tidings.simulation._room import give_room, make_world
from tidings.simulation._trace import TraceOutput, TraceWriter, unfinished_hops

__all__ = ["Run", "run_through", "simulate"]

OUTPUT_ROWS = 65_536

Progress = Callable[[float], None]


def _check_kinds(network: Network, *, is_traced: bool) -> None:
    """Events that are given by kinds have no attributes; a ConfigurationError if something asks for them."""
    depends = any(each.lifetime_by is not None or each.size_by is not None for each in network.publishers)
    is_moving = network.policies.relocation.name != DEFAULT_RELOCATION
    is_spread = network.policies.routing == "spread"
    if is_traced or depends or is_moving or is_spread or any(each.churn is not None for each in network.subscribers):
        raise ConfigurationError(
            "events are given by kinds, but traces, lifetimes and sizes by content, subscribers that come and go, "
            "publishers that move and spread routes need their attributes: leave out Options.kinds"
        )


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
    if chosen.kinds is not None:
        _check_kinds(network, is_traced=out is not None)
    planned = plan(network, chosen)
    writer = None if out is None else TraceWriter(out, planned, sample=chosen.sample)
    try:
        result = run_through(planned, chosen, writer, progress)
    finally:
        if writer is not None:
            writer.close()
    return replace(result, wall_s=time.perf_counter() - began_s)


def run_through(
    planned: SimulationPlan, options: Options, writer: TraceOutput | None, progress: Progress | None = None
) -> Result:
    """Run a plan to its end, receivers that put events in order included; `wall_s` of the result is not known here."""
    policy = ordering_policy(planned, options)
    ordered = None if policy is None else OrderedOutput(planned, policy, writer)
    run = Run(planned, options, writer if ordered is None else ordered, progress)
    run.go()
    result = run.result()
    if ordered is None:
        return result
    ordered.end()
    return ordered.counted(result, run.batches)


class Run:
    """One run; `go` it, then ask for the `result`."""

    def __init__(
        self, planned: SimulationPlan, options: Options, writer: TraceOutput | None, progress: Progress | None
    ) -> None:
        self._plan, self._options, self._writer, self._progress = planned, options, writer, progress
        self._world = make_world(planned, output_rows=0 if writer is None else OUTPUT_ROWS)
        self.batches = Batches(planned)
        is_moving = planned.network.policies.relocation.name != DEFAULT_RELOCATION
        self._relocation = Relocation(planned) if is_moving else None

    def go(self) -> None:
        """Publish, drain until nothing is on its way, and count what is left."""
        planned, options = self._plan, self._options
        if self._writer is not None:
            self._writer.write_transitions(self._down_at_first())
        for chunk in chunks(
            planned,
            events=options.chunk_events,
            sample=options.sample,
            is_traced=self._writer is not None,
            relocation=self._relocation,
            given=options.kinds,
        ):
            if self._writer is not None:
                self._writer.write_publications(chunk)
            self._advance(chunk, is_draining=False)
            self.batches.count(chunk.horizon_ns, self._world.subscriptions)
        nothing = np.zeros(0, PUBLICATION)
        drained = Chunk(horizon_ns=planned.drained_ns, events=nothing, matches=np.zeros(0, np.int64), attributes=None)
        self._advance(drained, is_draining=True)
        if self._writer is not None:
            self._writer.write_hops(self._unfinished())
        finish(lend(self._world))
        self.batches.count(planned.drained_ns, self._world.subscriptions)

    def result(self) -> Result:
        faults = self._faults() if self._plan.network.has_failures else None
        return make_result(self._plan, self._world, self.batches, faults=faults, relocation=self._relocated())

    def _relocated(self) -> RelocationFigures | None:
        if self._relocation is None:
            return None
        network = self._plan.network
        names = [broker.name for broker in network.topology.brokers]
        homes = zip(network.publishers, self._relocation.homes, strict=True)
        return RelocationFigures(
            policy=network.policies.relocation.name,
            moves=self._relocation.moves,
            homes={publisher.name: names[home] for publisher, home in homes},
        )

    def _faults(self) -> FaultFigures:
        control = self._world.control
        return FaultFigures(
            scheme=self._plan.network.policies.faults.scheme,
            messages={name: int(control[place]) for name, place in MESSAGES.items()},
            duplicates=int(control[DUPLICATES]),
            storage_peak=int(control[STORED_PEAK]),
        )

    def _down_at_first(self) -> Array:
        """What is down when the run begins, as changes at time 0: a reader takes all others to be up."""
        down = np.flatnonzero(self._plan.components.records["up"] == 0)
        rows = np.zeros(len(down), TRANSITION_OUT)
        rows["component"] = down
        return rows

    def _advance(self, chunk: Chunk, *, is_draining: bool) -> None:
        """Run the loop to the chunk's horizon, giving it room and taking its output whenever it comes back."""
        options, control, end_ns = self._options, self._world.control, self._plan.end_ns
        control[NEXT_PUBLICATION] = 0
        control[WIDEST] = max(control[WIDEST], int(chunk.events["count"].max(initial=0)))
        self._world = self._world._replace(publications=chunk.events, matches=chunk.matches)
        while True:
            reason = advance(
                lend(self._world),
                chunk.horizon_ns,
                options.steps_per_call,
                options.copies_max,
                is_draining,
                True if self._plan.network.has_failures else None,
            )
            self._drain(is_full=reason == OUTPUT_FULL)
            if self._writer is not None:
                now_ns = chunk.horizon_ns if reason == INPUT_USED else int(control[NOW])
                self._writer.reached(now_ns, self._world.events[: control[EVENTS_USED]])
            if reason == POOL_FULL:
                self._world = give_room(self._world)
            elif reason == OVERLOADED:
                raise ConfigurationError(self._overload())
            if self._progress is not None:
                self._progress(min(1.0, float(control[NOW]) / end_ns))
            if reason == INPUT_USED:
                return

    def _drain(self, *, is_full: bool) -> None:
        if self._writer is None:
            return
        world, control = self._world, self._world.control
        used = {"hops": HOPS_OUT, "deliveries": DELIVERIES_OUT, "transitions": TRANSITIONS_OUT}
        rows = {name: int(control[place]) for name, place in used.items()}
        self._writer.write_hops(world.hops[: rows["hops"]])
        self._writer.write_deliveries(world.deliveries[: rows["deliveries"]])
        self._writer.write_transitions(world.transitions[: rows["transitions"]])
        for place in used.values():
            control[place] = 0
        if is_full and all(count < len(world.hops) // 2 for count in rows.values()):
            # One step may need more rows than there are: a long queue of expired events, or a crash that cuts it off.
            rows_max = 2 * len(world.hops)
            self._world = world._replace(
                hops=np.zeros(rows_max, HOP),
                deliveries=np.zeros(rows_max, DELIVERY),
                transitions=np.zeros(rows_max, TRANSITION_OUT),
            )

    def _unfinished(self) -> Array:
        """Rows of the trace for the sampled copies that are still on their way at the end."""
        world = self._world
        copies = world.copies[: world.control[COPIES_USED]]
        copies = copies[(copies["event"] >= 0) & (copies["place"] != HELD)]
        return unfinished_hops(copies, world.events, self._plan.drained_ns)

    def _overload(self) -> str:
        world, network = self._world, self._plan.network
        topology, alive = network.topology, int(world.control[ALIVE])
        longest = int(np.argmax(world.links["length"]))
        waiting = int(world.links["length"][longest])
        if longest >= len(topology.links):
            where = f"publisher {network.publishers[longest - len(topology.links)].name!r}"
        else:
            where = f"link {topology.links[longest].source!r} -> {topology.links[longest].target!r}"
        if waiting * 2 > alive:
            place = f"the longest queue is at {where}, {waiting:,} events"
        else:
            place = f"the busiest broker is {topology.brokers[int(np.argmax(world.brokers['busy_ns']))].name!r}"
        return (
            f"overload: after {world.control[NOW] / NANOSECONDS:.6g} s there are more than "
            f"{self._options.copies_max:,} copies in flight or stored, and {place}; lower the rates, give deadlines "
            'with expired = "drop", shorten the run, or raise copies_max'
        )
