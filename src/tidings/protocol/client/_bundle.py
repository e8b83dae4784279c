"""Events that came to clients of one process together, decoded once for all of them.

A broker hands the same list of encoded events to all its local clients that get the same events in a step
(`wire.Parts`). What does not depend on the client is computed once, and kept with the list: the contents, the ages, the
identities as `_seen` remembers them. What receivers make of the events may be kept there as well (`notes`).
"""

from typing import Any, Final, NamedTuple

import msgspec

from tidings.errors import InputError
from tidings.ordering import Stamp
from tidings.protocol import wire
from tidings.protocol._effects import EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._histogram import bucket_of
from tidings.protocol._seen import BLOCK, Batch

__all__ = ["Bundle", "Bundled", "Bundles"]

MAX_BUNDLES: Final = 64
"""How many bundles are remembered; one that is forgotten is decoded again."""
_EVENT: Final = msgspec.msgpack.Decoder(wire.Event)


class Bundled(NamedTuple):
    """One of the events."""

    event: EventId
    content: wire.Content
    since_ns: int
    """When it departed, by the clock of this process."""
    lifetime_ns: int


class Bundle:
    """Events that left their broker together."""

    __slots__ = ("_ages", "_seen", "ends_ns", "events", "notes", "oldest_ns", "publishers")

    def __init__(self, events: tuple[Bundled, ...]) -> None:
        self.events = events
        self.publishers = {each.event[0] for each in events}
        self.oldest_ns = min(each.since_ns for each in events)
        self.ends_ns = min(each.since_ns + each.lifetime_ns for each in events)
        """When the first lifetime ends."""
        self.notes: dict[Any, Any] = {}
        self._ages: tuple[int, dict[int, int]] = (-1, {})
        self._seen: dict[tuple[str, int], Batch | None] = {}

    def ages(self, now_ns: int) -> dict[int, int]:
        """The present ages, counted by size (`_histogram`)."""
        at_ns, ages = self._ages
        if at_ns != now_ns:
            ages = {}
            for each in self.events:
                bucket = bucket_of(now_ns - each.since_ns)
                ages[bucket] = ages.get(bucket, 0) + 1
            self._ages = (now_ns, ages)
        return ages

    def seen(self, subscription: str, kept_ns: int) -> Batch | None:
        """What a subscription remembers of them, for this long after their lifetimes; None if one is there twice."""
        key = (subscription, kept_ns)
        if key not in self._seen:
            batch: Batch = {}
            for (publisher, epoch, sequence), _, since_ns, lifetime_ns in self.events:
                ends_ns = since_ns + lifetime_ns + kept_ns
                block = batch.setdefault(((subscription, publisher, epoch), sequence // BLOCK), [0, ends_ns, ends_ns])
                block[0] |= 1 << sequence % BLOCK
                block[1], block[2] = min(block[1], ends_ns), max(block[2], ends_ns)
            is_whole = sum(bits.bit_count() for bits, _, _ in batch.values()) == len(self.events)
            self._seen[key] = batch if is_whole else None
        return self._seen[key]


class Bundles:
    """The last bundles of one process."""

    def __init__(self, max_lifetime_ns: int) -> None:
        self._max_lifetime_ns = max_lifetime_ns
        self._known: dict[int, tuple[Any, Bundle | None]] = {}  # by the identity of the list, which is kept with it

    def of(self, parts: wire.Parts) -> Bundle | None:
        """The events of a transfer; None if one of them is invalid."""
        events = parts.events
        known = self._known.get(id(events))
        if known is None:
            if len(self._known) >= MAX_BUNDLES:
                self._known.clear()
            known = self._known[id(events)] = (events, self._read(parts))
        return known[1]

    def forget(self) -> None:
        """All clients have got their events."""
        self._known.clear()

    def _read(self, parts: wire.Parts) -> Bundle | None:
        found = []
        try:
            for event in parts.events:
                if type(event) is bytes:
                    read = _EVENT.decode(event)
                    id, since_ns = (read.publisher, read.epoch, read.sequence), parts.sent_ns - read.age_ns
                else:
                    read, id, since_ns = event, event.id, event.since_ns
                content = wire.decode_content(read.content, read.check)
                Stamp.decode(content.stamp)
                lifetime_ns = min(read.lifetime_ns or self._max_lifetime_ns, self._max_lifetime_ns)
                found.append(Bundled(id, content, since_ns, lifetime_ns))
        except (PeerError, InputError, msgspec.MsgspecError):
            return None
        return Bundle(tuple(found))
