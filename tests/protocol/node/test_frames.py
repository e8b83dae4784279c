"""Frames on a stream: however the bytes come, the frames are the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol.node import DamageError, FramingError, Splitter, checked, joined, plain

FRAMES = st.lists(st.binary(min_size=1, max_size=300), max_size=20)


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 6_500), max_size=30))
def test_however_the_bytes_come_the_frames_are_the_same(frames: list[bytes], cuts: list[int]) -> None:
    data = joined(frames)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = Splitter(300)
    found: list[bytes] = []
    for begin, end in pairwise(places):
        found += splitter.feed(data[begin:end])
    assert found == frames


def test_byte_by_byte() -> None:
    frames = [b"a", b"bc" * 100, b"d"]
    splitter = Splitter(1_000)
    found = [frame for byte in joined(frames) for frame in splitter.feed(bytes([byte]))]
    assert found == frames


@pytest.mark.parametrize("size", [0, 301, 2**32 - 1])
def test_a_frame_that_cannot_be_is_refused_before_it_has_come(size: int) -> None:
    with pytest.raises(FramingError, match=f"a frame of {size} bytes is announced: from 1 to 300"):
        Splitter(300).feed(size.to_bytes(4, "big"))


def test_frames_before_a_wrong_one_are_lost_with_the_connection() -> None:
    with pytest.raises(FramingError):
        Splitter(300).feed(joined([b"good"]) + bytes(4))


def on_checked_stream(frames: list[bytes]) -> bytes:
    return b"".join(part for frame in frames for part in (checked(frame), frame))


def checked_splitter(max_frame_bytes: int = 300) -> Splitter:
    splitter = Splitter(max_frame_bytes, waits=True)
    assert splitter.feed(joined([b"the first"])) == [b"the first"]
    assert splitter.go_on(is_checked=True) == []
    return splitter


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 6_500), max_size=30), is_checked=st.booleans())
def test_the_first_frame_comes_alone_and_says_how_the_others_begin(
    frames: list[bytes], cuts: list[int], is_checked: bool
) -> None:
    data = joined([b"first"]) + (on_checked_stream(frames) if is_checked else joined(frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter, found, has_gone_on = Splitter(300, waits=True), [], False
    for begin, end in pairwise(places):
        some = splitter.feed(data[begin:end])
        if some and not has_gone_on:
            assert some == [b"first"]
            some, has_gone_on = splitter.go_on(is_checked=is_checked), True
        found += some
    assert found == frames


@given(frames=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), data=st.data())
def test_a_flipped_bit_is_found_before_what_it_is_in_is_read(frames: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(on_checked_stream(frames))
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    stream[bit // 8] ^= 1 << bit % 8
    splitter = checked_splitter()
    found: list[bytes] = []

    def feed_all() -> None:
        for byte in stream:
            found.extend(splitter.feed(bytes([byte])))

    with pytest.raises(DamageError):
        feed_all()
    sound = 0  # the frames that were whole before the damage
    for frame in frames:
        sound += len(frame) + 8
        if sound > bit // 8:
            break
        assert found.pop(0) == frame
    assert not found


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, 1 << 20, (1 << 24) - 1])
def test_a_flipped_bit_of_a_length_is_found_at_once(size: int) -> None:
    prefix = checked(bytes(size))
    for bit in range(32):
        flipped = bytearray(prefix)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError, match="length"):
            checked_splitter(1 << 24).feed(bytes(flipped))


def test_prefixes_are_of_known_bytes() -> None:
    assert plain(b"abc") == bytes((0, 0, 0, 3))
    # The length in three bytes, their exclusive or turned over, and 32 bits of XXH3 over the frame.
    assert checked(b"abc") == bytes((0, 0, 3, 0xFC)) + (0x78AF5F94892F3950 & 0xFFFFFFFF).to_bytes(4, "big")
