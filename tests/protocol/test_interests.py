"""Soft state: told by differences, refreshed by version, asked for where there is a gap, forgotten in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.protocol import PeerError
from tidings.protocol.broker._interests import Interests, LocalInterests, uncovered
from tidings.protocol.wire import Entry, Interest

SECOND = 10**9


def entry(name: str, filter: str = "x > 1", **more: object) -> Entry:
    values = {"max_delay_ns": None, "price": 1.0, "late_ns": 0, **more}
    return Entry(name, filter, values["max_delay_ns"], values["price"], values["late_ns"])  # type: ignore[arg-type]


def interests(**more: int) -> Interests:
    return Interests(**{"timeout_ns": 10 * SECOND, "max_origins": 3, "max_entries": 5, **more})


def test_changes_apply_in_turn_and_a_gap_is_seen() -> None:
    known = interests()
    assert known.learn(Interest("b", 1, 1, 1, 0, 0, (entry("s"),)), 0) == "changed"
    assert known.learn(Interest("b", 1, 2, 2, 1, 0, (entry("t"),)), 0) == "changed"
    assert known.learn(Interest("b", 1, 2, 2, 1, 0, (entry("t"),)), 0) == "old"
    assert known.learn(Interest("b", 1, 4, 4, 3, 0, (), ("s",)), 0) == "behind"
    assert sorted(known.entries("b")) == ["s", "t"]
    assert known.learn(Interest("b", 1, 4, 4, 0, 0, (entry("t"),)), 0) == "changed"
    assert sorted(known.entries("b")) == ["t"]


def test_a_refresh_renews_what_is_known_and_shows_what_is_not() -> None:
    known = interests()
    known.learn(Interest("b", 1, 1, 1, 0, 0, (entry("s"),)), 0)
    assert known.learn(Interest("b", 1, 2, 1, 1, 0), 8 * SECOND) == "refreshed"
    assert known.forget_old(12 * SECOND) == []
    assert known.learn(Interest("b", 1, 3, 2, 2, 0), 12 * SECOND) == "behind"
    assert known.forget_old(18 * SECOND) == ["b"]
    assert known.match({"x": 5}) == {}
    assert known.learn(Interest("b", 1, 4, 2, 2, 0), 19 * SECOND) == "behind"


def test_a_new_life_replaces_all_that_the_old_one_said() -> None:
    known = interests()
    known.learn(Interest("b", 1, 9, 9, 0, 0, (entry("s"),)), 0)
    assert known.learn(Interest("b", 2, 1, 1, 0, 0, (entry("t", "y = 1"),)), 0) == "changed"
    assert known.learn(Interest("b", 1, 10, 10, 9, 0, (entry("u"),)), 0) == "old"
    assert known.match({"x": 5, "y": 1}) == {"b": [entry("t", "y = 1")]}


def test_bounds_refuse_whole_messages_and_change_nothing() -> None:
    known = interests()
    for origin in ("b", "c", "d"):
        known.learn(Interest(origin, 1, 1, 1, 0, 0, (entry("s"),)), 0)
    with pytest.raises(PeerError, match="one more than 3"):
        known.learn(Interest("e", 1, 1, 1, 0, 0, ()), 0)
    with pytest.raises(PeerError, match="make more than 5"):
        known.learn(Interest("b", 1, 2, 2, 0, 0, tuple(entry(f"s{n}") for n in range(4))), 0)
    with pytest.raises(PeerError):
        known.learn(Interest("b", 1, 2, 2, 1, 0, (entry("t"), entry("u", "x >"))), 0)
    assert len(known) == 3
    assert sorted(known.entries("b")) == ["s"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("stu"), st.integers(0, 9), st.booleans())))
def test_local_matching_is_what_the_filters_say(changes: list[tuple[str, str, int, bool]]) -> None:
    local = LocalInterests()
    truth: dict[tuple[str, str], int] = {}
    for client, name, least, is_put in changes:
        if is_put:
            local.put(client, entry(name, f"x >= {least}"))
            truth[client, name] = least
        else:
            assert local.drop(client, name) == (truth.pop((client, name), None) is not None)
        found = local.match({"x": 5})
        assert {(client, each.name) for client, entries in found.items() for each in entries} == {
            key for key, least in truth.items() if least <= 5
        }


def test_covering_keeps_what_somebody_would_miss() -> None:
    entries = {
        "narrow": entry("narrow", "x > 10"),
        "wide": entry("wide", "x > 5"),
        "urgent": entry("urgent", "x > 10", price=9.0),
        "hurried": entry("hurried", "x > 20", max_delay_ns=SECOND),
        "late": entry("late", "x > 20", late_ns=SECOND),
        "other": entry("other", "y = 1"),
    }
    assert sorted(uncovered(entries)) == ["late", "other", "urgent", "wide"]
