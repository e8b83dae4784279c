"""Requests of clients to their home brokers: advertisements and subscriptions."""

import msgspec

from tidings.protocol.wire._fields import (
    Conflated,
    Count,
    Duration,
    FilterText,
    Name,
    Price,
    Record,
    Target,
    WireMessage,
)

__all__ = ["Advertise", "Entry", "Subscribe", "Unadvertise", "Unsubscribe"]


class Advertise(WireMessage, frozen=True, tag=5):
    """The sender will publish events that match this filter. `life` and `number` as in all requests.

    A request is for the epoch (`life`) of the broker that the client has greeted, and is numbered anew each time that
    it is sent. A broker carries it out unless it has seen a higher number, so no old copy undoes a newer request.
    """

    life: Count
    number: Count
    name: Name
    filter: FilterText


class Unadvertise(WireMessage, frozen=True, tag=6):
    """The sender withdraws an advertisement."""

    life: Count
    number: Count
    name: Name


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription as brokers know it: `late_ns` is how long after its deadline it still wants an event.

    One that wants a publisher's events in order states the length of the publication record that its policy reads, if
    any. One with `conflate` wants the latest event alone of those with equal values of these attributes: while one
    waits for it at its home broker, a newer one replaces it.
    """

    name: Target
    filter: FilterText
    max_delay_ns: Duration | None
    price: Price
    late_ns: Duration
    record: Record | None = None
    conflate: Conflated = ()


class Subscribe(WireMessage, frozen=True, tag=7):
    """The sender wants these events."""

    life: Count
    number: Count
    entry: Entry


class Unsubscribe(WireMessage, frozen=True, tag=8):
    """The sender no longer wants them."""

    life: Count
    number: Count
    name: Name
