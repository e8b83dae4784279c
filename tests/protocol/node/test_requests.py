"""Requests have a share of the processor while events arrive: a client that floods waits, and no other."""

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.door import SECOND, STEP_NS, Door

from tidings.protocol import Budget, wire
from tidings.protocol.node import Report
from tidings.protocol.node._requests import (
    ANSWERS_EACH,
    ANSWERS_MOST,
    CALM_NS,
    CALM_SLICE_US,
    QUANTUM_US,
    REQUESTS_SHARE,
    SLICE_US,
    Requests,
    cost_us,
)


def subscribe(door: Door, number: int, text: str = "x = 1") -> bytes:
    return wire.encode(wire.Subscribe(door.machine.epoch, number, wire.Entry(f"n{number}", text, None, 1.0, 0)))


class Busy(Door):
    """A door through which an event comes with every step of time."""

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__(budget or Budget())
        self.numbers = count()
        self.come("rich-p")
        self.say("rich-p", [wire.encode(wire.Advertise(self.machine.epoch, 0, "all", "TRUE"))])
        self.publish()

    def publish(self) -> None:
        """An event, which is taken in whatever else waits."""
        number, before = next(self.numbers), self.machine.events_in
        content = wire.encode_content(wire.Content({"n": number}, b"", b""))
        event = wire.Publication(number, self.now_ns, 0, 60 * SECOND, 10, content)
        self.say("rich-p", [wire.encode(wire.Publish(1, number, number, (event,)))])
        assert self.machine.events_in == before + 1

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * SECOND / STEP_NS)):
            super().wait(STEP_NS / SECOND)
            self.publish()


def test_a_flood_gets_its_share_while_events_come_and_is_neither_lost_nor_reordered() -> None:
    door, many = Busy(), 3_000
    door.come("flood")
    frames = [subscribe(door, n) for n in range(1, many + 1)]
    each_us = cost_us(frames[-1])
    door.say("flood", frames)
    seen = [door.subscriptions("flood")]
    assert seen[0] * each_us <= SLICE_US + QUANTUM_US + each_us
    for _ in range(20):
        door.wait(0.1)
        seen.append(door.subscriptions("flood"))
        passed_us = 1e5 * (len(seen) - 1)
        assert seen[-1] * each_us <= REQUESTS_SHARE * passed_us + 2 * SLICE_US + each_us
        assert seen[-1] * each_us >= 0.7 * REQUESTS_SHARE * passed_us - SLICE_US  # timers here are coarse
    assert door.reads == [("flood", False)]
    while door.subscriptions("flood") < many:
        assert len(seen) < 100
        door.wait(0.1)
        seen.append(door.subscriptions("flood"))
    assert list(door.machine.gossip.local.of("flood")) == [f"n{n}" for n in range(1, many + 1)]
    assert door.reads == [("flood", False), ("flood", True)]


def test_without_events_slices_follow_each_other_without_waiting() -> None:
    door = Door(Budget())
    door.come("c")
    door.say("c", [subscribe(door, n) for n in range(1, 301)])
    seen = [door.subscriptions("c")]
    while door.node.is_stirred:
        door.carry(door.node.turn(door.now_ns))
        seen.append(door.subscriptions("c"))
    assert seen[-1] == 300
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) * cost_us(subscribe(door, 300)) <= CALM_SLICE_US + QUANTUM_US
    assert door.reads == [("c", False), ("c", True)]


def test_who_asks_for_little_is_next_however_many_flood() -> None:
    door = Busy()
    for name in ("one", "two", "lean"):
        door.come(name)
    for name in ("one", "two"):
        door.say(name, [subscribe(door, n) for n in range(1, 2_000)])
    door.wait(0.5)
    door.say("lean", [subscribe(door, 1)])
    door.wait(2.0 * SLICE_US * 1e-6 / REQUESTS_SHARE)
    assert door.subscriptions("lean") == 1
    assert abs(door.subscriptions("one") - door.subscriptions("two")) <= QUANTUM_US / cost_us(subscribe(door, 1)) + 1
    assert ("lean", False) not in door.reads or door.reads[-1] == ("lean", True)


def test_events_behind_requests_come_after_them_and_answers_to_events_need_no_share() -> None:
    door = Busy()
    door.come("s")
    door.say("s", [subscribe(door, 1, "n >= 0")])
    door.publish()
    flood = [subscribe(door, n) for n in range(2, 500)]
    door.say("s", [wire.encode(wire.Ack(door.machine.epoch, ((0, 0),), 0, 256))])
    door.come("flood")
    door.say("flood", flood)
    waited = door.node.requests.waited
    door.publish()
    door.say("s", [wire.encode(wire.Ack(door.machine.epoch, ((1, 1),), 0, 256))])
    assert door.node.requests.waited == waited  # it did not have to wait behind the flood
    content = wire.encode_content(wire.Content({"n": 0}, b"", b""))
    event = wire.Publication(0, door.now_ns, 0, 60 * SECOND, 10, content)
    before = door.machine.events_in
    door.say("flood", [wire.encode(wire.Publish(1, 0, 0, (event,)))])
    assert door.machine.events_in == before
    door.wait(2.0)
    while door.subscriptions("flood") < len(flood):
        door.wait(0.1)
    assert door.reads[-1] == ("flood", True)


def test_a_flood_of_answers_to_nothing_is_one_of_requests() -> None:
    door = Busy()
    door.come("s")
    door.say("s", [subscribe(door, 1, "n >= 0")])
    door.wait(0.1)
    answers = [wire.encode(wire.Credit(n + 1)) for n in range(ANSWERS_MOST + 1_000)]
    door.say("s", answers[:ANSWERS_EACH])
    assert not door.reads
    door.say("s", answers)
    assert door.reads == [("s", False)]
    door.wait(2.0)
    assert door.machine.clients["s"].outbox.credit == len(answers)


def test_a_client_that_waits_for_long_is_alive_and_reported_once_with_the_remedy() -> None:
    door = Busy()
    reports: list[Report] = []
    carry = door.carry
    door.carry = lambda effects: (reports.extend(e for e in effects if isinstance(e, Report)), carry(effects))[1]  # type: ignore[method-assign]
    door.come("flood")
    door.say("flood", [subscribe(door, n) for n in range(1, 9_000)])
    door.wait(4.0)
    assert door.machine.clients["flood"].is_up
    purse = door.purse("flood")
    assert purse.was_held_back >= 3
    assert purse.held_back_ns >= 3 * SECOND
    (message,) = [each for each in reports if each.event == "client held back"]
    assert "25%" in str(message.facts["why"])
    assert "[limits] requests" in str(message.facts["remedy"])


def test_who_leaves_while_its_requests_wait_is_forgotten() -> None:
    door = Busy()
    for name in ("gone", "stays"):
        door.come(name)
        door.say(name, [subscribe(door, n) for n in range(1, 400)])
    door.carry(door.node.lost("gone", "cut", door.now_ns))
    left = door.subscriptions("gone")
    door.wait(3.0)
    assert door.subscriptions("gone") == left
    assert door.subscriptions("stays") == 399
    assert len(door.node.requests) == 0


def test_what_is_over_the_rate_waits_for_the_rate() -> None:
    door = Busy(Budget(rate_per_s=20.0))
    door.come("c")
    door.say("c", [subscribe(door, n) for n in range(1, 101)])
    door.wait(2.0)
    assert 40 <= door.subscriptions("c") <= 70
    door.wait(4.0)
    assert list(door.machine.gossip.local.of("c")) == [f"n{n}" for n in range(1, 101)]


costs = st.lists(st.floats(1.0, 2_000.0), min_size=1, max_size=60)


@given(st.lists(costs, min_size=1, max_size=5), st.floats(0.05, 1.0))
def test_no_more_than_the_share_is_done_and_nobody_gets_more_than_a_request_ahead(
    wanted: list[list[float]], share: float
) -> None:
    """Of any requests of any clients, each at least one at a time, while events come."""
    requests: Requests[int] = Requests(share)
    done, tags, left = [0.0] * len(wanted), [0.0] * len(wanted), [list(each) for each in wanted]
    for who in range(len(wanted)):
        requests.put(who, 0.0)
    now_ns, events = 1, 0
    largest = max(map(max, wanted))
    while len(requests):
        events += 1
        is_due = requests.begin(events, now_ns)
        assert is_due
        while (found := requests.next()) is not None:
            who, tag_us = found
            spent_us = left[who].pop(0)
            requests.spend(spent_us)
            done[who] += spent_us
            tags[who] = tag_us + spent_us
            waiting = [done[each] for each in range(len(wanted)) if left[each]]
            if left[who]:
                requests.put(who, tags[who])
            assert not waiting or max(waiting) - min(waiting) <= 2 * largest + 1e-6
        requests.end(now_ns)
        assert sum(done) <= share * now_ns * 1e-3 + SLICE_US + largest + 1e-3
        now_ns = max(now_ns + 1, requests.due_ns)
        assert not requests.is_calm


def test_it_is_calm_when_no_event_has_come_for_a_while() -> None:
    requests: Requests[str] = Requests(0.5)
    assert requests.begin(0, 0)
    assert requests.is_calm
    for now_ns, is_calm in ((5, False), (4 + CALM_NS, False), (5 + CALM_NS, True)):
        requests.begin(1, now_ns)
        assert requests.is_calm == is_calm
