"""A rehearsal: a scenario on real broker processes on this machine, in scaled time.

The simulator draws what is published and what fails (`simulation.Script`); generated clients publish exactly that, and
brokers are killed and links cut at those times. An event's delay is measured by one clock, from the moment its client
offers it to the moment the subscriber's client has it. What counts is what the simulator counts: of the events
published after the warm-up that a subscription matches, the share that arrives within the tighter of the two deadlines;
what is published while the home broker is down is lost.

The machine adds to every delay: processes take turns, disks commit, timers are good to a millisecond. How much is
measured before the run, on the same brokers with links of a known delay, at the pace of the scenario (`Machine`). An
event that is late by less than that may be late because of the machine: R comes with the R that forgives it. A broker
that is to come back is started somewhat earlier, behind doors that are shut: a process takes about a second to load.
"""

import asyncio
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tidings.errors import ConfigurationError, InputError
from tidings.live import Delivery
from tidings.model.policies import DEFAULT_RELOCATION, policy
from tidings.model.scenario import Network as Scene
from tidings.protocol.node import STEADY_NS
from tidings.rehearsal._noise import Batches, BoolArray, Estimate, estimate
from tidings.rehearsal._shaped_link import Shape, shape_of
from tidings.rehearsal._stage import Stage, scaled_shapes
from tidings.simulation import Script, simulate_script
from tidings.storm import payload_of, require_playable

__all__ = ["Machine", "RehearsalResult", "RehearsedSubscription", "rehearse", "rehearse_script", "require_rehearsable"]

Progress = Callable[[float], None]

CALIBRATION_EVENTS: Final = 150
CALIBRATION_GAP_S: Final = 0.03
"""Calibration events are at most so far apart."""
CALIBRATION_DELAY_S: Final = 0.005
BROKERS_MOST: Final = 32
"""More processes than that take turns on one machine so slowly that nothing can be learned."""
NOTICEABLE: Final = 0.1
"""A machine that adds more than this share of the tightest deadline is worth a warning."""
_LEAD_S: Final = 0.5
START_LEAD_S: Final = 3.0
"""So much earlier a broker that is to come back is started."""
_DRAIN_MOST_S: Final = 3_600.0
_ENDLESS_S: Final = 20.0
"""So long, in the machine's time, events without a deadline are waited for at least, while any is missing."""
_NUMBER_BYTES: Final = 4
_CHANGE, _START, _PUBLISH = range(3)  # what happens at the same time happens in this order


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine adds to a delay, in its own seconds: beforehand, and by how much links, clients and
    brokers that came back were late in the run."""

    added_s_p50: float
    added_s_p99: float
    links_late_s_p99: float = 0.0
    clients_late_s_p99: float = 0.0
    brokers_late_s_most: float = 0.0

    @property
    def share_s(self) -> float:
        """What is forgiven: the 99th percentile beforehand, or of the run if that is more."""
        return max(self.added_s_p99, self.links_late_s_p99, self.clients_late_s_p99)


class RehearsedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that one subscription matched; `on_time_forgiven` counts those that would have been on
    time without the machine's share too. `on_time_reliability` has its noise with it; None if nothing matched."""

    matched: int
    on_time: int
    on_time_forgiven: int
    late: int
    on_time_reliability: Estimate | None


class RehearsalResult(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on real processes. Times of `machine` are those of the machine, `machine_share_s` is its share in the
    scenario's time. `on_time_pairs` and `forgiven_pairs` have the outcome of each pair of `Script.counted`."""

    seed: int
    scale: float
    wall_s: float
    published: int
    refused: int
    matched: int
    on_time: int
    on_time_reliability: Estimate | None
    machine: Machine
    machine_share_s: float
    subscriptions: dict[str, RehearsedSubscription]
    warnings: tuple[str, ...]
    on_time_pairs: BoolArray
    forgiven_pairs: BoolArray


def rehearse(
    network: Scene, *, scale: float = 10.0, out: Path | None = None, progress: Progress | None = None
) -> RehearsalResult:
    """Run a scenario's network on real processes, `scale` times as fast as it says.

    `out` is a new directory for the network file, the brokers' log and their traces; without it nothing is left behind.
    """
    require_rehearsable(network, scale)
    return rehearse_script(simulate_script(network)[0], scale=scale, out=out, progress=progress)


def rehearse_script(
    script: Script, *, scale: float, out: Path | None = None, progress: Progress | None = None
) -> RehearsalResult:
    """Run what the simulator has run on real processes."""
    import uvloop

    require_rehearsable(script.network, scale)
    with ExitStack() as stack:
        if out is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-rehearsal-")))
        else:
            place = _made(out)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_rehearse(script, scale, place, progress))


def require_rehearsable(scene: Scene, scale: float) -> None:
    """ConfigurationError if a scenario cannot be rehearsed here."""
    require_playable(scene)
    relocation = policy("relocation", scene.policies.relocation.name)
    if not relocation.has("rehearsal"):
        raise ConfigurationError(
            f"relocation {relocation.name!r}: {relocation.missing['rehearsal']}; write relocation = "
            f'"{DEFAULT_RELOCATION}", or simulate the scenario'
        )
    if not 0.0 < scale < 1e6:
        raise ConfigurationError(f"a scale of {scale:g}: give how many seconds of the scenario pass in one, such as 10")
    if len(scene.topology.brokers) > BROKERS_MOST:
        raise ConfigurationError(
            f"{len(scene.topology.brokers)} brokers are too many processes for one machine, at most {BROKERS_MOST} can "
            "be rehearsed; `tidings storm --scenario` runs the same protocol in virtual time"
        )


def _made(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InputError(f"{out} is not empty: give a new directory")
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror or error}") from None
    return out


async def _rehearse(script: Script, scale: float, place: Path, progress: Progress | None) -> RehearsalResult:
    began_s = time.monotonic()
    machine = await _calibrate(script, scale, place / "calibration")
    run = _Run(script, scale, machine)
    async with run.stage(place):
        await run.play(progress)
    return run.result(time.monotonic() - began_s)


async def _calibrate(script: Script, scale: float, place: Path) -> Machine:
    """Publish the scenario's first events over links of a known delay; the rest of their delays is the machine's."""
    scene = script.network
    hops = {broker.name: _hops(scene, broker.name) for broker in scene.topology.brokers}
    homes = {s.id: scene.homes[s.subscriber] for s in scene.subscriptions}
    roots = {publisher.name: publisher.broker for publisher in scene.publishers}
    offered_s: dict[int, float] = {}
    added_s: list[float] = []

    def take(subscription: str, delivery: Delivery) -> None:
        number = int.from_bytes(delivery.payload[:_NUMBER_BYTES])
        path_s = hops[roots[delivery.publisher]][homes[subscription]] * CALIBRATION_DELAY_S
        added_s.append(time.monotonic() - offered_s[number] - path_s)

    brokers = {broker.name for broker in scene.topology.brokers}

    def shapes(source: str, target: str) -> Shape:
        return shape_of(delay_s=CALIBRATION_DELAY_S if source in brokers and target in brokers else 0.0)

    loose = msgspec.structs.replace(
        scene, subscriptions=tuple(msgspec.structs.replace(s, max_delay_s=None) for s in scene.subscriptions)
    )
    stage = Stage(loose, place, scale=1.0, shapes=shapes, longest_s=600.0, is_traced=False, on_delivery=take)
    some = [number for number, each in enumerate(script.publications) if each.matches][:CALIBRATION_EVENTS]
    gaps_s = [0.0, *(script.publications[b].at_ns - script.publications[a].at_ns for a, b in pairwise(some))]
    expected = 0
    async with stage:
        for number, gap_ns in zip(some, gaps_s, strict=False):
            await asyncio.sleep(min(gap_ns * 1e-9 / scale, CALIBRATION_GAP_S))
            publication = script.publications[number]
            expected += len(publication.matches)
            name = scene.publishers[publication.publisher].name
            payload = _numbered(payload_of(publication, name, scene.policies.ordering), number)
            offered_s[number] = time.monotonic()
            await stage.clients[name].offer(publication.attributes, payload=payload)
        until_s = time.monotonic() + 10.0
        while len(added_s) < expected and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
    if not added_s:
        return Machine(added_s_p50=0.0, added_s_p99=0.0)
    p50, p99 = np.quantile(added_s, (0.5, 0.99)).tolist()
    return Machine(added_s_p50=max(p50, 0.0), added_s_p99=max(p99, 0.0))


def _hops(scene: Scene, root: str) -> dict[str, int]:
    """How many links each broker is away from one."""
    hops, waiting = {root: 0}, deque([root])
    while waiting:
        here = waiting.popleft()
        for other in scene.topology.neighbours(here):
            if other not in hops:
                hops[other] = hops[here] + 1
                waiting.append(other)
    return hops


def _numbered(payload: bytes, number: int) -> bytes:
    """The payload with the publication's number in front: that is how a delivery is known."""
    return number.to_bytes(_NUMBER_BYTES) + payload[_NUMBER_BYTES:]


class _Run:
    """A rehearsal while it runs."""

    def __init__(self, script: Script, scale: float, machine: Machine) -> None:
        self._script, self._scale, self._machine = script, scale, machine
        self._scene = script.network
        self._numbers = {subscription.id: number for number, subscription in enumerate(self._scene.subscriptions)}
        self._down: set[str] = set()
        self._offered_s: dict[int, float] = {}
        self._delays_ns: dict[tuple[int, int], int] = {}
        self._late_s: list[float] = []
        self._refused = 0
        self._brokers_late_s: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stage: Stage

    def stage(self, place: Path) -> Stage:
        lifetimes_ns = [each.lifetime_ns for each in self._script.publications if each.lifetime_ns is not None]
        is_endless = len(lifetimes_ns) < len(self._script.publications)
        self._stage = Stage(
            self._scene,
            place,
            scale=self._scale,
            shapes=scaled_shapes(self._scene, self._scale),
            longest_s=self._scene.duration_s + _DRAIN_MOST_S if is_endless else max(lifetimes_ns, default=0) * 1e-9,
            is_traced=True,
            on_delivery=self._take,
            late_s=2.0 * self._machine.share_s,
        )
        return self._stage

    async def play(self, progress: Progress | None) -> None:
        """Let everything happen at its time, and wait for what is still in transit."""
        script, scale = self._script, self._scale
        end_ns = round(self._scene.duration_s * 1e9)
        happenings = [(each.at_ns, _PUBLISH, number) for number, each in enumerate(script.publications)]
        happenings += [(at_ns, _CHANGE, n) for n, (at_ns, _, _) in enumerate(script.transitions) if at_ns <= end_ns]
        happenings += self._starts(end_ns)
        start_s = time.monotonic() + _LEAD_S
        for at_ns, kind, number in sorted(happenings):
            due_s = start_s + at_ns * 1e-9 / scale
            while (wait_s := due_s - time.monotonic() - 0.0005) > 0:
                await asyncio.sleep(wait_s)
            self._late_s.append(time.monotonic() - due_s)
            if kind == _PUBLISH:
                await self._publish(number)
            elif kind == _START:
                self._stage.processes.start(self._scene.topology.brokers[number].name)
            else:
                self._change(*script.transitions[number][1:])
            if progress is not None:
                progress(at_ns / end_ns)
        await self._drain()
        self._stage.processes.check()

    def _starts(self, end_ns: int) -> list[tuple[int, int, int]]:
        """When the processes of brokers that come back are started."""
        lead_ns = round(START_LEAD_S * self._scale * 1e9)
        failed_ns: dict[int, int] = {}
        starts = []
        for at_ns, component, is_up in self._script.transitions:
            if component < len(self._scene.topology.brokers) and at_ns <= end_ns:
                if is_up:
                    starts.append((max(failed_ns[component], at_ns - lead_ns), _START, component))
                else:
                    failed_ns[component] = at_ns
        return starts

    async def _drain(self) -> None:
        """Wait until everything has arrived or can no longer be on time."""
        allowed_ns = [self._script.allowed_ns(*pair) for pair in self._script.counted()]
        longest_s = max(allowed_ns, default=0) * 1e-9
        most_s = min(longest_s, self._scene.duration_s, _DRAIN_MOST_S) / self._scale
        if longest_s > self._scene.duration_s:
            most_s = max(most_s, _ENDLESS_S)
        until_s = time.monotonic() + most_s + self._machine.share_s + _LEAD_S
        missing = {pair for pair in self._script.counted() if pair[0] in self._offered_s}
        while time.monotonic() < until_s and missing:
            missing -= self._delays_ns.keys()
            await asyncio.sleep(0.02)

    async def _publish(self, number: int) -> None:
        publication = self._script.publications[number]
        name = self._scene.publishers[publication.publisher].name
        if self._scene.homes[name] in self._down:
            self._refused += 1
            return
        lifetime_ns = publication.lifetime_ns
        payload = _numbered(payload_of(publication, name, self._scene.policies.ordering), number)
        self._offered_s[number] = time.monotonic()
        await self._stage.clients[name].offer(
            publication.attributes,
            payload=payload,
            lifetime_s=None if lifetime_ns is None else lifetime_ns * 1e-9 / self._scale,
        )

    def _take(self, subscription: str, delivery: Delivery) -> None:
        number = int.from_bytes(delivery.payload[:_NUMBER_BYTES])
        delay_s = (time.monotonic() - self._offered_s[number]) * self._scale
        self._delays_ns.setdefault((number, self._numbers[subscription]), round(delay_s * 1e9))

    def _change(self, component: int, is_up: bool) -> None:
        """A broker, or a component of links, fails or comes back."""
        topology, stage = self._scene.topology, self._stage
        notice_s = self._scene.policies.faults.detection_s / self._scale
        if component < len(topology.brokers):
            name = topology.brokers[component].name
            doors = stage.doors_of(name)
            if is_up:
                self._down.discard(name)
                self._tasks.add(asyncio.create_task(self._look_for(name)))
            else:
                self._down.add(name)
        else:
            numbers = [n for n, c in enumerate(self._scene.link_components) if c == component - len(topology.brokers)]
            ends = [tuple(sorted((topology.links[n].source, topology.links[n].target))) for n in numbers]
            doors = [stage.doors[one, other] for one, other in ends]
        for door in doors:
            if is_up:
                door.unshut()
            else:
                door.shut(notice_s)
        if component < len(topology.brokers) and not is_up:
            stage.processes.kill(name)

    async def _look_for(self, broker: str) -> None:
        """By how much a broker comes back later than it should."""
        began_s = time.monotonic()
        await self._stage.reach(broker)
        self._brokers_late_s.append(time.monotonic() - began_s)

    # -- the result --------------------------------------------------------------------------------------------------

    def result(self, wall_s: float) -> RehearsalResult:
        script, machine = self._script, self._measured()
        share_ns = round(machine.share_s * self._scale * 1e9)
        on_time = script.judged(self._delays_ns)
        forgiven = script.judged({pair: delay_ns - share_ns for pair, delay_ns in self._delays_ns.items()})
        arrived = np.array([pair in self._delays_ns for pair in script.counted()], np.bool_)
        batches = Batches(script)
        matched, hits = batches.matched, batches.counts(on_time)
        arrivals, excused = batches.counts(arrived).sum(axis=1), batches.counts(forgiven).sum(axis=1)
        subscriptions = {
            subscription.id: RehearsedSubscription(
                matched=int(matched[number].sum()),
                on_time=int(hits[number].sum()),
                on_time_forgiven=int(excused[number]),
                late=int(arrivals[number] - hits[number].sum()),
                on_time_reliability=estimate(hits[number], matched[number]),
            )
            for number, subscription in enumerate(self._scene.subscriptions)
        }
        return RehearsalResult(
            seed=self._scene.seed,
            scale=self._scale,
            wall_s=wall_s,
            published=len(script.publications),
            refused=self._refused,
            matched=int(matched.sum()),
            on_time=int(on_time.sum()),
            on_time_reliability=estimate(hits.sum(axis=0), matched.sum(axis=0)),
            machine=machine,
            machine_share_s=machine.share_s * self._scale,
            subscriptions=subscriptions,
            warnings=tuple(self._warnings(machine)),
            on_time_pairs=on_time,
            forgiven_pairs=forgiven,
        )

    def _measured(self) -> Machine:
        late_s = [late for door in self._stage.doors.values() for late in door.lateness_s]
        return msgspec.structs.replace(
            self._machine,
            links_late_s_p99=float(np.quantile(late_s, 0.99)) if late_s else 0.0,
            clients_late_s_p99=float(np.quantile(self._late_s, 0.99)) if self._late_s else 0.0,
            brokers_late_s_most=max(self._brokers_late_s, default=0.0),
        )

    def _warnings(self, machine: Machine) -> list[str]:
        """What makes the figures of this rehearsal doubtful, with the remedy."""
        found = []
        allowed_ns = [self._script.allowed_ns(*pair) for pair in self._script.counted()]
        tightest_s = min(allowed_ns, default=0) * 1e-9
        share_s = machine.share_s * self._scale
        if share_s > NOTICEABLE * tightest_s:
            found.append(
                f"the machine adds up to {share_s:.3g} s of the scenario's time to a delay, and the tightest deadline "
                f"is {tightest_s:.3g} s: give a --scale of {NOTICEABLE * tightest_s / machine.share_s:.2g} or less"
            )
        late_s = machine.brokers_late_s_most * self._scale
        if late_s > NOTICEABLE * tightest_s:
            found.append(
                f"a broker came back {late_s:.3g} s of the scenario's time later than it should have: outages are "
                "shorter than a process takes to start; give a smaller --scale"
            )
        ups = [f.up.mean() for f in (*self._scene.broker_failures, *self._scene.link_failures) if f is not None]
        if min(ups, default=np.inf) / self._scale < STEADY_NS * 1e-9:
            found.append(
                f"something fails every {min(ups) / self._scale:.2g} s of the machine's time, and brokers dial again "
                f"ever more rarely when connections last less than {STEADY_NS * 1e-9:g} s: give a --scale of "
                f"{min(ups) / (STEADY_NS * 1e-9):.2g} or less"
            )
        return found
