"""Topic filters: what matches, and the same in SQL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from tidings.model.filters import Filter
from tidings.mqtt import matches, topic_filter_sql
from tidings.mqtt._topics import is_topic, is_topic_filter, split_shared

LEVEL = st.sampled_from(["a", "b", "", "$x", "100%", "_", "it's", "!"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(is_topic)
PATTERN = st.builds(
    lambda levels, rest: "/".join([*levels, *rest]),
    st.lists(LEVEL | st.just("+"), max_size=4),
    st.sampled_from([["#"], ["+"], ["a"], []]),
).filter(is_topic_filter)


@given(PATTERN, TOPIC)
def test_against_paho_a_filter_matches_the_same_topics(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == topic_matches_sub(pattern, topic)


@given(PATTERN, TOPIC)
def test_sql_accepts_exactly_what_the_filter_matches(pattern: str, topic: str) -> None:
    assert Filter.parse(topic_filter_sql(pattern)).matches({"topic": topic}) == matches(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "is_match"),
    [
        ("sport/tennis/#", "sport/tennis", True),
        ("sport/tennis/#", "sport/tennis/player1/ranking", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/monitor", "$SYS/monitor", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("a/+/b/#", "a/x/y/b/z", False),
    ],
)
def test_4_7_the_examples_of_the_standard(pattern: str, topic: str, is_match: bool) -> None:
    assert matches(pattern, topic) is is_match


def test_4_8_2_1_a_shared_filter_has_a_group_and_a_filter() -> None:
    shared = split_shared("$share/g/a/#")
    assert shared is not None
    assert (shared.group, shared.topic_filter) == ("g", "a/#")
    assert split_shared("$share/g") is None
    assert split_shared("$share/g#/a") is None
