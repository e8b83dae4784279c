"""The clients that have moved away: what a broker does for them until nothing can arrive for them any more (paper E).

Rules:

- A client reports its new home (`MigrationUpdate`) when all its requests are durable there. From that moment on this
  broker may forget it, whatever fails. For a client with a new incarnation elsewhere, its home there reports it
  (`_newcomers`).
- The client's subscriptions stay here under its new address. Events that still arrive for the client, because they were
  accepted before the move was known, are forwarded to it; so are those that were held for it.
- Its subscriptions here are announced to the other brokers until all of them have been within reach for `timeout_ns`
  without a break. By then each of them has learnt of the new home: no broker is ever without one of the two. The same
  holds for the key that its name is bound to: the name never becomes free for others.
- After that and the longest lifetime of an event nothing can arrive any more, and the departure is forgotten. It is
  also forgotten after `forget_ns`, when brokers that were away all the time have forgotten this one.
- A departure is stored, and each of its subscriptions under a key of its own, before the client's registration is
  erased: a broker that crashes in between knows both, and repeats what the client accepts once. A client that comes
  back takes its subscriptions one by one out of its departure. When it reports that it is at home here, the remaining
  ones have been unsubscribed elsewhere.
- The number of the request is stored too: no old copy of a request can register a client that has left.

At `max_departures` the oldest is forgotten, counted.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidings.protocol._errors import PeerError
from tidings.protocol._names import address, require_plain
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._carrier import Carrier
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._journal import Journal
from tidings.protocol.broker._registry import Registry
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Entry, MigrationUpdate, Rehomed, encode_plain

__all__ = ["Departures"]


class _Departure(msgspec.Struct, array_like=True):
    """A client with another home; `number` is that of its request, within its epoch.

    The store keeps it without its entries; one of an older store has them.
    """

    client: str
    epoch: int
    number: int
    home: str
    at_ns: int
    entries: dict[str, Entry]
    key: bytes = b""
    """The key that its name stays bound to here, until its new home is known everywhere."""

    @property
    def owner(self) -> str:
        """The address that has the subscriptions now."""
        return address(self.home, self.client)


_DECODER: Final = msgspec.msgpack.Decoder(_Departure)
_NO_REQUEST: Final = -1
"""The number of a departure that the client has not requested: all its requests come later."""
_ENTRY: Final = msgspec.msgpack.Decoder(tuple[str, Entry])


class Departures:
    """The clients that have left one broker, by name."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        carrier: Carrier,
        registry: Registry,
        journal: Journal,
        count: Callable[[str], None],
        tidy_at: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._gossip = gossip
        self._carrier = carrier
        self._registry = registry
        self._journal = journal
        self._count = count
        self._tidy_at = tidy_at
        self._gone: dict[str, _Departure] = {}
        self._apart_ns = 0  # when a broker was last out of reach

    def __len__(self) -> int:
        return len(self._gone)

    def __contains__(self, client: str) -> bool:
        return client in self._gone

    def last_epoch(self, client: str) -> int:
        """The epoch in which a client has left; -1 if it has not."""
        gone = self._gone.get(client)
        return -1 if gone is None else gone.epoch

    def begin(self, now_ns: int) -> None:
        """Begin a new epoch: brokers that were within reach have to be heard again."""
        self._apart_ns = now_ns
        self.tidy(now_ns)

    def on_change(self, now_ns: int) -> None:
        """Note a change of the overlay: brokers may be out of reach."""
        if self._gone and not self._gossip.links.is_whole():
            self._apart_ns = now_ns

    def restore(self, kind: str, value: bytes) -> None:
        """Restore a departure of the durable store, then its subscriptions; `tidy` has to follow."""
        if kind == "departed":
            gone = _DECODER.decode(value)
            self._enter(gone)
            if gone.entries:
                self._store(gone)
            return
        client, entry = _ENTRY.decode(value)
        if client in self._gone:
            gone = self._gone[client]
            gone.entries[entry.name] = entry
            self._gossip.local.put(gone.owner, entry)
        else:
            self._journal.erase(_entry_key(client, entry.name))

    def is_old(self, source: Peer, number: int) -> bool:
        """Whether a request was made before the client left."""
        gone = self._gone.get(source.name)
        return gone is not None and gone.epoch == source.epoch and number <= gone.number

    def depart(self, source: Peer, update: MigrationUpdate, now_ns: int) -> None:
        """Release a client with another home, and forward the events that were held for it."""
        self._send_off(source.name, source.epoch, update.number, update.home, now_ns)
        self._journal.when_durable(("departed", source, update.number))

    def rehomed(self, message: Rehomed, now_ns: int) -> None:
        """Let a client go that has a later incarnation elsewhere, as its home there reports."""
        self._count("rehomed")
        self._send_off(message.client, message.epoch, _NO_REQUEST, message.home, now_ns)

    def recover(self, client: str, home: str, entries: dict[str, Entry], now_ns: int) -> None:
        """Restore a departure that was lost with the durable store, from what other brokers know."""
        before = self._gone.get(client)
        known = {} if before is None else before.entries
        if home != self._settings.name and not entries.keys() <= known.keys():
            gone = _Departure(client, -1, _NO_REQUEST, home, now_ns, entries)
            if before is not None:
                self._withdraw(before)
                gone = msgspec.structs.replace(before, at_ns=now_ns, entries=entries | known)
            self._enter(gone)
            self._store(gone)
            self._keep_bound()
            self.tidy(now_ns)

    def _send_off(self, client: str, epoch: int, number: int, home: str, now_ns: int) -> None:
        require_plain(home)
        if home == self._settings.name:
            raise PeerError("home", f"{client!r} cannot leave {home!r} for {home!r}")
        before = self._gone.get(client)
        entries, key = dict(self._gossip.local.of(client)), self._gossip.local.key_of(client)
        if before is not None and before.home == home and not self._registry.knows(client):
            before.epoch, before.number = epoch, number
            self._store_head(before)
            gone = before
        else:
            if before is not None:
                entries = before.entries | entries
                self._withdraw(before)
            gone = _Departure(client, epoch, number, home, now_ns, entries, key)
            self._enter(gone)
            self._store(gone)
        self._carrier.hand_on(client, gone.owner, now_ns)
        self._registry.forget(client)
        self.keep_key(client)
        self._keep_bound()
        self.tidy(now_ns)

    def returned(self, client: str, subscription: str) -> None:
        """A client subscribes here again: its events are no longer sent elsewhere."""
        gone = self._gone.get(client)
        if gone is None or subscription not in self._gossip.local.of(client):
            return  # it has not left, or was refused
        if gone.entries.pop(subscription, None) is not None:
            self._gossip.local.drop(gone.owner, subscription)
            self._journal.erase(_entry_key(client, subscription))

    def arrived(self, client: str) -> None:
        """A client is at home here again, and has made all its requests.

        Nothing is forwarded elsewhere for it any more: such events could be sent back and forth until they expire.
        """
        gone = self._gone.get(client)
        if gone is not None and (gone.entries or gone.key):
            self._withdraw(gone)
            for name in gone.entries:
                self._journal.erase(_entry_key(client, name))
            gone.entries.clear()
            gone.key = b""  # from now on its registration binds its name
            self._store_head(gone)

    def keep_key(self, client: str) -> None:
        """The registration of a client is forgotten: if it has left, its name stays bound to its key."""
        gone = self._gone.get(client)
        if gone is not None and gone.key and not self._registry.knows(client):
            self._gossip.local.bind(client, gone.key)

    def tidy(self, now_ns: int) -> None:
        """Stop announcing clients whose new home is known everywhere, and forget departures that nothing can arrive
        for."""
        settings, local = self._settings, self._gossip.local
        self.on_change(now_ns)
        for gone in list(self._gone.values()):
            announced_until_ns = local.unannounced.get(gone.owner)
            if announced_until_ns is None:
                announced_until_ns = max(gone.at_ns, self._apart_ns) + settings.timeout_ns
                announced_until_ns = min(announced_until_ns, gone.at_ns + settings.forget_ns)
            kept_until_ns = announced_until_ns + settings.max_lifetime_ns + settings.seen_grace_ns
            if kept_until_ns <= now_ns:
                self._forget(gone)
            elif announced_until_ns <= now_ns:
                local.stop_announcing(gone.owner, announced_until_ns)
                self._release_key(gone)
                self._tidy_at(kept_until_ns)
            else:
                self._tidy_at(announced_until_ns)

    def _enter(self, gone: _Departure) -> None:
        self._gone[gone.client] = gone
        self._gossip.local.came(gone.owner, gone.at_ns)
        self.keep_key(gone.client)
        for entry in gone.entries.values():
            self._gossip.local.put(gone.owner, entry)

    def _withdraw(self, gone: _Departure) -> None:
        for name in gone.entries:
            self._gossip.local.drop(gone.owner, name)
        self._gossip.local.unannounced.pop(gone.owner, None)
        self._gossip.local.came_ns.pop(gone.owner, None)

    def _release_key(self, gone: _Departure) -> None:
        if gone.key and not self._registry.knows(gone.client):
            self._gossip.local.bind(gone.client, b"")
        gone.key = b""

    def _forget(self, gone: _Departure) -> None:
        del self._gone[gone.client]
        self._withdraw(gone)
        self._release_key(gone)
        self._journal.erase(_key(gone.client))
        for name in gone.entries:
            self._journal.erase(_entry_key(gone.client, name))

    def _store(self, gone: _Departure) -> None:
        self._store_head(gone)
        for entry in gone.entries.values():
            self._journal.store(_entry_key(gone.client, entry.name), encode_plain((gone.client, entry)))

    def _store_head(self, gone: _Departure) -> None:
        self._journal.store(_key(gone.client), encode_plain(msgspec.structs.replace(gone, entries={})))

    def _keep_bound(self) -> None:
        if len(self._gone) > self._settings.max_departures:
            self._count("departure forgotten")
            self._forget(min(self._gone.values(), key=lambda gone: (gone.at_ns, gone.client)))


def _key(client: str) -> str:
    return f"departed/{client}"


def _entry_key(client: str, name: str) -> str:
    """One key for each subscription. Names may contain anything, so the length shows where the first one ends."""
    return f"left/{len(client)}/{client}/{name}"
