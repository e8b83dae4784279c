"""What is kept of the filters that come over the wire is bounded by what it takes."""

import pytest

from tidings.protocol._errors import PeerError
from tidings.protocol._filters import _bytes_of, _Parsed, parsed


def test_equal_texts_are_one_filter_while_there_is_room() -> None:
    found = _Parsed(10 * _bytes_of("x > 00"))
    first = found.get("x > 00")
    assert found.get("x > 00") is first
    for number in range(1, 10):
        found.get(f"x > 0{number}")
    assert found.get("x > 00") is first
    found.get("x > 10")  # in the place of the one that was not asked for the longest
    assert len(found) == 10
    assert found.get("x > 00") is first


def test_long_filters_take_the_place_of_many_short_ones() -> None:
    most_bytes = 200_000
    found = _Parsed(most_bytes)
    for number in range(500):
        found.get(f"x > {number}")
        assert found.taken_bytes <= most_bytes
    kept = len(found)
    found.get(" OR ".join(f"x = {number}" for number in range(150)))
    assert found.taken_bytes <= most_bytes
    assert len(found) < kept / 2


def test_one_that_takes_more_than_all_is_read_and_not_kept() -> None:
    found = _Parsed(2_000)
    text = " OR ".join(f"x = {number}" for number in range(150))
    assert found.get(text) is not found.get(text)
    assert (len(found), found.taken_bytes) == (0, 0)


def test_what_says_nothing_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(PeerError):
            parsed("x > > 1")


@pytest.mark.parametrize("end", ["x = 0", "x = "])
def test_reading_the_same_text_again_takes_as_many_pauses_and_no_second_parse(end: str) -> None:
    found = _Parsed(1_000_000)
    text = " OR ".join([*(f"x = {number}" for number in range(200)), end])
    pauses = sum(1 for _ in found.read(text))
    first = found.get(text)
    assert pauses > 4
    assert sum(1 for _ in found.read(text)) == pauses
    assert found.get(text) is first


def test_a_text_that_was_forgotten_is_read_again() -> None:
    text = " OR ".join(f"x = {number}" for number in range(150))
    found = _Parsed(_bytes_of(text))
    pauses = sum(1 for _ in found.read(text))
    first = found.get(text)
    found.get("x > 1")
    assert text not in found
    assert sum(1 for _ in found.read(text)) == pauses
    assert found.get(text) is not first
