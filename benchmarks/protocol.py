"""What one broker machine does on one core, against the least that any broker in Python has to do for the same events.

A broker with one neighbour on either side: events of 1 kB come in from one, are taken on, and leave for the other or
for a client of its own. Three roles, and three numbers of subscriptions where it matches:

- `home`: a client publishes; the event is matched against all subscriptions, stored, acknowledged and sent on;
- `way`: an event on its way is stored, acknowledged and sent on;
- `last hop`: an event that has arrived is matched against the local subscriptions and given to a client.

Events come 16 in a frame. Every event is acknowledged by whoever gets it, and a sync is confirmed after every frame, as
group commit would. `bare` is the limit measured in the same run: decoding the frame, matching each event (if the role
matches), encoding one frame to send and one acknowledgement; no custody, no durability, no deadlines. The ratio is what
the promises cost; it can be below 1, because the machine asks equal filters once.
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
TERMS: tuple[wire.Term, ...] = ((10 * SECOND, 1.0),)


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
    """What comes in, with numbers that count up: one event first, then frames of BATCH."""
    target = "here" if role == "last hop" else "after"
    frames = []
    for first, count in ((0, 1), *((first, BATCH) for first in range(1, EVENTS, BATCH))):
        numbers = range(first, first + count)
        message: wire.Message
        if role == "home":
            events = tuple(wire.Publication(n, 0, 0, 20 * SECOND, 1_000, _content(n)) for n in numbers)
            message = wire.Publish(1, first, first, events)
        else:
            moving = tuple(wire.Event("p", 1, n, "before", 0, 0, 20 * SECOND, 1_000, 1, _content(n)) for n in numbers)
            message = wire.Transfer(1, first, first, ({target: TERMS},) * count, moving)
        frames.append(wire.encode(message))
    return frames


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
    for frame in frames[1:]:
        now_ns += BATCH * 10_000
        _answer(broker, broker.receive(source, frame, now_ns), peers, now_ns)
    seconds = time.process_time() - began
    assert broker.sent["Ack"] >= len(frames) - 2, broker.sent
    return BATCH * (len(frames) - 1) / seconds


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
                last = sent.number + len(sent.events) - 1
                ack = wire.encode(wire.Ack(sent.session, ((sent.number, last),), 0, 1_024))
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
    return BATCH * (len(frames) - 1) / (time.process_time() - began)


def _bare_step(index: MatchingIndex | None) -> Callable[[bytes], None]:
    def step(frame: bytes) -> None:
        message = wire.decode(frame)
        assert isinstance(message, wire.Publish | wire.Transfer)
        for event in message.events if index is not None else ():
            assert index is not None
            index.match(wire.decode_content(event.content).attributes)
        wire.encode(message)
        ack = wire.encode(wire.Ack(1, ((message.number, message.number + BATCH - 1),), 0, 16))
        wire.decode(ack)  # and one comes back

    return step
