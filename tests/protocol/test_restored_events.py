"""A broker that starts with very many events serves at once, and does all that it would have done had it read them."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.ordering import Stamp
from tidings.protocol import Broker, BrokerSettings, Confirmed, Erase, Send, Store, Sync, wire
from tidings.protocol.broker._held import Held, event_key

NOW = 10**17
SECOND = 10**9
LIFETIME_NS = 60 * SECOND
READ_AT_ONCE = BrokerSettings(name="b").read_at_once
READ_PAUSE_NS = BrokerSettings(name="b").read_pause_ns
MANY = READ_AT_ONCE + 300


def stored(
    number: int, *, local: tuple[str, ...] = (), targets: tuple[str, ...] = (), since_ns: int = NOW, ends_s: int = 60
) -> tuple[str, bytes]:
    """An event as a broker's store keeps it."""
    stamp = Stamp(sequence=number, departure_ns=since_ns, previous_departure_ns=since_ns)
    content = wire.encode_content(wire.Content({"x": number}, stamp.encode(), b""))
    held = Held(
        ("p", 1, number),
        root="a",
        departure_ns=since_ns,
        since_ns=since_ns,
        lifetime_ns=LIFETIME_NS,
        size_bytes=1_000,
        hops=0,
        content=content,
    ).alone()
    terms = ((ends_s * SECOND, 1.0),)
    held.take_on(dict.fromkeys(targets, terms))
    held.take_on_local({client: {"all": terms} for client in local})
    return event_key(held.id), held.record()


def started(kept: dict[str, bytes], now_ns: int = NOW) -> tuple[Broker, dict[str, bytes]]:
    """A broker that is alive, and its disk."""
    broker, disk = Broker(BrokerSettings(name="a"), kept), dict(kept)
    do(broker, broker.start(now_ns), disk, now_ns)
    return broker, disk


def do(broker: Broker, effects: list[Any], disk: dict[str, bytes], now_ns: int) -> dict[str, list[int]]:
    """Carry out effects on a disk that is quick; which events went to whom."""
    sent: dict[str, list[int]] = {}
    for effect in effects:
        if isinstance(effect, Store):
            disk[effect.key] = effect.value
        elif isinstance(effect, Erase):
            disk.pop(effect.key, None)
        elif isinstance(effect, Sync):
            for client, numbers in do(broker, broker.synced(effect.token, now_ns), disk, now_ns).items():
                sent.setdefault(client, []).extend(numbers)
        elif isinstance(effect, Send):
            message = wire.decode(effect.frame)
            if isinstance(message, wire.Transfer):
                sent.setdefault(effect.connection, []).extend(event.sequence for event in message.events)
    return sent


def joins(broker: Broker, name: str, now_ns: int) -> list[Any]:
    return broker.connected(name, now_ns) + broker.receive(
        name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 16)), now_ns
    )


def publishes(broker: Broker, numbers: list[int], first: int, now_ns: int) -> list[Any]:
    events = tuple(
        wire.Publication(
            number, now_ns, 0, LIFETIME_NS, 1_000, wire.encode_content(wire.Content({"x": number}, b"", b""))
        )
        for number in numbers
    )
    return broker.receive("p", wire.encode(wire.Publish(1, first, 0, events)), now_ns)


def test_it_serves_while_it_reads_and_what_is_not_read_counts_as_stored(wire: Any) -> None:
    wire.chain("a")
    wire.client("p", "a")
    wire.client("s", "a")
    wire.call("p", "advertise", "all", "TRUE")
    wire.call("s", "subscribe", "all", "x >= 0")
    wire.crash("s")
    wire.crash("a")
    since_ns = wire.now_ns
    wire.disks["a"] |= dict(stored(number, local=("s",), since_ns=since_ns) for number in range(100, 100 + MANY))
    wire.add(wire.broker("a", kept=dict(wire.disks["a"])))
    broker = wire.machines["a"]
    assert len(broker.carrier.holdings.held) == READ_AT_ONCE
    assert broker.carrier.is_reading
    assert broker.bounds()["stored"][0] == MANY
    wire.call("p", "publish", {"x": 1})
    assert broker.carrier.is_reading
    assert ("p", Confirmed("publish", "0")) in wire.effects
    assert broker.bounds()["stored"][0] == MANY + 1
    wire.pass_time(3 * READ_PAUSE_NS)
    assert not broker.carrier.is_reading
    assert len(broker.carrier.holdings.held) == broker.bounds()["stored"][0] == MANY + 1
    assert sum(key.startswith("event/") for key in wire.disks["a"]) == MANY + 1


def test_a_connected_peer_gets_everything_once(wire: Any) -> None:
    wire.chain("a", "b")
    for name, home in (("p", "a"), ("s", "a"), ("t", "b")):
        wire.client(name, home)
    wire.call("p", "advertise", "all", "TRUE")
    for name in ("s", "t"):
        wire.call(name, "subscribe", "all", "x >= 0")
    wire.pass_time(SECOND)
    wire.crash("a")
    since_ns = wire.now_ns
    halves = [("s",), ()]
    wire.disks["a"] |= dict(
        stored(number, local=halves[number % 2], targets=("b",), since_ns=since_ns) for number in range(MANY)
    )
    wire.add(wire.broker("a", "b", kept=dict(wire.disks["a"])))
    wire.pass_time(40 * SECOND)
    assert sorted(each.event[2] for each in wire.delivered("t")) == list(range(MANY))
    assert sorted(each.event[2] for each in wire.delivered("s")) == list(range(0, MANY, 2))
    assert not any(key.startswith("event/") for name in ("a", "b") for key in wire.disks[name])


def test_what_has_expired_when_it_is_read_is_erased() -> None:
    kept = dict(stored(number, local=("s",), ends_s=1 + 9 * (number % 2)) for number in range(MANY))
    broker, disk = started(kept)
    do(broker, broker.wake(NOW + 5 * SECOND), disk, NOW + 5 * SECOND)
    assert not broker.carrier.is_reading
    assert {id[2] % 2 for id in broker.carrier.holdings.held} == {1}
    assert {key for key in disk if key.startswith("event/")} == {key for key in kept if int(key.split("/")[2]) % 2}


def test_an_event_that_comes_again_before_it_is_read_is_held_once() -> None:
    kept = dict(stored(number, local=("s",)) for number in range(MANY))
    broker, disk = started(kept)
    last = list(broker.carrier.holdings.unread)[-1]
    number = int(last.split("/")[2])
    do(broker, joins(broker, "p", NOW), disk, NOW)
    do(broker, broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), NOW), disk, NOW)
    subscription = wire.Subscribe(broker.epoch, 0, wire.Entry("all", "x >= 0", None, 1.0, 0))
    do(broker, joins(broker, "s", NOW), disk, NOW)
    do(broker, broker.receive("s", wire.encode(subscription), NOW), disk, NOW)
    do(broker, publishes(broker, [number], 0, NOW), disk, NOW)
    assert last not in broker.carrier.holdings.unread
    assert len(broker.carrier.holdings) == MANY
    broker.carrier.read_on(NOW, None)
    assert len(broker.carrier.holdings.held) == len(broker.carrier.holdings) == MANY
    assert broker.clients["s"].outbox.queued + broker.clients["s"].outbox.under_way == MANY


KEPT = dict(
    stored(number, local=(("s",), ("t",), ("s", "t"))[number % 3], ends_s=4 + number % 7) for number in range(MANY)
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("joins"), st.sampled_from("st")),
        st.tuples(st.just("publishes"), st.integers(0, MANY - 1)),
        st.tuples(st.just("waits"), st.integers(0, 3 * SECOND)),
        st.tuples(st.just("forgets"), st.sampled_from("st")),
    ),
    max_size=6,
)


def outcome(acts: list[Any], *, reads_at_once: bool) -> Any:
    """What a broker holds, keeps and has sent after these acts."""
    broker, disk = started(KEPT)
    if reads_at_once:
        broker.carrier.read_on(NOW, None)
    now_ns, published = NOW, 0
    sent: dict[str, set[int]] = {}
    do(broker, joins(broker, "p", now_ns), disk, now_ns)
    do(broker, broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), now_ns), disk, now_ns)
    for what, which in [*acts, ("waits", SECOND)]:
        effects: list[Any] = []
        if what == "joins" and which not in broker.clients:
            effects = joins(broker, which, now_ns)
        elif what == "publishes":
            effects = publishes(broker, [which], published, now_ns)
            published += 1
        elif what == "waits":
            now_ns += which
            effects = broker.wake(now_ns)
            while broker.carrier.is_reading and what == "waits" and which == SECOND:
                now_ns += READ_PAUSE_NS
                effects += broker.wake(now_ns)
        elif what == "forgets" and which in broker.clients:
            broker._now_ns = now_ns
            broker._forget_client(broker.clients[which])
            effects = broker._finish()
        for client, numbers in do(broker, effects, disk, now_ns).items():
            sent.setdefault(client, set()).update(numbers)
    now_ns = NOW + 11 * SECOND - 1  # before the last have expired
    do(broker, broker.wake(now_ns), disk, now_ns)
    events_held = {id: broker.carrier.holdings.get(id) for id in list(broker.carrier.holdings.held)}
    held = {id: (each.targets, each.local) for id, each in events_held.items() if each is not None}
    queues = {name: peer.outbox.queued for name, peer in broker.clients.items()}
    events = {key for key in disk if key.startswith("event/")}
    return held, events, sent, queues


@given(acts=ACTS)
@settings(max_examples=8, deadline=None)
def test_it_ends_as_a_broker_that_read_all_before_it_served(acts: list[Any]) -> None:
    assert outcome(acts, reads_at_once=False) == outcome(acts, reads_at_once=True)
