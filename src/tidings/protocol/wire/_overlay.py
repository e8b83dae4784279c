"""What brokers report to each other: links, subscriptions, ledgers, and clients with a new home."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.protocol.wire._fields import (
    MAX_ENTRIES,
    MAX_NEIGHBOURS,
    MAX_PARTS,
    MAX_ROWS,
    Count,
    Duration,
    Figure,
    Name,
    Start,
    Target,
    WireMessage,
)
from tidings.protocol.wire._requests import Entry

__all__ = ["Ask", "Interest", "InterestPart", "Ledger", "LinkState", "Rehomed"]


class LinkState(WireMessage, frozen=True, tag=13):
    """The neighbours that `origin` hears and is heard by, with mean and variance of each link's slowness, and the least
    time that an event is under way to each."""

    origin: Name
    epoch: Count
    number: Count
    age_ns: Duration
    neighbours: Annotated[dict[Name, tuple[Figure, Figure]], Meta(max_length=MAX_NEIGHBOURS)]
    least_ns: Annotated[dict[Name, Duration], Meta(max_length=MAX_NEIGHBOURS)] = msgspec.field(default_factory=dict)


class Interest(WireMessage, frozen=True, tag=14):
    """The subscriptions at `origin`: changes from version `base` (0: everything) to `version`.

    With base = version nothing has changed, and the origin is alive: the refresh of soft state.
    """

    origin: Name
    epoch: Count
    number: Count
    version: Count
    base: Count
    age_ns: Duration
    added: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)] = ()
    removed: Annotated[tuple[Target, ...], Meta(max_length=MAX_ENTRIES)] = ()


class InterestPart(WireMessage, frozen=True, tag=26):
    """A part of the subscriptions at `origin` in this version: those whose names follow `after`, in order.

    For tables that one `Interest` cannot hold. A part contains everything from `after` up to its own last name, or up
    to the end, so parts may come from any broker, and twice.
    """

    origin: Name
    epoch: Count
    number: Count
    version: Count
    age_ns: Duration
    after: Start
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)]
    is_last: bool


class Ask(WireMessage, frozen=True, tag=15):
    """The sender lacks the subscriptions of this origin: send it everything, or the next `parts` after a name."""

    origin: Name
    after: Start = ""
    parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)] = 1


class Ledger(WireMessage, frozen=True, tag=27):
    """The events that `origin` has accepted for subscriptions at `target`, in epoch `life` of that broker, and has
    dropped in transit.

    It is about the events that broker `root` has accepted in one of its periods; `rows` have for each subscription how
    many, and how many of them the origin has dropped. Both are cumulative, and of the ledgers of an origin the one with
    the highest number counts. `is_final`: the period has ended, and its last event has expired. It is forwarded towards
    its target, and may be lost.
    """

    target: Name
    life: Count
    origin: Name
    epoch: Count
    number: Count
    root: Name
    period: Count
    rows: Annotated[dict[Target, tuple[Count, Count]], Meta(min_length=1, max_length=MAX_ROWS)]
    is_final: bool = False
    hops: Annotated[int, Meta(ge=0, le=255)] = 0


class Rehomed(WireMessage, frozen=True, tag=29):
    """A client that is known at `target` is at home at `home` in the epoch `epoch`, with all its subscriptions there.

    It is forwarded towards its target, and may be lost.
    """

    target: Name
    client: Name
    epoch: Count
    home: Name
    hops: Annotated[int, Meta(ge=0, le=255)] = 0
