"""Events of one course that a broker answers for together, as long as nothing happens to one of them alone.

They are stored one by one, so that each can be erased by itself; but while all whom they are for have been sent all of
them, custody is one thing: the set of peers who have not acknowledged. When it is empty, all of them are done. A group
whose first event expires, or of which somebody has acknowledged a part only, or when routes or clients change, is
undone: each event has a custody of its own from then on, with a parcel for every peer who has not acknowledged.
"""

from collections.abc import Callable

from tidings.protocol._effects import EventId
from tidings.protocol._states import TransferState
from tidings.protocol.broker._custody import Custody
from tidings.protocol.broker._straight import Published
from tidings.protocol.links._lots import Lot
from tidings.protocol.links._outbox import Parcel
from tidings.protocol.links._peers import Peer

__all__ = ["Group", "custody_of"]


class Group:
    """Events under way together; `pending` are the peers who have not acknowledged, with their lots."""

    __slots__ = ("expires_ns", "id", "members", "pending")

    def __init__(self, members: list[Published]) -> None:
        course = members[0].course
        self.members = members
        self.pending: dict[Peer, Lot] = {}
        self.id: EventId = members[0].id
        self.expires_ns = min(published.since_ns for published in members) + course.latest_ns

    def undone(self, custody_of: Callable[[Published], Custody]) -> list[Custody]:
        """Custody of each of the events, and parcels in place of the lots."""
        course = self.members[0].course
        pending = list(self.pending.values())
        clients = [lot.peer.name for lot in pending if lot.peer.kind == "client"]
        hops = {lot.peer.name for lot in pending if lot.peer.kind == "broker"}
        homes = {home: hop for home, hop in course.hops.items() if hop in hops}
        found = []
        for published in self.members:
            custody = custody_of(published)
            custody.take_on_local({client: course.local[client] for client in clients})
            custody.take_on({home: course.targets[home] for home in homes})
            found.append(custody)
        for lot in pending:
            is_client, name = lot.peer.kind == "client", lot.peer.name
            theirs = [home for home, hop in homes.items() if hop == name]
            parcels = []
            for place, custody in enumerate(found):
                targets = custody.local[name] if is_client else {home: custody.targets[home] for home in theirs}
                parcel = Parcel(custody, lot.peer, targets, {})
                parcel.state, parcel.number, parcel.tries = TransferState.UNDER_WAY, lot.first + place, 1
                parcel.sent_ns, parcel.due_ns = lot.sent_ns, lot.due_ns
                if is_client:
                    custody.handed[name] = parcel
                else:
                    custody.parcels.update(dict.fromkeys(theirs, parcel))
                parcels.append(parcel)
            lot.peer.outbox.replace(lot, parcels)
        self.pending.clear()
        return found


def custody_of(published: Published, root: str) -> Custody:
    """Custody of a client's event, by its publisher's home broker; not yet of any targets."""
    said = published.said
    return Custody(
        published.id,
        root=root,
        departure_ns=said.departure_ns,
        since_ns=published.since_ns,
        lifetime_ns=published.lifetime_ns,
        size_bytes=said.size_bytes,
        hops=0,
        content=said.content,
    )
