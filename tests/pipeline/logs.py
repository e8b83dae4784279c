"""Logs of other systems whose truth is known: two topics, three hosts with clocks of their own, three consumers.

Every host publishes to both topics and has one consumer, which takes everything. Numbers are offsets in a partition, so
every partition of every topic uses the same ones.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
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
    drift_ppm: dict[str, float] = field(default_factory=dict)

    def shown_ns(self, what: Sent | Received) -> int:
        """The time in the log: what the host's clock showed."""
        drifted_ns = round(what.at_ns * self.drift_ppm.get(what.host, 0.0) / 1e6)
        return BASE_NS + what.at_ns + self.ahead_ns[what.host] + drifted_ns

    def on_time(self, consumer: str, deadline_ns: int = DEADLINE_NS) -> int:
        mine = (each for each in self.received if each.consumer == consumer)
        return sum(each.at_ns - each.sent.at_ns < deadline_ns for each in mine)


def traffic(*, events: int = 120, seed: int = 1, every_ns: int = 50_000_000, **ahead_ns: int) -> Traffic:
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
        at_ns = number * every_ns + draw.randrange(20_000_000)
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


def mqtt(of: Traffic, folder: Path) -> None:
    """Clients number their messages in each topic; what they send is in the message, in seconds with a fraction."""
    numbers = Counter[tuple[str, str]]()
    messages: dict[int, Any] = {}
    for each in of.sent:
        at = Decimal(of.shown_ns(each)) / 10**9
        message = {"client": f"app-{each.host}", "host": each.host, "n": numbers[each.host, each.topic], "at": str(at)}
        numbers[each.host, each.topic] += 1
        messages[id(each)] = {"topic": each.topic, "message": message}
    write_lines(folder / "sent.jsonl", list(messages.values()))
    write_lines(
        folder / "received.jsonl",
        [
            {
                "consumer": each.consumer,
                "host": each.host,
                "at": str(Decimal(of.shown_ns(each)) / 10**9),
                **messages[id(each.sent)],
            }
            for each in of.received
        ],
    )


def moment(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9:09d}Z"


def nats(of: Traffic, folder: Path) -> None:
    """A stream for each topic, which numbers what it accepts from 1 on."""
    numbers = Counter[str]()
    places: dict[int, dict[str, Any]] = {}
    for each in of.sent:
        numbers[each.topic] += 1
        places[id(each)] = {"domain": "hub", "stream": each.topic.upper(), "seq": numbers[each.topic]}
    write_lines(
        folder / "sent.jsonl",
        [
            {**places[id(each)], "subject": each.topic, "host": each.host, "sent": moment(of.shown_ns(each))}
            for each in of.sent
        ],
    )
    write_lines(
        folder / "received.jsonl",
        [
            {
                **places[id(each.sent)],
                "consumer": each.consumer,
                "host": each.host,
                "received": moment(of.shown_ns(each)),
            }
            for each in of.received
        ],
    )


def otel(of: Traffic, folder: Path) -> None:
    """A producer span for each message and a consumer span, linked to it, for each reception; others in between."""
    spans: dict[str, list[Any]] = {host: [] for host in of.ahead_ns}
    for number, each in enumerate(of.sent):
        spans[each.host].append(_span(of, each, number, 4, {"messaging.operation.type": "send"}))
        spans[each.host].append({**spans[each.host][-1], "spanId": f"{number:08x}ffffffff", "kind": 1})
    for number, got in enumerate(of.received):
        place = of.sent.index(got.sent)
        span = _span(of, got, number + (1 << 20), 5, {"messaging.consumer.group.name": got.consumer})
        span["links"] = [{"traceId": f"{place:032x}", "spanId": f"{place:016x}", "attributes": []}]
        spans[got.host].append(span)
    documents = [
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes({"host.name": host, "service.name": f"app-{host}"})},
                    "scopeSpans": [{"scope": {"name": "test"}, "spans": some[start : start + 10]}],
                }
            ]
        }
        for host, some in spans.items()
        for start in range(0, len(some), 10)
    ]
    write_lines(folder / "spans.jsonl", documents)


def _span(of: Traffic, each: Sent | Received, number: int, kind: int, more: dict[str, str]) -> dict[str, Any]:
    sent = each.sent if isinstance(each, Received) else each
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": f"{sent.topic} send",
        "kind": kind,
        "startTimeUnixNano": str(of.shown_ns(each)),
        "endTimeUnixNano": str(of.shown_ns(each) + 1000),
        "attributes": [
            *_attributes({"messaging.system": "kafka", "messaging.destination.name": sent.topic, **more}),
            {"key": "messaging.kafka.offset", "value": {"intValue": str(sent.offset)}},
        ],
    }


def _attributes(named: dict[str, str]) -> list[Any]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]


WRITERS: dict[str, Callable[[Traffic, Path], None]] = {"kafka": kafka, "mqtt": mqtt, "nats": nats, "otel": otel}
"""By the name of the example's mapping file."""
