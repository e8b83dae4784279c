"""The latest value only: while events wait for a subscription, a newer one of the same key replaces the older."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.ordering import Policy
from tidings.protocol import Balance, Broker, Client, ClientSettings, RequestError, attributes_of_key, wire
from tidings.protocol.links._latest import Latest, is_newer, key_of
from tidings.scheduling import Strategy

from .conftest import Wire

SECOND = 10**9
FIFO = {"strategy": Strategy.fifo()}


def shop(symbols: tuple[str, ...] = ("symbol",), *, name: str = "s", **more: Any) -> Wire:
    """A broker, a publisher of quotes, and a subscriber that wants the latest of each symbol."""
    wire = Wire()
    wire.chain("b", **{**FIFO, **more})
    wire.client("p", "b")
    wire.client(name, "b")
    wire.call("p", "advertise", "all", "TRUE")
    wire.call(name, "subscribe", "quotes", "price >= 0", conflate=symbols)
    return wire


def quote(wire: Wire, price: int, *, by: str = "p", lifetime_ns: int | None = None, **attributes: Any) -> None:
    wire.call(by, "publish", {**attributes, "price": price}, lifetime_ns=lifetime_ns)


def got(wire: Wire, client: str = "s", subscription: str = "quotes") -> list[int]:
    return [each.attributes["price"] for each in wire.delivered(client) if each.subscription == subscription]  # type: ignore[misc]


def account(wire: Wire, name: str = "s/quotes") -> Balance:
    broker = wire.machines["b"]
    assert isinstance(broker, Broker)
    known = broker.accounts.balances()[name].known
    settled = known.on_time + known.late + known.dropped + known.lost
    assert known.matched == settled + known.replaced + known.under_way
    return known


def counts(balance: Balance) -> tuple[int, int, int, int, int]:
    return balance.matched, balance.on_time, balance.dropped, balance.replaced, balance.under_way


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_all_its_values_and_a_missing_one_is_none() -> None:
    event = {"symbol": "IBM", "venue": 1, "open": True}
    assert key_of(event, ("symbol",)) == key_of({"symbol": "IBM"}, ("symbol",))
    assert key_of(event, ("symbol", "venue")) == key_of({**event, "venue": 1.0}, ("symbol", "venue"))
    assert key_of(event, ("open",)) != key_of({"open": 1}, ("open",))
    assert key_of(event, ("symbol", "nothing")) is None


def test_the_later_of_a_publisher_is_newer_and_of_two_the_one_that_came_later() -> None:
    assert is_newer(("p", 1, 8), ("p", 1, 7))
    assert is_newer(("p", 2, 0), ("p", 1, 7))
    assert not is_newer(("p", 1, 7), ("p", 1, 8))
    assert not is_newer(("p", 1, 8), ("q", 1, 7))


def test_what_has_left_is_the_latest_no_more() -> None:
    latest: Latest[str] = Latest()
    one, other = key_of({"x": 1}, ("x",)), key_of({"x": 2}, ("x",))
    assert one is not None
    assert other is not None
    latest.enter("a", {"s": one, "t": one})
    latest.enter("b", {"s": one})
    latest.leave("a")
    assert (latest.get("s", one), latest.get("t", one), len(latest)) == ("b", None, 1)
    latest.replace("b", "c")
    latest.leave("b")
    assert (latest.get("s", one), latest.get("s", other)) == ("c", None)
    latest.leave("c")
    assert not len(latest)


@pytest.mark.parametrize("text", ["", "symbol,", " ,venue", ",".join("abcdefghi"), "x" * 256])
def test_a_key_without_names_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="symbol,venue"):
        attributes_of_key(text)


def test_the_names_of_a_key_are_separated_by_commas() -> None:
    assert attributes_of_key(" symbol, venue ,symbol") == ("symbol", "venue")


def test_a_client_refuses_a_key_that_no_message_can_contain() -> None:
    client = Client(ClientSettings(name="s"))
    for conflate in [tuple("abcdefghi"), ("",), ("x" * 256,)]:
        with pytest.raises(RequestError, match=r"from 1 to|at most"):
            client.subscribe("quotes", "TRUE", 0, conflate=conflate)


# -- what waits ------------------------------------------------------------------------------------------------------


def test_a_reader_that_was_slow_gets_the_latest_of_each_symbol() -> None:
    wire = shop()
    quote(wire, 1, symbol="IBM")
    wire.call("s", "pause")
    for price in range(2, 30):
        quote(wire, price, symbol=("IBM", "SAP")[price % 2])
    assert counts(account(wire)) == (29, 1, 0, 26, 2)
    wire.call("s", "resume")
    wire.pass_time(2 * SECOND)
    assert got(wire) == [1, 28, 29]
    assert counts(account(wire)) == (29, 3, 0, 26, 0)
    assert account(wire).on_time_share == 1.0


def test_events_without_the_attribute_are_all_kept() -> None:
    wire = shop(("symbol", "venue"))
    wire.call("s", "pause")
    for price in range(3):
        quote(wire, price, symbol="IBM")
        quote(wire, 10 + price, symbol="IBM", venue="X")
    wire.call("s", "resume")
    assert got(wire) == [0, 12, 1, 2]


def test_an_event_that_others_want_too_is_replaced_for_the_one_alone() -> None:
    wire = shop()
    wire.client("t", "b")
    wire.call("t", "subscribe", "quotes", "price >= 0")
    wire.call("s", "subscribe", "whole", "price >= 5")
    for reader in "st":
        wire.call(reader, "pause")
    for price in range(10):
        quote(wire, price, symbol="IBM")
    for reader in "st":
        wire.call(reader, "resume")
    wire.pass_time(2 * SECOND)
    assert got(wire) == [9]
    assert got(wire, "s", "whole") == [5, 6, 7, 8, 9]
    assert got(wire, "t") == [*range(10)]
    assert counts(account(wire)) == (10, 1, 0, 9, 0)
    assert counts(account(wire, "s/whole")) == (5, 5, 0, 0, 0)
    assert counts(account(wire, "t/quotes")) == (10, 10, 0, 0, 0)
    broker = wire.machines["b"]
    assert isinstance(broker, Broker)
    assert not broker.carrier.holdings.held
    assert not [key for key in wire.disks["b"] if key.startswith("event/")]


def test_an_event_that_has_overtaken_a_newer_one_does_not_replace_it(row: Wire) -> None:
    row.call("s", "subscribe", "latest", "x > 5", conflate=("k",))
    row.links.discard(("a", "b"))
    row.call("p", "publish", {"x": 7, "k": 1})
    row.links.add(("a", "b"))
    row.call("s", "pause")
    row.call("p", "publish", {"x": 8, "k": 1})
    row.pass_time(3 * SECOND)  # the first is sent again, and arrives after the second
    row.call("s", "resume")
    row.pass_time(1 * SECOND)
    assert [each.attributes["x"] for each in row.delivered("s") if each.subscription == "latest"] == [8]


def test_a_key_that_changes_all_the_time_gets_its_turn() -> None:
    """A newer event takes the place of the one that it replaces."""
    wire = shop()
    wire.call("s", "pause")
    quote(wire, 0, symbol="busy")
    for price in range(1, 5):
        quote(wire, price, symbol=f"quiet{price}")
    for price in range(10, 20):
        quote(wire, price, symbol="busy")
    wire.call("s", "resume")
    assert got(wire) == [19, 1, 2, 3, 4]


def test_a_newer_event_outlives_the_place_that_it_has_taken() -> None:
    wire = shop(strategy=Strategy.triage())
    wire.disconnect("s", "b")
    quote(wire, 0, symbol="IBM", lifetime_ns=2 * SECOND)
    quote(wire, 1, symbol="IBM", lifetime_ns=60 * SECOND)
    quote(wire, 2, symbol="SAP", lifetime_ns=2 * SECOND)
    wire.pass_time(5 * SECOND)
    wire.connect("s", "b")
    wire.settle()
    wire.pass_time(2 * SECOND)
    assert got(wire) == [1]
    assert counts(account(wire)) == (3, 1, 1, 1, 0)


def test_a_full_queue_gives_up_the_event_and_not_the_place() -> None:
    wire = shop(max_queued_client=4)
    wire.call("s", "pause")
    for price in range(4):
        quote(wire, price, symbol=f"s{price}")
    for price in range(10, 14):
        quote(wire, price, symbol=f"s{price - 10}")
    assert counts(account(wire))[2:] == (0, 4, 4)
    quote(wire, 20, symbol="new")
    assert account(wire).dropped == 1
    wire.call("s", "resume")
    wire.pass_time(SECOND)
    assert len(got(wire)) == 4
    assert set(got(wire)) <= {10, 11, 12, 13, 20}


# -- clients that come back -------------------------------------------------------------------------------------------


def test_the_first_thing_after_a_reconnect_is_the_latest() -> None:
    wire = shop()
    wire.links.discard(("b", "s"))  # what is under way when the connection ends
    quote(wire, 0, symbol="IBM")
    quote(wire, 1, symbol="SAP")
    wire.disconnect("s", "b")
    for price in range(2, 9):
        quote(wire, price, symbol="IBM")
    wire.connect("s", "b")
    wire.settle()
    wire.pass_time(3 * SECOND)
    assert got(wire) == [1, 8]
    assert counts(account(wire)) == (9, 2, 0, 7, 0)


def test_what_was_replaced_under_way_and_had_arrived_is_counted_once() -> None:
    wire = shop()
    wire.links.discard(("s", "b"))  # the acknowledgement is lost with the connection
    quote(wire, 0, symbol="IBM")
    wire.disconnect("s", "b")
    quote(wire, 1, symbol="IBM")
    wire.connect("s", "b")
    wire.settle()
    wire.pass_time(3 * SECOND)
    assert got(wire) == [0, 1]
    assert counts(account(wire)) == (2, 2, 0, 0, 0)


@pytest.mark.parametrize("read_at_once", [1, 1_000])
def test_a_broker_that_starts_again_sends_the_latest_of_its_store(read_at_once: int) -> None:
    wire = shop(read_at_once=read_at_once)
    wire.disconnect("s", "b")
    for price in range(6):
        quote(wire, price, symbol="IBM")
        quote(wire, 10 + price, symbol="SAP")
    wire.crash("b")
    wire.disks["b"] = dict(wire.disks["b"])
    wire.add(wire.broker("b", kept=wire.disks["b"], read_at_once=read_at_once, **FIFO), links=())
    wire.pass_time(4 * SECOND)
    wire.connect("s", "b")
    wire.settle()
    wire.pass_time(2 * SECOND)
    assert sorted(got(wire)) == [5, 15]
    assert not [key for key in wire.disks["b"] if key.startswith("event/")]


def test_order_is_kept_and_a_replaced_event_is_no_gap() -> None:
    wire = shop()
    wire.call("s", "subscribe", "sorted", "price >= 0", policy=Policy.parse("ours-record"), conflate=("symbol",))
    wire.call("s", "pause")
    for price in range(12):
        quote(wire, price, symbol=("IBM", "SAP")[price % 4 == 0])
    wire.call("s", "resume")
    before_ns = wire.now_ns
    assert got(wire, subscription="sorted") == [8, 11]
    assert wire.now_ns == before_ns  # nothing is waited for


# -- against a plain model --------------------------------------------------------------------------------------------

KEYS: dict[str, tuple[str, ...]] = {"one": ("k",), "two": ("k", "m"), "all": ()}


class PlainQueue:
    """What must wait for a client: for each subscription the events, in the order in which they came."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[int, Any]] = {name: {} for name in KEYS}
        self.replaced = dict.fromkeys(KEYS, 0)

    def come(self, number: int, event: dict[str, int]) -> None:
        for name, attributes in KEYS.items():
            values = tuple(event.get(each) for each in attributes)
            key = None if None in values or not attributes else values
            same = [old for old, other in self.waiting[name].items() if key is not None and other == key]
            for old in same:
                del self.waiting[name][old]
            self.replaced[name] += len(same)
            self.waiting[name][number] = key


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.sampled_from([None, 0, 1]), st.booleans()), max_size=25
    ),
    restarts=st.booleans(),
    strategy=st.sampled_from([Strategy.fifo(), Strategy.triage(), Strategy.eb()]),
)
def test_what_waits_is_what_a_plain_queue_would_hold(
    events: list[tuple[str, int, int | None, bool]], restarts: bool, strategy: Strategy
) -> None:
    wire, plain = Wire(), PlainQueue()
    wire.chain("b", strategy=strategy)
    for name in "pqs":
        wire.client(name, "b")
    for name, attributes in KEYS.items():
        wire.call("s", "subscribe", name, "price >= 0", conflate=attributes)
    wire.call("p", "advertise", "all", "TRUE")
    wire.call("q", "advertise", "all", "TRUE")
    wire.call("s", "pause")
    for number, (publisher, k, m, comes_back) in enumerate(events):
        event = {"k": k, "price": number} | ({} if m is None else {"m": m})
        wire.call(publisher, "publish", event)
        plain.come(number, event)
        if comes_back and restarts:
            wire.disconnect("s", "b")
            wire.connect("s", "b")
            wire.settle()
    found = account(wire, "s/one") if events else None
    if found is not None:
        assert found.replaced == plain.replaced["one"]
    wire.call("s", "resume")
    wire.pass_time(SECOND)
    for name in KEYS:
        assert set(got(wire, subscription=name)) == set(plain.waiting[name])
        if events:
            many = len(plain.waiting[name])
            assert counts(account(wire, f"s/{name}")) == (len(events), many, 0, plain.replaced[name], 0)
    broker = wire.machines["b"]
    assert isinstance(broker, Broker)
    queue = broker.clients["s"].outbox.queue
    assert (queue.size, queue.size_bytes, len(queue._waiting), len(queue._roots)) == (0, 0, 0, 0)
    assert queue.latest is None or not len(queue.latest)
    assert not broker.carrier.holdings.held


# -- peers and stores that do not know of it --------------------------------------------------------------------------


def test_a_subscription_of_an_older_peer_wants_all_events() -> None:
    old = wire.encode_plain([14, "b", 1, 1, 1, 0, 0, [["s/s", "x > 1", None, 1.0, 0, None]], []])
    message = wire.decode(old)
    assert isinstance(message, wire.Interest)
    assert message.added[0].conflate == ()


def test_a_former_broker_ignores_the_key_of_a_subscription() -> None:
    former = msgspec.defstruct(
        "Former",
        [("name", str), ("filter", str), ("max_delay_ns", int | None), ("price", float), ("late_ns", int)],
        array_like=True,
    )
    entry = wire.Entry("s", "x > 1", None, 1.0, 0, None, ("symbol",))
    assert msgspec.msgpack.decode(wire.encode_plain(entry), type=former).filter == "x > 1"
