"""Filters of one template are parsed once, with the same result as from the parser."""

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lark.exceptions import UnexpectedInput

from tidings.model.filters import _ast
from tidings.model.filters._build import MalformedError
from tidings.model.filters._parse import _parser
from tidings.model.filters._templates import MAX_LENGTH, MAX_TEMPLATES, Templates

NAME = st.sampled_from(["a", "b1", "c.d", '"x 1"', '"q\'5"', "$e"])
NUMBER = st.one_of(
    st.integers(0, 10**17).map(str),
    st.sampled_from(["0", "007", "1.5", "2.50", ".5", "3.", "1e3", "400000000000001e0", "9223372036854775808"]),
)
STRING = st.sampled_from(["''", "'x'", "'it''s'", "'5'", "'a AND b'", "'\"'", "'1.5'"])
LITERAL = st.one_of(NUMBER, STRING, NUMBER.map("-{}".format), NUMBER.map("+ {}".format), st.just("TRUE"))
OPERATOR = st.sampled_from(["=", "<>", "<", ">=", "<="])
SIMPLE = st.one_of(
    st.builds("{} {} {}".format, NAME, OPERATOR, LITERAL),
    st.builds("{2}{1}{0}".format, NAME, OPERATOR, LITERAL),
    st.builds("{} BETWEEN {} AND {}".format, NAME, NUMBER, NUMBER),
    st.builds("{} NOT IN ({}, {})".format, NAME, LITERAL, LITERAL),
    st.builds("{} MATCHES {}".format, NAME, st.sampled_from(["'a/+'", "'#'", "'a/b+'", "''", "'it''s/+x'", "5"])),
    st.builds("{} LIKE {} ESCAPE {}".format, NAME, STRING, STRING),
    st.builds("{} - {} > {}".format, NAME, NUMBER, NUMBER),
    st.builds("{} {} {}".format, NUMBER, OPERATOR, NUMBER),
    st.builds("{} IS NULL".format, NAME),
    st.builds("[{},{},{}]".format, NAME, OPERATOR, LITERAL),
    st.builds("{}{}{}".format, NAME, LITERAL, LITERAL),
    NAME,
    LITERAL,
)
TEXT = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner), st.builds("NOT ({} OR {})".format, inner, inner)
    ),
    max_leaves=4,
)


def read(text: str) -> _ast.Condition:
    return cast(_ast.Condition, _parser().parse(text))


def outcome(parse: Any, text: str) -> tuple[str, Any]:
    try:
        return "read", repr(parse(text))  # the form tells 1 from 1.0, and 0.0 from -0.0
    except MalformedError as error:
        return "malformed", (error.problem, error.position, error.remedy)
    except UnexpectedInput as error:
        return "refused", error.pos_in_stream


@given(texts=st.lists(TEXT, min_size=1, max_size=4))
@example(texts=["a = 400000000000001e0 AND a NOT IN (0, .5)"])  # a number that looks like a mark, with its place
@example(texts=["a = 400000000000001e0 AND b = 700000000000001e0 AND c IN (0)"])
@settings(max_examples=400, deadline=None)
def test_every_text_says_what_the_parser_says(texts: list[str]) -> None:
    templates = Templates(read)
    for text in texts * 3:
        assert outcome(templates.parse, text) == outcome(read, text)


@given(template=TEXT, others=st.lists(st.tuples(NUMBER, STRING), min_size=3, max_size=3))
@settings(max_examples=200, deadline=None)
def test_other_literals_in_the_same_shape(template: str, others: list[tuple[str, str]]) -> None:
    templates = Templates(read)
    for number, string in others:
        for text in (template.replace("'x'", string), template.replace("0", number)):
            assert outcome(templates.parse, text) == outcome(read, text)


def test_the_parser_is_asked_for_two_of_a_template_and_twice_more() -> None:
    asked: list[str] = []

    def counted(text: str) -> _ast.Condition:
        asked.append(text)
        return read(text)

    templates = Templates(counted)
    for number in range(50):
        condition = templates.parse(f"symbol = 'S{number}' AND price > -{number}.5")
        assert condition == read(f"symbol = 'S{number}' AND price > -{number}.5")
    assert len(asked) == 4


@pytest.mark.parametrize("text", ["a IN ({0}, 2)", "a LIKE 'x{0}'", "a + {0} > 1", "{0} = {0}", "é = {0}"])
def test_what_may_depend_on_the_literal_is_parsed_each_time(text: str) -> None:
    asked = 0

    def counted(text: str) -> _ast.Condition:
        nonlocal asked
        asked += 1
        return read(text)

    templates = Templates(counted)
    for number in range(10):
        assert templates.parse(text.format(number)) == read(text.format(number))
    assert asked >= 10


def test_what_is_kept_is_bounded() -> None:
    templates = Templates(read)
    for number in range(MAX_TEMPLATES + 10):
        templates.parse(f"a{number} > 1")
    assert len(templates) <= MAX_TEMPLATES
    templates.parse("a > 1" + " " * MAX_LENGTH)
    assert len(templates) <= 10
