"""Events that come before their subscriptions are made again.

A broker sends what it has kept for a durable client as soon as it is greeted, and a new incarnation of the client may
not have subscribed yet. Such events wait here, not acknowledged, until the application has made or ended their
subscriptions, or the client has settled; then they go the way of all events, in the order in which they came and before
any that come later. What is not taken by then comes again, because the broker has had no acknowledgement.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tidings.protocol import wire
from tidings.protocol.links._peers import Peer

__all__ = ["EarlyEvent", "EarlyEvents"]


class EarlyEvent(NamedTuple):
    """An event under way from a broker, and the subscriptions of a former incarnation that have not got it."""

    source: Peer
    epoch: int
    """The broker's."""
    number: int
    event: wire.Event
    names: Sequence[str]
    left_ns: int
    """When its frame left, by this client's clock as it was known when the event came."""
    link_ns: int | None
    """By how much that may be wrong. A later reading of the clock is better, and not the one that was used."""


class EarlyEvents:
    """The events of one client that wait; `former` finds the subscriptions that may still be made again."""

    __slots__ = ("_events", "_former", "most")  # there may be many clients in one process

    def __init__(self, former: Callable[[Iterable[str]], list[str]], most: int) -> None:
        self.most = most
        """Further ones are left with the broker, which sends them again."""
        self._former = former
        self._events: dict[tuple[str, int], EarlyEvent] = {}

    def __len__(self) -> int:
        return len(self._events)

    def has(self, source: Peer, number: int) -> bool:
        """Whether the event of this number waits."""
        return (source.name, number) in self._events

    def add(self, event: EarlyEvent) -> bool:
        """Keep an event, if there is room."""
        if len(self._events) >= self.most:
            return False
        self._events[event.source.name, event.number] = event
        return True

    def ready(self) -> Iterator[tuple[EarlyEvent, list[str], bool]]:
        """The events that wait no longer: each with the subscriptions that get it now, and whether that is all."""
        for key, each in list(self._events.items()):
            former = self._former(each.names)
            names = [name for name in each.names if name not in former]
            if former:
                self._events[key] = each._replace(names=former)
            else:
                del self._events[key]
            if names:
                yield each, names, not former

    def forget(self, source: Peer) -> None:
        """The broker has another epoch, or is no longer one of this client's: what it still owes comes again."""
        for key in [key for key in self._events if key[0] == source.name]:
            del self._events[key]
