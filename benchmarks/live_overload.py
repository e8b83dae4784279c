"""Overload on live brokers: a link of fixed capacity is offered more than it can carry; what still comes on time?

Broker processes with the whole protocol and a durable store; the link to the subscriber, or between two brokers of a
chain, is a process that forwards at a fixed rate (`live_load`). Events of 1 kB come at random (Poisson) at 0.5, 1, 1.5,
2 and 3 times what the link carries, each with a lifetime uniform in .5 to 3 s and a value of 1, 2 or 3: the price of
the one of three subscriptions of the subscriber that matches it. After each overload the load is .5, to see the
recovery. The strategies run at the same time, each in brokers of its own, with the same events.

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

Set by environment variables: LOADS="2,3" STRATEGIES="triage,fifo" SHAPES="one,middle,last" OVERLOAD_S=10 REST_S=5. All
strategies at once take about one processor at load 3: where there is less, run them one after the other.
"""

import asyncio
import contextlib
import os
import random
import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import uvloop

import tidings
from benchmarks.live_load import Link, brokers, free_ports, shaped
from tidings.live import Delivery

BYTES_PER_S = 100_000.0
PAYLOAD_BYTES = 900
SHORTEST_S, LONGEST_S = 0.5, 3.0
VALUES = (1, 2, 3)
CALM = 0.5
ENOUGH = 0.99
WITHIN_S = 1.0
STEADY_WINDOWS = 3
SEED = 7
CALIBRATION_S = 3.0
_STAMP = struct.Struct(">q")

SHAPES = {
    "one": "one broker, the link to the subscriber",
    "middle": "three brokers in a row, the link from the first to the second",
    "last": "three brokers in a row, the link from the second to the third",
}


class Event(NamedTuple):
    """What was published, and when it came; -1: never."""

    published_s: float
    lifetime_s: float
    value: int
    came_s: float

    @property
    def is_on_time(self) -> bool:
        return 0.0 <= self.came_s <= self.published_s + self.lifetime_s


class Outcome(NamedTuple):
    """One overload, with the calm after it."""

    load: float
    on_time: float
    on_time_limit: float
    value: float
    value_limit: float
    busy: float
    recovery_s: float | None
    delay_s: float


def main() -> None:
    loads = [float(text) for text in os.environ.get("LOADS", "0.5,1,1.5,2,3").split(",")]
    strategies = os.environ.get("STRATEGIES", "triage,fifo,eb,ebpc").split(",")
    for shape in os.environ.get("SHAPES", "one").split(","):
        overload_s, rest_s = float(os.environ.get("OVERLOAD_S", "10")), float(os.environ.get("REST_S", "5"))
        print(
            f"overload: {SHAPES[shape]}, {BYTES_PER_S / 1000:g} kB/s; {overload_s:g} s each, {rest_s:g} s of {CALM:g}"
        )
        print(f"{'load':>6}{'':2}{'strategy':11}{'on time':>9}{'limit':>7}{'of it':>7}", end="")
        print(f"{'value':>8}{'limit':>7}{'of it':>7}{'busy':>7}{'recovery s':>12}{'median delay s':>16}")
        found = run(shape, strategies, loads, overload_s=overload_s, rest_s=rest_s)
        for number, load in enumerate(loads):
            for strategy, outcomes in found.items():
                _print(strategy, load, outcomes[number])


def _print(strategy: str, load: float, outcome: Outcome) -> None:
    recovery = f"{outcome.recovery_s:.2f}" if outcome.recovery_s is not None else "not"
    print(
        f"{load:>6g}{'':2}{strategy:11}{outcome.on_time:>9.3f}{outcome.on_time_limit:>7.3f}"
        f"{outcome.on_time / outcome.on_time_limit:>7.1%}{outcome.value:>8.3f}{outcome.value_limit:>7.3f}"
        f"{outcome.value / outcome.value_limit:>7.1%}{outcome.busy:>7.2f}{recovery:>12}{outcome.delay_s:>16.3f}",
        flush=True,
    )


def run(
    shape: str, strategies: Sequence[str], loads: Sequence[float], *, overload_s: float, rest_s: float
) -> dict[str, list[Outcome]]:
    """What each strategy makes of each load, one load after the other."""
    with contextlib.ExitStack() as stack:
        ends = {name: stack.enter_context(_overlay(shape, name)) for name in strategies}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play(ends, loads, overload_s, rest_s))


@contextlib.contextmanager
def _overlay(shape: str, strategy: str) -> Iterator[tuple[int, int, Link]]:
    """Brokers of a strategy with their shaped link: the ports of the publisher and of the subscriber, and the link."""
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
            yield ports["b1"], link.port if shape == "one" else ports["b3"], link


async def _play(
    ends: dict[str, tuple[int, int, Link]], loads: Sequence[float], overload_s: float, rest_s: float
) -> dict[str, list[Outcome]]:
    async with contextlib.AsyncExitStack() as stack:
        stages = {name: _Stage() for name in ends}
        for name, (near, far, _) in ends.items():
            await stages[name].enter(stack, near, far)
        await asyncio.sleep(1.0)  # for the subscriptions to be known everywhere
        capacity_per_s = await _capacity_per_s([(stages[name], link) for name, (_, _, link) in ends.items()])
        print(f"{'':8}{capacity_per_s:.1f} events/s")
        outcomes: dict[str, list[Outcome]] = {name: [] for name in stages}
        for load in loads:
            phases = ((overload_s, load * capacity_per_s), (rest_s, CALM * capacity_per_s))
            links = {name: link for name, (_, _, link) in ends.items()}
            watching = asyncio.create_task(_busy(links, overload_s))
            began_s = await _publish(list(stages.values()), phases)
            busy = await watching
            for name, stage in stages.items():
                events = stage.take()
                outcomes[name].append(_outcome(load, events, began_s, overload_s, rest_s, capacity_per_s, busy[name]))
        return outcomes


class _Stage:
    """The publisher and the subscriber of one strategy."""

    def __init__(self) -> None:
        self._published: list[tuple[float, float, int]] = []
        self._came_s: dict[int, float] = {}
        self._first = 0

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        self._publisher = await stack.enter_async_context(
            tidings.connect(f"127.0.0.1:{near}", name="source", max_in_flight=100_000)
        )
        subscriber = await stack.enter_async_context(tidings.connect(f"127.0.0.1:{far}", name="sink"))
        for value in VALUES:
            await subscriber.subscribe(f"value = {value}", price=float(value), callback=self._came)
        await self._publisher.advertise("TRUE")

    async def publish(self, published_s: float, lifetime_s: float, value: int) -> None:
        """The lifetime counts from when the event was due, though this process may be late."""
        number = self._first + len(self._published)
        self._published.append((published_s, lifetime_s, value))
        payload = _STAMP.pack(number) + bytes(PAYLOAD_BYTES)
        left_s = max(published_s + lifetime_s - time.monotonic(), 0.001)
        await self._publisher.offer({"value": value}, payload=payload, lifetime_s=left_s)

    def _came(self, delivery: Delivery) -> None:
        self._came_s.setdefault(_STAMP.unpack_from(delivery.payload)[0], time.monotonic())

    @property
    def came(self) -> int:
        return len(self._came_s)

    def take(self) -> list[Event]:
        """The events since the last time."""
        events = [
            Event(*published, self._came_s.get(self._first + number, -1.0))
            for number, published in enumerate(self._published)
        ]
        self._first += len(self._published)
        self._published.clear()
        self._came_s.clear()
        return events


async def _capacity_per_s(pairs: list[tuple[_Stage, Link]]) -> float:
    """How many events the link carries in a second, by the bytes that one takes when there is no haste."""
    rate_per_s = CALM * BYTES_PER_S / (PAYLOAD_BYTES + 200)
    before = [link.carried_bytes() for _, link in pairs]
    await _publish([stage for stage, _ in pairs], ((CALIBRATION_S, rate_per_s),))
    sizes_bytes = [
        (link.carried_bytes() - carried) / sum(event.is_on_time for event in stage.take())
        for (stage, link), carried in zip(pairs, before, strict=True)
    ]
    return BYTES_PER_S / min(sizes_bytes)


async def _busy(links: dict[str, Link], overload_s: float) -> dict[str, float]:
    """What share of its capacity each link carries while the overload is counted."""
    await asyncio.sleep(LONGEST_S)
    began_s, before = time.monotonic(), {name: link.carried_bytes() for name, link in links.items()}
    await asyncio.sleep(overload_s - 2 * LONGEST_S)
    took_s = time.monotonic() - began_s
    return {name: (link.carried_bytes() - before[name]) / took_s / BYTES_PER_S for name, link in links.items()}


async def _publish(stages: list[_Stage], phases: Sequence[tuple[float, float]]) -> float:
    """Publish at these rates for so long, at every stage the same; when it began."""
    dice = random.Random(SEED)
    began_s = due_s = end_s = time.monotonic()
    for seconds, rate_per_s in phases:
        end_s += seconds
        while (due_s := due_s + dice.expovariate(rate_per_s)) < end_s:
            event = (dice.uniform(SHORTEST_S, LONGEST_S), dice.choice(VALUES))
            if (left_s := due_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            for stage in stages:
                await stage.publish(due_s, *event)
        due_s = end_s
    await asyncio.sleep(max(end_s - time.monotonic(), 0.0) + LONGEST_S + 0.5)
    return began_s


def _outcome(
    load: float,
    events: list[Event],
    began_s: float,
    overload_s: float,
    rest_s: float,
    capacity_per_s: float,
    busy: float,
) -> Outcome:
    ended_s = began_s + overload_s
    counted = [event for event in events if began_s + LONGEST_S <= event.published_s < ended_s - LONGEST_S]
    room = int(capacity_per_s * (overload_s - 2 * LONGEST_S))
    values = sorted((event.value for event in counted), reverse=True)
    on_time = [event for event in counted if event.is_on_time]
    delays_s = sorted(event.came_s - event.published_s for event in on_time)
    return Outcome(
        load=load,
        on_time=len(on_time) / len(counted),
        on_time_limit=min(1.0, room / len(counted)),
        value=sum(event.value for event in on_time) / sum(values),
        value_limit=sum(values[:room]) / sum(values),
        busy=busy,
        recovery_s=_recovery_s([event for event in events if event.published_s >= ended_s], ended_s, rest_s),
        delay_s=delays_s[len(delays_s) // 2] if delays_s else 0.0,
    )


def _recovery_s(after: list[Event], ended_s: float, rest_s: float) -> float | None:
    step_s = 0.05
    last = int((rest_s - STEADY_WINDOWS * WITHIN_S) / step_s)
    for step in range(last + 1):
        windows = [ended_s + step * step_s + number * WITHIN_S for number in range(STEADY_WINDOWS)]
        if all(_share(after, begin_s) >= ENOUGH for begin_s in windows):
            return step * step_s
    return None


def _share(events: list[Event], begin_s: float) -> float:
    within = [event.is_on_time for event in events if begin_s <= event.published_s < begin_s + WITHIN_S]
    return sum(within) / max(len(within), 1)


if __name__ == "__main__":
    main()
