"""Events from publishers, between brokers and to subscribers; their acknowledgements, outcomes and copies."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.protocol.wire._fields import (
    MAX_ATTRIBUTES,
    MAX_BATCH,
    MAX_OUTCOMES,
    MAX_TARGETS,
    MAX_TERMS,
    Check,
    ClockReading,
    Count,
    Counts,
    Duration,
    Finite,
    Name,
    Target,
    Term,
    Window,
    WireMessage,
)
from tidings.protocol.wire._relocation import Trace

__all__ = [
    "Ack",
    "Content",
    "ContentInPlace",
    "Copied",
    "Copy",
    "Credit",
    "Event",
    "Given",
    "Handover",
    "Outcome",
    "Outcomes",
    "Publication",
    "Publish",
    "Recover",
    "Release",
    "Targets",
    "Transfer",
]


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event from its publisher: `age_ns` is how long it has waited since departure. `must_reach`: refuse it while
    the broker of a receiver is out of reach."""

    sequence: Count
    departure_ns: int
    age_ns: Duration
    lifetime_ns: Duration | None
    size_bytes: Count
    content: bytes
    must_reach: bool = False
    check: Check | None = None


class Publish(WireMessage, frozen=True, tag=9):
    """Events from their publisher, numbered from `number` on; below `floor` nothing is sent again.

    `sent_ns` is the sender's clock when the frame left. `is_again`: another broker, or another incarnation of this one,
    may have accepted them before.
    """

    session: Count
    number: Count
    floor: Count
    events: Annotated[tuple[Publication, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    sent_ns: ClockReading | None = None
    is_again: bool = False


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event between brokers: the same bytes for all peers that are sent it at one time.

    `error_ns` is the possible error of its age from all links so far; None if unknown. `period` is that of `root` in
    which it was accepted, for the accounts of its subscribers (`Ledger`). `check` is the publisher's checksum of the
    content; None if the publisher, or a broker on the path, does not know checksums.
    """

    publisher: Name
    epoch: Count
    sequence: Count
    root: Name
    departure_ns: int
    age_ns: Duration
    lifetime_ns: Duration | None
    size_bytes: Count
    hops: Annotated[int, Meta(ge=0, le=255)]
    content: bytes
    trace: Trace | None = None
    error_ns: Duration | None = None
    period: Count = 0
    check: Check | None = None


Targets = Annotated[
    dict[Target, Annotated[tuple[Term, ...], Meta(max_length=MAX_TERMS)]],
    Meta(min_length=1, max_length=MAX_TARGETS),
]


class Transfer(WireMessage, frozen=True, tag=10):
    """Events, numbered from `number` on: the receiver takes on the delivery of each to its `targets`.

    Targets are home brokers with the worth of on-time deliveries, IN_ORDER first if a subscriber there wants order; for
    a client, its subscriptions without their worth. A client that has moved is a target too (`_names`). `sent_ns` is
    the sender's clock when the frame left. With `ease_ns` there is room for more: the acknowledgement may leave this
    much later than the one before.
    """

    session: Count
    number: Count
    floor: Count
    targets: Annotated[tuple[Targets, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    events: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    sent_ns: ClockReading | None = None
    ease_ns: Duration = 0


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcomes of the events that a broker has given one subscription of a client, in the present epochs of both.

    Given to the application on time, or late; discarded because they were too late, or out of order and not wanted so;
    recognised as duplicates (`again`). `out_of_order` counts those given after a later one. All of these only grow.
    `held` are waiting for earlier ones now. Delays and holds are counted by size (`_histogram`); counts that have not
    changed since the last report over a connection may be missing.
    """

    on_time: Count = 0
    late: Count = 0
    discarded: Count = 0
    again: Count = 0
    out_of_order: Count = 0
    held: Count = 0
    delays: Counts = msgspec.field(default_factory=dict)
    holds: Counts = msgspec.field(default_factory=dict)


Outcomes = Annotated[dict[Name, Outcome], Meta(max_length=MAX_OUTCOMES)]
"""By subscription: the new outcomes of a client."""


class Ack(WireMessage, frozen=True, tag=11):
    """The events of these numbers, as first and last, are stored and their next hops are known.

    The last of them was held for `held_ns`; `credit` more may be under way. A client adds their outcomes.
    """

    session: Count
    numbers: Annotated[tuple[tuple[Count, Count], ...], Meta(min_length=1, max_length=MAX_BATCH)]
    held_ns: Duration
    credit: Window
    outcomes: Outcomes = msgspec.field(default_factory=dict)


class Credit(WireMessage, frozen=True, tag=12):
    """From now on this many unacknowledged events may be under way to the sender."""

    credit: Window


class Handover(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that a client has given to its application: its age on arrival, and when it was given.

    `departure_ns` is when it left its publisher, by the clock of the publisher's home broker.
    """

    publisher: Name
    epoch: Count
    sequence: Count
    subscription: Name
    departure_ns: int
    arrived_ns: int
    age_ns: int


class Given(WireMessage, frozen=True, tag=28):
    """The events that a client has given to its application, of those that its broker traces."""

    events: Annotated[tuple[Handover, ...], Meta(min_length=1, max_length=MAX_BATCH)]


class Copy(Transfer, frozen=True, tag=30):
    """Events that the sender holds, for the receiver to keep in case the sender loses its store. Each has all its
    receivers as targets; `floor` has no meaning."""


class Copied(WireMessage, frozen=True, tag=31):
    """Copies of this session of their owner, from the first to the last of these numbers, are durable."""

    session: Count
    first: Count
    last: Count


class Release(WireMessage, frozen=True, tag=32):
    """The sender no longer holds these events: their copies are not needed."""

    events: Annotated[tuple[tuple[Name, Count, Count], ...], Meta(min_length=1, max_length=MAX_BATCH)]


class Recover(WireMessage, frozen=True, tag=33):
    """The sender has lost its store: take on the copies that you keep for its epochs before this one."""

    life: Count


class Content(msgspec.Struct, frozen=True, array_like=True):
    """The part that only the ends read: `stamp` is an encoded `ordering.Stamp`."""

    attributes: Annotated[dict[Name, int | Finite | str | bool], Meta(max_length=MAX_ATTRIBUTES)]
    stamp: bytes
    payload: bytes


class ContentInPlace(msgspec.Struct, frozen=True, array_like=True):
    """`Content` whose stamp and payload stay where they are: a broker reads the attributes alone, and copying a large
    payload would keep all others waiting."""

    attributes: Annotated[dict[Name, int | Finite | str | bool], Meta(max_length=MAX_ATTRIBUTES)]
    stamp: memoryview
    payload: memoryview
