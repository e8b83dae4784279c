"""What one client may take: bytes that wait for it, bytes in all, traffic, and the processor time of its filters."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.door import NOW, SECOND, STEP_NS, Door

from tidings.matching import matching_us
from tidings.model.filters import Filter
from tidings.protocol import Broker, BrokerSettings, Budget, Purse, Send, Store, Sync, parsed, wire
from tidings.protocol.broker import _courses
from tidings.protocol.links._pace import FIRST, LEAST

KB = 1_000
ARITHMETIC = " OR ".join(f"x + {n} * y > z - {n}" for n in range(600))
ALTERNATIVES = " OR ".join(f"(x > {n} AND y < {3 * n})" for n in range(600))
PATTERNS = " OR ".join(f"name LIKE '%a{n}_b%'" for n in range(600))


def living(**more: Any) -> Broker:
    """A broker with a publisher `p` and a subscriber `s`."""
    broker = Broker(BrokerSettings(name="b", tracing=False, **more))
    confirm(broker, broker.start(NOW))
    for name in ("p", "s"):
        broker.connected(name, NOW)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 256)), NOW)
    confirm(broker, broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), NOW))
    subscribe(broker, "s", 0, "x >= 0")
    return broker


def confirm(broker: Broker, effects: list[Any]) -> list[Any]:
    """Its disk is quick."""
    seen = list(effects)
    for effect in effects:
        if isinstance(effect, Sync):
            seen += confirm(broker, broker.synced(effect.token, NOW))
    return seen


def messages_to(effects: list[Any], to: str) -> list[wire.Message]:
    return [wire.decode(effect.frame) for effect in effects if type(effect) is Send and effect.connection == to]


def subscribe(broker: Broker, client: str, number: int, text: str) -> list[wire.Message]:
    request = wire.Subscribe(broker.epoch, number, wire.Entry(f"n{number}", text, None, 1.0, 0))
    return messages_to(confirm(broker, broker.receive(client, wire.encode(request), NOW)), client)


def publish(broker: Broker, first: int, count: int, size_bytes: int, lifetime_s: int = 60) -> list[wire.Message]:
    content = wire.encode_content(wire.Content({"x": 1}, b"", bytes(size_bytes)))
    numbers = range(first, first + count)
    events = tuple(wire.Publication(n, NOW, 0, lifetime_s * SECOND, size_bytes, content) for n in numbers)
    frame = wire.encode(wire.Publish(1, first, 0, events))
    return messages_to(confirm(broker, broker.receive("p", frame, NOW)), "p")


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_away", [True, False])
def test_what_waits_for_one_client_is_bounded_in_bytes(is_away: bool) -> None:
    broker = living(budget=Budget(queued_bytes=500 * KB))
    if is_away:
        broker.disconnected("s", NOW)
    else:
        broker.congested("s", True, NOW)
    for first in range(0, 120, 4):
        publish(broker, first, 4, 90 * KB)
    outbox = broker.clients["s"].outbox
    assert 0 < outbox.queue.size_bytes <= 500 * KB
    assert outbox.queued == len(broker.carrier.holdings) == 5
    assert broker.carrier.holdings.size_bytes == outbox.queue.size_bytes
    assert broker.is_within_bounds()
    balance = broker.accounts.balances()["s/n0"].known
    assert (balance.matched, balance.dropped, balance.under_way) == (120, 115, 5)


def test_what_is_under_way_to_one_client_is_bounded_in_bytes() -> None:
    broker = living(max_under_way_bytes=20 * KB)  # less than what any link gets at first
    for first in range(20):
        publish(broker, first, 1, 6 * KB)
    outbox = broker.clients["s"].outbox
    assert outbox.window.size_bytes < 27 * KB
    assert outbox.under_way == 4
    assert outbox.queued == 16
    broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((0, 3),), 0, 256)), NOW)
    assert (outbox.under_way, outbox.queued) == (4, 12)


def test_a_link_of_which_nothing_is_known_gets_few_long_events() -> None:
    broker = living()
    for first in range(20):
        publish(broker, first, 1, 90 * KB)
    outbox = broker.clients["s"].outbox
    assert (outbox.under_way, outbox.queued) == (LEAST, 18)
    broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((0, 0),), 0, 256)), NOW)
    assert (outbox.under_way, outbox.queued) == (LEAST, 17)


def test_the_bytes_of_what_expires_under_way_are_on_the_link_until_a_later_one_is_acknowledged() -> None:
    broker = living()
    for first in range(20):
        publish(broker, first, 1, 6 * KB, lifetime_s=5)
    outbox = broker.clients["s"].outbox
    sent = outbox.under_way
    assert LEAST < sent < FIRST  # bytes are the limit
    broker.wake(NOW + 6 * SECOND)
    assert (outbox.under_way, outbox.queued) == (0, 0)
    for first in range(20, 30):
        publish(broker, first, 1, 6 * KB, lifetime_s=60)
    assert outbox.under_way == LEAST
    broker.receive("s", wire.encode(wire.Ack(broker.epoch, ((sent - 1, sent - 1),), 0, 256)), NOW)
    assert outbox.under_way > LEAST


def test_what_is_stored_is_bounded_in_bytes_and_publishers_have_to_wait() -> None:
    broker = living(max_stored_bytes=400 * KB, budget=Budget(queued_bytes=10**9))
    broker.disconnected("s", NOW)
    (ack,) = publish(broker, 0, 8, 90 * KB, lifetime_s=5)
    assert isinstance(ack, wire.Ack)
    assert ack.numbers == ((0, 4),)  # the one that it went over with is taken
    assert ack.credit == 0
    assert broker.counts["no room"] == 1
    assert not any(isinstance(each, wire.Ack) for each in publish(broker, 5, 1, 90 * KB))
    assert broker.is_within_bounds()
    confirm(broker, broker.wake(NOW + 6 * SECOND))
    assert broker.carrier.holdings.size_bytes == 0
    (ack,) = publish(broker, 5, 1, 90 * KB)
    assert isinstance(ack, wire.Ack)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 4), st.integers(1, 60)),
            st.tuples(st.just("congested"), st.booleans()),
            st.tuples(st.just("acknowledge"), st.integers(0, 20)),
            st.tuples(st.just("wait"), st.integers(1, 40)),
        ),
        max_size=30,
    )
)
def test_bytes_are_accounted_for_whatever_happens(steps: list[Any]) -> None:
    broker = living(budget=Budget(queued_bytes=100 * KB), max_under_way_bytes=80 * KB)
    first, now_ns = 0, NOW
    for what, *more in steps:
        if what == "publish":
            publish(broker, first, more[0], more[1] * KB)
            first += more[0]
        elif what == "congested":
            broker.congested("s", more[0], now_ns)
        elif what == "acknowledge":
            ack = wire.Ack(broker.epoch, ((0, more[0]),), 0, 256)
            confirm(broker, broker.receive("s", wire.encode(ack), now_ns))
        else:
            now_ns += more[0] * SECOND
            confirm(broker, broker.wake(now_ns))
        holdings, outbox = broker.carrier.holdings, broker.clients["s"].outbox
        assert holdings.size_bytes == sum(len(held.content) for held in holdings.held.values())
        assert holdings.size_bytes == outbox.queue.size_bytes + outbox.window.size_bytes
        assert broker.is_within_bounds()


def test_courses_of_many_receivers_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_courses, "_MOST_RECEIVERS", 100)
    broker = living()
    for number in range(1, 10):
        subscribe(broker, "s", number, "x >= 0")
    for first in range(50):
        content = wire.encode_content(wire.Content({"x": 1}, b"", b""))
        event = wire.Publication(first, NOW, 0, (60 + first) * SECOND, 10, content)
        confirm(broker, broker.receive("p", wire.encode(wire.Publish(1, first, 0, (event,))), NOW))
        assert len(broker.carrier.courses._known) <= 10


# -- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ARITHMETIC, ALTERNATIVES, PATTERNS])
def test_filters_that_cost_too_much_for_each_event_are_refused_with_the_figure(text: str) -> None:
    broker = living(budget=Budget(matching_us=100.0))
    (error,) = subscribe(broker, "s", 1, text)
    assert isinstance(error, wire.Error)
    assert error.code == "budget"
    figure = f"{matching_us(parsed(text)):,.0f}"
    assert f"this one {figure}; the limit is 100" in error.text
    assert broker.refused["budget"] == 1
    assert "n1" not in broker.gossip.local.of("s")


def test_cheap_filters_are_not_refused_and_what_ends_is_given_back() -> None:
    cost_us = matching_us(parsed(PATTERNS))
    broker = living(budget=Budget(matching_us=2.5 * cost_us), max_matching_us=1e9)
    for number in (1, 2):
        assert isinstance(subscribe(broker, "s", number, f"{PATTERNS} OR k = {number}")[0], wire.Done)
    assert isinstance(subscribe(broker, "s", 3, f"{PATTERNS} OR k = 3")[0], wire.Error)
    for number in range(4, 40):
        assert isinstance(subscribe(broker, "s", number, f"k = {number} AND x IN (1, 2, 3)")[0], wire.Done)
    gone = wire.Unsubscribe(broker.epoch, 40, "n1")
    confirm(broker, broker.receive("s", wire.encode(gone), NOW))
    assert isinstance(subscribe(broker, "s", 41, f"{PATTERNS} OR k = 41")[0], wire.Done)
    assert broker.registry.matching_us("s") <= 2.5 * cost_us


def test_costly_filters_of_many_clients_are_refused_when_they_cost_too_much_together() -> None:
    cost_us = matching_us(parsed(PATTERNS))
    broker = living(budget=Budget(matching_us=1.5 * cost_us), max_matching_us=2.5 * cost_us)
    names = ("c0", "c1", "c2")
    for name in names:
        broker.connected(name, NOW)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 256)), NOW)
    answers = [subscribe(broker, name, 0, f"{PATTERNS} OR k = {n}")[0] for n, name in enumerate(names)]
    assert [type(answer) for answer in answers] == [wire.Done, wire.Done, wire.Error]
    assert isinstance(answers[2], wire.Error)
    assert "matching_all" in answers[2].text
    assert isinstance(subscribe(broker, "c2", 1, "k = 1")[0], wire.Done)
    confirm(broker, broker.receive("c0", wire.encode(wire.Unsubscribe(broker.epoch, 1, "n0")), NOW))
    assert isinstance(subscribe(broker, "c2", 2, f"{PATTERNS} OR k = 2")[0], wire.Done)


def test_advertisements_count_as_well() -> None:
    broker = living(budget=Budget(matching_us=100.0))
    request = wire.Advertise(broker.epoch, 1, "costly", ARITHMETIC)
    (error,) = messages_to(confirm(broker, broker.receive("p", wire.encode(request), NOW)), "p")
    assert isinstance(error, wire.Error)
    assert error.code == "budget"


def test_a_filter_with_tests_alone_costs_little_however_long_it_is() -> None:
    listed = f"x IN ({', '.join(map(str, range(3_000)))})"
    assert matching_us(Filter.parse(listed)) < 1.0
    assert matching_us(Filter.parse(ARITHMETIC)) > 500.0


# -- rates -----------------------------------------------------------------------------------------------------------


def test_long_filters_are_read_one_after_the_other_and_others_go_first() -> None:
    door = Door(Budget(reading_share=0.1))
    for name in ("fat", "lean", "rich-1"):
        door.come(name)
    door.say("fat", door.fat(0, 12))
    door.wait(0.5)
    assert 0 < door.subscriptions("fat") < 4
    assert door.reads[0] == ("fat", False)
    quick = wire.Subscribe(door.machine.epoch, 0, wire.Entry("n", "x = 1", None, 1.0, 0))
    door.say("lean", [wire.encode(quick)])
    assert door.subscriptions("lean") == 1
    door.say("fat", door.fat(12, 1))  # what was under way when it was held back
    assert door.subscriptions("fat") < 4
    seen = []
    for _ in range(40):
        seen.append(door.subscriptions("fat"))
        door.wait(0.5)
    assert seen == sorted(seen)
    assert door.subscriptions("fat") == 13
    assert door.reads[-1] == ("fat", True)
    assert door.purse("fat").was_held_back > 5
    assert door.purse("lean").was_held_back == 0


def test_many_requests_of_one_client_are_looked_at_some_in_a_turn_and_others_go_in_between() -> None:
    door = Door(Budget())
    for name in ("many", "few"):
        door.come(name)

    def requests(texts: list[str]) -> list[bytes]:
        entries = [wire.Entry(f"n{n}", text, None, 1.0, 0) for n, text in enumerate(texts)]
        return [wire.encode(wire.Subscribe(door.machine.epoch, n, entry)) for n, entry in enumerate(entries)]

    door.say("many", requests([f"x = {n}" for n in range(200)]))
    first = door.subscriptions("many")
    assert 0 < first < 100
    door.say("few", requests(["y = 1"]))
    assert door.subscriptions("many") <= 2 * first
    assert door.subscriptions("few") == 1
    turns = 0
    while door.subscriptions("many") < 200:
        before, turns = door.subscriptions("many"), turns + 1
        assert turns < 50
        door.wait(STEP_NS / SECOND)
        assert door.subscriptions("many") - before <= first
    assert list(door.machine.gossip.local.of("many")) == [f"n{n}" for n in range(200)]
    assert door.purse("many").was_held_back == 0
    assert door.reads[-1] == ("many", True)


def test_who_sends_more_bytes_than_it_may_is_held_back() -> None:
    door = Door(Budget(bytes_per_s=10_000.0))
    door.come("c")
    door.come("rich-1")
    frames = [wire.encode(wire.Advertise(door.machine.epoch, n, f"n{n}", f"x = '{'a' * 200}{n}'")) for n in range(200)]
    for name in ("c", "rich-1"):
        door.say(name, frames)
    assert ("c", False) in door.reads
    door.wait(20.0)
    assert door.purse("c").was_held_back > 0
    assert door.purse("rich-1").was_held_back == 0
    assert door.reads[-1] == ("c", True)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(0, 50)), max_size=40))
def test_no_more_than_the_rate_and_one_seconds_worth_gets_through(steps: list[tuple[float, int]]) -> None:
    """If a client that should wait does."""
    purse, now_ns, passed = Purse(Budget(rate_per_s=10.0), 0), 0, 0
    for pause_s, many in steps:
        now_ns += round(pause_s * SECOND)
        now_ns += purse.spend(many, 0, 0.0, now_ns)
        passed += many
        assert passed <= 10.0 * (1.0 + now_ns / SECOND) + 1e-6


def test_what_the_store_kept_counts_too() -> None:
    broker = living()
    broker.congested("s", True, NOW)
    content = wire.encode_content(wire.Content({"x": 1}, b"", bytes(KB)))
    events = tuple(wire.Publication(n, NOW, 0, 60 * SECOND, 10, content) for n in range(9))
    effects = broker.receive("p", wire.encode(wire.Publish(1, 0, 0, events)), NOW)
    kept = {effect.key: effect.value for effect in effects if isinstance(effect, Store)}
    again = Broker(BrokerSettings(name="b", tracing=False, read_at_once=2), kept)
    again.start(NOW)
    holdings = again.carrier.holdings
    assert holdings.unread
    assert holdings.size_bytes >= 9 * KB
    again.carrier.read_on(NOW)
    assert len(holdings.held) == 9
    assert holdings.size_bytes == sum(len(held.content) for held in holdings.held.values())
