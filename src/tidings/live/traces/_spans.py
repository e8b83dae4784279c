"""Spans of OpenTelemetry: what a broker knows of an event's way, as JSON of OTLP.

- `publish`: from the publisher to its home broker. A child of the publisher's span if the event has a context.
- `forward`: from the arrival at a broker to the arrival at the next one.
- `deliver`: from the arrival at the home broker to the arrival at a client; one for each of its subscriptions.

Identifiers follow from the event, the two ends of the hop, and the subscription. So each span has the one before as its
parent although brokers tell each other nothing about spans. Times are by the clock of the broker that sent the event.
Names of attributes are those of OpenTelemetry's semantic conventions where they have one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tidings.live.traces._hops import OUTCOMES
from tidings.protocol import Arrival, EventId, TraceContext

__all__ = ["Leg", "Passage", "as_export", "span_id_of", "span_of", "topic_in", "trace_id_of"]

_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5
_ERROR: Final = 2
_SAMPLED: Final = 1
_MOST_TOPIC: Final = 1_024
"""A longer topic is cut."""
_REASONS: Final = {
    "expired": "its deadline passed",
    "hopeless": "it would have been too late",
    "full": "too many events waited",
    "replaced": "a newer event has replaced it",
}


class Passage(msgspec.Struct, frozen=True, gc=False):
    """An event at one broker: the `source` that it came from (empty: its publisher), and when; without its content."""

    event: EventId
    context: TraceContext | None
    source: str
    arrival: Arrival
    arrived_ns: int
    topic: str | None = None
    is_restored: bool = False
    """Whether it was in the store when the broker started; where it had come from is unknown."""


class Leg(msgspec.Struct, frozen=True, gc=False):
    """Where a passage led: to the `target`, sent and ended at these times, with this outcome.

    To a client it has the name of a subscription, with its deadline if there is one. The leg to the broker itself is
    the way from the publisher.
    """

    target: str
    sent_ns: int | None
    ended_ns: int
    outcome: str = "received"
    is_client: bool = False
    subscription: str = ""
    max_delay_ns: int | None = None


def trace_id_of(event: EventId) -> str:
    """The trace of an event whose publisher has given it none."""
    return _digest(_named(event), 16)


def span_id_of(trace_id: str, event: EventId, source: str, target: str, subscription: str = "") -> str:
    """The span of a hop; the first one has no source."""
    return _digest("\0".join((trace_id, _named(event), source, target, subscription)), 8)


def _named(event: EventId) -> str:
    publisher, epoch, sequence = event
    return f"{publisher}/{epoch}/{sequence}"


def _digest(text: str, size_bytes: int) -> str:
    found = hashlib.blake2b(text.encode(), digest_size=size_bytes).digest()
    return found.hex() if any(found) else "1".zfill(2 * size_bytes)  # zeros are no identifier


def span_of(broker: str, passage: Passage, leg: Leg) -> dict[str, Any]:
    """The span of a leg."""
    event, context, arrival = passage.event, passage.context, passage.arrival
    trace_id = trace_id_of(event) if context is None else context.trace_id
    first_id = span_id_of(trace_id, event, "", arrival.root)
    is_first = leg.target == broker
    began_ns = arrival.since_ns if is_first else passage.arrived_ns
    if is_first:
        name, kind, span_id, parent_id = "publish", _PRODUCER, first_id, "" if context is None else context.span_id
    else:
        name, kind = ("deliver", _CONSUMER) if leg.is_client else ("forward", _INTERNAL)
        span_id = span_id_of(trace_id, event, broker, leg.target, leg.subscription)
        parent_id = span_id_of(trace_id, event, passage.source, broker) if passage.source else first_id
    ended_ns = max(leg.ended_ns, began_ns)
    span: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span_id,
        "flags": _SAMPLED,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(began_ns),
        "endTimeUnixNano": str(ended_ns),
        "attributes": _attributes(_facts(broker, passage, leg, name, ended_ns)),
    }
    if parent_id:
        span["parentSpanId"] = parent_id
    if context is not None and context.state:
        span["traceState"] = context.state
    if leg.is_client:
        span["links"] = [{"traceId": trace_id, "spanId": first_id}]
    if leg.outcome != "received":
        span["status"] = {"code": _ERROR, "message": f"dropped: {_REASONS.get(leg.outcome, leg.outcome)}"}
    return span


def _facts(broker: str, passage: Passage, leg: Leg, name: str, ended_ns: int) -> dict[str, Any]:
    event, arrival = passage.event, passage.arrival
    facts: dict[str, Any] = {
        "messaging.system": "tidings",
        "messaging.operation.name": name,
        "messaging.message.id": _named(event),
        "messaging.message.envelope.size": arrival.size_bytes,
        "tidings.publisher": f"{event[0]}/{event[1]}",
        "tidings.sequence": event[2],
        "tidings.broker": broker,
        "tidings.outcome": OUTCOMES.get(leg.outcome, leg.outcome),
        "tidings.age_s": (ended_ns - arrival.since_ns) / 1e9,
    }
    if passage.topic is not None:
        facts["messaging.destination.name"] = passage.topic
    lives_ns = arrival.lifetime_ns
    if name == "publish":
        facts |= {"messaging.operation.type": "send", "messaging.client.id": event[0]}
        facts["tidings.lifetime_ns"] = lives_ns
    else:
        sent_ns = ended_ns if leg.sent_ns is None else max(leg.sent_ns, passage.arrived_ns)
        facts |= {"tidings.target": leg.target, "tidings.queue_s": (sent_ns - passage.arrived_ns) / 1e9}
        if leg.sent_ns is not None:
            facts["tidings.sent_ns"] = sent_ns
    if name == "deliver":
        facts["messaging.client.id"] = leg.target
        facts["tidings.arrived_ns"] = arrival.departure_ns + ended_ns - arrival.since_ns  # by the publisher's clock
        if leg.subscription:
            facts["messaging.destination.subscription.name"] = f"{leg.target}/{leg.subscription}"
        if leg.max_delay_ns is not None:
            lives_ns = min(lives_ns, leg.max_delay_ns)
    facts["tidings.time_left_s"] = (arrival.since_ns + lives_ns - ended_ns) / 1e9
    if leg.outcome != "received":
        facts["error.type"] = leg.outcome
    if passage.is_restored:
        facts["tidings.restored"] = True
    return facts


class _Attributes(msgspec.Struct):
    topic: Any = None


class _Content(msgspec.Struct, array_like=True):
    attributes: _Attributes


_DECODER: Final = msgspec.msgpack.Decoder(_Content)


def topic_in(content: bytes) -> str | None:
    """The topic of an event with this content, if it has one."""
    try:
        topic = _DECODER.decode(content).attributes.topic
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return topic[:_MOST_TOPIC] if isinstance(topic, str) else None


def _attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # JSON's numbers are not exact beyond 2**53
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def as_export(resource: Mapping[str, Any], version: str, spans: Iterable[dict[str, Any]]) -> bytes:
    """A request to export spans."""
    scope = {"scope": {"name": "tidings", "version": version}, "spans": list(spans)}
    return msgspec.json.encode(
        {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}
    )
