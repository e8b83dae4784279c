"""Logs of other systems whose truth is known: two topics, three hosts with clocks of their own, three consumers.

Every host publishes to both topics and has one consumer, which takes everything. Numbers are offsets in a partition, so
every partition of every topic uses the same ones.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_NS = 30_000_000
BASE_NS = 1_700_000_000_000_000_000
CONSUMERS = {"billing": "core", "audit": "cloud", "cache": "edge"}


@dataclass(frozen=True, kw_only=True)
class Sent:
    topic: str
    partition: int
    offset: int
    host: str
    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Received:
    sent: Sent
    consumer: str
    host: str
    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What truly happened, and how far each host's clock is ahead."""

    sent: list[Sent]
    received: list[Received]
    ahead_ns: dict[str, int]

    def shown_ns(self, what: Sent | Received) -> int:
        """The time in the log: what the host's clock showed."""
        return BASE_NS + what.at_ns + self.ahead_ns[what.host]

    def on_time(self, consumer: str, deadline_ns: int = DEADLINE_NS) -> int:
        mine = (each for each in self.received if each.consumer == consumer)
        return sum(each.at_ns - each.sent.at_ns < deadline_ns for each in mine)


def traffic(*, events: int = 120, seed: int = 1, **ahead_ns: int) -> Traffic:
    """Delays of 2 ms and more, some late, some lost; a clock that is not given is right."""
    draw = random.Random(seed)
    numbers = Counter[tuple[str, int]]()
    sent, received = [], []
    for number in range(events):
        topic, partition, host = (
            ("orders", "payments")[number % 2],
            number // 2 % 2,
            draw.choice(["edge", "core", "cloud"]),
        )
        at_ns = number * 50_000_000 + draw.randrange(20_000_000)
        offset = numbers[topic, partition]
        numbers[topic, partition] += 1
        sent.append(Sent(topic=topic, partition=partition, offset=offset, host=host, at_ns=at_ns))
        for consumer, where in CONSUMERS.items():
            delay_ns = 2_000_000 + round(draw.expovariate(1 / 8e6)) + 100_000_000 * (draw.random() < 0.1)
            if draw.random() < 0.97:
                received.append(Received(sent=sent[-1], consumer=consumer, host=where, at_ns=at_ns + delay_ns))
    clocks = {host: ahead_ns.get(host, 0) for host in ("edge", "core", "cloud")}
    return Traffic(sent=sent, received=received, ahead_ns=clocks)


def write_lines(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def kafka(of: Traffic, folder: Path) -> None:
    """As `kcat -C -J` writes a topic, and as consumers log what they get; whole milliseconds."""
    write_lines(
        folder / "topics.jsonl",
        [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "tstype": "create",
                "ts": of.shown_ns(each) // 1_000_000,
                "broker": 1,
                "headers": ["host", each.host],
                "key": None,
                "payload": "...",
            }
            for each in of.sent
        ],
    )
    write_lines(
        folder / "received.jsonl",
        [
            {
                "group": each.consumer,
                "host": each.host,
                "topic": each.sent.topic,
                "partition": each.sent.partition,
                "offset": each.sent.offset,
                "at": of.shown_ns(each) // 1_000_000,
            }
            for each in of.received
        ],
    )


WRITERS: dict[str, Callable[[Traffic, Path], None]] = {"kafka": kafka}
