"""Events that the durable store kept, as it kept them, until something happens to them.

A broker that starts again may have to answer for very many events, and others wait for it meanwhile. So:

- It reads `read_at_once` of them when it starts, and so many again every `read_pause_ns` while it serves. An event that
  is not read yet counts as stored. It goes on, if there is a way or a client for it, when it is read; if it comes again
  before, it is read first. So it makes no difference but in time.
- Of an event that is read only the name is taken, and when it expires; whom it is for is found once for all events
  that are for the same (a `Shelf`). Custody of it is made when it is needed: when a client or a way comes for which the
  shelf holds events, when the event itself comes again, when it expires. Nothing has happened to it before, so it is
  then what it would have been if it had been made at once.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tidings.protocol._effects import EventId
from tidings.protocol.broker._courses import latest_ns
from tidings.protocol.broker._custody import Custody, RecordHead, decode_record
from tidings.protocol.wire import Term

__all__ = ["Shelf", "Shelves", "Stored"]


class Shelf(NamedTuple):
    """Whom events are for: home brokers, and clients here; and the age from which on nobody wants them."""

    targets: dict[str, tuple[Term, ...]]
    local: dict[str, dict[str, tuple[Term, ...]]]
    latest_ns: int


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event as the store kept it."""

    id: EventId
    data: bytes
    shelf: Shelf
    expires_ns: int
    ends_ns: int
    """When its lifetime is over."""

    def custody(self) -> Custody:
        """Answer for it."""
        return decode_record(self.data)


_HEAD = msgspec.msgpack.Decoder(RecordHead)
_TARGETS = msgspec.msgpack.Decoder(dict[str, tuple[Term, ...]])
_LOCAL = msgspec.msgpack.Decoder(dict[str, dict[str, tuple[Term, ...]]])


class Shelves:
    """All shelves of a broker; `held` is what it answers for, in which custody takes the place of what was stored."""

    def __init__(self, held: MutableMapping[EventId, Any]) -> None:
        self.unread: dict[str, bytes] = {}
        """Events that are not read yet, by their keys in the store."""
        self._held = held
        self._shelves: dict[tuple[bytes, bytes], Shelf] = {}

    def read(self, most: int | None) -> list[Stored]:
        """The next events that are not read yet, or all of them."""
        keys = list(islice(self.unread, most))
        return list(self._read(map(self.unread.pop, keys)))

    def read_one(self, key: str) -> list[Stored]:
        """This event, if it is not read yet."""
        data = self.unread.pop(key, None)
        return [] if data is None else list(self._read((data,)))

    def _read(self, events: Iterable[bytes]) -> Iterator[Stored]:
        decode, shelves = _HEAD.decode, self._shelves
        for data in events:
            head = decode(data)
            key = (bytes(head.targets), bytes(head.local))
            shelf = shelves.get(key)
            if shelf is None:
                shelf = shelves[key] = _shelf(*key)
            since_ns = head.since_ns
            id = (head.publisher, head.epoch, head.sequence)
            yield Stored(id, data, shelf, since_ns + shelf.latest_ns, since_ns + head.lifetime_ns)

    def clear(self, wanted: Callable[[Shelf], bool]) -> None:
        """Answer for every event of the wanted shelves by itself."""
        keys = [key for key, shelf in self._shelves.items() if wanted(shelf)]
        if keys:
            cleared = {id(self._shelves.pop(key)) for key in keys}
            for name, each in self._held.items():
                if type(each) is Stored and id(each.shelf) in cleared:
                    self._held[name] = each.custody()


def _shelf(targets: bytes, local: bytes) -> Shelf:
    elsewhere, here = _TARGETS.decode(targets), _LOCAL.decode(local)
    terms = [*elsewhere.values(), *(terms for wanted in here.values() for terms in wanted.values())]
    return Shelf(elsewhere, here, max(map(latest_ns, terms), default=0))
