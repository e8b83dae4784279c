"""MQTT packets as values, for MQTT 5 and 3.1.1; `_codec` reads and writes them as bytes.

A packet of 3.1.1 is the same as one of 5 without properties and, mostly, without a reason code.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from tidings.errors import TidingsError

__all__ = [
    "V5",
    "V311",
    "Ack",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Kind",
    "Packet",
    "PacketError",
    "Ping",
    "Properties",
    "Publish",
    "Reason",
    "Suback",
    "Subscribe",
    "Unsubscribe",
    "Wanted",
    "Will",
]

V311: Final = 4
V5: Final = 5


class Kind(IntEnum):
    """The type of a control packet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """The reason codes of MQTT 5 that this end sends or understands."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    PAYLOAD_FORMAT_INVALID = 0x99
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E


class PacketError(TidingsError):
    """Raised when a peer sends what MQTT does not allow; `reason` is the code of the answer."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


Properties = Mapping[str, Any]
"""Values by name as in `_PROPERTIES`; `user` is a tuple of pairs, `subscription_ids` a tuple of numbers."""
_NONE: Final[Properties] = {}


class Will(msgspec.Struct, frozen=True, kw_only=True):
    """The message that is published if the client is lost without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = _NONE


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """The first packet of a client."""

    client_id: str = ""
    version: int = V5
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = _NONE


class Connack(msgspec.Struct, frozen=True, kw_only=True):
    """The server's answer to CONNECT; `reason` is a return code for 3.1.1."""

    reason: int = 0
    session_present: bool = False
    properties: Properties = _NONE


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """A message."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = _NONE


class Ack(msgspec.Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: Kind
    packet_id: int
    reason: int = 0
    properties: Properties = _NONE


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One topic filter of a SUBSCRIBE with its options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """A request for messages."""

    packet_id: int
    wanted: tuple[Wanted, ...]
    properties: Properties = _NONE


class Suback(msgspec.Struct, frozen=True):
    """SUBACK or UNSUBACK."""

    kind: Kind
    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = _NONE


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """The end of subscriptions."""

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = _NONE


class Ping(msgspec.Struct, frozen=True):
    """PINGREQ or PINGRESP."""

    kind: Kind


class Disconnect(msgspec.Struct, frozen=True):
    """The last packet of a connection."""

    reason: int = 0
    properties: Properties = _NONE


class Auth(msgspec.Struct, frozen=True):
    """A step of an extended authentication."""

    reason: int = 0
    properties: Properties = _NONE


Packet = Connect | Connack | Publish | Ack | Subscribe | Suback | Unsubscribe | Ping | Disconnect | Auth
