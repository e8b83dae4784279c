"""What one broker machine does on one core, against the least that any broker in Python has to do for the same events.

A broker with one neighbour on either side: events of 1 kB come in from one, are taken on, and leave for the other or
for a client of its own. Three roles, and three numbers of subscriptions where it matches:

- `home`: a client publishes; the event is matched against all subscriptions, stored, acknowledged and sent on;
- `way`: an event on its way is stored, acknowledged and sent on;
- `last hop`: an event that has arrived is matched against the local subscriptions and given to a client.

Every event is acknowledged by whoever gets it, and a sync is confirmed after every batch, as group commit would. `bare`
is the limit measured in the same run: decoding the frame, the same matching (where the role matches), encoding one
frame to send and one acknowledgement; no custody, no durability, no deadlines. The ratio is what the promises cost.
Seconds are those of the processor.
"""

import time
from collections.abc import Callable
from typing import Any

from tidings.matching import MatchingIndex
from tidings.protocol import Broker, BrokerSettings, Send, Sync, wire

SUBSCRIPTIONS = (100, 1_000, 10_000)
EVENTS = 2_000
BATCH = 16
REPEATS = 3
SECOND = 10**9
PAYLOAD = bytes(1_000)
TERMS = ((10 * SECOND, 1.0),)


def main() -> None:
    print("protocol: events per second through one broker machine (1 kB, group commit of 16)")
    print(f"{'role':10}{'subscriptions':>15}{'machine /s':>13}{'bare /s':>11}{'machine/bare':>14}")
    for role, counts in (("way", (1,)), ("home", SUBSCRIPTIONS), ("last hop", SUBSCRIPTIONS)):
        for count in counts:
            machine_per_s = max(_machine_rate(role, count) for _ in range(REPEATS))
            bare_per_s = max(_bare_rate(role, count) for _ in range(REPEATS))
            print(
                f"{role:10}{count:>15,}{machine_per_s:>13,.0f}{bare_per_s:>11,.0f}{machine_per_s / bare_per_s:>14.2f}"
            )


def _entries(count: int) -> tuple[wire.Entry, ...]:
    """Each wants one of a hundred symbols above a price that is always exceeded: one in a hundred matches."""
    return tuple(
        wire.Entry(f"s{number}", f"symbol = 'S{number % 100}' AND price > {number % 7}", None, 1.0, 0)
        for number in range(count)
    )


def _content(number: int) -> bytes:
    attributes: dict[str, int | float | str | bool] = {"symbol": f"S{number % 100}", "price": 50, "volume": number}
    return wire.encode_content(wire.Content(attributes, b"", PAYLOAD))


def _frames(role: str) -> list[bytes]:
    """What comes in, with numbers that count up."""
    if role == "home":
        return [
            wire.encode(wire.Publish(1, n, n - n % BATCH, n, 0, 0, 20 * SECOND, 1_000, _content(n)))
            for n in range(EVENTS)
        ]
    target = "here" if role == "last hop" else "after"
    return [
        wire.encode(
            wire.Transfer(
                1, n, n - n % BATCH, "p", 1, n, "before", 0, 0, 20 * SECOND, 1_000, 1, {target: TERMS}, _content(n)
            )
        )
        for n in range(EVENTS)
    ]


def _living(role: str, count: int) -> tuple[Broker, str]:
    """A broker that has greeted everybody, and who sends to it."""
    settings = BrokerSettings(name="here", neighbours=frozenset(("before", "after")), window=1_024, tracing=False)
    broker = Broker(settings)
    broker.start(SECOND)
    broker.synced(1, SECOND)
    epoch = broker.epoch
    for name, kind in (("before", "broker"), ("after", "broker"), ("client", "client")):
        broker.connected(name, SECOND)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, kind, 1, 1_024)), SECOND)
    broker.receive("after", wire.encode(wire.LinkState("after", 1, 1, 0, {"here": (0.0, 0.0)})), SECOND)
    broker.receive("after", wire.encode(wire.Done("exchange", "after")), SECOND)
    if role == "home":
        broker.receive("after", wire.encode(wire.Interest("after", 1, 1, 1, 0, 0, _entries(count))), SECOND)
        effects = broker.receive("client", wire.encode(wire.Advertise(epoch, 0, "all", "price >= 0")), SECOND)
        _answer(broker, effects, set(), SECOND)
    if role == "last hop":
        for entry in _entries(count):
            broker.gossip.local.put("client", entry)
    return broker, "client" if role == "home" else "before"


def _machine_rate(role: str, count: int) -> float:
    frames = _frames(role)
    broker, source = _living(role, count)
    peers = {"before", "after", "client"}
    now_ns = 2 * SECOND
    _answer(broker, broker.receive(source, frames[0], now_ns), peers, now_ns)  # what is done once: building the index
    began = time.process_time()
    for first in range(1, EVENTS, BATCH):
        effects: list[Any] = []
        for frame in frames[first : first + BATCH]:
            now_ns += 10_000
            effects += broker.receive(source, frame, now_ns)
        _answer(broker, effects, peers, now_ns)
    seconds = time.process_time() - began
    assert broker.sent["Ack"] >= EVENTS - 2 * BATCH, broker.sent
    return (EVENTS - 1) / seconds


def _answer(broker: Broker, effects: list[Any], peers: set[str], now_ns: int) -> None:
    """Acknowledge what was sent, and confirm syncs until there are none."""
    while effects:
        more: list[Any] = []
        for effect in effects:
            if isinstance(effect, Sync):
                more += broker.synced(effect.token, now_ns)
            elif isinstance(effect, Send) and effect.frame[1] == _TRANSFER_TAG and effect.connection in peers:
                sent = wire.decode(effect.frame)
                assert isinstance(sent, wire.Transfer)
                ack = wire.encode(wire.Ack(sent.session, sent.number, 0, 1_024))
                more += broker.receive(effect.connection, ack, now_ns)
        effects = more


_TRANSFER_TAG = 10


def _bare_rate(role: str, count: int) -> float:
    frames = _frames(role)
    index: MatchingIndex | None = None
    if role != "way":
        index = MatchingIndex((number, entry.filter) for number, entry in enumerate(_entries(count)))
        index.match({"symbol": "S1", "price": 50, "volume": 1})
    step: Callable[[bytes], None] = _bare_step(index)
    began = time.process_time()
    for frame in frames[1:]:
        step(frame)
    return (EVENTS - 1) / (time.process_time() - began)


def _bare_step(index: MatchingIndex | None) -> Callable[[bytes], None]:
    def step(frame: bytes) -> None:
        message = wire.decode(frame)
        assert isinstance(message, wire.Publish | wire.Transfer)
        if index is not None:
            index.match(wire.decode_content(message.content).attributes)
        wire.encode(message)
        ack = wire.encode(wire.Ack(1, message.number, 0, 16))
        wire.decode(ack)  # and one comes back

    return step
