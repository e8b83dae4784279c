"""The clauses that the matching index works with."""

from math import inf, nextafter

import pytest

from tidings.model.filters import Clause, Filter, OneOf, Presence, Test, Within
from tidings.model.filters._normal import MAX_CLAUSES
from tidings.model.filters._sql import to_sql


def clauses(text: str) -> tuple[Clause, ...]:
    return Filter.parse(text).clauses


def tests(text: str) -> tuple[Test, ...]:
    (clause,) = clauses(text)
    assert clause.residual is None
    return clause.tests


tests.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 5", [Within("a", 5.0, 5.0)]),
        ("5 <= a", [Within("a", 5.0, inf)]),
        ("a > 5", [Within("a", nextafter(5.0, inf), inf)]),
        ("a < 5", [Within("a", -inf, nextafter(5.0, -inf))]),
        ("a > 0", [Within("a", 5e-324, inf)]),
        ("a >= -0.0", [Within("a", 0.0, inf)]),
        ("a > 1 AND 7 > a AND a <= 5", [Within("a", nextafter(1.0, inf), 5.0)]),
        ("NOT (a < 1 OR a > 5)", [Within("a", 1.0, 5.0)]),
        ("a BETWEEN 1 AND 5 AND b = 'x'", [Within("a", 1.0, 5.0), OneOf("b", "string", frozenset({"x"}))]),
        ("a <> 5", [OneOf("a", "number", frozenset({5.0}), negated=True)]),
        ("a <> 5 AND a <> 6.5", [OneOf("a", "number", frozenset({5.0, 6.5}), negated=True)]),
        ("a > 5 AND a <> 3", [Within("a", nextafter(5.0, inf), inf)]),
        ("a >= 5 AND a <> 7", [Within("a", 5.0, inf), OneOf("a", "number", frozenset({7.0}), negated=True)]),
        ("a IN (1, 2, 3) AND a >= 2", [OneOf("a", "number", frozenset({2.0, 3.0}))]),
        ("a IN (1, 2) AND a IN (2, 3)", [Within("a", 2.0, 2.0)]),
        ("a IN (1, 2, 3) AND a <> 2", [OneOf("a", "number", frozenset({1.0, 3.0}))]),
        ("a NOT IN ('x', 'y')", [OneOf("a", "string", frozenset({"x", "y"}), negated=True)]),
        ("a IN ('x', 'y') AND a <> 'x'", [OneOf("a", "string", frozenset({"y"}))]),
        ("a", [OneOf("a", "boolean", frozenset({True}))]),
        ("NOT a", [OneOf("a", "boolean", frozenset({False}))]),
        ("a IN (TRUE, FALSE)", [OneOf("a", "boolean", frozenset({True, False}))]),
        ("a IS NULL", [Presence("a", missing=True)]),
        ("NOT a IS NULL", [Presence("a", missing=False)]),
        ("a IS NOT NULL AND a = 1", [Within("a", 1.0, 1.0)]),
        ("a LIKE 'x'", [OneOf("a", "string", frozenset({"x"}))]),
        ("a NOT LIKE 'x!%' ESCAPE '!'", [OneOf("a", "string", frozenset({"x%"}), negated=True)]),
        ("a = 1 OR a = 2 OR a IN (3, 4) OR a = 1", [OneOf("a", "number", frozenset({1.0, 2.0, 3.0, 4.0}))]),
        ("NOT (a <> 'x' AND a <> 'y')", [OneOf("a", "string", frozenset({"x", "y"}))]),
        ("TRUE", []),
        ("a = 1 OR TRUE", []),
        ("1 + 1 = 2 AND TRUE", []),
        ("a = 9007199254740991", [Within("a", 2.0**53 - 1, 2.0**53 - 1)]),
    ],
)
def test_one_clause_without_residual(text: str, expected: list[Test]) -> None:
    assert tests(text) == tuple(expected)


@pytest.mark.parametrize(
    "text",
    [
        "FALSE", "a > 1 AND a < 1", "a = 1 AND a = 2", "a = 1 AND a = 'x'", "a AND NOT a", "a IS NULL AND a = 1",
        "a IS NULL AND a IS NOT NULL", "a IN (1, 2) AND a > 2", "a = 1 AND a <> 1", "a = 'x' AND a <> 'x'",
        "a IS NULL AND a LIKE 'x%'", "a IS NULL AND a + b > 1", "1 / 0 = 1", "NOT (1 / 0 = 1)", "1 > 2",
        "a > 9007199254740994 AND a < 9007199254740992",
    ],
)  # fmt: skip
def test_an_impossible_filter_has_no_clause(text: str) -> None:
    assert clauses(text) == ()


@pytest.mark.parametrize(
    ("text", "expected", "residual"),
    [
        ("a > 9007199254740993", [Within("a", 2.0**53, inf)], "a > 9007199254740993"),
        ("a < -9007199254740992", [Within("a", -inf, -(2.0**53))], "a < -9007199254740992"),
        ("a = 9223372036854775807", [Within("a", 2.0**63, 2.0**63)], "a = 9223372036854775807"),
        ("a <> 9007199254740993", [Within("a", -inf, inf)], "a <> 9007199254740993"),
        ("a > 1e300", [Within("a", 1e300, inf)], "a > 1e+300"),
        (
            "a NOT IN (1, 9007199254740993)",
            [OneOf("a", "number", frozenset({1.0}), negated=True)],
            "a NOT IN (1, 9007199254740993)",
        ),
        ("s > 'm' AND a = 1", [Within("a", 1.0, 1.0)], "s > 'm'"),
        (
            "s LIKE 'x%' AND a + b > 1 AND c = d AND e = 1",
            [Within("e", 1.0, 1.0)],
            "s LIKE 'x%' AND a + b > 1 AND c = d",
        ),
        ("NOT s LIKE 'x%'", [], "s NOT LIKE 'x%'"),
    ],
)
def test_what_no_test_can_say_is_the_residual(text: str, expected: list[Test], residual: str) -> None:
    (clause,) = clauses(text)
    assert clause.tests == tuple(expected)
    assert clause.residual is not None
    assert to_sql(clause.residual) == residual


def test_and_is_distributed_over_or() -> None:
    got = {
        tuple(test.attribute for test in clause.tests) for clause in clauses("(a=1 OR b=1) AND (c=1 OR d=1) AND e=1")
    }
    assert got == {("e", "a", "c"), ("e", "a", "d"), ("e", "b", "c"), ("e", "b", "d")}


def test_what_would_burst_the_bound_stays_whole_and_the_other_tests_are_kept() -> None:
    alternatives = [f"(a{i} = 1 OR b{i} = 1)" for i in range(10)]
    got = clauses("e = 1 AND " + " AND ".join(alternatives))
    assert len(got) == MAX_CLAUSES
    assert all(Within("e", 1.0, 1.0) in clause.tests and clause.residual is not None for clause in got)
    assert len(clauses(" OR ".join(f"a{i} = 1" for i in range(MAX_CLAUSES)))) == MAX_CLAUSES
    (whole,) = clauses("e = 1 AND (" + " OR ".join(f"a{i} = 1" for i in range(MAX_CLAUSES + 1)) + ")")
    assert whole.tests == (Within("e", 1.0, 1.0),)


def test_a_disjunction_of_large_conjunctions_falls_back_to_its_operands() -> None:
    one = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(5))
    got = clauses(f"x = 1 AND {one} OR y = 1 AND {one} OR z = 1 AND {one}")
    assert [clause.tests for clause in got] == [(Within(name, 1.0, 1.0),) for name in "xyz"]


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"a{i} = 1" for i in range(20_000)),
        " AND ".join(f"(a{i} = 1 OR b = 1)" for i in range(10_000)),
        " OR ".join(f"(a > {i} AND b < {i})" for i in range(10_000)),
    ],
)
def test_large_filters_have_a_bounded_normal_form(text: str) -> None:
    assert len(Filter.parse(text).clauses) <= MAX_CLAUSES


def test_the_normal_form_in_words() -> None:
    text = (
        "a > 1 AND a <= 5 AND a <> 3 AND s LIKE 'x%' AND z IS NOT NULL OR flag OR q NOT IN ('x') AND v < 5 AND w = 0.5"
    )
    form = Filter.parse(text).normal_form()
    assert form.lines() == (
        "clause 1 of 3",
        "  test      flag in (TRUE)",
        "clause 2 of 3",
        "  test      a > 1 and <= 5",
        "  test      a is a number not in (3)",
        "  test      z is present",
        "  residual  s LIKE 'x%'",
        "clause 3 of 3",
        "  test      q is a string not in ('x')",
        "  test      v < 5",
        "  test      w = 0.5",
    )
    assert form.attributes == ("a", "flag", "q", "s", "v", "w", "z")
    assert Filter.parse("a > 1 AND a < 1").normal_form().lines() == ("never true: no event can satisfy this filter",)
    assert Filter.parse("TRUE").normal_form().lines() == ("one clause", "  always true")
    assert Filter.parse("a IS NULL").normal_form().lines() == ("one clause", "  test      a is missing")
    long = Filter.parse("a IN (" + ", ".join(map(str, range(100))) + ")").normal_form()
    assert long.clauses[0].tests[0].endswith("11, ... 88 more)")
