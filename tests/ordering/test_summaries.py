import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.model.filters import Filter
from tidings.ordering import SUMMARY_BYTES, Stamp, Stamper, SummaryMatcher, summarise

NAMES = ("a", "b", "topic")
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
values = st.one_of(numbers, st.sampled_from(["x", "y", ""]), st.booleans())
events = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
tests = st.tuples(st.sampled_from(NAMES), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers)


@settings(deadline=None)
@given(events, st.lists(st.lists(tests, max_size=3), min_size=1, max_size=3))
def test_what_matches_is_never_refuted(
    event: dict[str, object], conjunctions: list[list[tuple[str, str, float]]]
) -> None:
    filters = [Filter.all_of(conjunction) for conjunction in conjunctions]
    if any(f.matches(event) for f in filters):
        assert SummaryMatcher(filters)(summarise(event))


@settings(deadline=None)
@given(events, st.data())
def test_what_matches_near_the_event_is_never_refuted(event: dict[str, object], data: st.DataObject) -> None:
    """Ranges that hold the event's own values, which drawn filters rarely do."""
    chosen = []
    for name, value in event.items():
        if isinstance(value, (bool, str)):
            chosen.append((name, "=", value))
        else:
            wide = data.draw(st.floats(0.0, 1e6))
            chosen += [(name, ">=", float(value) - wide), (name, "<=", float(value) + wide)]
    chosen = [test for test in chosen if isinstance(test[2], (bool, str)) or abs(test[2]) < 1e308]
    wanted = Filter.all_of(chosen)
    if wanted.matches(event):
        assert SummaryMatcher([wanted])(summarise(event))


@pytest.mark.parametrize(
    "text",
    [
        "topic = 'x' OR a > 5",
        "topic IN ('x', 'y') AND NOT a = 3",
        "b IS NULL AND topic LIKE 'x%'",
        "a BETWEEN -1 AND 9 AND topic <> 'z'",
        "a + 1 < 20",
        "NOT (topic = 'q' OR a > 100)",
        "b IS NULL",
        "a = 7.0",
    ],
)
def test_texts_that_match(text: str) -> None:
    event = {"topic": "x", "a": 7}
    assert Filter.parse(text).matches(event)
    assert SummaryMatcher([Filter.parse(text)])(summarise(event))


@pytest.mark.parametrize("text", ["topic = 'z'", "a = 8", "a > 100 AND a < 150", "topic = 7", "FALSE", "flag"])
def test_texts_that_are_refuted(text: str) -> None:
    assert not SummaryMatcher([Filter.parse(text)])(summarise({"topic": "x", "a": 7}))


def test_an_empty_event_and_no_filter() -> None:
    assert len(summarise({})) == SUMMARY_BYTES
    assert not SummaryMatcher([])(summarise({"a": 1}))
    assert SummaryMatcher([Filter.parse("TRUE")])(summarise({}))
    assert summarise({"a": None}) == summarise({})


def test_false_positives_are_rare() -> None:
    """Topic and a range on events of three attributes: one in a thousand; the test allows three times that."""
    rng = np.random.default_rng(1)
    filters = [
        Filter.parse(f"topic = 't{rng.integers(50)}' AND a{j} BETWEEN {low:.2f} AND {low + rng.uniform(1, 5):.2f}")
        for low, j in zip(rng.uniform(1, 10, 100), rng.integers(2, size=100), strict=True)
    ]
    matchers = [SummaryMatcher([f]) for f in filters]
    wrong = unwanted = 0
    for _ in range(300):
        event = {"topic": f"t{rng.integers(50)}", "a0": float(rng.uniform(0, 12)), "a1": float(rng.uniform(0, 12))}
        summary = summarise(event)
        for f, matcher in zip(filters, matchers, strict=True):
            if not f.matches(event):
                unwanted += 1
                wrong += matcher(summary)
    assert wrong / unwanted < 0.006


def test_stamps_count_and_carry_the_record() -> None:
    stamper = Stamper(record=2)
    stamps = [stamper.stamp({"a": n}, 100 + 10 * n) for n in range(4)]
    assert [s.sequence for s in stamps] == [0, 1, 2, 3]
    assert [s.previous_departure_ns for s in stamps] == [100, 100, 110, 120]
    assert [[e.departure_ns for e in s.record] for s in stamps] == [[], [100], [110, 100], [120, 110]]
    assert stamps[3].record[0].summary == summarise({"a": 2})
    for stamp in stamps:
        assert Stamp.decode(stamp.encode()) == stamp
    assert len(stamps[3].encode()) == 26 + 2 * 24


@pytest.mark.parametrize("data", [b"", b"\2" + bytes(25), bytes([1]) + bytes(24) + b"\1", bytes([1]) + bytes(30)])
def test_bytes_that_are_no_stamp(data: bytes) -> None:
    with pytest.raises(InputError, match="stamp"):
        Stamp.decode(data)
