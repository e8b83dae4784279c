"""A broker: one node of the overlay, as a state machine without I/O.

It greets neighbours and clients (`_doorway`), exchanges its knowledge with other brokers (`_gossip`), takes on events
and holds them (`_entrance`, `_carrier`), lets clients depart (`_departures`), and looks for better homes for publishers
(`_coordinator`). Besides events, its durable store holds its epoch, the subscriptions and advertisements of its
clients, the clients that have moved away, and what it knows of the subscriptions at other brokers. A broker that starts
from its store continues where it was. The epoch of a new incarnation is durable before the first frame is sent, so no
two incarnations share a number.

A broker accepts events of clients when it is *ready* (`_recovery`). Until then events are not acknowledged, and
publishers send them again.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, get_args

import msgspec

from tidings.protocol import wire
from tidings.protocol._effects import Acknowledged, Close, Effect, HandedOver, Heard, Note, NoteKind
from tidings.protocol._errors import PeerError, known_code
from tidings.protocol._machine import Bound
from tidings.protocol._rights import Rights
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import PeerStep
from tidings.protocol._trace_context import TraceContext
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._carrier import Carrier, Hooks
from tidings.protocol.broker._copies import COPY, Copies, KeptCopy
from tidings.protocol.broker._departures import Departures
from tidings.protocol.broker._doorway import Doorway
from tidings.protocol.broker._entrance import Entrance
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._journal import Journal
from tidings.protocol.broker._ledgers import MAX_ROWS, Ledgers
from tidings.protocol.broker._newcomers import Newcomers
from tidings.protocol.broker._recovery import EPOCH, Readiness, recover_clients
from tidings.protocol.broker._registry import Registry
from tidings.protocol.broker._router import Parked
from tidings.protocol.broker._view import Subscribers, View, bounds_of_queues, subscribers_at, view_of
from tidings.protocol.links._peers import Peer, Peers, Ports
from tidings.protocol.relocation._coordinator import Coordinator, RelocationMessage
from tidings.protocol.relocation._moves import MovesView

__all__ = ["Broker"]

_EVENT: Final = "event/"
_SEEN: Final = "seen/"
_EPOCHS_SKIPPED: Final = 1_000_000
"""If other brokers know of a later epoch than the stored one, the new epoch is this much later: there may have been
more."""
_ANSWER_NS: Final = 10_000_000
"""The next part of a long answer is sent this much later, if the link takes it."""
_LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "full": {
        "why": "a queue to a client or a neighbour is full: the least valuable event in it was dropped",
        "remedy": "see `queued` of the status; have the slow client read faster or raise [limits] queued_client",
    },
    "no room": {
        "why": "the store is full: publishers have to wait",
        "remedy": "see `stored` of the status; raise [limits] stored, or find the client that does not take its events",
    },
    "seen forgotten": {
        "why": "more events were delivered than can be remembered: a duplicate of an old one could be delivered",
        "remedy": "raise [limits] seen",
    },
    "departure forgotten": {
        "why": "more clients have moved away than can be remembered: later events for the first ones are dropped",
        "remedy": "look for clients that move again and again",
    },
    "ledger forgotten": {
        "why": "more reports to other brokers wait than can be kept: accounts there show losses that did not happen",
        "remedy": "bring back the brokers that are out of reach",
    },
    "another's name": {
        "why": "a client with another key uses the name of a client of this broker elsewhere, and gets no events",
        "remedy": "give the client its former secret, or another name",
    },
}
"""For each counter of something that is bounded: the consequence of reaching the bound, and the remedy."""
_HASTY_PING_NS: Final = 25_000_000
_HASTE: Final = 3
"""After a greeting, pings are sent at 0, 25, 100, 400 ms and so on, until they are as far apart as the settings say."""


class Broker(Doorway):
    """One broker; `kept` is the content of its durable store at the start."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings)
        self._kept = dict(kept or {})
        self._journal = Journal(emit=self._emit, perform=self._now_durable)
        self.gossip = Gossip(
            settings,
            send=self._send,
            send_all=self._send_all,
            neighbours=self._up_neighbours,
            store=self._journal.store,
            erase=self._journal.erase,
            refused=self.refused,
        )
        self._ledgers = Ledgers(
            settings,
            gossip=self.gossip,
            next_hop_to=self._next_hop_to,
            send=self._send,
            count=self._count,
            now_ns=lambda: self._now_ns,
            wake_at=self._timer("accounts"),
        )
        self.accounts = Accounts(
            settings,
            self._ledgers,
            local=self.gossip.local,
            now_ns=lambda: self._now_ns,
            wake_at=self._timer("accounts"),
        )
        self.registry = Registry(
            settings,
            gossip=self.gossip,
            accounts=self.accounts,
            journal=self._journal,
            now_ns=lambda: self._now_ns,
            deny=self._deny,
            spend=self._note_reading,
        )
        self.newcomers = Newcomers(settings.name, gossip=self.gossip, clients=self.clients, forward=self._forward)
        self._readiness = Readiness(settings, self._kept, gossip=self.gossip, journal=self._journal)
        ports = Ports(self._send, self._send_events, self._note, self._choice, self._count)
        self._add_event_parts(settings, Peers(self.neighbours, self.clients), ports)

    def _add_event_parts(self, settings: BrokerSettings, peers: Peers, ports: Ports) -> None:
        """Make the parts that handle events."""
        has_copies = settings.copies > 1
        self.carrier = Carrier(
            settings,
            gossip=self.gossip,
            accounts=self.accounts,
            peers=peers,
            ports=ports,
            journal=self._journal,
            hooks=Hooks(
                expire_at=self._timer("expire"),
                retry_at=self._retry_at,
                traced=lambda *what: self.coordinator.taken(*what),
                on_kept=(lambda held: self.copies.put(held)) if has_copies else None,
                on_gone=(lambda id: self.copies.release(id)) if has_copies else None,
            ),
        )
        self.copies = Copies(
            settings,
            held=self.carrier.holdings.held,
            neighbours=peers.neighbours,
            ports=ports,
            journal=self._journal,
            when_durable=self._when_durable,
            adopt=self._adopt,
            wake_in=self._look_at_copies_in,
        )
        self.coordinator = Coordinator(
            settings,
            peers=peers,
            ports=ports,
            links=self.gossip.links,
            now_ns=lambda: self._now_ns,
            wake_at=self._timer("survey"),
        )
        self.departures = Departures(
            settings,
            gossip=self.gossip,
            carrier=self.carrier,
            registry=self.registry,
            journal=self._journal,
            count=self._count,
            tidy_at=self._timer("tidy"),
        )
        self._entrance = Entrance(
            settings,
            carrier=self.carrier,
            registry=self.registry,
            coordinator=self.coordinator,
            ports=ports,
            deny=self._deny,
            when_durable=self.copies.after,
        )

    def _timer(self, task: str) -> Callable[[int], None]:
        """A function that schedules this task, at the latest at the given time."""
        return partial(self._agenda.advance, (task,))

    # -- start and recovery --------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the broker accepts events of clients: its epoch is durable, and it knows who wants them."""
        return self._is_alive and self._readiness.is_ready

    @property
    def published(self) -> int:
        """How many events of clients this broker has accepted since it started."""
        return self._entrance.published

    def record(self, share: float) -> None:
        """Note what happens to this share of the events for profiles, from now on."""
        self._choice.record(share)

    def mend(self, damaged: Sequence[str]) -> list[Effect]:
        """Continue without these records (`_recovery`)."""
        self._readiness.mend(damaged)
        return self._finish()

    def start(self, now_ns: int) -> list[Effect]:
        """Read the durable store, and make the new epoch durable before anything is sent."""
        self._now_ns = self._born_ns = now_ns
        self.epoch = self._readiness.begin(now_ns)
        self._restore(self._kept)
        self._kept.clear()
        self.carrier.dispatch.epoch = self.epoch
        self._when_durable("alive")
        return self._finish()

    def _recover(self) -> None:
        """Restore the clients that other brokers know of, and ask the neighbours for their events."""
        recover_clients(self.gossip, self.registry, self.departures, self._recover_client, self._now_ns)
        for peer in self.clients.values():
            self.registry.bind(peer)
        self.carrier.courses.forget()
        self.gossip.renew_version()
        for peer in self._up_neighbours():
            self.gossip.exchange(peer, self._now_ns)
            self._ask_for_copies(peer)

    def _recover_client(self, client: str, key: bytes = b"") -> bool:
        """Enter a client of this broker that others know of; whether there is room for it."""
        try:
            peer = self._client(client)
        except PeerError:
            return False
        peer.heard_ns, peer.key = self._now_ns, key or peer.key
        self._agenda.advance(("ping", "client", client), self._now_ns + self.settings.ping_ns)
        return True

    def _ask_for_copies(self, peer: Peer) -> None:
        if self._readiness.lacks_events(self._now_ns) and peer.version >= wire.COPIES_FROM:
            self._send(peer, wire.Recover(self.epoch))

    def _adopt(self, owner: str, copy: KeptCopy) -> None:
        """Take on an event that another broker has lost or left behind."""
        facts = (copy.targets, copy.since_ns, copy.lifetime_ns, copy.error_ns)
        try:
            self.carrier.transfer(owner, copy.event, *facts, self._now_ns, is_restored=True)
        except PeerError as error:
            self.refused[error.code] += 1

    def _on_later_epoch(self, epoch: int) -> None:
        """Begin a later epoch.

        This one came from a clock that was set back, after the store with the last epoch was lost. The new epoch is
        durable before any peer learns of it, and all peers are greeted again.
        """
        self._count("outlived")
        self.epoch = epoch + _EPOCHS_SKIPPED
        self._journal.store(EPOCH, str(self.epoch).encode())
        self._is_alive = False
        for connection, peer in list(self._by_connection.items()):
            self._emit(Close(connection, "the broker begins a later epoch"))
            del self._by_connection[connection]
            if peer is not None and peer.connection == connection:
                self._on_disconnected(peer)
        self.carrier.dispatch.epoch = self.epoch
        self._when_durable("alive")

    def _last_epoch_heard(self, peer: Peer) -> int:
        if peer.kind == "client":
            return -1
        return max(self.gossip.interests.epoch_of(peer.name), self.gossip.links.epoch_of(peer.name))

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        """Restore the store: events all together, because they are many; other records one by one, in the order of
        their keys."""
        events = {key: value for key, value in kept.items() if key.startswith(_EVENT)}
        others = [key for key in kept if not key.startswith(_EVENT)]
        seen = [(key[len(_SEEN) :], kept[key]) for key in others if key.startswith(_SEEN)]
        for key in sorted(key for key in others if not key.startswith(_SEEN)):
            self._restore_one(*key.partition("/")[::2], kept[key])
        self.carrier.restore(events, seen, self._now_ns)

    def _restore_one(self, kind: str, name: str, value: bytes) -> None:
        if kind in ("interest", "wanted"):
            self.gossip.restore(kind, value, self._now_ns)
        elif kind == COPY:
            self.copies.restore(value)
        elif kind in ("departed", "left"):
            self.departures.restore(kind, value)
        elif kind in ("subscription", "advertisement"):
            self._client(self.registry.restore(kind, value)).heard_ns = self._now_ns
        elif kind == "came":
            self.registry.restore_arrival(name, value)
        elif kind == "identity":
            client = self._client(name)
            client.heard_ns = self._now_ns
            self.registry.restore_key(client, value)

    def _come_alive(self) -> None:
        self._is_alive = True
        self.departures.begin(self._now_ns)
        self.gossip.begin(self.epoch, self._now_ns)
        self.accounts.begin(self.epoch)
        self.copies.begin(self.epoch, self._now_ns)
        self._agenda.set(("refresh",), self._now_ns + self.settings.refresh_ns)
        if not self.is_ready:
            self._agenda.set(("ready",), self._now_ns + self.settings.ready_wait_ns)
        self._readiness.alive_ns = self._now_ns
        self.newcomers.learn()
        for connection in list(self._by_connection):
            self._on_connected(connection)
        for client in sorted(self.clients):
            self._agenda.set(("ping", "client", client), self._now_ns + self.settings.ping_ns)
        self._reroute()
        self._read_later()

    def _read_later(self) -> None:
        if self.carrier.is_reading:
            self._agenda.set(("read",), self._now_ns + self.settings.read_pause_ns)

    def parked(self) -> dict[str, Parked]:
        """By unreachable broker: the events that wait here until it is back."""
        return self.carrier.router.parked(self._now_ns)

    def last_epoch(self, client: str, key: bytes | None = None) -> int:
        """The latest known epoch of a client; -1 if there is none.

        An incarnation without a key may have been anybody's, and does not bind the first one that has a key.
        """
        peer = self.clients.get(client)
        if key and peer is not None and peer.key != key:
            return -1
        return max(-1 if peer is None else peer.epoch, self.departures.last_epoch(client))

    def keys_of(self, client: str) -> Collection[bytes] | None:
        """The keys that a client's name is bound to: here, or else at any other broker; None if that is not known
        yet."""
        if self.gossip.is_recovering:
            return None
        peer = self.clients.get(client)
        if peer is not None and peer.key:
            return (peer.key,)
        departed = self.gossip.local.key_of(client)
        return self.gossip.interests.keys_of(client).values() or ((departed,) if departed else ())

    def restrict(self, rights_of: Callable[[str], Rights | None], now_ns: int) -> list[Effect]:
        """Apply new rights: requests of clients that are no longer allowed end."""
        self._now_ns = now_ns
        for client in list(self.clients.values()):
            rights = rights_of(client.name)
            if rights is not None:
                self.registry.restrict(client, rights)
            client.rights = rights
        return self._finish()

    def bounds(self) -> Mapping[str, Bound]:
        """Everything that could grow, with its bound."""
        found = self._bounds_of_tables()
        for peer, bounds in bounds_of_queues(self.settings, self.neighbours, self.clients):
            found.update((f"{what} to {peer}", bound) for what, bound in bounds.items())
        return found

    def is_within_bounds(self) -> bool:
        """Whether nothing has outgrown its bound: the answer of `bounds`, without naming every queue."""
        if any(size > bound for size, bound in self._bounds_of_tables().values()):
            return False
        queues = bounds_of_queues(self.settings, self.neighbours, self.clients)
        return not any(size > most for _, bounds in queues for size, most in bounds.values())

    def _bounds_of_tables(self) -> dict[str, Bound]:
        settings = self.settings
        return {
            "stored": (len(self.carrier.holdings), settings.max_stored),
            "stored bytes": (self.carrier.holdings.size_bytes, settings.max_stored_bytes + settings.max_frame_bytes),
            "seen": (len(self.carrier.memory), settings.max_seen),
            "clients": (len(self.clients), settings.max_clients),
            "departures": (len(self.departures), settings.max_departures),
            "traces": (len(self.coordinator), settings.max_traces),
            "interests": (len(self.gossip.interests), settings.max_entries_elsewhere),
            "interests under way": (self.gossip.under_way, settings.max_entries_elsewhere),
            "link states": (len(self.gossip.links), settings.max_origins),
            "ledgers": (len(self._ledgers), MAX_ROWS),
            "copies": (self.copies.kept, settings.max_stored),
        }

    def view(self) -> View:
        """The links and subscriptions that routing uses, as this broker knows them."""
        return view_of(self.gossip, self.settings)

    def moves(self) -> MovesView:
        """The moves of this broker's clients."""
        return self.coordinator.moves.view(self._now_ns)

    def subscribers_at(self, broker: str) -> Subscribers:
        """The subscriptions at another broker, whether or not it is reachable."""
        return subscribers_at(self.gossip.interests, broker)

    def _reroute(self) -> None:
        """Adapt to a change of the overlay."""
        self.departures.on_change(self._now_ns)
        self.carrier.router.reroute(self._now_ns)
        self._ledgers.repeat()
        self.newcomers.notify()

    def _on_rewired(self) -> None:
        self.coordinator.rewire(self.settings.neighbours)
        self.gossip.replan(self.settings.graph)
        self.carrier.courses.forget()
        for owner in self.copies.owners():
            if self.settings.graph and owner not in self.settings.graph:
                self.copies.recover(owner, self._now_ns)
        self._reroute()

    def ask_to_move(self, client: str, target: str, now_ns: int) -> tuple[bool, list[Effect]]:
        """Ask a client to make another broker its home; whether it is connected."""
        self._now_ns = now_ns
        is_asked = self.coordinator.ask_to_move(client, target, by="order")
        return is_asked, self._finish()

    # -- durability ----------------------------------------------------------------------------------------------

    def _when_durable(self, *what: Any) -> None:
        self._journal.when_durable(what)

    def _finish(self) -> list[Effect]:
        if self.gossip.local.touched and self._is_alive and not self.gossip.is_recovering:
            self.gossip.announce_interests()  # once for all requests of this step
        if self.carrier.is_stirred or self._entrance.is_stirred:
            self.carrier.straight.flush(self._now_ns)
            self._entrance.flush()
            self.carrier.dispatch.flush(self._now_ns)
        if self.copies.is_stirred:
            self.copies.flush(self._now_ns)
        if self._journal.unsynced:
            self._journal.finish_step()
        return super()._finish()

    def _on_synced(self, token: int) -> None:
        self._journal.synced(token)

    def _now_durable(self, what: tuple[Any, ...]) -> None:
        match what:
            case ("alive",):
                self._come_alive()
            case ("ack", peer, epoch, numbers, received_ns):
                self._entrance.acknowledge(peer, epoch, numbers, self._now_ns - received_ns)
            case ("copied", peer, epoch, first, last):
                if peer.epoch == epoch:
                    self._send(peer, wire.Copied(epoch, first, last))
            case ("done", peer, kind, request, number):
                self._send(peer, wire.Done(kind, request, number))
            case ("departed", peer, number):
                self._send(peer, wire.MigrationComplete(number))

    # -- connections ---------------------------------------------------------------------------------------------

    def _on_disconnected(self, peer: Peer) -> None:
        peer.connection = None
        self._lose(peer, PeerStep.DISCONNECTED)
        # A client that has moved away, or has requested nothing, leaves nothing to remember.
        may_be_forgotten = peer.name in self.departures or not peer.has_asked
        if peer.kind == "client" and not self.registry.knows(peer.name):
            if may_be_forgotten:
                self._forget_client(peer)
            elif peer.key:  # nothing is kept for it: the name is free again
                peer.key = b""
                self.registry.bind(peer)

    def _on_uncongested(self, peer: Peer) -> None:
        if peer is self.copies.keeper:
            self.copies.flush(self._now_ns)
        if peer.name in self.gossip.unanswered:
            self.gossip.answer(peer, self._now_ns)
            self._answer_on(peer)
        self.carrier.dispatch.pump(peer, self._now_ns)
        self._set_retry(peer)

    def _lose(self, peer: Peer, step: PeerStep) -> None:
        was_up = peer.is_up
        peer.step(step)
        if peer.kind == "client":
            self.clients_up.discard(peer.name)
        if was_up and peer.kind == "broker":
            silent_s = (self._now_ns - peer.heard_ns) * 1e-9
            is_silent = step is PeerStep.SILENT
            why = f"it has been silent for {silent_s:.1f} s" if is_silent else "the connection was lost"
            self._emit(Heard(peer.name, False, why))
            self.gossip.unanswered.pop(peer.name, None)
            self.gossip.announce_links(self._now_ns)
            self.copies.lost(peer, self._now_ns)
            self._reroute()

    def _on_bound(self, peer: Peer) -> None:
        self.registry.bind(peer)

    def _credit(self) -> int:
        return self._entrance.credit("broker")

    def _on_message(self, source: Peer, message: wire.Message) -> None:
        _HANDLERS[type(message)](self, source, message)

    def _on_new_peer(self, peer: Peer) -> None:
        peer.greeted_ns = self._now_ns
        self.carrier.courses.forget()
        self._on_ping_time(peer)  # before any event: the peer does not know our clock yet
        self._entrance.acknowledge_again(peer)
        if self.carrier.dispatch.conflation.applies_to(peer):
            self.carrier.read_on(self._now_ns)  # what is not read yet may be newer than what is
        self.carrier.dispatch.renew(peer, self._now_ns)  # before newer events
        self._set_retry(peer)
        if peer.kind == "client":
            self.registry.report_denied(peer)
            self.carrier.router.deliver_waiting(peer.name, self._now_ns)
            self.carrier.dispatch.pump(peer, self._now_ns)
        else:
            self._emit(Heard(peer.name, True))
            self.gossip.announce_links(self._now_ns)
            self.gossip.exchange(peer, self._now_ns)
            self.copies.greeted(peer, self._now_ns)
            self._ask_for_copies(peer)
            self._reroute()

    def _on_greeted_again(self, peer: Peer) -> None:
        self._entrance.acknowledge_again(peer)
        if peer.kind == "broker":
            self.copies.greeted(peer, self._now_ns)

    # -- time ----------------------------------------------------------------------------------------------------

    def _on_task(self, task: Hashable) -> None:
        match task:
            case ("ping", kind, name):
                self._on_ping_time((self.neighbours if kind == "broker" else self.clients).get(str(name)))
            case ("retry", kind, name):
                peer = (self.neighbours if kind == "broker" else self.clients).get(str(name))
                if peer is not None and peer.is_up and not peer.outbox.is_empty and not peer.outbox.is_congested:
                    self.carrier.dispatch.resend(peer, self._now_ns)
                    probing = peer.outbox.is_probe_due(self._now_ns, self.settings.probe_ns)
                    self.carrier.dispatch.pump(peer, self._now_ns, probing=probing)
                    self.carrier.dispatch.overtake(peer, self._now_ns)
                    self._set_retry(peer)
            case ("greet", connection):
                self._on_connected(str(connection))
            case ("refresh",):
                if self.gossip.forget_old(self._now_ns):
                    self._reroute()
                self.gossip.refresh(self._now_ns)
                self.newcomers.notify()
                self._agenda.set(task, self._now_ns + self.settings.refresh_ns)
            case ("ask",):
                self.gossip.ask_again(self._now_ns)
                self._follow_up()
            case ("answer", name):
                peer = self.neighbours.get(str(name))
                if peer is not None:
                    self.gossip.answer(peer, self._now_ns)
                    self._answer_on(peer)
            case ("expire",):
                self.carrier.expire(self._now_ns)
            case ("accounts",):
                self.accounts.tick()
            case ("read",):
                self.carrier.read_on(self._now_ns, self.settings.read_at_once)
                self._read_later()
            case ("ready",):
                self._stop_waiting()
            case ("tidy",):
                self.departures.tidy(self._now_ns)
            case ("copies",):
                self.copies.look(self._now_ns)
            case ("survey",):
                self.coordinator.on_time(self._now_ns)

    def _on_ping_time(self, peer: Peer | None) -> None:
        if peer is None:
            return
        settings = self.settings
        silence_ns = settings.silence_ns if peer.kind == "broker" else settings.silence_client_ns
        if peer.is_up and self._now_ns - peer.heard_ns > silence_ns:
            self._lose(peer, PeerStep.SILENT)
        if peer.kind == "client" and self._now_ns - peer.heard_ns > settings.client_timeout_ns:
            self._remark(
                "client forgotten",
                peer.name,
                peer=peer.name,
                why=f"it was away for {settings.client_timeout_ns * 1e-9:g} s",
                subscriptions=len(self.gossip.local.of(peer.name)),
                remedy="nothing is kept for it any more: when it is back, it subscribes again",
            )
            self._forget_client(peer)
            return
        if peer.connection is not None:
            self._send(peer, self._ping(peer) if peer.is_up else self._hello(peer.version))
        self._entrance.send_credit(peer)
        again_ns = settings.ping_ns if peer.kind == "broker" else settings.ping_client_ns
        # Frequently at first: nothing is known of the link yet, and a single ping may be delayed.
        hasty_ns = max(_HASTY_PING_NS, _HASTE * (self._now_ns - peer.greeted_ns))
        self._agenda.set(("ping", peer.kind, peer.name), self._now_ns + min(again_ns, hasty_ns))

    def _ping(self, peer: Peer) -> wire.Ping:
        """A ping that carries the measurements of this end of the link, for the other end."""
        rtt_ns = int(min(peer.meter.rtt_ns or 0.0, wire.LONGEST_NS))
        ahead_ns = peer.meter.ahead_ns
        yours_ns = None if ahead_ns is None else min(max(self._now_ns + ahead_ns, 0), wire.LATEST_NS)
        error_ns = peer.meter.error_ns(self._now_ns) or 0
        if peer.record:
            peer.record = min(peer.record, self.gossip.longest_record)
        return wire.Ping(self._now_ns, rtt_ns, self.gossip.digest(), yours_ns, error_ns, peer.record)

    def _set_retry(self, peer: Peer) -> None:
        due_ns = peer.outbox.window.next_due_ns
        if due_ns is None and peer.outbox.queued:
            due_ns = self._now_ns + self.settings.probe_ns
        if due_ns is not None:
            self._retry_at(peer, due_ns)

    def _retry_at(self, peer: Peer, at_ns: int) -> None:
        self._agenda.advance(("retry", peer.kind, peer.name), at_ns)

    def _look_at_copies_in(self, delay_ns: int) -> None:
        self._agenda.advance(("copies",), self._now_ns + delay_ns)

    def _stop_waiting(self) -> None:
        """Become ready, unless subscriptions elsewhere are still being received."""
        if self._readiness.must_wait(self._now_ns):
            self._agenda.set(("ready",), self._now_ns + self.settings.ready_wait_ns)
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        if not self._readiness.is_ready:
            self._readiness.is_ready = True
            if self.gossip.is_recovering:
                self._recover()
            self._readiness.store()
            self._agenda.cancel(("ready",))

    def _forget_client(self, peer: Peer) -> None:
        """Forget a client that has been away for too long."""
        self.carrier.forget_client(peer.name, self._now_ns)
        self.coordinator.forget(peer.name)
        self.coordinator.moves.forget(peer.name, self._now_ns)
        self.registry.forget(peer.name)
        self.departures.keep_key(peer.name)
        del self.clients[peer.name]
        self.clients_up.discard(peer.name)
        self._laden.pop(peer.name, None)
        self._has_forgotten = True
        self.carrier.courses.forget()
        if peer.connection is not None:
            self._by_connection[peer.connection] = None

    # -- messages ------------------------------------------------------------------------------------------------

    def _on_transfer(self, source: Peer, message: wire.Transfer) -> None:
        self.events_in += len(message.events)
        if not self._is_draining and not self.gossip.is_recovering:
            self._entrance.transfer(source, message, self._now_ns)

    def _on_publish(self, source: Peer, message: wire.Publish) -> None:
        self.events_in += len(message.events)
        if self.is_ready and not self._is_draining:
            before = source.record
            self._entrance.publish(source, message, self._now_ns)
            if source.record > before:
                self._send(source, self._ping(source))  # a subscriber wants order: report that at once
        else:
            self._count("not ready")

    def _on_ack(self, source: Peer, message: wire.Ack) -> None:
        source.outbox.credit = message.credit
        if message.session == self.epoch:
            if self._choice.is_any:
                self._emit(Acknowledged(source.name, message.numbers, message.held_ns))
            if message.outcomes:
                self._on_report(source, message.outcomes)
            self.carrier.dispatch.acknowledged(source, message, self._now_ns)

    def _on_credit(self, source: Peer, message: wire.Credit) -> None:
        source.outbox.credit = message.credit
        self.carrier.dispatch.pump(source, self._now_ns)

    def _on_link_state(self, source: Peer, message: wire.LinkState) -> None:
        if self.gossip.on_link_state(message, source, self._now_ns):
            self._reroute()

    def _on_interest(self, source: Peer, message: wire.Interest) -> None:
        self.accounts.prepare()
        self.gossip.on_interest(message, source, self._now_ns)
        self._follow_up()

    def _on_interest_part(self, source: Peer, message: wire.InterestPart) -> None:
        self.accounts.prepare()
        self.gossip.on_part(message, source, self._now_ns)
        self._follow_up()

    def _follow_up(self) -> None:
        """Set the timer of the next question; when all answers have arrived, the broker may be ready."""
        self._ledgers.end()
        self.newcomers.learn()
        ask_ns = self.gossip.next_ask_ns
        if ask_ns is not None:
            self._agenda.advance(("ask",), ask_ns)
        elif not self._readiness.is_ready and self._readiness.is_complete(self.settings.neighbours):
            self._become_ready()

    def _on_ask(self, source: Peer, message: wire.Ask) -> None:
        self.gossip.on_ask(message, source, self._now_ns)
        self._answer_on(source)

    def _answer_on(self, peer: Peer) -> None:
        """Continue a long answer in a later step, or when the link takes more."""
        if peer.name in self.gossip.unanswered and not peer.outbox.is_congested:
            self._agenda.set(("answer", peer.name), self._now_ns + _ANSWER_NS)

    def _on_done(self, source: Peer, message: wire.Done) -> None:
        if message.kind == "exchange":
            self._readiness.note_exchange(source.name)
            self._follow_up()

    def _on_ping(self, source: Peer, message: wire.Ping) -> None:
        source.meter.read_ping(message, self._now_ns)
        self._send(source, wire.Pong(message.sent_ns, self._now_ns))
        if self._now_ns - source.greeted_ns >= self.settings.ping_ns:  # before, they still exchange everything
            self.gossip.compare(source, message.digest, self._now_ns)

    def _on_pong(self, source: Peer, message: wire.Pong) -> None:
        source.meter.note_round_trip(self._now_ns - message.sent_ns)
        if message.clock_ns is not None:
            source.meter.read_clock(message.clock_ns, message.sent_ns, self._now_ns)
        self._on_report(source, message.outcomes)

    def _on_report(self, source: Peer, outcomes: dict[str, wire.Outcome]) -> None:
        """Enter a client's report on the events that it was given."""
        if source.kind == "client":
            self.accounts.hear(source.name, source.epoch, outcomes)

    def _on_given(self, source: Peer, message: wire.Given) -> None:
        if self.settings.tracing:
            self._emit(HandedOver(source.name, message.events))

    def _on_ledger(self, source: Peer, message: wire.Ledger) -> None:  # noqa: ARG002
        if message.target == self.name:
            self.accounts.read(message)
        else:
            self._forward(message)

    def _on_copy(self, source: Peer, message: wire.Copy) -> None:
        if not self._is_draining:
            left_ns, error_ns = source.meter.left_ns(message.sent_ns, self._now_ns), source.meter.error_ns(self._now_ns)
            self.copies.keep(source, message, left_ns, error_ns, self._now_ns)

    def _on_copied(self, source: Peer, message: wire.Copied) -> None:
        self.copies.confirmed(source, message, self._now_ns)

    def _on_release(self, source: Peer, message: wire.Release) -> None:
        self.copies.drop(source.name, message.events)

    def _on_recover(self, source: Peer, message: wire.Recover) -> None:
        self.copies.recover(source.name, self._now_ns, before=min(message.life, source.epoch))

    def _on_rehomed(self, source: Peer, message: wire.Rehomed) -> None:  # noqa: ARG002
        if message.target != self.name:
            self._forward(message)
            return
        client = self.clients.get(message.client)
        if (
            client is not None
            and not client.is_up
            and client.epoch < message.epoch
            and self.gossip.interests.is_known(message.home)
        ):
            if client.key and self.gossip.interests.keys_of(client.name).get(message.home) != client.key:
                self._count("another's name")  # or its home has not announced the key yet
                return
            self.departures.rehomed(message, self._now_ns)
            self._forget_client(client)

    def _forward(self, message: wire.Ledger | wire.Rehomed) -> None:
        """Send a message for another broker to the next hop, if there is one."""
        peer = self._next_hop_to(message.target) if message.hops < self.settings.max_hops else None
        if peer is not None:
            self._send(peer, msgspec.structs.replace(message, hops=message.hops + 1))

    def _next_hop_to(self, broker: str) -> Peer | None:
        path = self.gossip.links.path(self.name, broker)
        peer = None if path is None else self.neighbours.get(path.next_hop)
        return peer if peer is not None and peer.is_up else None

    def _on_relocation(self, source: Peer, message: RelocationMessage) -> None:
        self.coordinator.on_message(source, message, self._now_ns)

    def _on_moving(self, source: Peer, message: wire.Moving) -> None:
        self.coordinator.moves.heard(source.name, message, self._now_ns)
        if message.phase == "at home" and message.target == self.name:
            self.departures.arrived(source.name)

    def _on_error(self, source: Peer, message: wire.Error) -> None:  # noqa: ARG002
        self._count(f"told {known_code(message.code)}")

    def _on_request(self, source: Peer, message: wire.Request) -> None:
        """Carry out a request for this epoch that is newer than all before; others are old copies."""
        if (
            self.gossip.is_recovering
            or message.life != self.epoch
            or message.number <= source.request
            or self.departures.is_old(source, message.number)
        ):
            return
        source.request = message.number
        if isinstance(message, wire.MigrationUpdate):
            self.coordinator.forget(source.name)
            if message.was_home:
                is_known = self.registry.knows(source.name)
                self.coordinator.moves.departed(source.name, message.home, self._now_ns, was_known=is_known)
            self.departures.depart(source, message, self._now_ns)
            return
        self.registry.handle(source, message)
        if isinstance(message, wire.Subscribe):
            self.departures.returned(source.name, message.entry.name)
            self.newcomers.subscribed(source.name, message.entry.name)

    def _deny(
        self, source: Peer, kind: str, name: str, number: int, error: PeerError, context: TraceContext | None = None
    ) -> None:
        self.refused[error.code] += 1
        self._remark_refusal(source, kind, error, **({} if context is None else {"trace_id": context.trace_id}))
        self._send(source, wire.Error(error.code, str(error)[:4096], kind, name, number))

    def _note(self, kind: NoteKind, held: Held, *more: Any) -> None:
        if held.is_noted:
            self._effects.append(Note(kind, held.id, *more))

    def _note_reading(self, took_us: float) -> None:
        self.read_us += took_us

    def _count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times
        if what in _LIMITS:
            self._remark("limit reached", what, what=what, **_LIMITS[what])


_HANDLERS: Final[dict[type, Any]] = {
    wire.Transfer: Broker._on_transfer,
    wire.Publish: Broker._on_publish,
    wire.Ack: Broker._on_ack,
    wire.Credit: Broker._on_credit,
    wire.LinkState: Broker._on_link_state,
    wire.Interest: Broker._on_interest,
    wire.InterestPart: Broker._on_interest_part,
    wire.Ask: Broker._on_ask,
    wire.Done: Broker._on_done,
    wire.Ping: Broker._on_ping,
    wire.Pong: Broker._on_pong,
    wire.Given: Broker._on_given,
    wire.Ledger: Broker._on_ledger,
    wire.Rehomed: Broker._on_rehomed,
    wire.Copy: Broker._on_copy,
    wire.Copied: Broker._on_copied,
    wire.Release: Broker._on_release,
    wire.Recover: Broker._on_recover,
    wire.Moving: Broker._on_moving,
    wire.Error: Broker._on_error,
    wire.Subscribe: Broker._on_request,
    wire.Unsubscribe: Broker._on_request,
    wire.Advertise: Broker._on_request,
    wire.Unadvertise: Broker._on_request,
    wire.MigrationUpdate: Broker._on_request,
    **dict.fromkeys(get_args(RelocationMessage), Broker._on_relocation),
}
