"""What waits for a link and what is under way on it (paper C, section 3; paper D, section 2.4.2).

- At most `window` events, and no more than the peer's credit and the link's pace (`_pacing`), are under way; the others
  wait in the queue of the scheduling strategy, which decides what leaves next and what is not worth sending any more.
- An idle link sends at once: nothing waits, so there is nothing to choose. What leaves in a step of the machine leaves
  together, in as few frames as FRAME_BYTES allow.
- If events are kept (buffering), what is not acknowledged in time is sent again under the same number, each time after
  twice as long, until it is acknowledged or has expired. If not, it counts as under way until this event or a later one
  is acknowledged, or until `retry_most_ns` has passed: acknowledgements may be lost as well.
- When routes change, everything that waits is withdrawn and finds its way anew.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tidings.protocol._states import TRANSFER_STEPS, TransferState, TransferStep
from tidings.protocol.broker._link_state import Path
from tidings.protocol.links._measuring import LinkMeter
from tidings.protocol.links._pacing import Pacing
from tidings.protocol.wire import MAX_BATCH, Term, encode_plain, encode_transfer
from tidings.scheduling import Columns, DeferredQueue, Reason, Strategy

if TYPE_CHECKING:
    from tidings.protocol.broker._held import Held
    from tidings.protocol.links._peers import Peer

__all__ = ["FRAME_BYTES", "Lot", "Outbox", "Parcel", "batches", "named", "runs", "within"]

FRAME_BYTES: Final = 64 * 1024
"""Events leave together up to about so many bytes: more would keep what comes after them waiting."""

_TYPICAL_KB: Final = 1.0
_SHARES: Final = 4
"""In so many frames at least is what may be under way on a busy link."""
_RETIME: Final = 1.25
"""A queue is told of another time per turn when it differs by this factor."""


class Parcel:
    """One event for one neighbour or client, with the targets that go that way."""

    __slots__ = ("due_ns", "held", "number", "paths", "peer", "sent_ns", "state", "targets", "tries")

    def __init__(
        self, held: "Held", peer: "Peer", targets: dict[str, tuple[Term, ...]], paths: dict[str, Path]
    ) -> None:
        self.held = held
        self.peer = peer
        self.targets = targets
        self.paths = paths
        self.state = TransferState.WAITING
        self.number = -1
        self.sent_ns = self.due_ns = self.tries = 0

    def step(self, step: TransferStep) -> None:
        """Take a step of the table."""
        self.state = TRANSFER_STEPS[self.state, step]


class Together(Protocol):
    """Events that left together, for several peers."""

    def ended(self, peer: "Peer") -> None:
        """A peer has acknowledged all of them."""

    def undo(self) -> None:
        """Put parcels in the place of all their lots."""


class Lot:
    """Events that are under way to one peer under numbers that follow each other, and not looked at one by one.

    A broker that keeps events sends many of one course at a time, and they are acknowledged as they were sent. A lot
    ends whole: whatever concerns a part of it (an acknowledgement of some, an event that expires, a peer that is lost
    or has to be sent to again) has it undone first, into parcels.
    """

    __slots__ = ("due_ns", "first", "last", "peer", "sent_ns", "size", "together")

    def __init__(self, peer: "Peer", together: Together, first: int, size: int, *, sent_ns: int, due_ns: int) -> None:
        self.peer = peer
        self.together = together
        self.first = first
        self.last = first + size - 1
        self.size = size
        self.sent_ns = sent_ns
        self.due_ns = due_ns


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


def within(known: Collection[int], first: int, last: int) -> list[int]:
    """The known numbers of a range, however long a peer says that it is."""
    if last - first >= len(known):
        return [number for number in known if first <= number <= last]
    return [number for number in range(first, last + 1) if number in known]


class _Frame(NamedTuple):
    """Events that left together."""

    last: int
    sent_ns: int
    size_bytes: int


class Outbox:
    """Everything that is to go to one peer."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        processing_s: float,
        window: int,
        max_queued: int,
        retry_least_ns: int,
        retry_most_ns: int,
        frame_bytes: int = FRAME_BYTES,
        keeps: bool = True,
    ) -> None:
        self.meter = LinkMeter()
        self.given = 0
        """How many events were sent, each counted once for each of its targets."""
        self.dropped = 0
        """How many were not, because it was too late, or because there were too many; counted alike."""
        self._pacing = Pacing(window)
        self.most = self._pacing.most
        """How many events may be under way."""
        self.queued = 0
        """How many events wait."""
        self.next_number = 0
        self.landed = 0
        """Without buffering: the lowest number that counts as under way."""
        self._credit = window
        self._is_congested = False
        self._strategy = strategy
        self._processing_s = processing_s
        self._window = window
        self._max_queued = max_queued
        self._retry_least_ns = retry_least_ns
        self._retry_most_ns = retry_most_ns
        self._frame_bytes = frame_bytes
        self._keeps = keeps
        self._queue: DeferredQueue[Parcel] | None = None
        self._turn_s = 0.0
        self._known_columns: tuple[Any, ...] = (None, None, 0.0, 0.0, ())
        self._was_held_up = False  # something has waited since the pace was last looked at
        self._waiting: dict[Parcel, None] = {}
        self._under_way: dict[int, Parcel] = {}
        self._lots: dict[int, Lot] = {}  # by the first of their numbers
        self._in_lots = 0
        self._frames: deque[_Frame] = deque(maxlen=window + 1)
        self.leaving: list[bytes] = []
        """The events that leave with this step, the last of the numbers; and for whom, and their size together."""
        self.leaving_for: list[bytes] = []
        self.leaving_bytes = 0
        self.left_due_ns = 0
        """When the first of what leaves with this step has to be sent again, or counts no more."""

    @property
    def credit(self) -> int:
        """How many events the peer takes."""
        return self._credit

    @credit.setter
    def credit(self, credit: int) -> None:
        self._credit = credit
        self._limit()

    @property
    def is_congested(self) -> bool:
        """Whether the socket takes no more for now."""
        return self._is_congested

    @is_congested.setter
    def is_congested(self, is_congested: bool) -> None:
        self._is_congested = is_congested
        self._limit()

    def _limit(self) -> None:
        self.most = 0 if self._is_congested else min(self._pacing.most, self._credit)

    @property
    def under_way(self) -> int:
        """How many events are under way."""
        return len(self._under_way) + self._in_lots if self._keeps else self.next_number - self.landed

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self.queued and not self.under_way

    @property
    def floor(self) -> int:
        """The lowest number that may still be sent again, or may still be on its way."""
        if not self._keeps:
            return self.landed
        # They went under way in the order of their numbers.
        return min(next(iter(self._under_way), self.next_number), next(iter(self._lots), self.next_number))

    @property
    def is_open(self) -> bool:
        """Whether one more event may be under way."""
        return self.under_way < self.most

    def enqueue(self, parcel: Parcel, now_ns: int) -> list[Parcel]:
        """Let an event wait; what had to go because there are too many."""
        if self._queue is None:
            self._turn_s = _TYPICAL_KB * self.meter.mean_s_per_kb
            self._queue = DeferredQueue(
                self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
            )
        self._waiting[parcel] = None
        self.queued += 1
        self._was_held_up = True
        deleted = self._queue.push(
            parcel,
            published_s=parcel.held.since_ns * 1e-9,
            size_kb=parcel.held.size_bytes / 1000.0,
            columns=self._columns(parcel),
            now_s=now_ns * 1e-9,
        )
        return [self._drop(gone.waiting.event) for gone in deleted]

    def next(self, now_ns: int) -> tuple[Parcel | None, list[tuple[Parcel, Reason]]]:
        """What the strategy sends next, and what it deletes, with the reason."""
        if self._queue is None or not self._waiting:
            return None, []
        self._retime()
        chosen, deleted = self._queue.pop(now_ns * 1e-9)
        gone = [(self._drop(each.waiting.event), each.reason) for each in deleted]
        if chosen is None:
            return None, gone
        del self._waiting[chosen.event]
        self.queued -= 1
        return chosen.event, gone

    def leave(self, targets: bytes, events: list[bytes], size_bytes: int) -> None:
        """Events leave with this step, for the same targets."""
        many = len(events)
        self.given += many * _length(targets)
        self.leaving += events
        self.leaving_for += [targets] * many
        self.leaving_bytes += size_bytes
        self.next_number += many

    def send(self, parcel: Parcel, targets: bytes, event: bytes, now_ns: int) -> None:
        """The event of a parcel leaves with this step, and may have to be sent again."""
        parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.SENT]
        parcel.number = self.next_number
        self.leave(targets, [event], parcel.held.size_bytes)
        if self._keeps:
            parcel.sent_ns = now_ns
            parcel.tries = 1
            parcel.due_ns = now_ns + self.patience_ns(parcel.held.size_bytes)
            is_first = len(self.leaving) == 1
            self.left_due_ns = parcel.due_ns if is_first else min(self.left_due_ns, parcel.due_ns)
            self._under_way[parcel.number] = parcel

    def frames(self, session: int, now_ns: int) -> Iterator[bytes]:
        """What leaves with this step, in as few frames as can be."""
        events, targets, floor = self.leaving, self.leaving_for, self.floor
        number, size_bytes = self.next_number - len(events), self.leaving_bytes
        self.leaving, self.leaving_for, self.leaving_bytes = [], [], 0
        for begin, end in self._batches(targets, events):
            yield encode_transfer(session, number + begin, floor, targets[begin:end], events[begin:end], now_ns)
            share_bytes = size_bytes * (end - begin) // len(events)
            self._frames.append(_Frame(number + end - 1, now_ns, share_bytes))
        if not self._keeps:
            self.left_due_ns = now_ns + self._retry_most_ns

    def _batches(self, targets: list[bytes], events: list[bytes]) -> Iterable[tuple[int, int]]:
        """Which of these events go together in one frame."""
        size_bytes = sum(map(len, targets)) + sum(map(len, events))
        if not self.queued and size_bytes <= self._frame_bytes and len(events) <= MAX_BATCH:
            return ((0, len(events)),)
        sizes_bytes = [len(one) + len(other) for one, other in zip(targets, events, strict=True)]
        most_bytes = self._frame_bytes
        if self.queued:  # a busy link: it must not run dry while the one frame that was under way is acknowledged
            most_bytes = min(most_bytes, sum(sizes_bytes) * max(self.most // _SHARES, 1) // len(sizes_bytes))
        return batches(sizes_bytes, most_bytes)

    def add_lot(self, lot: Lot) -> None:
        """Events that leave with this step are under way together."""
        self._lots[lot.first] = lot
        self._in_lots += lot.size
        is_first = len(self.leaving) == lot.size
        self.left_due_ns = lot.due_ns if is_first else min(self.left_due_ns, lot.due_ns)

    def replace(self, lot: Lot, parcels: Iterable[Parcel]) -> None:
        """The events of a lot are under way each by itself from now on."""
        del self._lots[lot.first]
        self._in_lots -= lot.size
        self._under_way.update((parcel.number, parcel) for parcel in parcels)
        self._under_way = dict(sorted(self._under_way.items()))

    def _undo_lots(self, due_ns: int | None = None) -> None:
        """No lots from now on, or none that have to be sent again by then."""
        for lot in list(self._lots.values()):
            if lot.first in self._lots and (due_ns is None or lot.due_ns <= due_ns):
                lot.together.undo()

    def _end_lots(self, first: int, last: int) -> int:
        """End the lots of which all was acknowledged; how many events, and those of which a part was are undone."""
        ended = 0
        for lot in list(self._lots.values()):
            if lot.first > last:
                break
            if lot.last >= first and lot.first in self._lots:
                if first <= lot.first and lot.last <= last:
                    del self._lots[lot.first]
                    self._in_lots -= lot.size
                    ended += lot.size
                    lot.together.ended(lot.peer)
                else:
                    lot.together.undo()
        return ended

    def acknowledge(self, numbers: Sequence[tuple[int, int]], held_ns: int, now_ns: int) -> list[Parcel]:
        """The peer has taken events; the parcels that this ends. Lots end by themselves."""
        ended: list[Parcel] = []
        in_lots = 0
        landed = self.landed
        last, is_sent_once = numbers[-1][1], not self._keeps
        for first, final in numbers:
            if self._keeps:
                if self._lots:
                    in_lots += self._end_lots(first, final)
                    is_sent_once = in_lots > 0
                for number in within(self._under_way, first, final):
                    parcel = self._under_way.pop(number)
                    parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.ACKNOWLEDGED]
                    ended.append(parcel)
                    is_sent_once = number == last and parcel.tries == 1
            elif self.landed <= final < self.next_number:
                self.landed = final + 1
        frames = self._frames
        while frames and frames[0].last <= last:
            frame = frames.popleft()
            took_ns = now_ns - frame.sent_ns
            if frame.last == last:
                self.meter.note_answer(took_ns)
            if frame.last == last and is_sent_once:
                self.meter.note_transfer(took_ns, held_ns, frame.size_bytes)
                if self._was_held_up:
                    self._was_held_up = False
                    self._pacing.burst(took_ns - held_ns, self.meter.least_ns)
        self._pace(len(ended) + in_lots + self.landed - landed, last, held_ns, now_ns)
        return ended

    def _pace(self, count: int, last: int, held_ns: int, now_ns: int) -> None:
        """Let as many be under way as the link has shown that it carries."""
        if not count:
            return
        meter, pacing = self.meter, self._pacing
        pacing.acknowledged(
            count,
            last,
            held_ns=held_ns,
            idle_ns=meter.least_ns,
            spread_ns=meter.spread_ns(round(_TYPICAL_KB * 1000)),
            waiting=self.queued,
            next_number=self.next_number,
            now_ns=now_ns,
        )
        self._limit()
        meter.is_loaded = self.queued > 0 and not pacing.is_least

    def let_lost_go(self, now_ns: int) -> None:
        """Without buffering: what left so long ago does not count any more."""
        while not self._keeps and self._frames and self._frames[0].sent_ns + self._retry_most_ns <= now_ns:
            self.landed = max(self.landed, self._frames.popleft().last + 1)

    def give_up(self, parcel: Parcel) -> None:
        """The event has expired, or is no longer wanted: it neither waits nor is under way."""
        if parcel.state is TransferState.UNDER_WAY:
            del self._under_way[parcel.number]
            parcel.step(TransferStep.EXPIRED)
        elif parcel in self._waiting:
            self.dropped += len(parcel.targets)
            # The queue still holds it; without targets it is passed over when its turn comes.
            parcel.targets = {}

    @property
    def next_due_ns(self) -> int | None:
        """When something has to be sent again, or counts no more."""
        if self._keeps:
            due_ns = [parcel.due_ns for parcel in self._under_way.values()]
            due_ns += [lot.due_ns for lot in self._lots.values()]
            return min(due_ns, default=None)
        return self._frames[0].sent_ns + self._retry_most_ns if self._frames else None

    def again(self, session: int, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Frames of what has to be sent again now, and how many events each holds."""
        due = list(self.due(now_ns))
        floor, is_client = self.floor, due and due[0].peer.kind == "client"
        for first, last in runs([parcel.number for parcel in due]):
            some = due[first:last]
            targets = [named(each.targets) if is_client else encode_plain(each.targets) for each in some]
            events = [parcel.held.encode_once(now_ns) for parcel in some]
            for begin, end in self._batches(targets, events):
                head = (session, some[begin].number, floor)
                yield end - begin, encode_transfer(*head, targets[begin:end], events[begin:end], now_ns)

    def due(self, now_ns: int) -> Iterator[Parcel]:
        """The events to be sent again now; each is given more time than before."""
        self._undo_lots(now_ns)
        for parcel in list(self._under_way.values()):
            if parcel.due_ns <= now_ns:
                parcel.step(TransferStep.TIMED_OUT)
                parcel.tries += 1
                backoff_ns = self.patience_ns(parcel.held.size_bytes) << min(parcel.tries - 1, 16)
                parcel.due_ns = now_ns + min(backoff_ns, self._retry_most_ns)
                yield parcel

    def hasten(self, now_ns: int) -> None:
        """The peer is back: what is under way is sent again at once."""
        self._undo_lots()
        for parcel in self._under_way.values():
            parcel.due_ns = now_ns
        if not self._keeps:
            self._frames.clear()
            self.landed = self.next_number - len(self.leaving)

    def withdraw(self, *, under_way: bool) -> list[Parcel]:
        """Take back what waits, and if asked what is under way: others may get it there."""
        parcels = [parcel for parcel in self._waiting if parcel.targets]
        self._waiting.clear()
        self.queued = 0
        self._queue = None
        if under_way:
            self._undo_lots()
            parcels += self._under_way.values()
            for parcel in self._under_way.values():
                parcel.step(TransferStep.PEER_LOST)
            self._under_way.clear()
            self._frames.clear()
            self.landed = self.next_number
        return parcels

    def _drop(self, parcel: Parcel) -> Parcel:
        self.dropped += len(parcel.targets)
        del self._waiting[parcel]
        self.queued -= 1
        parcel.step(TransferStep.EXPIRED)
        return parcel

    def patience_ns(self, size_bytes: int) -> int:
        """After how long without an acknowledgement an event of this size is sent again."""
        patience_ns = self.meter.patience_ns(size_bytes)
        if patience_ns < self._retry_least_ns:
            return self._retry_least_ns
        return min(patience_ns, self._retry_most_ns)

    def _columns(self, parcel: Parcel) -> Columns:
        """The event as a queue sees it: one column for each thing that somebody behind the link pays for."""
        meter = self.meter
        # Events of one course share their targets, so what they pay is often what the one before paid.
        known = (parcel.targets, parcel.paths, meter.mean_s_per_kb, meter.variance_s2_per_kb2)
        if known[0] is not self._known_columns[0] or known[1:] != self._known_columns[1:4]:
            self._known_columns = (*known, tuple(_columns(parcel.targets.items(), parcel.paths, meter)))
        columns: Columns = self._known_columns[4]
        return columns

    def _retime(self) -> None:
        turn_s = self._pacing.turn_s or _TYPICAL_KB * self.meter.mean_s_per_kb
        if self._queue is not None and not self._turn_s / _RETIME <= turn_s <= self._turn_s * _RETIME:
            self._turn_s = turn_s
            self._queue.retime(turn_s)


def _length(targets: bytes) -> int:
    """How many targets there are, as encoded: a MessagePack map begins with its length."""
    first = targets[0]
    return first & 0x0F if first < 0x90 else int.from_bytes(targets[1 : 3 if first == 0xDE else 5], "big")


def named(names: Iterable[str]) -> bytes:
    """Subscriptions as a transfer to their client says them: without what they pay."""
    return encode_plain(dict.fromkeys(names, ()))


def _columns(
    targets: Iterable[tuple[str, tuple[Term, ...]]], paths: dict[str, Path], meter: LinkMeter
) -> Iterator[tuple[float, float, float, float, float]]:
    for target, terms in targets:
        path = paths.get(target)
        nodes = 0.0 if path is None else float(path.nodes)
        mean = meter.mean_s_per_kb if path is None else path.mean_s_per_kb
        variance = meter.variance_s2_per_kb2 if path is None else path.variance_s2_per_kb2
        for allowed_ns, price in terms:
            yield allowed_ns * 1e-9, price, nodes, mean, math.sqrt(variance)
