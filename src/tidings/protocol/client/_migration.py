"""How a client moves from one home broker to another without losing anything (paper E, section 3.3, made lossless).

The client is the coordinator, and connects before it disconnects:

1. *joining*: it connects to the new broker and makes all its requests there. Its home continues as before.
2. *paused*: all of that is durable there. New events wait in the client until the home broker has acknowledged the last
   of those under way, or, if it does not answer for `handover_ns`, until the new broker takes them over.
3. *at home* again, at the new broker, which gets a report: if the client was there before, it stops forwarding events
   for subscriptions that the client has not repeated. The old home gets a `MigrationUpdate`, repeated until it answers
   `MigrationComplete`: it has forgotten the client, durably, and forwards the events that it held and those that still
   arrive.

The home broker need not be present. A client whose home does not come back moves in the same manner (`fail_over`), to
one broker after the other until one has accepted it. The old home gets the update when it is back, and forwards the
events that it kept.

Step 3 is the commit, and the client's alone. Before it, any failure calls the move off and the client stays; after it,
a failure only causes delay. The target of a move that was called off also learns where the client is at home. So in the
end the client is at exactly one broker.
"""

from collections.abc import Callable, Iterator, Set
from typing import Final, Literal, NamedTuple
from zlib import crc32

from tidings.protocol import wire
from tidings.protocol._effects import Connect, Disconnect, Effect, Failed, Moved
from tidings.protocol._errors import RequestError
from tidings.protocol._names import require_plain
from tidings.protocol._settings import ClientSettings
from tidings.protocol._states import MOVE_STEPS, MoveState, MoveStep
from tidings.protocol.client._publisher import Publisher
from tidings.protocol.client._requests import Requests
from tidings.protocol.links._peers import Peer

__all__ = ["Actions", "Migration"]

_REPORTS_FROM: Final = 3
"""The version of the protocol from which on brokers know `Moving`."""


class _Leaving:
    """A broker that has to forget the client; `first` is the number of the first request for that."""

    __slots__ = ("due_ns", "first", "moved", "peer", "tries")

    def __init__(self, peer: Peer, first: int, moved: Moved | None) -> None:
        self.peer = peer
        self.first = first
        self.moved = moved
        self.tries = 0
        self.due_ns = 0


class Actions(NamedTuple):
    """What a migration does with the client: make a peer, release one, send, emit an effect, and set its timer."""

    make_peer: Callable[[str], Peer]
    let_go: Callable[[Peer], None]
    send: Callable[[Peer, wire.Message], None]
    emit: Callable[[Effect], None]
    move_at: Callable[[int], None]


class Migration:
    """A client's home, the target of its move, and its former homes."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        brokers: Set[str],
        requests: Requests,
        publisher: Publisher,
        actions: Actions,
    ) -> None:
        self.home: Peer | None = None
        self.target: Peer | None = None
        self.state = MoveState.AT_HOME
        self._settings = settings
        self._requests = requests
        self._publisher = publisher
        self._make_peer, self._let_go, self._send, self._emit, self._move_at = actions
        self._leaving: dict[str, _Leaving] = {}
        self._since_ns = self._paused_ns = 0
        self._patience_ns = settings.move_ns
        self._brokers = brokers
        self._failovers = 0
        self._last_report: wire.Moving | None = None  # to its home, of the last move from there

    @property
    def leaving(self) -> int:
        """How many brokers have not yet confirmed that they forgot the client."""
        return len(self._leaving)

    def places(self) -> list[Peer]:
        """The brokers that get the client's requests: its home first.

        A client that comes back to a broker which has yet to forget it waits until it has: the client may have
        withdrawn requests since.
        """
        return [peer for peer in (self.home, self.target) if peer is not None and peer.name not in self._leaving]

    def peers(self) -> Iterator[Peer]:
        """All brokers that the client is connected with or has yet to leave."""
        yield from self.places()
        yield from (leaving.peer for leaving in self._leaving.values())

    def peer(self, name: str) -> Peer | None:
        """The one of them with this name."""
        return next((peer for peer in self.peers() if peer.name == name), None)

    def adopt(self, home: Peer, now_ns: int) -> None:
        """The client was connected to another broker than before, which is its home from now on; not a planned move."""
        before, self.home = self.home, home
        self._last_report = None
        if before is not None:
            if self.target is not None:
                self.call_off("adopted", f"the client has been connected to {home.name!r} meanwhile", now_ns)
            self._emit(Connect(before.name))
            self._leave(before, None, now_ns)

    def fail_over(self, now_ns: int) -> int | None:
        """Move if the home broker stays away; when to check again, None when it is up.

        Clients of one broker go to different ones, so that none has to accept them all.
        """
        home, wait_ns = self.home, self._settings.failover_ns
        if not wait_ns or home is None or home.is_up:
            return None
        if now_ns < home.heard_ns + wait_ns:
            return home.heard_ns + wait_ns
        self.on_time(now_ns)  # give up a broker that has not accepted the client by now
        others = sorted(self._brokers - {home.name} - self._leaving.keys())
        if others and self.state is MoveState.AT_HOME and len(self._leaving) < self._settings.max_leaving:
            turn = crc32(self._settings.name.encode()) + self._failovers
            self._failovers += 1
            self.ask(others[turn % len(others)], now_ns, patience_ns=wait_ns)
        return now_ns + wait_ns

    def ask(self, broker: str, now_ns: int, *, patience_ns: int | None = None) -> None:
        """Begin to move, and give up after `patience_ns`; RequestError if that is not possible now."""
        home = self.home
        if home is None or self.state is not MoveState.AT_HOME or len(self._leaving) >= self._settings.max_leaving:
            code = "nowhere" if home is None else "moving" if self.target is not None else "leaving"
            raise RequestError(
                code, f"{self._settings.name!r} cannot move to {broker!r} now: it has no home, or is moving already"
            )
        require_plain(broker)
        if broker == home.name:
            self._emit(Moved(broker, broker, 0))
            return
        self._step(MoveStep.ASKED)
        self._since_ns = now_ns
        self._patience_ns = self._settings.move_ns if patience_ns is None else patience_ns
        before = self._leaving.get(broker)
        self.target = self._make_peer(broker) if before is None else before.peer
        if before is None:
            self._emit(Connect(broker))
        self._move_at(now_ns + self._patience_ns)
        self.report_phase(broker, "joining")
        self.check(now_ns)

    def greeted(self, peer: Peer, now_ns: int, *, is_new: bool) -> None:
        """A broker is up; `is_new`: it knows nothing of earlier messages."""
        if peer is self.home and self._last_report is not None:
            self.report(peer, self._last_report)
        if peer.name in self._leaving:
            self._leaving[peer.name].tries = 0
            self._announce(self._leaving[peer.name], now_ns)
        elif is_new:
            self._requests.ask_all(peer, now_ns)
        self.check(now_ns)

    def check(self, now_ns: int) -> None:
        """Take the next step, if it is time."""
        target, home = self.target, self.home
        if target is None or home is None or not target.is_up or target.name in self._leaving:
            return
        if not self._requests.are_confirmed(target):
            return
        if self.state is MoveState.JOINING:
            self._step(MoveStep.JOINED)
            self._paused_ns = now_ns
            self._publisher.hold()
            self.report_phase(target.name, "paused")
            self._move_at(now_ns + self._settings.handover_ns)
        if not self._publisher.under_way or not home.is_up or now_ns >= self._paused_ns + self._settings.handover_ns:
            self._hand_over(home, target, now_ns)

    def on_time(self, now_ns: int) -> None:
        """The timer has fired: take the next step, call the move off, or repeat unanswered messages."""
        self.check(now_ns)
        if self.state is MoveState.JOINING:
            self._call_off_at(self._since_ns + self._patience_ns, now_ns)
        elif self.state is MoveState.PAUSED:
            self._call_off_at(self._paused_ns + self._settings.handover_ns, now_ns)
        for leaving in self._leaving.values():
            if leaving.due_ns <= now_ns:
                self._announce(leaving, now_ns)
            else:
                self._move_at(leaving.due_ns)

    def call_off(self, code: str, text: str, now_ns: int) -> None:
        """Call the move off: the client stays where it is."""
        target, home = self.target, self.home
        assert target is not None
        assert home is not None
        self._step(MoveStep.CALLED_OFF)
        self.target = None
        self._publisher.release(home, now_ns)
        self._requests.leave(target)
        self.report_phase(target.name, "called off", code)
        self._emit(Failed("move", target.name, code, text))
        if target.epoch < 0:  # it was never connected, so it knows nothing
            self._let_go(target)
            self._emit(Disconnect(target.name))
        elif target.name not in self._leaving:
            self._leave(target, None, now_ns)

    def on_complete(self, source: Peer, message: wire.MigrationComplete, now_ns: int) -> None:
        """A broker has forgotten the client."""
        leaving = self._leaving.get(source.name)
        if leaving is None or message.number < leaving.first:
            return
        del self._leaving[source.name]
        if leaving.moved is not None:
            self._emit(leaving.moved)
        if source is self.target:
            self._requests.ask_all(source, now_ns)
        else:
            self._let_go(source)
            self._emit(Disconnect(source.name))

    def _call_off_at(self, at_ns: int, now_ns: int) -> None:
        if now_ns < at_ns:
            self._move_at(at_ns)
        else:
            assert self.target is not None
            self.call_off("timeout", f"{self.target.name!r} was not ready for the client in time", now_ns)

    def _hand_over(self, home: Peer, target: Peer, now_ns: int) -> None:
        self._step(MoveStep.HANDED_OVER)
        self.home, self.target = target, None
        self._requests.leave(home)
        self._leave(home, Moved(home.name, target.name, now_ns - self._paused_ns), now_ns)
        self._publisher.release(target, now_ns)
        self.report_phase(target.name, "at home")

    def _leave(self, peer: Peer, moved: Moved | None, now_ns: int) -> None:
        leaving = self._leaving[peer.name] = _Leaving(peer, self._requests.next_number(), moved)
        self._announce(leaving, now_ns)

    def _announce(self, leaving: _Leaving, now_ns: int) -> None:
        """Send a broker the client's present home; if the broker is away, it is sent when it is greeted."""
        peer = leaving.peer
        if peer.is_up and self.home is not None:
            number, was_home = self._requests.next_number(), leaving.moved is not None
            self._send(peer, wire.MigrationUpdate(peer.epoch, number, self.home.name, was_home))
        leaving.tries += 1
        leaving.due_ns = now_ns + self._requests.patience_ns(peer, leaving.tries)
        self._move_at(leaving.due_ns)

    def report_phase(
        self, target: str, phase: Literal["joining", "paused", "called off", "at home"], why: str = ""
    ) -> None:
        """Report the progress of a move to the home broker, now and whenever it is up again."""
        self._last_report = wire.Moving(target, phase, why[: wire.MAX_NAME])
        if self.home is not None and self.home.is_up:
            self.report(self.home, self._last_report)

    def report(self, peer: Peer, message: wire.Moving) -> None:
        """Report a move to a broker, if it knows the message."""
        if peer.version >= _REPORTS_FROM:
            self._send(peer, message)

    def _step(self, step: MoveStep) -> None:
        self.state = MOVE_STEPS[self.state, step]
