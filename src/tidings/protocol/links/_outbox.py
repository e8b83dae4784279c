"""Everything for one peer: the queue (`_queue`), the events under way (`_window`), and the frames.

- An idle link sends at once: the queue is empty, so there is nothing to choose.
- The events of one step of the machine leave together, in as few frames as FRAME_BYTES allow. A busy link gets frames
  of at most a quarter of what may be under way: it must not run dry while a single frame is acknowledged.
- While less than half of what may be under way is, acknowledgements need not hurry, and each frame states how far apart
  they may be (`ease_ns`); never so far that the broker would take an event for expired that has arrived.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidings.protocol._states import TransferState
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._queue import Queue
from tidings.protocol.links._window import FRAME_BYTES, Lot, Parcel, SendLimits, Together, Window
from tidings.protocol.wire import MAX_BATCH, Parts, Term, encode_plain, encode_transfer
from tidings.scheduling import Reason, Strategy

if TYPE_CHECKING:
    from tidings.protocol.broker._held import Held
    from tidings.protocol.links._peers import Peer

__all__ = ["FAR", "FRAME_BYTES", "Outbox", "batches", "named", "runs"]

FAR: Final = 8
"""An event that has come over so many links has come far: it may use the whole store of a broker."""
_LEAST_EASE_NS: Final = 25_000_000
"""Shorter ones are not stated: acknowledgements of clients are that far apart anyway."""
_SHARES: Final = 4
"""On a busy link, what may be under way is in at least so many frames."""


class Outbox:
    """The exit to one peer."""

    def __init__(
        self,
        limits: SendLimits,
        *,
        strategy: Strategy,
        processing_s: float,
        max_queued: int,
        first_number: int = 0,
    ) -> None:
        self.meter = LinkMeter()
        self.queue = Queue(strategy, self.meter, processing_s=processing_s, max_queued=max_queued)
        self.window = Window(limits, self.meter, first_number=first_number)
        self.is_local = False
        """Whether the peer is in the same process: it gets transfers in parts, and events as they are held."""
        self.leaving: list[Any] = []
        """The events that leave with this step; they have the last numbers. The list may be that of other peers."""
        self._is_shared = False
        self._leaving_for: list[bytes] = []
        self._leaving_bytes = 0  # their total size
        self._leaving_frame_bytes = 0  # their total length in frames
        self._leaving_until_ns = 0  # when the first receiver no longer wants one of them
        self.on_load: Callable[[], object] = _ignore
        """Called when an event is queued or under way."""
        self.ease_ns = 0
        """How far apart the peer's acknowledgements may be while there is room for more."""
        self.left_due_ns = 0
        """When the first event of this step has to be sent again, or no longer counts."""
        self._probed_ns = -sys.maxsize  # when an event left without credit
        self._retry_most_ns = limits.retry_most_ns
        self._frame_bytes = limits.frame_bytes

    @property
    def queued(self) -> int:
        """How many events wait."""
        return self.queue.size

    @property
    def max_queued_bytes(self) -> int:
        """The most bytes of contents in the queue."""
        return self.queue.max_bytes

    @max_queued_bytes.setter
    def max_queued_bytes(self, max_bytes: int) -> None:
        self.queue.max_bytes = max_bytes

    @property
    def under_way(self) -> int:
        """How many events are under way."""
        return len(self.window)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self.queue.size and not self.under_way

    @property
    def credit(self) -> int:
        """How many events the peer takes."""
        return self.window.credit

    @credit.setter
    def credit(self, credit: int) -> None:
        self.window.credit = credit

    @property
    def is_congested(self) -> bool:
        """Whether the socket accepts no more for now."""
        return self.window.is_congested

    @is_congested.setter
    def is_congested(self, is_congested: bool) -> None:
        self.window.is_congested = is_congested

    # -- the queue -----------------------------------------------------------------------------------------------

    def enqueue(self, parcels: Sequence[Parcel], now_ns: int) -> list["Parcel | Held"]:
        """Queue events; those that were dropped because there are too many."""
        self.window.was_held_up = True
        self.on_load()
        return self.queue.push(parcels, now_ns)

    def enqueue_events(
        self, events: Sequence["Held"], wanted: Mapping[str, tuple[Term, ...]], now_ns: int
    ) -> list["Parcel | Held"]:
        """Queue events themselves, all for the same subscriptions of a client; what was dropped."""
        self.window.was_held_up = True
        self.on_load()
        return self.queue.push_events(events, wanted, now_ns)

    def supersede(self, item: "Parcel | Held", newer: "Parcel | Held", now_ns: int) -> list["Parcel | Held"]:
        """A newer event takes the place of one that waits; those that were dropped because there are too many bytes."""
        self.on_load()
        return self.queue.supersede(item, newer, now_ns)

    def next(self, now_ns: int) -> tuple["Parcel | Held | None", list[tuple["Parcel | Held", Reason]]]:
        """What the strategy sends next, and what it deletes, with the reason."""
        return self.queue.pop(self.window.turn_s, now_ns)

    def next_further(self, far: int, now_ns: int) -> Parcel | None:
        """An event to be sent although nothing more may be under way: all of that was sent before in vain, and this one
        has come over more links, as far as those up to `far` count."""
        if not self.queue.size or self.window.room > 0 or self.window.is_congested:
            return None
        hops = self.window.refused_hops()
        return None if hops is None or hops >= far else self.queue.pop_further(hops, now_ns)

    def give_up(self, parcel: Parcel, *, has_expired: bool = False) -> None:
        """The event has expired, or is no longer wanted: it leaves the queue or the window."""
        if parcel.state is TransferState.UNDER_WAY:
            self.window.give_up(parcel, has_expired=has_expired)
        else:
            self.queue.give_up(parcel)

    def is_probe_due(self, now_ns: int, pause_ns: int) -> bool:
        """Whether an event has to leave without credit, because a message with credit may have been lost.

        At most one in a pause does, since the peer may have no room. No message to a peer in the same process is lost.
        """
        if self.is_local or self.under_way or now_ns < self._probed_ns + pause_ns:
            return False
        self._probed_ns = now_ns
        return True

    def withdraw(self, *, under_way: bool) -> list[Parcel]:
        """Take back queued events, and on request those under way: other paths may lead there."""
        waiting = self.queue.withdraw()
        return waiting + self.window.withdraw() if under_way else waiting

    def takes(self, many: int) -> bool:
        """Whether `many` events may leave at once: the queue is empty, and there is room for them."""
        return not self.queue.size and self.window.room >= many

    # -- leaving -------------------------------------------------------------------------------------------------

    def send(self, parcel: Parcel, targets: bytes, now_ns: int) -> None:
        """The event of a parcel leaves with this step, and may have to be sent again."""
        parcel.number = self.window.next_number
        held = parcel.held
        if self.is_local:
            self.leave(targets, [held], held.size_bytes, len(held.content), held.wakes_ns)
        else:
            event = held.encode_once(now_ns)
            self.leave(targets, [event], held.size_bytes, len(event), held.wakes_ns)
        self.window.add(parcel, now_ns)
        self.on_load()
        if self.window.keeps:
            self._note_due(parcel.due_ns, 1)

    def leave(self, targets: bytes, events: list[Any], size_bytes: int, encoded_bytes: int, until_ns: int) -> None:
        """Events leave with this step, for the same targets; their total size, the total length of their bytes, and
        when the first receiver no longer wants one of them.

        They are encoded; those for a local peer may be as they are held.
        """
        many = len(events)
        if not self.leaving or until_ns < self._leaving_until_ns:
            self._leaving_until_ns = until_ns
        if not self.leaving:
            self.leaving, self._is_shared = events, True
        elif self._is_shared:
            self.leaving, self._is_shared = self.leaving + events, False
        else:
            self.leaving += events
        self._leaving_for += [targets] * many
        self._leaving_bytes += size_bytes
        self._leaving_frame_bytes += encoded_bytes + many * len(targets)
        self.window.next_number += many

    def move(self, *, is_local: bool, now_ns: int) -> None:
        """The peer is in the same process from now on, or no longer."""
        if self.is_local and not is_local:
            self.leaving = [each if type(each) is bytes else each.encode(now_ns) for each in self.leaving]
            self._is_shared = False
        self.is_local = is_local

    def add_lot(
        self, peer: "Peer", together: Together, size: int, size_bytes: int, most_bytes: int, now_ns: int
    ) -> Lot:
        """The last `size` events of this step are under way together; `most_bytes` is the size of the largest."""
        window = self.window
        facts = (window.next_number - size, size, size_bytes)
        lot = Lot(peer, together, *facts, sent_ns=now_ns, due_ns=now_ns + window.patience_ns(most_bytes))
        window.add_lot(lot)
        self.on_load()
        self._note_due(lot.due_ns, size)
        return lot

    def _note_due(self, due_ns: int, last: int) -> None:
        """The last `last` events of this step have to be sent again by then."""
        is_first = len(self.leaving) == last
        self.left_due_ns = due_ns if is_first else min(self.left_due_ns, due_ns)

    def frames(self, session: int, now_ns: int) -> list[bytes | Parts]:
        """The events of this step, in as few frames as possible."""
        window, events, targets = self.window, self.leaving, self._leaving_for
        many, size_bytes, sum_bytes = len(events), self._leaving_bytes, self._leaving_frame_bytes
        number, floor = window.next_number - many, window.floor
        ease_ns = self._ease_now_ns(now_ns) if self.ease_ns else 0
        self.leaving, self._leaving_for, self._leaving_bytes, self._leaving_frame_bytes = [], [], 0, 0
        if not window.keeps:
            self.left_due_ns = now_ns + self._retry_most_ns
        make: Callable[..., bytes | Parts] = Parts if self.is_local else encode_transfer
        if not self.queue.size and many <= MAX_BATCH and sum_bytes <= self._frame_bytes:
            window.note_frame(number + many - 1, size_bytes, now_ns)
            return [make(session, number, floor, targets, events, now_ns, ease_ns=ease_ns)]
        frames = []
        for begin, end in self._batches(targets, events, sum_bytes):
            head = (session, number + begin, floor)
            frames.append(make(*head, targets[begin:end], events[begin:end], now_ns, ease_ns=ease_ns))
            window.note_frame(number + end - 1, size_bytes * (end - begin) // many, now_ns)
        return frames

    def _ease_now_ns(self, now_ns: int) -> int:
        """How far apart the acknowledgements may be that include this step's events."""
        if self.queue.size or not self.window.is_roomy:
            return 0
        ease_ns = min(self.ease_ns, (self._leaving_until_ns - now_ns) // 2)
        return ease_ns if ease_ns > _LEAST_EASE_NS else 0

    def again(self, session: int, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Frames of what has to be sent again now, and how many events each holds."""
        due = list(self.window.due(now_ns))
        floor, is_client = self.window.floor, due and due[0].peer.kind == "client"
        for first, last in runs([parcel.number for parcel in due]):
            some = due[first:last]
            targets = [named(each.targets) if is_client else encode_plain(each.targets) for each in some]
            events = [parcel.held.encode_once(now_ns) for parcel in some]
            for begin, end in self._batches(targets, events, sum(map(len, targets)) + sum(map(len, events))):
                head = (session, some[begin].number, floor)
                yield end - begin, encode_transfer(*head, targets[begin:end], events[begin:end], now_ns)

    def _batches(self, targets: list[bytes], events: list[Any], sum_bytes: int) -> Iterable[tuple[int, int]]:
        """Which of these events share a frame; `sum_bytes` is their total length with their targets."""
        most_bytes, is_busy = self._frame_bytes, self.queue.size > 0
        if not is_busy and len(events) <= MAX_BATCH and sum_bytes <= most_bytes:
            return ((0, len(events)),)
        if is_busy:
            most_bytes = min(most_bytes, sum_bytes * max(self.window.most // _SHARES, 1) // len(events))
        return batches([len(one) + _length(other) for one, other in zip(targets, events, strict=True)], most_bytes)

    # -- under way -----------------------------------------------------------------------------------------------

    def acknowledge(self, numbers: Sequence[tuple[int, int]], held_ns: int, now_ns: int) -> list[Parcel]:
        """The peer has taken events; the parcels that this ends. Lots end by themselves."""
        return self.window.acknowledge(numbers, held_ns, self.queue.size, now_ns)

    def hasten(self, now_ns: int) -> None:
        """The peer is back: events under way are sent again at once."""
        self.window.hasten(len(self.leaving), now_ns)


def _ignore() -> None:
    """Do nothing."""


def _length(event: Any) -> int:
    return len(event if type(event) is bytes else event.content)


def batches(sizes_bytes: Sequence[int], frame_bytes: int) -> Iterator[tuple[int, int]]:
    """Which of things of these sizes, in order, share a frame of at most so many bytes; a larger one has its own."""
    begin, sum_bytes = 0, 0
    for place, size_bytes in enumerate(sizes_bytes):
        if place > begin and (sum_bytes + size_bytes > frame_bytes or place - begin == MAX_BATCH):
            yield begin, place
            begin, sum_bytes = place, 0
        sum_bytes += size_bytes
    if begin < len(sizes_bytes):
        yield begin, len(sizes_bytes)


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The places of consecutive numbers without a gap."""
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield begin, place
            begin = place


def named(names: Iterable[str]) -> bytes:
    """Subscriptions as a transfer to their client contains them: without their worth."""
    return encode_plain(dict.fromkeys(names, ()))
