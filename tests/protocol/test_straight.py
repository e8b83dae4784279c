"""Events that go straight through: many together, within the credit, and into the queue the moment something waits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.matching import MaskIndex
from tidings.model.filters import Filter
from tidings.protocol import Broker, BrokerSettings, Erase, Note, Sampler, Send, Store, Sync, wire
from tidings.scheduling import strategy

NOW = 10**17
SECOND = 10**9


def living(scheme: str = "bypass", *, credit: int = 16, **more: Any) -> Broker:
    """A broker with a publisher `p` and a subscriber `s` who has so much credit."""
    broker = Broker(BrokerSettings(name="b", scheme=scheme, **more))  # type: ignore[arg-type]
    confirm(broker, broker.start(NOW))
    for name in ("p", "s"):
        broker.connected(name, NOW)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, credit)), NOW)
    wanted = wire.Subscribe(broker.epoch, 0, wire.Entry("x", "x >= 0", None, 1.0, 0))
    confirm(broker, broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), NOW))
    confirm(broker, broker.receive("s", wire.encode(wanted), NOW))
    return broker


def confirm(broker: Broker, effects: list[Any]) -> None:
    """Its disk is quick."""
    for effect in effects:
        if isinstance(effect, Sync):
            confirm(broker, broker.synced(effect.token, NOW))


def publication(sequence: int, x: int = 1, lifetime_ns: int = 60 * SECOND, age_ns: int = 0) -> wire.Publication:
    content = wire.encode_content(wire.Content({"x": x}, b"", b""))
    return wire.Publication(sequence, NOW, age_ns, lifetime_ns, 1_000, content)


def publish(broker: Broker, first: int, count: int, now_ns: int = NOW, **more: Any) -> list[wire.Message]:
    events = tuple(publication(number, **more) for number in range(first, first + count))
    frame = wire.encode(wire.Publish(1, first, 0, events))
    return messages_to(broker.receive_many([("p", [frame])], now_ns), "s")


def messages_to(effects: list[Any], to: str) -> list[wire.Message]:
    return [wire.decode(effect.frame) for effect in effects if type(effect) is Send and effect.connection == to]


def sent(messages: list[wire.Message]) -> list[int]:
    """The sequence numbers of the events in these messages."""
    return [event.sequence for each in messages if isinstance(each, wire.Transfer) for event in each.events]


def give(broker: Broker, message: wire.Message, now_ns: int = NOW) -> list[wire.Message]:
    return messages_to(broker.receive("s", wire.encode(message), now_ns), "s")


def test_events_that_came_together_leave_together() -> None:
    broker = living(credit=1_000, window=1_000)
    (transfer,) = publish(broker, 0, 12)
    assert isinstance(transfer, wire.Transfer)
    assert sent([transfer]) == list(range(12))
    assert transfer.targets == ({"x": ()},) * 12
    assert not broker.carrier.holdings.held


@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
def test_acknowledgements_need_not_hurry_while_there_is_room(scheme: str) -> None:
    broker = living(scheme)
    eases = []
    for number in range(18):
        frame = wire.encode(wire.Publish(1, number, 0, (publication(number),)))
        effects = broker.receive_many([("p", [frame])], NOW)
        confirm(broker, effects)
        eases += [each.ease_ns for each in messages_to(effects, "s") if isinstance(each, wire.Transfer)]
    assert eases == [100_000_000] * 8 + [0] * 8  # half of what may be under way is, and then all
    assert sent(give(broker, wire.Ack(broker.epoch, ((0, 15),), 0, 16))) == [16, 17]


@pytest.mark.parametrize(("left_ms", "ease_ms"), [(1_000, 100), (120, 60), (40, 0)])
def test_no_event_expires_before_an_acknowledgement_that_need_not_hurry(left_ms: int, ease_ms: int) -> None:
    (transfer,) = publish(living("bypass+buffer"), 0, 1, lifetime_ns=left_ms * 10**6)
    assert isinstance(transfer, wire.Transfer)
    assert transfer.ease_ns == ease_ms * 10**6


def test_the_publisher_is_answered_once_for_all() -> None:
    broker = living(credit=1_000, window=1_000)
    frames = [wire.encode(wire.Publish(1, first, 0, (publication(first), publication(first + 1)))) for first in (0, 2)]
    (ack,) = messages_to(broker.receive_many([("p", frames)], NOW), "p")
    assert isinstance(ack, wire.Ack)
    assert ack.numbers in (((0, 1), (2, 3)), ((0, 3),))


@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
def test_no_more_is_under_way_than_the_credit_allows(scheme: str) -> None:
    broker = living(scheme, credit=0)
    assert publish(broker, 0, 1_000) == []
    assert len(sent(give(broker, wire.Credit(1)))) == 1
    assert len(sent(give(broker, wire.Credit(16)))) == 15
    assert len(sent(give(broker, wire.Credit(1_000)))) == 0  # the window
    assert len(sent(give(broker, wire.Ack(broker.epoch, ((0, 3),), 0, 16)))) == 4


def test_a_lost_acknowledgement_takes_no_credit_for_ever() -> None:
    broker = living(credit=4)
    assert sent(publish(broker, 0, 10)) == [0, 1, 2, 3]
    later_ns = NOW + broker.settings.retry_most_ns
    assert len(sent(messages_to(broker.wake(later_ns), "s"))) == 4


def test_an_acknowledgement_of_what_was_never_sent_gives_no_credit() -> None:
    broker = living(credit=4)
    publish(broker, 0, 10)
    assert sent(give(broker, wire.Ack(broker.epoch, ((0, 2**40),), 0, 4))) == []


def test_what_waits_is_overtaken_by_what_is_more_urgent() -> None:
    broker = living(credit=2, strategy=strategy("rl"))
    assert sent(publish(broker, 0, 4)) == [0, 1]
    publish(broker, 4, 1, lifetime_ns=SECOND)
    give(broker, wire.Credit(2))
    freed = give(broker, wire.Ack(broker.epoch, ((0, 1),), 0, 2))
    assert 4 in sent(freed)


def test_an_event_is_delivered_once_on_whatever_path() -> None:
    broker = living(credit=100, window=100)
    assert sent(publish(broker, 0, 3)) == [0, 1, 2]
    frame = wire.encode(wire.Publish(1, 3, 0, (publication(1),)))  # a copy, under another number
    assert sent(messages_to(broker.receive("p", frame, NOW), "s")) == []


def test_what_is_too_late_does_not_go_straight() -> None:
    broker = living(credit=100, window=100)
    assert sent(publish(broker, 0, 1, lifetime_ns=SECOND, age_ns=SECOND)) == []


def test_only_a_sample_is_noted() -> None:
    noted = {}
    for sample in (0.0, 0.25, 1.0):
        broker = living(credit=1_000, window=1_000, tracing=sample > 0.0, trace_sample=sample)
        frame = wire.encode(wire.Publish(1, 0, 0, tuple(publication(number) for number in range(400))))
        notes = [effect for effect in broker.receive("p", frame, NOW) if isinstance(effect, Note)]
        noted[sample] = {note.event[2] for note in notes if note.kind == "enqueued"}
        assert {note.event[2] for note in notes if note.kind == "accepted"} == noted[sample]
    assert noted[0.0] == set()
    assert 50 < len(noted[0.25]) < 150
    assert noted[1.0] == set(range(400))


def test_the_share_for_profiles_changes_and_that_for_traces_remains() -> None:
    broker = living(credit=10_000, window=10_000, tracing=True, trace_sample=0.25, profiles=True)
    noted = []
    for turn, share in enumerate((None, 0.5, 0.125)):
        if share is not None:
            broker.record(share)
        numbers = range(400 * turn, 400 * turn + 400)
        frame = wire.encode(wire.Publish(1, numbers[0], 0, tuple(map(publication, numbers))))
        notes = [effect for effect in broker.receive("p", frame, NOW) if isinstance(effect, Note)]
        noted.append({note.event for note in notes})
        expected = Sampler((1.0, 0.5, 0.25)[turn])
        assert noted[-1] == {("p", 1, number) for number in numbers if expected(("p", 1, number))}
    assert len(noted[0]) == 400 > len(noted[1]) > len(noted[2]) > 0


# -- with buffering ------------------------------------------------------------------------------------------------


def kept(effects: list[Any], disk: dict[str, bytes]) -> dict[str, bytes]:
    """The disk after these effects; only what is about events."""
    for effect in effects:
        if isinstance(effect, Store) and effect.key.startswith("event/"):
            disk[effect.key] = effect.value
        elif isinstance(effect, Erase):
            disk.pop(effect.key, None)
    return disk


def published(broker: Broker, count: int, **more: Any) -> list[Any]:
    """What a broker does when so many events come together."""
    events = tuple(publication(number, **more) for number in range(count))
    return broker.receive("p", wire.encode(wire.Publish(1, 0, 0, events)), NOW)


def test_events_that_are_kept_together_are_acknowledged_when_they_are_durable() -> None:
    broker = living("bypass+buffer")
    effects = published(broker, 5)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Sync) > max(place for place, kind in enumerate(kinds) if kind is Store)
    assert messages_to(effects, "p") == []
    (sync,) = [effect for effect in effects if isinstance(effect, Sync)]
    (ack,) = messages_to(broker.synced(sync.token, NOW), "p")
    assert isinstance(ack, wire.Ack)
    assert ack.numbers == ((0, 4),)


def test_events_that_are_kept_together_are_done_together() -> None:
    broker = living("bypass+buffer")
    disk = kept(published(broker, 5), {})
    assert len(disk) == len(broker.carrier.holdings.held) == 5
    ack = wire.encode(wire.Ack(broker.epoch, ((0, 4),), 0, 16))
    kept(broker.receive("s", ack, NOW), disk)
    assert not disk
    assert not broker.carrier.holdings.held
    assert broker.clients["s"].outbox.is_empty


def test_a_part_that_is_acknowledged_is_done_and_the_rest_sent_again() -> None:
    broker = living("bypass+buffer")
    disk = kept(published(broker, 5), {})
    kept(broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((1, 2),), 0, 16)), NOW), disk)
    assert sorted(disk) == [f"event/1/{number}/p" for number in (0, 3, 4)]
    assert broker.clients["s"].outbox.under_way == 3
    again = messages_to(broker.wake(NOW + 2 * SECOND), "s")
    assert sorted(sent(again)) == [0, 3, 4]
    assert all(each.number in (0, 3) for each in again if isinstance(each, wire.Transfer))
    kept(broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((0, 4),), 0, 16)), NOW), disk)
    assert not disk


def test_what_expires_of_them_is_let_go_alone() -> None:
    broker = living("bypass+buffer")
    events = (publication(0), publication(1, lifetime_ns=SECOND), publication(2))
    disk = kept(broker.receive("p", wire.encode(wire.Publish(1, 0, 0, events)), NOW), {})
    kept(broker.wake(NOW + SECOND), disk)
    assert sorted(disk) == ["event/1/0/p", "event/1/2/p"]
    assert {id[2] for id in broker.carrier.holdings.held} == {0, 2}


def test_a_broker_that_starts_again_delivers_what_was_kept_together() -> None:
    broker = living("bypass+buffer")
    disk = kept(published(broker, 5), {})
    subscription = msgspec.msgpack.encode(("s", wire.Entry("x", "x >= 0", None, 1.0, 0)))
    again = Broker(broker.settings, disk | {"epoch": b"7", "subscription/1/s/x": subscription})
    confirm(again, again.start(NOW))
    again.connected("s", NOW)
    effects = again.receive("s", wire.encode(wire.Hello(wire.VERSION, "s", "client", 1, 16)), NOW)
    assert sorted(sent(messages_to(effects, "s"))) == [0, 1, 2, 3, 4]


# -- from neighbours -----------------------------------------------------------------------------------------------


def linked(scheme: str = "bypass+buffer", **more: Any) -> Broker:
    """The same broker, with the neighbours `a` and `c`."""
    graph = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("b")}
    broker = living(scheme, credit=1_000, window=1_000, neighbours=graph["b"], graph=graph, **more)
    for name in ("a", "c"):
        broker.connected(name, NOW)
        confirm(broker, broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "broker", 1, 1_000)), NOW))
    return broker


def carried(sequence: int, root: str = "a", **more: Any) -> wire.Event:
    """An event of a publisher at another broker."""
    content = wire.encode_content(wire.Content({"x": 1}, b"", b""))
    facts = {"trace": None, "error_ns": 0, "period": 1, "check": wire.check_of(content)} | more
    return wire.Event("q", 1, sequence, root, NOW, 0, 60 * SECOND, 1_000, 0, content, **facts)


def transfer(events: list[wire.Event], number: int = 0, **targets: tuple[wire.Term, ...]) -> bytes:
    """These events as a neighbour sends them, numbered from `number` on; to this broker by default."""
    each = targets or {"b": ((60 * SECOND, 1.0),)}
    return wire.encode(wire.Transfer(1, number, 0, (each,) * len(events), tuple(events), NOW))


def transferred(broker: Broker, *frames: tuple[str, bytes]) -> list[Any]:
    """What a broker does when these frames come together, each from a neighbour."""
    effects = broker.receive_many([(source, [frame]) for source, frame in frames], NOW)
    confirm(broker, effects)
    return effects


@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
def test_events_of_a_neighbour_that_came_together_leave_together(scheme: str) -> None:
    broker = linked(scheme)
    effects = transferred(broker, ("a", transfer([carried(number) for number in range(12)])))
    (found,) = [each for each in messages_to(effects, "s") if isinstance(each, wire.Transfer)]
    assert sent([found]) == list(range(12))
    groups = [held.group for held in broker.carrier.holdings.held.values()]
    assert groups == [groups[0]] * 12 if scheme == "bypass+buffer" else not groups
    assert None not in groups


def test_events_of_a_neighbour_are_acknowledged_when_they_are_durable_and_done_when_their_client_has_them() -> None:
    broker = linked()
    frame = transfer([carried(number) for number in range(5)])
    effects = broker.receive("a", frame, NOW)
    disk = kept(effects, {})
    assert len(disk) == 5
    assert messages_to(effects, "a") == []
    (sync,) = [effect for effect in effects if isinstance(effect, Sync)]
    (ack,) = messages_to(broker.synced(sync.token, NOW), "a")
    assert isinstance(ack, wire.Ack)
    assert ack.numbers == ((0, 4),)
    kept(broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((0, 4),), 0, 1_000)), NOW), disk)
    assert not disk
    assert not broker.carrier.holdings.held


@pytest.mark.parametrize("is_first_for_two", [False, True])
@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
def test_an_event_that_two_neighbours_hand_over_together_is_delivered_once(scheme: str, is_first_for_two: bool) -> None:
    broker = linked(scheme)
    alone = transfer([carried(1), carried(2)])
    both = transfer([carried(1), carried(2)], b=((60 * SECOND, 1.0),), c=((60 * SECOND, 1.0),))
    frames = [("a", both), ("c", alone)] if is_first_for_two else [("c", alone), ("a", both)]
    effects = transferred(broker, *frames)
    assert sent(messages_to(effects, "s")) == [1, 2]
    assert sent(messages_to(transferred(broker, ("a", transfer([carried(2)], 2))), "s")) == []


def test_an_event_that_a_neighbour_numbers_twice_is_delivered_once() -> None:
    effects = transferred(linked(), ("a", transfer([carried(1), carried(1), carried(2)])))
    assert sent(messages_to(effects, "s")) == [1, 2]


def test_arrivals_are_counted_for_each_broker_that_accepted_them() -> None:
    broker = linked()
    frames = [("a", transfer([carried(n) for n in range(3)])), ("c", transfer([carried(n, "c") for n in (3, 4)]))]
    transferred(broker, *frames)
    ledger = broker.carrier.courses.end(carried(0).content, 60 * SECOND).ledger
    assert ledger == {("a", 1): 3, ("c", 1): 2}


@pytest.mark.parametrize(
    ("odd", "targets"),
    [
        (carried(1, trace=wire.Trace(0)), {}),
        (carried(1, period=0), {}),
        (carried(1), {"b": ((60 * SECOND, 1.0),), "c": ((60 * SECOND, 1.0),)}),
        (carried(1), {"b\0s": ((60 * SECOND, 1.0),)}),
    ],
)
def test_what_is_held_by_itself_does_not_overtake_those_that_go_straight(odd: wire.Event, targets: Any) -> None:
    broker = linked()
    ordered = wire.Subscribe(broker.epoch, 1, wire.Entry("y", "x >= 0", None, 1.0, 0, record=16))
    confirm(broker, broker.receive("s", wire.encode(ordered), NOW))
    frames = [transfer([carried(0)]), transfer([odd], 1, **targets), transfer([carried(2)], 2)]
    effects = transferred(broker, *(("a", frame) for frame in frames))
    assert sent(messages_to(effects, "s")) == [0, 1, 2]
    assert {id[2] for id, held in broker.carrier.holdings.held.items() if held.is_alone} >= {1}


def test_without_buffering_nothing_waits_for_a_client_that_is_away() -> None:
    broker = linked("bypass")
    broker.disconnected("s", NOW)
    transferred(broker, ("a", transfer([carried(1)])))
    assert broker.counts["client away"] == 1
    assert broker.clients["s"].outbox.queued == 0


def test_events_of_a_neighbour_are_noted_like_others() -> None:
    broker = linked(tracing=True)
    effects = transferred(broker, ("a", transfer([carried(1), carried(2)])))
    notes = [effect for effect in effects if isinstance(effect, Note)]
    kinds = ["received", "local", "enqueued", "sent"]
    for sequence in (1, 2):
        assert [note.kind for note in notes if note.event[2] == sequence] == kinds
    came, queued = ([note for note in notes if note.kind == kind] for kind in ("received", "enqueued"))
    times = [(note.since_ns, note.departure_ns) for note in queued]
    assert times == [(note.since_ns, note.departure_ns) for note in came]
    assert all(0 < since_ns <= NOW and departure_ns > 0 for since_ns, departure_ns in times)


# -- masks ---------------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 5, -3, 2.5, 0.5, -0.0, 2**53, 2**53 + 1, -(2**60)]),
    st.sampled_from(["a", "b", "ab", ""]),
    st.booleans(),
)
EVENTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES, max_size=3)
FILTERS = [
    "TRUE",
    "FALSE",
    "x > 1",
    "x >= 1 AND x < 5",
    "x BETWEEN 0 AND 2 AND x <> 1",
    "x = 2.5 OR y = 'a'",
    "y IN ('a', 'b')",
    "y <> 'a'",
    "y LIKE 'a%' AND x > 0",
    "z = TRUE",
    "z IS NULL",
    "z IS NOT NULL AND x IN (1, 2, 5)",
    "NOT (x > 1 AND y = 'b')",
    "x NOT IN (1, 2)",
    "x + 1 > 2",
    f"x > {2**53}",
    "x = y",
    "x > 1 AND z = FALSE AND y = 'ab'",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(FILTERS), unique=True), st.lists(EVENTS, min_size=1, max_size=5), st.data())
def test_masks_say_what_filters_say(texts: list[str], events: list[dict[str, Any]], data: st.DataObject) -> None:
    index = MaskIndex()
    bits = {text: index.add(Filter.parse(text)) for text in texts}
    for gone in data.draw(st.lists(st.sampled_from(texts), unique=True)) if texts else ():
        index.remove(bits.pop(gone))
    for event in events:
        mask = index.match(event)
        found = {text for text, mine in bits.items() if mask & mine}
        assert found == {text for text in bits if Filter.parse(text).matches(event)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FILTERS), st.booleans(), EVENTS), max_size=60))
def test_masks_say_so_however_filters_come_and_go(steps: list[tuple[str, bool, dict[str, Any]]]) -> None:
    """With a few filters more than tables are worth, so that new ones are asked themselves and old places stay."""
    index = MaskIndex()
    for number in range(40):
        index.add(Filter.parse(f"y = 'other {number}' AND x > {number}"))
    index.match({"x": 1, "y": "a"})
    bits: dict[str, int] = {}
    for text, stays, event in steps:
        if text in bits:
            index.remove(bits.pop(text))
        if stays:
            bits[text] = index.add(Filter.parse(text))
        mask = index.match(event)
        found = {text for text, mine in bits.items() if mask & mine}
        assert found == {text for text in bits if Filter.parse(text).matches(event)}
        assert not mask & ~index._everybody


def beside(scheme: str = "bypass+buffer", **more: Any) -> Broker:
    """A broker with a publisher `p`, a subscriber `s` who keeps up, and another, `slow`, who takes nothing for now."""
    broker = living(scheme, credit=1_000, window=1_000, **more)
    broker.connected("slow", NOW)
    broker.receive("slow", wire.encode(wire.Hello(wire.VERSION, "slow", "client", 1, 1_000)), NOW)
    wanted = wire.Subscribe(broker.epoch, 0, wire.Entry("x", "x >= 0", None, 1.0, 0))
    confirm(broker, broker.receive("slow", wire.encode(wanted), NOW))
    broker.congested("slow", True, NOW)
    return broker


@pytest.mark.parametrize("scheme", ["bypass", "bypass+buffer"])
def test_who_keeps_up_gets_events_together_though_somebody_else_takes_none(scheme: str) -> None:
    broker = beside(scheme)
    (transfer,) = publish(broker, 0, 12)
    assert sent([transfer]) == list(range(12))
    assert broker.clients["slow"].outbox.queued == 12
    assert broker.clients["s"].outbox.queued == 0


def test_what_waits_for_one_is_held_until_it_has_it_and_stored_once() -> None:
    broker = beside()
    frame = wire.encode(wire.Publish(1, 0, 0, tuple(publication(n) for n in range(5))))
    effects = broker.receive_many([("p", [frame])], NOW)
    stored = [effect.key for effect in effects if isinstance(effect, Store) and effect.key.startswith("event/")]
    assert len(stored) == len(set(stored)) == 5
    confirm(broker, effects)
    give(broker, wire.Ack(broker.epoch, ((0, 4),), 0, 1_000))
    assert len(broker.carrier.holdings.held) == 5
    assert all(held.is_alone and held.local.keys() == {"slow"} for held in broker.carrier.holdings.held.values())
    (transfer,) = messages_to(broker.congested("slow", False, NOW), "slow")
    assert sorted(sent([transfer])) == list(range(5))
    effects = broker.receive("slow", wire.encode(wire.Ack(broker.epoch, ((0, 4),), 0, 1_000)), NOW)
    erased = [effect.key for effect in effects if isinstance(effect, Erase)]
    assert sorted(erased) == sorted(stored)
    assert not broker.carrier.holdings.held


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_the_part_of_one_ends_without_the_part_of_the_other(is_acknowledged: bool) -> None:
    """Dropped for one because its queue is full, or acknowledged by the other: what is left is still owed."""
    broker = beside(max_queued_client=3)
    confirm(broker, broker.receive_many([("p", [publish_frame(0, 5)])], NOW))
    assert broker.clients["slow"].outbox.queued == 3
    if is_acknowledged:
        give(broker, wire.Ack(broker.epoch, ((0, 4),), 0, 1_000))
    owed = [set(held.local) for held in holding(broker).values()]
    assert owed.count({"slow"} if is_acknowledged else {"s", "slow"}) == 3
    assert owed.count({"s"}) == (0 if is_acknowledged else 2)
    give(broker, wire.Ack(broker.epoch, ((0, 4),), 0, 1_000))
    assert [set(held.local) for held in holding(broker).values()] == [{"slow"}] * 3
    confirm(broker, broker.wake(NOW + 61 * SECOND))
    assert not broker.carrier.holdings.held
    balance = broker.accounts.balances()["slow/x"].known
    assert (balance.matched, balance.dropped, balance.under_way) == (5, 5, 0)


def publish_frame(first: int, count: int) -> bytes:
    return wire.encode(wire.Publish(1, first, 0, tuple(publication(n) for n in range(first, first + count))))


def holding(broker: Broker) -> dict[Any, Any]:
    """The events that it holds, each by itself."""
    return {held.id: held for held in broker.carrier.holdings.each(lambda _: True)}
