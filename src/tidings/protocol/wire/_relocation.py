"""The messages that move clients, and that find out where they should be (paper E)."""

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
    """An event that is traced, to find its publisher's place (paper E): `number` within its session.

    Without a number every broker reports at once how many it served (POP); with one, when it is asked (GRAPE).
    """

    session: Count
    number: Annotated[int, Meta(ge=0, lt=MAX_TRACED)] | None = None


class Move(WireMessage, frozen=True, tag=18):
    """The client would be better placed at this broker: the home broker asks it to move there (paper E, phase 3)."""

    target: Name


class MigrationUpdate(WireMessage, frozen=True, tag=19):
    """The sender's home is that broker now (MUM): forget it here, and send after it what still comes for it.

    A request like the others, `life` and `number` included. A broker that a move was called off to is told the same,
    but that it was not the sender's home (`was_home`).
    """

    life: Count
    number: Count
    home: Name
    was_home: bool = True


class MigrationComplete(WireMessage, frozen=True, tag=20):
    """The client is forgotten, durably (MCM): it is at home where it said, and nowhere else."""

    number: Count


class Moving(WireMessage, frozen=True, tag=40):
    """How far the sender's move to another broker has come, for its home to know; that it is done, by a
    `MigrationUpdate`. The broker that it has moved to is told that it is at home there, and has asked for all that it
    wants. Each is said again with the next connection, until there is something else to say."""

    target: Name
    phase: Literal["joining", "paused", "called off", "at home"]
    why: Annotated[str, Meta(max_length=MAX_NAME)] = ""


class TraceResult(WireMessage, frozen=True, tag=21):
    """So many subscribers were served with a traced event at the sender and behind it (TRM)."""

    publisher: Name
    epoch: Count
    sequence: Count
    subscribers: Count


class RelocationRequest(WireMessage, frozen=True, tag=22):
    """The walk to the publisher's place (RRM): subscribers left behind, and the brokers it came by, latest first."""

    publisher: Name
    left_behind: Figure
    brokers: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_PATH)]


class RelocationAnswer(WireMessage, frozen=True, tag=23):
    """Where the walk ended (RAM), on its way back by these brokers, the next one first."""

    publisher: Name
    target: Name
    brokers: Annotated[tuple[Name, ...], Meta(max_length=MAX_PATH)]


class TraceRequest(WireMessage, frozen=True, tag=24):
    """Tell what you and those behind you noted of a session (TIR), within `patience_ns`."""

    root: Name
    publisher: Name
    epoch: Count
    session: Count
    patience_ns: Duration


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one broker noted of a session; `parent` is the broker that its events came from.

    A bit for each event that it delivered, lowest first; how often it delivered; how long events take from here to a
    client and to each neighbour.
    """

    broker: Name
    parent: Annotated[str, Meta(max_length=MAX_NAME)]
    bits: Annotated[bytes, Meta(max_length=MAX_TRACED // 8)]
    deliveries: Annotated[int, Meta(ge=0, le=2**40)]
    to_client_ns: Duration
    onward_ns: Annotated[dict[Name, Duration], Meta(max_length=MAX_NEIGHBOURS)]


class TraceAnswer(WireMessage, frozen=True, tag=25):
    """The answers of the sender and of those behind it (TIA)."""

    root: Name
    publisher: Name
    epoch: Count
    session: Count
    answers: Annotated[tuple[Answer, ...], Meta(max_length=MAX_TARGETS)]
