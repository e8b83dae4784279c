"""Events under way to one peer: numbers, acknowledgements, and repeats (paper D, section 2.4.2).

- At most `window` events, and no more than the peer's credit and the link's pace (`_pace`, in events and in bytes), are
  under way; no more leave while the socket is congested, or while `max_bytes` of their contents are under way.
- The bytes of an event that expires under way count until it, or a later one, is acknowledged, or the connection ends:
  they are on the link all the same, and what is sent behind them waits for them.
- If events are kept (buffering), an unacknowledged event is sent again under the same number, each time after twice as
  long, until it is acknowledged or has expired. If not, it counts as under way until this event or a later one is
  acknowledged, or until `retry_most_ns` has passed: acknowledgements may be lost as well.
- Each event under way is a `Parcel`, or one of a `Lot`: a broker that keeps events sends many of one course at a time,
  and they are acknowledged together.
"""

import heapq
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tidings.protocol._states import TRANSFER_STEPS, TransferState, TransferStep
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._pace import Pace
from tidings.protocol.wire import Term

if TYPE_CHECKING:
    from tidings.protocol.broker._held import Held
    from tidings.protocol.broker._link_state import Path
    from tidings.protocol.links._peers import Peer

__all__ = ["FRAME_BYTES", "TYPICAL_KB", "Lot", "Parcel", "SendLimits", "Together", "Window", "within"]

FRAME_BYTES: Final = 64 * 1024
"""Events leave together up to about so many bytes: more would delay the events after them."""
TYPICAL_KB: Final = 1.0
_TRIES: Final = 2
"""An event that was sent so often without an acknowledgement was refused, perhaps."""
_MOST_GONE: Final = 1_024
"""The acknowledgement of an event that expired under way is recognised while at most so many numbers have followed."""


class Parcel:
    """One event for one neighbour or client, with the targets on that path."""

    __slots__ = ("due_ns", "held", "is_replaced", "number", "paths", "peer", "sent_ns", "state", "targets", "tries")

    def __init__(
        self, held: "Held", peer: "Peer", targets: dict[str, tuple[Term, ...]], paths: "dict[str, Path]"
    ) -> None:
        self.held = held
        self.peer = peer
        self.targets = targets
        self.paths = paths
        self.state = TransferState.WAITING
        self.number = -1
        self.sent_ns = self.due_ns = self.tries = 0
        self.is_replaced = False  # given up under way, because there is a newer event of its key

    def step(self, step: TransferStep) -> None:
        """Take a step of the table."""
        self.state = TRANSFER_STEPS[self.state, step]


class Together(Protocol):
    """Events that left together, for several peers."""

    def ended(self, peer: "Peer") -> None:
        """A peer has acknowledged all of them."""

    def undo(self) -> None:
        """Replace all their lots by parcels."""


class Lot:
    """Events under way to one peer, with consecutive numbers, that are not handled one by one.

    A lot ends whole. What concerns a part of it (an acknowledgement of some, an event that expires, a peer that is lost
    or has to be sent to again) first turns it into parcels.
    """

    __slots__ = ("due_ns", "first", "last", "peer", "sent_ns", "size", "size_bytes", "together")

    def __init__(
        self,
        peer: "Peer",
        together: Together,
        first: int,
        size: int,
        size_bytes: int,
        *,
        sent_ns: int,
        due_ns: int,
    ) -> None:
        self.peer = peer
        self.size_bytes = size_bytes  # of their contents together
        self.together = together
        self.first = first
        self.last = first + size - 1
        self.size = size
        self.sent_ns = sent_ns
        self.due_ns = due_ns


class _Frame(msgspec.Struct, frozen=True, gc=False):
    """The events of one frame, up to this number."""

    last: int
    sent_ns: int
    size_bytes: int


def within(known: Collection[int], first: int, last: int) -> list[int]:
    """The known numbers in a range, however long the range of a peer is."""
    if last - first >= len(known):
        return [number for number in known if first <= number <= last]
    return [number for number in range(first, last + 1) if number in known]


class SendLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How events are sent to one peer: how many, how large, and when again."""

    window: int
    """At most so many events are under way."""
    max_bytes: int = sys.maxsize
    """No more leave while the contents of those under way are this long together."""
    frame_bytes: int = FRAME_BYTES
    retry_least_ns: int
    retry_most_ns: int
    keeps: bool = True
    """Whether events are kept until they are acknowledged (buffering)."""


class Window:
    """The events under way to one peer."""

    def __init__(self, limits: SendLimits, meter: LinkMeter, *, first_number: int = 0) -> None:
        size = limits.window
        self.keeps = limits.keeps
        self.next_number = first_number
        self.was_held_up = False
        """Whether something has waited since the pace was last checked."""
        self._landed = first_number  # without buffering: the lowest number that counts as under way
        self._meter = meter
        self._pace = Pace(size)
        self._credit = size
        self._max_bytes = limits.max_bytes
        self.size_bytes = 0
        """With buffering: the total length of the contents under way."""
        self._is_congested = False
        self.most = self._pace.most
        """How many events may be under way."""
        self._retry_least_ns = limits.retry_least_ns
        self._retry_most_ns = limits.retry_most_ns
        self._parcels: dict[int, Parcel] = {}  # by number, in the order of numbers
        self._lots: dict[int, Lot] = {}  # by the first of their numbers, in order
        self._in_lots = 0
        self._frames: list[_Frame] = []  # the last ones
        self._max_frames = size + 1
        self.gone: dict[int, Parcel] = {}
        """By number: what has expired under way. The peer may have it, and still acknowledge it."""
        self._gone_first: list[int] = []  # a heap of its numbers, and of some removed ones
        self._lingering: dict[int, int] = {}  # by number: the bytes of what has expired, and may still be on the link
        self._lingering_bytes = 0

    # -- how many ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._parcels) + self._in_lots if self.keeps else self.next_number - self._landed

    @property
    def room(self) -> int:
        """How many more events may be under way."""
        if self.size_bytes >= self._max_bytes:
            return 0
        if not self.keeps:
            return self.most - (self.next_number - self._landed)
        under_way = len(self._parcels) + self._in_lots
        if self.size_bytes + self._lingering_bytes >= self._pace.most_bytes and under_way >= self._pace.least:
            return 0
        return self.most - under_way

    @property
    def is_roomy(self) -> bool:
        """Whether no more than half of what may be under way is."""
        return 2 * self.room >= self.most

    @property
    def credit(self) -> int:
        """How many events the peer takes."""
        return self._credit

    @credit.setter
    def credit(self, credit: int) -> None:
        if credit != self._credit:
            self._credit = credit
            self._limit()

    @property
    def is_congested(self) -> bool:
        """Whether the socket accepts no more for now."""
        return self._is_congested

    @is_congested.setter
    def is_congested(self, is_congested: bool) -> None:
        self._is_congested = is_congested
        self._limit()

    def _limit(self) -> None:
        self.most = 0 if self._is_congested else min(self._pace.most, self._credit)

    @property
    def floor(self) -> int:
        """The lowest number that may still be sent again, may still be under way, or has to be acknowledged."""
        if not self.keeps:
            return self._landed
        # They were sent in the order of their numbers.
        lowest = min(next(iter(self._parcels), self.next_number), next(iter(self._lots), self.next_number))
        first = self._gone_first
        while first and first[0] not in self.gone:
            heapq.heappop(first)
        return min(lowest, first[0]) if first else lowest

    @property
    def turn_s(self) -> float | None:
        """The time that the link needs for one event; None before it was ever busy."""
        return self._pace.turn_s

    @property
    def parcels(self) -> list[Parcel]:
        """The events under way that are handled one by one, by number."""
        return list(self._parcels.values())

    # -- under way -----------------------------------------------------------------------------------------------

    def add(self, parcel: Parcel, now_ns: int) -> None:
        """The event of a parcel leaves under its number, and may have to be sent again."""
        parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.SENT]
        if self.keeps:
            parcel.sent_ns = now_ns
            parcel.tries = 1
            parcel.due_ns = now_ns + self.patience_ns(parcel.held.size_bytes)
            self._parcels[parcel.number] = parcel
            self.size_bytes += len(parcel.held.content)

    def add_lot(self, lot: Lot) -> None:
        """The last events that left are under way together."""
        self._lots[lot.first] = lot
        self._in_lots += lot.size
        self.size_bytes += lot.size_bytes

    def replace(self, lot: Lot, parcels: Iterable[Parcel]) -> None:
        """Handle the events of a lot one by one from now on."""
        del self._lots[lot.first]
        self._in_lots -= lot.size  # the bytes under way stay the same
        self._parcels.update((parcel.number, parcel) for parcel in parcels)
        self._parcels = dict(sorted(self._parcels.items()))

    def note_frame(self, last: int, size_bytes: int, now_ns: int) -> None:
        """A frame has left, with events up to this number."""
        if len(self._frames) >= self._max_frames:
            del self._frames[0]
        self._frames.append(_Frame(last, now_ns, size_bytes))

    def give_up(self, parcel: Parcel, *, has_expired: bool) -> None:
        """The event has expired, or is no longer wanted."""
        del self._parcels[parcel.number]
        self.size_bytes -= len(parcel.held.content)
        parcel.step(TransferStep.EXPIRED)
        self._lingering[parcel.number] = len(parcel.held.content)
        self._lingering_bytes += len(parcel.held.content)
        if has_expired:
            self.gone[parcel.number] = parcel
            heapq.heappush(self._gone_first, parcel.number)
            while self._gone_first and self._gone_first[0] < self.next_number - _MOST_GONE:
                self.gone.pop(heapq.heappop(self._gone_first), None)

    def forget_gone(self) -> None:
        """The peer has a new epoch: it will not acknowledge transfers to the last one."""
        self.gone.clear()
        self._gone_first.clear()

    def take_back_gone(self, numbers: Sequence[tuple[int, int]]) -> list[Parcel]:
        """Parcels that expired under way, and are acknowledged nevertheless: the peer has them."""
        return [self.gone.pop(number) for first, last in numbers for number in within(self.gone, first, last)]

    def withdraw(self) -> list[Parcel]:
        """The peer is lost: nothing is under way any more; returns what was."""
        self._undo_lots()
        parcels = list(self._parcels.values())
        for parcel in parcels:
            parcel.step(TransferStep.PEER_LOST)
        self._parcels.clear()
        self._land(self.next_number)
        self.size_bytes = 0
        self._frames.clear()
        self._landed = self.next_number
        return parcels

    def _undo_lots(self, due_ns: int | None = None) -> None:
        """Turn all lots into parcels, or those that have to be sent again by then."""
        for lot in list(self._lots.values()):
            if lot.first in self._lots and (due_ns is None or lot.due_ns <= due_ns):
                lot.together.undo()

    # -- acknowledged --------------------------------------------------------------------------------------------

    def acknowledge(self, numbers: Sequence[tuple[int, int]], held_ns: int, waiting: int, now_ns: int) -> list[Parcel]:
        """The peer has taken events, and `waiting` are queued; the parcels that this ends. Lots end by themselves."""
        ended: list[Parcel] = []
        in_lots = 0
        landed, before_bytes = self._landed, self.size_bytes + self._lingering_bytes
        last, is_sent_once = numbers[-1][1], not self.keeps
        for first, final in numbers:
            if self.keeps:
                if self._lots:
                    in_lots += self._end_lots(first, final)
                    is_sent_once = in_lots > 0
                for number in within(self._parcels, first, final):
                    parcel = self._parcels.pop(number)
                    self.size_bytes -= len(parcel.held.content)
                    parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.ACKNOWLEDGED]
                    ended.append(parcel)
                    is_sent_once = number == last and parcel.tries == 1
            elif self._landed <= final < self.next_number:
                self._landed = final + 1
        self._measure(last, before_bytes, held_ns, now_ns, is_sent_once=is_sent_once)
        count = len(ended) + in_lots + self._landed - landed + (self._land(last) if self._lingering else 0)
        if count:
            ended_bytes = before_bytes - self.size_bytes - self._lingering_bytes
            self._keep_pace(count, before_bytes, ended_bytes, last, held_ns, waiting, now_ns)
        return ended

    def _land(self, last: int) -> int:
        """What had expired under way, up to this number, is no longer on the link; how many events those were."""
        landed = [number for number in self._lingering if number <= last]
        for number in landed:
            self._lingering_bytes -= self._lingering.pop(number)
        return len(landed)

    def _end_lots(self, first: int, last: int) -> int:
        """End the lots that were acknowledged whole, and undo those that were in part; how many events ended."""
        ended = 0
        for lot in list(self._lots.values()):
            if lot.first > last:
                break
            if lot.last >= first and lot.first in self._lots:
                if first <= lot.first and lot.last <= last:
                    del self._lots[lot.first]
                    self._in_lots -= lot.size
                    self.size_bytes -= lot.size_bytes
                    ended += lot.size
                    lot.together.ended(lot.peer)
                else:
                    lot.together.undo()
        return ended

    def _measure(self, last: int, under_way_bytes: int, held_ns: int, now_ns: int, *, is_sent_once: bool) -> None:
        """Learn from the time that the frames up to this number took, with so many bytes under way."""
        frames, meter = self._frames, self._meter
        while frames and frames[0].last <= last:
            frame = frames.pop(0)
            took_ns = now_ns - frame.sent_ns
            if frame.last == last:
                meter.note_answer(took_ns)
            if frame.last == last and is_sent_once:
                meter.note_transfer(took_ns, held_ns, frame.size_bytes)
                if self.was_held_up:
                    self.was_held_up = False
                    self._pace.burst(took_ns - held_ns, under_way_bytes, meter.least_ns)
                    self._limit()
                else:
                    self._pace.flow(took_ns - held_ns, under_way_bytes, meter.least_ns)

    def _keep_pace(
        self, count: int, before_bytes: int, ended_bytes: int, last: int, held_ns: int, waiting: int, now_ns: int
    ) -> None:
        """Allow as many under way as the link has shown that it carries."""
        meter, pace = self._meter, self._pace
        if not waiting:
            pace.idle(held_ns, before_bytes, now_ns)
            meter.is_loaded = False
            return
        pace.acknowledged(
            count,
            ended_bytes,
            last,
            held_ns=held_ns,
            idle_ns=meter.least_ns,
            spread_ns=meter.spread_ns(round(TYPICAL_KB * 1000)),
            next_number=self.next_number,
            now_ns=now_ns,
        )
        self._limit()
        meter.is_loaded = not pace.is_least

    # -- sent again ----------------------------------------------------------------------------------------------

    def patience_ns(self, size_bytes: int) -> int:
        """How long to wait for the acknowledgement of an event of this size before it is sent again."""
        patience_ns = self._meter.patience_ns(size_bytes)
        if patience_ns < self._retry_least_ns:
            return self._retry_least_ns
        return min(patience_ns, self._retry_most_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When something has to be sent again, or no longer counts."""
        if self.keeps:
            due_ns = [parcel.due_ns for parcel in self._parcels.values()]
            due_ns += [lot.due_ns for lot in self._lots.values()]
            return min(due_ns, default=None)
        return self._frames[0].sent_ns + self._retry_most_ns if self._frames else None

    def due(self, now_ns: int) -> Iterator[Parcel]:
        """The events to be sent again now; each gets more time than before."""
        self._undo_lots(now_ns)
        for parcel in list(self._parcels.values()):
            if parcel.due_ns <= now_ns:
                parcel.step(TransferStep.TIMED_OUT)
                parcel.tries += 1
                backoff_ns = self.patience_ns(parcel.held.size_bytes) << min(parcel.tries - 1, 16)
                parcel.due_ns = now_ns + min(backoff_ns, self._retry_most_ns)
                yield parcel

    def refused_hops(self) -> int | None:
        """The most links that an event under way has come over; None if one was sent only once."""
        parcels = self._parcels.values()
        if not self.keeps or self._lots or any(parcel.tries < _TRIES for parcel in parcels):
            return None
        return max((parcel.held.hops for parcel in parcels), default=None)

    def hasten(self, leaving: int, now_ns: int) -> None:
        """The peer is back: events under way are sent again at once; `leaving` events have not left yet."""
        self._undo_lots()
        self._land(self.next_number)  # on a connection that has ended
        for parcel in self._parcels.values():
            parcel.due_ns = now_ns
        if not self.keeps:
            self._frames.clear()
            self._landed = self.next_number - leaving

    def forget_lost(self, now_ns: int) -> None:
        """Without buffering: events that left long ago no longer count."""
        while not self.keeps and self._frames and self._frames[0].sent_ns + self._retry_most_ns <= now_ns:
            self._landed = max(self._landed, self._frames.pop(0).last + 1)
