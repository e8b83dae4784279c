"""Events that a newer one of the same key replaces while they wait for a client (`wire.Entry.conflate`).

Rules:

- The last hop replaces, where the events of a subscription wait for it: an event between brokers is for all the
  subscriptions behind a link, and its receivers are not changed on the way. What is under way is not replaced.
- When a client is back, all that waited for it is conflated before anything leaves, what was under way on the last
  connection included. So the first thing that it gets is the latest of its key.
- An event that several subscriptions of a client want is replaced for those alone that have a newer one. If others
  still want it, it stays in its place.
- A newer event takes the place of the one that it replaces (`Queue.supersede`): in a queue that is never empty, a key
  that changes faster than the link can send would otherwise never leave. Not where the client wants order: there it
  leaves in its own sequence.
- Replaced events are counted (`Balance.replaced`). Those from the store are not, like those that are dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidings.protocol._effects import EventId
from tidings.protocol._states import TransferStep
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._held import Held, Holdings
from tidings.protocol.links._latest import Key, Latest, is_newer, key_of
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import IN_ORDER, Term, decode_attributes

__all__ = ["Conflation"]

_Item = Parcel | Held


class Conflation:
    """What is replaced at one broker; `keys` are the attributes of keys, by client and subscription."""

    def __init__(
        self,
        keys: Mapping[str, Mapping[str, Sequence[str]]],
        *,
        holdings: Holdings,
        accounts: Accounts,
        note: Callable[..., None],
        count: Callable[..., None],
    ) -> None:
        self._keys = keys
        self._holdings = holdings
        self._accounts = accounts
        self._note = note
        self._count = count

    def applies_to(self, peer: Peer) -> bool:
        """Whether a subscription of this client wants the latest events alone."""
        return bool(self._keys) and peer.name in self._keys and peer.kind == "client"

    def enqueue(self, peer: Peer, item: _Item, now_ns: int) -> list[_Item]:
        """Queue an event for a client in place of the older ones of its keys; what the queue has dropped."""
        queue, held = peer.outbox.queue, _event(item)
        latest = queue.latest
        if latest is None:
            latest = queue.latest = Latest()
        keys = self._keys_of(held, _wanted(item, peer), peer)
        older: dict[_Item, list[str]] = {}
        newer: dict[_Item, list[str]] = {}
        for name, key in keys.items():
            other = latest.get(name, key)
            if other is not None and _event(other).id != held.id:  # an event may be handed to a client again
                (newer if is_newer(_event(other).id, held.id) else older).setdefault(other, []).append(name)
        for other, names in newer.items():
            left = self._narrow(peer, item, names, _event(other).id)
            if left is None:
                return []
            item = left
        keys = {name: key for name, key in keys.items() if name in _wanted(item, peer)}
        place = next((other for other, names in older.items() if self._may_inherit(peer, item, other, names)), None)
        for other, names in older.items():
            if other is not place:
                self._narrow(peer, other, names, held.id)
        if place is not None:
            dropped = peer.outbox.supersede(place, item, now_ns)
            self._end(peer, place, older[place], held.id)
        elif isinstance(item, Parcel):
            dropped = peer.outbox.enqueue((item,), now_ns)
        else:
            dropped = peer.outbox.enqueue_events((item,), item.local[peer.name], now_ns)
        if keys and queue.holds(item):
            latest.enter(item, keys)
        return dropped

    def renew(self, peer: Peer) -> None:
        """A client is back: what was under way to it is replaced too, if something newer waits or is under way."""
        if not self.applies_to(peer):
            return
        latest = peer.outbox.queue.latest or Latest()
        newest: dict[tuple[str, Key], EventId] = {}
        for parcel in reversed(peer.outbox.window.parcels):
            keys, id = self._keys_of(parcel.held, parcel.targets, peer), parcel.held.id
            by: EventId | None = None
            many = 0
            for name, key in keys.items():
                waiting = latest.get(name, key)
                after = newest.get((name, key)) if waiting is None else _event(waiting).id
                if after is None or after == id or is_newer(id, after):
                    newest[name, key] = id
                else:
                    by, many = after, many + 1
            if by is not None and many == len(parcel.targets):
                peer.outbox.give_up(parcel, has_expired=True)
                parcel.is_replaced = True
                self._end(peer, parcel, list(keys), by)

    def _keys_of(self, held: Held, wanted: Mapping[str, Any], peer: Peer) -> dict[str, Key]:
        """The keys of an event, by subscription; those that have none are left out."""
        attributes_of = self._keys[peer.name]
        names = [name for name in wanted if name in attributes_of]
        if not names:
            return {}
        attributes = decode_attributes(held.content)
        found = ((name, key_of(attributes, attributes_of[name])) for name in names)
        return {name: key for name, key in found if key is not None}

    def _may_inherit(self, peer: Peer, item: _Item, other: _Item, names: Sequence[str]) -> bool:
        """Whether an event may take the place of an older one: nobody else wants that, and nobody wants order."""
        wanted = _wanted(other, peer)
        if peer.outbox.queue.is_late(other):
            return False
        return len(names) == len(wanted) and not (_is_ordered(wanted) or _is_ordered(_wanted(item, peer)))

    def _narrow(self, peer: Peer, item: _Item, names: list[str], newer: EventId) -> _Item | None:
        """These subscriptions no longer want an event; what stands for it from now on, None if nobody wants it."""
        held, wanted, client = _event(item), _wanted(item, peer), peer.name
        if len(names) == len(wanted):
            peer.outbox.queue.give_up(item)
            self._end(peer, item, names, newer)
            return None
        if not isinstance(item, Parcel):
            item.own()
            item = held.handed[client]
        # Its place and worth in the queue stay as they were.
        item.targets = held.local[client] = {name: terms for name, terms in wanted.items() if name not in names}
        self._tell("replaced in part", peer, item, names, newer)
        held.wanted_less(client)
        self._holdings.note_expiry(held)
        return item

    def _end(self, peer: Peer, item: _Item, names: list[str], newer: EventId) -> None:
        """An event has been replaced, and no longer waits for the client."""
        self._tell("replaced", peer, item, names, newer)
        held, client = _event(item), peer.name
        if not isinstance(item, Parcel):
            held.leave_part(client)
        else:
            if not item.is_replaced:
                item.step(TransferStep.EXPIRED)
            if held.handed.get(client) is item:
                del held.handed[client]
                held.local.pop(client, None)
        self._holdings.settle(held)

    def _tell(self, kind: str, peer: Peer, item: _Item, names: list[str], newer: EventId) -> None:
        held, was_sent = _event(item), isinstance(item, Parcel) and item.tries > 0
        self._count("replaced")
        self._accounts.replaced(held, peer.name, names, was_sent=was_sent)
        self._note(kind, held, peer.name, -1, tuple(names), None, 0, 0, None, newer)


def _event(item: _Item) -> Held:
    return item.held if isinstance(item, Parcel) else item


def _wanted(item: _Item, peer: Peer) -> Mapping[str, tuple[Term, ...]]:
    """The subscriptions of the client that want this."""
    return item.targets if isinstance(item, Parcel) else item.local[peer.name]


def _is_ordered(wanted: Mapping[str, tuple[Term, ...]]) -> bool:
    return any(IN_ORDER in terms for terms in wanted.values())
