"""The latest waiting event of each key, for subscriptions that want no other (`wire.Entry.conflate`).

- The key of an event is its values of the attributes that the subscription names. An event that lacks one of them has
  no key: it replaces nothing, and nothing replaces it.
- Of two events of one publisher the later in sequence is newer; of two publishers' the one that came later.
- For each subscription and key at most one event waits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from tidings.protocol._effects import EventId

__all__ = ["Key", "Latest", "is_newer", "key_of"]

T = TypeVar("T")
Key = tuple[tuple[bool, Any], ...]
_Place = tuple[str, Key]


def key_of(attributes: Mapping[str, Any], names: Sequence[str]) -> Key | None:
    """The values of these attributes, None if one is missing. TRUE differs from 1, and 1 does not from 1.0."""
    values = [attributes.get(name) for name in names]
    return None if None in values else tuple((isinstance(value, bool), value) for value in values)


def is_newer(before: EventId, after: EventId) -> bool:
    """Whether an event that came before another is newer all the same: it has overtaken it."""
    return before[0] == after[0] and before[1:] > after[1:]


class Latest(Generic[T]):
    """What waits for one client, by subscription and key. Its bound is that of the queue, for each subscription."""

    __slots__ = ("_items", "_places")

    def __init__(self) -> None:
        self._items: dict[_Place, T] = {}
        self._places: dict[T, list[_Place]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, key: Key) -> T | None:
        """The event of this key that waits for a subscription."""
        return self._items.get((name, key))

    def enter(self, item: T, keys: Mapping[str, Key]) -> None:
        """An event waits from now on; it is the latest of its keys, which are given by subscription."""
        self._places[item] = places = list(keys.items())
        self._items.update(dict.fromkeys(places, item))

    def leave(self, item: T) -> None:
        """An event waits no more."""
        for place in self._places.pop(item, ()):
            if self._items.get(place) is item:
                del self._items[place]

    def replace(self, item: T, other: T) -> None:
        """Something else stands for the same event."""
        places = self._places.pop(item, None)
        if places is not None:
            self._places[other] = places
            self._items.update({place: other for place in places if self._items.get(place) is item})
