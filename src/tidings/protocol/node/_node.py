"""A node without I/O: everything between bytes in and bytes out, for a broker or a client.

Bytes, the state of sockets, the results of the disk and the time come in; effects come out. `tidings.live` drives it
with real sockets, files and clocks, `tidings.storm` with simulated ones; there is no other way to run a machine.

- **Sessions.** A connection that was dialled begins with a preamble, one that came in with somebody else's; whoever has
  something to prove is challenged (`_admission`). Who has not got through that within GRACE_NS is closed, counted from
  the first sign of it, before TLS. Then it is the machine's, under the name that it was admitted by, until it leaves,
  or would not be admitted any more (`readmit`).
- **The turn.** All that came over all connections since the last turn is one step of the machine, and what it causes
  leaves as one write per connection.
- **Congestion.** While a socket takes no more, the machine sends no events to that peer: they wait in its queue, where
  the deadline decides. What it says besides events is short, but a peer that sends and never reads could make it pile
  up: at `max_unread_bytes` of that the connection is closed.
- **Rates.** A client that sends faster than it may, or makes more work, is not read from for a while, and what it has
  sent already waits (`_budgets`). So do its requests while those of all clients take more than their share
  (`_requests`).
- **Long filters** are read in slices, and who sent them waits meanwhile (`_reading`).
- **Commits** are grouped (`_commits`), and their records are sealed (`_records`). What the life before has left, and
  does not check out, is reported once and erased.
- **Draining.** A node that drains dials nobody, and its machine takes no more events.
"""

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from tidings.protocol._agenda import Agenda
from tidings.protocol._budgets import Budget, Purse
from tidings.protocol._effects import Close, Connect, Disconnect, Effect, Erase, Remark, Send, SetTimer, Store, Sync
from tidings.protocol._errors import REMEDIES, DeniedError, known_code
from tidings.protocol._machine import Machine
from tidings.protocol._rights import Rights
from tidings.protocol.node._admission import (
    Admission,
    Answer,
    Challenge,
    Credentials,
    MistrustError,
    Opening,
    Preamble,
    common_version,
    read_preamble,
    read_proof,
)
from tidings.protocol.node._commits import CALM_NS, Commits
from tidings.protocol.node._dials import Dials, Target
from tidings.protocol.node._effects import Admitted, Dial, NodeEffect, Parted, Read, Report, Shut, Unreached, Write
from tidings.protocol.node._framing import DamageError, FramingError, Splitter, checked, plain
from tidings.protocol.node._proofs import NONCE_BYTES, Proof
from tidings.protocol.node._reading import PATIENCE_NS, PAUSE_NS, Readings
from tidings.protocol.node._records import FORMAT, FORMAT_KEY, Opened, kinds_of, opened
from tidings.protocol.node._requests import (
    ANSWERS_EACH,
    ANSWERS_MOST,
    QUANTUM_US,
    REQUESTS_SHARE,
    Requests,
    answers_events,
    cost_us,
    has_events,
)
from tidings.protocol.wire import OLDEST_VERSION, VERSION

__all__ = ["CHECKED_FROM", "GRACE_NS", "STEP_BYTES", "ConnectionLimits", "Directory", "Node"]

GRACE_NS: Final = 5_000_000_000
"""How long a connection may take to be opened and admitted, TLS included."""
STEP_BYTES: Final = 4 << 20
"""So much may wait for one step of the machine: a turn in which very many connections have much to say has several."""
CHECKED_FROM: Final = 3
"""From this version of the protocol on, frames are checked."""
PROVED_FROM: Final = 3
"""A node that speaks this version shows no token to who has not proved to have it."""
_MOST_NAMED: Final = 10
"""So many damaged keys are reported by name."""
_SLICE_BYTES: Final = 4_096
"""A client's frames are looked at together up to so many bytes."""
_WAIT_NS: Final = 1_000_000_000
"""A client that is held back is looked at again at least this often."""
_ASK_NS: Final = 500_000_000
"""How long to wait before asking again where a broker is."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of each connection, and of their number."""

    max_frame_bytes: int
    max_unread_bytes: int = 64_000_000
    """So much besides events may wait for a peer that does not read."""
    max_connections: int = 20_000
    requests_share: float = REQUESTS_SHARE
    """Of a processor, for the requests of all clients while events come."""


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """What a broker tells a client that it admits: its own name, and where the brokers of the network are reached; and
    the latest life of that client that it knows of (-1: of none)."""

    name: str
    addresses: dict[str, str]
    last_life: int = -1


class _State(Enum):
    """Of a session. A question is asked or answered over a connection of its own, which is closed then."""

    DIALLED = "dialled"
    """Or it came in, and TLS is not through."""
    OPEN = "open"
    ADMITTED = "admitted"
    CLOSING = "closing"


class _Session:
    """One connection."""

    __slots__ = (
        "address",
        "answers",
        "certified",
        "challenge",
        "is_admitted",
        "is_closing",
        "is_encrypted",
        "is_held_back",
        "kind",
        "name",
        "opening",
        "passing",
        "peer",
        "preamble",
        "prefix",
        "purse",
        "since_ns",
        "splitter",
        "state",
        "tag_us",
        "target",
        "token",
        "unread_bytes",
        "unsent",
        "unsent_answers_bytes",
        "waiting",
    )

    def __init__(self, name: str, max_frame_bytes: int, target: Target | None, preamble: Preamble | None) -> None:
        self.name = name
        self.enter(_State.DIALLED)
        self.target = target  # whom this node has dialled
        self.preamble = preamble  # what it says first, if it was dialled
        self.opening: Opening | None = None  # the same, once it is open
        self.challenge: Challenge | None = None  # what the other end has to prove, if it came in
        self.token: str | None = None  # by which the other end was admitted, or this one is known there
        self.kind = ""  # what is at the other end, as it says
        self.peer = ""  # who is at the other end, as admitted
        self.address = ""
        self.certified: Collection[str] = ()
        self.is_encrypted = False
        self.splitter = Splitter(max_frame_bytes, waits=True)
        self.prefix = plain
        self.unsent: list[bytes] = []  # prefixes and frames in turn
        self.unsent_answers_bytes = 0
        self.unread_bytes = 0  # written besides events since the peer last had everything
        self.purse: Purse | None = None  # of a client
        self.is_held_back = False  # it was too fast, or its filters are being read: it is not read from
        self.passing = 0  # so many of its next frames are looked at whatever filters they have
        self.waiting: list[bytes] = []  # what it has sent all the same
        self.answers = 0  # so often it may answer to events before that is a request
        self.tag_us = 0.0  # of its requests (`_requests`)
        self.since_ns: int | None = None  # since when its requests wait

    def enter(self, state: _State) -> None:
        """It is in this state from now on."""
        self.state = state
        self.is_admitted = state is _State.ADMITTED  # it is the machine's
        self.is_closing = state is _State.CLOSING


class Node:
    """A machine with its sessions, its dialling and its commits.

    `preamble` is what it says when it dials; `admission` whom it lets in (None: nobody); `answer` gives the answer to a
    question of somebody who does not stay. Where `is_refusal_final`, whoever refuses this node is dialled no more.
    `found` is what `read` has made of its store; a node without one has no store. `speaks`: the oldest and the latest
    version of the protocol that it speaks. `credentials` are what it proves who it is with, `nonce` makes NONCE_BYTES
    that nobody can foresee.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        preamble: Preamble,
        limits: ConnectionLimits,
        chance: Callable[[], float],
        admission: Admission | None = None,
        answer: Callable[[Preamble], Answer] = lambda _: Answer(),
        is_refusal_final: bool = False,
        found: Opened | None = None,
        speaks: tuple[int, int] = (OLDEST_VERSION, VERSION),
        credentials: Credentials | None = None,
        nonce: Callable[[], bytes] = lambda: os.urandom(NONCE_BYTES),
    ) -> None:
        self.machine = machine
        self.damaged: Mapping[str, int] = {} if found is None else kinds_of(found.damaged)
        """How many records of the life before were damaged, by the kind of their keys."""
        self._found = found
        self.commits = Commits()
        self.dials = Dials(chance)
        self.admission = admission
        self.directory = Directory("", {})
        """What clients are told when they are admitted."""
        self.addresses: dict[str, str] = {}
        """Where brokers are reached, as brokers have told."""
        self.is_full = False
        """Whether the store lacks room, or did a moment ago."""
        self.is_deaf = False
        """Whether nothing that comes is looked at any more."""
        self._speaks = speaks
        self._preamble = msgspec.structs.replace(preamble, speaks=speaks)
        self._credentials = credentials or Credentials()
        self._nonce = nonce
        self._limits = limits
        self._answer = answer
        self._is_refusal_final = is_refusal_final
        self._agenda = Agenda()
        self._sessions: dict[str, _Session] = {}
        self._strangers = 0  # sessions that are not admitted yet
        self._came: list[tuple[_Session, list[bytes]]] = []  # since the last turn
        self._came_bytes = 0
        self.held_back: dict[str, str] = {}
        """By connection: the clients that are there and were not read from for a while."""
        self.readings = Readings()
        self.requests: Requests[_Session] = Requests(limits.requests_share)
        self._writers: list[_Session] = []  # who is sent something with this step
        self._effects: list[NodeEffect] = []
        self._shutting: list[Shut] = []  # after what they are sent
        self._wanted: set[str] = set()  # brokers that the machine wants, and of which nobody has said where they are
        self._is_asking = self._is_ending = False
        self._machine_ns: int | None = None
        self._timer_ns: int | None = None
        self._numbers = 0

    # -- coming to life, and the application -----------------------------------------------------------------------

    read = staticmethod(opened)
    """What a store holds, for the machine and the node of a new life."""

    def start(self, now_ns: int) -> list[NodeEffect]:
        """The machine comes to life."""
        if self._found is not None:
            self._begin(self._found)
            self._found = None
        self._carry_out(self.machine.start(now_ns))
        return self._finish(now_ns)

    def _begin(self, found: Opened) -> None:
        """Go on from a store: what is damaged in it is not there."""
        if found.format != FORMAT:
            self.commits.write(FORMAT_KEY, str(FORMAT).encode())
        if found.damaged:
            self._carry_out(self.machine.mend(found.damaged))
            for key in found.damaged:
                if key != FORMAT_KEY and not self.commits.is_written(key):
                    self.commits.write(key, None)
            self._report(
                "error",
                "store damaged",
                records=len(found.damaged),
                kinds=dict(self.damaged),
                first=list(found.damaged[:_MOST_NAMED]),
                meaning="these records are lost: an event among them is not delivered from here, a client whose "
                "subscription is among them has to come back, anything else is learnt again",
                remedy="check the disk",
            )

    def call(self, do: Callable[..., Any], now_ns: int, *what: Any, **more: Any) -> tuple[Any, list[NodeEffect]]:
        """Call the machine with the time: what it returns besides effects, and the effects."""
        result = do(*what, now_ns, **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self._carry_out(effects)
        return rest, self._finish(now_ns)

    def end(self, reason: str, now_ns: int) -> list[NodeEffect]:
        """Close all connections, and commit what is left without waiting for more."""
        self._is_ending = self.is_deaf = True
        for session in self._sessions.values():
            self._shut(session, reason, at_once=False)
        return self._finish(now_ns)

    def drain(self, now_ns: int) -> list[NodeEffect]:
        """Dial nobody any more, and take no more events; what is here is handed on."""
        for name in list(self.dials.targets):
            self._unwant(name)
        self._carry_out(self.machine.drain(now_ns))
        return self._finish(now_ns)

    # -- connections -----------------------------------------------------------------------------------------------

    def want(
        self, name: str, address: str, server_name: str | None, now_ns: int, *, others: Sequence[str] = ()
    ) -> list[NodeEffect]:
        """Have a connection with somebody from now on; with `others`, with whoever answers first at one of all these
        addresses."""
        self._want(name, address, server_name, now_ns, others)
        return self._finish(now_ns)

    def unwant(self, name: str, now_ns: int) -> list[NodeEffect]:
        """Stop dialling somebody; an open connection stays open."""
        self._unwant(name)
        return self._finish(now_ns)

    def accepted(self, connection: str, now_ns: int, *, address: str = "") -> list[NodeEffect]:
        """A connection comes in, and is not open yet: TLS has still to show who is there."""
        self._accept(connection, address, now_ns)
        return self._finish(now_ns)

    def _accept(self, connection: str, address: str, now_ns: int) -> _Session:
        session, most = self._session(connection, None, None, now_ns), self._limits.max_connections
        session.address = address
        if len(self._sessions) > most:
            why = f"there are {most} connections, the most there may be"
            remedy = "raise [limits] connections and the number of files that the process may open"
            self._report("warning", "connection refused", address=address, why=why, remedy=remedy)
            self._shut(session, why)
        return session

    def opened(
        self,
        connection: str,
        now_ns: int,
        *,
        address: str = "",
        certified: Collection[str] = (),
        is_encrypted: bool = False,
    ) -> list[NodeEffect]:
        """There is a connection: one that was dialled, or one that came in."""
        session = self._sessions.get(connection)
        if session is None:
            session = self._accept(connection, address, now_ns)
        session.address, session.certified, session.is_encrypted = address, certified, is_encrypted
        if session.state is _State.DIALLED:
            session.enter(_State.OPEN)
            if session.preamble is not None:
                session.opening = self._opening(session, session.preamble)
                self._put(session, session.opening.first, is_answer=True)
        return self._finish(now_ns)

    def _opening(self, session: _Session, preamble: Preamble) -> Opening:
        """What this node says first to whom it has dialled."""
        session.token, target = self._credentials.token, session.target
        return Opening(
            preamble,
            self._credentials,
            self._nonce(),
            listener=target.name if target is not None and preamble.kind == "broker" else None,
            is_trusted=session.is_encrypted or self._speaks[1] < PROVED_FROM,
        )

    def lost(self, connection: str, reason: str, now_ns: int, *, code: str = "") -> list[NodeEffect]:
        """A connection is gone, or could not be opened (with a code: it never will); what came before has come."""
        self._take_in(now_ns)
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._end(session, reason, code, now_ns)
        return self._finish(now_ns)

    def congested(self, connection: str, now_ns: int, *, is_congested: bool) -> list[NodeEffect]:
        """The socket takes no more for now, or takes more again."""
        if connection in self._sessions:
            self._carry_out(self.machine.congested(connection, is_congested, now_ns))
        return self._finish(now_ns)

    def wrote(self, connection: str, unsent_bytes: int, now_ns: int) -> list[NodeEffect]:
        """So much of what was written to a connection has not left yet."""
        session = self._sessions.get(connection)
        if session is None:
            return []
        answers_bytes, session.unsent_answers_bytes = session.unsent_answers_bytes, 0
        if not unsent_bytes:
            session.unread_bytes = 0
            return []
        session.unread_bytes += answers_bytes
        if session.unread_bytes <= self._limits.max_unread_bytes:
            return []
        self._shut(session, f"more than {self._limits.max_unread_bytes} bytes of answers wait to be read by it")
        return self._finish(now_ns)

    # -- the turn --------------------------------------------------------------------------------------------------

    def received(self, connection: str, data: bytes) -> bool:
        """Bytes have come; they are looked at in the next turn. Whether that has to be at once, as they are many."""
        session = self._sessions.get(connection)
        if session is None or session.is_closing or self.is_deaf:
            return False
        try:
            frames = session.splitter.feed(data)
        except FramingError as error:
            self._misread(session, error)
            return True
        if session.is_held_back:
            session.waiting += frames
        elif frames or session.is_admitted:
            self._came.append((session, frames))
            self._came_bytes += len(data)
        return self._came_bytes >= STEP_BYTES

    def _misread(self, session: _Session, error: FramingError) -> None:
        """What comes over a connection is no frame, or not the one that was sent."""
        if isinstance(error, DamageError):
            self.machine.refused["damaged"] += 1
            facts = {"peer": session.peer, "address": session.address, "why": str(error)}
            self._report("warning", "frame damaged", **facts, remedy="what was sent is sent again; check the network")
        self._shut(session, str(error))

    @property
    def is_stirred(self) -> bool:
        """Whether a turn has something to do."""
        return bool(self._came or self._writers or self._shutting or (self.requests.is_calm and len(self.requests)))

    def turn(self, now_ns: int) -> list[NodeEffect]:
        """One step of the machine with all that has come; and what was caused since the last turn leaves."""
        self._take_in(now_ns)
        effects = self._finish(now_ns)
        for session in self._writers:
            if session.unsent:
                effects.append(Write(session.name, session.unsent))
                session.unsent = []
        self._writers = []
        if self._shutting:
            effects += self._shutting
            self._shutting = []
        return effects

    def _take_in(self, now_ns: int) -> None:
        if not (self._came or self.requests):
            return
        came, self._came, self._came_bytes = self._came, [], 0
        if self._strangers:
            came = [(session, frames) for session, frames in came if self._let_in(session, frames, now_ns)]
        self._carry_out(self.machine.receive_many(self._admitted(came, now_ns), now_ns))

    def _admitted(self, came: list[tuple[_Session, list[bytes]]], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """What the machine is to see, one connection after the other; whoever was too fast has to wait."""
        asking: list[_Session] = []
        for session, frames in came:
            if not session.is_admitted:
                continue
            if session.is_held_back or session.waiting:
                session.waiting += frames
            elif session.purse is None:
                yield from self._readable(session, frames, now_ns)
            elif not frames:
                yield session.name, frames
            else:
                session.waiting = frames
                yield from self._look_at(session, session.purse, 0.0, now_ns)
                if session.waiting and not session.is_held_back:
                    asking.append(session)
                    self.requests.put(session, session.tag_us)
        if self.requests:
            yield from self._requested(asking, now_ns)

    def _readable(self, session: _Session, frames: list[bytes], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """The frames of a neighbour or a broker, as far as they have no long filters to be read first."""
        passing, session.passing = session.passing, 0
        for place, frame in enumerate(frames):
            texts = self.readings.long_filters(frame) if place >= passing else []
            if texts:
                session.waiting = frames[place:]
                yield session.name, frames[:place]
                self._begin_reading(session, texts, now_ns)
                return
        yield session.name, frames

    def _begin_reading(self, session: _Session, texts: list[str], now_ns: int) -> None:
        """Hold a connection back while its long filters are read; what came before them may have ended it."""
        if not session.is_admitted:
            return
        session.is_held_back = True
        self._effects.append(Read(session.name, False))
        until_ns = now_ns + PATIENCE_NS if session.kind == "broker" else None
        self.readings.begin(session.name, texts, until_ns)
        self._agenda.advance(("slice",), now_ns + PAUSE_NS)

    def _read_slice(self, now_ns: int) -> None:
        """Read a bit more of the filters that somebody waits for."""
        connection, is_over, is_late = self.readings.step(now_ns)
        session = self._sessions[connection]
        if self.readings:
            self._agenda.set(("slice",), now_ns + PAUSE_NS)
        if is_over:
            session.passing = len(session.waiting) if is_late else 1
            self._resume(session)
        else:  # whoever is not read from is there all the same
            self._carry_out(self.machine.receive_many([(session.name, ())], now_ns))

    def _look_at(
        self, session: _Session, purse: Purse, most_us: float, now_ns: int
    ) -> Generator[tuple[str, list[bytes]], None, float]:
        """Events of a client that come next, and requests until they cost so much; what they cost. The rest waits with
        it, and so does all if it is over its budget, or has long filters to be read."""
        machine, frames, begin, spent_us = self.machine, session.waiting, 0, 0.0
        while begin < len(frames) and session.is_admitted:
            # Some of them at a time: how much work they make is known afterwards.
            size_bytes, end, texts = 0, begin, list[str]()
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
                # Of frames with events each event counts, and of others each frame.
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

    def _requested(self, asking: list[_Session], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """What clients have asked for, a bit of each in turn, as much as may be at once; `asking` are those who have
        just begun to."""
        requests = self.requests
        if requests.begin(self.machine.events_in, now_ns):
            while (found := requests.next()) is not None:
                session, tag_us = found
                if not session.waiting:
                    continue  # it is gone
                assert session.purse is not None
                session.is_held_back = False
                spent_us = yield from self._look_at(session, session.purse, QUANTUM_US, now_ns)
                requests.spend(spent_us)
                session.tag_us = tag_us + spent_us
                if session.is_held_back:
                    session.since_ns = None
                elif session.waiting:
                    requests.put(session, session.tag_us)
                    asking.append(session)
                elif session.since_ns is not None:
                    session.since_ns = None
                    self._effects.append(Read(session.name, True))
            requests.end(now_ns)
        for session in asking:
            if session.waiting and not session.is_held_back:
                self._wait_in_row(session, now_ns)
        if requests and not requests.is_calm:
            self._agenda.set(("requests",), requests.due_ns)

    def _wait_in_row(self, session: _Session, now_ns: int) -> None:
        """Do not read from a client whose requests wait."""
        session.is_held_back = True
        if session.since_ns is None:
            session.since_ns = now_ns
            self.requests.waited += 1
            self._effects.append(Read(session.name, False))
            self._agenda.advance(("waiting",), now_ns + _WAIT_NS)

    def _look_at_waiting(self, now_ns: int) -> None:
        """Whoever is not read from is there all the same; the operator is told of those who have waited for long."""
        waiting = [session for session in self.requests if session.waiting and session.since_ns is not None]
        self._carry_out(self.machine.receive_many([(session.name, ()) for session in waiting], now_ns))
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

    def _hold_back(self, session: _Session, purse: Purse, wait_ns: int, now_ns: int) -> None:
        """Do not read from a client that is over its budget for so long, or look again after a while."""
        wait_ns = min(wait_ns, _WAIT_NS)
        purse.held_back_ns += wait_ns
        if not session.is_held_back:
            session.is_held_back = True
            self._effects.append(Read(session.name, False))
            self._note_held_back(session, purse)
        self._agenda.set(("read", session.name), now_ns + wait_ns)

    def _note_held_back(self, session: _Session, purse: Purse) -> None:
        purse.was_held_back += 1
        self.held_back[session.name] = session.peer
        self.machine.counts["held back"] += 1
        if purse.was_held_back == 1:  # the operator is told once for each connection
            remedy = (
                "raise rate, traffic or reading of [limits] or its [[budget]], or the rate of its rule, or [limits] "
                "requests, if it may"
            )
            self._report("warning", "client held back", peer=session.peer, why=purse.why, remedy=remedy)

    def _read_on(self, session: _Session, now_ns: int) -> None:
        """A client that was held back has waited."""
        assert session.purse is not None
        wait_ns = session.purse.spend(0, 0, 0.0, now_ns)
        if wait_ns > 0:
            # Whoever is not read from is there all the same.
            self._carry_out(self.machine.receive_many([(session.name, ())], now_ns))
            self._hold_back(session, session.purse, wait_ns, now_ns)
            return
        self._resume(session)

    def _resume(self, session: _Session) -> None:
        """Look at what a connection that was held back has sent meanwhile, and read on."""
        session.is_held_back = False
        if session.waiting:
            self._came.append((session, session.waiting))
            session.waiting = []
        self._effects.append(Read(session.name, True))

    def purse_of(self, connection: str | None) -> Purse | None:
        """What is left of the rates of a client that is there, and how often it was held back."""
        session = None if connection is None else self._sessions.get(connection)
        return None if session is None else session.purse

    # -- strangers -------------------------------------------------------------------------------------------------

    def _let_in(self, session: _Session, frames: list[bytes], now_ns: int) -> bool:
        """Whether a session is admitted, or has become so by its first frames, which are taken off then."""
        try:
            while session.state is _State.OPEN and frames:
                self._open(session, frames.pop(0), now_ns)
                if session.is_admitted:
                    frames += session.splitter.go_on(is_checked=session.prefix is checked)
                elif session.state is _State.OPEN:
                    frames += session.splitter.once_more()
        except DeniedError as error:
            self._denied(session, error)
        except FramingError as error:
            self._misread(session, error)
        return session.is_admitted

    def _open(self, session: _Session, frame: bytes, now_ns: int) -> None:
        """A frame before a session is admitted."""
        if session.opening is not None:
            answer = session.opening.answered(frame)
            if isinstance(answer, Proof):
                self._put(session, msgspec.msgpack.encode(answer), is_answer=True)
            else:
                self._on_answer(session, session.opening.said, answer, now_ns)
        elif self.admission is None:
            self._shut(session, "nobody may come in here")
        elif session.challenge is not None:
            session.token, proof = session.challenge.met(read_proof(frame))
            self._welcome(session, self.admission, session.challenge.said, proof, now_ns)
        else:
            self._on_preamble(session, self.admission, read_preamble(frame), now_ns)

    def _on_preamble(self, session: _Session, admission: Admission, said: Preamble, now_ns: int) -> None:
        """Who has come in: what it has to prove."""
        session.kind = said.kind
        keys = self.machine.keys_of(said.name) if said.kind == "client" else ()
        if keys is None:
            self._shut(session, "the broker has lost its store, and has yet to learn who its clients are")
            return
        demand = admission.demand(said, session.certified, keys)
        if demand is not None and said.nonce:
            session.challenge = Challenge(said=said, demand=demand, listener=admission.name, nonce=self._nonce())
            self._put(session, msgspec.msgpack.encode(session.challenge.answer()), is_answer=True)
            return
        if demand is not None:
            session.token = demand.require_shown(said.token)
        self._welcome(session, admission, said, b"", now_ns)

    def _welcome(self, session: _Session, admission: Admission, said: Preamble, proof: bytes, now_ns: int) -> None:
        """Somebody may come in, or has its question answered."""
        if said.kind not in ("broker", "client"):
            is_directory = said.kind == "directory"
            answer = Answer(detail=msgspec.msgpack.encode(self.directory)) if is_directory else self._answer(said)
            self._put(session, msgspec.msgpack.encode(msgspec.structs.replace(answer, proof=proof)), is_answer=True)
            self._shut(session, "answered", at_once=False)
            return
        version = common_version(self._speaks, said.speaks)
        if said.kind == "broker":
            self._put(session, msgspec.msgpack.encode(Answer(speaks=version, proof=proof)), is_answer=True)
            self._admit(session, "broker", said.name, version, now_ns)
            return
        # By its token or certificate it is known whatever key it has.
        key = None if session.token is not None or admission.client_certificates else said.key
        directory = msgspec.structs.replace(self.directory, last_life=self.machine.last_life(said.name, key))
        answer = Answer(detail=msgspec.msgpack.encode(directory), speaks=version, proof=proof)
        self._put(session, msgspec.msgpack.encode(answer), is_answer=True)
        rights = admission.rights_of(said.name)
        budget = admission.budget_of(said.name, rights)
        session.purse = Purse(budget, now_ns)
        self._admit(session, "client", said.name, version, now_ns, rights=rights, budget=budget, key=key)

    def _on_answer(self, session: _Session, said: Preamble, answer: Answer, now_ns: int) -> None:
        """Somebody who was dialled lets this node in, or answers its question."""
        peer = "" if session.target is None else session.target.name
        if said.kind != "broker":
            peer = self._learn(session, answer)
        if session.target is None:
            self._shut(session, "answered", at_once=False)
            return
        version = common_version(self._speaks, (answer.speaks, answer.speaks))
        self.dials.rename(session.target, peer)
        self.dials.connected(session.target, now_ns)
        self._admit(session, "broker", peer, version, now_ns)

    def readmit(self, admission: Admission, credentials: Credentials, now_ns: int) -> list[NodeEffect]:
        """Let in by this from now on, and end the connections of those who would not be let in any more, or may do
        something else now; what clients have asked for, and may not any more, is over."""
        before, self.admission = self.admission, admission
        has_other_token, self._credentials = credentials.token != self._credentials.token, credentials
        self._carry_out(self.machine.restrict(admission.rights_of, now_ns))  # and those concerned are told
        for session in list(self._sessions.values()):
            why = "" if before is None else _revocation(session, before, admission, has_other_token)
            if session.is_admitted and why:
                facts = {"peer": session.peer, "kind": session.kind, "address": session.address, "why": why}
                self._report("warning", "revoked", **facts, remedy="who should stay needs a token and rules again")
                self._shut(session, why, at_once=False)
            elif session.challenge is not None and not session.is_admitted:
                self._shut(session, "the network's file has changed")  # what it was asked for may be out of date
        return self._finish(now_ns)

    def expel(self, connection: str, why: str, now_ns: int) -> list[NodeEffect]:
        """End a connection whose certificate is not good any more."""
        session = self._sessions.get(connection)
        if session is not None:
            facts = {"peer": session.peer, "kind": session.kind, "address": session.address, "why": why}
            self._report("warning", "revoked", **facts, remedy="who should stay needs another certificate")
            self._shut(session, why, at_once=False)
        return self._finish(now_ns)

    def _admit(
        self,
        session: _Session,
        kind: Literal["broker", "client"],
        peer: str,
        version: int,
        now_ns: int,
        *,
        rights: Rights | None = None,
        budget: Budget | None = None,
        key: bytes | None = None,
    ) -> None:
        session.enter(_State.ADMITTED)
        session.peer, session.kind = peer, kind
        if version >= CHECKED_FROM and not session.is_encrypted:
            session.prefix = checked
        self._strangers -= 1
        self._agenda.cancel(("grace", session.name))
        held_to: dict[str, Any] = {"identity": (kind, peer), "rights": rights, "budget": budget, "key": key}
        self._carry_out(self.machine.connected(session.name, now_ns, version=version, **held_to))
        self._effects.append(Admitted(session.name, peer, kind))

    def _learn(self, session: _Session, answer: Answer) -> str:
        """Where all brokers are, by one of them; its name."""
        try:
            directory = msgspec.msgpack.decode(answer.detail, type=Directory)
        except msgspec.MsgspecError as error:
            raise DeniedError("malformed", f"{session.address} does not say which broker it is: {error}") from None
        self.addresses |= directory.addresses
        if session.target is not None:
            self.machine.told(directory.addresses, directory.last_life)
        return directory.name

    def _denied(self, session: _Session, error: DeniedError) -> None:
        target = session.target
        if session.preamble is None:
            facts = {"kind": session.kind, "address": session.address, "code": error.code}
            self._report("warning", "denied", **facts, why=str(error), remedy=REMEDIES[known_code(error.code)])
            self.machine.refused[known_code(error.code)] += 1
            self._put(session, msgspec.msgpack.encode(Answer(error.code, str(error))), is_answer=True)
            self._shut(session, str(error), at_once=False)
            return
        if target is not None:
            # Whoever is there instead of a broker cannot end the search for it.
            code = "" if isinstance(error, MistrustError) else error.code
            self._unreached(target, f"{session.address}: {error}" if not code else str(error), code)
        self._shut(session, "not admitted")

    # -- what the machine wants ------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        sessions, out = self._sessions, self._effects
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                session = sessions.get(effect.connection)  # type: ignore[union-attr]
                if session is not None:
                    self._put(session, effect.frame, is_answer=not effect.is_event)  # type: ignore[union-attr]
            elif kind is SetTimer:
                self._machine_ns = effect.at_ns  # type: ignore[union-attr]
            elif kind is Store:
                self.commits.write(effect.key, effect.value)  # type: ignore[union-attr]
            elif kind is Erase:
                self.commits.write(effect.key, None, ahead=effect.ahead)  # type: ignore[union-attr]
            elif kind is Sync:
                self.commits.sync(effect.token)  # type: ignore[union-attr]
            elif kind is Close:
                session = sessions.get(effect.connection)  # type: ignore[union-attr]
                if session is not None:
                    self._shut(session, effect.reason, at_once=False)  # type: ignore[union-attr]
            elif kind is Connect:
                self._wanted.add(effect.broker)  # type: ignore[union-attr]
            elif kind is Disconnect:
                self._disconnect(effect.broker)  # type: ignore[union-attr]
            elif kind is Remark:
                self._report("warning", effect.event, **effect.facts)  # type: ignore[union-attr, arg-type]
            else:
                out.append(effect)  # type: ignore[arg-type]

    def _put(self, session: _Session, frame: bytes, *, is_answer: bool) -> None:
        """Send a frame with this turn."""
        if session.is_closing:
            return
        if not session.unsent:
            self._writers.append(session)
        session.unsent += (session.prefix(frame), frame)
        if is_answer:
            session.unsent_answers_bytes += len(frame)
        else:
            session.answers = min(session.answers + ANSWERS_EACH, ANSWERS_MOST)

    def _shut(self, session: _Session, reason: str, *, at_once: bool = True) -> None:
        """Close a connection; what comes over it from now on is not looked at."""
        if not session.is_closing:
            self._forget_stranger(session)
            session.enter(_State.CLOSING)
            if at_once:
                session.unsent = []
                self._effects.append(Shut(session.name, reason, at_once))
            else:
                self._shutting.append(Shut(session.name, reason, at_once))

    # -- dialling --------------------------------------------------------------------------------------------------

    def _session(self, name: str, target: Target | None, preamble: Preamble | None, now_ns: int) -> _Session:
        session = self._sessions[name] = _Session(name, self._limits.max_frame_bytes, target, preamble)
        self._strangers += 1
        self._agenda.set(("grace", name), now_ns + GRACE_NS)
        return session

    def _want(self, name: str, address: str, server_name: str | None, now_ns: int, others: Sequence[str] = ()) -> None:
        if self.dials.want(name, address, server_name, others):
            self._agenda.set(("dial", name), now_ns)

    def _unwant(self, name: str) -> Target | None:
        self._agenda.cancel(("dial", name))
        return self.dials.targets.pop(name, None)

    def _dial(self, address: str, server_name: str | None, target: Target | None, now_ns: int) -> None:
        self._numbers += 1
        name = f"out-{self._numbers}"
        preamble = self._preamble if target is not None else msgspec.structs.replace(self._preamble, kind="directory")
        session = self._session(name, target, preamble, now_ns)
        session.address = address
        if target is not None:
            self.dials.dialled(target, name)
        self._effects.append(Dial(name, address, server_name))

    def _connect(self, now_ns: int) -> None:
        """Dial the brokers that the machine wants; where one is to be found is asked until somebody knows."""
        unknown = set()
        for broker in sorted(self._wanted):
            if broker in self.addresses:
                self._want(broker, self.addresses[broker], broker, now_ns)
            elif broker not in self.dials.targets:
                unknown.add(broker)
        self._wanted = unknown
        if unknown and not self._is_asking:
            self._is_asking = True
            self._agenda.set(("ask",), now_ns + _ASK_NS)
            for target in self.dials.targets.values():
                if target.since_ns is not None:
                    self._dial(target.address, target.server_name, None, now_ns)

    def _disconnect(self, broker: str) -> None:
        self._wanted.discard(broker)
        target = self._unwant(broker)
        if target is not None and target.connection is not None:
            self._shut(self._sessions[target.connection], "the client has moved", at_once=False)

    def _end(self, session: _Session, reason: str, code: str, now_ns: int) -> None:
        self._forget_stranger(session)
        self._agenda.cancel(("read", session.name))
        session.waiting = []
        self.held_back.pop(session.name, None)
        self.readings.drop(session.name)
        if not self.readings:
            self._agenda.cancel(("slice",))
        target = session.target
        if session.peer:
            self._carry_out(self.machine.disconnected(session.name, now_ns))
            self._effects.append(Parted(session.name, session.peer, session.address, reason))
        elif session.preamble is None:
            self._report("info", "stranger gone", address=session.address, why=reason)
        elif target is not None and self.dials.targets.get(target.name) is target:
            if session.state is _State.OPEN:
                reason = f"the connection to {session.address} was lost before it was answered: {reason}"
            self._unreached(target, reason, code)
        if target is not None and self.dials.targets.get(target.name) is target:
            self._agenda.set(("dial", target.name), self.dials.ended(target, now_ns))

    def _forget_stranger(self, session: _Session) -> None:
        if session.state in (_State.DIALLED, _State.OPEN):
            self._strangers -= 1
            self._agenda.cancel(("grace", session.name))

    def _unreached(self, target: Target, why: str, code: str) -> None:
        self._effects.append(Unreached(target.name, why, code, is_news=why != target.trouble))
        target.trouble = why
        if code and self._is_refusal_final:
            self._unwant(target.name)

    def _report(self, level: Literal["info", "warning", "error"], event: str, **facts: Any) -> None:
        self._effects.append(Report(level, event, facts))

    # -- time and disk ---------------------------------------------------------------------------------------------

    def wake(self, now_ns: int) -> list[NodeEffect]:
        """The time of the timer has come, or has passed."""
        self._timer_ns = None
        while (task := self._agenda.pop(now_ns)) is not None:
            self._on_task(task, now_ns)
        if self._machine_ns is not None and self._machine_ns <= now_ns:
            self._machine_ns = None
            self._carry_out(self.machine.wake(now_ns))
        return self._finish(now_ns)

    def _on_task(self, task: tuple[str, ...], now_ns: int) -> None:
        match task:
            case ("grace", name):
                session = self._sessions[name]
                way = "did not answer" if session.preamble is not None else "did not say who it is"
                self._shut(session, f"{session.address} {way} within {GRACE_NS * 1e-9:g} s")
            case ("dial", name):
                target = self.dials.targets[name]
                self._dial(target.address, target.server_name, target, now_ns)
            case ("read", name):
                self._read_on(self._sessions[name], now_ns)
            case ("slice",):
                self._read_slice(now_ns)
            case ("requests",):
                self._carry_out(self.machine.receive_many(self._requested([], now_ns), now_ns))
            case ("waiting",):
                self._look_at_waiting(now_ns)
            case ("ask",):
                self._is_asking = False
            case ("commit",):
                pass  # every step ends with it
            case ("calm",) if self.commits.is_calm(now_ns):
                self.is_full = False
                self._report("info", "store has room again")
            case ("calm",):
                self._agenda.set(("calm",), now_ns + CALM_NS)

    def committed(self, now_ns: int) -> list[NodeEffect]:
        """The commit under way is durable."""
        for token in self.commits.done(now_ns):
            self._carry_out(self.machine.synced(token, now_ns))
        return self._finish(now_ns)

    def refused(self, why: str, now_ns: int) -> list[NodeEffect]:
        """The store has no room for the commit under way."""
        self.commits.refused(now_ns)
        if self.commits.due_ns is not None:
            self._agenda.set(("commit",), self.commits.due_ns)
        if not self.is_full:
            self.is_full = True
            self._report("error", "store full", why=why, meanwhile="no event is acknowledged")
        self._agenda.set(("calm",), now_ns + CALM_NS)
        return self._finish(now_ns)

    def _commit(self, now_ns: int) -> None:
        commits = self.commits
        while (commit := commits.next(now_ns, hurry=self._is_ending)) is not None:
            if commit.writes or commit.is_ahead:
                self._effects.append(commit)
                return
            for token in commits.done(now_ns):
                self._carry_out(self.machine.synced(token, now_ns))
        if commits.due_ns is not None:
            self._agenda.set(("commit",), commits.due_ns)

    def _finish(self, now_ns: int) -> list[NodeEffect]:
        """What leaves with this step."""
        if self.commits.is_due(now_ns, hurry=self._is_ending):
            self._commit(now_ns)
        if self._wanted:
            self._connect(now_ns)
        out = self._effects
        due_ns = self._agenda.next_ns
        if self._machine_ns is not None and (due_ns is None or self._machine_ns < due_ns):
            due_ns = self._machine_ns
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            out.append(SetTimer(due_ns))
        self._effects = []
        return out


def _revocation(session: _Session, before: Admission, after: Admission, has_other_token: bool) -> str:
    """Why a session that was admitted would not be so any more; empty if it would."""
    kind, name, token = session.kind, session.peer, session.token
    if session.preamble is not None:
        return "the brokers' token has changed" if has_other_token and token is not None else ""
    if token is None and before.is_valid(kind, name, None) and not after.is_valid(kind, name, None):
        return f"{name!r} needs a token by now"
    if token is not None and not after.is_valid(kind, name, token):
        return f"the token of {kind} {name!r} is not valid any more"
    if kind == "client" and before.rules_of(name) != after.rules_of(name):
        return f"the rules for {name!r} have changed"
    return ""
