"""The queue to a peer, and the receiver at the other end: whatever happens, in sequence and in time."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings.ordering import Policy, Stamper
from tidings.protocol import Client, ClientSettings, Deliver, wire
from tidings.protocol.broker._held import Held
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._queue import Queue
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import IN_ORDER
from tidings.scheduling import strategy

SECOND = 10**9
MS = 10**6
STRATEGIES = ("fifo", "rl", "eb", "pc", "ebpc", "lookahead", "plan", "triage")
MOST = 12


class OneQueue(RuleBasedStateMachine):
    """Events of two publishers, some for who wants order, come in any sequence, leave, expire and are taken back."""

    @initialize(name=st.sampled_from(STRATEGIES))
    def begin(self, name: str) -> None:
        chosen = strategy(name, r=0.6 if name == "ebpc" else None)
        self.queue = Queue(chosen, LinkMeter(), processing_s=0.0, max_queued=MOST)
        self.now_ns = 100 * SECOND
        self.waiting: dict[Parcel, bool] = {}  # and whether somebody wants order
        self.used: set[tuple[str, int]] = set()

    @rule(
        publisher=st.sampled_from("pq"),
        sequence=st.integers(0, 40),
        orders=st.lists(st.booleans(), min_size=1, max_size=3),
        life_ms=st.integers(50, 20_000),
        price=st.sampled_from([0.0, 1.0, 5.0]),
    )
    def push(self, publisher: str, sequence: int, orders: list[bool], life_ms: int, price: float) -> None:
        if (publisher, sequence) in self.used:
            return
        self.used.add((publisher, sequence))
        term = (life_ms * MS, price)
        targets = {f"t{place}": (IN_ORDER, term) if one else (term,) for place, one in enumerate(orders)}
        held = Held((publisher, 1, sequence), "a", 0, self.now_ns, life_ms * MS, 200, 0, b"").alone()
        parcel = Parcel(held, Any, targets, {})  # type: ignore[arg-type]
        self.waiting[parcel] = any(orders)
        for gone in self.queue.push([parcel], self.now_ns):
            del self.waiting[gone]

    @rule(turn_ms=st.sampled_from([0.1, 5.0, 300.0]))
    def pop(self, turn_ms: float) -> None:
        sent, deleted = self.queue.pop(turn_ms * 1e-3, self.now_ns)
        for gone, _ in deleted:
            del self.waiting[gone]
        if sent is None:
            assert not self.waiting
            return
        is_ordered = self.waiting.pop(sent)
        publisher, _, sequence = sent.held.id
        if is_ordered:
            before = [
                other.held.id
                for other, wants in self.waiting.items()
                if wants and other.held.id[0] == publisher and other.held.id[2] < sequence
            ]
            assert not before

    @rule(place=st.integers(0, MOST))
    def give_up(self, place: int) -> None:
        if self.waiting:
            parcel = list(self.waiting)[place % len(self.waiting)]
            del self.waiting[parcel]
            self.queue.give_up(parcel)

    @rule()
    def take_back_and_enqueue_again(self) -> None:
        """As when routes change; in any sequence."""
        taken = self.queue.withdraw()
        assert set(taken) == self.waiting.keys()
        for parcel in reversed(taken):
            assert not self.queue.push([parcel], self.now_ns)

    @rule(name=st.sampled_from(STRATEGIES))
    def use_another_strategy(self, name: str) -> None:
        """As when an operator changes it; nothing that waits is lost, as the other rules notice."""
        self.queue.use(strategy(name, r=0.6 if name == "ebpc" else None))

    @rule(wait_ms=st.sampled_from([1, 100, 5_000]))
    def wait(self, wait_ms: int) -> None:
        self.now_ns += wait_ms * MS

    @invariant()
    def keeps_its_bounds(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.size == len(self.waiting) <= MOST


def test_what_was_given_up_does_not_stay() -> None:
    """However many are given up: what still waits leaves, in sequence, and nothing is kept of the others."""
    queue = Queue(strategy("triage"), LinkMeter(), processing_s=0.0, max_queued=1_000)
    parcels = []
    for sequence in range(1_000):
        held = Held(("p", 1, sequence), "a", 0, 100 * SECOND, 20 * SECOND, 200, 0, b"").alone()
        parcels.append(Parcel(held, Any, {"t": (IN_ORDER, (20 * SECOND, 1.0))}, {}))  # type: ignore[arg-type]
        assert not queue.push(parcels[-1:], 100 * SECOND)
    for place, parcel in enumerate(parcels):
        if place % 100:
            queue.give_up(parcel)
    assert queue.size == 10
    assert queue._queue is not None
    assert len(queue._queue) <= 100
    assert [queue.pop(0.001, 101 * SECOND)[0] for _ in range(11)] == [*parcels[::100], None]


TestOneQueue = OneQueue.TestCase
TestOneQueue.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)

ARRIVALS = st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=30)
POLICIES = st.sampled_from(["ours-record", "ours-quantile", "P-0.05-5", "CST-30000"])


@given(
    arrivals=ARRIVALS, policy=POLICIES, allowed_ms=st.sampled_from([40, 200, 5_000]), record=st.sampled_from([0, 25])
)
@settings(max_examples=150, deadline=None)
def test_what_comes_in_time_is_delivered_in_time(
    arrivals: list[tuple[int, bool]], policy: str, allowed_ms: int, record: int
) -> None:
    """However long the latch: what arrives is delivered, once, before its deadline; what is out of order says so."""
    client = Client(ClientSettings(name="s", synchronised_clocks=True))
    client.start(0)
    client.connected("a", 0)
    hello = wire.Hello(wire.VERSION, "a", "broker", 1, 64, 0)
    client.receive("a", wire.encode(hello), 0)
    client.subscribe("all", "TRUE", 0, max_delay_ns=allowed_ms * MS, policy=Policy.parse(policy))
    stamper = Stamper(record=record)
    coming = []
    for sequence, (delay_ms, comes) in enumerate(arrivals):
        departs_ns = SECOND + 10 * MS * sequence
        stamp = stamper.stamp({"x": sequence}, departs_ns)
        content = wire.encode_content(wire.Content({"x": sequence}, stamp.encode(), b""))
        event = wire.Event("p", 1, sequence, "a", departs_ns, 0, 600 * SECOND, 10, 1, content)
        if comes:
            coming.append((departs_ns + delay_ms * MS, sequence, event))
    got: list[tuple[int, Deliver]] = []

    def note(effects: list[Any], now_ns: int) -> None:
        got.extend((now_ns, effect) for effect in effects if isinstance(effect, Deliver))

    for number, (at_ns, _, event) in enumerate(sorted(coming, key=lambda each: each[:2])):
        while (due_ns := client._agenda.next_ns) is not None and due_ns <= at_ns:
            note(client.wake(due_ns), due_ns)
        note(
            client.receive("a", wire.encode(wire.Transfer(1, number, 0, ({"all": ()},), (event,), at_ns)), at_ns), at_ns
        )
    for _ in range(1_000):
        due_ns = client._agenda.next_ns
        if due_ns is None or due_ns > 60 * SECOND:
            break
        note(client.wake(due_ns), due_ns)
    in_time = {sequence for at_ns, sequence, event in coming if at_ns < event.departure_ns + allowed_ms * MS}
    delivered = [effect.event[2] for _, effect in got]
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == in_time
    assert not any(effect.late for _, effect in got)
    highest = -1
    for _, effect in got:
        assert effect.out_of_order == (effect.event[2] < highest)
        highest = max(highest, effect.event[2])
    assert client.counts["out of order"] >= sum(effect.out_of_order for _, effect in got)
