"""What one broker machine does on one core, against the least that any broker in Python has to do for the same events.

A broker with one neighbour on either side: events of 1 kB come in from one, are taken on, and leave for the other or
for a client of its own. Three roles, and three numbers of subscriptions where it matches:

- `home`: a client publishes; the event is matched against all subscriptions, stored, acknowledged and sent on;
- `transit`: an event that passes through is stored, acknowledged and sent on;
- `last hop`: an event that has arrived is matched against the local subscriptions and given to a client.

Events come 16 in a frame. Every event is acknowledged by whoever gets it, and a sync is confirmed after every frame, as
group commit would. `bare` is the limit measured in the same run: decoding the frame, matching each event (if the role
matches), encoding one frame to send and one acknowledgement; no custody, no durability, no deadlines. The ratio is what
the promises cost; it can be below 1, because the machine asks equal filters once.

Then what a subscription costs, at its home broker and at a neighbour that learns of it, with so many there already
and an event after each; and what it costs when the home broker starts again, and when a neighbour that has lost its
store is given all of them. `bare` is the limit measured in the same run: adding the filter to a `MatchingIndex` of
as many, and matching one event. None of it should grow with their number.
Seconds are those of the processor.
"""

import time
from collections.abc import Callable
from typing import Any

from tidings.matching import MatchingIndex
from tidings.protocol import Broker, BrokerSettings, Send, Store, Sync, wire
from tidings.protocol._filters import parsed

SUBSCRIPTIONS = (100, 1_000, 10_000)
SUBSCRIBED = (1_000, 4_000, 16_000)
MEASURED = 500
EVENTS = 2_000
BATCH = 16
REPEATS = 3
SECOND = 10**9
PAYLOAD = bytes(1_000)
TERMS: tuple[wire.Term, ...] = ((10 * SECOND, 1.0),)


def main() -> None:
    print("protocol: events per second through one broker machine (1 kB, group commit of 16)")
    print(f"{'role':10}{'subscriptions':>15}{'machine /s':>13}{'bare /s':>11}{'machine/bare':>14}")
    for role, counts in (("transit", (1,)), ("home", SUBSCRIPTIONS), ("last hop", SUBSCRIPTIONS)):
        for count in counts:
            machine_per_s = max(machine_rate(role, count) for _ in range(REPEATS))
            bare_per_s = max(_bare_rate(role, count) for _ in range(REPEATS))
            print(
                f"{role:10}{count:>15,}{machine_per_s:>13,.0f}{bare_per_s:>11,.0f}{machine_per_s / bare_per_s:>14.2f}"
            )
    print("protocol: microseconds of one subscription, filters read before")
    print(
        f"{'subscriptions':>13}{'home':>8}{'neighbour':>11}{'restart':>9}{'relearnt':>11}{'bare':>8}{'home/bare':>11}"
    )
    for count in SUBSCRIBED:
        home_s, neighbour_s = _subscribing_s(count)
        restart_s, learnt_s = _coming_back_s(count)
        bare_s = _bare_subscribing_s(count)
        costs = "".join(
            f"{seconds * 1e6:>{width}.0f}"
            for seconds, width in ((home_s, 8), (neighbour_s, 11), (restart_s, 9), (learnt_s, 11), (bare_s, 8))
        )
        print(f"{count:>13,}{costs}{home_s / bare_s:>11.2f}")


def _entries(count: int) -> tuple[wire.Entry, ...]:
    """Each wants one of a hundred symbols above a price that is always exceeded: one in a hundred matches."""
    return tuple(
        wire.Entry(f"s{number}", f"symbol = 'S{number % 100}' AND price > {number % 7}", None, 1.0, 0)
        for number in range(count)
    )


def _content(number: int) -> bytes:
    attributes: dict[str, int | float | str | bool] = {"symbol": f"S{number % 100}", "price": 50, "volume": number}
    return wire.encode_content(wire.Content(attributes, b"", PAYLOAD))


def frames_of(role: str, most: int = EVENTS) -> list[bytes]:
    """What comes in, with numbers that count up: one event first, then frames of BATCH."""
    target = "here" if role == "last hop" else "after"
    frames = []
    for first, count in ((0, 1), *((first, BATCH) for first in range(1, most, BATCH))):
        numbers = range(first, first + count)
        message: wire.Message
        if role == "home":
            events = tuple(wire.Publication(n, 0, 0, 20 * SECOND, 1_000, _content(n)) for n in numbers)
            message = wire.Publish(1, first, first, events)
        else:
            facts = (0, 0, 20 * SECOND, 1_000, 1)  # ages and sizes
            moving = tuple(wire.Event("p", 1, n, "before", *facts, _content(n), period=1) for n in numbers)
            message = wire.Transfer(1, first, first, ({target: TERMS},) * count, moving)
        frames.append(wire.encode(message))
    return frames


def living(role: str, count: int, **more: Any) -> tuple[Broker, str]:
    """A broker that has greeted everybody, and who sends to it."""
    beside = frozenset(("before", "after"))
    settings = BrokerSettings(name="here", neighbours=beside, window=1_024, tracing=False, **more)
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
        answer(broker, effects, set(), SECOND)
    if role == "last hop":
        for entry in _entries(count):
            broker.gossip.local.put("client", entry)
    return broker, "client" if role == "home" else "before"


def machine_rate(role: str, count: int, **more: Any) -> float:
    """Events a second through one broker machine; `more` is how it is set up besides."""
    frames = frames_of(role)
    broker, source = living(role, count, **more)
    peers = {"before", "after", "client"}
    now_ns = 2 * SECOND
    answer(broker, broker.receive(source, frames[0], now_ns), peers, now_ns)  # what is done once: building the index
    began = time.process_time()
    for frame in frames[1:]:
        now_ns += BATCH * 10_000
        answer(broker, broker.receive(source, frame, now_ns), peers, now_ns)
    seconds = time.process_time() - began
    assert broker.sent["Ack"] >= len(frames) - 2, broker.sent
    return BATCH * (len(frames) - 1) / seconds


def answer(
    broker: Broker,
    effects: list[Any],
    peers: set[str],
    now_ns: int,
    trace: Callable[[Any, int], None] = lambda _effect, _now_ns: None,
) -> None:
    """Acknowledge what was sent, and confirm syncs until there are none; `trace` gets all other effects."""
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
            else:
                trace(effect, now_ns)
        effects = more


_TRANSFER_TAG = 10


def _bare_rate(role: str, count: int) -> float:
    frames = frames_of(role)
    index: MatchingIndex | None = None
    if role != "transit":
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


# -- subscribing ---------------------------------------------------------------------------------------------------


def _entry(number: int) -> wire.Entry:
    """An ordinary subscription, unlike all others; its filter has been read."""
    entry = wire.Entry(f"s{number}", f"symbol = 'S{number}' AND price > {number % 97}", None, 1.0, 0)
    parsed(entry.filter)
    return entry


class _Pair:
    """Two brokers that are neighbours, on disks that never fail; `spent_s` is what each step of one has cost it."""

    def __init__(self, kept: dict[str, bytes]) -> None:
        self.disks: dict[str, dict[str, bytes]] = {"home": dict(kept), "beside": {}}
        self.spent_s = {"home": 0.0, "beside": 0.0}
        self.brokers: dict[str, Broker] = {}
        for name, other in (("home", "beside"), ("beside", "home")):
            began = time.process_time()
            settings = BrokerSettings(
                name=name, neighbours=frozenset((other,)), max_subscriptions=2 * max(SUBSCRIBED), tracing=False
            )
            self.brokers[name] = Broker(settings, dict(self.disks[name]))
            effects = self.brokers[name].start(SECOND)
            self.spent_s[name] += time.process_time() - began
            self.carry(name, effects)
        for name, other in (("home", "beside"), ("beside", "home")):
            self.step(name, self.brokers[name].connected, other)

    def step(self, name: str, do: Callable[..., list[Any]], *what: Any) -> None:
        began = time.process_time()
        effects = do(*what, SECOND)
        self.spent_s[name] += time.process_time() - began
        self.carry(name, effects)

    def carry(self, name: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Sync):
                self.step(name, self.brokers[name].synced, effect.token)
            elif isinstance(effect, Store):
                self.disks[name][effect.key] = effect.value
            elif isinstance(effect, Send) and effect.connection in self.brokers:
                self.step(effect.connection, self.brokers[effect.connection].receive, name, effect.frame)


def _subscribing_s(count: int) -> tuple[float, float]:
    """Seconds of one subscription more, at home and at a neighbour."""
    pair = _Pair(_stored(count))
    home, beside = pair.brokers["home"], pair.brokers["beside"]
    pair.step("home", home.connected, "client")
    pair.step("home", home.receive, "client", wire.encode(wire.Hello(wire.VERSION, "client", "client", 1, 16)))
    for broker in (home, beside):
        broker.gossip.local.match(_EVENT)
        broker.gossip.interests.match(_EVENT)
    frames = [wire.encode(wire.Subscribe(home.epoch, number, _entry(count + number))) for number in range(MEASURED)]
    pair.spent_s = dict.fromkeys(pair.spent_s, 0.0)
    for frame in frames:
        pair.step("home", home.receive, "client", frame)
        for name, interests in (("home", home.gossip.local), ("beside", beside.gossip.interests)):
            began = time.process_time()
            interests.match(_EVENT)
            pair.spent_s[name] += time.process_time() - began
    assert len(beside.gossip.interests) == count + MEASURED
    return pair.spent_s["home"] / MEASURED, pair.spent_s["beside"] / MEASURED


def _coming_back_s(count: int) -> tuple[float, float]:
    """Seconds of one subscription when its home starts from its disk, and when a neighbour learns of all of them."""
    pair = _Pair(_stored(count))
    assert len(pair.brokers["beside"].gossip.interests) == count
    return pair.spent_s["home"] / count, pair.spent_s["beside"] / count


def _stored(count: int) -> dict[str, bytes]:
    """The disk of a broker with so many subscriptions."""
    stored = {f"subscription/6/client/s{n}": wire.encode_plain(("client", _entry(n))) for n in range(count)}
    return {"epoch": b"1", "ready": b"", **stored}


def _bare_subscribing_s(count: int) -> float:
    index = MatchingIndex((number, parsed(_entry(number).filter)) for number in range(count))
    index.match(_EVENT)
    filters = [parsed(_entry(count + number).filter) for number in range(MEASURED)]
    began = time.process_time()
    for number, filter in enumerate(filters, count):
        index.add(number, filter)
        index.match(_EVENT)
    return (time.process_time() - began) / MEASURED


_EVENT: dict[str, int | float | str | bool] = {"symbol": "S7", "price": 99}
