"""Which of the arrived frames the machine gets now, and which have to wait.

- A client over its budget is not read from for a while, and the frames that it has already sent wait (`_budgets`).
- Its requests wait while those of all clients together take more than their share (`_requests`).
- Long filters are read in slices, and their sender waits meanwhile (`_filter_reader`).
- A session that waits counts as alive: the machine is given its name without frames.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidings.protocol._agenda import Agenda
from tidings.protocol._budgets import Purse
from tidings.protocol._filters import LONG_FILTER
from tidings.protocol._machine import Machine
from tidings.protocol.node._effects import NodeEffect, Read
from tidings.protocol.node._filter_reader import PATIENCE_NS, PAUSE_NS, Readings
from tidings.protocol.node._requests import QUANTUM_US, Requests, answers_events, cost_us, has_events
from tidings.protocol.node._session import Session

__all__ = ["Intake"]

_SLICE_BYTES: Final = 4_096
"""Up to this many bytes of a client's frames are given to the machine together."""
_WAIT_NS: Final = 1_000_000_000
"""A client that is held back is checked again at least this often."""


class Intake:
    """The frames that one node gives to its machine, and the sessions that wait.

    `feed` gives frames to the machine; `put_back` has frames that waited looked at again in the next turn.
    """

    def __init__(
        self,
        machine: Machine,
        sessions: Mapping[str, Session],
        agenda: Agenda,
        *,
        requests_share: float,
        emit: Callable[[NodeEffect], None],
        report: Callable[..., None],
        feed: Callable[[Iterable[tuple[str, Sequence[bytes]]], int], None],
        put_back: Callable[[Session, list[bytes]], None],
    ) -> None:
        self.held_back: dict[str, str] = {}
        """By connection: the connected clients that were held back at least once."""
        self.readings = Readings()
        self.requests: Requests[Session] = Requests(requests_share)
        self._machine = machine
        self._sessions = sessions
        self._agenda = agenda
        self._emit = emit
        self._report = report
        self._feed = feed
        self._put_back = put_back

    def forget(self, session: Session) -> None:
        """Drop what waits for a session that has ended."""
        self._agenda.cancel(("read", session.name))
        session.waiting = []
        self.held_back.pop(session.name, None)
        self.readings.drop(session.name)
        if not self.readings:
            self._agenda.cancel(("slice",))

    def admitted(self, came: list[tuple[Session, list[bytes]]], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """The frames for the machine, one connection after the other; clients over their budget have to wait."""
        asking: list[Session] = []
        for session, frames in came:
            if not session.is_admitted:
                continue
            if session.is_held_back or session.waiting:
                session.waiting += frames
            elif session.purse is None:
                if session.is_local or (len(frames) == 1 and len(frames[0]) <= LONG_FILTER and not session.passing):
                    yield session.name, frames
                else:
                    yield from self._readable(session, frames, now_ns)
            elif not frames:
                yield session.name, frames
            elif len(frames) == 1 and self._is_about_events(session, frames[0]):
                machine = self._machine
                events = machine.events_in
                yield session.name, frames
                wait_ns = session.purse.spend(max(machine.events_in - events, 1), len(frames[0]), 0.0, now_ns)
                if wait_ns > 0 and session.is_admitted:
                    self._hold_back(session, session.purse, wait_ns, now_ns)
            else:
                session.waiting = frames
                if has_events(frames[0]) or (session.answers and answers_events(frames[0])):
                    yield from self._take_frames(session, session.purse, 0.0, now_ns)
                if session.waiting and not session.is_held_back:
                    asking.append(session)
                    self.requests.put(session, session.tag_us)
        if self.requests.row:
            yield from self.requested(asking, now_ns)

    @staticmethod
    def _is_about_events(session: Session, frame: bytes) -> bool:
        """Whether a frame carries events, or is one of the answers to events that the client may send."""
        if has_events(frame):
            return True
        if session.answers and answers_events(frame):
            session.answers -= 1
            return True
        return False

    def _readable(self, session: Session, frames: list[bytes], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """The frames of a broker, up to the first with long filters to be read."""
        passing, session.passing = session.passing, 0
        for place, frame in enumerate(frames):
            texts = self.readings.long_filters(frame) if place >= passing else []
            if texts:
                session.waiting = frames[place:]
                yield session.name, frames[:place]
                self._begin_reading(session, texts, now_ns)
                return
        yield session.name, frames

    def _begin_reading(self, session: Session, texts: list[str], now_ns: int) -> None:
        """Hold a connection back while its long filters are read; earlier frames may have ended it."""
        if not session.is_admitted:
            return
        session.is_held_back = True
        self._emit(Read(session.name, False))
        until_ns = now_ns + PATIENCE_NS if session.kind == "broker" else None
        self.readings.begin(session.name, texts, until_ns)
        self._agenda.advance(("slice",), now_ns + PAUSE_NS)

    def read_slice(self, now_ns: int) -> None:
        """Read one slice of the filters of one connection."""
        connection, is_over, is_late = self.readings.step(now_ns)
        session = self._sessions[connection]
        if self.readings:
            self._agenda.set(("slice",), now_ns + PAUSE_NS)
        if is_over:
            session.passing = len(session.waiting) if is_late else 1
            self._resume(session)
        else:  # it is alive, although it is not read from
            self._feed([(session.name, ())], now_ns)

    def _take_frames(
        self, session: Session, purse: Purse, most_us: float, now_ns: int
    ) -> Generator[tuple[str, list[bytes]], None, float]:
        """Frames of a client: all next events, and requests up to this cost; the cost. The rest waits, and so does
        everything if the client is over its budget, or has long filters to be read."""
        machine, frames, begin, spent_us = self._machine, session.waiting, 0, 0.0
        while begin < len(frames) and session.is_admitted:
            # A few at a time: the work they cause is known afterwards.
            size_bytes, end = 0, begin
            texts: list[str] = []
            while end < len(frames) and size_bytes < _SLICE_BYTES:
                frame = frames[end]
                if session.answers and answers_events(frame):
                    session.answers -= 1
                elif not has_events(frame):
                    if spent_us >= most_us:
                        break
                    if session.passing:
                        session.passing = 0
                    elif texts := self.readings.long_filters(frame):
                        break
                    spent_us += cost_us(frame)
                size_bytes += len(frame)
                end += 1
            if begin == end and not texts:
                break
            wait_ns = 0
            if begin < end:
                some, events, read_us = frames[begin:end], machine.events_in, machine.read_us
                begin = end
                yield session.name, some
                # Each event counts, and each frame without events.
                many = max(machine.events_in - events, len(some))
                wait_ns = purse.spend(many, size_bytes, machine.read_us - read_us, now_ns)
            if wait_ns > 0:
                self._hold_back(session, purse, wait_ns, now_ns)
                break
            if texts:
                self._begin_reading(session, texts, now_ns)
                break
        if session.is_admitted:
            del frames[:begin]
        else:
            session.waiting = []
        return spent_us

    def requested(self, asking: list[Session], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """Requests of clients, a part of each in turn, as much as is allowed at once; `asking` are those that have just
        begun to wait."""
        requests = self.requests
        if requests.begin(self._machine.events_in, now_ns):
            while (found := requests.next()) is not None:
                session, tag_us = found
                if not session.waiting:
                    continue  # it has ended
                assert session.purse is not None
                session.is_held_back = False
                spent_us = yield from self._take_frames(session, session.purse, QUANTUM_US, now_ns)
                requests.spend(spent_us)
                session.tag_us = tag_us + spent_us
                if session.is_held_back:
                    session.since_ns = None
                elif session.waiting:
                    requests.put(session, session.tag_us)
                    asking.append(session)
                elif session.since_ns is not None:
                    session.since_ns = None
                    self._emit(Read(session.name, True))
            requests.end(now_ns)
        for session in asking:
            if session.waiting and not session.is_held_back:
                self._queue_requests(session, now_ns)
        if requests.row and not requests.is_calm:
            self._agenda.set(("requests",), requests.due_ns)

    def _queue_requests(self, session: Session, now_ns: int) -> None:
        """Stop reading from a client whose requests wait."""
        session.is_held_back = True
        if session.since_ns is None:
            session.since_ns = now_ns
            self.requests.waited += 1
            self._emit(Read(session.name, False))
            self._agenda.advance(("waiting",), now_ns + _WAIT_NS)

    def check_waiting(self, now_ns: int) -> None:
        """Keep waiting sessions alive, and report those that have waited for long."""
        waiting = [session for session in self.requests if session.waiting and session.since_ns is not None]
        self._feed([(session.name, ()) for session in waiting], now_ns)
        why = f"the requests of all clients may take {self.requests.share:.0%} of a processor while events come"
        for session in waiting if not self.requests.is_calm else ():
            assert session.purse is not None
            assert session.since_ns is not None
            if now_ns - session.since_ns >= _WAIT_NS:
                session.purse.held_back_ns += _WAIT_NS
                session.purse.why = why
                self._note_held_back(session, session.purse)
        if waiting:
            self._agenda.set(("waiting",), now_ns + _WAIT_NS)

    def _hold_back(self, session: Session, purse: Purse, wait_ns: int, now_ns: int) -> None:
        """Stop reading from a client over its budget, for this long at most; then check again."""
        wait_ns = min(wait_ns, _WAIT_NS)
        purse.held_back_ns += wait_ns
        if not session.is_held_back:
            session.is_held_back = True
            self._emit(Read(session.name, False))
            self._note_held_back(session, purse)
        self._agenda.set(("read", session.name), now_ns + wait_ns)

    def _note_held_back(self, session: Session, purse: Purse) -> None:
        purse.was_held_back += 1
        self.held_back[session.name] = session.peer
        self._machine.counts["held back"] += 1
        if purse.was_held_back == 1:  # one report for each connection
            remedy = (
                "raise rate, traffic or reading of [limits] or its [[budget]], or the rate of its rule, or [limits] "
                "requests, if it may"
            )
            self._report("warning", "client held back", peer=session.peer, why=purse.why, remedy=remedy)

    def read_on(self, session: Session, now_ns: int) -> None:
        """A client that was held back has waited."""
        assert session.purse is not None
        wait_ns = session.purse.spend(0, 0, 0.0, now_ns)
        if wait_ns > 0:
            # It is alive, although it is not read from.
            self._feed([(session.name, ())], now_ns)
            self._hold_back(session, session.purse, wait_ns, now_ns)
            return
        self._resume(session)

    def _resume(self, session: Session) -> None:
        """Handle the frames that a session has sent meanwhile, and read from it again."""
        session.is_held_back = False
        if session.waiting:
            self._put_back(session, session.waiting)
            session.waiting = []
        self._emit(Read(session.name, True))
