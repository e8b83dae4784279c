"""Frames on a stream: however the bytes come, the frames are the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol.node import FramingError, Splitter, joined

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
