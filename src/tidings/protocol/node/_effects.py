"""A node's effects on sockets, disk and clock; its other effects are for the application.

A driver carries out the effects of a call in their order, and reports back: `opened` or `lost` after `Dial`, `lost`
after `Shut`, `committed` or `refused` after `Commit`, `wake` after `SetTimer`.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tidings.protocol._effects import (
    Acknowledged,
    Confirmed,
    Deliver,
    DeliverTogether,
    Failed,
    HandedOver,
    Heard,
    Moved,
    Note,
    SetTimer,
)

__all__ = ["Admitted", "Commit", "Dial", "NodeEffect", "Parted", "Read", "Report", "Shut", "Unreached", "Write"]


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Open a connection, by this name, to an address; with TLS, to a peer with a certificate for `server_name`."""

    connection: str
    address: str
    server_name: str | None


class Write(msgspec.Struct, frozen=True):
    """Write these bytes to a connection, with one call; within the process, hand over these frames."""

    connection: str
    parts: list[Any]


class Shut(msgspec.Struct, frozen=True, gc=False):
    """Close a connection: at once, or when what was written has left."""

    connection: str
    reason: str
    at_once: bool


class Read(msgspec.Struct, frozen=True, gc=False):
    """Stop reading from a connection, or continue."""

    connection: str
    is_on: bool


class Commit(msgspec.Struct, frozen=True):
    """Write these values (None: erase) to the durable store in one transaction, and sync it.

    Values are sealed: the store keeps them unchanged, and returns them to `opened` in the next incarnation. With
    `is_ahead`, all are erasures that may precede other writes, to make room: in as many transactions as fit.
    """

    writes: dict[str, bytes | None]
    is_ahead: bool = False


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A connection has been admitted: the machine knows it by this peer."""

    connection: str
    peer: str
    kind: Literal["broker", "client"]


class Unreached(msgspec.Struct, frozen=True, gc=False):
    """A peer could not be reached, or (with a code) refuses this node; `is_news`: for another reason than before."""

    target: str
    why: str
    code: str
    is_news: bool


class Parted(msgspec.Struct, frozen=True, gc=False):
    """An admitted connection has ended."""

    connection: str
    peer: str
    address: str
    why: str


class Report(msgspec.Struct, frozen=True):
    """An entry for the operator's log."""

    level: Literal["info", "warning", "error"]
    event: str
    facts: Mapping[str, Any]


NodeEffect = (
    Dial
    | Write
    | Shut
    | Read
    | Commit
    | SetTimer
    | Admitted
    | Unreached
    | Parted
    | Report
    | Heard
    | Deliver
    | DeliverTogether
    | Confirmed
    | Failed
    | Moved
    | Note
    | Acknowledged
    | HandedOver
)
