"""Late events that are wanted: they leave after everything that can still be in time, with a share of the link."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.ordering import Policy
from tidings.protocol import Broker, late_ns_of
from tidings.protocol._terms import LATER_NS
from tidings.protocol.broker._held import Held
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._queue import LATE_SHARE, Queue
from tidings.protocol.links._window import Parcel
from tidings.scheduling import Strategy

from .conftest import Wire

SECOND = 10**9
STRATEGIES = [Strategy.fifo(), Strategy.rl(), Strategy.triage(), Strategy.ebpc(r=0.6, turns=2.0)]


def shop(strategy: Strategy, *, late_ns: int = 60 * SECOND, **more: Any) -> Wire:
    """A reader that is away, whose events are in time for two seconds and wanted for a minute more."""
    wire = Wire()
    wire.chain("b", strategy=strategy, **more)
    wire.client("p", "b")
    wire.client("s", "b", window=1_000)
    wire.call("p", "advertise", "all", "TRUE")
    wire.call("s", "subscribe", "all", "n >= 0", max_delay_ns=2 * SECOND, late_ns=late_ns)
    wire.disconnect("s", "b")
    return wire


def publish(wire: Wire, first: int, count: int) -> None:
    for number in range(first, first + count):
        wire.call("p", "publish", {"n": number}, payload=bytes(100))


def back(wire: Wire) -> list[tuple[int, bool]]:
    """What the reader gets when it is back, and whether it was late."""
    wire.connect("s", "b")
    wire.settle()
    wire.pass_time(SECOND)
    return [(each.attributes["n"], each.late) for each in wire.delivered("s")]  # type: ignore[misc]


def outcomes(wire: Wire, name: str = "s/all") -> tuple[int, int, int, int]:
    broker = wire.machines["b"]
    assert isinstance(broker, Broker)
    known = broker.accounts.balances()[name].known
    assert known.under_way == 0
    return known.matched, known.on_time, known.late, known.dropped


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
def test_what_is_late_leaves_after_what_is_in_time(strategy: Strategy) -> None:
    wire = shop(strategy)
    publish(wire, 0, 5)
    wire.pass_time(3 * SECOND)
    publish(wire, 10, 10)
    found = back(wire)
    assert [late for _, late in found] == [False] * 10 + [True] * 5
    assert [number for number, late in found if late] == [0, 1, 2, 3, 4]
    assert sorted(number for number, late in found if not late) == [*range(10, 20)]
    assert outcomes(wire) == (15, 10, 5, 0)


def test_what_is_late_has_a_share_of_a_link_that_is_never_free() -> None:
    wire = shop(Strategy.fifo())
    publish(wire, 1000, 10)  # numbers of equal length: the share is one of bytes
    wire.pass_time(3 * SECOND)
    publish(wire, 2000, 200)
    found = back(wire)
    among = [late for _, late in found[: 200 + 10]]
    assert len(among) == 210
    places = [place for place, late in enumerate(among) if late]
    step = round(1.0 / LATE_SHARE)
    assert places == [*range(step - 1, 10 * step, step)]
    assert outcomes(wire) == (210, 200, 10, 0)


def test_what_is_late_for_too_long_is_dropped() -> None:
    wire = shop(Strategy.fifo(), late_ns=3 * SECOND)
    publish(wire, 0, 2)
    wire.pass_time(4 * SECOND)
    publish(wire, 10, 1)
    wire.pass_time(3 * SECOND)
    assert back(wire) == [(10, True)]
    assert outcomes(wire) == (3, 0, 1, 2)


def parcel(peer: Peer, number: int, since_ns: int, size_bytes: int = 100) -> Parcel:
    held = Held(("p", 1, number), "b", since_ns, since_ns, 2 * SECOND, size_bytes, 0, bytes(size_bytes)).alone()
    return Parcel(held, peer, {"all": ((2 * SECOND, 1.0), (60 * SECOND, 0.0))}, {})


@pytest.mark.parametrize("bound", ["events", "bytes"])
def test_at_a_bound_what_is_late_goes_first(bound: str) -> None:
    broker = shop(Strategy.fifo()).machines["b"]
    assert isinstance(broker, Broker)
    peer = broker.clients["s"]
    queue = Queue(Strategy.fifo(), LinkMeter(), processing_s=0.0, max_queued=4 if bound == "events" else 100)
    if bound == "bytes":
        queue.max_bytes = 400
    late = [parcel(peer, number, 0) for number in range(3)]
    fresh = [parcel(peer, number, 3 * SECOND) for number in range(10, 15)]
    assert queue.push(late, 0) == []
    assert queue.push(fresh[:1], 3 * SECOND) == []
    assert queue.pop(None, 3 * SECOND) == (fresh[0], [])
    assert all(map(queue.is_late, late))
    assert queue.push(fresh[1:4], 3 * SECOND) == late[:2]
    assert queue.push(fresh[4:], 3 * SECOND) == late[2:]
    assert (queue.size, queue.size_bytes) == (4, 400)
    assert [queue.pop(None, 3 * SECOND)[0] for _ in range(5)] == [*fresh[1:], None]


def test_where_order_is_wanted_late_events_keep_their_place() -> None:
    wire = shop(Strategy.triage())
    wire.connect("s", "b")
    wire.settle()
    terms = {"max_delay_ns": 2 * SECOND, "late_ns": 60 * SECOND}
    wire.call("s", "unsubscribe", "all")
    wire.call("s", "subscribe", "sorted", "n >= 0", policy=Policy.parse("ours-record"), **terms)
    wire.disconnect("s", "b")
    publish(wire, 0, 5)
    wire.pass_time(3 * SECOND)
    publish(wire, 5, 5)
    assert back(wire) == [(number, number < 5) for number in range(10)]


def test_over_several_brokers_late_events_arrive_and_are_marked(row: Wire) -> None:
    row.call("s", "subscribe", "late", "x > 5", max_delay_ns=SECOND, late_ns=60 * SECOND)
    row.disconnect("b", "c")
    for number in range(20):
        row.call("p", "publish", {"x": 6 + number})
    row.pass_time(5 * SECOND)
    row.connect("b", "c")
    row.settle()
    row.pass_time(10 * SECOND)
    found = [(each.attributes["x"], each.late) for each in row.delivered("s") if each.subscription == "late"]
    assert sorted(found) == [(6 + number, True) for number in range(20)]


@settings(max_examples=40, deadline=None)
@given(
    late=st.lists(st.integers(0, 3_000), max_size=8),
    fresh=st.lists(st.integers(0, 3_000), max_size=40),
    strategy=st.sampled_from(STRATEGIES[:1]),
)
def test_the_share_is_that_of_a_plain_rule(late: list[int], fresh: list[int], strategy: Strategy) -> None:
    wire = shop(strategy)
    sizes: dict[int, int] = {}
    for number, payload_bytes in enumerate([*late, *fresh]):
        if number == len(late):
            wire.pass_time(3 * SECOND)
        wire.call("p", "publish", {"n": number}, payload=bytes(payload_bytes))
    broker = wire.machines["b"]
    assert isinstance(broker, Broker)
    for held in broker.carrier.holdings.held.values():
        sizes[held.id[2]] = held.size_bytes
    if not fresh:
        wire.pass_time(3 * SECOND)
    first = min(sizes, default=0)
    waiting, behind = [*range(len(late), len(sizes))], [*range(len(late))]
    expected: list[int] = []
    allowed_bytes = 0.0
    is_known = False  # the queue finds what is late when it chooses first
    while waiting or behind:
        if behind and (not waiting or (is_known and allowed_bytes >= sizes[first + behind[0]])):
            if waiting:
                allowed_bytes -= sizes[first + behind[0]]
            expected.append(behind.pop(0))
        else:
            allowed_bytes += sizes[first + waiting[0]] * LATE_SHARE / (1.0 - LATE_SHARE)
            expected.append(waiting.pop(0))
            is_known = True
    assert [number for number, _ in back(wire)] == expected


# -- as applications write it ---------------------------------------------------------------------------------------


def test_later_is_an_hour_unless_a_time_is_given() -> None:
    assert late_ns_of(None, None) == late_ns_of("drop", None) == late_ns_of("drop", 0) == 0
    assert late_ns_of("later", None) == LATER_NS == 3600 * SECOND
    assert late_ns_of("later", 5) == late_ns_of(None, 5) == 5


@pytest.mark.parametrize(("late", "late_ns"), [("soon", None), ("drop", 5)])
def test_what_becomes_of_late_events_has_one_meaning(late: str, late_ns: int | None) -> None:
    with pytest.raises(InputError, match="late is"):
        late_ns_of(late, late_ns)
