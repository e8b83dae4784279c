"""The trace context of an event: how a trace of OpenTelemetry passes through the network (W3C Trace Context).

The attributes `traceparent` and `tracestate` of an event have the values of the HTTP headers of these names. So any
client can give them, and every broker passes them on. Brokers make spans of events whose publisher asks for it: those
with the sampled flag. Of events without a valid `traceparent`, every broker chooses the same share.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidings.protocol._effects import EventId
from tidings.protocol._machine import Sampler
from tidings.protocol._settings import BrokerSettings

__all__ = ["TRACEPARENT", "TRACESTATE", "Choice", "TraceContext", "context_in", "read_context"]

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_MOST_STATE: Final = 512
"""The longest `tracestate` that is passed on in spans, in characters."""
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED: Final = 1


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The span of the publisher, and whether its trace is recorded; both identifiers are in hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""


def read_context(traceparent: object, tracestate: object = None) -> TraceContext | None:
    """The context in the values of the two attributes; None if there is none, or none that is valid."""
    found = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    # Later versions may have more fields at the end.
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = tracestate if isinstance(tracestate, str) and len(tracestate) <= _MOST_STATE else ""
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), state)


class _Attributes(msgspec.Struct):
    """Of all attributes, those that make up the context."""

    traceparent: Any = None
    tracestate: Any = None


class _Content(msgspec.Struct, array_like=True):
    attributes: _Attributes


_DECODER: Final = msgspec.msgpack.Decoder(_Content)


def context_in(content: bytes) -> TraceContext | None:
    """The context in an event's content; nothing else of it is decoded."""
    try:
        found = _DECODER.decode(content).attributes
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if found.traceparent is None else read_context(found.traceparent, found.tracestate)


class Choice:
    """Which events a broker notes: a share for traces, and one for profiles, which may change; for spans, those whose
    publisher asks for it, and a share of those without a context.

    What reads the notes has more events than it wants, and leaves out the others.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.reported = settings.trace_sample if settings.tracing else 0.0
        """The share for traces: of these events clients report what their applications got."""
        self.spans = settings.spans
        """Whether there are spans at all; otherwise nobody looks for contexts."""
        self.is_any = settings.tracing or settings.profiles or settings.spans
        """Whether anything is noted."""
        self.is_recorded = Sampler(max(self.reported, 1.0 if settings.profiles else 0.0))
        """Whether an event is in a share: the smaller one is part of the larger."""
        self._has_spans = Sampler(settings.span_sample)

    def record(self, share: float) -> None:
        """Take this share for profiles from now on."""
        self.is_recorded.take(max(self.reported, share))

    def published_has_spans(self, id: EventId, attributes: Mapping[str, Any]) -> bool:
        """Whether spans are made of an event with these attributes."""
        parent = attributes.get(TRACEPARENT)
        return self._asks(id, None if parent is None else read_context(parent))

    def has_spans(self, id: EventId, content: bytes) -> bool:
        """The same for an event whose attributes are not decoded."""
        return self._asks(id, context_in(content))

    def _asks(self, id: EventId, context: TraceContext | None) -> bool:
        return self._has_spans(id) if context is None else context.is_sampled
