"""Order for any publish/subscribe client: the receivers of all publishers, and the wrapper around a callback.

`Receiver` keeps one `Sequencer` per publisher, bounded: at most `max_publishers`, and none that was silent for
`idle_ns`; who has to go first delivers what it holds. It knows no clock: time comes in with every call, and
`next_timer_ns` says when to come back. What the late events of one publisher teach, the others start with (`Pool`).

`OrderedReceiver` owns the clock and the timer, and calls the application back, in order. It wraps any client that
calls a function for each message: give it the messages with their stamps, and it calls your function instead. Timers
come from `call_later`, which has the shape of asyncio's `loop.call_later`; without one, threads are used. It may be
called from several threads: deliveries are made one at a time, under its lock, so that their order is kept.
"""

import heapq
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from tidings.errors import ConfigurationError
from tidings.ordering._latches import Pool
from tidings.ordering._policies import Policy
from tidings.ordering._sequencer import Counts, Delivery, Sequencer
from tidings.ordering._stamps import Stamp

__all__ = [
    "DEFAULT_IDLE_NS",
    "DEFAULT_MAX_PUBLISHERS",
    "OrderedReceiver",
    "Receiver",
    "Timer",
    "call_later_in_a_thread",
]

T = TypeVar("T")

DEFAULT_MAX_PUBLISHERS: Final = 10_000
DEFAULT_IDLE_NS: Final = 600_000_000_000


class Receiver(Generic[T]):
    """The events of many publishers, each in its own order; `restarts`: a publisher may begin again under its name."""

    def __init__(
        self,
        policy: Policy,
        wants: Callable[[bytes], bool] | None = None,
        *,
        max_publishers: int = DEFAULT_MAX_PUBLISHERS,
        idle_ns: int = DEFAULT_IDLE_NS,
        restarts: bool = True,
    ) -> None:
        if max_publishers < 1:
            raise ConfigurationError(f"max_publishers is {max_publishers}: a receiver follows at least one publisher")
        if idle_ns <= policy.max_latch_ns:
            raise ConfigurationError(
                f"idle_ns is {idle_ns}: it must be above the policy's max_latch_ns, {policy.max_latch_ns}"
            )
        self.policy = policy
        self.evicted = 0
        self._wants = wants
        self._pool = Pool()
        self._max_publishers = max_publishers
        self._idle_ns = idle_ns
        self._restarts = restarts
        # The publisher that was silent for longest comes first.
        self._sequencers: OrderedDict[str, tuple[Sequencer[T], int]] = OrderedDict()
        self._timers: list[tuple[int, str]] = []
        self._clock_ns: int | None = None

    def __len__(self) -> int:
        """How many publishers are followed."""
        return len(self._sequencers)

    @property
    def next_timer_ns(self) -> int | None:
        """When `advance` should be called, if nothing arrives before; None if nothing is held."""
        while self._timers:
            due_ns, publisher = self._timers[0]
            known = self._sequencers.get(publisher)
            if known is not None and known[0].next_timer_ns == due_ns:
                return due_ns
            heapq.heappop(self._timers)  # it left earlier, or another stands before it now
        return None

    def counts(self, publisher: str) -> Counts | None:
        """What has happened to the events of a publisher that is followed."""
        known = self._sequencers.get(publisher)
        return None if known is None else known[0].counts

    def receive(
        self, publisher: str, item: T, stamp: Stamp, now_ns: int, *, until_ns: int | None = None
    ) -> list[Delivery[T]]:
        """What leaves because this event arrived, and because its time had come; none is held beyond `until_ns`."""
        out = self.advance(now_ns)
        known = self._sequencers.get(publisher)
        if known is None:
            out += self._make_room(now_ns)
            sequencer: Sequencer[T] = Sequencer(self.policy, self._wants, pool=self._pool, restarts=self._restarts)
        else:
            sequencer = known[0]
        before_ns = sequencer.next_timer_ns
        out += sequencer.receive(item, stamp, now_ns, until_ns=until_ns)
        self._sequencers[publisher] = sequencer, now_ns
        self._sequencers.move_to_end(publisher)
        self._note_timer(publisher, sequencer, before_ns)
        return out

    def advance(self, now_ns: int) -> list[Delivery[T]]:
        """What leaves because its time has come."""
        out: list[Delivery[T]] = []
        if self._clock_ns is not None and now_ns < self._clock_ns:
            self._turn_back(now_ns, out)
        self._clock_ns = now_ns
        while (due_ns := self.next_timer_ns) is not None and due_ns <= now_ns:
            publisher = heapq.heappop(self._timers)[1]
            sequencer = self._sequencers[publisher][0]
            out += sequencer.advance(now_ns)
            self._note_timer(publisher, sequencer, None)
        return out

    def flush(self) -> list[Delivery[T]]:
        """Everything that is held, publisher by publisher."""
        return [delivery for sequencer, _ in self._sequencers.values() for delivery in sequencer.flush()]

    def _turn_back(self, now_ns: int, out: list[Delivery[T]]) -> None:
        """The clock went back: every publisher's timers move with it."""
        self._timers.clear()
        for publisher, (sequencer, heard_ns) in self._sequencers.items():
            out += sequencer.advance(now_ns)
            self._sequencers[publisher] = sequencer, min(heard_ns, now_ns)
            self._note_timer(publisher, sequencer, None)

    def _note_timer(self, publisher: str, sequencer: Sequencer[T], before_ns: int | None) -> None:
        due_ns = sequencer.next_timer_ns
        if due_ns is not None and due_ns != before_ns:
            heapq.heappush(self._timers, (due_ns, publisher))

    def _make_room(self, now_ns: int) -> list[Delivery[T]]:
        out: list[Delivery[T]] = []
        while self._sequencers:
            publisher, (sequencer, heard_ns) = next(iter(self._sequencers.items()))
            if len(self._sequencers) < self._max_publishers and now_ns - heard_ns <= self._idle_ns:
                break
            out += sequencer.flush()
            del self._sequencers[publisher]
            self.evicted += 1
        return out


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> object:
        """Not to be called after all."""


def call_later_in_a_thread(delay_s: float, callback: Callable[[], object]) -> Timer:
    """Call back from a thread of its own, after a delay."""
    timer = threading.Timer(delay_s, callback)
    timer.daemon = True
    timer.start()
    return timer


class OrderedReceiver(Generic[T]):
    """Calls `deliver(item)` for each message of each publisher, in the order in which they were sent."""

    def __init__(
        self,
        deliver: Callable[[T], object],
        policy: Policy,
        wants: Callable[[bytes], bool] | None = None,
        *,
        call_later: Callable[[float, Callable[[], object]], Timer] = call_later_in_a_thread,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        max_publishers: int = DEFAULT_MAX_PUBLISHERS,
        idle_ns: int = DEFAULT_IDLE_NS,
    ) -> None:
        self._deliver = deliver
        self._call_later = call_later
        self._clock_ns = clock_ns
        self._lock = threading.RLock()
        self._leaving: deque[T] = deque()
        self._is_delivering = False
        self._timer: Timer | None = None
        self._timer_ns: int | None = None
        self.receiver: Receiver[T] = Receiver(policy, wants, max_publishers=max_publishers, idle_ns=idle_ns)

    def on_message(self, publisher: str, item: T, stamp: Stamp) -> None:
        """To be called by the client for each message, as it arrives."""
        with self._lock:
            self._hand_over(self.receiver.receive(publisher, item, stamp, self._clock_ns()))

    def close(self) -> None:
        """Deliver what is still held, and leave no timer behind."""
        with self._lock:
            self._hand_over(self.receiver.flush())
            self._cancel_timer()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = self._timer_ns = None
            self._hand_over(self.receiver.advance(self._clock_ns()))

    def _hand_over(self, deliveries: list[Delivery[T]]) -> None:
        self._leaving.extend(delivery.item for delivery in deliveries)
        self._set_timer(self.receiver.next_timer_ns)
        if self._is_delivering:  # called from within the application: what it is being given comes first
            return
        self._is_delivering = True
        try:
            while self._leaving:
                self._deliver(self._leaving.popleft())
        finally:
            self._is_delivering = False

    def _set_timer(self, due_ns: int | None) -> None:
        # A timer that ends too early does no harm, and most holds end before it: one is set for many holds.
        if due_ns is None or (self._timer_ns is not None and self._timer_ns <= due_ns):
            return
        self._cancel_timer()
        self._timer_ns = due_ns
        self._timer = self._call_later(max(due_ns - self._clock_ns(), 0) / 1e9, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_ns = None
