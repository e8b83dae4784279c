"""Soft state: announced by differences, refreshed by version, asked for where there is a gap, forgotten in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.protocol import PeerError
from tidings.protocol._names import client_of, qualify
from tidings.protocol.broker._interest_tables import COMPARED, Announcements, Table, portions
from tidings.protocol.broker._interests import Interests, LocalInterests
from tidings.protocol.wire import Entry, Interest, encode_plain

SECOND = 10**9


def entry(name: str, filter: str = "x > 1", **more: object) -> Entry:
    values = {"max_delay_ns": None, "price": 1.0, "late_ns": 0, **more}
    return Entry(name, filter, values["max_delay_ns"], values["price"], values["late_ns"])  # type: ignore[arg-type]


def interests(**more: int) -> Interests:
    return Interests(**{"max_origins": 3, "max_entries": 5, **more})


def test_changes_apply_in_turn_and_a_gap_is_seen() -> None:
    known = interests()
    assert known.learn(Interest("b", 1, 1, 1, 0, 0, (entry("s"),)), 0).verdict == "changed"
    assert known.learn(Interest("b", 1, 2, 2, 1, 0, (entry("t"),)), 0).verdict == "changed"
    assert known.learn(Interest("b", 1, 2, 2, 1, 0, (entry("t"),)), 0).verdict == "old"
    assert known.learn(Interest("b", 1, 4, 4, 3, 0, (), ("s",)), 0).verdict == "behind"
    assert sorted(known.entries("b")) == ["s", "t"]
    assert known.learn(Interest("b", 1, 4, 4, 0, 0, (entry("t"),)), 0).verdict == "changed"
    assert sorted(known.entries("b")) == ["t"]


def test_a_refresh_renews_what_is_known_and_shows_what_is_not() -> None:
    known = interests()
    known.learn(Interest("b", 1, 1, 1, 0, 0, (entry("s"),)), 0)
    assert known.learn(Interest("b", 1, 2, 1, 1, 0), 8 * SECOND).verdict == "refreshed"
    assert known.silence_ns("b", 12 * SECOND) < 10 * SECOND
    assert known.learn(Interest("b", 1, 3, 2, 2, 0), 12 * SECOND).verdict == "behind"
    assert known.silence_ns("b", 18 * SECOND) >= 10 * SECOND
    assert known.forget("b") == ["s"]
    assert known.match({"x": 5}) == {}
    assert known.learn(Interest("b", 1, 4, 2, 2, 0), 19 * SECOND).verdict == "behind"


def test_a_new_incarnation_replaces_all_that_the_old_one_announced() -> None:
    known = interests()
    known.learn(Interest("b", 1, 9, 9, 0, 0, (entry("s"),)), 0)
    assert known.learn(Interest("b", 2, 1, 1, 0, 0, (entry("t", "y = 1"),)), 0).verdict == "changed"
    assert known.learn(Interest("b", 1, 10, 10, 9, 0, (entry("u"),)), 0).verdict == "old"
    assert known.match({"x": 5, "y": 1}) == {"b": [entry("t", "y = 1")]}


def test_bounds_refuse_whole_messages_and_change_nothing() -> None:
    known = interests()
    for origin in ("b", "c", "d"):
        known.learn(Interest(origin, 1, 1, 1, 0, 0, (entry("s"),)), 0)
    with pytest.raises(PeerError, match="exceeds the limit of 3 brokers"):
        known.learn(Interest("e", 1, 1, 1, 0, 0, ()), 0)
    with pytest.raises(PeerError, match="subscriptions exceed 5 here"):
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


def test_changes_are_announced_and_nothing_else() -> None:
    known = interests(max_entries=100)
    learnt = known.learn(Interest("b", 1, 1, 1, 0, 0, (entry("s"), entry("t"))), 0)
    assert (learnt.base, [each.name for each in learnt.added], learnt.removed) == (0, ["s", "t"], ())
    learnt = known.learn(Interest("b", 1, 2, 7, 0, 0, (entry("t"), entry("u"))), 0)
    assert (learnt.base, [each.name for each in learnt.added], learnt.removed) == (1, ["u"], ("s",))
    learnt = known.learn(Interest("b", 2, 1, 1, 0, 0, (entry("t"),)), 0)
    assert (learnt.base, learnt.added, learnt.removed) == (0, (), ("u",))
    learnt = known.learn(Interest("b", 2, 2, 2, 1, 0, (entry("t", "y = 1"),), ("t", "t", "never")), 0)
    assert (learnt.base, learnt.added, learnt.removed) == (1, (entry("t", "y = 1"),), ())
    assert known.match({"x": 5}) == {}
    assert len(known) == 1


def test_no_two_subscriptions_have_the_same_name_elsewhere() -> None:
    keys = [("a", "b/c"), ("a/b", "c"), ("/3/a/b", "c"), ("/3", "a/b/c"), ("a/", "b/c"), ("a", "/b/c")]
    names = [qualify(client, entry(name)).name for client, name in keys]
    assert len(set(names)) == len(keys)
    assert [client_of(name) for name in names] == [client for client, _ in keys]
    assert client_of("/x/y") == ""


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text("abé/", min_size=1, max_size=4), st.booleans()), max_size=40),
    st.integers(1, 200),
)
def test_the_parts_of_a_table_make_the_table(changes: list[tuple[str, bool]], most_bytes: int) -> None:
    table, truth = Table(), dict[str, Entry]()
    for number, (name, is_put) in enumerate(changes):
        if is_put:
            truth[name] = entry(name, f"x > {number}")
            table.put(truth[name])
        elif truth.pop(name, None) is not None:
            table.drop(name)
        if number % 7 == 3:
            table.part("", most_bytes)  # from here on the order is kept
    found: list[Entry] = []
    after, is_last = "", False
    while not is_last:
        some, is_last = table.part(after, most_bytes)
        assert some or is_last
        assert len(some) <= 1 or sum(len(encode_plain(each)) for each in some) <= most_bytes
        found += some
        after = found[-1].name if found else after
    assert found == [truth[name] for name in sorted(truth)]


@settings(deadline=None)
@given(st.lists(st.text("aé", min_size=1, max_size=9)), st.integers(0, 9), st.integers(1, 120))
def test_portions_hold_all_changes_within_their_bound(names: list[str], removed: int, most_bytes: int) -> None:
    gone, added = names[:removed], [entry(name) for name in names[removed:]]
    found = list(portions(added, gone, most_bytes))
    assert [each for some, _ in found for each in some] == added
    assert [name for _, some in found for name in some] == gone
    for some, left in found:
        assert some or left
        size_bytes = sum(len(encode_plain(each)) for each in (*some, *left))
        assert size_bytes <= most_bytes or len(some) + len(left) == 1


def announcements_of(*entries: Entry) -> Announcements:
    reported = Announcements(covering=True)
    reported.update((each.name, each) for each in entries)
    return reported


def test_covering_keeps_what_somebody_would_miss() -> None:
    reported = announcements_of(
        entry("narrow", "x > 10"),
        entry("wide", "x > 5"),
        entry("urgent", "x > 10", price=9.0),
        entry("hurried", "x > 20", max_delay_ns=SECOND),
        entry("late", "x > 20", late_ns=SECOND),
        entry("other", "y = 1"),
    )
    assert sorted(reported.table.entries) == ["late", "other", "urgent", "wide"]
    assert reported.update([("wide", None)]) == ([], ["wide"])  # the urgent one contains what it did
    added, removed = reported.update([("urgent", None)])
    assert [each.name for each in added] == ["narrow"]
    assert removed == ["urgent"]
    assert reported.update([("hurried", None), ("nobody", None)]) == ([], [])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(1, 3)))),
        max_size=60,
    )
)
def test_every_subscription_is_announced_or_covered_by_one_that_is(
    changes: list[tuple[int, tuple[int, int] | None]],
) -> None:
    reported, truth, others = Announcements(covering=True), dict[str, Entry](), dict[str, Entry]()
    for number, terms in changes:
        name = f"s{number}"
        truth.pop(name, None)
        if terms is not None:
            truth[name] = entry(name, f"x > {terms[0]}", price=float(terms[1]))
        added, removed = reported.update([(name, truth.get(name))])
        for gone in removed:
            del others[gone]
        others.update((each.name, each) for each in added)
        assert others == reported.table.entries
        assert others.items() <= truth.items()
        for wanted in truth.values():
            level = int(wanted.filter[4:])
            assert any(int(each.filter[4:]) <= level and each.price >= wanted.price for each in others.values())


def test_covering_compares_with_few_and_announces_the_rest() -> None:
    many = [entry(f"s{number}", f"x = {number}") for number in range(3 * COMPARED)]
    reported = announcements_of(*many, entry("wide", "x >= 0"))
    assert len(reported.table.entries) == 2 * COMPARED + 1
    assert reported.update([("late", entry("late", "x = 7"))]) == ([], [])  # the wide one was announced last
