"""A client's events on their path to the home broker: in the order of publication, sent again until acknowledged.

At most `window` events, and no more than the broker's credit (plus one as a probe), are under way; at most
`max_unacknowledged` are queued and under way together. An event whose lifetime ends before the broker has it is
reported as failed.

In a move there is a pause: while the old home broker acknowledges its last events, later ones wait. Events that it has
not acknowledged at the end of the pause are sent to the new one under the same numbers. An event that both accept has
one identity, so subscribers get it once.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tidings.protocol import wire
from tidings.protocol._effects import Confirmed, Effect, Failed
from tidings.protocol._settings import ClientSettings
from tidings.protocol.links._outbox import FRAME_BYTES, batches, runs
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import within

__all__ = ["Publisher"]


_SEVERAL: Final = ("", -1)
"""An event that was sent to two brokers may have been accepted by either, also if its client is back at the first."""


class _Publication:
    """An event that the home broker has not acknowledged."""

    __slots__ = (
        "check",
        "content",
        "due_ns",
        "lifetime_ns",
        "must_reach",
        "number",
        "run_bytes",
        "sent_ns",
        "sent_to",
        "sequence",
        "since_ns",
        "size_bytes",
        "tries",
    )

    def __init__(
        self, sequence: int, since_ns: int, lifetime_ns: int | None, content: bytes, *, must_reach: bool
    ) -> None:
        self.must_reach = must_reach
        self.sequence = sequence
        self.since_ns = since_ns
        self.lifetime_ns = lifetime_ns
        self.size_bytes = len(content)
        self.content = content
        self.check = wire.check_of(content)
        self.number = -1
        self.run_bytes = 0  # of the last event of a frame: the size of all events in it
        self.due_ns = self.sent_ns = self.tries = 0
        self.sent_to: tuple[str, int] | None = None  # the broker that it was sent to, and its epoch; or _SEVERAL


class Publisher:
    """The unacknowledged events of one client."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        send: Callable[[Peer, wire.Message], None],
        emit: Callable[[Effect], None],
        retry_at: Callable[[int], None],
    ) -> None:
        self.epoch = settings.epoch
        self._settings = settings
        self._send = send
        self._emit = emit
        self._retry_at = retry_at
        self._waiting: deque[_Publication] | tuple[()] = ()  # most clients never publish
        self._under_way: dict[int, _Publication] = {}
        self._leaving: list[_Publication] = []
        self._next_number = 0
        self._is_held = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def under_way(self) -> int:
        """How many events are under way."""
        return len(self._under_way)

    @property
    def is_stirred(self) -> bool:
        """Whether something leaves at the end of this step."""
        return bool(self._leaving)

    def add(
        self,
        sequence: int,
        content: bytes,
        lifetime_ns: int | None,
        home: Peer | None,
        now_ns: int,
        *,
        must_reach: bool = False,
    ) -> None:
        """Add an event, which departs now."""
        if isinstance(self._waiting, tuple):
            self._waiting = deque()
        self._waiting.append(_Publication(sequence, now_ns, lifetime_ns, content, must_reach=must_reach))
        self.pump(home, now_ns)

    def pump(self, home: Peer | None, now_ns: int) -> None:
        """Send what may be sent."""
        if home is None or not home.is_up or home.outbox.is_congested or self._is_held:
            return
        while not isinstance(self._waiting, tuple) and self._waiting:
            if len(self._under_way) >= min(self._settings.window, max(home.outbox.credit, 1)):
                return
            publication = self._waiting.popleft()
            if not self._has_expired(publication, now_ns):
                publication.number = self._next_number
                self._next_number += 1
                self._under_way[publication.number] = publication
                self._dispatch(home, publication, now_ns)

    def flush(self, home: Peer | None, now_ns: int) -> None:
        """Send the events of this step, in as few frames as possible."""
        leaving, self._leaving = self._leaving, []
        if home is None or not leaving:
            return
        floor = next(iter(self._under_way), self._next_number)
        frame_bytes = min(FRAME_BYTES, self._settings.max_frame_bytes // 2)
        for first, last in runs([publication.number for publication in leaving]):
            some = leaving[first:last]
            for begin, end in batches([publication.size_bytes for publication in some], frame_bytes):
                self._send_run(home, some[begin:end], floor, now_ns)

    def hold(self) -> None:
        """Send no new events; those under way are sent again as usual."""
        self._is_held = True

    def release(self, home: Peer, now_ns: int) -> None:
        """End the pause; `home` may be another broker than before, and takes over what is under way."""
        self._is_held = False
        self.hasten(now_ns)
        self.pump(home, now_ns)

    def hasten(self, now_ns: int) -> None:
        """The broker is back: everything under way is sent again at once."""
        for publication in self._under_way.values():
            publication.due_ns = now_ns
        self._retry_at(now_ns)

    def resend(self, home: Peer | None, now_ns: int) -> None:
        """Send again events that were not acknowledged in time."""
        if home is None or not home.is_up or home.outbox.is_congested:
            return
        for number, publication in list(self._under_way.items()):
            if publication.due_ns <= now_ns:
                if self._has_expired(publication, now_ns):
                    del self._under_way[number]
                else:
                    self._dispatch(home, publication, now_ns)
        self.pump(home, now_ns)
        due_ns = min((publication.due_ns for publication in self._under_way.values()), default=None)
        if due_ns is not None:
            self._retry_at(due_ns)

    def on_ack(self, source: Peer, ack: wire.Ack, home: Peer | None, now_ns: int) -> None:
        """A broker has taken on events, now or before; it states its credit in either case."""
        source.outbox.credit = ack.credit
        if ack.session == self.epoch:
            for first, last in ack.numbers:
                for number in within(self._under_way, first, last):
                    publication = self._under_way.pop(number)
                    if number == last:
                        source.meter.note_answer(now_ns - publication.sent_ns)
                    if number == last and publication.tries == 1 and publication.run_bytes:
                        source.meter.note_transfer(now_ns - publication.sent_ns, ack.held_ns, publication.run_bytes)
                    self._emit(Confirmed("publish", str(publication.sequence)))
        self.pump(home, now_ns)

    def on_error(self, error: wire.Error, home: Peer, now_ns: int) -> None:
        """The broker refuses an event."""
        for number, publication in list(self._under_way.items()):
            if str(publication.sequence) == error.request:
                del self._under_way[number]
                self._emit(Failed("publish", error.request, error.code, error.text))
        self.pump(home, now_ns)

    def _has_expired(self, publication: _Publication, now_ns: int) -> bool:
        lifetime_ns = publication.lifetime_ns
        if lifetime_ns is None or now_ns < publication.since_ns + lifetime_ns:
            return False
        text = "its lifetime ended before the home broker had it"
        self._emit(Failed("publish", str(publication.sequence), "expired", text))
        return True

    def _dispatch(self, home: Peer, publication: _Publication, now_ns: int) -> None:
        publication.tries += 1
        publication.sent_ns = now_ns
        if publication.sent_to is None:
            publication.sent_to = (home.name, home.epoch)
        elif publication.sent_to != (home.name, home.epoch):
            publication.sent_to = _SEVERAL
        patience_ns = max(home.meter.patience_ns(publication.size_bytes), self._settings.retry_least_ns)
        patience_ns = min(patience_ns << min(publication.tries - 1, 16), self._settings.retry_most_ns)
        publication.due_ns = now_ns + patience_ns
        self._leaving.append(publication)
        self._retry_at(publication.due_ns)

    def _send_run(self, home: Peer, run: list[_Publication], floor: int, now_ns: int) -> None:
        run[-1].run_bytes = sum(publication.size_bytes for publication in run)
        events = tuple(
            wire.Publication(
                sequence=publication.sequence,
                departure_ns=publication.since_ns,
                age_ns=now_ns - publication.since_ns,
                lifetime_ns=publication.lifetime_ns,
                size_bytes=publication.size_bytes,
                content=publication.content,
                must_reach=publication.must_reach,
                check=publication.check,
            )
            for publication in run
        )
        is_again = any(publication.sent_to != (home.name, home.epoch) for publication in run)
        self._send(home, wire.Publish(self.epoch, run[0].number, floor, events, now_ns, is_again))
