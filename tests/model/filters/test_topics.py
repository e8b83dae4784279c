"""MATCHES: topic patterns with the semantics of MQTT 5, section 4.7, and exact answers about two of them."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings import FilterError
from tidings.model.filters import Filter, OneOf, Topic, check_topic_pattern, implied_kinds
from tidings.model.filters._parse import parse_in_slices

LEVELS = ("a", "b", "zz", "", "$SYS")


def topic_matches(pattern: str, topic: str) -> bool:
    """The standard's rules by recursion over the levels, with nothing shared with the code under test."""
    if topic.startswith("$") and pattern[0] in "+#":
        return False

    def levels_match(wanted: list[str], levels: list[str]) -> bool:
        if wanted == ["#"]:
            return True  # also where no level is left: the parent
        if not wanted or not levels:
            return not wanted and not levels
        return wanted[0] in ("+", levels[0]) and levels_match(wanted[1:], levels[1:])

    return levels_match(pattern.split("/"), topic.split("/"))


def matching(pattern: str) -> Filter:
    return Filter.parse(f"topic MATCHES '{pattern}'")


patterns = (
    st.tuples(st.lists(st.sampled_from((*LEVELS, "+")), max_size=3), st.booleans())
    .map(lambda drawn: "/".join([*drawn[0], "#"] if drawn[1] else drawn[0]))
    .filter(bool)
)
topics = st.lists(st.sampled_from((*LEVELS, "+", "#", "a\nb")), min_size=1, max_size=5).map("/".join)
ALL_TOPICS = ["/".join(levels) for count in range(1, 5) for levels in product((*LEVELS, "other"), repeat=count)]


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        # Section 4.7.1.2, multi-level wildcard.
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("#", "any/thing", True),
        # Section 4.7.1.3, single-level wildcard.
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/tennis/#", "sport/tennis", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # Section 4.7.2, topics beginning with $ [MQTT-4.7.2-1].
        ("#", "$SYS/load", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/load", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        # Section 4.7.3: case counts, and a slash more is a level more.
        ("ACCOUNTS", "Accounts", False),
        ("finance/", "finance", False),
        ("/finance", "finance", False),
        ("a b/+", "a b/c", True),
    ],
)
def test_the_examples_of_the_standard(pattern: str, topic: str, expected: bool) -> None:
    assert topic_matches(pattern, topic) is expected
    assert matching(pattern).evaluate({"topic": topic}) is expected
    assert Filter.parse(f"topic NOT MATCHES '{pattern}'").evaluate({"topic": topic}) is not expected


@settings(max_examples=300, deadline=None)
@given(pattern=patterns, topic=topics)
def test_a_pattern_matches_as_the_rules_say(pattern: str, topic: str) -> None:
    assert matching(pattern).evaluate({"topic": topic}) is topic_matches(pattern, topic)


@pytest.mark.parametrize("value", [None, 5, True])
def test_what_is_no_string_is_unknown(value: object) -> None:
    for text in ("topic MATCHES '#'", "topic NOT MATCHES 'a'", "NOT topic MATCHES 'a/+'"):
        assert Filter.parse(text).evaluate({"topic": value}) is None


@settings(max_examples=200, deadline=None)
@given(one=patterns, other=patterns)
def test_covering_and_intersection_of_two_patterns_are_exact(one: str, other: str) -> None:
    by_one = {topic for topic in ALL_TOPICS if topic_matches(one, topic)}
    by_other = {topic for topic in ALL_TOPICS if topic_matches(other, topic)}
    assert matching(one).covers(matching(other)) is (by_other <= by_one)
    assert matching(one).intersects(matching(other)) is bool(by_one & by_other)


@pytest.mark.parametrize(
    ("f", "g"),
    [
        ("t MATCHES 'a/#'", "t = 'a/b'"),
        ("t MATCHES 'a/#'", "t IN ('a', 'a/c/d')"),
        ("t NOT MATCHES 'a/+'", "t IN ('a', 'b/c')"),
        ("t NOT MATCHES 'a/+'", "t MATCHES 'b/#' AND x > 1"),
        ("t NOT MATCHES 'a/b/+'", "t NOT MATCHES 'a/#'"),
        ("t <> 'b'", "t MATCHES 'a/#'"),
        ("t IS NOT NULL", "t NOT MATCHES 'a/+'"),
        ("t LIKE 'a/b%'", "t MATCHES 'a/b/+'"),
        ("t MATCHES 'a/b/#'", "t MATCHES 'a/+/c' AND t MATCHES '+/b/#'"),
        ("t MATCHES 'a/#' OR x + 1 > 2", "t MATCHES 'a/b'"),
    ],
)
def test_proven_together_with_other_conditions(f: str, g: str) -> None:
    assert Filter.parse(f).covers(Filter.parse(g)) is True


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("t MATCHES 'a/b'", [OneOf("t", "string", frozenset({"a/b"}))]),
        ("t MATCHES 'a/+' OR t MATCHES 'x'", None),
        ("t MATCHES 'a/+/#' AND t MATCHES '+/b/c/#'", [Topic("t", "a/b/c/#")]),
        ("t MATCHES 'a/+' AND t MATCHES '+/b'", [OneOf("t", "string", frozenset({"a/b"}))]),
        ("t MATCHES 'a/+' AND t IN ('a/x', 'b/x')", [OneOf("t", "string", frozenset({"a/x"}))]),
        ("t MATCHES 'a/+' AND t <> 'b' AND t NOT MATCHES 'c/#'", [Topic("t", "a/+")]),
        ("t NOT MATCHES 'c/#'", [Topic("t", "c/#", True)]),
    ],
)
def test_patterns_of_a_conjunction_become_few_tests(text: str, tests: list[object] | None) -> None:
    clauses = Filter.parse(text).clauses
    assert all(clause.residual is None for clause in clauses)
    if tests is None:
        assert len(clauses) == 2
    else:
        assert [list(clause.tests) for clause in clauses] == [tests]


@pytest.mark.parametrize(
    "text",
    [
        "t MATCHES 'a/#' AND t MATCHES 'b/#'",
        "t MATCHES '#' AND t = '$SYS/x'",
        "t MATCHES '+/x' AND t MATCHES '$SYS/#'",
        "t MATCHES 'a/b/+' AND t NOT MATCHES 'a/#'",
        "t MATCHES 'a/#' AND t > 5",
    ],
)
def test_contradictions_are_found(text: str) -> None:
    assert Filter.parse(text).clauses == ()


def test_more_negated_patterns_than_become_tests_are_left_to_the_residual() -> None:
    text = " AND ".join(f"t NOT MATCHES 'a/{number}/+'" for number in range(40))
    subject = Filter.parse(text)
    (clause,) = subject.clauses
    assert clause.residual is not None
    assert len(clause.tests) == 16
    assert subject.matches({"t": "a/40/x"})
    assert not subject.matches({"t": "a/39/x"})


@pytest.mark.parametrize(
    ("pattern", "problem", "at"),
    [
        ("", "at least one character", 0),
        ("a/b#", "# must be a level of its own", 3),
        ("sport/tennis#", "# must be a level of its own", 12),
        ("sport/tennis/#/ranking", "# must be the last level", 13),
        ("sport+", "+ must be a level of its own", 5),
        ("a/+b/c", "+ must be a level of its own", 2),
        ("a/##", "# must be a level of its own", 2),
        ("a\0b", "no NUL character", 1),
        ("é" * 40_000, "80,000 bytes", 0),
        ("it's/a+", "+ must be a level of its own", 6),
    ],
)
def test_malformed_patterns_are_refused_with_place_and_remedy(pattern: str, problem: str, at: int) -> None:
    with pytest.raises(FilterError) as alone:
        check_topic_pattern(pattern)
    assert problem in str(alone.value)
    assert alone.value.position == at
    text = "topic MATCHES '{}'".format(pattern.replace("'", "''"))
    with pytest.raises(FilterError) as inside:
        Filter.parse(text)
    assert inside.value.position == len("topic MATCHES '") + at + pattern[:at].count("'")
    assert str(inside.value).splitlines()[-1] == str(alone.value).splitlines()[-1]


def test_a_well_formed_pattern_passes() -> None:
    for pattern in ("#", "+", "/", "a//b", "+/+/#", "$SYS/#", "a b/é"):
        check_topic_pattern(pattern)


def test_a_malformed_pattern_of_a_known_shape_is_refused_with_its_place() -> None:
    for name in ("a/+", "b/+", "c/+"):
        assert Filter.parse(f"known MATCHES '{name}' AND x > 1").clauses[0].tests[0] == Topic("known", name)
    with pytest.raises(FilterError, match="must be a level of its own") as refused:
        Filter.parse("known MATCHES 'a/b+' AND x > 1")
    assert refused.value.position == 18


def test_matches_is_a_name_where_a_name_is_expected() -> None:
    assert Filter.parse("matches > 3 AND Matches MATCHES 'a/+'").attributes == {"matches", "Matches"}
    assert Filter.parse("[matches, eq, 3]").to_sql() == "matches = 3"
    assert list(parse_in_slices("matches = 1", 1)) == [None, None, None]


def test_kinds_and_words() -> None:
    subject = Filter.parse("topic NOT MATCHES 'a/+' AND other MATCHES '#'")
    assert implied_kinds(subject) == {"topic": frozenset({"string"}), "other": frozenset({"string"})}
    assert subject.normal_form().clauses[0].tests == (
        "topic is a string that does not match 'a/+'",
        "other matches '#'",
    )


def test_a_pattern_cannot_make_matching_slow() -> None:
    subject = matching("+/" * 2_000 + "#")
    assert subject.matches({"topic": "a/" * 30_000})
    assert not subject.matches({"topic": "a/" * 1_000})
