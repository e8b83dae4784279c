"""Long filters are read in slices: their sender waits, and no other peer."""

import pytest
from tests.protocol.door import SECOND, STEP_NS, Door

from tidings.protocol import Budget, wire
from tidings.protocol._filters import LONG_FILTER, SLICE_TOKENS, is_known
from tidings.protocol.node._filter_reader import PATIENCE_NS

AMPLE = Budget(reading_share=1.0, matching_us=1e9)


def alternatives(mark: int, count: int) -> str:
    """A long filter, unlike all others; some 7 words for each alternative."""
    return " OR ".join(f"(a{n} = {mark} AND b{n} > {n})" for n in range(count))


def subscribe(door: Door, number: int, text: str) -> bytes:
    return wire.encode(wire.Subscribe(door.machine.epoch, number, wire.Entry(f"n{number}", text, None, 1.0, 0)))


def words(text: str) -> int:
    return text.count(" ") + text.count("(") + text.count(")") + 1


def test_no_turn_reads_more_than_a_slice_however_many_filters_arrive() -> None:
    door = Door(AMPLE)
    names = [f"c{n}" for n in range(4)]
    for number, name in enumerate(names):
        door.come(name)
        door.say(name, [subscribe(door, each, alternatives(1_000 + 10 * number + each, 60)) for each in range(3)])
    turns = 0
    while any(door.subscriptions(name) < 3 for name in names):
        assert turns < 10_000
        door.wait(STEP_NS / SECOND)  # one turn
        turns += 1
    assert turns >= len(names) * 3 * (words(alternatives(1_000, 60)) // SLICE_TOKENS)


def test_who_waits_for_its_filter_keeps_its_order_and_others_go_first() -> None:
    door = Door(AMPLE)
    for name in ("long", "short"):
        door.come(name)
    text = alternatives(2_000, 200)
    door.say("long", [subscribe(door, 0, "x = 1"), subscribe(door, 1, text), subscribe(door, 2, "x = 2")])
    door.say("long", [subscribe(door, 3, "x = 3")])
    assert list(door.machine.gossip.local.of("long")) == ["n0"]
    assert door.reads == [("long", False)]
    door.say("short", [subscribe(door, 0, "y = 1")])
    assert door.subscriptions("short") == 1
    door.wait(5.0)
    assert list(door.machine.gossip.local.of("long")) == ["n0", "n1", "n2", "n3"]
    assert door.reads == [("long", False), ("long", True)]
    assert is_known(text)


def test_a_long_text_that_is_no_filter_is_refused_with_the_same_words() -> None:
    door = Door(AMPLE)
    door.come("c")
    text = f"{alternatives(3_000, 100)} AND AND x = 1"
    door.say("c", [subscribe(door, 0, text)])
    assert b"found 'AND'" not in door.written["c"]
    door.wait(5.0)
    assert b"found 'AND'" in door.written["c"]
    assert door.subscriptions("c") == 0


def test_who_leaves_while_its_filter_is_read_is_forgotten() -> None:
    door = Door(AMPLE)
    for name in ("gone", "stays"):
        door.come(name)
        door.say(name, [subscribe(door, 0, alternatives(4_000 + len(name), 100))])
    door.carry(door.node.lost("gone", "cut", door.now_ns))
    door.wait(5.0)
    assert (door.subscriptions("gone"), door.subscriptions("stays")) == (0, 1)


def test_what_is_known_or_short_is_not_waited_for() -> None:
    door = Door(AMPLE)
    door.come("c")
    text = alternatives(5_000, 100)
    door.say("c", [subscribe(door, 0, text)])
    door.wait(5.0)
    before = list(door.reads)
    door.say("c", [subscribe(door, 1, text), subscribe(door, 2, f"x = '{'a' * (LONG_FILTER - 6)}'")])
    assert door.subscriptions("c") == 3
    assert door.reads == before


@pytest.mark.parametrize(("count", "is_in_time"), [(40, True), (500, False)])
def test_a_neighbour_is_not_kept_waiting_for_long(count: int, is_in_time: bool) -> None:
    door = Door(AMPLE, "beside")
    door.come("beside", "broker")
    entries = tuple(wire.Entry(f"c/n{n}", alternatives(6_000 + n, count), None, 1.0, 0) for n in range(10))
    began_ns = door.now_ns
    door.say("beside", [wire.encode(wire.Interest("beside", 1, 1, 1, 0, 0, entries))])
    known = door.machine.gossip.interests
    assert "beside" not in known
    while "beside" not in known:
        assert door.now_ns <= began_ns + PATIENCE_NS + STEP_NS
        door.wait(STEP_NS / SECOND)
    assert len(known.entries("beside")) == len(entries)
    assert (door.now_ns < began_ns + PATIENCE_NS) == is_in_time
