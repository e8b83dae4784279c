"""The driver: it carries out what a machine wants, with real sockets, a real disk and a real clock.

The machine is `tidings.protocol`'s, unchanged; `tidings.storm` drives the same one in virtual time. Everything happens
on one event loop: what came over all connections in one turn of it is received together, in one step of the machine and
at one time; what is sent in a turn leaves in one write per connection; syncs are done by a thread and confirmed on the
loop.

A congested socket and the credit of the peer behind it are two limits on the same thing, and the lesser one counts:
while the socket is congested the machine is told a credit of 0 in the peer's name, and what the peer itself says of
its credit takes effect when the socket is free again. So events wait in the scheduled queue and nowhere else.

The tag of a frame is read before the machine sees it, so that a connection can be held to who it was admitted as, and
to what it may do (`Guard`). A frame whose tag is not in its plain place is nonsense, whatever a decoder might make of
it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from tidings.live.storage._committer import Committer
from tidings.live.transport._clock import Clock
from tidings.live.transport._connection import Connection
from tidings.live.transport._framing import tag_of
from tidings.protocol import Close, Effect, Erase, Machine, Note, PeerError, Send, SetTimer, Store, Sync, wire

__all__ = ["Driver", "Guard", "Tracer"]

HELLO, WELCOME, ACK, CREDIT = 1, 2, 11, 12
_NONSENSE: Final = b"\xc1"
STEP_BYTES: Final = 4 << 20
"""So much may wait for one step of the machine: a turn in which very many connections have much to say has several."""
_CREDITED: Final = frozenset((HELLO, WELCOME, ACK, CREDIT))


class Guard(Protocol):
    """Who a connection was admitted as."""

    watched: frozenset[int]
    """The tags that `allows` wants to see."""
    is_ruled: bool
    """Whether `may_publish` has to be asked."""

    def allows(self, tag: int, frame: bytes) -> bytes | None:
        """None if a frame may pass, or the frame to answer it with (an empty one: close the connection)."""

    def may_publish(self, attributes: Mapping[str, Any]) -> bool:
        """Whether an event may be published."""

    def takes(self, count: int, now_ns: int) -> float:
        """How long the peer has to wait after so many frames and events; 0 if it may go on."""


class Tracer(Protocol):
    """Who writes down what happens to events."""

    def note(self, note: Note, now_ns: int) -> None:
        """Something happened to an event."""

    def acknowledged(self, peer: str, frame: bytes, now_ns: int) -> None:
        """An acknowledgement has come in."""

    def stored(self, key: str, value: bytes | None, now_ns: int) -> None:
        """Something was stored or erased."""

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """It is over."""


class Driver:
    """A machine with its connections; `on_effect` gets what is neither frame, disk nor timer."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        *,
        on_effect: Callable[[Effect], None],
        on_lost: Callable[[Connection, str], None],
    ) -> None:
        self.machine = machine
        self.clock = clock
        self.committer: Committer | None = None
        self.tracer: Tracer | None = None
        self.ignored: frozenset[int] = frozenset()  # tags that a draining broker does not take any more
        self.connections: dict[str, Connection] = {}
        self._guards: dict[str, Guard] = {}
        self._on_effect = on_effect
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._came: list[tuple[Connection, list[bytes]]] = []  # in this turn
        self._came_bytes = 0
        self._unsent: list[Connection] = []  # who is sent something with this turn
        self._is_flushing = False  # they are written to soon

    def start(self) -> None:
        """The machine comes to life."""
        self.call(self.machine.start)

    def call(self, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call the machine with the time; effects are carried out, anything else it returns is returned."""
        now_ns = self.clock.now_ns()
        result = do(*what, now_ns, **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self.step(effects, now_ns)
        return rest

    def synced(self, token: int) -> None:
        """Everything before this sync is durable."""
        self.call(self.machine.synced, token)

    def attach(self, connection: Connection, peer: str, guard: Guard | None = None) -> None:
        """An admitted connection is the machine's from now on."""
        connection.host = self
        connection.peer = peer
        self.connections[connection.name] = connection
        self.call(self.machine.connected, connection.name)
        if guard is not None:
            self._guards[connection.name] = guard
            if guard.is_ruled:
                self.machine.restrict(connection.name, guard.may_publish)

    # -- what connections say ------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """A connection is given to a driver only when it has been admitted."""
        raise AssertionError(f"{connection.name} was not admitted")

    def received(self, connection: Connection, frames: list[bytes]) -> None:
        """Frames that came together; the machine gets them with all others of this turn."""
        if not self._came:
            self._loop.call_soon(self._take_in)
        self._came.append((connection, frames))
        self._came_bytes += sum(map(len, frames))
        if self._came_bytes >= STEP_BYTES:
            self._take_in()

    def _take_in(self) -> None:
        """One step of the machine with all that has come; what it sends leaves at once."""
        if not self._came:
            return
        came, self._came, self._came_bytes = self._came, [], 0
        now_ns = self.clock.now_ns()
        self._is_flushing = True
        self.step(self.machine.receive_many(self._passed(came, now_ns), now_ns), now_ns)
        self._flush()

    def _passed(self, came: list[tuple[Connection, list[bytes]]], now_ns: int) -> Iterator[tuple[str, list[bytes]]]:
        """What the machine is to see of it, one connection after the other; who was too fast has to wait."""
        machine = self.machine
        for connection, frames in came:
            guard = self._guards.get(connection.name)
            if connection.name not in self.connections:
                continue
            events = machine.events_in
            yield connection.name, self._let_in(connection, guard, frames, now_ns)
            # Of frames with events each event counts, and of others each frame.
            count = max(machine.events_in - events, len(frames))
            if guard is not None and (wait_s := guard.takes(count, now_ns)) > 0.0:
                connection.pause_reading(wait_s)

    def _let_in(self, connection: Connection, guard: Guard | None, frames: list[bytes], now_ns: int) -> list[bytes]:
        watched = self.ignored | guard.watched if guard is not None else self.ignored
        passed: list[bytes] = []
        for frame in frames:
            tag = tag_of(frame)
            if tag in watched and not self._may_pass(connection, guard, tag, frame):
                continue
            if tag in _CREDITED:
                frame = self._credited(connection, tag, frame, now_ns)
            elif tag < 0:
                frame = _NONSENSE
            passed.append(frame)
        return passed

    def lost(self, connection: Connection, reason: str) -> None:
        """The connection is gone; what came over it before has come."""
        self._take_in()
        if self.connections.get(connection.name) is connection:
            del self.connections[connection.name]
            self._guards.pop(connection.name, None)
            self.call(self.machine.disconnected, connection.name)
            self._on_lost(connection, reason)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """The lesser of the socket's credit and the peer's counts."""
        if connection.name in self.connections and connection.last_credit:
            try:
                told = wire.decode(connection.last_credit)
            except PeerError:
                return
            assert isinstance(told, wire.Hello | wire.Welcome | wire.Ack | wire.Credit)
            credit = wire.Credit(0 if is_congested else told.credit)
            self.call(self.machine.receive, connection.name, wire.encode(credit))

    def _may_pass(self, connection: Connection, guard: Guard | None, tag: int, frame: bytes) -> bool:
        if tag in self.ignored:
            return False
        answer = guard.allows(tag, frame) if guard is not None else None
        if answer is None:
            return True
        if answer:
            connection.send(answer)
        else:
            connection.close("it claimed to be somebody else")
        return False

    def _credited(self, connection: Connection, tag: int, frame: bytes, now_ns: int) -> bytes:
        """What the peer says of its credit is noted, and withheld while the socket is congested."""
        connection.last_credit = frame
        if tag == ACK and self.tracer is not None:
            self.tracer.acknowledged(connection.peer, frame, now_ns)
        if connection.is_congested and tag in (ACK, CREDIT):
            try:
                told = wire.decode(frame)
            except PeerError:
                return frame
            if isinstance(told, wire.Ack):
                return wire.encode(wire.Ack(told.session, told.numbers, told.held_ns, 0))
            return wire.encode(wire.Credit(0))
        return frame

    # -- what the machine wants ----------------------------------------------------------------------------------

    def step(self, effects: list[Effect], now_ns: int) -> None:
        """Carry out what the machine wants done."""
        tracer, connections = self.tracer, self.connections
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                connection = connections.get(effect.connection)  # type: ignore[union-attr]
                if connection is not None and connection.put(effect.frame):  # type: ignore[union-attr]
                    self._unsent.append(connection)
            elif kind is Note:
                if tracer is not None:
                    tracer.note(effect, now_ns)  # type: ignore[arg-type]
            elif kind is Store or kind is Erase:
                self._write(effect, now_ns)  # type: ignore[arg-type]
            elif kind is SetTimer:
                self._set_timer(effect.at_ns, now_ns)  # type: ignore[union-attr]
            elif kind is Sync:
                assert self.committer is not None
                self.committer.sync(effect.token)  # type: ignore[union-attr]
            elif kind is Close:
                self._close(effect)  # type: ignore[arg-type]
            else:
                self._on_effect(effect)
        if self._unsent and not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what was sent in this turn."""
        self._is_flushing = False
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.flush()

    def _write(self, effect: Store | Erase, now_ns: int) -> None:
        assert self.committer is not None
        value = effect.value if isinstance(effect, Store) else None
        self.committer.write(effect.key, value)
        if self.tracer is not None:
            self.tracer.stored(effect.key, value, now_ns)

    def _close(self, effect: Close) -> None:
        connection = self.connections.get(effect.connection)
        if connection is not None:
            connection.close(effect.reason)

    def _set_timer(self, at_ns: int, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvloop counts whole milliseconds: half of one more, or it would wake the machine too early, again and again.
        self._timer = self._loop.call_later((max(at_ns - now_ns, 0) + 500_000) * 1e-9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.call(self.machine.wake)

    def stop(self) -> None:
        """Wake the machine no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
