"""What a broker reads of a content, without its payload, is what a client reads of it."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol import PeerError, wire

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
contents = st.one_of(
    st.tuples(st.dictionaries(st.text(), scalars, max_size=4), st.binary(), st.binary()),
    st.lists(scalars | st.dictionaries(st.text(), scalars, max_size=2), max_size=4),
)


@given(contents, st.booleans(), st.integers(0, 8))
def test_brokers_and_clients_read_the_same_and_refuse_the_same(value: object, is_sound: bool, cut: int) -> None:
    data = msgspec.msgpack.encode(value)
    data = data[: len(data) - cut] if cut > 5 else data
    check = wire.check_of(data) if is_sound else wire.check_of(data + b"!")
    assert _read(wire.decode_attributes, data, check) == _read(_attributes_for_a_client, data, check)


def _attributes_for_a_client(data: bytes, check: int) -> dict[str, Any]:
    return wire.decode_content(data, check).attributes


def _read(read: Callable[[bytes, int], dict[str, Any]], data: bytes, check: int) -> dict[str, Any] | tuple[str, str]:
    """The attributes, or why they are refused."""
    try:
        return read(data, check)
    except PeerError as error:
        return error.code, str(error)


def test_reading_the_attributes_copies_no_payload() -> None:
    data = wire.encode_content(wire.Content({"x": 3}, b"", bytes(900_000)))
    tracemalloc.start()
    try:
        assert wire.decode_attributes(data, wire.check_of(data)) == {"x": 3}
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
