"""The messages, and nothing else, that travel between machines: MessagePack arrays, tagged, decoded strictly.

Rules:

- A frame is one message. It is refused whole if it is too long, does not decode, or breaks a limit below; a refused
  frame changes nothing but a counter.
- Which version two nodes speak is agreed before the first message (`node._admission`): the latest that both know.
  `Hello` and `Welcome` come first and carry it as their first field, so that a peer of any other version can be
  refused by name.
- `session` is the sender's epoch, a number that rises with every start. Numbers of transfers count within it, so a
  frame that was on its way while its sender started again is known for what it is.
- Times are nanoseconds: durations, or readings of the sender's clock. Clocks need not agree; how far two are apart is
  measured with pings (`links/_meter`).
- Fields with a default come last and may be missing: a peer that does not know them neither sends nor reads them.
- Events travel together: a `Publish` or a `Transfer` holds as many as there were to send, numbered one after the other,
  and an `Ack` answers for whole ranges of numbers.
- What only the ends read (attributes, stamp, payload) travels as one opaque `content`: brokers on the way copy it. The
  publisher adds a checksum of it, which every broker that takes the event on and the subscriber compare.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from xxhash import xxh3_64_intdigest

from tidings.protocol._errors import PeerError
from tidings.protocol.wire._fields import (
    COPIES_FROM,
    IN_ORDER,
    LATEST_NS,
    LONGEST_NS,
    MAX_ATTRIBUTES,
    MAX_BATCH,
    MAX_CREDIT,
    MAX_ENTRIES,
    MAX_FILTER,
    MAX_FRAME_BYTES,
    MAX_NAME,
    MAX_NEIGHBOURS,
    MAX_OUTCOMES,
    MAX_PARTS,
    MAX_PATH,
    MAX_RECORD,
    MAX_ROWS,
    MAX_TARGETS,
    MAX_TERMS,
    MAX_TRACED,
    OLDEST_VERSION,
    VERSION,
    Check,
    ClockReading,
    Count,
    Counts,
    Duration,
    Figure,
    FilterText,
    Finite,
    Name,
    Price,
    Record,
    Share,
    Start,
    Target,
    Term,
    Window,
    WireMessage,
)
from tidings.protocol.wire._relocation import (
    Answer,
    MigrationComplete,
    MigrationUpdate,
    Move,
    Moving,
    RelocationAnswer,
    RelocationRequest,
    Trace,
    TraceAnswer,
    TraceRequest,
    TraceResult,
)

__all__ = [
    "COPIES_FROM",
    "IN_ORDER",
    "LATEST_NS",
    "LONGEST_NS",
    "MAX_ATTRIBUTES",
    "MAX_BATCH",
    "MAX_CREDIT",
    "MAX_FILTER",
    "MAX_FRAME_BYTES",
    "MAX_NAME",
    "MAX_OUTCOMES",
    "MAX_PATH",
    "MAX_RECORD",
    "MAX_ROWS",
    "MAX_TARGETS",
    "MAX_TERMS",
    "MAX_TRACED",
    "OLDEST_VERSION",
    "VERSION",
    "Ack",
    "Advertise",
    "Answer",
    "Ask",
    "Content",
    "Copied",
    "Copy",
    "Credit",
    "Done",
    "Entry",
    "Error",
    "Event",
    "Given",
    "Handover",
    "Hello",
    "Interest",
    "InterestPart",
    "Ledger",
    "LinkState",
    "Message",
    "MigrationComplete",
    "MigrationUpdate",
    "Move",
    "Moving",
    "Outcome",
    "Ping",
    "Pong",
    "Publication",
    "Publish",
    "Recover",
    "Registration",
    "Rehomed",
    "Release",
    "RelocationAnswer",
    "RelocationRequest",
    "Request",
    "Subscribe",
    "Term",
    "Trace",
    "TraceAnswer",
    "TraceRequest",
    "TraceResult",
    "Transfer",
    "Unadvertise",
    "Unsubscribe",
    "Welcome",
    "WireMessage",
    "check_of",
    "decode",
    "decode_content",
    "encode",
    "encode_content",
    "encode_plain",
    "encode_transfer",
    "filters_in",
    "is_sound",
]


class Hello(WireMessage, frozen=True, tag=1):
    """Who speaks, in which version, how many unacknowledged events it takes, and what its clock shows.

    A broker that traces adds of which share of the events clients should say when they gave them away (`Given`).
    """

    version: int
    name: Name
    kind: Annotated[str, Meta(pattern="^(broker|client)$")]
    epoch: Count
    credit: Window
    clock_ns: ClockReading | None = None
    sample: Share = 0.0


class Welcome(WireMessage, frozen=True, tag=2):
    """The answer to a `Hello`, with the same fields, and with what the clock of that one showed.

    It comes before any event does, so that both know from the first event on how far their clocks are apart. If the
    sender knows of a later life of the other one than this, it says so (`last_life`), and nothing else comes of it.
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
    """What a frame or a request did wrong; `request` is its name, or empty, and `number` that of its sending."""

    code: Name
    text: Annotated[str, Meta(max_length=4_096)]
    kind: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    request: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    number: Count = 0


class Done(WireMessage, frozen=True, tag=4):
    """The request of this kind, name and number has been carried out, durably."""

    kind: Name
    request: Name
    number: Count = 0


class Advertise(WireMessage, frozen=True, tag=5):
    """The sender will publish events that satisfy this filter. `life` and `number` as in all requests.

    A request is for the life (epoch) of the broker that the client has greeted, and is numbered anew each time that it
    is sent; a broker carries out what it has not seen a higher number of, so no old copy undoes a newer request.
    """

    life: Count
    number: Count
    name: Name
    filter: FilterText


class Unadvertise(WireMessage, frozen=True, tag=6):
    """The sender takes an advertisement back."""

    life: Count
    number: Count
    name: Name


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription as brokers know it: `late_ns` is how long after its deadline it still wants an event.

    One that wants a publisher's events in order says how long a publication record its policy reads, if any.
    """

    name: Target
    filter: FilterText
    max_delay_ns: Duration | None
    price: Price
    late_ns: Duration
    record: Record | None = None


class Subscribe(WireMessage, frozen=True, tag=7):
    """The sender wants these events."""

    life: Count
    number: Count
    entry: Entry


class Unsubscribe(WireMessage, frozen=True, tag=8):
    """The sender wants them no more."""

    life: Count
    number: Count
    name: Name


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event from its publisher: `age_ns` is how long it has waited since departure. `must_reach`: refuse it while a
    broker that it is for is out of reach."""

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

    `sent_ns` is the sender's clock when the frame left. `is_again`: another broker, or another life of this one, may
    have accepted them before.
    """

    session: Count
    number: Count
    floor: Count
    events: Annotated[tuple[Publication, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    sent_ns: ClockReading | None = None
    is_again: bool = False


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event on its way: the same bytes for everybody who is sent it at one time.

    `error_ns` is by how much the links that it came over may have made its age wrong, all together; None: not known.
    `period` is that of `root` in which it was accepted, for the accounts of its subscribers (`Ledger`). `check` is the
    publisher's checksum of the content; None: it, or a broker on the way, knows none.
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
    """Events on their way, numbered from `number` on: the receiver takes on the delivery of each to its `targets`.

    Targets are home brokers with what they pay, IN_ORDER first if somebody there wants order; to a client, its
    subscriptions, of which nothing more is said. A client that has moved is a target too (`_addresses`). `sent_ns` is
    the sender's clock when the frame left.
    """

    session: Count
    number: Count
    floor: Count
    targets: Annotated[tuple[Targets, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    events: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=MAX_BATCH)]
    sent_ns: ClockReading | None = None


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of the events that a broker has given one subscription of a client, in their present lives.

    Given to the application on time, or late; discarded because they were too late, or out of order and not wanted so;
    known as copies of what had come before. `out_of_order` counts those that were given after a later one. All of that
    only grows. `held` are waiting for earlier ones now. Delays and holds are counted by size (`_histogram`); those
    counts that have not changed since they were last said over a connection may be missing.
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
"""By subscription: what a client has to say that is new."""


class Ack(WireMessage, frozen=True, tag=11):
    """The events of these numbers, as first and last, are stored and their way on is known.

    The last of them was held for `held_ns`; `credit` more may be under way. A client adds what became of them.
    """

    session: Count
    numbers: Annotated[tuple[tuple[Count, Count], ...], Meta(min_length=1, max_length=MAX_BATCH)]
    held_ns: Duration
    credit: Window
    outcomes: Outcomes = msgspec.field(default_factory=dict)


class Credit(WireMessage, frozen=True, tag=12):
    """From now on this many unacknowledged events may be under way to the sender."""

    credit: Window


class LinkState(WireMessage, frozen=True, tag=13):
    """The neighbours that `origin` hears and is heard by, with mean and variance of each link's slowness, and how long
    an event is under way to each at least."""

    origin: Name
    epoch: Count
    number: Count
    age_ns: Duration
    neighbours: Annotated[dict[Name, tuple[Figure, Figure]], Meta(max_length=MAX_NEIGHBOURS)]
    least_ns: Annotated[dict[Name, Duration], Meta(max_length=MAX_NEIGHBOURS)] = msgspec.field(default_factory=dict)


class Interest(WireMessage, frozen=True, tag=14):
    """The subscriptions at `origin`: changes from version `base` (0: everything) to `version`.

    With base = version it says that nothing has changed, and that the origin is alive: the refresh of soft state.
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

    For what one `Interest` cannot hold. A part says by itself all that there is from `after` up to its own last name,
    or up to the end, so parts may come from anybody, and twice.
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
    """The sender lacks the subscriptions of this origin: tell it everything, or the next `parts` that follow a name."""

    origin: Name
    after: Start = ""
    parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)] = 1


class Ping(WireMessage, frozen=True, tag=16):
    """Is anybody there? `sent_ns` is the sender's clock, and comes back.

    Clients are pinged and do not ping, so the sender says what it has measured: the round trip (0: unknown), and what
    the receiver's clock showed at `sent_ns`, give or take `error_ns`. `digest` stands for all that the sender
    knows of links and interests; a neighbour whose own differs for long tells it everything. `record` is how many of
    its last events each event of a client should describe: 0 unless somebody wants its events in order.
    """

    sent_ns: int
    rtt_ns: Duration
    digest: Count
    yours_ns: ClockReading | None = None
    error_ns: Duration = 0
    record: Record = 0


class Pong(WireMessage, frozen=True, tag=17):
    """Yes, and what the sender's clock shows. A client adds what became of the events that it was given."""

    sent_ns: int
    clock_ns: ClockReading | None = None
    outcomes: Outcomes = msgspec.field(default_factory=dict)


class Handover(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that a client has given to its application: how old it was when it came, and when it was given.

    `departure_ns` is when it left its publisher, by the clock of that one's home broker.
    """

    publisher: Name
    epoch: Count
    sequence: Count
    subscription: Name
    departure_ns: int
    arrived_ns: int
    age_ns: int


class Given(WireMessage, frozen=True, tag=28):
    """What a client has given to its application, of the events that its broker traces."""

    events: Annotated[tuple[Handover, ...], Meta(min_length=1, max_length=MAX_BATCH)]


class Ledger(WireMessage, frozen=True, tag=27):
    """What `origin` has accepted for subscriptions at `target` in that one's `life`, and dropped on the way there.

    It speaks of the events that broker `root` has accepted in one of its periods; `rows` say for each subscription how
    many, and how many of them the origin has dropped. Both are cumulative, and of the ledgers of an origin the one with
    the highest number counts. `is_final`: the period is over, and its last event has expired. It is passed on towards
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
    """A client that is known at `target` is at home at `home` in the life `epoch`, with all that it wanted there.

    It is passed on towards its target, and may be lost.
    """

    target: Name
    client: Name
    epoch: Count
    home: Name
    hops: Annotated[int, Meta(ge=0, le=255)] = 0


class Copy(Transfer, frozen=True, tag=30):
    """Events that the sender holds, for the receiver to keep in case that the sender loses its store. Each with all
    whom it is owed to; `floor` says nothing."""


class Copied(WireMessage, frozen=True, tag=31):
    """Copies of this session of their owner, from the first to the last of these numbers, are durable."""

    session: Count
    first: Count
    last: Count


class Release(WireMessage, frozen=True, tag=32):
    """The sender holds these events no longer: copies of them are of no use."""

    events: Annotated[tuple[tuple[Name, Count, Count], ...], Meta(min_length=1, max_length=MAX_BATCH)]


class Recover(WireMessage, frozen=True, tag=33):
    """The sender has lost its store: take on what you keep copies of for its lives before this one."""

    life: Count


Message = (
    Hello
    | Welcome
    | Error
    | Done
    | Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | Publish
    | Transfer
    | Ack
    | Credit
    | LinkState
    | Interest
    | InterestPart
    | Ask
    | Ping
    | Pong
    | Given
    | Ledger
    | Rehomed
    | Copy
    | Copied
    | Release
    | Recover
    | Move
    | Moving
    | MigrationUpdate
    | MigrationComplete
    | TraceResult
    | RelocationRequest
    | RelocationAnswer
    | TraceRequest
    | TraceAnswer
)

Registration = Advertise | Unadvertise | Subscribe | Unsubscribe
Request = Registration | MigrationUpdate


class Content(msgspec.Struct, frozen=True, array_like=True):
    """What only the ends read: `stamp` is `ordering.Stamp` as bytes."""

    attributes: Annotated[dict[Name, int | Finite | str | bool], Meta(max_length=MAX_ATTRIBUTES)]
    stamp: bytes
    payload: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)
_CONTENT: Final = msgspec.msgpack.Decoder(Content)

_CHECK: Final = 0xFFFF_FFFF
_TRANSFER: Final = b"\x97\x0a"
"""An array of seven, of which the first is the tag of a transfer."""
_COPY: Final = b"\x97\x1e"
"""The same for copies."""

_WITH_FILTERS: Final = frozenset(kind.__struct_config__.tag for kind in (Subscribe, Advertise, Interest, InterestPart))
"""The tags of messages that have filters."""

encode = _ENCODER.encode
"""The frame of a message."""
encode_plain = _ENCODER.encode
"""The bytes of a plain value: the same value, the same bytes."""


def decode(frame: bytes) -> Message:
    """The message that a frame holds; PeerError, with the rule that it breaks, if it holds none."""
    if len(frame) > MAX_FRAME_BYTES:
        raise PeerError("too-long", f"a frame of {len(frame)} bytes: the longest is {MAX_FRAME_BYTES}")
    try:
        message: Message = _DECODER.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _require_version(frame)
        raise PeerError("malformed", f"a frame that is no message of version {VERSION}: {error}") from None
    kind = type(message)
    if (kind is Hello or kind is Welcome) and not OLDEST_VERSION <= message.version <= VERSION:  # type: ignore[union-attr]
        _require_version(frame)
    if type(message) is Transfer and len(message.targets) != len(message.events):
        raise PeerError(
            "malformed", f"a transfer of {len(message.events)} events with targets for {len(message.targets)}"
        )
    return message


def filters_in(frame: bytes, longer_than: int) -> list[str]:
    """The filters of more than so many characters in a frame; none if it is no message."""
    if len(frame) <= longer_than or frame[1] not in _WITH_FILTERS:
        return []
    try:
        message = decode(frame)
    except PeerError:
        return []
    texts: Iterable[str] = ()
    match message:
        case Subscribe():
            texts = (message.entry.filter,)
        case Advertise():
            texts = (message.filter,)
        case Interest():
            texts = (entry.filter for entry in message.added)
        case InterestPart():
            texts = (entry.filter for entry in message.entries)
    return [text for text in texts if len(text) > longer_than]


def _require_version(frame: bytes) -> None:
    """PeerError if this greets in another version, whatever else it says."""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        match msgspec.msgpack.decode(frame):
            case [1 | 2, int(version), str(name), *_] if not OLDEST_VERSION <= version <= VERSION:
                ours = f"{OLDEST_VERSION} to {VERSION}: upgrade the older one"
                raise PeerError(
                    "version", f"{name[:MAX_NAME]!r} speaks version {version} of the protocol, this is {ours}"
                )


def encode_transfer(
    session: int,
    number: int,
    floor: int,
    targets: Sequence[bytes],
    events: Sequence[bytes],
    sent_ns: int,
    *,
    is_copy: bool = False,
) -> bytes:
    """The frame of a `Transfer`, or of a `Copy`, whose parts are encoded already: an event's bytes serve everybody who
    is sent it."""
    many = _array(len(events))
    head = (_COPY if is_copy else _TRANSFER, _ENCODER.encode(session), _ENCODER.encode(number), _ENCODER.encode(floor))
    return b"".join((*head, many, *targets, many, *events, _ENCODER.encode(sent_ns)))


def _array(size: int) -> bytes:
    """The beginning of an array of so many."""
    return bytes((0x90 | size,)) if size < 16 else b"\xdc" + size.to_bytes(2, "big")


def encode_content(content: Content) -> bytes:
    """The bytes that a transfer carries."""
    return _ENCODER.encode(content)


def decode_content(data: bytes, check: int | None = None) -> Content:
    """The content that the bytes say; PeerError if they say none, hold a number that is not finite, or are not those
    that the publisher made this checksum of."""
    if not is_sound(data, check):
        raise PeerError("damaged", "the content of an event is not what its publisher made the checksum of")
    try:
        content: Content = _CONTENT.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError("content", f"the content of an event does not decode: {error} (numbers are finite)") from None
    return content


def check_of(data: bytes) -> int:
    """The checksum of these bytes: 32 bits of XXH3."""
    return xxh3_64_intdigest(data) & _CHECK


def is_sound(data: bytes, check: int | None) -> bool:
    """Whether these are the bytes that the checksum was made of; None: nobody made one."""
    return check is None or xxh3_64_intdigest(data) & _CHECK == check
