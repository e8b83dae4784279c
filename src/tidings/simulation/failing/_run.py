"""A run of a network that fails, from beginning to end (see `simulation._run` for the one that does not)."""

from collections.abc import Callable

import numpy as np

from tidings.errors import ConfigurationError
from tidings.simulation._layout import (
    ALIVE,
    COPIES_USED,
    DELIVERIES_OUT,
    HEAP_SIZE,
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
from tidings.simulation._publications import Chunk, chunks
from tidings.simulation._result import FaultFigures, Result, make_result
from tidings.simulation._tracing import TraceOutput, unfinished_hops
from tidings.simulation.failing._engine import advance, finish
from tidings.simulation.failing._layout import (
    DUPLICATES,
    HELD,
    LINKS,
    MESSAGES,
    STORED_PEAK,
    TRANSITION_OUT,
    TRANSITIONS_OUT,
)
from tidings.simulation.failing._making import give_room, make_world
from tidings.simulation.failing._plan import FailingPlan

__all__ = ["FailingRun"]

OUTPUT_ROWS = 65_536


class FailingRun:
    """One run; `go` it, then ask for the `result`."""

    def __init__(
        self,
        planned: FailingPlan,
        options: Options,
        writer: TraceOutput | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        self._plan, self._options, self._writer, self._progress = planned, options, writer, progress
        self._world = make_world(planned, output_rows=0 if writer is None else OUTPUT_ROWS)
        # A step may add happenings for every link (noticed at both ends, told to all) and every row.
        links = int(planned.settings[LINKS])
        self._room = 16 + 4 * links + (links + 1) * self._fan_out() + len(planned.rows)

    def go(self) -> None:
        """Publish, drain until nothing is on its way, and count what is left."""
        base = self._plan.base
        if self._writer is not None:
            self._writer.write_transitions(self._down_at_first())
        for chunk in chunks(
            base, events=self._options.chunk_events, sample=self._options.sample, is_traced=self._writer is not None
        ):
            if self._writer is not None:
                self._writer.write_publications(chunk)
            self._advance(chunk, is_draining=False)
        nothing = np.zeros(0, PUBLICATION)
        drained = Chunk(horizon_ns=base.drained_ns, events=nothing, matches=np.zeros(0, np.int64), attributes=None)
        self._advance(drained, is_draining=True)
        world = self._world
        if self._writer is not None:
            copies = world.copies[: world.control[COPIES_USED]]
            copies = copies[(copies["event"] >= 0) & (copies["place"] != HELD)]
            self._writer.write_hops(unfinished_hops(copies, world.events, base.drained_ns))
        finish(world)

    def result(self, wall_s: float) -> Result:
        world, control = self._world, self._world.control
        return make_result(
            self._plan.base,
            subscriptions=world.subscriptions,
            links=world.channels,
            brokers=world.stations,
            published=int(control[PUBLISHED]),
            traffic=int(control[TRAFFIC]),
            steps=int(control[STEPS]),
            wall_s=wall_s,
            faults=FaultFigures(
                scheme=self._plan.base.network.policies.faults.scheme,
                messages={name: int(control[place]) for name, place in MESSAGES.items()},
                duplicates=int(control[DUPLICATES]),
                storage_peak=int(control[STORED_PEAK]),
            ),
        )

    def _fan_out(self) -> int:
        stations = self._plan.stations
        return int((stations["last_out"] - stations["first_out"]).max(initial=0))

    def _down_at_first(self) -> Array:
        """What is down when the run begins, as changes at time 0: a reader takes all others to be up."""
        down = np.flatnonzero(self._plan.components["up"] == 0)
        rows = np.zeros(len(down), TRANSITION_OUT)
        rows["component"] = down
        return rows

    def _advance(self, chunk: Chunk, *, is_draining: bool) -> None:
        """Run the loop to the chunk's horizon, giving it room and taking its output whenever it comes back."""
        options, control, end_ns = self._options, self._world.control, self._plan.base.end_ns
        control[NEXT_PUBLICATION] = 0
        control[WIDEST] = max(control[WIDEST], int(chunk.events["count"].max(initial=0)))
        while True:
            reason = advance(
                self._world,
                chunk.events,
                chunk.matches,
                chunk.horizon_ns,
                options.steps_per_call,
                self._room,
                options.copies_max,
                is_draining,
            )
            self._drain(is_full=reason == OUTPUT_FULL)
            if reason == POOL_FULL:
                alive = int(control[ALIVE])
                heap = int(control[HEAP_SIZE]) + 2 * alive + self._room + 1
                self._world = give_room(self._world, copies=len(self._plan.stations) + 4, heap=heap)
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
            # One step may need more rows than there are: a crash that cuts off very many copies.
            larger = {name: np.zeros(2 * len(world.hops), getattr(world, name).dtype) for name in used}
            self._world = world._replace(**larger)

    def _overload(self) -> str:
        now_s = self._world.control[NOW] / NANOSECONDS
        return (
            f"overload: after {now_s:.6g} s there are more than {self._options.copies_max:,} copies in flight or "
            'stored; lower the rates, give deadlines with expired = "drop", shorten the run, or raise copies_max'
        )
