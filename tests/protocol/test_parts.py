"""The small parts: the agenda, the meter, the outbox, the inbox, the terms of delivery, the tables of states."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.protocol import (
    PEER_STEPS,
    TRANSFER_STEPS,
    Broker,
    BrokerSettings,
    Bundles,
    PeerError,
    PeerState,
    diagram,
)
from tidings.protocol._agenda import Agenda
from tidings.protocol._seen import BLOCK, Seen
from tidings.protocol.broker._courses import read_course, terms_of
from tidings.protocol.broker._held import Held, read_record
from tidings.protocol.broker._memory import Memory
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._peers import MAX_RANGE, Inbox, Peer
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import MAX_TERMS, Entry, Event, Parts, decode, encode_plain

SECOND = 10**9
MS = 10**6


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50), st.sampled_from(["set", "advance", "cancel"]))))
def test_the_agenda_gives_each_task_once_in_order(steps: list[tuple[str, int, str]]) -> None:
    agenda, truth = Agenda(), dict[str, int]()
    for task, at_ns, step in steps:
        if step == "set":
            agenda.set(task, at_ns)
            truth[task] = at_ns
        elif step == "advance":
            agenda.advance(task, at_ns)
            truth[task] = min(at_ns, truth.get(task, at_ns))
        else:
            agenda.cancel(task)
            truth.pop(task, None)
        assert agenda.next_ns == min(truth.values(), default=None)
    found = []
    while (task_found := agenda.pop(50)) is not None:
        found.append(task_found)
    assert found == [task for _, task in sorted((at_ns, task) for task, at_ns in truth.items())]


def test_the_agenda_does_not_grow_with_what_was_moved() -> None:
    agenda = Agenda()
    for at_ns in range(10_000, 0, -1):
        agenda.set("task", at_ns)
    assert len(agenda._heap) < 200


def test_slowness_is_what_a_transfer_took_beyond_the_round_trip_and_the_time_it_was_held() -> None:
    meter = LinkMeter()
    for _ in range(200):
        meter.note_round_trip(20 * MS)
        meter.note_transfer(20 * MS + 5 * MS + 30 * MS, 5 * MS, 2_000)
    assert meter.mean_s_per_kb == pytest.approx(0.015)
    assert meter.variance_s2_per_kb2 == pytest.approx(0.0, abs=1e-9)
    assert meter.transit_ns(2_000) == pytest.approx(40 * MS, rel=1e-3)
    assert meter.patience_ns(2_000) > 50 * MS


def test_the_variance_is_that_of_the_samples() -> None:
    meter = LinkMeter()
    meter.note_round_trip(0)
    for number in range(4_000):
        meter.note_transfer((10 if number % 2 else 30) * MS, 0, 1_000)
    assert meter.mean_s_per_kb == pytest.approx(0.02, rel=0.1)
    assert meter.variance_s2_per_kb2 == pytest.approx(1e-4, rel=0.2)


def test_the_inbox_knows_what_was_taken_and_what_was_acknowledged() -> None:
    inbox = Inbox()
    assert list(inbox.look(3, 2, 0)[0]) == [3, 4]
    inbox.take([3])
    assert inbox.look(3, 2, 0) == ([4], [])
    inbox.acknowledge([3])
    assert inbox.look(2, 3, 2) == ([2, 4], [3])
    assert inbox.look(1, 2, 0) == ([2], [1])  # below the floor: over and done with
    assert list(inbox.look(4, 1, 4)[0]) == [4]
    assert len(inbox) == 0
    with pytest.raises(PeerError, match="above the floor"):
        inbox.look(3 + MAX_RANGE, 2, 4)


def test_terms_pay_for_the_tighter_deadline_and_keep_an_event_for_those_who_take_it_late() -> None:
    entries = [
        Entry("a", "TRUE", 2 * SECOND, 3.0, 0),
        Entry("b", "TRUE", None, 1.0, 0),
        Entry("c", "TRUE", 2 * SECOND, 1.0, 4 * SECOND),
    ]
    assert terms_of(entries, 5 * SECOND) == ((2 * SECOND, 4.0), (5 * SECOND, 1.0), (6 * SECOND, 0.0))
    assert terms_of(entries[:1], SECOND) == ((SECOND, 3.0),)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1_000), st.floats(0, 9)), min_size=1, max_size=60))
def test_terms_are_few_and_promise_no_more_time_than_there_is(given_terms: list[tuple[int, float]]) -> None:
    entries = [Entry(f"{n}", "TRUE", delay, price, 0) for n, (delay, price) in enumerate(given_terms)]
    terms = terms_of(entries, 10_000)
    assert len(terms) <= MAX_TERMS
    assert sum(price for _, price in terms) == pytest.approx(sum(price for _, price in given_terms))
    assert max(delay for delay, _ in terms) == max(delay for delay, _ in given_terms)
    for delay_ns in range(0, 1_000, 97):
        assert sum(price for allowed, price in terms if allowed > delay_ns) <= 1e-9 + sum(
            price for allowed, price in given_terms if allowed > delay_ns
        )


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 500), st.integers(0, 100)), max_size=300),
)
def test_the_table_of_what_was_seen_forgets_blocks_and_what_expires_first(
    most: int, rows: list[tuple[str, int, int]]
) -> None:
    seen: Seen[tuple[str]] = Seen(most)
    truth: dict[tuple[tuple[str], int], dict[int, int]] = {}  # by block: the numbers, and when they expire
    for publisher, number, expires_ns in rows:
        block = truth.setdefault(((publisher,), number // BLOCK), {})
        block[number] = max(expires_ns, block.get(number, 0))
        for key in seen.add((publisher,), number, expires_ns):
            assert max(truth[key].values()) == min(max(those.values()) for those in truth.values())
            del truth[key]
        assert seen.has((publisher,), number) or not truth.get(((publisher,), number // BLOCK)) or most < BLOCK
        assert len(seen) <= most
    if most >= BLOCK:
        assert len(seen) == sum(map(len, truth.values()))
        assert all(seen.has(group, number) for (group, _), those in truth.items() for number in those)
    gone = set(seen.forget_old(50))
    for key, those in truth.items():
        assert (key in gone) == (max(those.values()) <= 50)


def test_a_block_of_what_was_seen_is_known_again() -> None:
    seen: Seen[tuple[str]] = Seen(1_000)
    for number in (0, 3, BLOCK - 1, BLOCK):
        seen.add(("p",), number, 70 + number)
    again: Seen[tuple[str]] = Seen(1_000)
    value = seen.value((("p",), 0))
    assert value is not None
    again.restore((("p",), 0), *value)
    assert [number for number in range(2 * BLOCK) if again.has(("p",), number)] == [0, 3, BLOCK - 1]
    assert again.next_expiry_ns == 70 + BLOCK - 1
    assert seen.value((("q",), 0)) is None


def event(sequence: int, since_ns: int = 0) -> Held:
    id = ("p", 1, sequence)
    return Held(
        id, root="a", departure_ns=7, since_ns=since_ns, lifetime_ns=SECOND, size_bytes=1_000, hops=2, content=b"c"
    ).alone()


def test_an_event_survives_its_record() -> None:
    before = event(3)
    before.take_on({"b": ((SECOND, 1.0),)})
    before.take_on_local({"c": {"s": ((2 * SECOND, 0.0),)}})
    after = read_record(before.record(), read_course)
    assert after.expires_ns == before.expires_ns == 2 * SECOND
    assert (after.course.targets, after.course.local) == (before.targets, before.local)
    assert after.record() == before.record()


def test_an_event_is_stored_and_sent_as_the_wire_says() -> None:
    held = event(3)
    held.take_on({"b": ((SECOND, 1.0),)})
    facts = ("p", 1, 3, "a", 7)
    held.error_ns, held.period, held.check = 9, 4, 5
    assert held.record() == encode_plain((*facts, 0, SECOND, 1_000, 2, {"b": ((SECOND, 1.0),)}, {}, b"c", 9, 4, 5))
    message = Event(*facts, 5, SECOND, 1_000, 2, b"c", error_ns=9, period=4, check=5)
    assert held.encode(5) == held.encode_once(5) == encode_plain(message)


def test_records_and_events_of_versions_before_say_no_error_no_period_and_no_checksum() -> None:
    facts = ("p", 1, 3, "a", 7, 0, SECOND, 1_000, 2)
    held = read_record(encode_plain((*facts, {"b": ((SECOND, 1.0),)}, {}, b"c")), read_course)
    assert (held.error_ns, held.period, held.check, held.content) == (None, 0, None, b"c")
    event = msgspec.msgpack.decode(encode_plain((*facts, b"c", None)), type=Event)
    assert (event.error_ns, event.period, event.check, event.content) == (None, 0, None, b"c")


def test_a_meter_says_by_how_much_it_may_be_wrong() -> None:
    """Half of the round trip, and 200 ppm of the time since the question."""
    meter = LinkMeter()
    assert meter.error_ns(0) is None
    meter.read_clock(7_000 * SECOND, 10 * SECOND, 10 * SECOND + 4 * MS)
    assert meter.error_ns(10 * SECOND + 4 * MS) == 2 * MS + 800
    assert meter.error_ns(70 * SECOND) == 2 * MS + 12 * MS
    meter.read_clock(7_060 * SECOND, 70 * SECOND, 70 * SECOND + 40 * MS)
    assert meter.error_ns(70 * SECOND + 40 * MS) == 2 * MS + 12 * MS + 8_000, "the better one is kept"
    meter.read_clock(9_000 * SECOND, 70 * SECOND, 70 * SECOND + 40 * MS)
    assert meter.error_ns(70 * SECOND + 40 * MS) == 20 * MS + 8_000, "that is another clock"


def test_a_client_counts_the_time_that_a_reading_was_under_way_to_it() -> None:
    """What its broker has reported of the clocks was right when the ping left."""
    meter = LinkMeter()
    meter.set_clock(5 * SECOND, MS, 10 * SECOND, 16 * SECOND)
    assert meter.error_ns(16 * SECOND) == MS + 1_200_000


@given(
    before=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), max_size=20),
    together=st.dictionaries(st.integers(0, 200), st.integers(1, 50), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_events_remembered_together_are_remembered_as_one_by_one(
    before: list[tuple[int, int]], together: dict[int, int]
) -> None:
    memories, woken, stored = [], [], []
    for which in range(2):
        at: list[int] = []
        kept: dict[str, bytes] = {}
        memory = Memory(
            BrokerSettings(name="a"),
            store=kept.__setitem__,
            erase=kept.__delitem__,
            count=lambda *_: None,
            wake_by=at.append,
        )
        for number, since_ns in before:
            memory.remember(("p", 1, number), since_ns + 7)
        events = [event(number, since_ns) for number, since_ns in together.items()]
        batch = memory.batch(events, 7)
        assert memory.seen.has_any(batch) == any(memory.has(held.id) for held in events)
        if which:
            memory.remember_all(events, 7, batch)
        else:
            for held in events:
                memory.remember(held.id, held.since_ns + 7)
        assert all(memory.has(held.id) for held in events)
        memories.append((len(memory), memory.next_expiry_ns))
        woken.append(min(at))
        memory.flush()
        stored.append(list(kept.items()))
    assert memories[0] == memories[1]
    assert woken[0] == woken[1]
    assert stored[0] == stored[1]


def test_the_outbox_sends_what_is_worth_most_and_drops_what_is_worth_least() -> None:
    broker = Broker(BrokerSettings(name="a", neighbours=frozenset("b"), max_queued=3))
    peer = Peer("b", "broker", broker._outbox(3))
    parcels = [
        Parcel(event(n), peer, {"t": ((delay_s * SECOND, price),)}, {})
        for n, (delay_s, price) in enumerate([(1, 3.0), (5, 9.0), (9, 1.0), (9, 2.0)])
    ]
    dropped = [gone for parcel in parcels for gone in peer.outbox.enqueue([parcel], 0)]
    assert dropped == [parcels[2]]
    assert peer.outbox.next(0)[0] is parcels[1]
    sent, deleted = peer.outbox.next(8 * SECOND)
    assert sent is parcels[3]
    assert deleted == [(parcels[0], "expired")]


def test_an_outbox_sends_again_later_each_time_and_never_samples_what_it_sent_twice() -> None:
    broker = Broker(BrokerSettings(name="a", neighbours=frozenset("b")))
    peer = Peer("b", "broker", broker._outbox(3))
    parcel = Parcel(event(0), peer, {"t": ((9 * SECOND, 1.0),)}, {})
    peer.outbox.send(parcel, encode_plain({}), 0)
    assert len(list(peer.outbox.frames(1, 0))) == 1
    waits, now_ns = [], 0
    for _ in range(6):
        waits.append(parcel.due_ns - now_ns)
        now_ns = parcel.due_ns
        assert list(peer.outbox.window.due(now_ns)) == [parcel]
    assert waits == sorted(waits)
    assert waits[-1] == broker.settings.retry_most_ns
    assert peer.outbox.acknowledge([(0, 2**60)], 0, now_ns) == [parcel]
    assert peer.outbox.acknowledge([(0, 0)], 0, now_ns) == []
    assert peer.meter.samples == 0


def test_every_state_can_be_left_and_the_picture_shows_every_step() -> None:
    assert {before for before, _ in PEER_STEPS} == set(PeerState)
    for table in (PEER_STEPS, TRANSFER_STEPS):
        picture = diagram(table)
        assert picture.count("-->") == len(table)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(0, 12), st.booleans())))
def test_an_inbox_that_takes_runs_at_once_knows_the_same_numbers(steps: list[tuple[int, int, int, bool]]) -> None:
    inbox, plain = Inbox(), Inbox()
    for number, count, floor, is_at_once in steps:
        found, expected = inbox.look(number, count, floor), plain.look(number, count, floor)
        assert tuple(map(list, found)) == tuple(map(list, expected))
        if new := expected[0]:
            plain.take(new)
            plain.acknowledge(new)
            if is_at_once and isinstance(found[0], range):
                inbox.take_at_once(found[0])
            else:
                inbox.take(new)
                inbox.acknowledge(new)
        assert len(inbox) == len(plain)
    assert inbox.acknowledged() == plain.acknowledged()


def test_a_local_peer_is_sent_what_is_held_and_the_same_as_bytes_once_it_is_elsewhere() -> None:
    broker = Broker(BrokerSettings(name="a", neighbours=frozenset("b")))
    targets = encode_plain({"s": ()})

    def frames(*, goes: bool) -> list[Any]:
        peer = Peer("b", "client", broker._outbox(3))
        peer.outbox.move(is_local=True, now_ns=5)
        shared = [event(0), event(1)]
        peer.outbox.leave(targets, shared, 2, 2, 10**9)
        peer.outbox.leave(targets, [event(2)], 1, 1, 10**9)
        assert len(shared) == 2  # the list of others
        if goes:
            peer.outbox.move(is_local=False, now_ns=5)
        return list(peer.outbox.frames(1, 5))

    ((parts,), (frame,)) = frames(goes=False), frames(goes=True)
    assert isinstance(parts, Parts)
    assert parts.message() == decode(frame)
    bundle = Bundles(SECOND).of(parts)
    assert bundle is None  # their contents are empty, so they are refused one by one
