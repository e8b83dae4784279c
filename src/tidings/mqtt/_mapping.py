"""How MQTT messages and events map onto each other (docs/guide/mqtt.md has the table).

- The topic is the attribute `topic`, the payload is the payload.
- User properties are attributes (texts), and so are the top-level scalars of a JSON object in the payload if the
  content type is JSON or the topic is configured as JSON. A name that is already taken (user properties come before
  JSON fields), is reserved or is not a valid attribute is left out.
- Everything else in an MQTT message travels in attributes that begin with `mqtt_`, so a message that arrives
  as MQTT and leaves as MQTT, over any brokers, is unchanged.
- An event of a native client has none of these. Its attributes become user properties, and if it has no payload, a JSON
  object of them is the payload.
"""

import base64
import binascii
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidings.errors import EventError
from tidings.model.filters import check_value
from tidings.mqtt._packets import PacketError, Properties, Publish, Reason, Will
from tidings.mqtt._topics import TOPIC, is_topic, matches
from tidings.protocol.wire import MAX_ATTRIBUTES, MAX_NAME

__all__ = ["RESERVED", "Message", "lifetime_ns", "read_event", "reason_of_code", "to_attributes"]

RESERVED: Final = "mqtt_"
"""The prefix of MQTT's own attributes."""
QOS: Final = "mqtt_qos"
RETAIN: Final = "mqtt_retain"
IDENTITY: Final = "mqtt_id"
LIFETIME: Final = "mqtt_lifetime_ms"
_CONTENT_TYPE: Final = "mqtt_content_type"
_RESPONSE_TOPIC: Final = "mqtt_response_topic"
_CORRELATION: Final = "mqtt_correlation"
_FORMAT: Final = "mqtt_format"
_USER: Final = "mqtt_user"
_JSON: Final = "application/json"
_REASONS: Final = {
    "denied": Reason.NOT_AUTHORIZED,
    "not-advertised": Reason.NOT_AUTHORIZED,
    "price": Reason.NOT_AUTHORIZED,
    "too-many": Reason.QUOTA_EXCEEDED,
    "budget": Reason.QUOTA_EXCEEDED,
    "full": Reason.QUOTA_EXCEEDED,
    "too-long": Reason.PACKET_TOO_LARGE,
}
_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000
_USER_LIFETIME: Final = "lifetime-ms"
_PAIRS: Final = msgspec.json.Decoder(tuple[tuple[str, str], ...])

Value = bool | int | float | str


class Message(msgspec.Struct, kw_only=True):
    """A message for MQTT clients: the part that is equal for all of them."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]
    since_ns: int
    """When it was published, by this machine's clock."""
    expires_ns: int | None = None
    """When it expires, as its publisher has stated it with MQTT."""
    ends_ns: int | None = None
    """When the lifetime of the event is over."""
    identity: str = ""
    """Its permanent identity, if it is of QoS 2."""
    copies: dict[Any, Any] = {}
    """What clients are given of it (`_deliveries.Copy`), by what makes a difference."""


def to_attributes(packet: Publish | Will, json_topics: Sequence[str] = (), *, identity: str = "") -> dict[str, Value]:
    """The event attributes of a PUBLISH or a will."""
    properties = packet.properties
    found: dict[str, Value] = {TOPIC: packet.topic, QOS: packet.qos}
    if packet.retain:
        found[RETAIN] = True
    if identity:
        found[IDENTITY] = identity
    if not properties and not json_topics:
        return found
    for attribute, name in ((_CONTENT_TYPE, "content_type"), (_RESPONSE_TOPIC, "response_topic")):
        if name in properties:
            found[attribute] = properties[name]
    if "correlation_data" in properties:
        found[_CORRELATION] = base64.b64encode(properties["correlation_data"]).decode()
    if "payload_format" in properties:
        found[_FORMAT] = properties["payload_format"]
    lives_ns = lifetime_ns(properties)
    if lives_ns is not None:
        found[LIFETIME] = lives_ns // _MS
    pairs = properties.get("user", ())
    if pairs:
        found[_USER] = msgspec.json.encode(pairs).decode()
        _add(found, dict(reversed(pairs)))  # of several of one name the first counts
    kind = properties.get("content_type", "").partition(";")[0].strip().lower()
    if kind == _JSON or kind.endswith("+json") or any(matches(each, packet.topic) for each in json_topics):
        try:
            fields = msgspec.json.decode(packet.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            fields = None  # the payload is the application's: it travels as it is
        if isinstance(fields, dict):
            _add(found, fields)
    return found


def _add(found: dict[str, Value], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if len(found) >= MAX_ATTRIBUTES:
            return
        if name in found or name.startswith(RESERVED) or not 0 < len(name) <= MAX_NAME:
            continue
        if isinstance(value, bool | int | float | str):
            try:
                plain = check_value(name, value)
            except EventError:
                continue  # a number that no filter can compare
            if plain is not None:
                found[name] = plain


def lifetime_ns(properties: Properties) -> int | None:
    """The lifetime of a message: the user property `lifetime-ms`, or its expiry; PacketError if it is no number."""
    for name, value in properties.get("user", ()):
        if name == _USER_LIFETIME:
            return _milliseconds(name, value) * _MS or 1
    if "message_expiry_s" in properties:
        return max(int(properties["message_expiry_s"]), 1) * _SECOND
    return None


def _milliseconds(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise PacketError(
            Reason.IMPLEMENTATION_SPECIFIC, f"user property {name!r} is {value[:40]!r}: give whole milliseconds"
        )
    return int(value[:18])


def read_event(attributes: Mapping[str, Value], payload: bytes, since_ns: int) -> Message | None:
    """The message of an event; None if it has no valid topic."""
    topic = attributes.get(TOPIC)
    if not isinstance(topic, str) or not is_topic(topic) or len(topic.encode()) > 0xFFFF:
        return None
    properties: dict[str, Any] = {}
    qos = attributes.get(QOS)
    if type(qos) is not int or qos not in (0, 1, 2):
        return _native(topic, attributes, payload, since_ns)
    for attribute, name in ((_CONTENT_TYPE, "content_type"), (_RESPONSE_TOPIC, "response_topic")):
        value = attributes.get(attribute)
        if isinstance(value, str) and len(value) < 0x3FFF and (name == "content_type" or is_topic(value)):
            properties[name] = value
    if attributes.get(_FORMAT) in (0, 1):
        properties["payload_format"] = attributes[_FORMAT]
    correlation = attributes.get(_CORRELATION)
    if isinstance(correlation, str):
        with contextlib.suppress(binascii.Error):  # it is not ours then
            properties["correlation_data"] = base64.b64decode(correlation, validate=True)[:0xFFFF]
    pairs = attributes.get(_USER)
    if isinstance(pairs, str):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):  # it is not ours then
            properties["user"] = _PAIRS.decode(pairs)
    lives_ms = attributes.get(LIFETIME)
    identity = attributes.get(IDENTITY)
    return Message(
        topic=topic,
        payload=payload,
        qos=qos,
        retain=attributes.get(RETAIN) is True,
        properties=properties,
        since_ns=since_ns,
        expires_ns=since_ns + lives_ms * _MS if isinstance(lives_ms, int) and lives_ms >= 0 else None,
        identity=identity if isinstance(identity, str) else "",
    )


def _native(topic: str, attributes: Mapping[str, Value], payload: bytes, since_ns: int) -> Message:
    others = {name: value for name, value in attributes.items() if name != TOPIC and not name.startswith(RESERVED)}
    pairs = tuple((name, _text(value)) for name, value in others.items() if "\0" not in name)
    properties: dict[str, Any] = {"user": tuple(pair for pair in pairs if len(pair[1]) < 0x3FFF)} if pairs else {}
    if not payload and others:
        payload = msgspec.json.encode(others)
        properties |= {"content_type": _JSON, "payload_format": 1}
    is_retained = attributes.get(RETAIN) is True
    return Message(topic=topic, payload=payload, qos=2, retain=is_retained, properties=properties, since_ns=since_ns)


def _text(value: Value) -> str:
    return value.replace("\0", "") if isinstance(value, str) else msgspec.json.encode(value).decode()


def reason_of_code(code: str) -> Reason:
    """MQTT's reason code for a refusal of the broker."""
    return _REASONS.get(code, Reason.IMPLEMENTATION_SPECIFIC)
