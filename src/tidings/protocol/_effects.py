"""What a machine wants done: the only way in which the protocol touches the world.

A driver carries out the effects of a step in their order. `Store` and `Erase` may stay in memory until the `Sync` that
follows them; once everything before it is on disk, the driver calls `synced(token)`. Nothing that depends on
durability is sent before that, and one sync serves many events (group commit). `SetTimer` replaces the timer before.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tidings.protocol.wire import Handover, Publication

__all__ = [
    "Acknowledged",
    "Close",
    "Confirmed",
    "Connect",
    "Deliver",
    "Disconnect",
    "Effect",
    "Erase",
    "EventId",
    "Failed",
    "HandedOver",
    "Heard",
    "Moved",
    "Note",
    "Remark",
    "Send",
    "SetTimer",
    "Store",
    "Sync",
]

EventId = tuple[str, int, int]
"""Publisher, the publisher's epoch (one per life of its client), sequence number."""

NoteKind = Literal["accepted", "enqueued", "sent", "received", "expired", "hopeless", "full", "withdrawn", "local"]


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a frame over a connection; if it is gone, the frame is gone too. Events wait while a socket is congested."""

    connection: str
    frame: bytes
    is_event: bool = False


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a connection that broke the rules too often, or that another one has replaced."""

    connection: str
    reason: str


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Have a connection with the broker of this name, and have it again whenever it is lost, until `Disconnect`."""

    broker: str


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """Close the connection with this broker, if there is one, and try no more; the machine knows it for closed."""

    broker: str


class Store(msgspec.Struct, frozen=True, gc=False):
    """Keep a value under a key in the durable store; it counts as kept from the next completed sync on."""

    key: str
    value: bytes


class Erase(msgspec.Struct, frozen=True, gc=False):
    """Forget a key of the durable store.

    One that may go `ahead` depends on nothing that was stored before: it may become durable although other keys,
    stored earlier, do not. That is how a full store gets room again. Of one key, the last word always counts.
    """

    key: str
    ahead: bool = False


class Sync(msgspec.Struct, frozen=True, gc=False):
    """Make everything stored so far durable, then call `synced(token)`; at most one is under way per machine."""

    token: int


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Call `wake` at this time of the machine's own clock, instead of at the time set before."""

    at_ns: int


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A neighbour is heard from now on, or is not any more, and why; routes have changed with it."""

    neighbour: str
    is_up: bool
    why: str = ""


class Remark(msgspec.Struct, frozen=True):
    """Something for the operator's log: what was refused, dropped or given up, why, and what helps."""

    event: str
    facts: Mapping[str, Any]


class Deliver(msgspec.Struct, frozen=True):
    """An event for the application. `late`: its deadline for this subscription has passed; `held_ns`: how long it was
    held to restore order; `error_ns`: by how much its age may be wrong, in either direction (None: not known);
    `out_of_order`: a later event of its publisher was delivered before, although the subscription wants order."""

    subscription: str
    event: EventId
    attributes: Mapping[str, int | float | str | bool]
    payload: bytes
    age_ns: int
    late: bool
    held_ns: int = 0
    error_ns: int | None = None
    out_of_order: bool = False


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """The home broker has made what was asked for durable: `kind` and what it was given as its name."""

    kind: Literal["advertise", "unadvertise", "subscribe", "unsubscribe", "publish"]
    name: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """What was asked for will not be done; the message says why."""

    kind: str
    name: str
    code: str
    message: str


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The client has another home broker, and the one before has forgotten it, durably.

    For `paused_ns` no new event was sent on: they waited in the client.
    """

    source: str
    target: str
    paused_ns: int


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something for a trace: what happened to an event here, `peer` being the other end of the link if there is one.

    Of what waits or was sent, what for, and of what was sent the number that the acknowledgement will name; of what was
    accepted, the event as its publisher sent it, and its departure by this machine's clock.
    """

    kind: NoteKind
    event: EventId
    peer: str = ""
    number: int = -1
    targets: tuple[str, ...] = ()
    publication: Publication | None = None
    since_ns: int = 0


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """For a trace: a peer has acknowledged events by their numbers, in ranges; it held the last of them for so long."""

    peer: str
    numbers: tuple[tuple[int, int], ...]
    held_ns: int


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """For a trace: a client has given events to its application."""

    client: str
    events: tuple[Handover, ...]


Effect = (
    Send
    | Close
    | Connect
    | Disconnect
    | Store
    | Erase
    | Sync
    | SetTimer
    | Heard
    | Deliver
    | Confirmed
    | Failed
    | Moved
    | Note
    | Acknowledged
    | HandedOver
    | Remark
)
