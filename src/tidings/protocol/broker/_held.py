"""One event that a broker holds, from whomever it came: a client, a neighbour or the durable store.

- To hold an event is to owe it to somebody: to the home brokers that no other broker has taken on yet (`targets`), and
  to clients here who have not acknowledged it yet (`local`). It is durable before it is acknowledged, and let go when
  nobody is owed it any more, or when it has expired.
- `since_ns` is its departure on this broker's own clock, so its age is always at hand.
- As long as nothing has happened to it alone, an event is owed to all of its `course`, which it shares with others: it
  was read from the store, or has left together with others (`Group` in `_holdings`). By itself (`alone`) it keeps its
  own account of whom it is owed to, and of what is on its way to them.
- The durable store keeps an event as `record` writes it, whichever of the two it is; `read_record` reads it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import msgspec
from msgspec import Raw

from tidings.protocol._effects import EventId
from tidings.protocol._states import TransferState
from tidings.protocol.broker._courses import NO_COURSE, Course, latest_ns
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import Term, Trace, encode_plain

if TYPE_CHECKING:
    from tidings.protocol.broker._holdings import Group

__all__ = ["Held", "event_key", "read_record"]

_NOBODY: Final = cast("dict[str, Any]", MappingProxyType({}))
"""The account of an event that has none of its own yet: it cannot be written to."""
_RECORD: Final = msgspec.msgpack.Decoder(tuple[str, int, int, str, int, int, int, int, int, Raw, Raw, bytes])


class Held(msgspec.Struct, eq=False):
    """One event that this broker holds."""

    id: EventId
    root: str
    """The home broker of its publisher."""
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    hops: int
    content: bytes
    course: Course = NO_COURSE
    """Whom it is owed to, all of them, unless it is held by itself."""
    is_noted: bool = False
    """Whether it is written down what happens to it."""
    group: "Group | None" = None
    """What it has left together with, if that is how it is held."""
    trace: Trace | None = None
    expires_ns: int = 0
    targets: dict[str, tuple[Term, ...]] = _NOBODY
    local: dict[str, dict[str, tuple[Term, ...]]] = _NOBODY
    parcels: dict[str, Parcel] = _NOBODY
    """By home broker: what is on its way there."""
    handed: dict[str, Parcel] = _NOBODY
    """By client: the same."""
    addressed: dict[str, str] = _NOBODY
    """By client: the address under which the event came, and nobody else here got it."""
    encoded_ns: int = -1
    encoded: bytes = b""

    def alone(self) -> Self:
        """Held by itself from now on, and owed to nobody yet."""
        self.course, self.group = NO_COURSE, None
        self.expires_ns = self.since_ns
        self.targets, self.local, self.parcels, self.handed, self.addressed = {}, {}, {}, {}, {}
        return self

    @property
    def is_alone(self) -> bool:
        """Whether it is held by itself."""
        return self.course is NO_COURSE

    @property
    def is_done(self) -> bool:
        """Whether it is owed to nobody any more."""
        return not self.targets and not self.local

    def take_on(self, targets: Mapping[str, tuple[Term, ...]]) -> list[str]:
        """Owe it to these home brokers too; those for which something has to be done.

        A target that is on its way to somebody else counts as new: who sends it back may be the one who took it, and
        its acknowledgement, still to come, must not end an obligation that has just been taken on again.
        """
        new = []
        for target in targets:
            parcel = self.parcels.get(target)
            if parcel is not None and parcel.state is TransferState.UNDER_WAY:
                del self.parcels[target]
                new.append(target)
                if parcel not in self.parcels.values():
                    parcel.peer.outbox.give_up(parcel)
            elif target not in self.targets:
                new.append(target)
        for target in new:
            self.targets[target] = targets[target]
            self.expires_ns = max(self.expires_ns, self.since_ns + latest_ns(targets[target]))
        return new

    def take_on_local(self, local: Mapping[str, dict[str, tuple[Term, ...]]]) -> None:
        """Owe it to these clients too."""
        for client, wanted in local.items():
            self.local[client] = wanted
            self.addressed.pop(client, None)
            for terms in wanted.values():
                self.expires_ns = max(self.expires_ns, self.since_ns + latest_ns(terms))

    def unrouted(self) -> list[str]:
        """The home brokers that nothing is on its way to."""
        return [target for target in self.targets if target not in self.parcels]

    def encode(self, now_ns: int) -> bytes:
        """The event as transfers say it now: `wire.Event`, field by field."""
        publisher, epoch, sequence = self.id
        facts = (self.root, self.departure_ns, now_ns - self.since_ns, self.lifetime_ns, self.size_bytes)
        return encode_plain((publisher, epoch, sequence, *facts, min(self.hops, 255), self.content, self.trace))

    def encode_once(self, now_ns: int) -> bytes:
        """The same, kept for all others who are sent it at this time."""
        if self.encoded_ns != now_ns:
            self.encoded_ns = now_ns
            self.encoded = self.encode(now_ns)
        return self.encoded

    def record(self) -> bytes:
        """What the durable store keeps; times are the broker's clock, which goes on over a restart."""
        publisher, epoch, sequence = self.id
        times = (self.departure_ns, self.since_ns, self.lifetime_ns)
        targets, local = self._owed() if self.is_alone else self.course.encoded
        return encode_plain(
            (publisher, epoch, sequence, self.root, *times, self.size_bytes, self.hops, targets, local, self.content)
        )

    def _owed(self) -> tuple[Any, Any]:
        """Whom it is owed to, elsewhere and here, as the record says it."""
        targets, local = self.targets, self.local
        if self.addressed:
            # What came to one client by name is no proof that the others here have it: it is kept under its address.
            named = {client: target for client, target in self.addressed.items() if client in local}
            targets = targets | {target: max(local[client].values(), key=latest_ns) for client, target in named.items()}
            local = {client: wanted for client, wanted in local.items() if client not in named}
        return targets, local


def read_record(data: bytes, course_of: Callable[[bytes, bytes], Course]) -> Held:
    """An event that the durable store kept; `course_of` finds its course by how the record says whom it is owed to."""
    fields = _RECORD.decode(data)
    publisher, epoch, sequence, root, departure_ns, since_ns, lifetime_ns, size_bytes, hops, *_ = fields
    course, content = course_of(bytes(fields[9]), bytes(fields[10])), fields[11]
    id = (publisher, epoch, sequence)
    held = Held(id, root, departure_ns, since_ns, lifetime_ns, size_bytes, hops, content, course)
    held.expires_ns = since_ns + course.latest_ns
    return held


def event_key(id: EventId) -> str:
    """The key of an event in the durable store: one event, one key."""
    publisher, epoch, sequence = id
    return f"event/{epoch}/{sequence}/{publisher}"
