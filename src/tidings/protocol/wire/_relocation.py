"""The messages that move clients, and that find better homes for them (paper E)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidings.protocol.wire._fields import (
    MAX_NAME,
    MAX_NEIGHBOURS,
    MAX_PATH,
    MAX_TARGETS,
    MAX_TRACED,
    Count,
    Duration,
    Figure,
    Name,
    WireMessage,
)

__all__ = [
    "Answer",
    "MigrationComplete",
    "MigrationUpdate",
    "Move",
    "Moving",
    "RelocationAnswer",
    "RelocationRequest",
    "Trace",
    "TraceAnswer",
    "TraceRequest",
    "TraceResult",
]


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The trace of an event, to find its publisher's place (paper E): `number` within its session.

    Without a number every broker reports at once how many subscribers it served (POP); with one, when it is asked
    (GRAPE).
    """

    session: Count
    number: Annotated[int, Meta(ge=0, lt=MAX_TRACED)] | None = None


class Move(WireMessage, frozen=True, tag=18):
    """The home broker asks the client to move to this broker, which is a better place (paper E, phase 3)."""

    target: Name


class MigrationUpdate(WireMessage, frozen=True, tag=19):
    """The sender's home is that broker now (MUM): forget it here, and send after it what still arrives for it.

    A request like the others, `life` and `number` included. A broker that a move was called off to gets the same, with
    `was_home` false.
    """

    life: Count
    number: Count
    home: Name
    was_home: bool = True


class MigrationComplete(WireMessage, frozen=True, tag=20):
    """The client is forgotten, durably (MCM): it is at home at its new broker only."""

    number: Count


class Moving(WireMessage, frozen=True, tag=40):
    """The progress of the sender's move to another broker, for its home; a `MigrationUpdate` reports that it is done.
    The new broker gets "at home" when the client has made all its requests there. The last report is repeated over the
    next connection."""

    target: Name
    phase: Literal["joining", "paused", "called off", "at home"]
    why: Annotated[str, Meta(max_length=MAX_NAME)] = ""


class TraceResult(WireMessage, frozen=True, tag=21):
    """How many subscribers were served with a traced event at the sender and behind it (TRM)."""

    publisher: Name
    epoch: Count
    sequence: Count
    subscribers: Count


class RelocationRequest(WireMessage, frozen=True, tag=22):
    """The walk to the publisher's place (RRM): the subscribers left behind, and the brokers it came by, latest
    first."""

    publisher: Name
    left_behind: Figure
    brokers: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_PATH)]


class RelocationAnswer(WireMessage, frozen=True, tag=23):
    """The end of the walk (RAM), returned by these brokers, the next one first."""

    publisher: Name
    target: Name
    brokers: Annotated[tuple[Name, ...], Meta(max_length=MAX_PATH)]


class TraceRequest(WireMessage, frozen=True, tag=24):
    """Report what you and the brokers behind you noted of a session (TIR), within `patience_ns`."""

    root: Name
    publisher: Name
    epoch: Count
    session: Count
    patience_ns: Duration


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The notes of one broker on a session; `parent` is the broker that its events came from.

    A bit for each event that it delivered, lowest first; the number of deliveries; the times of events from here to a
    client and to each neighbour.
    """

    broker: Name
    parent: Annotated[str, Meta(max_length=MAX_NAME)]
    bits: Annotated[bytes, Meta(max_length=MAX_TRACED // 8)]
    deliveries: Annotated[int, Meta(ge=0, le=2**40)]
    to_client_ns: Duration
    onward_ns: Annotated[dict[Name, Duration], Meta(max_length=MAX_NEIGHBOURS)]


class TraceAnswer(WireMessage, frozen=True, tag=25):
    """The answers of the sender and of the brokers behind it (TIA)."""

    root: Name
    publisher: Name
    epoch: Count
    session: Count
    answers: Annotated[tuple[Answer, ...], Meta(max_length=MAX_TARGETS)]
