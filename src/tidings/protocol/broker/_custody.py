"""The events that a broker answers for.

- Custody of an event is custody of targets: the home brokers that others have not yet taken on, and this broker's own
  clients who have not yet acknowledged. It is durable before it is acknowledged, and ends when nothing is left of it or
  the event has expired. `since_ns` is the departure on this broker's own clock, so the event's age is always at hand.
"""

from collections.abc import Mapping

import msgspec

from tidings.protocol._effects import EventId
from tidings.protocol._states import TransferState
from tidings.protocol.broker._courses import latest_ns
from tidings.protocol.links._outbox import Parcel
from tidings.protocol.wire import Event, Term, Trace, encode_plain

__all__ = ["Custody", "RawRecord", "Record", "RecordHead", "decode_record", "event_key"]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Custody as the durable store keeps it; times are the broker's clock, which goes on over a restart."""

    publisher: str
    epoch: int
    sequence: int
    root: str
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    hops: int
    targets: dict[str, tuple[Term, ...]]
    local: dict[str, dict[str, tuple[Term, ...]]]
    content: bytes


class RecordHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The same without the content, and with targets as they are encoded."""

    publisher: str
    epoch: int
    sequence: int
    root: str
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    hops: int
    targets: msgspec.Raw
    local: msgspec.Raw


class RawRecord(RecordHead, frozen=True, array_like=True, gc=False):
    """All of it, with targets that are encoded already."""

    content: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)


class Custody:
    """One event that this broker answers for."""

    __slots__ = (
        "_encoded",
        "_encoded_ns",
        "addressed",
        "content",
        "departure_ns",
        "expires_ns",
        "handed",
        "hops",
        "id",
        "lifetime_ns",
        "local",
        "parcels",
        "root",
        "since_ns",
        "size_bytes",
        "targets",
        "trace",
    )

    def __init__(
        self,
        id: EventId,
        *,
        root: str,
        departure_ns: int,
        since_ns: int,
        lifetime_ns: int,
        size_bytes: int,
        hops: int,
        content: bytes,
    ) -> None:
        self.id = id
        self.root = root
        self.departure_ns = departure_ns
        self.since_ns = since_ns
        self.lifetime_ns = lifetime_ns
        self.size_bytes = size_bytes
        self.hops = hops
        self.content = content
        self.targets: dict[str, tuple[Term, ...]] = {}
        self.local: dict[str, dict[str, tuple[Term, ...]]] = {}
        self.parcels: dict[str, Parcel] = {}  # by home broker: what is on its way there
        self.handed: dict[str, Parcel] = {}  # by client: the same
        self.trace: Trace | None = None
        self.addressed: dict[str, str] = {}  # by client: the address under which it came, and nobody else here got it
        self.expires_ns = since_ns
        self._encoded = b""
        self._encoded_ns = -1

    def encoded(self, now_ns: int) -> bytes:
        """The event as transfers say it now: the same bytes for all who are sent it at one time."""
        if self._encoded_ns != now_ns:
            self._encoded_ns = now_ns
            event = (*self.id, self.root, self.departure_ns, now_ns - self.since_ns, self.lifetime_ns, self.size_bytes)
            self._encoded = encode_plain(Event(*event, min(self.hops, 255), self.content, self.trace))
        return self._encoded

    @property
    def is_done(self) -> bool:
        """Whether others have taken on all of it."""
        return not self.targets and not self.local

    def take_on(self, targets: Mapping[str, tuple[Term, ...]]) -> list[str]:
        """Answer for these home brokers too; those for which something has to be done.

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
        """Answer for these clients too."""
        for client, wanted in local.items():
            self.local[client] = wanted
            self.addressed.pop(client, None)
            for terms in wanted.values():
                self.expires_ns = max(self.expires_ns, self.since_ns + latest_ns(terms))

    def unrouted(self) -> list[str]:
        """The home brokers that nothing is on its way to."""
        return [target for target in self.targets if target not in self.parcels]

    def record(self) -> bytes:
        """What the durable store keeps."""
        targets, local = self.targets, self.local
        if self.addressed:
            # What came to one client by name is no proof that the others here have it: it is kept under its address.
            named = {client: target for client, target in self.addressed.items() if client in local}
            targets = targets | {target: max(local[client].values(), key=latest_ns) for client, target in named.items()}
            local = {client: wanted for client, wanted in local.items() if client not in named}
        return _ENCODER.encode(
            Record(
                *self.id,
                self.root,
                self.departure_ns,
                self.since_ns,
                self.lifetime_ns,
                self.size_bytes,
                self.hops,
                targets,
                local,
                self.content,
            )
        )


def decode_record(data: bytes) -> Custody:
    """Custody as the durable store kept it."""
    record: Record = _DECODER.decode(data)
    custody = Custody(
        (record.publisher, record.epoch, record.sequence),
        root=record.root,
        departure_ns=record.departure_ns,
        since_ns=record.since_ns,
        lifetime_ns=record.lifetime_ns,
        size_bytes=record.size_bytes,
        hops=record.hops,
        content=record.content,
    )
    custody.take_on(record.targets)
    custody.take_on_local(record.local)
    return custody


def event_key(prefix: str, id: EventId) -> str:
    """The key of an event in the durable store: one event, one key."""
    publisher, epoch, sequence = id
    return f"{prefix}/{epoch}/{sequence}/{publisher}"
