"""What an event costs the broker machine that hands it to its clients, if it comes from another broker.

A broker with a neighbour, and with 1, 5 or 25 clients that want everything. Events of 1 kB come from the neighbour, 1,
8 or 50 in a frame, and every client acknowledges the events of a frame together. Syncs are confirmed at once. Seconds
are those of the processor, without sockets and disk: the least of several runs, for an event.
"""

import time
from typing import Any

from tidings.protocol import Broker, BrokerSettings, Sync, wire

TOGETHER = (1, 8, 50)
CLIENTS = (1, 5, 25)
DELIVERIES = 2_000
LEAST_FRAMES = 40
REPEATS = 5
WINDOW = 4_096
NOW_NS = 10**17
STEP_NS = 1_000_000
LIFETIME_NS = 60 * 10**9
SIZE_BYTES = 1_000
TARGETS: dict[str, tuple[wire.Term, ...]] = {"b": ((LIFETIME_NS, 1.0),)}


def _confirm(broker: Broker, effects: list[Any], now_ns: int) -> None:
    for effect in effects:
        if isinstance(effect, Sync):
            _confirm(broker, broker.synced(effect.token, now_ns), now_ns)


def _living(scheme: Any, clients: int) -> Broker:
    """A broker that has greeted everybody."""
    links = {"a": frozenset("b"), "b": frozenset("a")}
    broker = Broker(BrokerSettings(name="b", scheme=scheme, neighbours=links["b"], graph=links, window=WINDOW))
    _confirm(broker, broker.start(NOW_NS), NOW_NS)
    peers = [("a", "broker"), *((f"s{number}", "client") for number in range(clients))]
    for name, kind in peers:
        broker.connected(name, NOW_NS)
        greeting = wire.encode(wire.Hello(wire.VERSION, name, kind, 1, WINDOW))
        _confirm(broker, broker.receive(name, greeting, NOW_NS), NOW_NS)
        if kind == "client":
            wanted = wire.Subscribe(broker.epoch, 0, wire.Entry("all", "x >= 0", None, 1.0, 0))
            _confirm(broker, broker.receive(name, wire.encode(wanted), NOW_NS), NOW_NS)
    return broker


def _frame(first: int, together: int, content: bytes) -> bytes:
    facts = (NOW_NS, 0, LIFETIME_NS, SIZE_BYTES, 0, content)
    check = wire.check_of(content)
    numbers = range(first, first + together)
    events = tuple(wire.Event("p", 1, number, "a", *facts, period=1, check=check) for number in numbers)
    return wire.encode(wire.Transfer(1, first, max(first - WINDOW, 0), (TARGETS,) * together, events, NOW_NS))


def event_us(scheme: str, clients: int, together: int) -> float:
    """The processor time for an event."""
    broker = _living(scheme, clients)
    frames = max(LEAST_FRAMES, DELIVERIES // together // clients)
    content = wire.encode_content(wire.Content({"x": 1}, b"", bytes(SIZE_BYTES - 100)))
    came = [_frame(number * together, together, content) for number in range(frames)]
    names, now_ns = [f"s{number}" for number in range(clients)], NOW_NS
    began_s = time.process_time()
    for number, frame in enumerate(came):
        now_ns += STEP_NS
        _confirm(broker, broker.receive_many([("a", [frame])], now_ns), now_ns)
        first = number * together
        ack = wire.encode(wire.Ack(broker.epoch, ((first, first + together - 1),), 0, WINDOW))
        for name in names:
            _confirm(broker, broker.receive(name, ack, now_ns), now_ns)
    took_s = time.process_time() - began_s
    assert not broker.carrier.holdings.held, "every client has had everything"
    return 1e6 * took_s / (frames * together)


def main() -> None:
    print("last_hop: processor time of the broker machine for an event of a neighbour, us")
    print(f"{'scheme':>15}{'in a frame':>12}" + "".join(f"{f'{clients} clients':>13}" for clients in CLIENTS))
    for scheme in ("bypass+buffer", "bypass"):
        for together in TOGETHER:
            least = [min(event_us(scheme, clients, together) for _ in range(REPEATS)) for clients in CLIENTS]
            print(f"{scheme:>15}{together:>12}" + "".join(f"{us:>13.1f}" for us in least), flush=True)


if __name__ == "__main__":
    main()
