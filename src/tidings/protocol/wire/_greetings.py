"""Messages between the two ends of a connection: greetings, pings, and answers to requests."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.protocol.wire._events import Outcomes
from tidings.protocol.wire._fields import (
    MAX_NAME,
    ClockReading,
    Count,
    Duration,
    Name,
    Record,
    Share,
    Window,
    WireMessage,
)

__all__ = ["Done", "Error", "Hello", "Ping", "Pong", "Welcome"]


class Hello(WireMessage, frozen=True, tag=1):
    """The sender's name, version, the number of unacknowledged events it accepts, and its clock.

    A tracing broker adds the share of events for which clients should report the delivery to the application (`Given`).
    """

    version: int
    name: Name
    kind: Annotated[str, Meta(pattern="^(broker|client)$")]
    epoch: Count
    credit: Window
    clock_ns: ClockReading | None = None
    sample: Share = 0.0


class Welcome(WireMessage, frozen=True, tag=2):
    """The answer to a `Hello`, with the same fields, and with the clock reading of that one.

    It arrives before any event, so that both know the difference of their clocks from the first event on. If the sender
    knows of a later epoch of the peer, it states that (`last_life`), and the greeting has no other effect.
    """

    version: int
    name: Name
    kind: Annotated[str, Meta(pattern="^(broker|client)$")]
    epoch: Count
    credit: Window
    clock_ns: ClockReading | None = None
    yours_ns: ClockReading | None = None
    sample: Share = 0.0
    last_life: Count = 0


class Error(WireMessage, frozen=True, tag=3):
    """The refusal of a frame or a request; `request` is its name, or empty, and `number` that of its sending."""

    code: Name
    text: Annotated[str, Meta(max_length=4_096)]
    kind: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    request: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    number: Count = 0


class Done(WireMessage, frozen=True, tag=4):
    """The request of this kind, name and number is carried out, and durable."""

    kind: Name
    request: Name
    number: Count = 0


class Ping(WireMessage, frozen=True, tag=16):
    """A sign of life, to be answered. `sent_ns` is the sender's clock, and is returned.

    Clients are pinged and do not ping, so the sender includes its measurements: the round trip (0: unknown), and the
    receiver's clock at `sent_ns`, within `error_ns`. `digest` stands for all that the sender knows of links and
    subscriptions; a neighbour whose own differs for long sends it everything. `record` is how many of its last events
    each event of a client should describe: 0 unless a subscriber wants its events in order.
    """

    sent_ns: int
    rtt_ns: Duration
    digest: Count
    yours_ns: ClockReading | None = None
    error_ns: Duration = 0
    record: Record = 0


class Pong(WireMessage, frozen=True, tag=17):
    """The answer, with the sender's clock. A client adds the outcomes of the events that it was given."""

    sent_ns: int
    clock_ns: ClockReading | None = None
    outcomes: Outcomes = msgspec.field(default_factory=dict)
