"""Many publishers at once, and the wrapper around a callback."""

import threading

import pytest

from tidings.errors import ConfigurationError
from tidings.ordering import OrderedReceiver, Policy, Receiver, Stamp

MS = 1_000_000


def stamp(sequence: int) -> Stamp:
    return Stamp(sequence=sequence, departure_ns=sequence * MS, previous_departure_ns=(sequence - 1) * MS)


def test_publishers_do_not_wait_for_each_other() -> None:
    receiver: Receiver[str] = Receiver(Policy.parse("CST-30"))
    receiver.receive("p", "p0", stamp(0), 0)
    receiver.receive("q", "q0", stamp(0), 0)
    assert receiver.receive("p", "p2", stamp(2), 10 * MS) == []
    assert [d.item for d in receiver.receive("q", "q1", stamp(1), 11 * MS)] == ["q1"]
    assert receiver.receive("q", "q3", stamp(3), 12 * MS) == []
    assert receiver.next_timer_ns == 40 * MS
    assert [d.item for d in receiver.advance(40 * MS)] == ["p2"]
    assert receiver.next_timer_ns == 42 * MS
    assert [d.item for d in receiver.receive("q", "q2", stamp(2), 41 * MS)] == ["q2", "q3"]
    assert receiver.next_timer_ns is None
    counts = receiver.counts("q")
    assert counts is not None
    assert counts.out_of_order == 1


def test_the_number_of_publishers_is_bounded_and_idle_ones_go_first() -> None:
    receiver: Receiver[str] = Receiver(Policy.parse("CST-30"), max_publishers=2, idle_ns=60 * 10**9)
    receiver.receive("a", "a0", stamp(0), 0)
    receiver.receive("b", "b0", stamp(0), 1 * MS)
    receiver.receive("a", "a2", stamp(2), 2 * MS)
    assert [d.item for d in receiver.receive("c", "c0", stamp(0), 3 * MS)] == ["c0"]  # b was silent for longest
    assert receiver.counts("b") is None
    assert receiver.receive("c", "c2", stamp(2), 4 * MS) == []
    assert [d.item for d in receiver.receive("d", "d0", stamp(0), 5 * MS)] == ["a2", "d0"]  # what a held leaves
    assert (len(receiver), receiver.evicted) == (2, 2)
    late = receiver.receive("e", "e0", stamp(0), 200 * 10**9)
    assert [d.item for d in late] == ["c2", "e0"]
    assert len(receiver) == 1


def test_when_the_clock_goes_back_all_timers_do() -> None:
    receiver: Receiver[str] = Receiver(Policy.parse("CST-30"))
    receiver.receive("p", "p0", stamp(0), 1000 * MS)
    receiver.receive("p", "p2", stamp(2), 1000 * MS)
    receiver.receive("q", "q0", stamp(0), 400 * MS)
    assert receiver.next_timer_ns == 430 * MS
    assert [d.item for d in receiver.advance(430 * MS)] == ["p2"]


@pytest.mark.parametrize(("options", "named"), [({"max_publishers": 0}, "max_publishers"), ({"idle_ns": 1}, "idle_ns")])
def test_bounds_that_cannot_be(options: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Receiver(Policy.parse("CST-30"), **options)


class Clock:
    """A clock that is turned by hand, with its timers."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.timers: list[list[object]] = []

    def call_later(self, delay_s, callback):
        entry = [self.now_ns + round(delay_s * 1e9), callback]
        self.timers.append(entry)

        class Handle:
            def cancel(handle) -> None:  # noqa: N805
                self.timers = [timer for timer in self.timers if timer is not entry]

        return Handle()

    def turn_to(self, now_ns: int) -> None:
        while due := [timer for timer in self.timers if timer[0] <= now_ns]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now_ns = max(self.now_ns, first[0])
            first[1]()
        self.now_ns = now_ns


def test_the_wrapper_calls_back_in_order_and_when_the_timer_ends() -> None:
    clock, told = Clock(), []
    ordered = OrderedReceiver(
        told.append, Policy.parse("CST-30"), call_later=clock.call_later, clock_ns=lambda: clock.now_ns
    )
    for now_ms, number in ((0, 0), (1, 2), (2, 1), (3, 4)):
        clock.turn_to(now_ms * MS)
        ordered.on_message("p", number, stamp(number))
    assert told == [0, 1, 2]
    clock.turn_to(33 * MS)
    assert told == [0, 1, 2, 4]
    assert clock.timers == []
    ordered.on_message("p", 6, stamp(6))
    ordered.close()
    assert told == [0, 1, 2, 4, 6]
    assert clock.timers == []


def test_an_application_that_publishes_from_its_callback_keeps_the_order() -> None:
    clock, told = Clock(), []

    def deliver(number: int) -> None:
        if number == 1:
            ordered.on_message("p", 3, stamp(3))
        told.append(number)

    ordered = OrderedReceiver(
        deliver, Policy.parse("CST-30"), call_later=clock.call_later, clock_ns=lambda: clock.now_ns
    )
    for number in (0, 2, 1):
        ordered.on_message("p", number, stamp(number))
    assert told == [0, 1, 2, 3]


def test_an_application_that_raises_does_not_lose_what_comes_after() -> None:
    clock, told = Clock(), []

    def deliver(number: int) -> None:
        if number == 1:
            raise RuntimeError("not today")
        told.append(number)

    ordered = OrderedReceiver(
        deliver, Policy.parse("CST-30"), call_later=clock.call_later, clock_ns=lambda: clock.now_ns
    )
    ordered.on_message("p", 0, stamp(0))
    ordered.on_message("p", 2, stamp(2))
    with pytest.raises(RuntimeError, match="not today"):
        ordered.on_message("p", 1, stamp(1))
    ordered.on_message("p", 3, stamp(3))
    assert told == [0, 2, 3]


def test_timers_in_threads() -> None:
    told, done = [], threading.Event()

    def deliver(number: int) -> None:
        told.append(number)
        if number == 2:
            done.set()

    ordered = OrderedReceiver(deliver, Policy.parse("CST-20"))
    ordered.on_message("p", 0, stamp(0))
    ordered.on_message("p", 2, stamp(2))
    assert done.wait(10.0)
    ordered.close()
    assert told == [0, 2]
