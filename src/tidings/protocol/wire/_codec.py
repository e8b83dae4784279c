"""The union of all messages, and their encoding, decoding and checksums."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from tidings.protocol._errors import PeerError
from tidings.protocol.wire._events import (
    Ack,
    Content,
    ContentInPlace,
    Copied,
    Copy,
    Credit,
    Given,
    Publish,
    Recover,
    Release,
    Transfer,
)
from tidings.protocol.wire._fields import MAX_FRAME_BYTES, MAX_NAME, OLDEST_VERSION, VERSION
from tidings.protocol.wire._greetings import Done, Error, Hello, Ping, Pong, Welcome
from tidings.protocol.wire._overlay import Ask, Interest, InterestPart, Ledger, LinkState, Rehomed
from tidings.protocol.wire._relocation import (
    MigrationComplete,
    MigrationUpdate,
    Move,
    Moving,
    RelocationAnswer,
    RelocationRequest,
    TraceAnswer,
    TraceRequest,
    TraceResult,
)
from tidings.protocol.wire._requests import Advertise, Subscribe, Unadvertise, Unsubscribe

__all__ = [
    "Message",
    "Parts",
    "Registration",
    "Request",
    "check_of",
    "decode",
    "decode_attributes",
    "decode_content",
    "encode",
    "encode_content",
    "encode_plain",
    "encode_transfer",
    "filters_in",
    "is_sound",
]

T = TypeVar("T")

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

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)
_CONTENT: Final = msgspec.msgpack.Decoder(Content)
_CONTENT_IN_PLACE: Final = msgspec.msgpack.Decoder(ContentInPlace)

_CHECK: Final = 0xFFFF_FFFF
_TRANSFER: Final = b"\x97\x0a"
"""The beginning of an array of seven, the first of which is the tag of a transfer."""
_EASY_TRANSFER: Final = b"\x98\x0a"
"""The same with one field more."""
_COPY: Final = b"\x97\x1e"
"""The same for copies."""

_SHORT_ARRAYS: Final = tuple(bytes((0x90 | size,)) for size in range(16))
_WITH_FILTERS: Final = frozenset(kind.__struct_config__.tag for kind in (Subscribe, Advertise, Interest, InterestPart))
"""The tags of messages that contain filters."""

encode = _ENCODER.encode
"""The frame of a message."""
encode_plain = _ENCODER.encode
"""The bytes of a plain value: equal values give equal bytes."""


def decode(frame: bytes) -> Message:
    """The message in a frame; PeerError, with the broken rule, if it contains none."""
    if len(frame) > MAX_FRAME_BYTES:
        raise PeerError("too-long", f"a frame of {len(frame)} bytes: the longest is {MAX_FRAME_BYTES}")
    try:
        message: Message = _DECODER.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _require_version(frame)
        raise PeerError("malformed", f"a frame that is not a message of version {VERSION}: {error}") from None
    if type(message) is Transfer:
        if len(message.targets) != len(message.events):
            raise PeerError(
                "malformed", f"a transfer of {len(message.events)} events with targets for {len(message.targets)}"
            )
    elif (type(message) is Hello or type(message) is Welcome) and not OLDEST_VERSION <= message.version <= VERSION:
        _require_version(frame)
    return message


def filters_in(frame: bytes, longer_than: int) -> list[str]:
    """The filters of more than `longer_than` characters in a frame; none if it is no message."""
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
    """PeerError if this is a greeting in another version, whatever else it contains."""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        match msgspec.msgpack.decode(frame):
            case [1 | 2, int(version), str(name), *_] if not OLDEST_VERSION <= version <= VERSION:
                ours = f"{OLDEST_VERSION} to {VERSION}: upgrade the older one"
                raise PeerError(
                    "version", f"{name[:MAX_NAME]!r} speaks version {version} of the protocol, and this node {ours}"
                )


def encode_transfer(
    session: int,
    number: int,
    floor: int,
    targets: Sequence[bytes],
    events: Sequence[bytes],
    sent_ns: int,
    *,
    ease_ns: int = 0,
    is_copy: bool = False,
) -> bytes:
    """The frame of a `Transfer`, or of a `Copy`, from encoded parts: an event's bytes serve all peers that are sent
    it."""
    many = _array(len(events))
    head = _ENCODER.encode((session, number, floor))[1:]  # without the beginning of an array of their own
    if ease_ns:
        tail = _ENCODER.encode((sent_ns, ease_ns))[1:]
        return b"".join((_EASY_TRANSFER, head, many, *targets, many, *events, tail))
    return b"".join((_COPY if is_copy else _TRANSFER, head, many, *targets, many, *events, _ENCODER.encode(sent_ns)))


class Parts(msgspec.Struct, frozen=True, gc=False):
    """A `Transfer` for a peer in the same process: its parts, which other peers are sent too, stay as they are.

    Its events are those that the broker holds (`broker._held`), or already encoded.
    """

    session: int
    number: int
    floor: int
    targets: Sequence[bytes]
    events: Sequence[Any]
    sent_ns: int
    ease_ns: int = 0

    def message(self) -> Transfer:
        """What the frame of these parts contains."""
        events = [each if type(each) is bytes else each.encode(self.sent_ns) for each in self.events]
        head = (self.session, self.number, self.floor)
        message = decode(encode_transfer(*head, self.targets, events, self.sent_ns, ease_ns=self.ease_ns))
        assert type(message) is Transfer
        return message


def _array(size: int) -> bytes:
    """The beginning of an array of this size."""
    return _SHORT_ARRAYS[size] if size < 16 else b"\xdc" + size.to_bytes(2, "big")


def encode_content(content: Content) -> bytes:
    """The bytes that a transfer carries."""
    return _ENCODER.encode(content)


def decode_content(data: bytes, check: int | None = None) -> Content:
    """The content in these bytes.

    PeerError if they do not decode, contain a number that is not finite, or do not have the publisher's checksum.
    """
    return _decode_content(_CONTENT, data, check)


def decode_attributes(data: bytes, check: int | None = None) -> dict[str, int | float | str | bool]:
    """The attributes of the content in these bytes, with the same checks; the payload is not copied."""
    return _decode_content(_CONTENT_IN_PLACE, data, check).attributes


def _decode_content(decoder: "msgspec.msgpack.Decoder[T]", data: bytes, check: int | None) -> T:
    if not is_sound(data, check):
        raise PeerError("damaged", "the content of an event does not have its publisher's checksum")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError("content", f"the content of an event does not decode: {error} (numbers are finite)") from None


def check_of(data: bytes) -> int:
    """The checksum of these bytes: 32 bits of XXH3."""
    return xxh3_64_intdigest(data) & _CHECK


def is_sound(data: bytes, check: int | None) -> bool:
    """Whether these bytes have the checksum; None: there is none."""
    return check is None or xxh3_64_intdigest(data) & _CHECK == check
