"""The trace context of published events, from the application's current span of OpenTelemetry.

An application that has a current span has loaded OpenTelemetry, so nothing is imported here: without it this costs one
lookup.
"""

import sys
from collections.abc import Mapping
from typing import Any

from tidings.protocol import TRACEPARENT, TRACESTATE
from tidings.protocol.wire import MAX_ATTRIBUTES

__all__ = ["add_context", "current_context"]


def current_context() -> dict[str, str]:
    """The attributes that hold the context of the current span; empty if there is none."""
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return {}
    context = opentelemetry.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    found = {TRACEPARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"}
    state = context.trace_state.to_header()
    return found | {TRACESTATE: state} if state else found


def add_context(plain: dict[str, bool | int | float | str], given: Mapping[str, Any], context: dict[str, str]) -> None:
    """Add a context to the attributes that are sent, unless the application has given one (or None, for none)."""
    if context and TRACEPARENT not in given and len(plain) + len(context) <= MAX_ATTRIBUTES:
        plain.update(context)
