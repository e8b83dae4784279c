"""The events that a broker has given to its clients, so that no duplicate is given to them; durable if events are.

An event is remembered until it has expired and `seen_grace_ns` have passed: no duplicate can arrive after that. New
entries are stored at the end of a step, after the events: a broker that remembers the delivery of an event but lacks
the event would lose it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from tidings.protocol._effects import EventId
from tidings.protocol._seen import BLOCK, Batch, Block, Seen
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._held import Held
from tidings.protocol.wire import encode_plain

__all__ = ["Memory"]

_VALUE: Final = msgspec.msgpack.Decoder(tuple[int, int])


class Memory:
    """The duplicate suppression of one broker; `wake_by` gets the time when there is something to forget."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        count: Callable[..., None],
        wake_by: Callable[[int], None],
    ) -> None:
        self.seen: Seen[tuple[str, int]] = Seen(settings.max_seen)
        self.unstored: dict[Block, None] = {}
        """The blocks of events seen since the last step."""
        self._grace_ns = settings.seen_grace_ns
        self._keeps = settings.buffers
        self._store = store
        self._erase = erase
        self._count = count
        self._wake_by = wake_by

    def __len__(self) -> int:
        return len(self.seen)

    def has(self, id: EventId) -> bool:
        """Whether an event was given to clients here."""
        publisher, epoch, sequence = id
        return self.seen.has((publisher, epoch), sequence)

    def remember(self, id: EventId, until_ns: int) -> None:
        """Remember an event that is given to clients here, and lives until then."""
        expires_ns = until_ns + self._grace_ns
        publisher, epoch, sequence = id
        forgotten = self.seen.add((publisher, epoch), sequence, expires_ns)
        self._wake_by(expires_ns)
        if self._keeps:
            self.unstored[(publisher, epoch), sequence // BLOCK] = None
        if forgotten:
            self._count("seen forgotten")
            self._forget(forgotten)

    def batch(self, events: Sequence[Held], stay_ns: int) -> Batch:
        """Events that are looked up and remembered together; each lives for this long after its departure."""
        batch: Batch = {}
        publisher, epoch, block = "", -1, -1
        stay_ns += self._grace_ns
        for held in events:
            whose, incarnation, sequence = held.id
            expires_ns = held.since_ns + stay_ns
            if sequence // BLOCK != block or incarnation != epoch or whose != publisher:
                publisher, epoch, block = whose, incarnation, sequence // BLOCK
                marks = batch.setdefault(((whose, incarnation), block), [0, expires_ns, expires_ns])
            marks[0] |= 1 << sequence % BLOCK
            if expires_ns > marks[2]:
                marks[2] = expires_ns
        return batch

    def remember_all(self, events: Sequence[Held], stay_ns: int, batch: Batch) -> None:
        """Remember these events, of which this is the batch: `remember` for each of them."""
        if not self.seen.has_room(len(events)):
            for held in events:
                self.remember(held.id, held.since_ns + stay_ns)
            return
        self.seen.add_all(batch)
        self._wake_by(min(held.since_ns for held in events) + stay_ns + self._grace_ns)
        if self._keeps:
            self.unstored.update(dict.fromkeys(batch))

    @property
    def next_expiry_ns(self) -> int | None:
        """When something may be forgotten."""
        return self.seen.next_expiry_ns

    def forget_old(self, now_ns: int) -> None:
        """Forget events that cannot arrive again."""
        self._forget(self.seen.forget_old(now_ns))

    def restore(self, blocks: Iterable[tuple[str, bytes]]) -> None:
        """Restore blocks of the durable store, by keys without their first part."""
        for key, value in blocks:
            bits, expires_ns = _VALUE.decode(value)
            self.seen.restore(_block_of(key), bits, expires_ns)

    def flush(self) -> None:
        """Store new entries."""
        for block in self.unstored:
            value = self.seen.value(block)
            if value is not None:
                self._store(_key_of(block), encode_plain(value))
        self.unstored.clear()

    def _forget(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if self._keeps:
                self._erase(_key_of(block))
                self.unstored.pop(block, None)


def _key_of(block: Block) -> str:
    (publisher, epoch), number = block
    return f"seen/{epoch}/{number}/{publisher}"


def _block_of(key: str) -> Block:
    """The block of a key without its first part."""
    epoch, number, publisher = key.split("/", 2)
    return (publisher, int(epoch)), int(number)
