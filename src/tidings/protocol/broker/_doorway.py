"""The doorway of a broker: greetings, identities, and what peers may send.

- The first frame on a connection is a greeting, from both sides, repeated until it is answered. It states the sender's
  name and epoch. Messages of an earlier incarnation no longer count.
- Only neighbours of the settings are greeted as brokers. Of two connections with one peer the later replaces the other.
- A client that proves its name by a key binds its name to that key: from then on another key is another client.
  Incarnations without such a proof do not count.
- A message that the sender may not send is refused (`ALLOWED`); all others are passed to the broker.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from tidings.protocol import wire
from tidings.protocol._effects import Close, Effect
from tidings.protocol._errors import PeerError
from tidings.protocol._machine import Machine
from tidings.protocol._names import require_plain
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import ALLOWED, PeerState, PeerStep
from tidings.protocol._trace_context import Choice
from tidings.protocol.links._outbox import FRAME_BYTES, Outbox
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import SendLimits
from tidings.scheduling import Strategy

__all__ = ["Doorway"]

_EASE_NS: Final = 100_000_000
"""How far apart a client's acknowledgements may be while it has room for more: a broker that restarts sends a client
with a new epoch what that had not acknowledged, and its accounts count events as under way meanwhile."""
_EASE_SHARE: Final = 2
"""At most this part of the time after which an event is sent again."""
_HELLOS: Final = 4
"""A peer that sends frames but is not up is greeted at most this often between two pings."""
_ALLOWED: Final = {kind: ALLOWED["broker", kind] for kind in ("broker", "client")}


class Doorway(Machine):
    """A machine with neighbours and clients."""

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings.name, max_refused=settings.max_refused)
        self._choice = Choice(settings)
        self.settings = settings
        self.epoch = 0
        self.neighbours: dict[str, Peer] = {}
        self.clients: dict[str, Peer] = {}
        self.clients_up: set[str] = set()
        """The clients that are connected."""
        self._laden: dict[str, Peer] = {}  # clients with events queued or under way; some no longer
        self.waits: dict[str, dict[int, int]] = {"broker": {}, "client": {}}
        """By kind of peer: the time that events were queued for it, counted by size (`_histogram`)."""
        self._is_alive = False
        self._born_ns = 0
        self._has_forgotten = False  # whether this incarnation has forgotten a peer

    @abstractmethod
    def _credit(self) -> int:
        """How many unacknowledged events a peer may send."""

    @abstractmethod
    def _on_new_peer(self, peer: Peer) -> None:
        """A peer is up that was not before."""

    @abstractmethod
    def _on_greeted_again(self, peer: Peer) -> None:
        """A peer that is up had taken this broker for lost, and has not read the messages sent meanwhile."""

    @abstractmethod
    def _last_epoch_heard(self, peer: Peer) -> int:
        """The latest epoch of a broker that others have reported; -1 if there is none, or if it is a client."""

    @abstractmethod
    def _on_bound(self, peer: Peer) -> None:
        """A client's name is bound to another key than before, or to none."""

    @abstractmethod
    def _on_later_epoch(self, epoch: int) -> None:
        """Others know of a later epoch of this broker than the present one."""

    @abstractmethod
    def _on_message(self, source: Peer, message: wire.Message) -> None:
        """A message from a peer that is up and may send it."""

    @abstractmethod
    def _on_rewired(self) -> None:
        """The neighbours, or the planned overlay, have changed."""

    def rewire(self, neighbours: frozenset[str], graph: Mapping[str, frozenset[str]], now_ns: int) -> list[Effect]:
        """Change the overlay: brokers that are no longer neighbours are disconnected."""
        self._now_ns = now_ns
        self.settings = msgspec.structs.replace(self.settings, neighbours=neighbours, graph=graph)
        for name in sorted(self.neighbours.keys() - neighbours):
            peer = self.neighbours[name]
            if peer.connection is not None:
                self._effects.append(Close(peer.connection, f"{name!r} is no neighbour of {self.name!r} any more"))
                self._by_connection.pop(peer.connection, None)
                self._on_disconnected(peer)
            for task in ("ping", "retry"):
                self._agenda.cancel((task, "broker", name))
            del self.neighbours[name]
            self._has_forgotten = True
        self._on_rewired()
        return self._finish()

    def use_strategy(self, strategy: Strategy, now_ns: int) -> list[Effect]:
        """Order the queues of all links and clients by another strategy; nothing that waits is lost by it."""
        self._now_ns = now_ns
        self.settings = msgspec.structs.replace(self.settings, strategy=strategy)
        for peer in (*self.neighbours.values(), *self.clients.values()):
            peer.outbox.queue.use(strategy)
        return self._finish()

    def _on_connected(self, connection: str) -> None:
        """Greet, and repeat the greeting until it is answered."""
        if self._is_alive and connection in self._by_connection and self._by_connection[connection] is None:
            self._send_over(connection, self._hello(self._versions[connection]))
            self._agenda.set(("greet", connection), self._now_ns + self.settings.ping_ns)

    def _hello(self, version: int) -> wire.Hello:
        return wire.Hello(version, self.name, "broker", self.epoch, self._credit(), self._now_ns, self._choice.reported)

    def _welcome(self, hello: wire.Hello, last_epoch: int = 0) -> wire.Welcome:
        own = (hello.version, self.name, "broker", self.epoch, self._credit())
        return wire.Welcome(*own, self._now_ns, hello.clock_ns, self._choice.reported, last_epoch)

    def _answers_errors(self, connection: str) -> bool:
        peer = self._by_connection.get(connection)
        return peer is None or peer.kind == "client"

    def _on_frame(self, connection: str, frame: bytes) -> None:
        if not self._is_alive:
            return
        if len(frame) > self.settings.max_frame_bytes:
            raise PeerError(
                "too-long", f"a frame of {len(frame)} bytes: at most {self.settings.max_frame_bytes} allowed"
            )
        message = wire.decode(frame)
        kind = type(message)
        if type(message) is wire.Hello or type(message) is wire.Welcome:
            self._on_greeting(connection, message)
            return
        peer = self._by_connection.get(connection)
        if peer is None or peer.connection != connection:
            return  # it is greeted until it answers, or has been replaced
        if kind not in _ALLOWED[peer.kind]:
            raise PeerError("not-allowed", f"a {peer.kind} may not send {kind.__name__} to a broker")
        peer.heard_ns = self._now_ns
        if not peer.is_up:
            # Not for each of the frames that have accumulated: the greetings would accumulate as well.
            if self._now_ns - peer.hello_ns >= self.settings.ping_ns // _HELLOS:
                peer.hello_ns = self._now_ns
                self._send_over(connection, self._hello(self._versions[connection]))
            return
        self._on_message(peer, message)

    def _on_greeting(self, connection: str, greeting: wire.Hello | wire.Welcome) -> None:
        require_plain(greeting.name)
        if greeting.name == self.name or (greeting.kind == "broker" and greeting.name not in self.settings.neighbours):
            raise PeerError("unknown", f"broker {greeting.name!r} is not a neighbour of {self.name!r}")
        if self._identities.get(connection, (greeting.kind, greeting.name)) != (greeting.kind, greeting.name):
            self._effects.append(Close(connection, "it greeted under another name than that of its admission"))
            raise PeerError("identity", f"{greeting.name!r} was not admitted under this name")
        before = self._by_connection.get(connection)
        if before is not None and (before.name, before.kind) != (greeting.name, greeting.kind):
            raise PeerError("identity", f"{before.name!r} cannot become {greeting.name!r} on one connection")
        self._require_version(connection, greeting)
        peer = self._client(greeting.name) if greeting.kind == "client" else self._neighbour(greeting.name)
        self._bind(connection, peer)
        last_epoch = max(peer.epoch, self._last_epoch_heard(peer))
        if greeting.epoch < last_epoch:
            # An old frame of an earlier incarnation; or one that has lost its store, and whose clock was set back.
            if isinstance(greeting, wire.Hello) and peer.kind == "broker":
                self._send_over(connection, self._welcome(greeting, last_epoch))
            return
        if peer.kind == "broker" and isinstance(greeting, wire.Welcome) and greeting.last_life > self.epoch:
            self._on_later_epoch(greeting.last_life)
            return
        if peer.connection not in (None, connection):
            self._effects.append(Close(peer.connection, "another connection of the same name has replaced it"))
            self._by_connection.pop(peer.connection, None)
        is_new = not peer.is_up
        peer.connection, peer.version = connection, greeting.version
        peer.rights = self._rights.get(connection)
        peer.outbox.move(is_local=connection in self._local, now_ns=self._now_ns)
        peer.outbox.is_congested = connection in self._congested
        if peer.kind == "client":
            self.clients_up.add(peer.name)
            peer.budget = self._budgets.get(connection, self.settings.budget)
            peer.outbox.max_queued_bytes = peer.budget.queued_bytes
        self._by_connection[connection] = peer
        if peer.state is PeerState.AWAY:
            peer.step(PeerStep.CONNECTED)
        peer.step(PeerStep.GREETED)
        if peer.greet(greeting.epoch):
            is_new = True
            peer.meter.forget_clock()
            peer.outbox.window.forget_gone()
        peer.heard_ns = self._now_ns
        peer.outbox.credit = greeting.credit
        if isinstance(greeting, wire.Hello):
            self._send_over(connection, self._welcome(greeting))
        else:
            peer.meter.read_greeting(greeting, self._now_ns)
        if is_new:
            self._on_new_peer(peer)
        elif isinstance(greeting, wire.Hello):
            self._on_greeted_again(peer)

    def _bind(self, connection: str, peer: Peer) -> None:
        """Hold a client to the key that it has proved to have; PeerError if its name was bound to another meanwhile."""
        key = self._keys.get(connection)
        if key == peer.key or peer.kind == "broker":
            return
        if key is not None and peer.key:
            self._effects.append(Close(connection, "its name is bound to another key"))
            raise PeerError("identity", f"the name {peer.name!r} is bound to another key: take another name")
        if key:
            peer.epoch = -1
        peer.key = key or b""
        self._on_bound(peer)

    def laden_clients(self) -> list[Peer]:
        """The clients with events queued or under way; the others cost nothing."""
        for name in [name for name, peer in self._laden.items() if peer.outbox.is_empty]:
            del self._laden[name]
        return list(self._laden.values())

    def _up_neighbours(self) -> list[Peer]:
        return [peer for _, peer in sorted(self.neighbours.items()) if peer.is_up]

    def _neighbour(self, name: str) -> Peer:
        if name not in self.neighbours:
            bounds = (self.settings.max_queued, self.settings.max_queued_bytes)
            self.neighbours[name] = self._peer(name, "broker", *bounds)
        return self.neighbours[name]

    def why_full(self, client: str) -> str:
        """Why there is no room for a client; empty if there is."""
        most = self.settings.max_clients
        is_full = client not in self.clients and len(self.clients) >= most
        return f"broker {self.name!r} has {most} clients, which is its limit ([limits] clients)" if is_full else ""

    def _client(self, name: str) -> Peer:
        if name not in self.clients:
            why = self.why_full(name)
            if why:
                raise PeerError("too-many", why)
            bounds = (self.settings.max_queued_client, self.settings.budget.queued_bytes)
            peer = self.clients[name] = self._peer(name, "client", *bounds)
            peer.budget = self.settings.budget
            peer.outbox.ease_ns = min(_EASE_NS, self.settings.retry_least_ns // _EASE_SHARE)
            peer.outbox.on_load = partial(self._laden.setdefault, name, peer)
        return self.clients[name]

    def _peer(self, name: str, kind: str, max_queued: int, max_queued_bytes: int) -> Peer:
        peer = Peer(name, kind, self._outbox(max_queued))
        peer.outbox.max_queued_bytes = max_queued_bytes
        peer.outbox.queue.waits = self.waits[kind]
        return peer

    def _outbox(self, max_queued: int) -> Outbox:
        settings = self.settings
        # A forgotten peer may come back and remember our numbers. It is sent none of them again, since no peer is sent
        # more than one event per microsecond.
        first = (self._now_ns - self._born_ns) // 1_000 if self._has_forgotten else 0
        limits = SendLimits(
            window=settings.window,
            max_bytes=settings.max_under_way_bytes,
            frame_bytes=min(FRAME_BYTES, settings.max_frame_bytes // 2),
            retry_least_ns=settings.retry_least_ns,
            retry_most_ns=settings.retry_most_ns,
            keeps=settings.buffers,
        )
        return Outbox(
            limits,
            strategy=settings.strategy,
            processing_s=settings.processing_s,
            max_queued=max_queued,
            first_number=first,
        )
