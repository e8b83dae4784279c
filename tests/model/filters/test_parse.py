"""The language as text: what is read, what is refused, and how the refusal reads."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidings import FilterError
from tidings.model.filters import Filter
from tidings.model.filters import _ast as ast
from tidings.model.filters._build import MAX_DEPTH
from tidings.model.filters._parse import MAX_LENGTH


def canonical(text: str) -> str:
    return Filter.parse(text).to_sql()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", "a = 1"),
        ("a != 1", "a <> 1"),
        ("a", "a = TRUE"),
        ("NOT a", "NOT a = TRUE"),
        ("true", "TRUE"),
        ("a BETWEEN 1 AND 2 AND b", "a >= 1 AND a <= 2 AND b = TRUE"),
        ("a NOT BETWEEN 1 AND 2 AND b", "(a < 1 OR a > 2) AND b = TRUE"),
        ("NOT a BETWEEN b AND c + 1", "NOT (a >= b AND a <= c + 1)"),
        ("a in (1, -2, +3.5)", "a IN (1, -2, 3.5)"),
        ("a Not In ('x', 'it''s')", "a NOT IN ('x', 'it''s')"),
        (r"a LIKE '50\%%' ESCAPE '\'", r"a LIKE '50\%%' ESCAPE '\'"),
        ("a IN (b)", "a = b"),
        ("a IN (1, b, 2, c + 1)", "a IN (1, 2) OR a = b OR a = c + 1"),
        ("a NOT IN (1, b)", "a NOT IN (1) AND a <> b"),
        ("'x' IN (a, b)", "'x' = a OR 'x' = b"),
        ("a + 1 NOT IN (2, 3)", "a + 1 <> 2 AND a + 1 <> 3"),
        ("5 IN (4, 5)", "FALSE OR TRUE"),
        ("a % 3 * 2 = 1 AND a % (b % 2) = 0", "a % 3 * 2 = 1 AND a % (b % 2) = 0"),
        ("a + '!' = 'x' + ('y' + b)", "a + '!' = 'x' + ('y' + b)"),
        ("a = 0x1F OR a = -0XffL OR a = 7L OR a = 010", "a = 31 OR a = -255 OR a = 7 OR a = 10"),
        ("a is not null or b IS NULL", "a IS NOT NULL OR b IS NULL"),
        ("a = 1 OR b = 2 AND NOT c = 3", "a = 1 OR b = 2 AND NOT c = 3"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("((a = 1)) AND (b = 2 AND (c = 3))", "a = 1 AND b = 2 AND c = 3"),
        ("(a + 1) * 2 > -b", "(a + 1) * 2 > 0 - b"),
        ("a - (b - c) - d = 0", "a - (b - c) - d = 0"),
        ("a / b / c > 1 AND a / (b / c) > 1", "a / b / c > 1 AND a / (b / c) > 1"),
        ("- -5 < a", "5 < a"),
        ("a = -9223372036854775808", "a = -9223372036854775808"),
        ("a = .5 OR a = 5. OR a = 1E3", "a = 0.5 OR a = 5.0 OR a = 1000.0"),
        ("1 < 2", "TRUE"),
        ("'b' <= 'a' OR TRUE = FALSE", "FALSE OR FALSE"),
        ("trade.symbol = 'x' AND $v_1 > 0", "trade.symbol = 'x' AND $v_1 > 0"),
        ("größe > 1 AND 名前 = '値'", "größe > 1 AND 名前 = '値'"),
        ('"any name" = 1 AND "a""b" = 2 AND "plain" = 3', '"any name" = 1 AND "a""b" = 2 AND plain = 3'),
        ('"AND" = 1 AND ands = 2 AND ıs = 3', '"AND" = 1 AND ands = 2 AND ıs = 3'),
        ("a\n=\t1", "a = 1"),
    ],
)
def test_canonical_text(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[symbol,=,'YHOO'],[volume,>,1000000]", "symbol = 'YHOO' AND volume > 1000000"),
        ("[symbol, eq, YHOO]", "symbol = 'YHOO'"),
        ('[ "a b" , neq , "c d" ]', "\"a b\" <> 'c d'"),
        ("[x,lt,-1],[x,le,2.5],[x,gt,3],[x,ge,4]", "x < -1 AND x <= 2.5 AND x > 3 AND x >= 4"),
        ("[open,=,true],[shut,<>,FALSE]", "open = TRUE AND shut <> FALSE"),
    ],
)
def test_bracketed_triples(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a == 1", 3, "Equality is a single ="),
        ("a = 'x", 4, "A closing quote is missing"),
        ("a = 'it''s", 4, "A closing quote is missing"),
        ('"a = 1', 0, "A closing double quote is missing"),
        ("a = 1 && b = 2", 6, "Write AND"),
        ("a = 1 || b = 2", 6, "Write OR"),
        ("a = NULL", 4, "IS NULL"),
        ("a <> null", 5, "IS NULL"),
        ("(a = 1", 6, "A closing parenthesis is missing"),
        ("a = 1)", 5, "one closing parenthesis too many"),
        ('a LIKE "x%"', 7, "string in single quotes: 'text'"),
        ("a LIKE %x%", 7, "A pattern goes into quotes"),
        ("a = 0xZ", 5, "found 'xZ'"),
        ("a = 0x8000000000000000", 4, "64 bits"),
        ("a = 0x" + "F" * 5000, 4, "64 bits"),
        ("a = b = c", 6, "do not chain"),
        ("a = 1 b = 2", 6, "Join conditions with AND or OR"),
        ("a = 1; DROP TABLE x", 5, "without a semicolon"),
        ("AND = 5", 0, 'quote it: "AND"'),
        ("a = ", 4, "found the end, expected an attribute, a number"),
        ("", 0, "the filter is empty"),
        ("  ", 0, "Write TRUE to accept every event"),
        ("5", 0, "a number alone is not a condition"),
        ("a AND 'x'", 6, "a string alone is not a condition"),
        ("'a' + 1 = 2", 6, "a string is joined with a string, found a number"),
        ("TRUE + 'a' = 'x'", 0, "a string is joined with a string, found a boolean"),
        ("'a' * b = 2", 0, "'*' works on numbers, found a string"),
        ("a + 'x' > 5", 8, "a string cannot be compared with a number"),
        ("a + b", 0, "a value alone is not a condition"),
        ("a * TRUE = 2", 4, "'*' works on numbers, found a boolean"),
        ("-'x' = 1", 1, "'-' works on numbers"),
        ("5 LIKE 'x'", 0, "LIKE works on an attribute, found a number"),
        ("a + 1 IN ('x')", 10, "a number cannot be compared with a string"),
        ("a + 1 LIKE 'x'", 0, "LIKE works on an attribute, found a computed value"),
        ("'x' IS NULL", 0, "IS NULL works on an attribute"),
        ("a IN (1, 'x')", 9, "the list mixes kinds: a number and a string"),
        ("a IN (1, TRUE)", 9, "a number and a boolean"),
        ("a IN (1, NULL)", 9, "NULL cannot be in the list"),
        ("a IN ()", 6, "found ')'"),
        ("a IN (b, 1, 'x')", 12, "the list mixes kinds: a number and a string"),
        ("a IN (b = 1)", 8, "found '='"),
        ("a < TRUE", 2, "booleans have no order"),
        ("1 = 'x'", 2, "a number cannot be compared with a string"),
        ("a + 1 = 'x'", 6, "a number cannot be compared with a string"),
        ("(a = 1) = TRUE", 1, "found a condition where a value is expected"),
        ("a BETWEEN 'x' AND FALSE", 18, "booleans have no order"),
        (r"a LIKE 'x\y' ESCAPE '\'", 7, "must come before %, _ or itself"),
        (r"a LIKE 'x\' ESCAPE '\'", 7, "must come before %, _ or itself"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "ESCAPE takes one character"),
        ("a = 9223372036854775808", 4, "64 bits"),
        ("a = -9223372036854775809", 5, "64 bits"),
        ("a IN (9223372036854775808)", 6, "64 bits"),
        ("a = " + "9" * 5000, 4, "64 bits"),
        ("a = 1e999", 4, "too large for a double"),
        ("[a,~,1]", 3, "not part of the language"),
        ("[a,like,1]", 3, "found 'like'"),
        ("[a,is_like,1]", 3, "not an operator of a triple"),
        ("[a,<,TRUE]", 3, "booleans have no order"),
        ("[a,=,1] AND b = 2", 8, "found 'AND'"),
        ("a = 'x\ud800'", 6, "lone surrogate"),
        ('"" = 1', 0, "not an attribute name"),
        ("a = `b`", 4, "double quotes"),
    ],
)
def test_refused(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse(text)
    assert words in str(caught.value)
    assert caught.value.position == position
    assert caught.value.text == text


def test_the_caret_stands_under_the_fault() -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse("price > 10 AND == 5")
    assert str(caught.value).splitlines() == [
        "found '=', expected an attribute, a number, a string, TRUE, FALSE, ( or NOT (character 16 of the filter)",
        "  price > 10 AND == 5",
        "                 ^",
    ]


def test_wide_characters_keep_the_caret_in_place() -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse("名 = ;")
    assert str(caught.value).splitlines()[1:3] == ["  名 = ;", "       ^"]  # The first character is two columns wide.


def test_a_long_text_is_shown_as_a_window_on_one_line() -> None:
    text = "a = 1 AND\n" * 500 + "b == 2" + " AND c = 3" * 500
    with pytest.raises(FilterError) as caught:
        Filter.parse(text)
    first, window, caret, remedy = str(caught.value).splitlines()
    assert first.startswith("found '='")
    assert window.startswith("  ...")
    assert window.endswith("...")
    assert len(window) < 120
    assert window[caret.index("^") - 1 : caret.index("^") + 1] == "=="
    assert remedy == "Equality is a single =."


def test_a_filter_is_a_text() -> None:
    with pytest.raises(FilterError, match="not a int"):
        Filter.parse(5)  # type: ignore[arg-type]


DEEP = MAX_DEPTH + 1


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "(" * DEEP + "a = 1" + ")" * DEEP,
        "NOT " * 10_000 + "a",
        "NOT " * DEEP + "a",
        "NOT(" * DEEP + "a" + ")" * DEEP,
        "a = " + "-" * 10_000 + "1",
        "a = " + "- " * DEEP + "b",
        "+".join(["a"] * 10_000) + " > 1",
        "a > " + "(1 + " * DEEP + "b" + ")" * DEEP,
        "(" * 999_999,
        "NOT " * 249_999,
        "-" * 999_999,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FilterError, match=f"deeper than {MAX_DEPTH} levels"):
        Filter.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH,
        "NOT " * MAX_DEPTH + "a = 1",
        "NOT(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH,
        "0 < " + "-" * MAX_DEPTH + "1 AND a = 1",
        "a + " * MAX_DEPTH + "0 > 1",
        "a = '" + "(" * 5000 + "' OR \"" + "(" * 5000 + '" = 1 OR a = 1',
    ],
)
def test_nesting_up_to_the_bound_works_everywhere(text: str) -> None:
    subject = Filter.parse(text)
    assert subject.evaluate({"a": 1}) in (True, False)
    assert Filter.parse(subject.to_sql()) == subject
    assert isinstance(subject.clauses, tuple)
    assert subject.covers(subject) is True


def test_alternating_connectives_up_to_the_bound() -> None:
    text = "a = 1"
    for level in range((MAX_DEPTH - 1) // 2):
        text = f"b < {level} OR (c > {level} AND ({text}))"
    subject = Filter.parse(text)
    assert subject.evaluate({"a": 1, "b": 1000, "c": 1000}) is True
    assert subject.evaluate({"a": 2, "b": 1000, "c": 1000}) is False
    assert len(subject.clauses) <= 64


def test_a_text_beyond_the_bound_is_refused_unread() -> None:
    text = "a = 1" + " " * MAX_LENGTH
    with pytest.raises(FilterError, match="1,000,005 characters, the maximum is 1,000,000"):
        Filter.parse(text)


def test_a_chain_of_fifty_thousand_is_one_level() -> None:
    text = " OR ".join(f"a={i}" for i in range(50_000))
    subject = Filter.parse(text)
    assert isinstance(subject.condition, ast.Or)
    assert len(subject.condition.operands) == 50_000
    assert subject.evaluate({"a": 49_999}) is True
    assert subject.evaluate({"a": -1}) is False
    assert len(subject.clauses) == 1


WORDS = (
    "a",
    "b",
    "1",
    "'x'",
    "(",
    ")",
    "=",
    ">",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "NULL",
    "IS",
    ",",
    "+",
    "[",
    "]",
    "?",
)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), st.integers(1, 4))
@example("a = 1 AND b IN (1, 2) OR NOT c LIKE 'x%'", 2)
@example("(" * (MAX_DEPTH + 1), 3)
@example("a = 'x", 1)
@example("", 1)
def test_in_slices_a_text_says_the_same_or_is_refused_with_the_same_words(text: str, tokens: int) -> None:
    assert _outcome(lambda: Filter.parse(text)) == _outcome(lambda: in_slices(text, tokens)[0])


def test_between_two_pauses_no_more_than_a_slice_is_read() -> None:
    text = " OR ".join(f"a = {n}" for n in range(100))  # 399 words
    assert in_slices(text, 50)[1] >= 399 // 50


def in_slices(text: str, tokens: int) -> tuple[Filter, int]:
    """The filter, and how many pauses there were."""
    slices, pauses = Filter.parse_in_slices(text, tokens), 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def _outcome(read: Callable[[], Filter]) -> str:
    try:
        return read().to_sql()
    except FilterError as error:
        return f"refused: {error}"
