"""The effects of a machine: what its driver has to do, and the only output of the protocol.

A driver carries out the effects of a step in their order. `Store` and `Erase` may stay in memory until the `Sync` that
follows them; once everything before it is on disk, the driver calls `synced(token)`. Nothing that depends on durability
is sent before that, and one sync serves many events (group commit). `SetTimer` replaces the previous timer.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tidings.protocol.wire import Handover, Publication

__all__ = [
    "Acknowledged",
    "Arrival",
    "Close",
    "Confirmed",
    "Connect",
    "Deliver",
    "DeliverTogether",
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
"""Publisher, the publisher's epoch, sequence number."""

NoteKind = Literal[
    "accepted",
    "enqueued",
    "sent",
    "received",
    "restored",
    "expired",
    "hopeless",
    "full",
    "replaced",
    "replaced in part",
    "withdrawn",
    "local",
]


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a frame over a connection; if it has ended, the frame is lost. Events wait while a socket is congested."""

    connection: str
    frame: Any
    """Bytes; to a peer in the same process, events are in parts (`wire.Parts`)."""
    is_event: bool = False


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a connection that broke the rules too often, or that another one has replaced."""

    connection: str
    reason: str


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Keep a connection with the broker of this name, and dial again whenever it is lost, until `Disconnect`."""

    broker: str


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """Close the connection with this broker, if there is one, and do not dial again; the machine treats it as
    closed."""

    broker: str


class Store(msgspec.Struct, frozen=True, gc=False):
    """Keep a value under a key in the durable store; it is durable from the next completed sync on."""

    key: str
    value: bytes


class Erase(msgspec.Struct, frozen=True, gc=False):
    """Erase a key of the durable store.

    With `ahead` it depends on nothing that was stored before: it may become durable although other keys, stored
    earlier, do not. That makes room in a full store. The last write to a key always counts.
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
    """A neighbour is heard from now on, or no longer, and why; routes have changed with it."""

    neighbour: str
    is_up: bool
    why: str = ""


class Remark(msgspec.Struct, frozen=True):
    """An entry for the operator's log: what was refused, dropped or given up, the reason, and the remedy."""

    event: str
    facts: Mapping[str, Any]


class Deliver(msgspec.Struct, frozen=True):
    """An event for the application.

    `late`: its deadline for this subscription has passed; `held_ns`: how long it was held to restore order; `error_ns`:
    the possible error of its age, in either direction (None: unknown); `out_of_order`: a later event of its publisher
    was delivered before, although the subscription wants order. `lifetime_ns`: the publisher's deadline.
    """

    subscription: str
    event: EventId
    attributes: Mapping[str, int | float | str | bool]
    payload: bytes
    age_ns: int
    late: bool
    held_ns: int = 0
    error_ns: int | None = None
    out_of_order: bool = False
    lifetime_ns: int | None = None


class DeliverTogether(msgspec.Struct, frozen=True, gc=False):
    """Events for the application, all of them on time, of a broker in the same process (`client._bundle`)."""

    subscription: str
    bundle: Any


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """The home broker has made a request or an event durable: its `kind` and its name."""

    kind: Literal["advertise", "unadvertise", "subscribe", "unsubscribe", "publish"]
    name: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A request or an event has failed; the message states why."""

    kind: str
    name: str
    code: str
    message: str


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The client has another home broker, and the former one has forgotten it, durably.

    For `paused_ns` no new event was sent: they waited in the client.
    """

    source: str
    target: str
    paused_ns: int


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """An event as a broker takes it on. `root` is the broker that accepted it; `departure_ns` is its departure by the
    clock of that broker, `since_ns` by this machine's own."""

    root: str
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    content: bytes


class Note(msgspec.Struct, frozen=True, gc=False):
    """An entry for a trace: what happened to an event here; `peer` is the other end of the link, if there is one.

    For queued and sent events, the targets, and for sent ones the number that the acknowledgement will name; for
    accepted ones, the event as its publisher sent it. For what comes (accepted, received, restored from the store) and
    what is queued, the departure by this machine's clock, and by that of the publisher's home broker. A broker that
    makes spans adds an arrival to what comes. For replaced ones, the subscriptions that no longer want it and the newer
    event; "in part": others of the client still do.
    """

    kind: NoteKind
    event: EventId
    peer: str = ""
    number: int = -1
    targets: tuple[str, ...] = ()
    publication: Publication | None = None
    since_ns: int = 0
    departure_ns: int = 0
    arrival: Arrival | None = None
    newer: EventId | None = None


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """For a trace: a peer has acknowledged events by their numbers, in ranges; it held the last of them for
    `held_ns`."""

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
    | DeliverTogether
    | Confirmed
    | Failed
    | Moved
    | Note
    | Acknowledged
    | HandedOver
    | Remark
)
