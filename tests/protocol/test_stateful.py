"""Machines under random steps: whatever happens in whatever order, the promises that hold at every moment hold."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings.protocol import (
    Broker,
    BrokerSettings,
    Client,
    ClientSettings,
    Connect,
    Deliver,
    Disconnect,
    Erase,
    RequestError,
    Send,
    SetTimer,
    Store,
    Sync,
    is_address,
)

MS = 10**6
SECOND = 10**9
LINKS = (("a", "b"), ("b", "c"), ("a", "c"), ("p", "a"), ("s", "c"), ("t", "b"))


class Overlay(RuleBasedStateMachine):
    """Three brokers in a triangle and three clients; frames are kept in a bag and taken out in any order."""

    interest_bytes = 65_536

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 10 * SECOND
        self.machines: dict[str, Any] = {}
        self.disks: dict[str, list[dict[str, bytes]]] = {}
        self.bag: list[tuple[str, str, bytes]] = []
        self.syncs: list[tuple[str, int]] = []
        self.timers: dict[str, int] = {}
        self.delivered: list[tuple[str, str, Any]] = []
        self.published: dict[tuple[str, int, int], int] = {}
        self.links = set(LINKS)
        self.wanted: set[tuple[str, str]] = set()

    @initialize()
    def begin(self) -> None:
        for name in "abc":
            self.disks[name] = [{}, {}]
            self.start(name, {})
        for name in "pst":
            self.machines[name] = Client(ClientSettings(name=name))
            self.machines[name].start(self.now_ns)
        for one, other in LINKS[3:]:
            self.do(one, self.machines[one].connected(other, self.now_ns))
        self.do("p", self.machines["p"].advertise("all", "x >= 0", self.now_ns))
        self.do("s", self.machines["s"].subscribe("high", "x > 4", self.now_ns))
        self.do("t", self.machines["t"].subscribe("low", "x < 6", self.now_ns, late_ns=SECOND))

    def start(self, name: str, kept: dict[str, bytes]) -> None:
        beside = {one if other == name else other for one, other in self.links if name in (one, other)}
        graph = frozenset(beside & set("abc"))
        machine = self.machines[name] = Broker(
            BrokerSettings(
                name=name,
                neighbours=graph,
                max_queued=4,
                max_queued_client=3,
                max_stored=12,
                window=3,
                interest_bytes=self.interest_bytes,
            ),
            kept,
        )
        self.do(name, machine.start(self.now_ns))
        for other in sorted(beside):
            self.do(name, machine.connected(other, self.now_ns))
            if other in self.machines:
                self.do(other, self.machines[other].connected(name, self.now_ns))

    def do(self, name: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.bag.append((name, effect.connection, effect.frame))
            elif isinstance(effect, Store):
                self.disks[name][1][effect.key] = effect.value
            elif isinstance(effect, Erase):
                self.disks[name][1].pop(effect.key, None)
            elif isinstance(effect, Sync):
                self.syncs.append((name, effect.token))
            elif isinstance(effect, SetTimer):
                self.timers[name] = effect.at_ns
            elif isinstance(effect, Connect):
                self.links.add((name, effect.broker))
                self.both(name, effect.broker, "connected")
            elif isinstance(effect, Disconnect):
                self.links.discard((name, effect.broker))
                self.bag = [each for each in self.bag if {*each[:2]} != {name, effect.broker}]
                self.both(name, effect.broker, "disconnected")
            elif isinstance(effect, Deliver):
                self.delivered.append((name, effect.subscription, effect.event))
                assert (self.published[effect.event] > 4) if name == "s" else (self.published[effect.event] < 6)

    def both(self, client: str, broker: str, what: str) -> None:
        """Both ends learn of a connection."""
        for one, other in ((client, broker), (broker, client)):
            if one in self.machines:
                self.do(one, getattr(self.machines[one], what)(other, self.now_ns))

    @rule(client=st.sampled_from("pst"), broker=st.sampled_from("abc"))
    def move(self, client: str, broker: str) -> None:
        try:
            effects = self.machines[client].move(broker, self.now_ns)
        except RequestError:
            return  # it is not greeted yet, or moving already
        self.do(client, effects)

    @rule(x=st.integers(0, 9), lifetime_ms=st.sampled_from([100, 5_000, None]))
    def publish(self, x: int, lifetime_ms: int | None) -> None:
        client = self.machines["p"]
        if client.bounds()["unacknowledged"][0] < 20:
            lifetime_ns = None if lifetime_ms is None else lifetime_ms * MS
            sequence, effects = client.publish({"x": x}, self.now_ns, lifetime_ns=lifetime_ns)
            self.published["p", 1, sequence] = x
            self.do("p", effects)

    @rule(count=st.integers(1, 30), pick=st.integers(0, 10**9))
    def carry(self, count: int, pick: int) -> None:
        for step in range(min(count, len(self.bag))):
            source, target, frame = self.bag.pop((pick + step * 7919) % len(self.bag))
            if target in self.machines:
                self.do(target, self.machines[target].receive(source, frame, self.now_ns))

    @rule()
    def carry_in_order(self) -> None:
        for _ in range(300):
            if not self.bag:
                break
            source, target, frame = self.bag.pop(0)
            if target in self.machines:
                self.do(target, self.machines[target].receive(source, frame, self.now_ns))

    @rule(count=st.integers(1, 10), pick=st.integers(0, 10**9))
    def lose(self, count: int, pick: int) -> None:
        for _ in range(min(count, len(self.bag))):
            self.bag.pop(pick % len(self.bag))

    @rule(pick=st.integers(0, 10**9))
    def double(self, pick: int) -> None:
        if self.bag:
            self.bag.append(self.bag[pick % len(self.bag)])

    @rule()
    def sync(self) -> None:
        for name, token in self.syncs[:]:
            self.syncs.remove((name, token))
            if name in self.machines:
                self.disks[name][0] = dict(self.disks[name][1])
                self.do(name, self.machines[name].synced(token, self.now_ns))

    @rule(duration_ms=st.sampled_from([1, 50, 400, 3_000, 12_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS
        for name in sorted(self.timers):
            if self.timers[name] <= self.now_ns and name in self.machines:
                del self.timers[name]
                self.do(name, self.machines[name].wake(self.now_ns))

    @rule(name=st.sampled_from("abc"), loses_tail=st.booleans())
    def crash_and_start(self, name: str, loses_tail: bool) -> None:
        """Whoever was connected with it hears that it is not, and then that it is again."""
        del self.machines[name]
        beside = sorted({one if other == name else other for one, other in self.links if name in (one, other)})
        self.bag = [frame for frame in self.bag if name not in frame[:2]]
        for other in beside:
            self.do(other, self.machines[other].disconnected(name, self.now_ns))
        self.timers.pop(name, None)
        self.syncs = [(other, token) for other, token in self.syncs if other != name]
        kept = dict(self.disks[name][0 if loses_tail else 1])
        self.disks[name] = [dict(kept), dict(kept)]
        self.now_ns += 5 * MS
        self.start(name, kept)

    @rule(client=st.sampled_from("st"), is_paused=st.booleans())
    def pause(self, client: str, is_paused: bool) -> None:
        machine = self.machines[client]
        self.do(client, (machine.pause if is_paused else machine.resume)(self.now_ns))

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        assert len(set(self.delivered)) == len(self.delivered)

    @invariant()
    def bounds_are_kept(self) -> None:
        for machine in self.machines.values():
            for what, (size, bound) in machine.bounds().items():
                assert size <= bound, what

    def teardown(self) -> None:
        """Nothing is broken any more: in the end the overlay comes to rest, and forgets everything."""
        if not self.machines:
            return
        for _ in range(120):
            self.now_ns += 500 * MS
            self.sync()
            for name in sorted(self.timers):
                if self.timers[name] <= self.now_ns:
                    del self.timers[name]
                    self.do(name, self.machines[name].wake(self.now_ns))
            self.sync()
            while self.bag:
                self.carry_in_order()
        views = [self.machines[name].view() for name in "abc"]
        assert views[0].links == views[1].links == views[2].links == {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}
        assert views[0].interests == views[1].interests == views[2].interests
        found = {
            (home, *reported)
            for home, each in views[0].interests.items()
            for reported in each
            if not is_address(reported[0])
        }
        homes = {client: self.machines[client].home.name for client in "pst"}
        more = {(homes[client], f"{client}/{name}", f"y = {name[4:]}") for client, name in self.wanted}
        assert found == {(homes["t"], "t/low", "x < 6"), (homes["s"], "s/high", "x > 4")} | more
        for client in "pst":
            knowing = [name for name in "abc" if client in self.machines[name].clients]
            assert knowing == [homes[client]]
            assert [other for one, other in self.links if one == client] == knowing
            assert not self.machines[client].is_moving


class OverlayInParts(Overlay):
    """The same with tables of subscriptions that go one by one, and more of them."""

    interest_bytes = 1

    @rule(client=st.sampled_from("pst"), number=st.integers(0, 5), is_wanted=st.booleans())
    def change_mind(self, client: str, number: int, is_wanted: bool) -> None:
        machine, name = self.machines[client], f"more{number}"
        self.wanted = {(who, what) for who, what in self.wanted if (who, what) != (client, name)}
        if is_wanted:
            self.wanted.add((client, name))
            self.do(client, machine.subscribe(name, f"y = {number}", self.now_ns))
        else:
            self.do(client, machine.unsubscribe(name, self.now_ns))


TestOverlayInParts = OverlayInParts.TestCase
TestOverlayInParts.settings = settings(max_examples=15, stateful_step_count=50, deadline=None)

TestOverlay = Overlay.TestCase
TestOverlay.settings = settings(max_examples=15, stateful_step_count=50, deadline=None)
