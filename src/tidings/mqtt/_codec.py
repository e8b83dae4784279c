"""MQTT packets as bytes, for MQTT 5 and 3.1.1, without I/O.

Both versions share one table of properties: name, encoding and permitted packets (`_PROPERTIES`). Numbers in brackets
are the statements of the MQTT 5 standard that a check enforces.

`Reader` cuts a stream into packets and decodes them. Invalid input raises `PacketError` with the reason code that the
standard requires: malformed (0x81), protocol error (0x82), too large (0x95) and so on.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidings.mqtt._packets import (
    V5,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Properties,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsubscribe,
    Wanted,
    Will,
)

__all__ = ["MAX_PACKET_BYTES", "Reader", "encode", "encode_properties", "encode_publish", "varint"]

MAX_PACKET_BYTES: Final = 268_435_455
_LONGEST_VARINT: Final = 4
_NONE: Final[Properties] = {}


def _malformed(message: str) -> PacketError:
    return PacketError(Reason.MALFORMED_PACKET, message)


def _broken(message: str) -> PacketError:
    return PacketError(Reason.PROTOCOL_ERROR, message)


def varint(value: int) -> bytes:
    """A number as a variable byte integer [MQTT-1.5.5-1]."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _binary(value: bytes) -> bytes:
    if len(value) > 0xFFFF:
        raise _malformed(f"{len(value)} bytes do not fit into a field of 65,535")
    return len(value).to_bytes(2, "big") + value


def _text(value: str) -> bytes:
    return _binary(value.encode())


class _Cursor:
    """The bytes of one packet, read from the front."""

    __slots__ = ("data", "end", "place")

    def __init__(self, data: bytes, place: int, end: int) -> None:
        self.data = data
        self.place = place
        self.end = end

    def take(self, count: int) -> bytes:
        begin, self.place = self.place, self.place + count
        if self.place > self.end:
            raise _malformed("the packet ends too early")
        return self.data[begin : self.place]

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def two(self) -> int:
        """A number of two bytes."""
        data, place = self.data, self.place
        self.place = place + 2
        if self.place > self.end:
            raise _malformed("the packet ends too early")
        return data[place] << 8 | data[place + 1]

    def varint(self) -> int:
        if self.place < self.end and self.data[self.place] < 0x80:
            self.place += 1
            return self.data[self.place - 1]
        value = 0
        for shift in range(_LONGEST_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * shift)
            if byte < 0x80:
                if byte == 0 and shift:
                    raise _malformed("a variable byte integer is longer than necessary")  # [MQTT-1.5.5-1]
                return value
        raise _malformed("a variable byte integer has more than 4 bytes")

    def binary(self) -> bytes:
        return self.take(self.two())

    def text(self) -> str:
        try:
            found = self.binary().decode()
        except UnicodeDecodeError:
            raise _malformed("a text is not UTF-8") from None  # [MQTT-1.5.4-1]
        if "\0" in found:
            raise _malformed("a text contains U+0000")  # [MQTT-1.5.4-2]
        return found

    def packet_id(self) -> int:
        found = self.two()
        if not found:
            raise _broken("a packet identifier is 0")  # [MQTT-2.2.1-3]
        return found

    @property
    def left(self) -> int:
        return self.end - self.place

    def finish(self) -> None:
        if self.left:
            raise _malformed(f"{self.left} bytes follow the end of the packet")


# -- properties ----------------------------------------------------------------------------------------------------


class _Form(msgspec.Struct, frozen=True):
    read: Callable[[_Cursor], Any]
    write: Callable[[Any], bytes]


def _fixed(count: int) -> _Form:
    return _Form(lambda cursor: cursor.number(count), lambda value: int(value).to_bytes(count, "big"))


def _pair_bytes(pair: tuple[str, str]) -> bytes:
    return _text(pair[0]) + _text(pair[1])


_BYTE, _TWO, _FOUR = _fixed(1), _fixed(2), _fixed(4)
_VARINT: Final = _Form(_Cursor.varint, varint)
_TEXT: Final = _Form(_Cursor.text, _text)
_BINARY: Final = _Form(_Cursor.binary, _binary)
_PAIR: Final = _Form(lambda cursor: (cursor.text(), cursor.text()), _pair_bytes)

_WILL: Final = 0  # the properties of a will have a table of their own
_EVERY: Final = frozenset({*Kind} - {Kind.PINGREQ, Kind.PINGRESP} | {_WILL})
_SAYS_WHY: Final = frozenset(
    {
        Kind.CONNACK,
        Kind.PUBACK,
        Kind.PUBREC,
        Kind.PUBREL,
        Kind.PUBCOMP,
        Kind.SUBACK,
        Kind.UNSUBACK,
        Kind.DISCONNECT,
        Kind.AUTH,
    }
)
_MESSAGE: Final = frozenset({Kind.PUBLISH, _WILL})
_LOGIN: Final = frozenset({Kind.CONNECT, Kind.CONNACK})
_AUTH: Final = frozenset({Kind.CONNECT, Kind.CONNACK, Kind.AUTH})
_MANY: Final = frozenset({"user", "subscription_ids"})

_PROPERTIES: Final[tuple[tuple[int, str, _Form, frozenset[int]], ...]] = (
    (0x01, "payload_format", _BYTE, _MESSAGE),
    (0x02, "message_expiry_s", _FOUR, _MESSAGE),
    (0x03, "content_type", _TEXT, _MESSAGE),
    (0x08, "response_topic", _TEXT, _MESSAGE),
    (0x09, "correlation_data", _BINARY, _MESSAGE),
    (0x0B, "subscription_ids", _VARINT, frozenset({Kind.PUBLISH, Kind.SUBSCRIBE})),
    (0x11, "session_expiry_s", _FOUR, frozenset({Kind.CONNECT, Kind.CONNACK, Kind.DISCONNECT})),
    (0x12, "assigned_client_id", _TEXT, frozenset({Kind.CONNACK})),
    (0x13, "server_keep_alive_s", _TWO, frozenset({Kind.CONNACK})),
    (0x15, "authentication_method", _TEXT, _AUTH),
    (0x16, "authentication_data", _BINARY, _AUTH),
    (0x17, "request_problem_information", _BYTE, frozenset({Kind.CONNECT})),
    (0x18, "will_delay_s", _FOUR, frozenset({_WILL})),
    (0x19, "request_response_information", _BYTE, frozenset({Kind.CONNECT})),
    (0x1A, "response_information", _TEXT, frozenset({Kind.CONNACK})),
    (0x1C, "server_reference", _TEXT, frozenset({Kind.CONNACK, Kind.DISCONNECT})),
    (0x1F, "reason_string", _TEXT, _SAYS_WHY),
    (0x21, "receive_maximum", _TWO, _LOGIN),
    (0x22, "topic_alias_maximum", _TWO, _LOGIN),
    (0x23, "topic_alias", _TWO, frozenset({Kind.PUBLISH})),
    (0x24, "maximum_qos", _BYTE, frozenset({Kind.CONNACK})),
    (0x25, "retain_available", _BYTE, frozenset({Kind.CONNACK})),
    (0x26, "user", _PAIR, _EVERY),
    (0x27, "maximum_packet_size", _FOUR, _LOGIN),
    (0x28, "wildcard_available", _BYTE, frozenset({Kind.CONNACK})),
    (0x29, "subscription_ids_available", _BYTE, frozenset({Kind.CONNACK})),
    (0x2A, "shared_available", _BYTE, frozenset({Kind.CONNACK})),
)
_BY_NUMBER: Final = {number: (name, form, packets) for number, name, form, packets in _PROPERTIES}
_BY_NAME: Final = {name: (number, form) for number, name, form, _ in _PROPERTIES}
_NOT_ZERO: Final = frozenset({"receive_maximum", "maximum_packet_size", "subscription_ids"})
_FLAGS: Final = frozenset({"payload_format", "request_problem_information", "request_response_information"})


def _read_properties(cursor: _Cursor, packet: int) -> Properties:
    size = cursor.varint()
    if not size:
        return _NONE
    inner = _Cursor(cursor.data, cursor.place, cursor.place + size)
    cursor.take(size)
    found: dict[str, Any] = {}
    while inner.left:
        number = inner.varint()
        name, form, packets = _BY_NUMBER.get(number, ("", None, frozenset()))
        if form is None or packet not in packets:
            raise _malformed(f"property {number:#x} is not allowed in this packet")
        value = form.read(inner)
        if name in _MANY and not (name == "subscription_ids" and packet == Kind.SUBSCRIBE and name in found):
            found[name] = (*found.get(name, ()), value)
        elif name in found:
            raise _broken(f"property {name} is given twice")
        else:
            found[name] = value
        if (name in _NOT_ZERO and not value) or (name in _FLAGS and value > 1):
            raise _broken(f"property {name} is {value}")
    return found


def encode_properties(properties: Properties) -> bytes:
    """Properties without their length."""
    out = bytearray()
    for name, value in properties.items():
        number, form = _BY_NAME[name]
        for each in value if name in _MANY else (value,):
            out.append(number)
            out += form.write(each)
    return bytes(out)


def _with_length(properties: Properties) -> bytes:
    if not properties:
        return b"\0"
    body = encode_properties(properties)
    return varint(len(body)) + body


# -- writing -------------------------------------------------------------------------------------------------------


def encode(packet: Packet, version: int = V5) -> bytes:
    """A packet as bytes."""
    if isinstance(packet, Publish):
        before, after = encode_publish(packet, version)
        return before + packet.packet_id.to_bytes(2, "big") + after if packet.qos else before
    flags, body = _ENCODERS[type(packet)](packet, version)
    kind = _KINDS.get(type(packet)) or packet.kind  # type: ignore[union-attr]
    return bytes((kind << 4 | flags,)) + varint(len(body)) + body


def encode_publish(packet: Publish, version: int) -> tuple[bytes, bytes]:
    """A PUBLISH as bytes, before and after its packet identifier; with QoS 0, which has none, all of it is before."""
    head, rest = _text(packet.topic), packet.payload
    if version == V5:
        rest = _with_length(packet.properties) + rest
    first = Kind.PUBLISH << 4 | packet.dup << 3 | packet.qos << 1 | packet.retain
    if not packet.qos:
        return b"".join((bytes((first,)), varint(len(head) + len(rest)), head, rest)), b""
    return bytes((first,)) + varint(len(head) + 2 + len(rest)) + head, rest


def _encode_connect(packet: Connect, version: int) -> tuple[int, bytes]:
    version, will = packet.version, packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    out = _text("MQTT") + bytes((version, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    if version == V5:
        out += _with_length(packet.properties)
    out += _text(packet.client_id)
    if will is not None:
        if version == V5:
            out += _with_length(will.properties)
        out += _text(will.topic) + _binary(will.payload)
    if packet.username is not None:
        out += _text(packet.username)
    if packet.password is not None:
        out += _binary(packet.password)
    return 0, out


def _encode_connack(packet: Connack, version: int) -> tuple[int, bytes]:
    out = bytes((packet.session_present, packet.reason))
    return 0, out + _with_length(packet.properties) if version == V5 else out


def _encode_ack(packet: Ack, version: int) -> tuple[int, bytes]:
    out = packet.packet_id.to_bytes(2, "big")
    if version == V5 and (packet.reason or packet.properties):
        out += bytes((packet.reason,))
        if packet.properties:
            out += _with_length(packet.properties)
    return 2 if packet.kind is Kind.PUBREL else 0, out


def _encode_subscribe(packet: Subscribe, version: int) -> tuple[int, bytes]:
    out = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        out += _with_length(packet.properties)
    for wanted in packet.wanted:
        options = wanted.qos
        if version == V5:
            options |= wanted.no_local << 2 | wanted.retain_as_published << 3 | wanted.retain_handling << 4
        out += _text(wanted.topic_filter) + bytes((options,))
    return 2, out


def _encode_suback(packet: Suback, version: int) -> tuple[int, bytes]:
    out = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        return 0, out + _with_length(packet.properties) + bytes(packet.reasons)
    return 0, out + bytes(packet.reasons) if packet.kind is Kind.SUBACK else out


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> tuple[int, bytes]:
    out = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        out += _with_length(packet.properties)
    return 2, out + b"".join(map(_text, packet.topic_filters))


def _encode_ping(packet: Ping, version: int) -> tuple[int, bytes]:  # noqa: ARG001
    return 0, b""


def _encode_reason(packet: Disconnect | Auth, version: int) -> tuple[int, bytes]:
    if version != V5 or not (packet.reason or packet.properties):
        return 0, b""
    out = bytes((packet.reason,))
    return 0, out + _with_length(packet.properties) if packet.properties else out


_ENCODERS: Final[dict[type, Callable[[Any, int], tuple[int, bytes]]]] = {
    Connect: _encode_connect,
    Connack: _encode_connack,
    Ack: _encode_ack,
    Subscribe: _encode_subscribe,
    Suback: _encode_suback,
    Unsubscribe: _encode_unsubscribe,
    Ping: _encode_ping,
    Disconnect: _encode_reason,
    Auth: _encode_reason,
}
_KINDS: Final[dict[type, Kind]] = {
    Connect: Kind.CONNECT,
    Connack: Kind.CONNACK,
    Subscribe: Kind.SUBSCRIBE,
    Unsubscribe: Kind.UNSUBSCRIBE,
    Disconnect: Kind.DISCONNECT,
    Auth: Kind.AUTH,
}


# -- reading -------------------------------------------------------------------------------------------------------


def _decode_connect(cursor: _Cursor, flags: int, version: int) -> Connect:  # noqa: ARG001
    name = cursor.binary()
    version = cursor.number(1)
    if (name, version) == (b"MQIsdp", 3) or (name == b"MQTT" and version not in (V311, V5)):
        raise PacketError(Reason.UNSUPPORTED_VERSION, f"MQTT of version {version}: only 3.1.1 and 5 are supported")
    if name != b"MQTT":  # [MQTT-3.1.2-1]
        raise PacketError(Reason.UNSUPPORTED_VERSION, f"the protocol name is {name[:16]!r}, not MQTT")
    flags_byte = cursor.number(1)
    if flags_byte & 0x01:  # [MQTT-3.1.2-3]
        raise _malformed("the reserved flag of CONNECT is set")
    keep_alive_s = cursor.number(2)
    properties = _read_properties(cursor, Kind.CONNECT) if version == V5 else _NONE
    if "authentication_data" in properties and "authentication_method" not in properties:
        raise _broken("authentication data without an authentication method")
    client_id = cursor.text()
    has_will, qos, retain = bool(flags_byte & 0x04), flags_byte >> 3 & 3, bool(flags_byte & 0x20)
    will = None
    if has_will:
        if qos == 3:  # [MQTT-3.1.2-12]
            raise _malformed("the QoS of the will is 3")
        of_will = _read_properties(cursor, _WILL) if version == V5 else _NONE
        will = Will(topic=cursor.text(), payload=cursor.binary(), qos=qos, retain=retain, properties=of_will)
    elif qos or retain:  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise _malformed("QoS or retain without a will")
    username = cursor.text() if flags_byte & 0x80 else None
    password = cursor.binary() if flags_byte & 0x40 else None
    if version == V311 and password is not None and username is None:  # 3.1.1 [MQTT-3.1.2-22]
        raise _malformed("a password without a user name")
    return Connect(
        client_id=client_id,
        version=version,
        clean_start=bool(flags_byte & 0x02),
        keep_alive_s=keep_alive_s,
        will=will,
        username=username,
        password=password,
        properties=properties,
    )


def _decode_connack(cursor: _Cursor, flags: int, version: int) -> Connack:  # noqa: ARG001
    present, reason = cursor.number(1), cursor.number(1)
    if present > 1:
        raise _malformed("reserved flags of CONNACK are set")
    properties = _read_properties(cursor, Kind.CONNACK) if version == V5 else _NONE
    return Connack(reason=reason, session_present=bool(present), properties=properties)


def _decode_publish(cursor: _Cursor, flags: int, version: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise _malformed("a PUBLISH of QoS 3")
    if not qos and flags & 0x08:  # [MQTT-3.3.1-2]
        raise _malformed("a PUBLISH of QoS 0 is marked as a duplicate")
    topic = cursor.text()
    packet_id = cursor.packet_id() if qos else 0
    properties = _read_properties(cursor, Kind.PUBLISH) if version == V5 else _NONE
    return Publish(
        topic=topic,
        payload=cursor.take(cursor.left),
        qos=qos,
        retain=bool(flags & 1),
        dup=bool(flags & 8),
        packet_id=packet_id,
        properties=properties,
    )


def _decode_ack(kind: Kind) -> Callable[[_Cursor, int, int], Ack]:
    def decode(cursor: _Cursor, flags: int, version: int) -> Ack:  # noqa: ARG001
        packet_id = cursor.packet_id()
        if version != V5 or not cursor.left:
            return Ack(kind, packet_id)
        reason = cursor.number(1)
        return Ack(kind, packet_id, reason, _read_properties(cursor, kind) if cursor.left else _NONE)

    return decode


def _decode_subscribe(cursor: _Cursor, flags: int, version: int) -> Subscribe:  # noqa: ARG001
    packet_id = cursor.packet_id()
    properties = _read_properties(cursor, Kind.SUBSCRIBE) if version == V5 else _NONE
    wanted = []
    while cursor.left:
        topic_filter, options = cursor.text(), cursor.number(1)
        if options & (0xC0 if version == V5 else 0xFC) or options & 3 == 3:  # [MQTT-3.8.3-5]
            raise _malformed(f"the subscription options are {options:#x}")
        handling = options >> 4 & 3
        if handling == 3:
            raise _broken("retain handling is 3")
        wanted.append(
            Wanted(
                topic_filter=topic_filter,
                qos=options & 3,
                no_local=bool(options & 4),
                retain_as_published=bool(options & 8),
                retain_handling=handling,
            )
        )
    if not wanted:  # [MQTT-3.8.3-2]
        raise _broken("a SUBSCRIBE without a topic filter")
    return Subscribe(packet_id=packet_id, wanted=tuple(wanted), properties=properties)


def _decode_suback(kind: Kind) -> Callable[[_Cursor, int, int], Suback]:
    def decode(cursor: _Cursor, flags: int, version: int) -> Suback:  # noqa: ARG001
        packet_id = cursor.packet_id()
        properties = _read_properties(cursor, kind) if version == V5 else _NONE
        return Suback(kind, packet_id, tuple(cursor.take(cursor.left)), properties)

    return decode


def _decode_unsubscribe(cursor: _Cursor, flags: int, version: int) -> Unsubscribe:  # noqa: ARG001
    packet_id = cursor.packet_id()
    properties = _read_properties(cursor, Kind.UNSUBSCRIBE) if version == V5 else _NONE
    filters = []
    while cursor.left:
        filters.append(cursor.text())
    if not filters:  # [MQTT-3.10.3-2]
        raise _broken("an UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id=packet_id, topic_filters=tuple(filters), properties=properties)


def _decode_ping(kind: Kind) -> Callable[[_Cursor, int, int], Ping]:
    return lambda cursor, flags, version: Ping(kind)  # noqa: ARG005


def _decode_disconnect(cursor: _Cursor, flags: int, version: int) -> Disconnect:  # noqa: ARG001
    if version != V5 or not cursor.left:
        return Disconnect()
    reason = cursor.number(1)
    return Disconnect(reason, _read_properties(cursor, Kind.DISCONNECT) if cursor.left else _NONE)


def _decode_auth(cursor: _Cursor, flags: int, version: int) -> Auth:  # noqa: ARG001
    if version != V5:
        raise _malformed("packet type 15 is reserved in MQTT 3.1.1")
    if not cursor.left:
        return Auth()
    reason = cursor.number(1)
    return Auth(reason, _read_properties(cursor, Kind.AUTH) if cursor.left else _NONE)


_DECODERS: Final[dict[int, Callable[[_Cursor, int, int], Packet]]] = {
    Kind.CONNECT: _decode_connect,
    Kind.CONNACK: _decode_connack,
    Kind.PUBLISH: _decode_publish,
    Kind.PUBACK: _decode_ack(Kind.PUBACK),
    Kind.PUBREC: _decode_ack(Kind.PUBREC),
    Kind.PUBREL: _decode_ack(Kind.PUBREL),
    Kind.PUBCOMP: _decode_ack(Kind.PUBCOMP),
    Kind.SUBSCRIBE: _decode_subscribe,
    Kind.SUBACK: _decode_suback(Kind.SUBACK),
    Kind.UNSUBSCRIBE: _decode_unsubscribe,
    Kind.UNSUBACK: _decode_suback(Kind.UNSUBACK),
    Kind.PINGREQ: _decode_ping(Kind.PINGREQ),
    Kind.PINGRESP: _decode_ping(Kind.PINGRESP),
    Kind.DISCONNECT: _decode_disconnect,
    Kind.AUTH: _decode_auth,
}
_FLAGS_OF: Final = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}


_PUBACK: Final = bytes((Kind.PUBACK << 4, 2))


class Reader:
    """A stream of bytes as packets; `version` is that of the first CONNECT once it has come."""

    __slots__ = ("_buffer", "_is_agreed", "_max_bytes", "_place", "version")

    def __init__(self, *, max_packet_bytes: int = MAX_PACKET_BYTES, version: int = V5) -> None:
        self.version = version
        self._is_agreed = False
        self._max_bytes = max_packet_bytes
        self._buffer = b""
        self._place = 0

    def feed(self, data: bytes) -> None:
        """Take in more bytes."""
        self._buffer = self._buffer[self._place :] + data if self._place < len(self._buffer) else data
        self._place = 0

    @property
    def unread_bytes(self) -> int:
        """How many bytes wait to be decoded."""
        return len(self._buffer) - self._place

    def next(self) -> Packet | None:
        """The next packet, if it is complete; PacketError if it is none."""
        buffer, begin = self._buffer, self._place
        if len(buffer) - begin < 2:
            return None
        size, place = buffer[begin + 1], begin + 2
        if size > 0x7F:
            found = self._size(begin + 1)
            if found is None:
                return None
            size, place = found
        if place - begin + size > self._max_bytes:  # [MQTT-3.1.2-24]
            raise PacketError(
                Reason.PACKET_TOO_LARGE, f"a packet of {place - begin + size} bytes; at most {self._max_bytes} allowed"
            )
        end = place + size
        if end > len(buffer):
            return None
        first = buffer[begin]
        kind, flags = first >> 4, first & 15
        decode = _DECODERS.get(kind)
        if decode is None:
            raise _malformed("packet type 0 is reserved")
        if kind != Kind.PUBLISH and flags != _FLAGS_OF.get(kind, 0):  # type: ignore[call-overload]  # [MQTT-2.1.3-1]
            raise _malformed(f"the flags of a packet of type {kind} are {flags:#x}")
        cursor = _Cursor(buffer, place, end)
        packet = decode(cursor, flags, self.version)
        cursor.finish()
        self._place = end
        if type(packet) is Connect and not self._is_agreed:  # a second one is an error, answered in the version so far
            self.version, self._is_agreed = packet.version, True
        return packet

    def pubacks(self) -> list[int]:
        """The packet identifiers of the PUBACKs without a reason code that are next."""
        buffer, place, found = self._buffer, self._place, []
        while buffer[place : place + 2] == _PUBACK and len(buffer) - place >= 4:
            number = buffer[place + 2] << 8 | buffer[place + 3]
            if not number:
                break
            found.append(number)
            place += 4
        self._place = place
        return found

    def _size(self, place: int) -> tuple[int, int] | None:
        size = 0
        for shift in range(_LONGEST_VARINT):
            if place + shift >= len(self._buffer):
                return None
            byte = self._buffer[place + shift]
            size |= (byte & 0x7F) << (7 * shift)
            if byte < 0x80:
                if byte == 0:
                    raise _malformed("the remaining length is longer than necessary")
                return size, place + shift + 1
        raise _malformed("the remaining length has more than 4 bytes")
