"""The plain index: the same answers as each filter gives by itself, and as the index over arrays gives."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import EventError, InputError
from tidings.matching import MatchingIndex, PlainIndex
from tidings.model.filters import Filter

FILTERS = (
    "a = 1",
    "a = 1.0 AND b > 2",
    "a = 9007199254740993",
    "a IN (1, 2, 3) OR a = 4",
    "a = TRUE",
    "s = 'x' AND (a < 3 OR a > 5)",
    "s = 'x' OR s = 'y'",
    "s = 'x' OR a = 2",
    "s IN ('x', 'y') AND NOT (a = 2)",
    "s LIKE 'x%'",
    "s MATCHES 'x/+' AND a < 3",
    "s MATCHES 'x/#' OR s MATCHES 'y/#'",
    "s NOT MATCHES 'x/+'",
    "s IS NULL AND b BETWEEN 1 AND 3",
    "a = 1 AND a = 2",
    "a = b",
    "a <> 1",
    "a IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)",
)
VALUES = st.one_of(
    st.integers(-2, 7),
    st.floats(-2, 7),
    st.booleans(),
    st.sampled_from([2**53, 2**53 + 1, 2**53 + 2, "x", "xy", "y", "x/y", "y/x"]),
)
EVENTS = st.dictionaries(st.sampled_from("abs"), st.one_of(VALUES, st.none()))


@given(st.lists(st.sampled_from(FILTERS), max_size=12), EVENTS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_against_the_filters_and_the_index_over_arrays(
    texts: list[str], event: dict[str, object], dice: random.Random
) -> None:
    plain: PlainIndex[int] = PlainIndex()
    for number, text in enumerate(texts):
        plain.put(number, Filter.parse(text))
    kept = {number: text for number, text in enumerate(texts) if dice.random() < 0.7}
    for number in range(len(texts)):
        if number not in kept:
            plain.remove(number)
    found = plain.match(event)
    assert sorted(found) == [number for number, text in kept.items() if Filter.parse(text).matches(event)]
    assert sorted(found) == sorted(MatchingIndex(kept.items()).match(event))
    assert len(plain) == len(kept)
    assert all(number in plain for number in kept)


def test_what_is_forgotten_leaves_nothing_behind() -> None:
    index: PlainIndex[str] = PlainIndex()
    for round in range(3):
        index.put("one", Filter.parse(f"a = {round} AND b > 1"))
        index.remove("one")
    assert not any(index._filed.values())
    assert not index._reads
    assert not index._unfiled


def test_keys_are_told_apart() -> None:
    index: PlainIndex[str] = PlainIndex()
    index.put("one", Filter.parse("a = 1"))
    with pytest.raises(InputError, match="already"):
        index.put("one", Filter.parse("a = 2"))
    with pytest.raises(InputError, match="no subscription"):
        index.remove("two")


def test_values_that_no_filter_could_compare_are_refused_only_where_one_reads_them() -> None:
    index: PlainIndex[str] = PlainIndex()
    index.put("one", Filter.parse("a = 1"))
    assert index.match({"a": 1, "b": 2**70}) == ["one"]
    with pytest.raises(EventError, match="64 bits"):
        index.match({"a": 2**70})
