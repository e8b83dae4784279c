"""Events that wait for clients that lag: what they share must change nothing that anybody sees."""

import random
from typing import Any

import pytest

from tidings.protocol import Broker, BrokerSettings, Erase, Send, SetTimer, Store, Sync, wire
from tidings.protocol.broker._carrier import Carrier
from tidings.protocol.broker._held import Held
from tidings.protocol.links._peers import Peer

SECOND = 10**9
READERS = {"quick": None, "late": None, "brief": SECOND // 5, "patient": 2 * SECOND, "recent": None}
TRANSFER = 10


class World:
    """A broker with a publisher and five readers, of which some acknowledge late or go away."""

    def __init__(self, seed: int, max_queued: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = SECOND
        settings = BrokerSettings(
            name="b", neighbours=frozenset(), tracing=False, max_queued_client=max_queued, window=8
        )
        self.broker = Broker(settings)
        self.sent: list[Send] = []
        self.stored: list[str] = []
        self.shared = 0
        self._sequence = 0
        self._wakes_ns = 0
        self._owed: dict[str, list[tuple[int, int, int]]] = {name: [] for name in READERS}
        self._do(self.broker.start(self.now_ns))
        for name in ("source", *READERS):
            self._come(name)
        self._say("source", wire.Advertise(self.broker.epoch, 0, "all", "TRUE"))
        for name, max_delay_ns in READERS.items():
            filter = "n >= 0" if name != "patient" else "n >= 0 AND n % 3 < 2"
            conflate = ("key",) if name == "recent" else ()
            entry = wire.Entry("s", filter, max_delay_ns, 1.0, 0, None, conflate)
            self._say(name, wire.Subscribe(self.broker.epoch, 0, entry))

    def _come(self, name: str) -> None:
        self._do(self.broker.connected(name, self.now_ns))
        self._say(name, wire.Hello(wire.VERSION, name, "client", 1, 64))

    def step(self) -> None:
        self.now_ns += self.random.randrange(1, SECOND // 20)
        many = self.random.randrange(1, 6)
        numbers = range(self._sequence, self._sequence + many)
        self._sequence += many
        lifetime_ns = self.random.choice((SECOND, 3 * SECOND))
        contents = {n: wire.encode_content(wire.Content({"n": n, "key": n % 7}, b"", bytes(20))) for n in numbers}
        events = tuple(wire.Publication(n, self.now_ns, 0, lifetime_ns, 20, contents[n]) for n in numbers)
        self._say("source", wire.Publish(1, numbers[0], numbers[0], events))
        self.shared += sum(held.part is not None for held in self.broker.carrier.holdings.held.values())
        for name in READERS:
            self._answer(name)
        if self._wakes_ns <= self.now_ns:
            self._wakes_ns = 2**62
            self._do(self.broker.wake(self.now_ns))

    def _answer(self, name: str) -> None:
        is_here = any(peer.is_up for peer in [self.broker.carrier.router._clients[name]])
        if name != "quick" and self.random.random() < 0.05:
            self._owed[name].clear()
            if is_here:
                self._do(self.broker.disconnected(name, self.now_ns))
            else:
                self._come(name)
        elif is_here and (name == "quick" or self.random.random() < 0.3):
            owed, self._owed[name] = self._owed[name], []
            for session, first, last in owed:
                self._say(name, wire.Ack(session, ((first, last),), 0, 64))

    def _say(self, name: str, message: wire.Message) -> None:
        self._do(self.broker.receive(name, wire.encode(message), self.now_ns))

    def _do(self, effects: list[Any]) -> None:
        written: list[str] = []
        while effects:
            more: list[Any] = []
            for effect in effects:
                match effect:
                    case Sync():
                        more += self.broker.synced(effect.token, self.now_ns)
                    case SetTimer():
                        self._wakes_ns = effect.at_ns
                    case Store() | Erase():
                        written.append(repr(effect))
                    case Send():
                        self.sent.append(effect)
                        if effect.frame[1] == TRANSFER:
                            sent = wire.decode(effect.frame)
                            assert isinstance(sent, wire.Transfer)
                            last = sent.number + len(sent.events) - 1
                            self._owed[effect.connection].append((sent.session, sent.number, last))
            effects = more
        self.stored += sorted(written)  # what is dropped together may be erased in any order


def with_own_lists(self: Carrier, events: list[Held], peers: list[Peer], now_ns: int) -> None:
    """Every event has lists and parcels of its own from the start."""
    local = {peer.name: events[0].course.local[peer.name] for peer in peers}
    self.holdings.hold_part(events, {}, local)
    for client in sorted(local):
        self.router.hand_to_client(events, client, now_ns)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_queued", [5, 40])
def test_what_leaves_and_what_is_kept_is_the_same_with_lists_of_its_own(
    seed: int, max_queued: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing = World(seed, max_queued)
    for _ in range(150):
        sharing.step()
    monkeypatch.setattr(Carrier, "keep_for", with_own_lists)
    owning = World(seed, max_queued)
    for _ in range(150):
        owning.step()
    assert sharing.shared > 20
    assert owning.shared == 0
    assert sharing.sent == owning.sent
    assert sharing.stored == owning.stored
    assert sharing.broker.counts == owning.broker.counts
    assert sharing.broker.counts["replaced"] > 20
    assert sharing.broker.is_within_bounds()


def test_what_waits_for_a_reader_that_lags_has_no_parcel_and_no_list_of_its_own() -> None:
    world = World(0, 1_000)
    world._do(world.broker.disconnected("late", world.now_ns))
    for _ in range(30):
        world.step()
    waiting = [held for held in world.broker.carrier.holdings.held.values() if "late" in held.local]
    shared = {id(held.local) for held in waiting if held.part is not None}
    assert len(shared) < len(waiting) / 4
    assert not any(held.handed for held in waiting if held.part is not None)


def test_what_is_let_go_leaves_nothing_behind() -> None:
    world = World(3, 20)
    for _ in range(100):
        world.step()
    world.now_ns += 60 * SECOND
    world._do(world.broker.wake(world.now_ns))
    assert not world.broker.carrier.holdings.held
    for name in READERS:
        outbox = world.broker.carrier.router._clients[name].outbox
        assert (outbox.queued, outbox.queue.size_bytes, len(outbox.queue._waiting)) == (0, 0, 0)
