"""The trace context of events: what is valid, and which events are chosen for spans."""

from typing import Any

import pytest

from tidings.protocol import BrokerSettings, TraceContext, context_in, read_context, wire
from tidings.protocol._trace_context import Choice

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE_ID}-{SPAN_ID}-01"
EVENT = ("p", 1, 7)


def content(attributes: dict[str, Any]) -> bytes:
    return wire.encode_content(wire.Content(attributes, b"", b"a payload"))


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (VALID, True),
        (f"00-{TRACE_ID}-{SPAN_ID}-00", False),
        (f"00-{TRACE_ID}-{SPAN_ID}-02", False),  # another flag
        (f"00-{TRACE_ID}-{SPAN_ID}-ff", True),
        (f"01-{TRACE_ID}-{SPAN_ID}-01", True),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-later-versions-add", True),
    ],
)
def test_what_is_valid(text: str, is_sampled: bool) -> None:
    assert read_context(text) == TraceContext(TRACE_ID, SPAN_ID, is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        17,
        "",
        VALID[:-1],
        VALID + "0",
        VALID + "\n",
        VALID + "-more",  # of version 00 there is no more
        VALID.upper(),
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"01-{TRACE_ID}-{SPAN_ID}-01.more",
    ],
)
def test_what_is_not(text: object) -> None:
    assert read_context(text) is None


def test_the_state_comes_along_unless_it_is_none() -> None:
    assert read_context(VALID, "a=1,b=2") == TraceContext(TRACE_ID, SPAN_ID, True, "a=1,b=2")
    for state in (None, 3, "a" * 513):
        assert read_context(VALID, state) == TraceContext(TRACE_ID, SPAN_ID, True, "")


def test_the_context_is_found_in_a_content_and_nowhere_else() -> None:
    found = TraceContext(TRACE_ID, SPAN_ID, True, "a=1")
    assert context_in(content({"x": 1, "traceparent": VALID, "tracestate": "a=1", "y": "z"})) == found
    for data in (content({"x": 1}), content({"x": VALID}), content({"traceparent": 1.5}), b"", b"\xc1", b"\x93\x80"):
        assert context_in(data) is None


@pytest.mark.parametrize(
    ("attributes", "share", "is_chosen"),
    [
        ({}, 0.0, False),
        ({}, 1.0, True),
        ({"traceparent": VALID}, 0.0, True),
        ({"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"}, 1.0, False),
        ({"traceparent": "rubbish"}, 1.0, True),
        ({"traceparent": 3}, 0.0, False),
    ],
)
def test_the_publisher_decides_and_otherwise_the_share(
    attributes: dict[str, Any], share: float, is_chosen: bool
) -> None:
    choice = Choice(BrokerSettings(name="b", tracing=False, spans=True, span_sample=share))
    assert choice.is_any
    assert not choice.is_recorded(EVENT)
    assert choice.published_has_spans(EVENT, attributes) is is_chosen
    assert choice.has_spans(EVENT, content({"x": 1, **attributes})) is is_chosen


def test_without_traces_profiles_and_spans_nothing_is_noted() -> None:
    assert not Choice(BrokerSettings(name="b", tracing=False)).is_any
    for wanted in ("tracing", "profiles", "spans"):
        assert Choice(BrokerSettings(name="b", **{"tracing": False, wanted: True})).is_any


def test_clients_report_the_share_of_traces_alone() -> None:
    for settings, reported in (
        (BrokerSettings(name="b", tracing=False, profiles=True), 0.0),
        (BrokerSettings(name="b", tracing=True, trace_sample=0.25, profiles=True), 0.25),
    ):
        choice = Choice(settings)
        assert (choice.reported, choice.is_recorded(EVENT)) == (reported, True)
        choice.record(2.0**-16)
        assert choice.reported == reported
