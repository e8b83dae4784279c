import pytest

from tidings.errors import EventError
from tidings.model.event import Advertisement, Event
from tidings.model.filters import Filter


def event(**more):
    return Event(publisher="p", sequence=3, departure_ns=1_000, attributes={"a": 1}, **more)


def test_size_is_that_of_the_payload_unless_given():
    assert event(payload=b"12345").size_bytes == 5
    assert event(size_bytes=64).size_bytes == 64
    with pytest.raises(EventError, match="less than its payload of 5 bytes"):
        event(payload=b"12345", size_bytes=4)


def test_expiry_is_departure_plus_lifetime():
    assert event(lifetime_ns=500).expiry_ns == 1_500
    assert event().expiry_ns is None
    with pytest.raises(EventError, match="event 3 of 'p': lifetime_ns is 0"):
        event(lifetime_ns=0)


def test_sequence_counts_from_zero():
    with pytest.raises(EventError, match="counts from 0"):
        Event(publisher="p", sequence=-1, departure_ns=0, attributes={})


def test_values_are_frozen_and_keyword_only():
    with pytest.raises(AttributeError):
        event().sequence = 4
    with pytest.raises(TypeError):
        Advertisement("p", Filter.parse("a > 1"))
