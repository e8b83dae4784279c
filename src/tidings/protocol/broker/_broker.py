"""A broker: one node of the overlay, as a state machine without I/O.

It greets neighbours and clients (`_doorway`), tells the others what it knows (`_gossip`), takes events on and holds
them (`_entrance`, `_carrier`), lets clients go (`_departures`), and finds places for publishers (`_relocating`).
Its durable store holds, besides events, its epoch, its clients' subscriptions and advertisements, those who have moved
away, and what it knows of the other brokers' interests; a broker that starts again from it goes on where it was. The
epoch of a new life is durable before the first frame is sent, so no two lives share a number.

An event from a client is accepted when the broker is *ready*, that is when it knows what the others want: from its own
store, or because a neighbour has told it everything, or because nobody has answered for `ready_wait_ns`. Until then
events are not acknowledged, and publishers send them again.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from tidings.protocol import wire
from tidings.protocol._addresses import is_address, split_address
from tidings.protocol._effects import Acknowledged, Close, Effect, HandedOver, Heard
from tidings.protocol._errors import PeerError, known_code
from tidings.protocol._lives import next_epoch
from tidings.protocol._machine import Bound
from tidings.protocol._rights import Rights
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import PeerStep
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._carrier import Carrier
from tidings.protocol.broker._copies import COPY, Copies, KeptCopy
from tidings.protocol.broker._departures import Departures
from tidings.protocol.broker._doorway import Doorway
from tidings.protocol.broker._entrance import Entrance
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._journal import Journal
from tidings.protocol.broker._ledgers import MAX_ROWS, Ledgers
from tidings.protocol.broker._newcomers import Newcomers
from tidings.protocol.broker._registry import Registry
from tidings.protocol.broker._router import Parked
from tidings.protocol.broker._told_names import client_of, is_identity, key_in, split_told
from tidings.protocol.broker._view import Subscribers, View, subscribers_at, view_of
from tidings.protocol.links._peers import Peer
from tidings.protocol.relocation._moves import MovesView
from tidings.protocol.relocation._relocating import Relocating, RelocationMessage

__all__ = ["Broker"]

_EPOCH: Final = "epoch"
_READY: Final = "ready"
_UNTOLD: Final = "untold"
"""There while something that others want was damaged, and has not been told again."""
_LOST: Final = "lost"
"""With two copies: until when neighbours are asked for what this broker has lost."""
_COPIED: Final = ("event/", "seen/")
"""What neighbours have copies of, or can have delivered again; of subscriptions they know by themselves."""
_EVENT: Final = "event/"
_SEEN: Final = "seen/"
_TOLD: Final = ("interest/", "wanted/")
_KINDS: Final = frozenset(
    (
        *("advertisement", "clock", COPY, "departed", "epoch", "event", "format", "identity"),
        *("interest", "left", "lost", "ready", "seen", "subscription", "wanted"),
    )
)
"""Of the keys in a store; any other is one of these with a flipped bit."""
_WAITS: Final = 10
"""While it is being told what others want, a broker that is not ready waits for `ready_wait_ns` so many times."""
_LIVES_APART: Final = 1_000_000
"""A life whose number others had to tell is so much later than the last that they know: there may have been more."""
_ANSWER_NS: Final = 10_000_000
"""How long after a part of a long answer the next one leaves, if the link takes it."""
_LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "full": {
        "why": "a queue to a client or a neighbour is full: the least valuable event in it was dropped",
        "remedy": "see `queued` of the status; have who lags read faster, or raise [limits] queued_client",
    },
    "no room": {
        "why": "as many events are stored as may be: publishers have to wait",
        "remedy": "see `stored` of the status; raise [limits] stored, or find who does not take its events",
    },
    "seen forgotten": {
        "why": "more events were delivered than can be remembered: a copy of an old one could be delivered again",
        "remedy": "raise [limits] seen",
    },
    "departure forgotten": {
        "why": "more clients have moved away than can be remembered: what still comes for the first of them is dropped",
        "remedy": "look for clients that move again and again",
    },
    "ledger forgotten": {
        "why": "more has to be told to other brokers than can be kept: accounts there show losses that were none",
        "remedy": "bring back the brokers that are out of reach",
    },
    "another's name": {
        "why": "somebody with another key has come to another broker under the name of a client here, and gets nothing",
        "remedy": "give the client the secret that it had before, or another name",
    },
}
"""What counts is kept below a bound; what follows from that, and what helps."""
_HASTY_PING_NS: Final = 25_000_000
_HASTE: Final = 3
"""After a greeting pings leave at 0, 25, 100, 400 ms and so on, until they are as far apart as the settings say."""


class Broker(Doorway):
    """One broker; `kept` is what its durable store held when it was started."""

    def __init__(self, settings: BrokerSettings, kept: Mapping[str, bytes] | None = None) -> None:
        super().__init__(settings)
        self.is_ready = False
        self._is_told = False  # a neighbour has said that it told everything
        self._told_by: set[str] = set()
        self._lost_until_ns = 0
        self._must_be_told = False  # it is not enough that nobody answers
        self._alive_ns = 0
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
            way_to=self._way_to,
            send=self._send,
            count=self._count,
            now_ns=lambda: self._now_ns,
            wake_at=self._account_at,
        )
        self.accounts = Accounts(
            settings,
            self._ledgers,
            local=self.gossip.local,
            now_ns=lambda: self._now_ns,
            wake_at=self._account_at,
        )
        self.carrier = Carrier(
            settings,
            gossip=self.gossip,
            accounts=self.accounts,
            neighbours=self.neighbours,
            clients=self.clients,
            send_events=self._send_events,
            store=self._journal.store,
            erase=self._journal.erase_ahead,
            note=self._note,
            count=self._count,
            expire_at=self._expire_at,
            retry_at=self._retry_at,
            traced=lambda *what: self.relocating.taken(*what),
            on_kept=(lambda held: self.copies.put(held)) if settings.copies > 1 else None,
            on_gone=(lambda id: self.copies.release(id)) if settings.copies > 1 else None,
        )
        self.copies = Copies(
            settings,
            held=self.carrier.holdings.held,
            neighbours=self.neighbours,
            send=self._send,
            send_events=self._send_events,
            store=self._journal.store,
            erase=self._journal.erase,
            when_durable=self._when_durable,
            adopt=self._adopt,
            count=self._count,
            wake_in=self._look_at_copies_in,
        )
        self.relocating = Relocating(
            settings,
            neighbours=self.neighbours,
            clients=self.clients,
            links=self.gossip.links,
            send=self._send,
            count=self._count,
            now_ns=lambda: self._now_ns,
            wake_at=self._survey_at,
        )
        self.registry = Registry(
            settings,
            gossip=self.gossip,
            accounts=self.accounts,
            journal=self._journal,
            deny=self._deny,
            spend=self._note_reading,
        )
        self.newcomers = Newcomers(settings.name, gossip=self.gossip, clients=self.clients, tell=self._pass_on)
        self.departures = Departures(
            settings,
            gossip=self.gossip,
            carrier=self.carrier,
            registry=self.registry,
            journal=self._journal,
            count=self._count,
            tidy_at=self._tidy_at,
        )
        self._entrance = Entrance(
            settings,
            carrier=self.carrier,
            registry=self.registry,
            relocating=self.relocating,
            send=self._send,
            deny=self._deny,
            note=self._note,
            is_noted=self._is_noted,
            count=self._count,
            when_durable=lambda *what: self.copies.after(what),
        )

    # -- life ----------------------------------------------------------------------------------------------------

    def mend(self, damaged: Sequence[str]) -> list[Effect]:
        """Go on without these records.

        Where one was about what others want, the broker asks for it again, and is not ready before it has been told,
        however long nobody answers: what it accepted meanwhile would not be for all whom it should be for.
        That is durable before the damaged record is erased: a life that ends early must not hide it from the next.
        All else needs nothing: clients repeat what they have asked for when they hear of the new life, the epoch is
        taken from the clock, and a copy of an event that has been forgotten is recognised by whoever gets it.
        """
        kept, gossip = self._kept, self.gossip
        told = [key for key in damaged if key.startswith(_TOLD)]
        origins = {origin for key in told if (origin := gossip.origin_of(key)) is not None}
        if len(told) < len(damaged) and any(map(_is_unknown, damaged)):
            origins.update(key.partition("/")[2] for key in kept if key.startswith(_TOLD[0]))  # anything may be missing
        if origins:
            kept[_UNTOLD] = b""
            self._journal.store(_UNTOLD, b"")
            if kept.pop(_READY, None) is not None:
                self._journal.erase(_READY)
        if self.settings.copies > 1 and any(key.startswith("subscription/") or _is_unknown(key) for key in damaged):
            self._note_loss()
        elif self.settings.copies > 1 and any(key.startswith(_COPIED) for key in damaged):
            kept[_LOST] = b""
        for origin in sorted(origins):
            head = f"{_TOLD[0]}{origin}"
            kept[head] = gossip.withdrawn(origin, kept.get(head))
            self._journal.store(head, kept[head])
        return self._finish()

    def start(self, now_ns: int) -> list[Effect]:
        """Read the durable store, and make the new epoch durable before anything is said."""
        self._now_ns = self._born_ns = now_ns
        stored = self._kept.get(_EPOCH)
        self.epoch = next_epoch(None if stored is None else int(stored), now_ns)
        self._journal.store(_EPOCH, str(self.epoch).encode())
        if self.settings.copies > 1:
            if stored is None:
                self._note_loss()
            if self._kept.get(_LOST) == b"":  # since this life began
                self._kept[_LOST] = str(now_ns + self.settings.max_lifetime_ns).encode()
                self._journal.store(_LOST, self._kept[_LOST])
            self._lost_until_ns = int(self._kept.get(_LOST, b"0"))
        self.is_ready = _READY in self._kept or not self.settings.neighbours
        self._must_be_told = _UNTOLD in self._kept and not self.is_ready
        self.gossip.is_recovering = self.settings.copies > 1 and _LOST in self._kept and not self.is_ready
        self._restore(self._kept)
        self._kept.clear()
        self.carrier.dispatch.epoch = self.epoch
        self._when_durable("alive")
        return self._finish()

    def _note_loss(self) -> None:
        """What clients here want is lost, too: the broker is not ready before neighbours have told it."""
        self._kept[_LOST] = b""
        self._journal.store(_LOST, b"")
        if self._kept.pop(_READY, None) is not None:
            self._journal.erase(_READY)

    def _recover(self) -> None:
        """What others know of this broker's clients holds again; what still comes for those who have moved, or live
        elsewhere by now, is sent after them. Neighbours are asked for its events."""
        lost, interests = self.gossip.recovered(), self.gossip.interests
        homes = {client_of(told): origin for origin in interests for told in interests.entries(origin)}
        moved: dict[tuple[str, str], dict[str, wire.Entry]] = {}
        for told in lost:
            client, name = split_told(told.name)
            if is_identity(told.name):
                if client not in homes:
                    self._recover_client(client, key_in(told.name))
                continue
            entry = msgspec.structs.replace(told, name=name)
            # A client of whom a part is still known here has not said yet that it lives elsewhere: when it does, all
            # that it wants is sent after it.
            home = None if self.registry.knows(client) else homes.get(client)
            if is_address(client):
                home, client = split_address(client)
            if home is not None:
                moved.setdefault((client, home), {})[name] = entry
                continue
            if self._recover_client(client):
                self.registry.recover(client, entry)
        for (client, home), entries in moved.items():
            if not self.registry.knows(client):
                self.departures.recover(client, home, entries, self._now_ns)
        for peer in self.clients.values():
            self.registry.bind(peer)
        self.carrier.courses.forget()
        self.gossip.tell_anew()
        for peer in self._up_neighbours():
            self.gossip.exchange(peer, self._now_ns)
            self._ask_for_copies(peer)

    def _recover_client(self, client: str, key: bytes = b"") -> bool:
        """A client of this broker, of whom others know; whether there is room for it."""
        try:
            peer = self._client(client)
        except PeerError:
            return False
        peer.heard_ns, peer.key = self._now_ns, key or peer.key
        self._agenda.advance(("ping", "client", client), self._now_ns + self.settings.ping_ns)
        return True

    def _ask_for_copies(self, peer: Peer) -> None:
        if self._now_ns < self._lost_until_ns and self.is_ready and peer.version >= wire.COPIES_FROM:
            self._send(peer, wire.Recover(self.epoch))

    def _adopt(self, owner: str, copy: KeptCopy) -> None:
        """Take on an event that another broker has lost, or has left behind."""
        facts = (copy.targets, copy.since_ns, copy.lifetime_ns, copy.error_ns)
        try:
            self.carrier.transfer(owner, copy.event, *facts, self._now_ns, is_restored=True)
        except PeerError as error:
            self.refused[error.code] += 1

    def _on_outlived(self, epoch: int) -> None:
        """Begin a life that is later: this one took its number from a clock that was set back, since the store that
        counts them was lost. Nobody may be told of it before it is durable, and everybody is greeted anew."""
        self._count("outlived")
        self.epoch = epoch + _LIVES_APART
        self._journal.store(_EPOCH, str(self.epoch).encode())
        self._is_alive = False
        for connection, peer in list(self._by_connection.items()):
            self._emit(Close(connection, "the broker begins a later life"))
            del self._by_connection[connection]
            if peer is not None and peer.connection == connection:
                self._on_disconnected(peer)
        self.carrier.dispatch.epoch = self.epoch
        self._when_durable("alive")

    def _last_life_heard(self, peer: Peer) -> int:
        if peer.kind == "client":
            return -1
        return max(self.gossip.interests.epoch_of(peer.name), self.gossip.links.epoch_of(peer.name))

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        """Events are many, and restored together; of the rest each by itself, in the order of the keys."""
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
        self._alive_ns = self._now_ns
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
        """By broker that is out of reach: the events that wait here until it is back."""
        return self.carrier.router.parked(self._now_ns)

    def last_life(self, client: str, key: bytes | None = None) -> int:
        """The latest life of a client that is known of; -1: of none.

        A life of one who had no key may have been anybody's, and does not bind the first who has one.
        """
        peer = self.clients.get(client)
        if key and peer is not None and peer.key != key:
            return -1
        return max(-1 if peer is None else peer.epoch, self.departures.last_life(client))

    def keys_of(self, client: str) -> Collection[bytes] | None:
        """The keys that the name of a client is bound to: here, or else at any other broker; None: not known yet."""
        if self.gossip.is_recovering:
            return None
        peer = self.clients.get(client)
        return (peer.key,) if peer is not None and peer.key else self.gossip.interests.keys_of(client).values()

    def restrict(self, rights_of: Callable[[str], Rights | None], now_ns: int) -> list[Effect]:
        """Clients may do this from now on: what they have asked for, and may not any more, is over."""
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
        for peer, bounds in self._bounds_of_queues():
            found.update((f"{what} to {peer}", bound) for what, bound in bounds.items())
        return found

    def is_within_bounds(self) -> bool:
        """Whether nothing has outgrown its bound: as `bounds` says, without naming every queue."""
        if any(size > bound for size, bound in self._bounds_of_tables().values()):
            return False
        return not any(size > most for _, bounds in self._bounds_of_queues() for size, most in bounds.values())

    def _bounds_of_tables(self) -> dict[str, Bound]:
        settings = self.settings
        return {
            "stored": (len(self.carrier.holdings), settings.max_stored),
            "stored bytes": (self.carrier.holdings.size_bytes, settings.max_stored_bytes + settings.max_frame_bytes),
            "seen": (len(self.carrier.memory), settings.max_seen),
            "clients": (len(self.clients), settings.max_clients),
            "departures": (len(self.departures), settings.max_departures),
            "traces": (len(self.relocating), settings.max_traces),
            "interests": (len(self.gossip.interests), settings.max_entries_elsewhere),
            "interests under way": (self.gossip.under_way, settings.max_entries_elsewhere),
            "link states": (len(self.gossip.links), settings.max_origins),
            "ledgers": (len(self._ledgers), MAX_ROWS),
            "copies": (self.copies.kept, settings.max_stored),
        }

    def _bounds_of_queues(self) -> Iterator[tuple[str, dict[str, Bound]]]:
        """By peer: what waits for it, and what is under way."""
        settings = self.settings
        for peers, most in ((self.neighbours, settings.max_queued), (self.clients, settings.max_queued_client)):
            for peer in peers.values():
                outbox = peer.outbox
                yield (
                    peer.name,
                    {
                        "queue": (outbox.queued, most),
                        "queued bytes": (outbox.queue.size_bytes, outbox.max_queued_bytes),
                        "under way": (outbox.under_way, settings.window + 1),
                    },
                )

    def view(self) -> View:
        """What routing goes by: links and interests as this broker knows them."""
        return view_of(self.gossip, self.settings)

    def moves(self) -> MovesView:
        """The moves of this broker's clients."""
        return self.relocating.moves.view(self._now_ns)

    def subscribers_at(self, broker: str) -> Subscribers:
        """Who subscribes at another broker, whether or not it answers."""
        return subscribers_at(self.gossip.interests, broker)

    def _reroute(self) -> None:
        """The overlay has changed."""
        self.departures.on_change(self._now_ns)
        self.carrier.router.reroute(self._now_ns)
        self._ledgers.repeat()
        self.newcomers.tell()

    def _on_rewired(self) -> None:
        self.relocating.rewire(self.settings.neighbours)
        self.gossip.replan(self.settings.graph)
        self.carrier.courses.forget()
        for owner in self.copies.owners():
            if self.settings.graph and owner not in self.settings.graph:
                self.copies.recover(owner, self._now_ns)
        self._reroute()

    def ask_to_move(self, client: str, target: str, now_ns: int) -> tuple[bool, list[Effect]]:
        """Ask a client to make another broker its home; whether it is there to be asked."""
        self._now_ns = now_ns
        is_asked = self.relocating.ask_to_move(client, target, by="order")
        return is_asked, self._finish()

    # -- durability ----------------------------------------------------------------------------------------------

    def _when_durable(self, *what: Any) -> None:
        self._journal.when_durable(what)

    def _finish(self) -> list[Effect]:
        if self.gossip.local.touched and self._is_alive and not self.gossip.is_recovering:
            self.gossip.tell_interests()  # once for all that clients have asked for in this step
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
        # Who has moved away, or has asked for nothing, leaves nothing that would have to be remembered.
        may_be_forgotten = peer.name in self.departures or not peer.has_asked
        if peer.kind == "client" and not self.registry.knows(peer.name):
            if may_be_forgotten:
                self._forget_client(peer)
            elif peer.key:  # it has left nothing that would have to be kept for it alone: the name is free again
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
            why = f"it has said nothing for {silent_s:.1f} s" if is_silent else "the connection was lost"
            self._emit(Heard(peer.name, False, why))
            self.gossip.unanswered.pop(peer.name, None)
            self.gossip.tell_links(self._now_ns)
            self.copies.lost(peer, self._now_ns)
            self._reroute()

    def _on_bound(self, peer: Peer) -> None:
        self.registry.bind(peer)

    def _credit(self) -> int:
        return self._entrance.credit

    def _on_message(self, source: Peer, message: wire.Message) -> None:
        _HANDLERS[type(message)](self, source, message)

    def _on_new_peer(self, peer: Peer) -> None:
        peer.greeted_ns = self._now_ns
        self.carrier.courses.forget()
        self._on_ping_time(peer)  # before any event: a peer that was greeted alone knows no clock yet
        self._entrance.acknowledge_again(peer)
        peer.outbox.hasten(self._now_ns)
        if not peer.outbox.is_congested:
            self.carrier.dispatch.resend(peer, self._now_ns)  # before what has come since
        self._set_retry(peer)
        if peer.kind == "client":
            self.registry.tell_denied(peer)
            self.carrier.router.deliver_waiting(peer.name, self._now_ns)
            self.carrier.dispatch.pump(peer, self._now_ns)
        else:
            self._emit(Heard(peer.name, True))
            self.gossip.tell_links(self._now_ns)
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
                    self.carrier.dispatch.pump(peer, self._now_ns, probing=not peer.outbox.under_way)
                    self._set_retry(peer)
            case ("greet", connection):
                self._on_connected(str(connection))
            case ("refresh",):
                if self.gossip.forget_old(self._now_ns):
                    self._reroute()
                self.gossip.refresh(self._now_ns)
                self.newcomers.tell()
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
                self.relocating.on_time(self._now_ns)

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
                remedy="nothing is kept for it any more: when it is back, it asks for what it wants anew",
            )
            self._forget_client(peer)
            return
        if peer.connection is not None:
            self._send(peer, self._ping(peer) if peer.is_up else self._hello(peer.version))
        self._entrance.tell_credit(peer)
        again_ns = settings.ping_ns if peer.kind == "broker" else settings.ping_client_ns
        # Often at first: nothing is known of the link yet, and a single ping may meet a stall.
        hasty_ns = max(_HASTY_PING_NS, _HASTE * (self._now_ns - peer.greeted_ns))
        self._agenda.set(("ping", peer.kind, peer.name), self._now_ns + min(again_ns, hasty_ns))

    def _ping(self, peer: Peer) -> wire.Ping:
        """A ping that says what is known of the link, for the other end to know it too."""
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

    def _survey_at(self, at_ns: int) -> None:
        self._agenda.advance(("survey",), at_ns)

    def _look_at_copies_in(self, delay_ns: int) -> None:
        self._agenda.advance(("copies",), self._now_ns + delay_ns)

    def _tidy_at(self, at_ns: int) -> None:
        self._agenda.advance(("tidy",), at_ns)

    def _expire_at(self, at_ns: int) -> None:
        self._agenda.advance(("expire",), at_ns)

    def _account_at(self, at_ns: int) -> None:
        self._agenda.advance(("accounts",), at_ns)

    def _stop_waiting(self) -> None:
        """Be ready, unless what others want is still being told; but not for ever.

        With two copies a broker that has lost its store waits until somebody has told it: it could not have what it
        accepts copied either.
        """
        is_patient = self._now_ns < self._alive_ns + _WAITS * self.settings.ready_wait_ns
        is_alone = self.gossip.is_recovering and not self._is_told
        if self._must_be_told or is_alone or (self.gossip.asked and is_patient):
            self._agenda.set(("ready",), self._now_ns + self.settings.ready_wait_ns)
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            if self.gossip.is_recovering:
                self._recover()
            self._journal.store(_READY, b"")
            if self._must_be_told:
                self._must_be_told = False
                self._journal.erase(_UNTOLD)
            self._agenda.cancel(("ready",))

    def _forget_client(self, peer: Peer) -> None:
        """A client that has not been heard of for too long is gone."""
        self.carrier.forget_client(peer.name, self._now_ns)
        self.relocating.forget(peer.name)
        self.relocating.moves.forget(peer.name, self._now_ns)
        self.registry.forget(peer.name)
        del self.clients[peer.name]
        self.clients_up.discard(peer.name)
        self._laden.pop(peer.name, None)
        self._has_forgotten = True
        self.carrier.courses.forget()
        if peer.connection is not None:
            self._by_connection[peer.connection] = None

    # -- what peers say ------------------------------------------------------------------------------------------

    def _on_transfer(self, source: Peer, said: wire.Transfer) -> None:
        self.events_in += len(said.events)
        if not self._is_draining and not self.gossip.is_recovering:
            self._entrance.transfer(source, said, self._now_ns)

    def _on_publish(self, source: Peer, said: wire.Publish) -> None:
        self.events_in += len(said.events)
        if self.is_ready and not self._is_draining:
            before = source.record
            self._entrance.publish(source, said, self._now_ns)
            if source.record > before:
                self._send(source, self._ping(source))  # somebody wants its events in order: it is told at once
        else:
            self._count("not ready")

    def _on_ack(self, source: Peer, said: wire.Ack) -> None:
        source.outbox.credit = said.credit
        if said.session == self.epoch:
            if self.settings.tracing:
                self._emit(Acknowledged(source.name, said.numbers, said.held_ns))
            if said.outcomes:
                self._on_report(source, said.outcomes)
            self.carrier.dispatch.acknowledged(source, said, self._now_ns)

    def _on_credit(self, source: Peer, said: wire.Credit) -> None:
        source.outbox.credit = said.credit
        self.carrier.dispatch.pump(source, self._now_ns)

    def _on_link_state(self, source: Peer, said: wire.LinkState) -> None:
        if self.gossip.on_link_state(said, source, self._now_ns):
            self._reroute()

    def _on_interest(self, source: Peer, said: wire.Interest) -> None:
        self.accounts.prepare()
        self.gossip.on_interest(said, source, self._now_ns)
        self._follow_up()

    def _on_interest_part(self, source: Peer, said: wire.InterestPart) -> None:
        self.accounts.prepare()
        self.gossip.on_part(said, source, self._now_ns)
        self._follow_up()

    def _follow_up(self) -> None:
        """What was asked for is asked for again in time; when all of it has come, everything is known."""
        self._ledgers.end()
        self.newcomers.learn()
        ask_ns = self.gossip.next_ask_ns
        if ask_ns is not None:
            self._agenda.advance(("ask",), ask_ns)
        elif (
            self._is_told
            and not (self._must_be_told and self.gossip.interests.lacks_any)
            # What its own clients want one neighbour may know better than another.
            and (not self.gossip.is_recovering or self._told_by >= self.settings.neighbours)
        ):
            self._become_ready()

    def _on_ask(self, source: Peer, said: wire.Ask) -> None:
        self.gossip.on_ask(said, source, self._now_ns)
        self._answer_on(source)

    def _answer_on(self, peer: Peer) -> None:
        """What is left to answer goes on with a later step, or when the link takes more."""
        if peer.name in self.gossip.unanswered and not peer.outbox.is_congested:
            self._agenda.set(("answer", peer.name), self._now_ns + _ANSWER_NS)

    def _on_done(self, source: Peer, said: wire.Done) -> None:
        if said.kind == "exchange":
            self._is_told = True
            self._told_by.add(source.name)
            self._follow_up()

    def _on_ping(self, source: Peer, said: wire.Ping) -> None:
        source.meter.read_ping(said, self._now_ns)
        self._send(source, wire.Pong(said.sent_ns, self._now_ns))
        if self._now_ns - source.greeted_ns >= self.settings.ping_ns:  # before, they are telling each other everything
            self.gossip.compare(source, said.digest, self._now_ns)

    def _on_pong(self, source: Peer, said: wire.Pong) -> None:
        source.meter.note_round_trip(self._now_ns - said.sent_ns)
        if said.clock_ns is not None:
            source.meter.read_clock(said.clock_ns, said.sent_ns, self._now_ns)
        self._on_report(source, said.outcomes)

    def _on_report(self, source: Peer, said: dict[str, wire.Outcome]) -> None:
        """A client says what became of the events that it was given."""
        if source.kind == "client":
            self.accounts.hear(source.name, source.epoch, said)

    def _on_given(self, source: Peer, said: wire.Given) -> None:
        if self.settings.tracing:
            self._emit(HandedOver(source.name, said.events))

    def _on_ledger(self, source: Peer, said: wire.Ledger) -> None:  # noqa: ARG002
        if said.target == self.name:
            self.accounts.read(said)
        else:
            self._pass_on(said)

    def _on_copy(self, source: Peer, said: wire.Copy) -> None:
        if not self._is_draining:
            left_ns, error_ns = source.meter.left_ns(said.sent_ns, self._now_ns), source.meter.error_ns(self._now_ns)
            self.copies.keep(source, said, left_ns, error_ns, self._now_ns)

    def _on_copied(self, source: Peer, said: wire.Copied) -> None:
        self.copies.confirmed(source, said, self._now_ns)

    def _on_release(self, source: Peer, said: wire.Release) -> None:
        self.copies.drop(source.name, said.events)

    def _on_recover(self, source: Peer, said: wire.Recover) -> None:
        self.copies.recover(source.name, self._now_ns, before=min(said.life, source.epoch))

    def _on_rehomed(self, source: Peer, said: wire.Rehomed) -> None:  # noqa: ARG002
        if said.target != self.name:
            self._pass_on(said)
            return
        client = self.clients.get(said.client)
        if (
            client is not None
            and not client.is_up
            and client.epoch < said.epoch
            and self.gossip.interests.is_known(said.home)
        ):
            if client.key and self.gossip.interests.keys_of(client.name).get(said.home) != client.key:
                self._count("another's name")  # or its home has yet to tell which key it has there
                return
            self.departures.rehomed(said, self._now_ns)
            self._forget_client(client)

    def _pass_on(self, said: wire.Ledger | wire.Rehomed) -> None:
        """Something for another broker: on its way, as far as there is one."""
        peer = self._way_to(said.target) if said.hops < self.settings.max_hops else None
        if peer is not None:
            self._send(peer, msgspec.structs.replace(said, hops=said.hops + 1))

    def _way_to(self, broker: str) -> Peer | None:
        path = self.gossip.links.path(self.name, broker)
        peer = None if path is None else self.neighbours.get(path.next_hop)
        return peer if peer is not None and peer.is_up else None

    def _on_relocation(self, source: Peer, said: RelocationMessage) -> None:
        self.relocating.on_message(source, said, self._now_ns)

    def _on_moving(self, source: Peer, said: wire.Moving) -> None:
        self.relocating.moves.heard(source.name, said, self._now_ns)
        if said.phase == "at home" and said.target == self.name:
            self.departures.arrived(source.name)

    def _on_error(self, source: Peer, said: wire.Error) -> None:  # noqa: ARG002
        self._count(f"told {known_code(said.code)}")

    def _on_request(self, source: Peer, said: wire.Request) -> None:
        """Carry out a request of this life that is newer than all before; others are old copies."""
        if (
            self.gossip.is_recovering
            or said.life != self.epoch
            or said.number <= source.request
            or self.departures.is_old(source, said.number)
        ):
            return
        source.request = said.number
        if isinstance(said, wire.MigrationUpdate):
            self.relocating.forget(source.name)
            if said.was_home:
                is_known = self.registry.knows(source.name)
                self.relocating.moves.departed(source.name, said.home, self._now_ns, was_known=is_known)
            self.departures.depart(source, said, self._now_ns)
            return
        self.registry.handle(source, said)
        if isinstance(said, wire.Subscribe):
            self.departures.returned(source.name, said.entry.name)
            self.newcomers.subscribed(source.name, said.entry.name)

    def _deny(self, source: Peer, kind: str, name: str, number: int, error: PeerError) -> None:
        self.refused[error.code] += 1
        self._remark_refusal(source, kind, error)
        self._send(source, wire.Error(error.code, str(error)[:4096], kind, name, number))

    def _note_reading(self, took_us: float) -> None:
        self.read_us += took_us

    def _count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times
        if what in _LIMITS:
            self._remark("limit reached", what, what=what, **_LIMITS[what])


def _is_unknown(key: str) -> bool:
    """Whether a key is none that a broker writes."""
    return key.partition("/")[0] not in _KINDS


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
