"""The events that a stream has taken and Spark has not committed: on the driver's disk, in the order of their coming.

Rules:

- Events that come together are one transaction; they are acknowledged after it (`keep` of a subscription). So whatever
  a broker no longer holds is here, until it is forgotten.
- Each event has a number, one more than the one before. Reading from one number to another gives the same bytes however
  often it is done: Spark's offsets are these numbers, and a batch that is planned again is the same batch.
- No event is here twice: it is known by its publisher, epoch and sequence for as long as a copy may come, `seen_s`, and
  of the last MAX_SEEN events. A copy comes when the job ends between keeping an event and acknowledging it.
- MAX_EVENTS or MAX_BYTES, and there is no room: the broker keeps the rest in its queue, where deadlines decide.
- The store is a broker's (`live/storage`): LMDB, one process at a time, values with checksums.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidings.errors import ConfigurationError
from tidings.live import Delivery, StoreError
from tidings.live.client.columns import event_row
from tidings.live.storage import Store
from tidings.protocol.node import opened, sealed

__all__ = ["Spool", "position"]

MAX_EVENTS: Final = 100_000
MAX_BYTES: Final = 256 << 20
MAX_SEEN: Final = 100_000
STORE_BYTES: Final = 4 * MAX_BYTES
OPEN_WAIT_S: Final = 20.0
"""How long a process that was asked to end may take to release the spool."""
_PAUSE_S: Final = 0.05

_HEAD: Final = "head"
_EVENT: Final = "event/"
_SEEN: Final = "seen/"
_record = msgspec.msgpack.Encoder().encode
_seen_of = msgspec.msgpack.Decoder(tuple[str, int, int, int]).decode


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spool it is, and the numbers of the first event that is here and of the next that comes."""

    id: str
    client: str
    first: int = 0
    end: int = 0


Offset = dict[str, str | int]
"""What Spark keeps in its checkpoint: which spool, and the number of the next event."""


def position(offset: Offset) -> int:
    """The number in an offset."""
    return int(offset["next"])


class Spool:
    """An open spool; `keep` is called by the client's thread, everything else by Spark's."""

    def __init__(self, store: Store, client: str, seen_s: float) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen_us = round(seen_s * 1e6)
        self._events: deque[bytes] = deque()  # encoded records, from `first` on
        self._bytes = 0
        self._seen: deque[tuple[int, int, tuple[str, int, int]]] = deque()  # number, until when, event
        self._ids: set[tuple[str, int, int]] = set()
        found = opened(store.load())
        if found.damaged:
            raise StoreError(f"spool {store.directory}: {len(found.damaged)} records are damaged; check the disk")
        kept = found.kept
        head = Head(id=uuid.uuid4().hex[:12], client=client)
        if _HEAD in kept:
            head = msgspec.msgpack.decode(kept[_HEAD], type=Head)
        if head.client != client:
            raise ConfigurationError(
                f"option spool: {store.directory} is that of client {head.client!r}, and name is {client!r}; give "
                "each stream a directory of its own"
            )
        self.id, self._client, self.first, self.end = head.id, client, head.first, head.end
        for number in range(self.first, self.end):
            self._events.append(kept[f"{_EVENT}{number:020}"])
        self._bytes = sum(map(len, self._events))
        for key in sorted(key for key in kept if key.startswith(_SEEN)):
            publisher, epoch, sequence, until_us = _seen_of(kept[key])
            self._seen.append((int(key.removeprefix(_SEEN)), until_us, (publisher, epoch, sequence)))
            self._ids.add((publisher, epoch, sequence))
        if _HEAD not in kept:
            self._commit({}, end=self.end)

    @classmethod
    def open(cls, directory: Path, client: str, seen_s: float) -> "Spool":
        """The spool in a directory, or a new one; a process that is just ending is waited for."""
        until_s = time.monotonic() + OPEN_WAIT_S
        while True:
            try:
                store = Store.open(directory, max_bytes=STORE_BYTES)
            except StoreError as error:
                if "in use" not in str(error) or time.monotonic() > until_s:
                    raise ConfigurationError(f"option spool: {error}") from None
                time.sleep(_PAUSE_S)
                continue
            try:
                return cls(store, client, seen_s)
            except BaseException:
                store.close()
                raise

    def offset(self, number: int) -> Offset:
        """What Spark keeps of a number."""
        return {"spool": self.id, "next": number}

    def require(self, offset: Offset) -> int:
        """The number in an offset of this spool, if everything from there on is still here."""
        number = position(offset)
        if offset.get("spool") == self.id and self.first <= number <= self.end:
            return number
        has = f"spool {self.id} with events {self.first} to {self.end}"
        raise ConfigurationError(
            f"option spool: the checkpoint goes on at event {number} of spool {offset.get('spool')}, and "
            f"{self._store.directory} holds {has}. Bring back the directory that belongs to the checkpoint, or begin "
            "with a new checkpoint: then the stream goes on with what is in this spool"
        )

    def keep(self, came: Sequence[Delivery]) -> bool:
        """Make events durable, but those that are here already; whether there is room for more."""
        now_us = time.time_ns() // 1000
        with self._lock:
            writes: dict[str, bytes | None] = {}
            new: list[bytes] = []
            for each in came:
                event = (each.publisher, each.epoch, each.sequence)
                if event not in self._ids:
                    number = self.end + len(new)
                    self._remember(number, event, now_us + self._seen_us, writes)
                    new.append(_record(event_row(each, now_us)))
                    writes[f"{_EVENT}{number:020}"] = new[-1]
            if new:
                self._forget_seen(now_us, writes)
                self._commit(writes, end=self.end + len(new))
                self._events.extend(new)
                self._bytes += sum(map(len, new))
                self.end += len(new)  # only now: Spark must not hear of a number that is not durable
            return self._has_room

    def records(self, begin: int, end: int) -> list[bytes]:
        """The events from one number to another, encoded."""
        with self._lock:
            return [self._events[number - self.first] for number in range(begin, end)]

    def end_of(self, begin: int, max_events: int, max_bytes: int) -> int:
        """Up to where a batch may go that begins there: so many events, and about so many bytes."""
        with self._lock:
            size_bytes, number = 0, begin
            while number < min(self.end, begin + max_events) and size_bytes < max_bytes:
                size_bytes += len(self._events[number - self.first])
                number += 1
            return number

    def forget(self, end: int) -> bool:
        """Spark has committed everything before this number; whether there is room again that there was not."""
        with self._lock:
            had_room = self._has_room
            writes: dict[str, bytes | None] = {f"{_EVENT}{each:020}": None for each in range(self.first, end)}
            if writes:
                for _ in range(self.first, end):
                    self._bytes -= len(self._events.popleft())
                self.first = end
                self._commit(writes, end=self.end)
            return self._has_room and not had_room

    def close(self) -> None:
        """Others may open it."""
        with self._lock:
            self._store.close()

    @property
    def _has_room(self) -> bool:
        return len(self._events) < MAX_EVENTS and self._bytes < MAX_BYTES

    def _remember(
        self, number: int, event: tuple[str, int, int], until_us: int, writes: dict[str, bytes | None]
    ) -> None:
        self._ids.add(event)
        self._seen.append((number, until_us, event))
        writes[f"{_SEEN}{number:020}"] = _record((*event, until_us))

    def _forget_seen(self, now_us: int, writes: dict[str, bytes | None]) -> None:
        """The ids of which no copy can come any more, and the oldest if there are too many."""
        while self._seen and (self._seen[0][1] < now_us or len(self._seen) > MAX_SEEN):
            number, _, event = self._seen.popleft()
            self._ids.discard(event)
            writes[f"{_SEEN}{number:020}"] = None

    def _commit(self, writes: dict[str, bytes | None], *, end: int) -> None:
        head = Head(id=self.id, client=self._client, first=self.first, end=end)
        records = {key: None if value is None else sealed(key, value) for key, value in writes.items()}
        self._store.commit(records | {_HEAD: sealed(_HEAD, _record(head))})
