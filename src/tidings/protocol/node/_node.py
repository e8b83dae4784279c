"""A node without I/O: everything between bytes in and bytes out, for a broker or a client.

Bytes, the state of sockets, the results of the disk and the time come in; effects come out. `tidings.live` drives it
with real sockets, files and clocks, `tidings.storm` with simulated ones; nothing else runs a machine.

- **Sessions.** A connection that this node dialled begins with its preamble, an accepted one with the peer's; a peer
  with something to prove is challenged (`_admission`). A connection that is not admitted within GRACE_NS, counted from
  its acceptance before TLS, is closed. An admitted one belongs to the machine, under the name that it was admitted by,
  until it ends, or would no longer be admitted (`readmit`).
- **The turn.** Everything that arrived over all connections since the last turn is one step of the machine, and its
  effects leave as one write per connection.
- **Congestion.** While a socket accepts no more, the machine sends no events to that peer: they wait in its queue,
  where the deadline decides. Other frames are short, but a peer that sends and never reads could make them accumulate:
  at `max_unread_bytes` of them the connection is closed.
- **Waiting.** Clients over their budget, requests beyond their share of the processor, and long filters wait
  (`_intake`).
- **Commits** are grouped (`_commits`), and their records are sealed (`_records`). Damaged records of the last
  incarnation are reported once and erased.
- **Draining.** A node that drains dials nobody, and its machine takes on no more events.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
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
from tidings.protocol.node._effects import Admitted, Dial, NodeEffect, Parted, Report, Shut, Unreached, Write
from tidings.protocol.node._frames import DamageError, FramingError, checked
from tidings.protocol.node._intake import Intake
from tidings.protocol.node._proofs import NONCE_BYTES, Proof
from tidings.protocol.node._records import FORMAT, FORMAT_KEY, Opened, kinds_of, opened
from tidings.protocol.node._requests import (
    ANSWERS_EACH,
    ANSWERS_MOST,
    REQUESTS_SHARE,
)
from tidings.protocol.node._session import Session, SessionState
from tidings.protocol.wire import OLDEST_VERSION, VERSION

__all__ = ["CHECKED_FROM", "GRACE_NS", "STEP_BYTES", "ConnectionLimits", "Directory", "Node"]

GRACE_NS: Final = 5_000_000_000
"""How long a connection may take to be opened and admitted, TLS included."""
STEP_BYTES: Final = 4 << 20
"""The most bytes in one step of the machine: a turn with more data has several steps."""
CHECKED_FROM: Final = 3
"""From this version of the protocol on, frames have checksums."""
PROVED_FROM: Final = 3
"""A node that speaks this version shows no token to a peer that has not proved to have it."""
_MOST_NAMED: Final = 10
"""The most damaged keys that are reported by name."""
_ANSWERED: Final = "answered"
_FULL: Final = "too-many"
_ASK_NS: Final = 500_000_000
"""How long to wait before asking again for the address of a broker."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of each connection, and of their number."""

    max_frame_bytes: int
    max_unread_bytes: int = 64_000_000
    """The most bytes of other frames than events that may wait for a peer that does not read."""
    max_connections: int = 20_000
    requests_share: float = REQUESTS_SHARE
    """The share of a processor for the requests of all clients while events arrive."""


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """What a broker sends to an admitted client: its own name, the addresses of the brokers of the network, and the
    client's latest epoch that it knows of (-1: none)."""

    name: str
    addresses: dict[str, str]
    last_life: int = -1


class Node:
    """A machine with its sessions, its dialling and its commits.

    `preamble` is its first frame when it dials; `admission` decides on incoming connections (None: all are refused);
    `answer` answers the question of a peer that does not stay. With `is_refusal_final`, a peer that refuses this node
    is not dialled again. `found` is the result of `read` for its store; a node without one has no store. `speaks`: the
    oldest and the latest version of the protocol that it speaks. `credentials` prove its identity, `nonce` makes
    NONCE_BYTES that nobody can foresee.
    """

    __slots__ = (  # there may be many in one process
        "__dict__",  # of subclasses, and of tests
        "_agenda",
        "_answer",
        "_came",
        "_came_bytes",
        "_credentials",
        "_effects",
        "_found",
        "_intake",
        "_is_asking",
        "_is_ending",
        "_is_refusal_final",
        "_limits",
        "_machine_ns",
        "_nonce",
        "_numbers",
        "_preamble",
        "_sessions",
        "_shutting",
        "_speaks",
        "_strangers",
        "_timer_ns",
        "_wanted",
        "_writers",
        "addresses",
        "admission",
        "commits",
        "damaged",
        "dials",
        "directory",
        "held_back",
        "is_deaf",
        "is_full",
        "machine",
        "readings",
        "requests",
    )

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
        """The number of damaged records of the last incarnation, by the kind of their keys."""
        self._found = found
        self.commits = Commits()
        self.dials = Dials(chance)
        self.admission = admission
        self.directory = Directory("", {})
        """What clients get when they are admitted."""
        self.addresses: dict[str, str] = {}
        """The addresses of brokers, as brokers have reported them."""
        self.is_full = False
        """Whether the store lacks room, or did a moment ago."""
        self.is_deaf = False
        """Whether incoming frames are ignored."""
        self._speaks = speaks
        self._preamble = msgspec.structs.replace(preamble, speaks=speaks)
        self._credentials = credentials or Credentials()
        self._nonce = nonce
        self._limits = limits
        self._answer = answer
        self._is_refusal_final = is_refusal_final
        self._agenda = Agenda()
        self._sessions: dict[str, Session] = {}
        self._strangers = 0  # number of sessions that are not admitted yet
        self._came: list[tuple[Session, list[bytes]]] = []  # frames since the last turn
        self._came_bytes = 0
        self._intake = Intake(
            machine,
            self._sessions,
            self._agenda,
            requests_share=limits.requests_share,
            emit=lambda effect: self._effects.append(effect),
            report=self._report,
            feed=lambda came, now_ns: self._carry_out(self.machine.receive_many(came, now_ns)),
            put_back=lambda session, frames: self._came.append((session, frames)),
        )
        self.held_back, self.readings, self.requests = (
            self._intake.held_back,
            self._intake.readings,
            self._intake.requests,
        )
        self._writers: list[Session] = []  # sessions with frames in this step
        self._effects: list[NodeEffect] = []
        self._shutting: list[Shut] = []  # sessions that end after their last frames
        self._wanted: set[str] = set()  # brokers that the machine wants, with unknown addresses
        self._is_asking = self._is_ending = False
        self._machine_ns: int | None = None
        self._timer_ns: int | None = None
        self._numbers = 0

    # -- start, and the application --------------------------------------------------------------------------------

    read = staticmethod(opened)
    """Reads a store, for the machine and the node of a new incarnation."""

    def start(self, now_ns: int) -> list[NodeEffect]:
        """Start the machine."""
        if self._found is not None:
            self._begin(self._found)
            self._found = None
        self._carry_out(self.machine.start(now_ns))
        return self._finish(now_ns)

    def _begin(self, found: Opened) -> None:
        """Continue from a store, without its damaged records."""
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
                "subscription is among them has to reconnect, anything else is learned again",
                remedy="check the disk",
            )

    def call(self, do: Callable[..., Any], now_ns: int, *what: Any, **more: Any) -> tuple[Any, list[NodeEffect]]:
        """Call the machine with the time: its result besides effects, and the effects."""
        result = do(*what, now_ns, **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self._carry_out(effects)
        return rest, self._finish(now_ns)

    def end(self, reason: str, now_ns: int) -> list[NodeEffect]:
        """Close all connections, and commit the remaining writes without waiting for more."""
        self._is_ending = self.is_deaf = True
        for session in self._sessions.values():
            self._shut(session, reason, at_once=False)
        return self._finish(now_ns)

    def drain(self, now_ns: int) -> list[NodeEffect]:
        """Stop dialling, and take on no more events; held events are handed on."""
        for name in list(self.dials.targets):
            self._unwant(name)
        self._carry_out(self.machine.drain(now_ns))
        return self._finish(now_ns)

    # -- connections -----------------------------------------------------------------------------------------------

    def want(
        self, name: str, address: str, server_name: str | None, now_ns: int, *, others: Sequence[str] = ()
    ) -> list[NodeEffect]:
        """Keep a connection with a peer from now on; with `others`, with the first one that answers at any of these
        addresses."""
        self._want(name, address, server_name, now_ns, others)
        return self._finish(now_ns)

    def unwant(self, name: str, now_ns: int) -> list[NodeEffect]:
        """Stop dialling a peer; an open connection stays open."""
        self._unwant(name)
        return self._finish(now_ns)

    def accepted(self, connection: str, now_ns: int, *, address: str = "") -> list[NodeEffect]:
        """A connection was accepted and is not open yet: TLS has still to identify the peer."""
        self._accept(connection, address, now_ns)
        return self._finish(now_ns)

    def _accept(self, connection: str, address: str, now_ns: int) -> Session:
        session, most = self._session(connection, None, None, now_ns), self._limits.max_connections
        session.address = address
        if len(self._sessions) > most:
            why = f"there are {most} connections, which is the limit"
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
        is_local: bool = False,
    ) -> list[NodeEffect]:
        """A connection is open: a dialled or an accepted one; with `is_local`, to a node in the same process."""
        session = self._sessions.get(connection)
        if session is None:
            session = self._accept(connection, address, now_ns)
        session.address, session.certified, session.is_encrypted = address, certified, is_encrypted
        session.is_local = is_local
        if session.state is SessionState.DIALLED:
            session.enter(SessionState.OPEN)
            if session.preamble is not None:
                session.opening = self._opening(session, session.preamble)
                self._put(session, session.opening.first, is_answer=True)
        return self._finish(now_ns)

    def _opening(self, session: Session, preamble: Preamble) -> Opening:
        """The opening of a connection that this node dialled."""
        session.token, target = self._credentials.token, session.target
        return Opening(
            preamble,
            self._credentials,
            self._nonce(),
            listener=target.name if target is not None and preamble.kind == "broker" else None,
            is_trusted=session.is_encrypted or self._speaks[1] < PROVED_FROM,
        )

    def lost(self, connection: str, reason: str, now_ns: int, *, code: str = "") -> list[NodeEffect]:
        """A connection has ended, or could not be opened (with a code: it never will); earlier frames are handled
        first."""
        if self._came or self.requests.row:
            self._take_in(now_ns)
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._end(session, reason, code, now_ns)
        return self._finish(now_ns)

    def congested(self, connection: str, now_ns: int, *, is_congested: bool) -> list[NodeEffect]:
        """The socket accepts no more for now, or accepts more again."""
        if connection in self._sessions:
            self._carry_out(self.machine.congested(connection, is_congested, now_ns))
        return self._finish(now_ns)

    def wrote(self, connection: str, unsent_bytes: int, now_ns: int) -> list[NodeEffect]:
        """How many of the bytes written to a connection have not left yet; not called if all have."""
        session = self._sessions.get(connection)
        if session is None:
            return []
        # What had been counted may have left meanwhile.
        session.unread_bytes = min(session.unread_bytes + session.unsent_answers_bytes, unsent_bytes)
        if session.unread_bytes <= self._limits.max_unread_bytes:
            return []
        self._shut(session, f"more than {self._limits.max_unread_bytes} bytes of answers wait for it to read them")
        return self._finish(now_ns)

    # -- the turn --------------------------------------------------------------------------------------------------

    def received(self, connection: str, data: bytes) -> bool:
        """Bytes have arrived, for the next turn; whether that has to be at once, as they are many."""
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

    def handed(self, connection: str, frames: list[bytes]) -> bool:
        """The same for frames of a node in the same process, which are handed over one by one."""
        session = self._sessions.get(connection)
        if session is None or session.is_closing or self.is_deaf:
            return False
        if session.is_held_back:
            session.waiting += frames
        else:
            self._came.append((session, frames))
            if session.purse is not None:  # a client's; a broker hands over what it keeps anyway
                self._came_bytes += sum(map(len, frames))
        return self._came_bytes >= STEP_BYTES

    def pass_on(self, connection: str, frame: Any, now_ns: int) -> list[NodeEffect]:
        """A frame of the broker in the same process, for the machine at once: there is nothing to hold back."""
        self._carry_out(self.machine.receive(connection, frame, now_ns))
        return self._finish(now_ns)

    def _misread(self, session: Session, error: FramingError) -> None:
        """The stream of a connection contains no frame, or a damaged one."""
        if isinstance(error, DamageError):
            self.machine.refused["damaged"] += 1
            facts = {"peer": session.peer, "address": session.address, "why": str(error)}
            self._report("warning", "frame damaged", **facts, remedy="the frame will be sent again; check the network")
        self._shut(session, str(error))

    @property
    def is_stirred(self) -> bool:
        """Whether a turn has something to do."""
        return bool(self._came or self._writers or self._shutting or (self.requests.row and self.requests.is_calm))

    def turn(self, now_ns: int) -> list[NodeEffect]:
        """One step of the machine with all that has arrived; the effects since the last turn leave."""
        if self._came or self.requests.row:
            self._take_in(now_ns)
        effects = self._finish(now_ns)
        if self._writers:
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
        came, self._came, self._came_bytes = self._came, [], 0
        if self._strangers:
            came = [(session, frames) for session, frames in came if self._let_in(session, frames, now_ns)]
        self._carry_out(self.machine.receive_many(self._intake.admitted(came, now_ns), now_ns))

    def waiting_bytes(self, connection: str) -> int:
        """How much of what a client has sent was read and waits, because of its budget or of others' requests."""
        session = self._sessions.get(connection)
        return 0 if session is None else sum(map(len, session.waiting))

    def purse_of(self, connection: str | None) -> Purse | None:
        """The unused part of a connected client's rates, and how often it was held back."""
        session = None if connection is None else self._sessions.get(connection)
        return None if session is None else session.purse

    # -- strangers -------------------------------------------------------------------------------------------------

    def _let_in(self, session: Session, frames: list[bytes], now_ns: int) -> bool:
        """Whether a session is admitted, possibly by its first frames, which are then removed."""
        try:
            while session.state is SessionState.OPEN and frames:
                self._open(session, frames.pop(0), now_ns)
                if session.is_admitted:
                    frames += session.splitter.go_on(is_checked=session.prefix is checked)
                elif session.state is SessionState.OPEN:
                    frames += session.splitter.once_more()
        except DeniedError as error:
            self._denied(session, error)
        except FramingError as error:
            self._misread(session, error)
        return session.is_admitted

    def _open(self, session: Session, frame: bytes, now_ns: int) -> None:
        """Handle a frame of a session that is not admitted yet."""
        if session.opening is not None:
            answer = session.opening.answered(frame)
            if isinstance(answer, Proof):
                self._put(session, msgspec.msgpack.encode(answer), is_answer=True)
            else:
                self._on_answer(session, session.opening.preamble, answer, now_ns)
        elif self.admission is None:
            self._shut(session, "this node accepts no connections")
        elif session.challenge is not None:
            session.token, proof = session.challenge.met(read_proof(frame))
            self._welcome(session, self.admission, session.challenge.preamble, proof, now_ns)
        else:
            self._on_preamble(session, self.admission, read_preamble(frame), now_ns)

    def _on_preamble(self, session: Session, admission: Admission, preamble: Preamble, now_ns: int) -> None:
        """Decide what an incoming peer has to prove."""
        session.kind = preamble.kind
        keys = self.machine.keys_of(preamble.name) if preamble.kind == "client" else ()
        if keys is None:
            self._shut(session, "the broker has lost its store, and does not know its clients yet")
            return
        demand = admission.demand(preamble, session.certified, keys)
        if demand is not None and preamble.nonce:
            session.challenge = Challenge(
                preamble=preamble, demand=demand, listener=admission.name, nonce=self._nonce()
            )
            self._put(session, msgspec.msgpack.encode(session.challenge.answer()), is_answer=True)
            return
        if demand is not None:
            session.token = demand.require_shown(preamble.token)
        self._welcome(session, admission, preamble, b"", now_ns)

    def _welcome(self, session: Session, admission: Admission, preamble: Preamble, proof: bytes, now_ns: int) -> None:
        """Admit a peer, or answer its question."""
        if preamble.kind not in ("broker", "client"):
            is_directory = preamble.kind == "directory"
            answer = Answer(detail=msgspec.msgpack.encode(self.directory)) if is_directory else self._answer(preamble)
            self._put(session, msgspec.msgpack.encode(msgspec.structs.replace(answer, proof=proof)), is_answer=True)
            self._shut(session, _ANSWERED, at_once=False)
            return
        version = common_version(self._speaks, preamble.speaks)
        if preamble.kind == "broker":
            self._put(session, msgspec.msgpack.encode(Answer(speaks=version, proof=proof)), is_answer=True)
            self._admit(session, "broker", preamble.name, version, now_ns)
            return
        if why := self.machine.why_full(preamble.name):
            raise DeniedError(_FULL, why)
        # A token or certificate identifies it, whatever key it has.
        key = None if session.token is not None or admission.client_certificates else preamble.key
        directory = msgspec.structs.replace(self.directory, last_life=self.machine.last_epoch(preamble.name, key))
        answer = Answer(detail=msgspec.msgpack.encode(directory), speaks=version, proof=proof)
        self._put(session, msgspec.msgpack.encode(answer), is_answer=True)
        rights = admission.rights_of(preamble.name)
        budget = admission.budget_of(preamble.name, rights)
        session.purse = Purse(budget, now_ns)
        self._admit(session, "client", preamble.name, version, now_ns, rights=rights, budget=budget, key=key)

    def _on_answer(self, session: Session, preamble: Preamble, answer: Answer, now_ns: int) -> None:
        """A dialled peer has admitted this node, or answered its question."""
        peer = "" if session.target is None else session.target.name
        if preamble.kind != "broker":
            peer = self._learn(session, answer)
        if session.target is None:
            self._shut(session, _ANSWERED, at_once=False)
            return
        version = common_version(self._speaks, (answer.speaks, answer.speaks))
        self.dials.rename(session.target, peer)
        self.dials.connected(session.target, now_ns)
        self._admit(session, "broker", peer, version, now_ns)

    def readmit(self, admission: Admission, credentials: Credentials, now_ns: int) -> list[NodeEffect]:
        """Apply new rules of admission.

        Connections end whose peers would no longer be admitted, or have other rights now; so do requests of clients
        that are no longer allowed.
        """
        before, self.admission = self.admission, admission
        has_other_token, self._credentials = credentials.token != self._credentials.token, credentials
        self._carry_out(self.machine.restrict(admission.rights_of, now_ns))  # which also notifies the clients concerned
        for session in list(self._sessions.values()):
            why = "" if before is None else session.revocation(before, admission, has_other_token=has_other_token)
            if session.is_admitted and why:
                facts = {"peer": session.peer, "kind": session.kind, "address": session.address, "why": why}
                self._report("warning", "revoked", **facts, remedy="a peer that should stay needs a token and rules")
                self._shut(session, why, at_once=False)
            elif session.challenge is not None and not session.is_admitted:
                self._shut(session, "the network file has changed")  # its challenge may be out of date
        return self._finish(now_ns)

    def expel(self, connection: str, why: str, now_ns: int) -> list[NodeEffect]:
        """End a connection whose certificate is no longer valid."""
        session = self._sessions.get(connection)
        if session is not None:
            facts = {"peer": session.peer, "kind": session.kind, "address": session.address, "why": why}
            self._report("warning", "revoked", **facts, remedy="a peer that should stay needs another certificate")
            self._shut(session, why, at_once=False)
        return self._finish(now_ns)

    def _admit(
        self,
        session: Session,
        kind: Literal["broker", "client"],
        peer: str,
        version: int,
        now_ns: int,
        *,
        rights: Rights | None = None,
        budget: Budget | None = None,
        key: bytes | None = None,
    ) -> None:
        session.enter(SessionState.ADMITTED)
        session.peer, session.kind = peer, kind
        if version >= CHECKED_FROM and not session.is_encrypted:
            session.prefix = checked
        self._strangers -= 1
        self._agenda.cancel(("grace", session.name))
        held_to: dict[str, Any] = {"identity": (kind, peer), "rights": rights, "budget": budget, "key": key}
        held_to |= {"version": version, "is_local": session.is_local}
        self._carry_out(self.machine.connected(session.name, now_ns, **held_to))
        self._effects.append(Admitted(session.name, peer, kind))

    def _learn(self, session: Session, answer: Answer) -> str:
        """Learn the addresses of all brokers from one of them; its name."""
        try:
            directory = msgspec.msgpack.decode(answer.detail, type=Directory)
        except msgspec.MsgspecError as error:
            raise DeniedError("malformed", f"{session.address} does not state its name: {error}") from None
        self.addresses |= directory.addresses
        if session.target is not None:
            self.machine.note_admission(directory.addresses, directory.last_life)
        return directory.name

    def _denied(self, session: Session, error: DeniedError) -> None:
        target = session.target
        if session.preamble is None:
            facts = {"kind": session.kind, "address": session.address, "code": error.code}
            self._report("warning", "denied", **facts, why=str(error), remedy=REMEDIES[known_code(error.code)])
            self.machine.refused[known_code(error.code)] += 1
            self._put(session, msgspec.msgpack.encode(Answer(error.code, str(error))), is_answer=True)
            self._shut(session, str(error), at_once=False)
            return
        if target is not None:
            # Neither an impostor nor a broker that is full ends the search for a broker, if there are others.
            goes_on = isinstance(error, MistrustError) or (error.code == _FULL and bool(target.others))
            code = "" if goes_on else error.code
            self._unreached(target, f"{session.address}: {error}" if not code else str(error), code)
        self._shut(session, "not admitted")

    # -- effects of the machine ------------------------------------------------------------------------------------

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

    def _put(self, session: Session, frame: Any, *, is_answer: bool) -> None:
        """Send a frame with this turn."""
        if session.is_closing:
            return
        if not session.unsent:
            self._writers.append(session)
            session.unsent_answers_bytes = 0
        if session.is_local:
            session.unsent.append(frame)
        else:
            session.unsent += (session.prefix(frame), frame)
        if is_answer:
            session.unsent_answers_bytes += len(frame)
        else:
            session.answers = min(session.answers + ANSWERS_EACH, ANSWERS_MOST)

    def _shut(self, session: Session, reason: str, *, at_once: bool = True) -> None:
        """Close a connection; its later frames are ignored."""
        if not session.is_closing:
            self._forget_stranger(session)
            session.enter(SessionState.CLOSING)
            if at_once:
                session.unsent = []
                self._effects.append(Shut(session.name, reason, at_once))
            else:
                self._shutting.append(Shut(session.name, reason, at_once))

    # -- dialling --------------------------------------------------------------------------------------------------

    def _session(self, name: str, target: Target | None, preamble: Preamble | None, now_ns: int) -> Session:
        session = self._sessions[name] = Session(name, self._limits.max_frame_bytes, target, preamble)
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
        """Dial the brokers that the machine wants; ask for unknown addresses until one is reported."""
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

    def _end(self, session: Session, reason: str, code: str, now_ns: int) -> None:
        self._forget_stranger(session)
        self._intake.forget(session)
        target = session.target
        if session.peer:
            self._carry_out(self.machine.disconnected(session.name, now_ns))
            self._effects.append(Parted(session.name, session.peer, session.address, reason))
        elif session.preamble is None:
            if reason != _ANSWERED:  # a page asks every second
                self._report("info", "stranger gone", address=session.address, why=reason)
        elif target is not None and self.dials.targets.get(target.name) is target:
            if session.state is SessionState.OPEN:
                reason = f"the connection to {session.address} was lost before it was answered: {reason}"
            self._unreached(target, reason, code)
        if target is not None and self.dials.targets.get(target.name) is target:
            self._agenda.set(("dial", target.name), self.dials.ended(target, now_ns))

    def _forget_stranger(self, session: Session) -> None:
        if session.state in (SessionState.DIALLED, SessionState.OPEN):
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
                failure = "did not answer" if session.preamble is not None else "did not identify itself"
                self._shut(session, f"{session.address} {failure} within {GRACE_NS * 1e-9:g} s")
            case ("dial", name):
                target = self.dials.targets[name]
                self._dial(target.address, target.server_name, target, now_ns)
            case ("read", name):
                self._intake.read_on(self._sessions[name], now_ns)
            case ("slice",):
                self._intake.read_slice(now_ns)
            case ("requests",):
                self._carry_out(self.machine.receive_many(self._intake.requested([], now_ns), now_ns))
            case ("waiting",):
                self._intake.check_waiting(now_ns)
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
        """The effects of this step."""
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
