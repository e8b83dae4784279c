"""Accounts that balance: of every subscription it is known what became of all the events that matched it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.ordering import Policy, Stamper
from tidings.protocol import Client, ClientSettings, wire
from tidings.protocol.broker._account import BATCHES_MOST, Balance, Batches
from tidings.protocol.broker._ledgers import MAX_ROWS, PERIOD_NS, UNAUDITED, _Page
from tidings.protocol.wire import Outcome
from tidings.scheduling import Strategy

SECOND = 10**9


def account(row: Any, name: str = "s/some", broker: str = "c") -> Balance:
    known = row.machines[broker].accounts.balances()[name].known
    assert known.matched == known.on_time + known.late + known.dropped + known.lost + known.under_way
    return known


def counts(balance: Balance) -> tuple[int, int, int, int, int, int]:
    return (
        balance.matched,
        balance.on_time,
        balance.late,
        balance.dropped,
        balance.lost,
        balance.under_way,
    )


def test_the_client_reports_what_is_on_time_late_and_discarded(row: Any) -> None:
    row.call("s", "subscribe", "strict", "x > 5", max_delay_ns=1 * SECOND)
    row.call("s", "subscribe", "lenient", "x > 5", max_delay_ns=1 * SECOND, late_ns=60 * SECOND)
    row.call("p", "publish", {"x": 7})
    assert [counts(account(row, f"s/{name}")) for name in ("some", "strict", "lenient")] == [(1, 1, 0, 0, 0, 0)] * 3
    row.call("s", "pause")
    row.links.discard(("c", "s"))  # what is under way when it pauses comes late
    row.call("p", "publish", {"x": 8})
    row.pass_time(2 * SECOND)
    assert counts(account(row)) == (2, 1, 0, 0, 0, 1)
    row.links.add(("c", "s"))
    row.call("s", "resume")
    row.pass_time(10 * SECOND)
    assert counts(account(row)) == (2, 2, 0, 0, 0, 0)
    assert counts(account(row, "s/strict")) == (2, 1, 0, 1, 0, 0)
    assert account(row, "s/strict").dropped_by == {"client": 1}
    assert counts(account(row, "s/lenient")) == (2, 1, 1, 0, 0, 0)
    assert counts(row.machines["c"].accounts.total) == (6, 4, 1, 1, 0, 0)
    assert len(row.delivered("s")) == 5


def test_delays_and_holds_are_reported_by_size(row: Any) -> None:
    row.links.discard(("c", "s"))
    row.call("p", "publish", {"x": 8})
    row.pass_time(2 * SECOND)
    row.links.add(("c", "s"))
    row.pass_time(10 * SECOND)
    row.call("p", "publish", {"x": 9})
    assert sum(account(row).delays.values()) == 2
    assert len(account(row).delays) == 2


def test_what_leaves_a_receiver_later_is_reported_later(row: Any) -> None:
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-1000"))
    for x in (10, 1, 11):
        row.call("p", "publish", {"x": x})
    assert counts(account(row, "s/ordered")) == (2, 1, 0, 0, 0, 1)
    row.pass_time(10 * SECOND)
    assert counts(account(row, "s/ordered")) == (2, 2, 0, 0, 0, 0)
    assert sum(account(row, "s/ordered").holds.values()) == 1


def test_what_a_client_held_when_its_life_ended_is_lost(row: Any) -> None:
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-1000"))
    for x in (10, 1, 11):
        row.call("p", "publish", {"x": x})
    row.pass_time(SECOND // 10)  # acknowledged, and held
    row.crash("s")
    row.client("s", "c", epoch=2)
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-1000"))
    row.call("p", "publish", {"x": 12})
    row.pass_time(10 * SECOND)
    assert counts(account(row, "s/ordered")) == (3, 2, 0, 0, 1, 0)


def test_what_comes_out_of_order_and_is_not_wanted_so_is_discarded(row: Any) -> None:
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-0", late="drop"))
    row.call("p", "publish", {"x": 10})
    row.links.discard(("p", "a"))
    row.call("p", "publish", {"x": 11})
    row.links.add(("p", "a"))
    row.call("p", "publish", {"x": 12})
    row.pass_time(10 * SECOND)
    assert counts(account(row, "s/ordered")) == (3, 2, 0, 1, 0, 0)
    assert row.machines["s"].counts["out of order"] == 1


def test_what_expires_for_an_away_client_was_dropped_at_home(row: Any) -> None:
    row.disconnect("s", "c")
    for x in range(6, 26):
        row.call("p", "publish", {"x": x}, lifetime_ns=SECOND // 5)
    assert counts(account(row)) == (20, 0, 0, 0, 0, 20)
    row.pass_time(2 * SECOND)
    assert counts(account(row)) == (20, 0, 0, 20, 0, 0)
    assert account(row).dropped_by == {"c": 20}
    assert row.machines["c"].clients["s"].outbox.queued == 0


def test_what_expires_for_one_was_dropped_though_another_wants_it_for_longer(row: Any) -> None:
    row.add(Client(ClientSettings(name="t", epoch=1)), links=("c",))
    row.call("t", "subscribe", "lenient", "x > 5", late_ns=60 * SECOND)
    row.disconnect("t", "c")
    row.disconnect("s", "c")
    for x in range(6, 26):
        row.call("p", "publish", {"x": x}, lifetime_ns=SECOND // 5)
    row.pass_time(2 * SECOND)
    assert counts(account(row)) == (20, 0, 0, 20, 0, 0)
    assert row.machines["c"].clients["s"].outbox.queued == 0
    assert counts(account(row, "t/lenient")) == (20, 0, 0, 0, 0, 20)
    row.connect("t", "c")
    row.pass_time(2 * SECOND)
    assert counts(account(row, "t/lenient")) == (20, 0, 20, 0, 0, 0)
    row.connect("s", "c")
    row.pass_time(2 * SECOND)
    assert counts(account(row)) == (20, 0, 0, 20, 0, 0)


def test_what_expires_upstream_was_dropped_there(row: Any) -> None:
    """The publisher's home counts what it has accepted for a subscriber that it cannot reach, and says so later."""
    row.cut("b", "c")
    row.disconnect("b", "c")
    row.pass_time(5 * SECOND)
    for x in range(6, 26):
        row.call("p", "publish", {"x": x}, lifetime_ns=SECOND)
    row.pass_time(5 * SECOND)
    row.mend("b", "c")
    for one, other in (("b", "c"), ("c", "b")):
        row.do(one, row.machines[one].connected(other, row.now_ns))
    row.settle()
    row.call("p", "publish", {"x": 30}, lifetime_ns=SECOND)
    row.pass_time(5 * SECOND)
    balance = account(row)
    assert counts(balance) == (21, 1, 0, 20, 0, 0)
    assert balance.dropped_by == {"a": 20}
    assert balance.on_time_share == pytest.approx(1 / 21)


def test_what_a_queue_in_transit_drops_is_reported_by_its_broker(wire: Any) -> None:
    wire.chain("a", "b", "c", strategy=Strategy.fifo(), window=1, max_queued=3)
    wire.client("p", "a")
    wire.client("s", "c")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.links.discard(("b", "c"))
    for x in range(6, 26):
        wire.call("p", "publish", {"x": x})
    wire.pass_time(SECOND // 2)
    wire.links.add(("b", "c"))
    wire.pass_time(20 * SECOND)
    balance = account(wire)
    assert balance.matched == 20
    assert balance.on_time == len(wire.delivered("s")) < 20
    assert balance.dropped_by == {"b": 20 - balance.on_time}


def test_an_event_that_expired_under_way_and_was_there_counts_once(row: Any) -> None:
    """Its sender has given it up when the acknowledgement comes: it was not dropped, after all."""
    for one, other in (("c", "s"), ("b", "c")):
        row.links.discard((other, one))  # the acknowledgement is lost, and with it the connection
        row.call("p", "publish", {"x": 7}, lifetime_ns=SECOND // 2)
        row.pass_time(SECOND)
        row.disconnect(other, one)
        row.connect(other, one)
        row.settle()
        row.pass_time(20 * SECOND)
    assert len(row.delivered("s")) == 2
    assert counts(account(row)) == (2, 2, 0, 0, 0, 0)


def test_who_was_taken_for_lost_acknowledges_again(row: Any) -> None:
    """Its acknowledgement was not read, and the event has expired since: nobody sends it again."""
    row.links.discard(("s", "c"))
    row.call("p", "publish", {"x": 7}, lifetime_ns=SECOND)
    assert len(row.delivered("s")) == 1
    row.pass_time(60 * SECOND)
    assert not row.machines["c"].clients["s"].is_up
    assert account(row).dropped_by == {"c": 1}
    row.links.add(("s", "c"))
    row.pass_time(20 * SECOND)
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_what_vanishes_is_lost_when_its_period_is_over(wire: Any) -> None:
    """Without buffering nobody knows what was on a link that broke."""
    wire.chain("a", "b", "c", scheme="bypass")
    wire.client("p", "a")
    wire.client("s", "c")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.call("p", "publish", {"x": 7}, lifetime_ns=2 * SECOND)
    wire.links.discard(("b", "c"))
    wire.call("p", "publish", {"x": 8}, lifetime_ns=2 * SECOND)
    wire.links.add(("b", "c"))
    wire.pass_time(5 * SECOND)
    assert counts(account(wire)) == (2, 1, 0, 0, 0, 1)
    wire.pass_time(PERIOD_NS + 20 * SECOND)
    assert counts(account(wire)) == (2, 1, 0, 0, 1, 0)


def test_counts_continue_over_clients_and_begin_anew_with_the_broker(row: Any) -> None:
    row.call("p", "publish", {"x": 7})
    row.pass_time(6 * SECOND)
    row.crash("s")
    row.client("s", "c", epoch=2)
    row.call("s", "subscribe", "some", "x > 5")
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    assert counts(account(row)) == (2, 2, 0, 0, 0, 0)
    row.crash("c")
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(6 * SECOND)
    row.call("p", "publish", {"x": 9})
    row.pass_time(PERIOD_NS + 700 * SECOND)
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_an_event_that_is_published_again_after_a_crash_counts_once(row: Any) -> None:
    """The broker that has accepted it may have reported it, or not: it belongs to no period."""
    row.links.discard(("a", "p"))  # no acknowledgement
    row.call("p", "publish", {"x": 7})
    row.crash("a")
    row.links.add(("a", "p"))
    row.add(row.broker("a", "b", kept=dict(row.disks["a"])))
    row.do("p", row.machines["p"].disconnected("a", row.now_ns))
    row.do("p", row.machines["p"].connected("a", row.now_ns))
    row.settle()
    row.pass_time(PERIOD_NS + 700 * SECOND)
    assert len(row.delivered("s")) == 1
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def content_of(attributes: dict[str, Any], now_ns: int) -> bytes:
    return wire.encode_content(wire.Content(attributes, Stamper(record=0).stamp(attributes, now_ns).encode(), b""))


def transfer(row: Any, source: str, target: str, number: int, root: str, period: int) -> None:
    """An event of q for the home c, as a broker hands it to the next one."""
    now_ns, machine = row.now_ns, row.machines[target]
    content = content_of({"x": 7}, now_ns)
    event = wire.Event("q", 1, 1, root, now_ns, 0, 60 * SECOND, len(content), 1, content, None, 0, period)
    message = wire.Transfer(
        row.machines[source].epoch, number, number, ({"c": ((60 * SECOND, 1.0),)},), (event,), now_ns
    )
    row.do(target, machine.receive(source, wire.encode(message), now_ns))
    row.settle()


def report(row: Any, root: str, period: int) -> None:
    """The home of subscriber s learns that this broker has accepted one event for it in this period."""
    life = row.machines["c"].epoch
    message = wire.Ledger("c", life, root, row.machines[root].epoch, 1, root, period, {"s/some": (1, 0)})
    row.do("c", row.machines["c"].receive("b", wire.encode(message), row.now_ns))
    row.pass_time(2 * SECOND)


def test_an_event_that_two_brokers_have_accepted_counts_once(row: Any) -> None:
    """Its publisher changed homes: the new one took it over as accepted before, and the old one had accepted it after
    all, and says so. It counted twice, the second time as under way and then as lost."""
    transfer(row, "b", "c", 1_000, "a", UNAUDITED)
    transfer(row, "b", "c", 1_001, "b", 5)
    report(row, "b", 5)
    assert len(row.delivered("s")) == 1
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_copies_of_two_brokers_that_meet_count_once(row: Any) -> None:
    """The broker where they meet passes on one of them, and says of it what the home can hold against the ledger."""
    row.cut("b", "c")
    transfer(row, "a", "b", 1_000, "b", UNAUDITED)
    transfer(row, "a", "b", 1_001, "a", 5)
    row.mend("b", "c")
    row.pass_time(10 * SECOND)
    report(row, "a", 5)
    assert len(row.delivered("s")) == 1
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_an_event_that_the_home_itself_accepted_as_well_counts_once(row: Any) -> None:
    row.client("q", "c", epoch=1)
    row.call("q", "advertise", "all", "x >= 0")
    content = content_of({"x": 7}, row.now_ns)
    again = wire.Publication(1, row.now_ns, 0, 60 * SECOND, len(content), content)
    message = wire.Publish(row.machines["q"].epoch, 0, 0, (again,), row.now_ns, is_again=True)
    row.do("c", row.machines["c"].receive("q", wire.encode(message), row.now_ns))
    row.settle()
    assert len(row.delivered("s")) == 1
    transfer(row, "b", "c", 1_000, "b", 5)
    report(row, "b", 5)
    assert len(row.delivered("s")) == 1
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_the_last_minute_is_counted_separately(row: Any) -> None:
    row.call("p", "publish", {"x": 7})
    row.pass_time(200 * SECOND)
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    accounts = row.machines["c"].accounts
    assert counts(account(row)) == (2, 2, 0, 0, 0, 0)
    assert counts(accounts.last_minute(accounts.balances()["s/some"])) == (1, 1, 0, 0, 0, 0)
    row.pass_time(85 * SECOND)
    assert counts(accounts.last_minute(accounts.balances()["s/some"])) == (0, 0, 0, 0, 0, 0)


def test_an_account_ends_with_its_subscription(row: Any) -> None:
    row.call("p", "publish", {"x": 7})
    row.call("s", "unsubscribe", "some")
    accounts = row.machines["c"].accounts
    assert not accounts.balances()
    assert counts(accounts.total) == (1, 1, 0, 0, 0, 0)
    row.call("s", "subscribe", "some", "x > 5")
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


@pytest.mark.parametrize("lie", [Outcome(0, 0, 0), Outcome(1, 0, 0), Outcome(0, 2, 0)])
def test_an_old_report_changes_nothing(row: Any, lie: Outcome) -> None:
    for x in (7, 8):
        row.call("p", "publish", {"x": x})
    row.pass_time(1 * SECOND)
    broker = row.machines["c"]
    for message in (wire.Pong(0, None, {"some": lie}), wire.Ack(broker.epoch, ((0, 0),), 0, 5, {"some": lie})):
        broker.receive("s", wire.encode(message), row.now_ns)
    assert counts(account(row)) == (2, 2, 0, 0, 0, 0)


def test_a_client_can_make_no_more_of_what_it_was_given(row: Any) -> None:
    row.call("p", "publish", {"x": 7})
    broker = row.machines["c"]
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)
    lie = {"some": Outcome(2**61, 2**61, 2**61), "other": Outcome(5)}
    broker.receive("s", wire.encode(wire.Pong(0, None, lie)), row.now_ns)
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)
    assert list(broker.accounts.balances()) == ["s/some"]


def test_nobody_reports_of_others(row: Any) -> None:
    """A report counts for who is at the other end of the connection; of a broker it counts for nothing."""
    row.call("p", "publish", {"x": 7})
    broker = row.machines["c"]
    broker.receive("b", wire.encode(wire.Pong(0, None, {"some": Outcome(5, 5, 5)})), row.now_ns)
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_ledgers_have_a_bound(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.protocol.broker._ledgers.MAX_ROWS", 1)
    assert MAX_ROWS > 1
    row.call("s", "subscribe", "other", "x > 5")
    row.call("p", "publish", {"x": 7})
    row.pass_time(2 * SECOND)
    assert row.machines["a"].counts["ledger forgotten"] > 0
    assert row.machines["a"].bounds()["ledgers"][0] <= 1
    assert counts(account(row)) == (1, 1, 0, 0, 0, 0)


def test_a_drop_is_taken_back_from_those_it_was_counted_for() -> None:
    """A subscription that has begun between the two: one number below 0 would have the whole message refused."""
    page = _Page()
    assert page.count("s/old", 0, 1) == 1
    assert page.count("s/old", 0, -1) + page.count("t/new", 0, -1) == 0
    assert page.rows == {"s/old": [0, 0]}


def test_a_drop_that_is_taken_back_makes_no_share_of_more_than_all() -> None:
    before = Balance(10, 8, 0, {"a": 1}, 0, 0, {}, {})
    after = Balance(12, 11, 0, {"a": 0}, 0, 0, {}, {})
    assert after.since(before).on_time_share == 1.0
    assert before._replace(dropped_by={}).since(before).on_time_share is None


def test_the_last_minute_of_all_subscriptions_together_ends(row: Any) -> None:
    accounts = row.machines["c"].accounts
    row.call("p", "publish", {"x": 7})
    row.call("s", "subscribe", "more", "x > 5")
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    accounts.look()
    assert counts(accounts.last_minute()) == counts(accounts.total) == (3, 3, 0, 0, 0, 0)
    row.pass_time(90 * SECOND)
    row.call("s", "unsubscribe", "more")
    row.call("p", "publish", {"x": 9})
    row.pass_time(SECOND)
    accounts.look()
    assert counts(accounts.last_minute()) == (1, 1, 0, 0, 0, 0)
    assert counts(accounts.total) == (4, 4, 0, 0, 0, 0)


class TestBatches:
    """The uncertainty of a share: what was settled in batches of time, few and of one length."""

    @given(slots=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(0, 9)), max_size=120))
    def test_batches_are_few_of_one_length_and_hold_all(self, slots: list[tuple[int, int, int]]) -> None:
        batches, slot, reported = Batches(), 0, []
        for ahead, more, good in slots:
            slot += ahead
            reported.append((slot, good + more, good))
            batches.add(*reported[-1])
        kept = list(batches)
        assert len(kept) <= BATCHES_MOST
        doublings = 0
        while True:  # the shortest length with which there are few enough
            expected: dict[int, tuple[int, int]] = {}
            for number, settled, on_time in reported:
                before = expected.get(number >> doublings, (0, 0))
                if settled:
                    expected[number >> doublings] = (before[0] + settled, before[1] + on_time)
            if len(expected) <= BATCHES_MOST:
                break
            doublings += 1
        assert kept == list(expected.values())

    def test_an_account_has_what_was_settled_by_time(self, row: Any) -> None:
        for good in (True, False, True):
            if not good:
                row.disconnect("s", "c")
            for _ in range(3):
                row.call("p", "publish", {"x": 9}, lifetime_ns=SECOND)
            row.pass_time(25 * SECOND)
            if not good:
                row.connect("s", "c")
        accounts = row.machines["c"].accounts
        batches = accounts.batches(accounts.balances()["s/some"])
        assert batches == accounts.batches()  # there is no other subscription
        assert batches == [(3, 3), (3, 0), (3, 3)]
