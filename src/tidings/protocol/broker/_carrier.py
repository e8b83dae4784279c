"""How a broker answers for events: it takes them on, stores them, finds their way, hands them over (papers C, D).

Rules:

- Whom an event is for is decided once, by its publisher's home broker, when it accepts the event: the home brokers of
  all subscriptions that match, each with what on-time deliveries there are worth. That list travels with the event;
  each broker answers for its part of it until another has taken it on. So a broker whose tables are still empty, or
  different, can misroute nothing and lose nothing.
- Each target goes to the next broker on the tree of the publisher's home; targets that share it go together, once per
  link. A target that no path leads to now is kept until one does, or until the event has expired.
- An event is acknowledged when it is durable and its way on is known; what came twice is acknowledged twice and taken
  on once. What two brokers come to answer for at once, because a link failed between sending and acknowledging, is
  delivered once: the last hop knows what it has given to its clients.
- Without buffering nothing is stored, kept or sent again: an event that cannot go on at once is dropped.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tidings.errors import EventError
from tidings.protocol._addresses import broker_of, is_address, split_address
from tidings.protocol._effects import EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._seen import Seen
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._custody import Custody, decode_record, event_key, latest_ns
from tidings.protocol.broker._interests import LocalInterests
from tidings.protocol.broker._link_state import LinkStateMap, Path
from tidings.protocol.links._outbox import Parcel
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import MAX_TERMS, Entry, Message, Publish, Term, Trace, Transfer, decode_content
from tidings.scheduling import Reason

__all__ = ["Carrier", "terms_of"]

_SPARE: Final = 64


def terms_of(entries: Sequence[Entry], lifetime_ns: int) -> tuple[Term, ...]:
    """What on-time deliveries to these subscriptions are worth, by how old the event may be.

    A subscription that takes late events as well adds a term that pays nothing: it keeps the event alive. Terms beyond
    MAX_TERMS are merged into the next tighter one, so nothing is promised that a deadline would not allow.
    """
    if len(entries) == 1 and not entries[0].late_ns:
        (entry,) = entries
        allowed_ns = lifetime_ns if entry.max_delay_ns is None else min(lifetime_ns, entry.max_delay_ns)
        return ((allowed_ns, entry.price),)
    worth: dict[int, float] = {}
    for entry in entries:
        allowed_ns = lifetime_ns if entry.max_delay_ns is None else min(lifetime_ns, entry.max_delay_ns)
        worth[allowed_ns] = worth.get(allowed_ns, 0.0) + entry.price
        if entry.late_ns:
            worth.setdefault(allowed_ns + entry.late_ns, 0.0)
    return _merged(worth)


def _merged(worth: Mapping[int, float]) -> tuple[Term, ...]:
    terms = sorted(worth.items())
    while len(terms) > MAX_TERMS:
        (tight_ns, tight), (_, loose) = terms[-3], terms[-2]
        terms[-3:-1] = [(tight_ns, tight + loose)]
    return tuple(terms)


class Carrier:
    """The part of a broker that holds events."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        links: LinkStateMap,
        local: LocalInterests,
        neighbours: Mapping[str, Peer],
        clients: Mapping[str, Peer],
        send: Callable[[Peer, Message], None],
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        note: Callable[..., None],
        count: Callable[[str], None],
        expire_at: Callable[[int], None],
        retry_at: Callable[[Peer, int], None],
        traced: Callable[[Custody, Trace, str, int, int], None],
    ) -> None:
        self.held: dict[EventId, Custody] = {}
        self.seen: Seen[EventId] = Seen(settings.max_seen)
        self.epoch = 0
        self._settings = settings
        self._buffers = settings.buffers
        self._links = links
        self._local = local
        self._neighbours = neighbours
        self._clients = clients
        self._send = send
        self._store = store
        self._erase = erase
        self._note = note
        self._count = count
        self._expire_at = expire_at
        self._retry_at = retry_at
        self._traced = traced
        self._expiries: list[tuple[int, EventId]] = []

    @property
    def has_room(self) -> bool:
        """Whether one more event can be taken on."""
        return len(self.held) < self._settings.max_stored

    def publish(
        self, publisher: Peer, said: Publish, matched: Mapping[str, list[Entry]], trace: Trace | None, now_ns: int
    ) -> None:
        """A client's event, and by home broker the subscriptions that want it."""
        lifetime_ns = min(said.lifetime_ns or self._settings.max_lifetime_ns, self._settings.max_lifetime_ns)
        custody = self._arrived(
            (publisher.name, publisher.epoch, said.sequence), said, publisher, self._settings.name, lifetime_ns, now_ns
        )
        custody.trace = trace
        targets = {home: terms_of(entries, lifetime_ns) for home, entries in matched.items()}
        clients = self._take_on(custody, targets, now_ns)
        if trace is not None:
            self._traced(custody, trace, "", clients, now_ns)

    def transfer(self, source: Peer, said: Transfer, now_ns: int) -> None:
        """An event that another broker hands over."""
        lifetime_ns = min(said.lifetime_ns or self._settings.max_lifetime_ns, self._settings.max_lifetime_ns)
        id = (said.publisher, said.epoch, said.sequence)
        self._note("received", id, source.name)
        custody = self.held.get(id) or self._arrived(id, said, source, said.root, lifetime_ns, now_ns)
        custody.hops = max(custody.hops, said.hops)
        custody.trace = said.trace
        clients = self._take_on(custody, said.targets, now_ns)
        if said.trace is not None:
            self._traced(custody, said.trace, source.name, clients, now_ns)

    def restore(self, data: bytes, now_ns: int) -> None:
        """An event that the durable store kept; it goes on as soon as there is a way."""
        custody = decode_record(data)
        if custody.expires_ns > now_ns:
            self._hold(custody)
            if custody.local:
                self._remember(custody)
        else:
            self._erase(event_key("event", custody.id))

    def acknowledged(self, peer: Peer, number: int, held_ns: int, now_ns: int) -> None:
        """A peer has taken an event on."""
        parcel = peer.outbox.acknowledge(number, held_ns, now_ns)
        if parcel is not None:
            self._release(parcel)
        if peer.outbox.waiting:
            self.pump(peer, now_ns)

    def pump(self, peer: Peer, now_ns: int, *, probing: bool = False) -> None:
        """Send what may be sent, in the order of the strategy."""
        outbox = peer.outbox
        while peer.is_up and (outbox.is_open or probing):
            probing = False
            parcel, deleted = outbox.next(now_ns)
            for gone, reason in deleted:
                self._lose(gone, reason)
            if parcel is None:
                return
            if parcel.targets:
                self._dispatch(parcel, now_ns)

    def resend(self, peer: Peer, now_ns: int) -> None:
        """Send again what was not acknowledged in time."""
        for parcel in peer.outbox.due(now_ns):
            self._count("resent")
            self._send(peer, self._message(parcel, now_ns))
            self._retry_at(peer, parcel.due_ns)

    def reroute(self, now_ns: int) -> None:
        """The overlay has changed: whatever waits finds its way anew."""
        for peer in self._neighbours.values():
            for parcel in peer.outbox.withdraw(under_way=not peer.is_up):
                self._note("withdrawn", parcel.custody.id, peer.name)
                self._unlink(parcel)
        for custody in list(self.held.values()):
            unrouted = custody.unrouted()
            if unrouted:
                self._route(custody, unrouted, now_ns)

    def deliver_waiting(self, client: str, now_ns: int) -> None:
        """After a restart: what clients have not acknowledged goes to them again."""
        for custody in list(self.held.values()):
            if client in custody.local and client not in custody.handed:
                self._hand_to_client(custody, client, now_ns)

    def forget_client(self, client: str) -> None:
        """A client is gone for good: nothing is kept for it."""
        for custody in [custody for custody in self.held.values() if client in custody.local]:
            parcel = custody.handed.pop(client, None)
            if parcel is not None:
                parcel.peer.outbox.give_up(parcel)
            del custody.local[client]
            self._settle(custody)

    def hand_on(self, client: str, target: str, now_ns: int) -> None:
        """A client is at home elsewhere now: what waits for it goes after it, to that address."""
        for custody in [custody for custody in self.held.values() if client in custody.local]:
            parcel = custody.handed.pop(client, None)
            if parcel is not None:
                parcel.peer.outbox.give_up(parcel)
            worth: dict[int, float] = {}
            for terms in custody.local.pop(client).values():
                for allowed_ns, price in terms:
                    worth[allowed_ns] = worth.get(allowed_ns, 0.0) + price
            new = custody.take_on({target: _merged(worth)})
            self._hold(custody)
            if self._settings.buffers:
                self._store(event_key("event", custody.id), custody.record())
            self._route(custody, new, now_ns)

    def expire(self, now_ns: int) -> None:
        """Let go of what nobody wants any more, and forget what cannot come again."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            expires_ns, id = heapq.heappop(self._expiries)
            custody = self.held.get(id)
            if custody is not None and custody.expires_ns == expires_ns:
                self._count("expired")
                for parcel in dict.fromkeys([*custody.parcels.values(), *custody.handed.values()]):
                    self._note("expired", id, parcel.peer.name)
                    parcel.peer.outbox.give_up(parcel)
                custody.targets.clear()
                custody.local.clear()
                self._settle(custody)
        for id in self.seen.forget_old(now_ns):
            self._erase(event_key("seen", id))
        for at_ns in (self.seen.next_expiry_ns, self._expiries[0][0] if self._expiries else None):
            if at_ns is not None:
                self._expire_at(at_ns)

    def _arrived(
        self, id: EventId, said: Publish | Transfer, source: Peer, root: str, lifetime_ns: int, now_ns: int
    ) -> Custody:
        """The event with its departure on this broker's clock: by what it says and the link's measured transit."""
        if self._settings.synchronised_clocks:
            since_ns = min(said.departure_ns, now_ns)
        else:
            since_ns = now_ns - said.age_ns - source.meter.transit_ns(said.size_bytes)
        return Custody(
            id,
            root=root,
            departure_ns=said.departure_ns,
            since_ns=since_ns,
            lifetime_ns=lifetime_ns,
            size_bytes=said.size_bytes,
            hops=said.hops + 1 if isinstance(said, Transfer) else 0,
            content=said.content,
        )

    def _take_on(self, custody: Custody, targets: Mapping[str, tuple[Term, ...]], now_ns: int) -> int:
        """Answer for these targets; how many clients here get the event now."""
        wanted = {target: terms for target, terms in targets.items() if custody.since_ns + latest_ns(terms) > now_ns}
        here = wanted.pop(self._settings.name, None)
        # What may refuse the event comes first: a refused one changes nothing.
        clients = self._take_on_local(custody, wanted) if here is not None and custody.id not in self.seen else []
        new = custody.take_on(wanted)
        if not new and not clients:
            return 0
        self._hold(custody)
        if self._buffers:
            self._store(event_key("event", custody.id), custody.record())
        if clients:  # after the event itself: to know an event as delivered and not have it would be to lose it
            self._remember(custody)
        if new:
            self._route(custody, new, now_ns)
        for client in clients:
            self._hand_to_client(custody, client, now_ns)
        return len(clients)

    def _take_on_local(self, custody: Custody, wanted: dict[str, tuple[Term, ...]]) -> list[str]:
        """The clients here that want the event; for those who have moved, their address is among the wanted."""
        matched = self._matched_here(custody)
        lifetime_ns = custody.lifetime_ns
        for moved in [client for client in matched if is_address(client)]:
            entries = matched.pop(moved)
            if custody.since_ns <= self._local.untold.get(moved, custody.since_ns):
                wanted[moved] = terms_of(entries, lifetime_ns)
        if not matched:
            return []
        custody.take_on_local(
            {
                client: {entry.name: terms_of((entry,), lifetime_ns) for entry in entries}
                for client, entries in matched.items()
            }
        )
        self._note("local", custody.id)
        return list(matched)

    def _matched_here(self, custody: Custody) -> dict[str, list[Entry]]:
        content = decode_content(custody.content)
        try:
            return self._local.match(content.attributes)
        except EventError as error:
            raise PeerError("content", str(error)) from None

    def _resolve(self, custody: Custody, target: str, now_ns: int) -> list[str]:
        """An event for one client of this broker by name: it is handed over, or goes on to where the client is now."""
        client = split_address(target)[1]
        del custody.targets[target]
        new: list[str] = []
        try:
            matched = self._matched_here(custody)
        except PeerError as error:
            self._count(error.code)
            return new
        for name, entries in matched.items():
            if name == client and client not in custody.local:
                wanted = {entry.name: terms_of((entry,), custody.lifetime_ns) for entry in entries}
                custody.take_on_local({client: wanted})
                custody.addressed[client] = target
                self._hand_to_client(custody, client, now_ns)
            elif is_address(name) and split_address(name)[1] == client:
                new += custody.take_on({name: terms_of(entries, custody.lifetime_ns)})
        self._count("sent after a client")
        self._hold(custody)
        return new

    def _remember(self, custody: Custody) -> None:
        expires_ns = custody.since_ns + max(custody.lifetime_ns, 0) + self._settings.seen_grace_ns
        expires_ns = max(expires_ns, custody.expires_ns + self._settings.seen_grace_ns)
        forgotten = self.seen.add(custody.id, expires_ns)
        self._expire_at(expires_ns)
        if self._buffers:
            self._store(event_key("seen", custody.id), str(expires_ns).encode())
        if forgotten is not None:
            self._count("seen forgotten")
            self._erase(event_key("seen", forgotten))

    def _hold(self, custody: Custody) -> None:
        self.held[custody.id] = custody
        self._expire_at(custody.expires_ns)
        heapq.heappush(self._expiries, (custody.expires_ns, custody.id))
        if len(self._expiries) > 2 * len(self.held) + _SPARE:
            self._expiries = [(custody.expires_ns, custody.id) for custody in self.held.values()]
            heapq.heapify(self._expiries)

    def _route(self, custody: Custody, targets: Iterable[str], now_ns: int) -> None:
        """Send each target's part to the next broker on its way."""
        ways: dict[str, dict[str, Path]] = {}
        own = self._settings.name
        for target in [target for target in targets if is_address(target) and broker_of(target) == own]:
            targets = [*(other for other in targets if other != target), *self._resolve(custody, target, now_ns)]
        for target in targets:
            home = broker_of(target)
            path = self._links.path(custody.root, home) if custody.hops <= self._settings.max_hops else None
            peer = None if path is None else self._neighbours.get(path.next_hop)
            if path is not None and peer is not None and peer.is_up:
                ways.setdefault(path.next_hop, {})[target] = path
            elif not self._buffers:
                self._count("no route")
                del custody.targets[target]
        for hop in sorted(ways):
            paths = ways[hop]
            targets = {target: custody.targets[target] for target in paths}
            parcel = Parcel(custody, self._neighbours[hop], targets, paths)
            custody.parcels.update(dict.fromkeys(paths, parcel))
            self._offer(parcel, now_ns)
        self._settle(custody)

    def _hand_to_client(self, custody: Custody, client: str, now_ns: int) -> None:
        peer = self._clients.get(client)
        if peer is None or not (peer.is_up or self._buffers):
            self._count("client away")
            del custody.local[client]
            self._settle(custody)
            return
        parcel = Parcel(custody, peer, custody.local[client], {})
        custody.handed[client] = parcel
        self._offer(parcel, now_ns)

    def _offer(self, parcel: Parcel, now_ns: int) -> None:
        peer = parcel.peer
        self._note("enqueued", parcel.custody.id, peer.name)
        if peer.is_up and peer.outbox.is_open and not peer.outbox.waiting:
            self._dispatch(parcel, now_ns)
            return
        for dropped in peer.outbox.enqueue(parcel, now_ns):
            self._lose(dropped, "full")
        self.pump(peer, now_ns)
        if peer.is_up and not peer.outbox.under_way:
            self._retry_at(peer, now_ns + self._settings.probe_ns)

    def _dispatch(self, parcel: Parcel, now_ns: int) -> None:
        peer = parcel.peer
        peer.outbox.send(parcel, now_ns)
        self._note("sent", parcel.custody.id, peer.name)
        self._send(peer, self._message(parcel, now_ns))
        if self._buffers:
            self._retry_at(peer, parcel.due_ns)
        else:
            peer.outbox.give_up(parcel)
            self._release(parcel)

    def _message(self, parcel: Parcel, now_ns: int) -> Transfer:
        custody = parcel.custody
        return Transfer(
            self.epoch,
            parcel.number,
            parcel.peer.outbox.floor,
            *custody.id,
            custody.root,
            custody.departure_ns,
            now_ns - custody.since_ns,
            custody.lifetime_ns,
            custody.size_bytes,
            min(custody.hops, 255),
            parcel.targets,
            custody.content,
            custody.trace,
        )

    def _lose(self, parcel: Parcel, reason: Reason) -> None:
        """The queue has let an event go: it is too late for it, or there were too many."""
        self._count(reason)
        self._note(reason, parcel.custody.id, parcel.peer.name)
        self._release(parcel)

    def _release(self, parcel: Parcel) -> None:
        """This broker no longer answers for what the parcel is for."""
        custody = parcel.custody
        for target in self._unlink(parcel):
            (custody.local if parcel.peer.kind == "client" else custody.targets).pop(target, None)
        self._settle(custody)

    def _unlink(self, parcel: Parcel) -> list[str]:
        """Nothing is on its way any more to where this parcel, and no later one, was to go."""
        if parcel.peer.kind == "client":
            on_their_way, places = parcel.custody.handed, [parcel.peer.name]
        else:
            on_their_way, places = parcel.custody.parcels, list(parcel.targets)
        ended = [place for place in places if on_their_way.get(place) is parcel]
        for place in ended:
            del on_their_way[place]
        return ended

    def _settle(self, custody: Custody) -> None:
        # Another obligation for the same event may have begun since this one ended: that one is not over.
        if custody.is_done and self.held.get(custody.id) is custody:
            del self.held[custody.id]
            if self._buffers:
                self._erase(event_key("event", custody.id))
