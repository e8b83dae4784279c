"""All that is to go to one peer: what waits (`_queue`), what is under way (`_window`), and the frames it leaves in.

- An idle link sends at once: nothing waits, so there is nothing to choose.
- What leaves in a step of the machine leaves together, in as few frames as FRAME_BYTES allow. A busy link gets frames
  of a quarter of what may be under way at most: it must not run dry while the one frame under way is acknowledged.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidings.protocol._states import TransferState
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._queue import Queue
from tidings.protocol.links._window import Lot, Parcel, Together, Window
from tidings.protocol.wire import MAX_BATCH, encode_plain, encode_transfer
from tidings.scheduling import Reason, Strategy

if TYPE_CHECKING:
    from tidings.protocol.links._peers import Peer

__all__ = ["FRAME_BYTES", "Outbox", "batches", "named", "runs"]

FRAME_BYTES: Final = 64 * 1024
"""Events leave together up to about so many bytes: more would keep what comes after them waiting."""
_SHARES: Final = 4
"""In so many frames at least is what may be under way on a busy link."""


class Outbox:
    """The way out to one peer."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        processing_s: float,
        window: int,
        max_queued: int,
        max_under_way_bytes: int = sys.maxsize,
        retry_least_ns: int,
        retry_most_ns: int,
        frame_bytes: int = FRAME_BYTES,
        keeps: bool = True,
        first_number: int = 0,
    ) -> None:
        self.meter = LinkMeter()
        self.queue = Queue(strategy, self.meter, processing_s=processing_s, max_queued=max_queued)
        self.window = Window(
            window,
            self.meter,
            retry_least_ns=retry_least_ns,
            retry_most_ns=retry_most_ns,
            keeps=keeps,
            first_number=first_number,
            max_bytes=max_under_way_bytes,
        )
        self.leaving: list[bytes] = []
        """The events that leave with this step, the last of the numbers."""
        self._leaving_for: list[bytes] = []
        self._leaving_bytes = 0  # their sizes together
        self._leaving_frame_bytes = 0  # what they take in a frame together
        self.on_load: Callable[[], object] = _nobody
        """Called when something is to leave: it waits, or is under way."""
        self.left_due_ns = 0
        """When the first of what leaves with this step has to be sent again, or counts no more."""
        self._retry_most_ns = retry_most_ns
        self._frame_bytes = frame_bytes

    @property
    def queued(self) -> int:
        """How many events wait."""
        return self.queue.size

    @property
    def max_queued_bytes(self) -> int:
        """How long the contents of what waits may be together."""
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
        """Whether the socket takes no more for now."""
        return self.window.is_congested

    @is_congested.setter
    def is_congested(self, is_congested: bool) -> None:
        self.window.is_congested = is_congested

    # -- what waits ----------------------------------------------------------------------------------------------

    def enqueue(self, parcels: Sequence[Parcel], now_ns: int) -> list[Parcel]:
        """Let events wait; what had to go because there are too many."""
        self.window.was_held_up = True
        self.on_load()
        return self.queue.push(parcels, now_ns)

    def next(self, now_ns: int) -> tuple[Parcel | None, list[tuple[Parcel, Reason]]]:
        """What the strategy sends next, and what it deletes, with the reason."""
        return self.queue.pop(self.window.turn_s, now_ns)

    def give_up(self, parcel: Parcel, *, has_expired: bool = False) -> None:
        """The event has expired, or is no longer wanted: it neither waits nor is under way."""
        if parcel.state is TransferState.UNDER_WAY:
            self.window.give_up(parcel, has_expired=has_expired)
        else:
            self.queue.give_up(parcel)

    def withdraw(self, *, under_way: bool) -> list[Parcel]:
        """Take back what waits, and if asked what is under way: others may get it there."""
        waiting = self.queue.withdraw()
        return waiting + self.window.withdraw() if under_way else waiting

    def takes(self, many: int) -> bool:
        """Whether so many events may leave at once: nothing waits, and there is room for them."""
        return not self.queue.size and self.window.room >= many

    # -- what leaves ---------------------------------------------------------------------------------------------

    def send(self, parcel: Parcel, targets: bytes, event: bytes, now_ns: int) -> None:
        """The event of a parcel leaves with this step, and may have to be sent again."""
        parcel.number = self.window.next_number
        self.leave(targets, [event], parcel.held.size_bytes, len(event))
        self.window.add(parcel, now_ns)
        self.on_load()
        if self.window.keeps:
            self._note_due(parcel.due_ns, 1)

    def leave(self, targets: bytes, events: list[bytes], size_bytes: int, encoded_bytes: int) -> None:
        """Events leave with this step, for the same targets; their size together, and the length of their bytes."""
        many = len(events)
        self.leaving += events
        self._leaving_for += [targets] * many
        self._leaving_bytes += size_bytes
        self._leaving_frame_bytes += encoded_bytes + many * len(targets)
        self.window.next_number += many

    def add_lot(
        self, peer: "Peer", together: Together, size: int, size_bytes: int, most_bytes: int, now_ns: int
    ) -> Lot:
        """The last events that leave with this step are under way together: so many, in so many bytes, the largest so
        large."""
        window = self.window
        facts = (window.next_number - size, size, size_bytes)
        lot = Lot(peer, together, *facts, sent_ns=now_ns, due_ns=now_ns + window.patience_ns(most_bytes))
        window.add_lot(lot)
        self.on_load()
        self._note_due(lot.due_ns, size)
        return lot

    def _note_due(self, due_ns: int, last: int) -> None:
        """The last so many that leave have to be sent again by then."""
        is_first = len(self.leaving) == last
        self.left_due_ns = due_ns if is_first else min(self.left_due_ns, due_ns)

    def frames(self, session: int, now_ns: int) -> Iterator[bytes]:
        """What leaves with this step, in as few frames as can be."""
        window, events, targets = self.window, self.leaving, self._leaving_for
        number, size_bytes, floor = window.next_number - len(events), self._leaving_bytes, window.floor
        batches = self._batches(targets, events, self._leaving_frame_bytes)
        self.leaving, self._leaving_for, self._leaving_bytes, self._leaving_frame_bytes = [], [], 0, 0
        for begin, end in batches:
            yield encode_transfer(session, number + begin, floor, targets[begin:end], events[begin:end], now_ns)
            window.note_frame(number + end - 1, size_bytes * (end - begin) // len(events), now_ns)
        if not window.keeps:
            self.left_due_ns = now_ns + self._retry_most_ns

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

    def _batches(self, targets: list[bytes], events: list[bytes], sum_bytes: int) -> Iterable[tuple[int, int]]:
        """Which of these events, so many bytes with their targets, go together in one frame."""
        most_bytes, is_busy = self._frame_bytes, self.queue.size > 0
        if not is_busy and len(events) <= MAX_BATCH and sum_bytes <= most_bytes:
            return ((0, len(events)),)
        if is_busy:
            most_bytes = min(most_bytes, sum_bytes * max(self.window.most // _SHARES, 1) // len(events))
        return batches([len(one) + len(other) for one, other in zip(targets, events, strict=True)], most_bytes)

    # -- what is under way ---------------------------------------------------------------------------------------

    def acknowledge(self, numbers: Sequence[tuple[int, int]], held_ns: int, now_ns: int) -> list[Parcel]:
        """The peer has taken events; the parcels that this ends. Lots end by themselves."""
        return self.window.acknowledge(numbers, held_ns, self.queue.size, now_ns)

    def hasten(self, now_ns: int) -> None:
        """The peer is back: what is under way is sent again at once."""
        self.window.hasten(len(self.leaving), now_ns)


def _nobody() -> None:
    """Nobody wants to know."""


def batches(sizes_bytes: Sequence[int], frame_bytes: int) -> Iterator[tuple[int, int]]:
    """Which of things of these sizes, in order, go together in frames of at most so many bytes, or alone."""
    begin, sum_bytes = 0, 0
    for place, size_bytes in enumerate(sizes_bytes):
        if place > begin and (sum_bytes + size_bytes > frame_bytes or place - begin == MAX_BATCH):
            yield begin, place
            begin, sum_bytes = place, 0
        sum_bytes += size_bytes
    if begin < len(sizes_bytes):
        yield begin, len(sizes_bytes)


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The places of numbers that follow each other without a gap."""
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield begin, place
            begin = place


def named(names: Iterable[str]) -> bytes:
    """Subscriptions as a transfer to their client says them: without what they pay."""
    return encode_plain(dict.fromkeys(names, ()))
