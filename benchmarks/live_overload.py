"""Overload on live brokers: a link of fixed capacity is offered more than it can carry; what still comes on time?

Broker processes with the whole protocol and a durable store; the link to the subscriber, or between two brokers of a
chain, is a process that forwards at a fixed rate (`live_load`). Events of 1 kB come at random (Poisson) at 0.5, 1, 1.5,
2 and 3 times what the link carries, each with a lifetime uniform in .5 to 3 s and a value of 1, 2 or 3: the price of
the one of three subscriptions of the subscriber that matches it. After each overload the load is .5, to see the
recovery. The strategies run at the same time, each in brokers of its own, with the same events; beside one broker so do
the peers (`live_overload_peers`), each with a link of its own of the same kind.

- `on time`: the share of events that the subscriber got within their lifetime after publication, by one clock. Counted
  are events published after the first and before the last 3 s of the overload: what a queue took in before it was full,
  or sends afterwards, does not count. The limit is what the link carries in that time, at most all: 1/load.
- `value`: what these events were worth, by what all were worth. The limit is the worth of the dearest that the link
  could carry. Both limits can be reached together: events are of one size, so whoever always sends something that
  comes in time reaches the first, and the second if nothing dearer waits. (Exactly, in turns of one event: sets of
  events that can all be on time are independent sets of a matroid, so a set of the greatest value is also among the
  largest.)
- `busy`: what the link carried in that time, by what it can carry: where it is below 1 in an overload, the machine had
  no time for the processes that should have kept it busy.
- `recovery`: how long after the overload until 99 % of what is published within a second is on time again, then and in
  the two seconds after it.

How many bytes a payload of 900 takes on the link differs with the protocol; they are printed. So that the figures show
what is sent and not how it is wrapped, payloads are made longer until every event takes as much as the longest, and
all links carry the same number of events. PADDED=0 leaves them as they are: then the limit is what the link carries of
the shortest.

Set by environment variables: LOADS="2,3" STRATEGIES="triage,fifo" PEERS="nats,heap" (PEERS= for none) SHAPES="one,
middle,last" OVERLOAD_S=30 REST_S=5 PADDED=1. All strategies at once take about one processor at load 3, and so do all
peers: where there is less, run them one after the other. The last lines show where the default strategy is below a
peer. What happens to wait when counting begins and when it ends can make as much as half a second's events of
difference: with OVERLOAD_S=10, of which 4 s count, several per cent.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence

import uvloop

import tidings
from benchmarks.live_load import Link, brokers, free_ports, shaped
from benchmarks.live_overload_counting import LONGEST_S, PAYLOAD_BYTES, SHORTEST_S, VALUES, Outcome, Stage, outcome_of
from benchmarks.live_overload_peers import PEERS, MissingPeerError, peer
from tidings.live import Delivery
from tidings.model.policies import DEFAULT_STRATEGY

BYTES_PER_S = 100_000.0
CALM = 0.5
SEED = 7
CALIBRATION_S, CALIBRATION_LOAD = 16.0, 1.15
OURS = DEFAULT_STRATEGY
WITHIN = 0.01

SHAPES = {
    "one": "one broker, the link to the subscriber",
    "middle": "three brokers in a row, the link from the first to the second",
    "last": "three brokers in a row, the link from the second to the third",
}


Ends = tuple[int, int, Link, Stage]
"""The ports of the publisher and of the subscriber, the shaped link, and who publishes and subscribes."""


def main() -> None:
    loads = [float(text) for text in os.environ.get("LOADS", "0.5,1,1.5,2,3").split(",")]
    strategies = os.environ.get("STRATEGIES", f"{OURS},triage,fifo,eb,ebpc").split(",")
    peers = [name for name in os.environ.get("PEERS", ",".join(PEERS)).split(",") if name]
    if unknown := sorted({*peers} - {*PEERS}):
        raise SystemExit(f"there is no peer {unknown[0]!r}; there are: {', '.join(PEERS)}")
    for shape in os.environ.get("SHAPES", "one").split(","):
        overload_s, rest_s = float(os.environ.get("OVERLOAD_S", "30")), float(os.environ.get("REST_S", "5"))
        print(
            f"overload: {SHAPES[shape]}, {BYTES_PER_S / 1000:g} kB/s; {overload_s:g} s each, {rest_s:g} s of {CALM:g}"
        )
        found = run(shape, strategies, peers if shape == "one" else [], loads, overload_s=overload_s, rest_s=rest_s)
        print(f"{'load':>6}{'':2}{'':16}{'on time':>9}{'limit':>7}{'of it':>7}", end="")
        print(f"{'value':>8}{'limit':>7}{'of it':>7}{'busy':>7}{'recovery s':>12}{'median delay s':>16}")
        for number, load in enumerate(loads):
            for name, outcomes in found.items():
                _print(name, load, outcomes[number])
        _print_verdict(found, [name for name in found if name in PEERS])


def _print_verdict(found: dict[str, list[Outcome]], peers: list[str]) -> None:
    if OURS not in found or not peers:
        return
    clearly: list[str] = []
    barely: list[str] = []
    for name in peers:
        for ours, other in zip(found[OURS], found[name], strict=True):
            for figure, mine, theirs in (("on time", ours.on_time, other.on_time), ("value", ours.value, other.value)):
                if mine < theirs:
                    line = f"{'':8}at load {ours.load:g} {figure} {mine:.3f}, {name} {theirs:.3f}"
                    (clearly if mine < (1.0 - WITHIN) * theirs else barely).append(line)
    for lines, much in ((clearly, "more"), (barely, "less")):
        print(f"{OURS} is below a peer by {much} than {WITHIN:.0%}: {len(lines) or 'nowhere'}", *lines, sep="\n")


def _print(name: str, load: float, outcome: Outcome) -> None:
    recovery = f"{outcome.recovery_s:.2f}" if outcome.recovery_s is not None else "not"
    print(
        f"{load:>6g}{'':2}{name:16}{outcome.on_time:>9.3f}{outcome.on_time_limit:>7.3f}"
        f"{outcome.on_time / outcome.on_time_limit:>7.1%}{outcome.value:>8.3f}{outcome.value_limit:>7.3f}"
        f"{outcome.value / outcome.value_limit:>7.1%}{outcome.busy:>7.2f}{recovery:>12}{outcome.delay_s:>16.3f}",
        flush=True,
    )


def run(
    shape: str,
    strategies: Sequence[str],
    peers: Sequence[str],
    loads: Sequence[float],
    *,
    overload_s: float,
    rest_s: float,
) -> dict[str, list[Outcome]]:
    """What each strategy and peer makes of each load, one load after the other."""
    with contextlib.ExitStack() as stack:
        ends = {name: stack.enter_context(_overlay(shape, name)) for name in strategies}
        for name in peers:
            try:
                ends[name] = stack.enter_context(peer(name, bytes_per_s=BYTES_PER_S))
            except MissingPeerError as missing:
                print(f"{'':8}{name} is passed over: {missing}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play(ends, loads, overload_s, rest_s))


@contextlib.contextmanager
def _overlay(shape: str, strategy: str) -> Iterator[Ends]:
    """Brokers of a strategy with their shaped link."""
    names = ["b1"] if shape == "one" else ["b1", "b2", "b3"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    far = {"one": "b1", "middle": "b2", "last": "b3"}[shape]
    with shaped(ports[far], bytes_per_s=BYTES_PER_S) as link:
        chosen = f'strategy = "{strategy}"\n' + ("r = 0.6\n" if strategy == "ebpc" else "")
        text = f"[network]\n{chosen}"
        for number, name in enumerate(names):
            text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{ports[name]}"\n'
            text += f'neighbours = ["{names[number - 1]}"]\n' if number else ""
            text += f'address = "127.0.0.1:{link.port}"\n' if name == far and shape != "one" else ""
        with brokers(text, ports):
            yield ports["b1"], link.port if shape == "one" else ports["b3"], link, _TidingsStage()


async def _play(
    ends: dict[str, Ends], loads: Sequence[float], overload_s: float, rest_s: float
) -> dict[str, list[Outcome]]:
    async with contextlib.AsyncExitStack() as stack:
        stages = {name: stage for name, (_, _, _, stage) in ends.items()}
        links = {name: link for name, (_, _, link, _) in ends.items()}
        for near, far, _, stage in ends.values():
            await stage.enter(stack, near, far)
        await asyncio.sleep(1.0)  # for the subscriptions to be known everywhere
        capacity_per_s = await _capacity_per_s(stages, links)
        outcomes: dict[str, list[Outcome]] = {name: [] for name in stages}
        for load in loads:
            phases = ((overload_s, load * capacity_per_s), (rest_s, CALM * capacity_per_s))
            watching = asyncio.create_task(_busy(links, overload_s))
            began_s = await _publish(list(stages.values()), phases)
            busy = await watching
            for name, stage in stages.items():
                events = stage.take()
                outcomes[name].append(outcome_of(load, events, began_s, overload_s, rest_s, capacity_per_s, busy[name]))
        return outcomes


class _TidingsStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        self._publisher = await stack.enter_async_context(
            tidings.connect(f"127.0.0.1:{near}", name="source", max_in_flight=100_000)
        )
        subscriber = await stack.enter_async_context(tidings.connect(f"127.0.0.1:{far}", name="sink"))
        for value in VALUES:
            await subscriber.subscribe(f"value = {value}", price=float(value), callback=self._delivered)
        await self._publisher.advertise("TRUE")

    async def send(self, payload: bytes, value: int, left_s: float) -> None:
        await self._publisher.offer({"value": value}, payload=payload, lifetime_s=left_s)

    def _delivered(self, delivery: Delivery) -> None:
        self.came(delivery.payload)


async def _capacity_per_s(stages: dict[str, Stage], links: dict[str, Link]) -> float:
    """How many events a link carries in a second, by the bytes that one takes in an overload."""
    is_padded = os.environ.get("PADDED", "1") != "0"
    sizes_bytes = await _sizes_bytes(stages, links)
    ours = [name for name, stage in stages.items() if isinstance(stage, _TidingsStage)]
    # One protocol, one size: what a strategy sends too late to be delivered was carried too.
    sizes_bytes |= dict.fromkeys(ours, min((sizes_bytes[name] for name in ours), default=0.0))
    common_bytes = max(sizes_bytes.values()) if is_padded else min(sizes_bytes.values())
    for name, stage in stages.items():
        stage.padding_bytes = round(common_bytes - sizes_bytes[name]) if is_padded else 0
    print(f"{'':8}bytes of an event:", ", ".join(f"{name} {size:.0f}" for name, size in sizes_bytes.items()))
    print(f"{'':8}{BYTES_PER_S / common_bytes:.1f} events/s {'of the same size' if is_padded else 'of the shortest'}")
    return BYTES_PER_S / common_bytes


async def _sizes_bytes(stages: dict[str, Stage], links: dict[str, Link]) -> dict[str, float]:
    """What a link carries for each event that arrives, while it is full; how many are late does not matter.

    All are of the greatest value, so that nobody has to look for them. The load is little above what the links carry,
    so that whoever keeps everything has sent it before the first load begins.
    """
    rate_per_s = CALIBRATION_LOAD * BYTES_PER_S / PAYLOAD_BYTES
    publishing = asyncio.create_task(_publish(list(stages.values()), ((CALIBRATION_S, rate_per_s),), VALUES[-1:]))
    await asyncio.sleep(CALIBRATION_S / 4)
    before = {name: (links[name].carried_bytes(), stage.arrived) for name, stage in stages.items()}
    await asyncio.sleep(CALIBRATION_S / 2)
    sizes_bytes = {}
    for name, (carried_bytes, arrived) in before.items():
        if stages[name].arrived == arrived:
            raise RuntimeError(f"{name}: nothing comes through the link")
        sizes_bytes[name] = (links[name].carried_bytes() - carried_bytes) / (stages[name].arrived - arrived)
    await publishing
    for stage in stages.values():
        stage.take()
    return sizes_bytes


async def _busy(links: dict[str, Link], overload_s: float) -> dict[str, float]:
    """What share of its capacity each link carries while the overload is counted."""
    await asyncio.sleep(LONGEST_S)
    began_s, before = time.monotonic(), {name: link.carried_bytes() for name, link in links.items()}
    await asyncio.sleep(overload_s - 2 * LONGEST_S)
    took_s = time.monotonic() - began_s
    return {name: (link.carried_bytes() - before[name]) / took_s / BYTES_PER_S for name, link in links.items()}


async def _publish(stages: list[Stage], phases: Sequence[tuple[float, float]], values: Sequence[int] = VALUES) -> float:
    """Publish at these rates for so long, at every stage the same; when it began."""
    dice = random.Random(SEED)
    began_s = due_s = end_s = time.monotonic()
    for seconds, rate_per_s in phases:
        end_s += seconds
        while (due_s := due_s + dice.expovariate(rate_per_s)) < end_s:
            event = (dice.uniform(SHORTEST_S, LONGEST_S), dice.choice(values))
            if (left_s := due_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            for stage in stages:
                await stage.publish(due_s, *event)
        due_s = end_s
    await asyncio.sleep(max(end_s - time.monotonic(), 0.0) + LONGEST_S + 0.5)
    return began_s


if __name__ == "__main__":
    main()
