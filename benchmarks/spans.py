"""What spans cost a broker, without sockets: the machine's processor time for an event, and what a span adds.

One publisher, one subscriber, batches of 500 events of 200 bytes. Printed: the time for each event without notes, with
traces of all events (the peer in the same run), and with spans: events that have no context, are not sampled, are
sampled. Then the parts: looking for a context in an event from a neighbour, and a span as JSON (in a thread).
"""

import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tidings.live.traces._spans import Leg, Passage, as_export, span_of
from tidings.protocol import Broker, BrokerSettings, Sync, context_in, wire
from tidings.protocol._effects import Arrival

NOW_NS = 10**17
BATCHES, BATCH = 40, 500
ROUNDS = 7
LIFETIME_NS = 60 * 10**9
CREDIT = 60_000
SAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
NOT_SAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}
CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "no notes": ({}, {"tracing": False}),
    "traces of all events": ({}, {"tracing": True}),
    "spans, no context": ({}, {"tracing": False, "spans": True}),
    "spans, not sampled": (NOT_SAMPLED, {"tracing": False, "spans": True}),
    "spans, sampled": (SAMPLED, {"tracing": False, "spans": True}),
}


def _confirm(broker: Broker, effects: list[Any]) -> None:
    for effect in effects:
        if isinstance(effect, Sync):
            _confirm(broker, broker.synced(effect.token, NOW_NS))


def _serving(**more: Any) -> Broker:
    broker = Broker(BrokerSettings(name="b", window=CREDIT, **more))
    _confirm(broker, broker.start(NOW_NS))
    entry = wire.Entry("all", "x >= 0", None, 1.0, 0)
    for name, request in (
        ("p", wire.Advertise(broker.epoch, 0, "all", "TRUE")),
        ("s", wire.Subscribe(broker.epoch, 0, entry)),
    ):
        broker.connected(name, NOW_NS)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, CREDIT)), NOW_NS)
        _confirm(broker, broker.receive(name, wire.encode(request), NOW_NS))
    return broker


def _content(number: int, context: dict[str, str]) -> bytes:
    return wire.encode_content(wire.Content({"x": number, "symbol": "YHOO", "price": 1.5, **context}, b"", b"p" * 200))


def _event_us(context: dict[str, str], settings: dict[str, Any]) -> float:
    broker, frames = _serving(**settings), []
    for first in range(0, BATCHES * BATCH, BATCH):
        events = tuple(
            wire.Publication(number, NOW_NS, 0, LIFETIME_NS, 200, _content(number, context))
            for number in range(first, first + BATCH)
        )
        frames.append(wire.encode(wire.Publish(1, first, 0, events)))
    began_s = time.process_time()
    for frame in frames:
        broker.receive("p", frame, NOW_NS)
    return (time.process_time() - began_s) / (BATCHES * BATCH) * 1e6


def _each_us(do: Callable[[], object], times: int) -> float:
    began_s = time.process_time()
    for _ in range(times):
        do()
    return (time.process_time() - began_s) / times * 1e6


def main() -> None:
    """Measure and print."""
    gc.disable()  # what it costs depends on what else there is
    try:
        found: dict[str, list[float]] = {name: [] for name in CASES}
        for round_ in range(ROUNDS + 1):
            for name, (context, settings) in CASES.items():
                took_us = _event_us(context, settings)
                if round_:  # the first one loads and compiles
                    found[name].append(took_us)
            gc.collect()
        for name, took in found.items():
            print(f"{name:<24} {statistics.median(took):6.2f} us an event ({min(took):.2f} to {max(took):.2f})")
        for name, context in (("no context", {}), ("a context", SAMPLED)):
            print(f"looking, {name:<15} {_each_us(partial(context_in, _content(1, context)), 200_000):6.2f} us")
        content = _content(1, SAMPLED)
        arrival = Arrival("a", NOW_NS, NOW_NS, LIFETIME_NS, 200, content)
        passage = Passage(("p", 1, 2), context_in(content), "a", arrival, NOW_NS)
        leg = Leg("s", NOW_NS, NOW_NS, "received", True, "all", LIFETIME_NS)
        took_us = _each_us(lambda: as_export({}, "1", [span_of("b", passage, leg) for _ in range(BATCH)]), 50)
        print(f"a span as JSON           {took_us / BATCH:6.2f} us")
    finally:
        gc.enable()
