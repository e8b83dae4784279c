"""The filter as a value: made, compared, hashed, pickled, kept unchanged."""

import copy
import pickle
from typing import Any

import pytest

import tidings.model.filters as filters
from tidings import FilterError
from tidings.model.filters import Filter


def test_public_names() -> None:
    assert all(hasattr(filters, name) for name in filters.__all__)
    assert filters.__all__ == sorted(filters.__all__)


def test_equal_when_written_the_same_in_canonical_form() -> None:
    one, two = Filter.parse("a=1 and (b < 2)"), Filter.parse("a = 1 AND b<2")
    assert one == two
    assert hash(one) == hash(two)
    assert one.text == "a=1 and (b < 2)"
    assert str(one) == one.text
    assert repr(one) == "Filter('a=1 and (b < 2)')"
    assert one != Filter.parse("b < 2 AND a = 1")
    assert one != "a=1 and (b < 2)"


def test_true_and_one_are_not_the_same_literal() -> None:
    assert Filter.parse("a = TRUE") != Filter.parse("a = 1")
    assert Filter.parse("x LIKE '%' AND (a = TRUE OR b = 1)") != Filter.parse("x LIKE '%' AND (a = 1 OR b = 1)")


def test_attributes() -> None:
    subject = Filter.parse("a + b > c OR NOT (d IS NULL AND e IN (1)) OR f LIKE 'x' AND \"g h\"")
    assert subject.attributes == {"a", "b", "c", "d", "e", "f", "g h"}
    assert Filter.parse("TRUE").attributes == frozenset()


@pytest.mark.parametrize("name", ["text", "condition", "attributes", "clauses", "anything"])
def test_immutable(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Filter.parse("a = 1"), name, None)


def test_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"Filter\.parse"):
        Filter("a = 1")


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND b = TRUE OR c IN ('x') AND NOT d LIKE 'x!%' ESCAPE '!' AND e IS NULL",
        "a = 1.0 AND b = 1 AND c = TRUE AND d / 2 > -9223372036854775808",
        "NOT " * 200 + "a",
        " OR ".join(f"a{i} = {i}" for i in range(5_000)),
    ],
)
def test_pickles(text: str) -> None:
    subject = Filter.parse(text)
    subject.evaluate({})  # The compiled predicate must not travel along: closures cannot.
    for again in (pickle.loads(pickle.dumps(subject)), copy.deepcopy(subject)):
        assert again == subject
        assert again.text == text
        assert repr(again.condition) == repr(subject.condition)
        assert again.clauses == subject.clauses


def test_all_of() -> None:
    subject = Filter.all_of([("symbol", "=", "YHOO"), ("volume", ">", 10**6), ("any name", "!=", True)])
    assert subject == Filter.parse("symbol = 'YHOO' AND volume > 1000000 AND \"any name\" <> TRUE")
    assert subject.text == "symbol = 'YHOO' AND volume > 1000000 AND \"any name\" <> TRUE"
    assert Filter.all_of([("a", "<", 0.5)]) == Filter.parse("a < 0.5")
    assert Filter.all_of([]) == Filter.parse("TRUE")
    assert pickle.loads(pickle.dumps(subject)) == subject


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (("a", "~", 1), "not an operator"),
        (("a", "<", True), "no order"),
        (("a", "=", None), "IS NULL"),
        (("a", "=", float("nan")), "finite"),
        (("a", "=", 2**63), "64 bits"),
        (("a", "=", [1]), "type list"),
        (("a", "=", "\ud800"), "surrogate"),
        (("\ud800", "=", 1), "surrogate"),
        (("", "=", 1), "not an attribute name"),
        ((5, "=", 1), "not an attribute name"),
        (("a", "="), "not a test"),
        (5, "not a test"),
    ],
)
def test_all_of_refuses_what_the_parser_would(test: Any, words: str) -> None:
    with pytest.raises(FilterError, match=words):
        Filter.all_of([test])
