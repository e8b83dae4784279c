"""Ages against the truth: in virtual time, between clocks that have nothing in common, it is known how old an event is.

The clocks of `frames` begin anywhere and run up to 100 ppm fast or slow.
"""

from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from tests.protocol.frames import Network, Node

from tidings.ordering import Stamp
from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, Deliver, wire
from tidings.storm._dice import Dice

MS = 10**6
SECOND = 10**9


class Truth:
    """Brokers in a row, a publisher `p` at the first and a subscriber `s` at the last; and how wrong ages are."""

    def __init__(self, *brokers: str, latency_ns: float = 0.0, ns_per_byte: float = 0.0) -> None:
        self.network = Network(Dice(np.random.default_rng(7)), self._on_effect)
        self.sent_ns: list[int] = []
        self.errors_ns: list[int] = []
        """The stated age minus the true one, of each delivery."""
        self.ages_ns: list[int] = []
        self.stated_ns: list[int] = []
        """By how much each age may be wrong, as the delivery says; what stands still keeps to no such thing."""
        self.is_standing_still = False
        joints = [*pairwise(brokers), ("p", brokers[0]), ("s", brokers[-1])]
        for name in (*brokers, "p", "s"):
            self.network.add(name)
        for one, other in joints:
            self.network.join(one, other, latency_ns, 0.0, ns_per_byte)
        for name in brokers:
            beside = frozenset(one if other == name else other for one, other in joints[:-2] if name in (one, other))
            settings = BrokerSettings(name=name, neighbours=beside, window=1_024)
            self.network.start(self.network.nodes[name], Broker(settings))
        self.run(4 * SECOND)

    def join(self, **subscription: Any) -> None:
        """The clients come; what they ask for takes a moment."""
        for name in ("p", "s"):
            node = self.network.nodes[name]
            self.network.start(node, Client(ClientSettings(name=name, window=1_024)))
            for broker in self.network.nodes.values():
                if name in broker.links and broker.machine is not None:
                    self.network.step(broker, broker.machine.connected(name, broker.clock_ns(self.network.now_ns)))
        self.call("p", "advertise", "all", "TRUE")
        self.call("s", "subscribe", "all", "n >= 0", **subscription)

    def call(self, name: str, what: str, *arguments: Any, **more: Any) -> Any:
        node = self.network.nodes[name]
        return self.network.call(node, getattr(node.machine, what), *arguments, **more)

    def publish(self, size_bytes: int = 10) -> None:
        self.sent_ns.append(self.network.now_ns)
        self.call("p", "publish", {"n": len(self.sent_ns)}, payload=bytes(size_bytes))

    def run(self, duration_ns: int) -> None:
        self.network.run(self.network.now_ns + duration_ns)

    def stream(self, count: int, every_ns: int, size_bytes: int = 10) -> None:
        for _ in range(count):
            self.publish(size_bytes)
            self.run(every_ns)

    def worst_ns(self) -> int:
        """The largest error of the ages since this was last asked for; something must have come."""
        errors, self.errors_ns = self.errors_ns, []
        assert errors
        return max(map(abs, errors))

    def _on_effect(self, node: Node, effect: Any) -> None:  # noqa: ARG002
        if isinstance(effect, Deliver) and effect.subscription == "all":
            age_ns = self.network.now_ns - self.sent_ns[effect.event[2]]
            self.errors_ns.append(effect.age_ns - age_ns)
            assert effect.error_ns is not None
            self.stated_ns.append(effect.error_ns)
            assert abs(effect.age_ns - age_ns) <= effect.error_ns + 10 or self.is_standing_still
            self.ages_ns.append(age_ns)


def test_ages_are_right_as_soon_as_the_clients_are_known() -> None:
    """Nothing takes time, so nothing is old; no guess of a round trip is taken for a measurement."""
    truth = Truth("a")
    truth.join()
    truth.run(100 * MS)
    truth.stream(50, 10 * MS)
    assert max(truth.ages_ns) < 45 * MS  # what it takes to make an event durable
    assert truth.worst_ns() < MS


def test_a_tight_deadline_on_a_quick_wire_is_met_from_the_start() -> None:
    truth = Truth("a")
    truth.join(max_delay_ns=20 * MS)
    truth.run(100 * MS)
    truth.stream(1_000, 3 * MS)
    assert len(truth.errors_ns) == 1_000


@pytest.mark.parametrize("latency_ms", [0.2, 20.0, 200.0])
def test_ages_include_several_links(latency_ms: float) -> None:
    truth = Truth("a", "b", "c", latency_ns=latency_ms * MS)
    truth.join()
    truth.run(2 * SECOND)
    truth.stream(100, 20 * MS)
    truth.run(2 * SECOND)
    assert len(truth.errors_ns) == 100
    assert truth.worst_ns() < 2 * MS


def test_a_stall_at_the_greeting_is_made_good_within_a_second() -> None:
    """The first pings of each link wait 300 ms on one of its two directions: that says nothing about clocks."""
    truth = Truth("a", latency_ns=MS)
    stalls: list[Any] = []
    for pair in (("a", "p"), ("a", "s")):
        link = truth.network.links[pair]
        link.draw = lambda _: (0.0, 300.0 * MS)
        stalls.append(link)
    truth.join()
    truth.run(10 * MS)
    for link in stalls:
        link.draw = None
    truth.run(SECOND)
    truth.stream(50, 10 * MS)
    truth.run(SECOND)
    assert truth.worst_ns() < 2 * MS


def test_a_large_event_is_not_held_to_be_older_because_acknowledgements_of_small_ones_took_time() -> None:
    """Acknowledgements wait, for disks, for 25 ms at clients, in transit: that does not grow with an event's size."""
    truth = Truth("a", "b", latency_ns=2 * MS)
    truth.join()
    truth.call("s", "advertise", "all", "TRUE")
    truth.call("p", "subscribe", "echo", "back = 1")
    truth.run(2 * SECOND)
    for link in truth.network.links.values():  # now and then a frame takes longer, on any link
        frames = count()
        link.draw = lambda _, frames=frames: (0.0, (7.0 if next(frames) % 3 == 0 else 2.0) * MS)
    for _ in range(500):
        truth.publish(50)
        truth.call("s", "publish", {"back": 1})
        truth.run(3 * MS)
    truth.worst_ns()
    truth.publish(100_000)
    truth.run(3 * SECOND)
    assert truth.worst_ns() < 5 * MS


def test_what_waits_on_a_slow_link_grows_older_there() -> None:
    truth = Truth("a", "b", latency_ns=MS, ns_per_byte=5_000)
    truth.join()
    truth.run(2 * SECOND)
    for _ in range(20):
        truth.stream(10, 0, size_bytes=2_000)
        truth.run(SECOND)
    assert max(truth.ages_ns) > 50 * MS
    assert truth.worst_ns() < 2 * MS


def test_clocks_that_drift_do_not_make_events_older() -> None:
    """Half an hour at the worst rates, with hardly any traffic."""
    truth = Truth("a", "b", latency_ns=10 * MS)
    for name, rate in (("a", 1.0 + 1e-4), ("b", 1.0 - 1e-4), ("s", 1.0 + 1e-4)):
        truth.network.nodes[name].rate = rate
    truth.join()
    truth.run(2 * SECOND)
    for _ in range(30):
        truth.publish()
        truth.run(60 * SECOND)
    assert len(truth.errors_ns) == 30
    assert truth.worst_ns() < 6 * MS


@pytest.mark.parametrize("late", ["a", "s"])
def test_a_clock_that_stood_still_is_noticed(late: str) -> None:
    """For 5 s one machine did nothing, and its clock stood still: the next pings show how far the two are apart now."""
    truth = Truth("a", latency_ns=MS)
    truth.join()
    truth.run(2 * SECOND)
    truth.is_standing_still = True
    for name, node in truth.network.nodes.items():
        if name != late:
            node.offset_ns += 5 * SECOND
    truth.run(10 * SECOND)
    truth.is_standing_still = False
    truth.publish()
    truth.run(SECOND)
    assert truth.worst_ns() < 2 * MS


def test_directions_that_differ_make_the_age_wrong_by_half_the_difference_and_the_delivery_says_so() -> None:
    """60 ms to the subscriber and 5 ms back."""
    truth = Truth("a", latency_ns=5 * MS)
    truth.network.links["a", "s"].latency_ns = 60 * MS
    truth.join()
    truth.run(2 * SECOND)
    truth.stream(50, 10 * MS)
    truth.run(SECOND)
    assert truth.errors_ns[-1] == pytest.approx(-27.5 * MS, abs=MS)
    assert truth.stated_ns[-1] == pytest.approx((32.5 + 5) * MS, abs=2 * MS)


def test_the_error_is_stated_from_the_first_event_on() -> None:
    """It is in the queue before anybody has greeted."""
    truth = Truth("a", "b", latency_ns=20 * MS)
    truth.join()
    truth.publish()
    truth.run(3 * SECOND)
    truth.publish()
    truth.run(SECOND)
    assert truth.stated_ns


def test_nobody_knows_the_error_of_clocks_that_are_held_to_be_synchronised() -> None:
    client = Client(ClientSettings(name="s", synchronised_clocks=True))
    client.start(SECOND)
    client.subscribe("all", "n >= 0", SECOND)
    client.connected("b", SECOND)
    client.receive("b", wire.encode(wire.Hello(wire.VERSION, "b", "broker", 5, 64, SECOND)), SECOND)
    client.receive("b", wire.encode(wire.Welcome(wire.VERSION, "b", "broker", 5, 64, SECOND, SECOND)), SECOND)
    stamp = Stamp(sequence=0, departure_ns=SECOND, previous_departure_ns=SECOND)
    content = wire.encode_content(wire.Content({"n": 1}, stamp.encode(), b""))
    event = wire.Event("p", 1, 0, "b", SECOND, 0, None, 10, 0, content, error_ns=0)
    effects = client.receive("b", wire.encode(wire.Transfer(5, 0, 0, ({"all": ()},), (event,), SECOND)), 2 * SECOND)
    (delivery,) = (effect for effect in effects if isinstance(effect, Deliver))
    assert (delivery.age_ns, delivery.error_ns) == (SECOND, None)


def test_an_event_that_waits_for_its_subscription_states_the_error_of_the_reading_that_it_came_with() -> None:
    """A better reading, later, does not make the time right at which its frame left."""
    client = Client(ClientSettings(name="s"))
    client.start(SECOND)
    client.connected("b", SECOND)
    came_ns = SECOND + 40 * MS  # so long after the greeting that the welcome answers
    client.receive("b", wire.encode(wire.Hello(wire.VERSION, "b", "broker", 5, 64, SECOND)), came_ns)
    client.receive("b", wire.encode(wire.Welcome(wire.VERSION, "b", "broker", 5, 64, SECOND, SECOND)), came_ns)
    stamp = Stamp(sequence=0, departure_ns=SECOND, previous_departure_ns=SECOND)
    content = wire.encode_content(wire.Content({"n": 1}, stamp.encode(), b""))
    event = wire.Event("p", 1, 0, "b", SECOND, 0, None, 10, 0, content, error_ns=0)
    client.receive("b", wire.encode(wire.Transfer(5, 0, 0, ({"all": ()},), (event,), SECOND)), came_ns)
    client.receive("b", wire.encode(wire.Ping(SECOND, 0, 0, came_ns, error_ns=1)), came_ns)
    client.subscribe("all", "n >= 0", came_ns)
    (delivery,) = (effect for effect in client.wake(came_ns) if isinstance(effect, Deliver))
    assert delivery.error_ns == pytest.approx(20 * MS, abs=MS)
