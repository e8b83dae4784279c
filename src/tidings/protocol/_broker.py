"""A broker: one node of the overlay, as a state machine without I/O.

It greets neighbours and clients, tells the others what it knows (`_gossip`), and answers for events (`_carrier`). Its
durable store holds, besides events, its epoch, its clients' subscriptions and advertisements, and what it knows of the
other brokers' interests; a broker that starts again from it goes on where it was. The epoch of a new life is durable
before the first frame is sent, so no two lives share a number.

An event from a client is accepted when the broker is *ready*, that is when it knows what the others want: from its own
store, or because a neighbour has told it everything, or because nobody has answered for `ready_wait_ns`. Until then
events are not acknowledged, and publishers send them again.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

from tidings.errors import EventError
from tidings.protocol import _messages as wire
from tidings.protocol._carrier import Carrier
from tidings.protocol._effects import Close, Effect
from tidings.protocol._errors import PeerError
from tidings.protocol._gossip import Gossip
from tidings.protocol._journal import Journal
from tidings.protocol._machine import Bound, Machine
from tidings.protocol._outbox import Outbox
from tidings.protocol._peers import Peer
from tidings.protocol._registry import Registry
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import ALLOWED, PeerState, PeerStep

__all__ = ["Broker", "View"]

_EPOCH: Final = "epoch"
_READY: Final = "ready"
_EPOCHS_APART_NS: Final = 1_000_000


class View(NamedTuple):
    """The neighbours of every broker; by home broker the (name, filter) of the subscriptions there; and where this
    broker sends an event, by the root of its tree and its target."""

    links: dict[str, tuple[str, ...]]
    interests: dict[str, frozenset[tuple[str, str]]]
    routes: dict[tuple[str, str], str]


class Broker(Machine):
    """One broker; `kept` is what its durable store held when it was started."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings.name, tracing=settings.tracing, max_refused=settings.max_refused)
        self.settings = settings
        self.epoch = 0
        self.is_ready = False
        self.neighbours: dict[str, Peer] = {}
        self.clients: dict[str, Peer] = {}
        self._kept = dict(kept or {})
        self._is_alive = False
        self._journal = Journal(emit=self._emit, perform=self._now_durable)
        self.gossip = Gossip(
            settings,
            send=self._send,
            neighbours=self._up_neighbours,
            store=self._journal.store,
            erase=self._journal.erase,
        )
        self.carrier = Carrier(
            settings,
            links=self.gossip.links,
            local=self.gossip.local,
            neighbours=self.neighbours,
            clients=self.clients,
            send=self._send,
            store=self._journal.store,
            erase=self._journal.erase,
            note=self._note,
            count=self._count,
            expire_at=self._expire_at,
            retry_at=self._retry_at,
        )

        self._registry = Registry(settings, gossip=self.gossip, journal=self._journal, deny=self._deny)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[Effect]:
        """Read the durable store, and make the new epoch durable before anything is said."""
        self._now_ns = now_ns
        # By the clock if the store was lost: a life that is over must never come later than this one.
        self.epoch = max(int(self._kept.get(_EPOCH, b"0")) + 1, now_ns // _EPOCHS_APART_NS)
        self._journal.store(_EPOCH, str(self.epoch).encode())
        self.is_ready = _READY in self._kept or not self.settings.neighbours
        for key in sorted(self._kept):
            self._restore(key, self._kept[key])
        self._kept.clear()
        self.carrier.epoch = self.epoch
        self._when_durable("alive")
        return self._finish()

    def _restore(self, key: str, value: bytes) -> None:
        kind, _, rest = key.partition("/")
        if kind == "event":
            self.carrier.restore(value, self._now_ns)
        elif kind == "seen":
            epoch, sequence, publisher = rest.split("/", 2)
            self.carrier.seen.add((publisher, int(epoch), int(sequence)), int(value))
        elif kind == "interest":
            said = wire.decode(value)
            if isinstance(said, wire.Interest):
                self.gossip.interests.restore(said, self._now_ns)
        elif kind in ("subscription", "advertisement"):
            self._client(self._registry.restore(kind, value)).heard_ns = self._now_ns

    def _come_alive(self) -> None:
        self._is_alive = True
        self.gossip.begin(self.epoch, self._now_ns)
        self._agenda.set(("refresh",), self._now_ns + self.settings.refresh_ns)
        if not self.is_ready:
            self._agenda.set(("ready",), self._now_ns + self.settings.ready_wait_ns)
        for connection in list(self._by_connection):
            self._on_connected(connection)
        for client in sorted(self.clients):
            self._agenda.set(("ping", "client", client), self._now_ns + self.settings.ping_ns)

    def bounds(self) -> Mapping[str, Bound]:
        """Everything that could grow, with its bound."""
        settings = self.settings
        found: dict[str, Bound] = {
            "stored": (len(self.carrier.held), settings.max_stored),
            "seen": (len(self.carrier.seen), settings.max_seen),
            "clients": (len(self.clients), settings.max_clients),
            "interests": (len(self.gossip.interests), settings.max_entries),
            "link states": (len(self.gossip.links), settings.max_origins),
        }
        for peer, most in [(peer, settings.max_queued) for peer in self.neighbours.values()] + [
            (peer, settings.max_queued_client) for peer in self.clients.values()
        ]:
            found[f"queue to {peer.name}"] = (peer.outbox.waiting, most)
            found[f"under way to {peer.name}"] = (peer.outbox.under_way, settings.window + 1)
        return found

    def view(self) -> View:
        """What routing goes by: links and interests as this broker knows them."""
        interests = self.gossip.interests
        wanted = {
            origin: frozenset((e.name, e.filter) for e in interests.entries(origin).values()) for origin in interests
        }
        own = self.gossip.local.told(covering=self.settings.covering)
        wanted[self.name] = frozenset((entry.name, entry.filter) for entry in own.values())
        return View(
            links=dict(self.gossip.links.links()),
            interests={origin: kept for origin, kept in wanted.items() if kept},
            routes=self.gossip.links.routes(),
        )

    # -- durability ----------------------------------------------------------------------------------------------

    def _when_durable(self, *what: Any) -> None:
        self._journal.when_durable(what)

    def _finish(self) -> list[Effect]:
        self._journal.finish_step()
        return super()._finish()

    def _on_synced(self, token: int) -> None:
        self._journal.synced(token)

    def _now_durable(self, what: tuple[Any, ...]) -> None:
        match what:
            case ("alive",):
                self._come_alive()
            case ("ack", peer, epoch, number, received_ns):
                if peer.epoch == epoch:
                    peer.inbox.acknowledge(number)
                    self._acknowledge(peer, number, self._now_ns - received_ns)
            case ("done", peer, kind, request, number):
                self._send(peer, wire.Done(kind, request, number))

    def _acknowledge(self, peer: Peer, number: int, held_ns: int) -> None:
        if peer.is_up:
            peer.credit_told = self._credit()
            self._send(peer, wire.Ack(peer.epoch, number, max(held_ns, 0), peer.credit_told))

    def _credit(self) -> int:
        """How many events a peer may have under way: none when the store is as good as full."""
        room = self.settings.max_stored - len(self.carrier.held)
        return min(self.settings.window, max(room - self.settings.window, 0))

    # -- connections ---------------------------------------------------------------------------------------------

    def _on_connected(self, connection: str) -> None:
        """Greet, and go on greeting until there is an answer."""
        if self._is_alive and connection in self._by_connection and self._by_connection[connection] is None:
            self._send_over(connection, self._greeting(wire.Hello))
            self._agenda.set(("greet", connection), self._now_ns + self.settings.ping_ns)

    def _greeting(self, kind: type[wire.Hello] | type[wire.Welcome]) -> wire.Hello | wire.Welcome:
        return kind(wire.VERSION, self.name, "broker", self.epoch, self._credit())

    def _on_disconnected(self, peer: Peer) -> None:
        peer.connection = None
        self._lose(peer, PeerStep.DISCONNECTED)

    def _lose(self, peer: Peer, step: PeerStep) -> None:
        was_up = peer.is_up
        peer.step(step)
        if was_up and peer.kind == "broker":
            self.gossip.tell_links(self._now_ns)
            self.carrier.reroute(self._now_ns)

    def _answers_errors(self, connection: str) -> bool:
        peer = self._by_connection.get(connection)
        return peer is None or peer.kind == "client"

    def _on_frame(self, connection: str, frame: bytes) -> None:
        if not self._is_alive:
            return
        if len(frame) > self.settings.max_frame_bytes:
            raise PeerError("too-long", f"a frame of {len(frame)} bytes: at most {self.settings.max_frame_bytes} here")
        message = wire.decode(frame)
        if isinstance(message, wire.Hello | wire.Welcome):
            self._on_greeting(connection, message)
            return
        peer = self._by_connection.get(connection)
        if peer is None or peer.connection != connection:
            if not isinstance(message, wire.Error):
                self._send_over(connection, self._greeting(wire.Hello))
            return
        if type(message) not in ALLOWED["broker", peer.kind]:
            raise PeerError("not-allowed", f"a {peer.kind} may not send {type(message).__name__} to a broker")
        peer.heard_ns = self._now_ns
        if not peer.is_up:
            self._send_over(connection, self._greeting(wire.Hello))
            return
        _HANDLERS[type(message)](self, peer, message)

    def _on_greeting(self, connection: str, said: wire.Hello | wire.Welcome) -> None:
        if said.name == self.name or (said.kind == "broker" and said.name not in self.settings.neighbours):
            raise PeerError("unknown", f"broker {said.name!r} is not a neighbour of {self.name!r}")
        before = self._by_connection.get(connection)
        if before is not None and (before.name, before.kind) != (said.name, said.kind):
            raise PeerError("identity", f"{before.name!r} cannot become {said.name!r} on one connection")
        peer = self._client(said.name) if said.kind == "client" else self._neighbour(said.name)
        if said.epoch < peer.epoch:
            return  # an old frame of a life that is over
        if peer.connection not in (None, connection):
            self._effects.append(Close(peer.connection, "another connection of the same name has replaced it"))
            self._by_connection.pop(peer.connection, None)
        is_new = not peer.is_up
        peer.connection = connection
        self._by_connection[connection] = peer
        if peer.state is PeerState.AWAY:
            peer.step(PeerStep.CONNECTED)
        peer.step(PeerStep.GREETED)
        is_new |= peer.greet(said.epoch)
        peer.heard_ns = self._now_ns
        peer.outbox.credit = said.credit
        if isinstance(said, wire.Hello):
            self._send_over(connection, self._greeting(wire.Welcome))
        if is_new:
            self._on_new_peer(peer)

    def _on_new_peer(self, peer: Peer) -> None:
        self._agenda.set(("ping", peer.kind, peer.name), self._now_ns)
        peer.outbox.hasten(self._now_ns)
        self._set_retry(peer)
        if peer.kind == "client":
            self.carrier.deliver_waiting(peer.name, self._now_ns)
            self.carrier.pump(peer, self._now_ns)
        else:
            self.gossip.tell_links(self._now_ns)
            self.gossip.exchange(peer, self._now_ns)
            self.carrier.reroute(self._now_ns)

    def _up_neighbours(self) -> list[Peer]:
        return [peer for _, peer in sorted(self.neighbours.items()) if peer.is_up]

    def _neighbour(self, name: str) -> Peer:
        if name not in self.neighbours:
            self.neighbours[name] = Peer(name, "broker", self._outbox(self.settings.max_queued))
        return self.neighbours[name]

    def _client(self, name: str) -> Peer:
        if name not in self.clients:
            if len(self.clients) >= self.settings.max_clients:
                raise PeerError("too-many", f"broker {self.name!r} serves {self.settings.max_clients} clients already")
            self.clients[name] = Peer(name, "client", self._outbox(self.settings.max_queued_client))
        return self.clients[name]

    def _outbox(self, max_queued: int) -> Outbox:
        settings = self.settings
        return Outbox(
            strategy=settings.strategy,
            processing_s=settings.processing_s,
            window=settings.window,
            max_queued=max_queued,
            retry_least_ns=settings.retry_least_ns,
            retry_most_ns=settings.retry_most_ns,
        )

    # -- time ----------------------------------------------------------------------------------------------------

    def _on_task(self, task: Hashable) -> None:
        match task:
            case ("ping", kind, name):
                self._on_ping_time((self.neighbours if kind == "broker" else self.clients).get(str(name)))
            case ("retry", kind, name):
                peer = (self.neighbours if kind == "broker" else self.clients).get(str(name))
                if peer is not None and peer.is_up:
                    self.carrier.resend(peer, self._now_ns)
                    self.carrier.pump(peer, self._now_ns, probing=not peer.outbox.under_way)
                    self._set_retry(peer)
            case ("greet", connection):
                self._on_connected(str(connection))
            case ("refresh",):
                if self.gossip.forget_old(self._now_ns):
                    self.carrier.reroute(self._now_ns)
                self.gossip.refresh(self._now_ns)
                self._agenda.set(task, self._now_ns + self.settings.refresh_ns)
            case ("ask",):
                self.gossip.ask_again()
                if self.gossip.asked:
                    self._agenda.set(task, self._now_ns + self.settings.retry_most_ns // 2)
            case ("expire",):
                self.carrier.expire(self._now_ns)
            case ("ready",):
                self._become_ready()

    def _on_ping_time(self, peer: Peer | None) -> None:
        if peer is None:
            return
        settings = self.settings
        silence_ns = settings.silence_ns if peer.kind == "broker" else settings.silence_client_ns
        if peer.is_up and self._now_ns - peer.heard_ns > silence_ns:
            self._lose(peer, PeerStep.SILENT)
        if peer.kind == "client" and self._now_ns - peer.heard_ns > settings.client_timeout_ns:
            self._forget_client(peer)
            return
        if peer.connection is not None:
            rtt_ns = int(min(peer.meter.rtt_ns, wire.LONGEST_NS))
            self._send(
                peer,
                wire.Ping(self._now_ns, rtt_ns, self.gossip.digest()) if peer.is_up else self._greeting(wire.Hello),
            )
        if peer.is_up and peer.credit_told < self.settings.window and self._credit() > peer.credit_told:
            peer.credit_told = self._credit()
            self._send(peer, wire.Credit(peer.credit_told))
        again_ns = settings.ping_ns if peer.kind == "broker" else settings.ping_client_ns
        self._agenda.set(("ping", peer.kind, peer.name), self._now_ns + again_ns)

    def _set_retry(self, peer: Peer) -> None:
        due_ns = peer.outbox.next_due_ns
        if due_ns is None and peer.outbox.waiting:
            due_ns = self._now_ns + self.settings.probe_ns
        if due_ns is not None:
            self._retry_at(peer, due_ns)

    def _retry_at(self, peer: Peer, at_ns: int) -> None:
        self._agenda.advance(("retry", peer.kind, peer.name), at_ns)

    def _expire_at(self, at_ns: int) -> None:
        self._agenda.advance(("expire",), at_ns)

    def _become_ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self._journal.store(_READY, b"")
            self._agenda.cancel(("ready",))

    def _forget_client(self, peer: Peer) -> None:
        """A client that has not been heard of for too long is gone."""
        self.carrier.forget_client(peer.name)
        self._registry.forget(peer.name)
        del self.clients[peer.name]
        if peer.connection is not None:
            self._by_connection[peer.connection] = None

    # -- what peers say ------------------------------------------------------------------------------------------

    def _on_transfer(self, source: Peer, said: wire.Transfer) -> None:
        if self._is_new_transfer(source, said.session, said.number, said.floor):
            self._take(source, said.number, self.carrier.transfer, source, said, self._now_ns)

    def _on_publish(self, source: Peer, said: wire.Publish) -> None:
        if not self.is_ready:
            self._count("not ready")
        elif self._is_new_transfer(source, said.session, said.number, said.floor):
            try:
                matched = self._match(source, wire.decode_content(said.content).attributes)
            except (EventError, PeerError) as error:
                code = error.code if isinstance(error, PeerError) else "content"
                self._deny(source, "publish", str(said.sequence), said.number, PeerError(code, str(error)))
                return
            self._note("accepted", (source.name, source.epoch, said.sequence))
            self._take(source, said.number, self.carrier.publish, source, said, matched, self._now_ns)

    def _match(self, source: Peer, attributes: Mapping[str, object]) -> dict[str, list[wire.Entry]]:
        """By home broker, this one included: the subscriptions that want an event of this client."""
        self._registry.require_advertised(source.name, attributes)
        matched = self.gossip.interests.match(attributes)
        here = [entry for entries in self.gossip.local.match(attributes).values() for entry in entries]
        if here:
            matched[self.name] = here
        return matched

    def _is_new_transfer(self, source: Peer, session: int, number: int, floor: int) -> bool:
        """Whether a transfer has to be taken on; one that was is acknowledged again."""
        if session != source.epoch:
            return False
        known = source.inbox.look(number, floor)
        if known == "acknowledged":
            self._acknowledge(source, number, 0)
        elif known == "new" and not self.carrier.has_room:
            self._count("no room")
            return False
        return known == "new"

    def _take(self, source: Peer, number: int, take_on: Any, *what: Any) -> None:
        """Take an event on, and acknowledge it when it is durable."""
        take_on(*what)
        source.inbox.take(number)
        self._when_durable("ack", source, source.epoch, number, self._now_ns)

    def _on_ack(self, source: Peer, said: wire.Ack) -> None:
        source.outbox.credit = said.credit
        if said.session == self.epoch:
            self.carrier.acknowledged(source, said.number, said.held_ns, self._now_ns)

    def _on_credit(self, source: Peer, said: wire.Credit) -> None:
        source.outbox.credit = said.credit
        self.carrier.pump(source, self._now_ns)

    def _on_link_state(self, source: Peer, said: wire.LinkState) -> None:
        if self.gossip.on_link_state(said, source, self._now_ns):
            self.carrier.reroute(self._now_ns)

    def _on_interest(self, source: Peer, said: wire.Interest) -> None:
        self.gossip.on_interest(said, source, self._now_ns)
        if self.gossip.asked:
            self._agenda.advance(("ask",), self._now_ns + self.settings.retry_most_ns // 2)

    def _on_ask(self, source: Peer, said: wire.Ask) -> None:
        self.gossip.on_ask(said, source, self._now_ns)

    def _on_done(self, source: Peer, said: wire.Done) -> None:  # noqa: ARG002
        if said.kind == "exchange" and not self.gossip.asked:
            self._become_ready()

    def _on_ping(self, source: Peer, said: wire.Ping) -> None:
        self._send(source, wire.Pong(said.sent_ns))
        self.gossip.compare(source, said.digest, self._now_ns)

    def _on_pong(self, source: Peer, said: wire.Pong) -> None:
        source.meter.note_round_trip(self._now_ns - said.sent_ns)

    def _on_error(self, source: Peer, said: wire.Error) -> None:  # noqa: ARG002
        self._count(f"told {said.code}"[:80])

    def _on_request(self, source: Peer, said: wire.Request) -> None:
        """Carry out a request of this life that is newer than all before; others are old copies."""
        if said.life == self.epoch and said.number > source.request:
            source.request = said.number
            self._registry.handle(source, said)

    def _deny(self, source: Peer, kind: str, name: str, number: int, error: PeerError) -> None:
        self.refused[error.code] += 1
        self._send(source, wire.Error(error.code, str(error)[:4096], kind, name, number))

    def _count(self, what: str) -> None:
        self.counts[what] += 1


_HANDLERS: Final[dict[type, Any]] = {
    wire.Transfer: Broker._on_transfer,
    wire.Publish: Broker._on_publish,
    wire.Ack: Broker._on_ack,
    wire.Credit: Broker._on_credit,
    wire.LinkState: Broker._on_link_state,
    wire.Interest: Broker._on_interest,
    wire.Ask: Broker._on_ask,
    wire.Done: Broker._on_done,
    wire.Ping: Broker._on_ping,
    wire.Pong: Broker._on_pong,
    wire.Error: Broker._on_error,
    wire.Subscribe: Broker._on_request,
    wire.Unsubscribe: Broker._on_request,
    wire.Advertise: Broker._on_request,
    wire.Unadvertise: Broker._on_request,
}
