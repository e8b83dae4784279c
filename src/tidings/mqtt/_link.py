"""One network connection of an MQTT client: packets in, packets out, topic aliases, and the client's limits."""

from collections.abc import Callable, Sequence
from typing import Final

from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._copies import Copy
from tidings.mqtt._packets import V5, Connack, Connect, Disconnect, Packet, PacketError, Publish, Reason

__all__ = ["TOPIC_ALIASES", "Link"]

TOPIC_ALIASES: Final = 32
"""How many aliases each side uses."""
_LEAST_BYTES: Final = 64
"""A reason string is left out if the client accepts no packets of this length."""
_RETURN_CODES: Final = {
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
}
"""The return codes of 3.1.1; 3 (unavailable) for any other."""


class Link:
    """One connection; `write` is called with the bytes to send."""

    def __init__(
        self,
        name: str,
        *,
        address: str,
        certified: tuple[str, ...],
        max_packet_bytes: int,
        now_ns: int,
        write: Callable[["Link", Sequence[bytes]], None],
    ) -> None:
        self.name = name
        self.address = address
        self.certified = certified
        self.reader = Reader(max_packet_bytes=max_packet_bytes)
        self.heard_ns = now_ns
        self.keep_alive_ns = 0
        self.is_welcome = False
        """Whether CONNACK has been sent."""
        self.has_asked = False
        """Whether CONNECT has come."""
        self.is_closed = False
        self.is_read = True
        self.is_congested = False
        self.gate = 0
        """Hold what is written until the commit of this number."""
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.receive_maximum = 0xFFFF
        self.explains = True
        """Whether the client accepts reason strings."""
        self._max_bytes: int | None = None
        self._aliases_most = 0
        self._aliases_in: dict[int, str] = {}
        self._aliases_out: dict[str, int] = {}
        self._write = write

    @property
    def version(self) -> int:
        """The client's protocol version."""
        return self.reader.version

    def agree(self, packet: Connect) -> None:
        """The properties of CONNECT."""
        properties = packet.properties
        self.has_asked = True
        self.receive_maximum = properties.get("receive_maximum", 0xFFFF)
        self._max_bytes = properties.get("maximum_packet_size")
        self._aliases_most = min(properties.get("topic_alias_maximum", 0), TOPIC_ALIASES)
        self.explains = bool(properties.get("request_problem_information", 1))

    def hold(self, parts: Sequence[bytes]) -> None:
        """Keep these bytes until they may be written."""
        self.held += parts
        self.held_bytes += sum(map(len, parts))

    def take_held(self) -> list[bytes]:
        """Take the bytes that were held."""
        held, self.held, self.held_bytes = self.held, [], 0
        return held

    def send(self, packet: Packet) -> bool:
        """Send a packet; False if it is longer than the client accepts [MQTT-3.1.2-24]: then it is not sent."""
        return not self.is_closed and self._send(encode(packet, self.version))

    def _send(self, *parts: bytes) -> bool:
        if self._max_bytes is not None and sum(map(len, parts)) > self._max_bytes:
            return False
        if not self.is_closed:
            self._write(self, parts)
        return True

    @property
    def is_plain(self) -> bool:
        """Whether packets are the same as for other clients: no topic aliases, and no limit of length."""
        return not self._aliases_most and self._max_bytes is None

    def send_plain(self, parts: Sequence[bytes]) -> None:
        """Send packets, in parts."""
        if not self.is_closed:
            self._write(self, parts)

    def refuse(self, reason: Reason, why: str) -> None:
        """Refuse CONNECT."""
        if self.version == V5:
            self.send(Connack(reason=reason, properties={"reason_string": why[:1000]} if self.explains else {}))
        else:
            self.send(Connack(reason=_RETURN_CODES.get(reason, 3)))

    def dismiss(self, reason: Reason, why: str, server: str = "") -> None:
        """Send DISCONNECT with the reason; 3.1.1 has no such packet from a server."""
        if self.version == V5 and self.is_welcome:
            properties = {"reason_string": why[:1000]} if self.explains and why else {}
            if server:
                properties["server_reference"] = server
            if not self.send(Disconnect(reason, properties)):
                self.send(Disconnect(reason))

    def topic_of(self, packet: Publish) -> str:
        """The topic of a PUBLISH, by its alias if it has none itself."""
        alias = packet.properties.get("topic_alias")
        if alias is None:
            if not packet.topic:  # [MQTT-3.3.2-8]
                raise PacketError(Reason.PROTOCOL_ERROR, "a PUBLISH without topic and without topic alias")
            return packet.topic
        if not 0 < alias <= TOPIC_ALIASES:  # [MQTT-3.3.2-9]
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}: from 1 to {TOPIC_ALIASES}")
        if packet.topic:
            self._aliases_in[alias] = packet.topic
            return packet.topic
        if alias not in self._aliases_in:
            raise PacketError(Reason.PROTOCOL_ERROR, f"topic alias {alias} is not defined")
        return self._aliases_in[alias]

    def publish(self, copy: Copy, number: int, now_ns: int, *, dup: bool = False) -> bool:
        """Send a message under its number, with an alias if the client accepts them; False if it is too long for the
        client.

        No alias with QoS 2: MQTT.js keeps such a message until its PUBREL, and no longer knows its topic then.
        """
        if self._aliases_most and copy.qos != 2:
            return self._publish_aliased(copy.publish(self.version, now_ns, number, dup=dup))
        before, after = copy.packet(self.version, now_ns)
        if dup:
            before = bytes((before[0] | 8,)) + before[1:]
        return self._send(before, number.to_bytes(2, "big"), after) if copy.qos else self._send(before)

    def _publish_aliased(self, packet: Publish) -> bool:
        topic = packet.topic
        alias = self._aliases_out.get(topic)
        if alias is None and len(self._aliases_out) < self._aliases_most:
            alias = len(self._aliases_out) + 1
            if not self.send(_with_alias(packet, topic, alias)):
                return False
            self._aliases_out[topic] = alias
            return True
        return self.send(packet if alias is None else _with_alias(packet, "", alias))


def _with_alias(packet: Publish, topic: str, alias: int) -> Publish:
    return Publish(
        topic=topic,
        payload=packet.payload,
        qos=packet.qos,
        retain=packet.retain,
        dup=packet.dup,
        packet_id=packet.packet_id,
        properties={**packet.properties, "topic_alias": alias},
    )
