"""The predicate: golden truth tables of the language, and which values an event may carry."""

import enum
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tidings import EventError
from tidings.model.filters import Filter, check_value

T, F, U = True, False, None


def truth(text: str, **attributes: Any) -> bool | None:
    return Filter.parse(text).evaluate(attributes)


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (T, T, T, T), (T, F, F, T), (T, U, U, T),
        (F, T, F, T), (F, F, F, F), (F, U, F, U),
        (U, T, U, T), (U, F, F, U), (U, U, U, U),
    ],
)  # fmt: skip
def test_and_or_not_are_three_valued(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    assert truth("a AND b", a=a, b=b) is both
    assert truth("a OR b", a=a, b=b) is either
    assert truth("NOT a", a=a) is (None if a is None else not a)
    assert truth("NOT (a AND b)", a=a, b=b) is (None if both is None else not both)
    assert truth("NOT (a OR b)", a=a, b=b) is (None if either is None else not either)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a < 5", 4, T), ("a < 5", 5, F), ("a < 5", None, U), ("a < 5", "4", U), ("a < 5", True, U),
        ("5 > a", 4, T), ("NOT a < 5", "4", U), ("a = 1", 1.0, T), ("a = 1", True, U), ("a = TRUE", 1, U),
        ("a = TRUE", True, T), ("a <> TRUE", True, F), ("a", 1, U), ("a", True, T), ("a", "x", U),
        ("a = 'x'", "x", T), ("a = 'x'", "X", F), ("a <> 'x'", 5, U), ("a < 'b'", "a", T), ("a < 'Z'", "a", F),
        ("a < '😀'", "\uffff", T),
        ("a BETWEEN 1 AND 3", 1, T), ("a BETWEEN 1 AND 3", 3.0000001, F), ("a BETWEEN 3 AND 1", 2, F),
        ("a NOT BETWEEN 1 AND 3", 4, T), ("a NOT BETWEEN 1 AND 3", None, U), ("a BETWEEN 'b' AND 'd'", "c", T),
        ("a IN (1, 2)", 2.0, T), ("a IN (1, 2)", 3, F), ("a IN (1, 2)", "1", U), ("a IN (1, 2)", True, U),
        ("a NOT IN (1, 2)", None, U), ("a NOT IN (1, 2)", 3, T), ("a IN (TRUE)", 1, U), ("a IN (TRUE)", True, T),
        ("a LIKE '12%3'", "123", T), ("a LIKE '12%3'", "12993", T), ("a LIKE '12%3'", "1234", F),
        ("a LIKE 'l_se'", "lose", T), ("a LIKE 'l_se'", "loose", F), ("a LIKE '_'", "😀", T),
        (r"a LIKE '\_%' ESCAPE '\'", "_foo", T), (r"a LIKE '\_%' ESCAPE '\'", "bar", F),
        ("a LIKE '%'", "", T), ("a LIKE '%a%b%'", "xaxbx\n", T), ("a LIKE '%ab%ab'", "ab", F), ("a LIKE 'a%a'", "a", F),
        ("a LIKE ''", "", T), ("a LIKE '.'", "x", F), ("a LIKE 'x'", 5, U), ("a NOT LIKE 'x'", 5, U),
        ("a NOT LIKE 'x%'", "y", T),
        ("a IS NULL", None, T), ("a IS NULL", 0, F), ("a IS NOT NULL", "", T), ("a IS NOT NULL", None, F),
        ("a + 1 > 2", 1.5, T), ("a + 1 > 2", "1.5", U), ("a + 1 > 2", True, U), ("a + 1 > 2", None, U),
        ("1 / a > 0", 0, U), ("1 / a > 0", -0.0, U), ("a / a = 1", 0, U), ("-a > 0", -1, T),
        ("+a = 1", 1, T), ("+a = b", "x", U),
        ("a * 1e308 > 1e308", 1e308, T), ("a * 1e308 - a * 1e308 = 0", 1e308, U),
        ("7 / 2 = a", 3.5, T), ("1 / 0 = a", 1, U), ("1 / 0 = 1 / 0", 1, U),
        ("TRUE", None, T), ("FALSE OR a IS NULL", None, T),
    ],
)  # fmt: skip
def test_truth_of_one_attribute(text: str, value: Any, expected: bool | None) -> None:
    assert truth(text, a=value) is expected
    if value is None:
        assert truth(text) is expected


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("=", 1, 1.0, T), ("=", True, 1, U), ("=", True, True, T), ("<>", True, False, T), ("<", False, True, U),
        ("<", "a", "b", T), ("=", "a", 1, U), ("=", None, None, U), (">=", 2, 1.5, T),
        ("=", 2**53 + 1, float(2**53), F), (">", 2**53 + 1, float(2**53), T), ("<", 2**63 - 1, 2.0**63, T),
    ],
)  # fmt: skip
def test_one_attribute_against_another(op: str, a: Any, b: Any, expected: bool | None) -> None:
    assert truth(f"a {op} b", a=a, b=b) is expected


def test_whole_numbers_compare_exactly_beyond_the_precision_of_doubles() -> None:
    assert truth("a > 9007199254740992", a=9007199254740993) is True
    assert truth("a = 9007199254740993", a=9007199254740992.0) is False
    assert truth("a < 9223372036854775807", a=9223372036854775806) is True
    assert truth("a IN (9007199254740993)", a=9007199254740992) is False
    assert truth("a + 0 = 9007199254740992", a=9007199254740993) is True  # Arithmetic is done in doubles.


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), -float("inf"), 2**63, -(2**63) - 1, "\ud800"),
        *([1], b"x", {}, Decimal(1), 1j, object(), np.array([1])),
        *(np.float64("nan"), np.float32("inf"), np.uint64(2**63), np.longdouble(1), np.complex128(1)),
        *(np.bytes_(b"x"), np.datetime64("2024-01-01"), np.timedelta64(1, "ns")),
    ],
    ids=lambda value: "object" if type(value) is object else repr(value),
)
def test_values_that_are_refused(value: Any) -> None:
    with pytest.raises(EventError, match="'price'"):
        check_value("price", value)
    with pytest.raises(EventError, match="'price'"):
        truth("price > 1", price=value)
    with pytest.raises(EventError, match="'price'"):
        truth("TRUE OR price > 1", price=value)  # Whether a value is refused does not depend on the other conditions.
    assert truth("a = 1", a=1, price=value) is True  # A filter does not look at what it does not read.


class Side(enum.StrEnum):
    BUY = "buy"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None), (True, True), (1, 1), (1.5, 1.5), ("x", "x"), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)),
        (np.int8(3), 3), (np.uint64(7), 7), (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.bool_(True), True),
        (np.str_("é"), "é"), (Side.BUY, "buy"), (Level.HIGH, 3),
    ],
)  # fmt: skip
def test_values_that_are_accepted(value: Any, plain: Any) -> None:
    checked = check_value("a", value)
    assert checked == plain
    assert type(checked) is type(plain)


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("a % 3 = 2", {"a": 5}, True),
        ("a % 3 = -2", {"a": -5}, True),
        ("7 % a = 2", {"a": -5}, True),
        ("a % 0.5 = 0.25", {"a": 1.75}, True),
        ("a % b = 0", {"a": 4, "b": 0}, None),
        ("a % b = 0", {"a": 4, "b": "2"}, None),
        ("a * 1e308 * 10 % 3 > -1", {"a": 10}, None),  # of an infinity
        ("name + '!' = 'James!'", {"name": "James"}, True),
        ("'a' + name + 'c' = 'abc'", {"name": "b"}, True),
        ("a + b = 'xy'", {"a": "x", "b": "y"}, True),
        ("a + b = 'xy'", {"a": 1, "b": 2}, None),
        ("a + b = 3", {"a": 1, "b": 2}, True),
        ("a + b = '12'", {"a": "1", "b": 2}, None),
        ("a + b = c", {"a": "x", "b": "y", "c": "xy"}, True),
        ("a + b > 0", {"a": True, "b": 2}, None),
        ("a + 'x' > b", {"a": "b", "b": "ax"}, True),
        ("(a + b) * 2 = 6", {"a": 1, "b": 2}, True),
        ("(a + b) * 2 = 6", {"a": "1", "b": "2"}, None),
        ("a IN (b, c)", {"a": 1, "b": 2, "c": 1.0}, True),
        ("a IN (b, c)", {"a": 1, "b": 2}, None),
        ("a NOT IN (b, c)", {"a": 1, "b": 2, "c": 3}, True),
        ("a NOT IN (b, c)", {"a": 1, "b": 1}, False),
        ("a NOT IN (b, c)", {"a": 1, "b": 2}, None),
        ("a IN (b, 7)", {"a": 7}, True),
        # As in ActiveMQ's tests: a wildcard that is the escape character too escapes before a wildcard only.
        ("a LIKE '%_%' ESCAPE '%'", {"a": "_foo"}, True),
        ("a LIKE '_D7__' ESCAPE '_'", {"a": "XD7_"}, True),
        ("a LIKE '_D7__' ESCAPE '_'", {"a": "XD7x"}, False),
        ("a LIKE '%D7%' ESCAPE '%'", {"a": "XD7_"}, True),
        ("a LIKE '%D7%%' ESCAPE '%'", {"a": "XD7_"}, False),
        ("a LIKE '%D7%%' ESCAPE '%'", {"a": "XD7%"}, True),
    ],
)
def test_what_selectors_of_other_brokers_use(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert truth(text, **attributes) is expected


def test_a_pattern_cannot_make_matching_slow() -> None:
    hard = Filter.parse("a LIKE '" + "%a" * 30 + "b'")
    assert hard.evaluate({"a": "a" * 20_000}) is False


def test_matches_is_true_only() -> None:
    subject = Filter.parse("a > 1")
    assert [subject.matches({"a": value}) for value in (2, 0, None)] == [True, False, False]
