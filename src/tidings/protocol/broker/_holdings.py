"""The events that a broker answers for, in whichever form, and when they expire.

An event is held as one of three, and becomes a custody of its own when something happens to it alone:

- `Custody`: by itself, with who has not acknowledged it;
- `Group`: together with others of its course that have left for everybody whom they are for (`_groups`);
- `Stored`: as the durable store kept it when the broker started; besides, some are not even read yet (`_shelves`).
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._custody import Custody, RawRecord, event_key
from tidings.protocol.broker._groups import Group, custody_of
from tidings.protocol.broker._shelves import Shelf, Shelves, Stored
from tidings.protocol.broker._straight import Published
from tidings.protocol.links._lots import Lot
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import encode_plain

__all__ = ["Holdings"]

_SPARE: Final = 64


class Holdings:
    """All of them; `wake_by` is told when the first of them expires."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        wake_by: Callable[[int], None],
    ) -> None:
        self.held: dict[EventId, Custody | Group | Stored] = {}
        self.shelves = Shelves(self.held)
        self._name = settings.name
        self._keeps = settings.buffers
        self._store = store
        self._erase = erase
        self._wake_by = wake_by
        self._expiries: list[tuple[int, EventId]] = []

    def __len__(self) -> int:
        return len(self.held) + len(self.shelves.unread)

    def get(self, id: EventId) -> Custody | None:
        """An event that is held, by itself."""
        held = self.held.get(id)
        if isinstance(held, Group):
            self._undo(held)
            held = self.held.get(id)
        if isinstance(held, Stored):
            held = self.held[id] = held.custody()
        assert not isinstance(held, Group)
        return held

    def each(self, wanted: Callable[[Shelf], bool]) -> list[Custody]:
        """Everything that is held, each by itself; of what is as the store kept it, the shelves that are wanted."""
        self.shelves.clear(wanted)
        for each in list(self.held.values()):
            if isinstance(each, Group) and self.held.get(each.id) is each:
                self._undo(each)
        return [custody for custody in self.held.values() if isinstance(custody, Custody)]

    def hold(self, custody: Custody) -> None:
        """Answer for an event."""
        self.held[custody.id] = custody
        self._note_expiry(custody)

    def keep(self, custody: Custody) -> None:
        """Store what this broker answers for, if it stores at all."""
        if self._keeps:
            self._store(event_key("event", custody.id), custody.record())

    def settle(self, custody: Custody) -> None:
        """Answer for an event no longer, if nothing is left of it."""
        # Another obligation for the same event may have begun since this one ended: that one is not over.
        if custody.is_done and self.held.get(custody.id) is custody:
            del self.held[custody.id]
            if self._keeps:
                self._erase(event_key("event", custody.id))

    # -- together ------------------------------------------------------------------------------------------------

    def group(self, members: list[Published], now_ns: int) -> None:
        """Answer for events that have left for everybody whom they are for."""
        group, course = Group(members), members[0].course
        targets, local = course.encoded
        most_bytes = max(published.said.size_bytes for published in members)
        for published in members:
            id, said = published.id, published.said
            times = (said.departure_ns, published.since_ns, published.lifetime_ns)
            record = RawRecord(*id, self._name, *times, said.size_bytes, 0, targets, local, said.content)
            self._store(event_key("event", id), encode_plain(record))
            self.held[id] = group
        for peer, outbox, _ in course.ways or ():
            last, due_ns = outbox.next_number - 1, now_ns + outbox.patience_ns(most_bytes)
            lot = Lot(
                peer,
                last - len(members) + 1,
                last,
                sent_ns=now_ns,
                due_ns=due_ns,
                end=lambda peer: self._lot_ended(group, peer),
                undo=lambda: self._undo(group),
            )
            group.pending[peer] = lot
            outbox.add_lot(lot)
        self._note_expiry(group)

    def _lot_ended(self, group: Group, peer: Peer) -> None:
        """A peer has acknowledged all events of a group."""
        del group.pending[peer]
        if not group.pending:
            for published in group.members:
                if self.held.get(published.id) is group:
                    del self.held[published.id]
                    self._erase(event_key("event", published.id))

    def _undo(self, group: Group) -> None:
        """Answer for each of these events by itself."""
        for custody in group.undone(lambda published: custody_of(published, self._name)):
            if self.held.get(custody.id) is group:
                self.hold(custody)

    # -- from the store ------------------------------------------------------------------------------------------

    def restore(self, events: Mapping[str, bytes]) -> None:
        """Events that the durable store kept, by their keys; they are not read yet."""
        self.shelves.unread.update(events)

    def read(self, most: int | None, now_ns: int) -> list[Stored]:
        """Read the next of them, or all; those that have not expired."""
        return self._enter(self.shelves.read(most), now_ns)

    def read_one(self, id: EventId, now_ns: int) -> list[Stored]:
        """Read this event, if it is not read yet."""
        return self._enter(self.shelves.read_one(event_key("event", id)), now_ns)

    def _enter(self, read: list[Stored], now_ns: int) -> list[Stored]:
        entered = [stored for stored in read if stored.expires_ns > now_ns]
        if len(entered) < len(read):
            for stored in read:
                if stored.expires_ns <= now_ns:
                    self._erase(event_key("event", stored.id))
        for stored in entered:
            self.held[stored.id] = stored
            heapq.heappush(self._expiries, (stored.expires_ns, stored.id))
        return entered

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def next_expiry_ns(self) -> int | None:
        """When it may be that something has expired."""
        return self._expiries[0][0] if self._expiries else None

    def expired(self, now_ns: int) -> Iterator[Custody]:
        """What nobody wants any more."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            custody = self.get(heapq.heappop(self._expiries)[1])
            if custody is not None and custody.expires_ns <= now_ns:
                yield custody

    def _note_expiry(self, custody: Custody | Group) -> None:
        self._wake_by(custody.expires_ns)
        heapq.heappush(self._expiries, (custody.expires_ns, custody.id))
        if len(self._expiries) > 2 * len(self.held) + _SPARE:
            self._expiries = [(custody.expires_ns, custody.id) for custody in self.held.values()]
            heapq.heapify(self._expiries)
