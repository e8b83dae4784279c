"""Covering: proven, refuted with a witness, or unknown."""

import pytest

from tidings.model.filters import Filter, covers
from tidings.model.filters._witness import witness


@pytest.mark.parametrize(
    ("f", "g"),
    [
        ("a > 1", "a > 2"),
        ("a > 1", "a > 1"),
        ("a >= 1", "a > 1"),
        ("a > 1", "a > 1 AND b = 2"),
        ("a > 1 OR b = 1", "b = 1 AND c = 2"),
        ("a IN (1, 2, 3)", "a = 1 OR a = 3"),
        ("a BETWEEN 1 AND 3", "a IN (1, 2, 3)"),
        ("a <> 5", "a > 5"),
        ("a <> 5", "a IN (1, 2)"),
        ("a <> 5", "a <> 5 AND a <> 6"),
        ("a <> 'x'", "a = 'y'"),
        ("a <> 'x'", "a LIKE 'y%'"),
        ("a IS NOT NULL", "a > b"),
        ("a IS NOT NULL", "a LIKE 'x%'"),
        ("a IS NOT NULL", "a IS NOT NULL AND b"),
        ("a LIKE 'x%'", "a = 'xy'"),
        ("a LIKE 'x%'", "a LIKE 'xy%z'"),
        ("a LIKE 'x%' AND b = 1", "b = 1 AND a IN ('xa', 'xb')"),
        ("s > 'a'", "s > 'b'"),
        ("s >= 'b'", "s > 'b'"),
        ("s <> 'b'", "s > 'b'"),
        ("a > 9007199254740993", "a > 9007199254740994"),
        ("a < 9007199254740993", "a < 5"),
        ("a + b > 1", "a + b > 1 AND c"),
        ("a + 1 > 1", "a = 3"),
        ("TRUE", "a = 1"),
        ("a = 1", "a < 1 AND a > 1"),
        ("a OR b", "b"),
        ("NOT a IS NULL", "a"),
        ("a IS NULL", "a IS NULL AND b = 1"),
    ],
)
def test_proven(f: str, g: str) -> None:
    assert Filter.parse(f).covers(Filter.parse(g)) is True
    assert Filter.parse(f).surely_covers(Filter.parse(g))


@pytest.mark.parametrize(
    ("f", "g"),
    [
        ("a > 2", "a > 1"),
        ("a > 1", "a >= 1"),
        ("a > 1 AND b = 2", "a > 1"),
        ("a = 1", "TRUE"),
        ("a = 1", "a = 1 OR a = 2"),
        ("a <> 5", "a >= 5"),
        ("a = TRUE", "a = 1"),
        ("a = 1", "a = TRUE"),
        ("a < 5 OR a > 5", "a <= 9"),
        ("s > 'b'", "s > 'a'"),
        ("a LIKE 'xy%'", "a LIKE 'x%'"),
        ("a > 9007199254740993", "a > 9007199254740992"),
        ("a IS NULL", "b = 1"),
        ("a IS NOT NULL", "b = 1"),
        ("a = 1 OR b = 2 OR c LIKE 'z%'", "a > 0 AND d = 4"),
        ("FALSE", "a = b"),
        ("a > b", "a >= b"),
    ],
)
def test_refuted_with_a_witness(f: str, g: str) -> None:
    one, two = Filter.parse(f), Filter.parse(g)
    assert covers(one, two) is False
    assert not one.surely_covers(two)
    event = witness(one, two)
    assert event is not None
    assert two.evaluate(event) is True
    assert one.evaluate(event) is not True


@pytest.mark.parametrize(("f", "g"), [("a < 5 OR a >= 5", "a < 100"), ("a + b > 1", "a + b > 2")])
def test_unknown_rather_than_guessed(f: str, g: str) -> None:
    assert covers(Filter.parse(f), Filter.parse(g)) is None


def test_a_bound_that_rounds_up_proves_nothing() -> None:
    # 9007199254740995 rounds to ...996: the double of an event at ...995 is not above the bound's.
    assert covers(Filter.parse("a > 9007199254740995"), Filter.parse("a >= 9007199254740996.0")) is not False
    assert covers(Filter.parse("a > 9007199254740995"), Filter.parse("a >= 9007199254740995")) is False


@pytest.mark.parametrize(
    ("f", "g", "expected"),
    [
        ("a > 1", "a < 5", True),
        ("a > 5", "a < 5", False),
        ("a >= 5", "a <= 5", True),
        ("a = 'x'", "a = 5", False),
        ("a IN (1, 2)", "a NOT IN (1, 2, 3)", False),
        ("a IS NULL", "a > 0", False),
        ("a IS NULL", "b > 0", True),
        ("a > 1 OR b > 1", "a < 0 AND b < 0", False),
        ("s LIKE 'ab%'", "s LIKE '%yz'", None),
        ("TRUE", "FALSE", False),
        ("TRUE", "TRUE", True),
    ],
)
def test_intersection(f: str, g: str, expected: bool | None) -> None:
    one, other = Filter.parse(f), Filter.parse(g)
    assert one.intersects(other) is expected
    assert other.intersects(one) is expected
