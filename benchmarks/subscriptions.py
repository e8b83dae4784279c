"""A million subscriptions in a network of 20: what they cost one of its brokers.

A star of BROKERS broker machines without I/O. Each has an equal share of the subscriptions, all different, at its own
clients. The hub is measured: it starts from its disk with its own share, then each other broker greets it, announces
all that its clients want, and learns nothing in turn. One of them at a time is in memory; what it has announced stays.
For three sizes of the whole network:

- `own us`, `learnt us`: processor time of the hub for each subscription of its own when it starts, and for each that it
  learns of;
- `B each`: by how much the anonymous memory of this process has grown, for each;
- `match us`: processor time of matching one event against all of them, once the tables are made;
- `parse us`: the limit measured in the same run: what it takes to parse such a filter (`Filter.parse`), which the hub
  does for each of them, and the ratio of `learnt` to it.

Each size runs in a process of its own, which collects garbage as seldom as a broker process does: with Python's own
setting, a third of what learning takes at 100,000 is the collector, which looks at all that is known.

Options: ``BENCH_SIZES=20000,100000``.
"""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tidings.live.broker._supervisor import COLLECTION
from tidings.model.filters import Filter
from tidings.protocol import Broker, BrokerSettings, Send, Sync, wire

BROKERS = 20
SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "20000,100000,1000000").split(","))
PER_CLIENT = 10_000
PARSED = 2_000
MATCHED = 200
SECOND = 10**9
HUB = "b00"


class Row(NamedTuple):
    """One size."""

    own_us: float
    learnt_us: float
    each_bytes: float
    match_us: float
    parse_us: float


def _entry(number: int) -> wire.Entry:
    return wire.Entry(f"s{number}", f"symbol = 'S{number % 4_096}' AND price > {number}", None, 1.0, 0)


def _broker(name: str, neighbours: frozenset[str], first: int, count: int, size: int) -> Broker:
    """A broker with a share of the subscriptions on its disk."""
    kept = {"epoch": b"1", "ready": b""}
    for number in range(first, first + count):
        client = f"{name}-{(number - first) // PER_CLIENT}"
        key = f"subscription/{len(client)}/{client}/s{number}"
        kept[key] = wire.encode_plain((client, _entry(number)))
    settings = BrokerSettings(name=name, neighbours=neighbours, max_entries=2 * size, tracing=False)
    return Broker(settings, kept)


class _Talk:
    """Two brokers that exchange everything they know; `spent_s` is what it cost the hub."""

    def __init__(self, hub: Broker, other: Broker) -> None:
        self.spent_s = 0.0
        self.brokers = {hub.name: hub, other.name: other}
        self._waiting: list[tuple[str, Callable[..., list[Any]], tuple[Any, ...]]] = []
        self.step(other.name, other.start)
        for one, two in ((hub, other), (other, hub)):
            self.step(one.name, one.connected, two.name)

    def step(self, name: str, do: Callable[..., list[Any]], *what: Any) -> None:
        self._waiting.append((name, do, what))
        while self._waiting:
            name, do, what = self._waiting.pop(0)
            self._carry(name, do, what)

    def _carry(self, name: str, do: Callable[..., list[Any]], what: tuple[Any, ...]) -> None:
        began_s = time.process_time()
        effects = do(*what, SECOND)
        if name == HUB:
            self.spent_s += time.process_time() - began_s
        for effect in effects:
            if isinstance(effect, Sync):
                self._waiting.append((name, self.brokers[name].synced, (effect.token,)))
            elif isinstance(effect, Send) and effect.connection in self.brokers and not _asks_hub(effect):
                receiver = self.brokers[effect.connection]
                self._waiting.append((receiver.name, receiver.receive, (name, effect.frame)))


def _asks_hub(effect: Send) -> bool:
    """Whether another broker expects an answer: it is gone soon, and does not."""
    return effect.connection == HUB and isinstance(wire.decode(effect.frame), wire.Ask)


def measure(size: int) -> Row:
    """The hub of a network with so many subscriptions."""
    gc.set_threshold(*COLLECTION)
    share = size // BROKERS
    names = [f"b{number:02}" for number in range(BROKERS)]
    began_s = time.process_time()
    for number in range(PARSED):
        Filter.parse(_entry(number).filter)
    parse_us = (time.process_time() - began_s) / PARSED * 1e6
    before_bytes = _anonymous_bytes()
    hub = _broker(HUB, frozenset(names[1:]), 0, share, size)
    began_s = time.process_time()
    for effect in hub.start(SECOND):
        if isinstance(effect, Sync):
            hub.synced(effect.token, SECOND)
    own_s, learnt_s = time.process_time() - began_s, 0.0
    for place, name in enumerate(names[1:], 1):
        talk = _Talk(hub, _broker(name, frozenset((HUB,)), place * share, share, size))
        now_ns = SECOND
        while len(hub.gossip.interests) < place * share:  # what is left of a long answer goes on later
            now_ns += SECOND // 100
            assert now_ns < 100 * SECOND, f"{name} has announced {len(hub.gossip.interests)} of {place * share}"
            for machine in (hub, talk.brokers[name]):
                talk.step(machine.name, lambda _, machine=machine, at_ns=now_ns: machine.wake(at_ns))
        learnt_s += talk.spent_s
        hub.disconnected(name, now_ns)
    assert len(hub.gossip.interests) == size - share, len(hub.gossip.interests)
    match_us = _match_us(hub, size)
    return Row(
        own_s / share * 1e6,
        learnt_s / (size - share) * 1e6,
        (_anonymous_bytes() - before_bytes) / size,
        match_us,
        parse_us,
    )


def _match_us(hub: Broker, size: int) -> float:
    match = hub.gossip.interests.tokens()
    events = [{"symbol": f"S{number % 4_096}", "price": number} for number in range(0, size, size // MATCHED)]
    for event in events:
        match(event)
    began_s = time.process_time()
    for event in events:
        match(event)
    return (time.process_time() - began_s) / len(events) * 1e6


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def main() -> None:
    print(f"subscriptions: one of {BROKERS} brokers")
    print(
        f"{'in the network':>15}{'own us':>9}{'learnt us':>11}{'B each':>9}{'match us':>10}{'parse us':>10}{'ratio':>7}"
    )
    for size in SIZES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (size,))
        print(
            f"{size:>15,}{row.own_us:>9.1f}{row.learnt_us:>11.1f}{row.each_bytes:>9.0f}{row.match_us:>10.1f}"
            f"{row.parse_us:>10.1f}{row.learnt_us / row.parse_us:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
