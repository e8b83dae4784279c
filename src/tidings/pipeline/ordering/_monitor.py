"""One publisher's receivers while a trace grows: the state machine of the live client, fed from the trace.

A delivery in a trace has no stamp; its publication says when it left, the one before it when that did, and what each
subscription wants. Publications and deliveries come in files of different brokers, in any order, so the last
KEPT_PUBLICATIONS of a publisher are kept, and a delivery whose publication has not come waits for it, up to MAX_WAITING
of them; the oldest are then given up and counted (`unknown`). Deliveries of a subscription come from one broker, in the
order in which they arrived; one that comes after a later one is taken as a clock that was set back.

Everything is a value that goes into the state of the stream and comes out of it again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidings.ordering import Policy, RecordEntry, Sequencer, Snapshot, Stamp

__all__ = ["FIGURES", "KEPT_PUBLICATIONS", "MAX_WAITING", "Known", "PairMonitor", "Published"]

KEPT_PUBLICATIONS: Final = 4096
MAX_WAITING: Final = 4096
FIGURES: Final = (
    "received",
    "out_of_order",
    "violations",
    "duplicates",
    "forgotten",
    "delivered",
    "hold_ns",
    "assessed_ns",
)
"""What is counted of every pair, under every policy; `hold_ns` is that of the events delivered so far."""

_WANTED: Final = b"\1"
_OTHER: Final = b"\0"


class Published(msgspec.Struct, frozen=True, array_like=True):
    """An event: when it left, and the numbers of the subscriptions that want it."""

    departure_ns: int
    matches: list[int]


class Known(msgspec.Struct, array_like=True):
    """What is known of one publisher: its last events by number, and deliveries (subscription, number, arrival) that
    wait for theirs."""

    published: dict[int, Published] = msgspec.field(default_factory=dict)
    waiting: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    unknown: int = 0

    def add(
        self, published: Iterable[tuple[int, int, list[int]]], arrived: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]]:
        """Take in what has come, and return the deliveries that can go on, by subscription and arrival."""
        for number, departure_ns, matches in published:
            if number not in self.published or departure_ns < self.published[number].departure_ns:
                self.published[number] = Published(departure_ns, matches)
        come = [*self.waiting, *arrived]
        ready = [each for each in come if each[1] in self.published]
        waiting = sorted((each for each in come if each[1] not in self.published), key=lambda each: each[2])
        self.unknown += max(0, len(waiting) - MAX_WAITING)
        self.waiting = waiting[-MAX_WAITING:]
        return sorted(ready, key=lambda each: (each[0], each[2], each[1]))

    def trim(self) -> None:
        """Forget the oldest events beyond those that are kept."""
        if len(self.published) > KEPT_PUBLICATIONS:
            for number in sorted(self.published)[:-KEPT_PUBLICATIONS]:
                del self.published[number]

    def stamp(self, number: int, subscription: int, record: int) -> Stamp:
        """What the event would have carried; a summary says here what it says about this subscription."""
        own = self.published[number]
        before = self.published.get(number - 1, own)
        entries = []
        for other in range(number - 1, number - 1 - record, -1):
            event = self.published.get(other)
            if event is None:
                break
            entries.append(RecordEntry(_WANTED if subscription in event.matches else _OTHER, event.departure_ns))
        return Stamp(
            sequence=number,
            departure_ns=own.departure_ns,
            previous_departure_ns=before.departure_ns,
            record=tuple(entries),
        )


class _PairState(msgspec.Struct, frozen=True, array_like=True):
    """By policy, the receiver and what was counted beside it: delivered, hold, assessed."""

    receivers: list[Snapshot[int]]
    more: list[tuple[int, int, int]]


class PairMonitor:
    """What one subscription receives of one publisher, under several policies."""

    def __init__(self, policies: Sequence[Policy], state: bytes | None = None) -> None:
        known = None if state is None else msgspec.msgpack.decode(state, type=_PairState)
        self._policies = policies
        if known is None:
            self._receivers = [Sequencer[int](policy, _WANTED.__eq__) for policy in policies]
        else:
            self._receivers = [
                Sequencer.restored(policy, snapshot, _WANTED.__eq__)
                for policy, snapshot in zip(policies, known.receivers, strict=True)
            ]
        self._delivered = [0] * len(policies)
        self._hold_ns, self._assessed_ns = self._delivered.copy(), self._delivered.copy()
        for place, (delivered, hold_ns, assessed_ns) in enumerate(known.more if known else ()):
            self._delivered[place], self._hold_ns[place], self._assessed_ns[place] = delivered, hold_ns, assessed_ns

    def state(self) -> bytes:
        """All of it."""
        more = list(zip(self._delivered, self._hold_ns, self._assessed_ns, strict=True))
        return msgspec.msgpack.encode(_PairState([each.snapshot() for each in self._receivers], more))

    def receive(self, stamp: Stamp, arrival_ns: int) -> None:
        """One arrival; timers that end before it come first."""
        for place, receiver in enumerate(self._receivers):
            self._advance(place, arrival_ns)
            for delivery in receiver.receive(arrival_ns, stamp, arrival_ns):
                self._deliver(place, delivery.item, arrival_ns)
            self._assessed_ns[place] += receiver.assessed_ns

    def finish(self) -> None:
        """Let all timers end."""
        for place in range(len(self._receivers)):
            self._advance(place, None)

    def figures(self) -> list[tuple[int, ...]]:
        """FIGURES by policy."""
        return [
            (*(getattr(receiver.counts, name) for name in FIGURES[:5]), *more)
            for receiver, *more in zip(self._receivers, self._delivered, self._hold_ns, self._assessed_ns, strict=True)
        ]

    def _advance(self, place: int, until_ns: int | None) -> None:
        receiver = self._receivers[place]
        while (timer_ns := receiver.next_timer_ns) is not None and (until_ns is None or timer_ns <= until_ns):
            for delivery in receiver.advance(timer_ns):
                self._deliver(place, delivery.item, timer_ns)

    def _deliver(self, place: int, arrival_ns: int, now_ns: int) -> None:
        self._delivered[place] += 1
        self._hold_ns[place] += now_ns - arrival_ns
