"""The durable records of MQTT: one for each session, each message under way, and each retained message.

    session/ID            the session with its subscriptions
    out/ID/NUMBER         a message of QoS 1 or 2 for the client, or its release
    in/ID/NUMBER          a message of QoS 2 that has come from the client, until it is released
    given/ID/PLACE        the identity of one of the last messages of QoS 2 that the client was given
    retained/TOPIC        the retained message of a topic

ID and TOPIC are quoted, so that a slash in them does not separate parts of the key.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec

__all__ = [
    "GIVEN",
    "NEVER",
    "Given",
    "Incoming",
    "Outgoing",
    "RetainedRecord",
    "SessionRecord",
    "Subscription",
    "key",
    "pack",
    "unpack",
]

GIVEN: Final = 2_048
"""How many identities of messages of QoS 2 a session remembers."""

NEVER: Final = 0xFFFF_FFFF
"""The expiry of a session that never ends, in seconds."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a client with its terms."""

    topic_filter: str
    """As the client wrote it, with `$share`."""
    pattern: str
    group: str | None = None
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    filter: str = ""
    """The client's own condition in SQL."""
    max_delay_ns: int | None = None
    price: float = 1.0
    late_ns: int = 0
    order: str | None = None
    report: tuple[str, ...] = ()
    conflate: tuple[str, ...] = ()


class Given(msgspec.Struct, kw_only=True):
    """A message on the terms of a subscription."""

    qos: int
    topic: str = ""
    payload: bytes = b""
    retain: bool = False
    properties: dict[str, Any] = {}
    since_ns: int = 0
    expires_ns: int | None = None
    deadline_ns: int | None = None
    ends_ns: int | None = None
    """From then on it is not wanted: its deadline, and what the subscription allows beyond."""
    report: tuple[str, ...] = ()
    is_late: bool = False


class Outgoing(Given, kw_only=True):
    """An unconfirmed message of QoS 1 or 2 for a client; once it is released, only the number counts."""

    packet_id: int
    is_released: bool = False


class Incoming(msgspec.Struct, kw_only=True):
    """A message of QoS 2 from the client; subscribers recognise it by its identity if it is published again."""

    packet_id: int
    identity: str
    is_accepted: bool = False
    is_under_way: bool = False


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that outlives its connection."""

    client_id: str
    expiry_s: int
    ends_ns: int | None
    """When it ends, if the client is away."""
    subscriptions: tuple[Subscription, ...]
    identities: int = 0
    """Not used any more; earlier versions need it."""


class RetainedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The retained message of a topic."""

    topic: str
    attributes: dict[str, bool | int | float | str]
    payload: bytes
    published_ns: int
    publisher: str
    expires_ns: int | None


def key(kind: str, *names: str | int) -> str:
    """The key of a record."""
    return "/".join((kind, *(quote(str(name), safe="") for name in names)))


pack = msgspec.msgpack.Encoder().encode


def unpack(record: bytes, kind: Any) -> Any:
    """Decode a record."""
    return msgspec.msgpack.decode(record, type=kind)
