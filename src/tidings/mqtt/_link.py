"""One network connection of an MQTT client: packets in, packets out, topic aliases, and the client's limits."""

from collections.abc import Callable
from typing import Final

from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._mapping import Message
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
        write: Callable[["Link", bytes], None],
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

    def send(self, packet: Packet) -> bool:
        """Send a packet; False if it is longer than the client accepts [MQTT-3.1.2-24]: then it is not sent."""
        return not self.is_closed and self.send_bytes(encode(packet, self.version))

    def send_bytes(self, data: bytes) -> bool:
        """The same for an encoded packet."""
        if self._max_bytes is not None and len(data) > self._max_bytes:
            return False
        if not self.is_closed:
            self._write(self, data)
        return True

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
            raise PacketError(Reason.PROTOCOL_ERROR, f"topic alias {alias} stands for nothing")
        return self._aliases_in[alias]

    def publish(self, packet: Publish) -> bool:
        """Send a PUBLISH, with an alias if the client accepts them; False if it is too long for the client.

        No alias with QoS 2: MQTT.js keeps such a message until its PUBREL, and no longer knows its topic then.
        """
        if not self._aliases_most or packet.qos == 2:
            return self.send(packet)
        topic = packet.topic
        alias = self._aliases_out.get(topic)
        if alias is None and len(self._aliases_out) < self._aliases_most:
            data = encode(_with_alias(packet, topic, len(self._aliases_out) + 1), self.version)
            if not self.send_bytes(data):
                return False
            self._aliases_out[topic] = len(self._aliases_out) + 1
            return True
        return self.send(packet if alias is None else _with_alias(packet, "", alias))

    def publish_plain(self, message: Message) -> None:
        """Send a message of QoS 0 that is equal for all receivers: it is encoded once."""
        packet = message.plain.get(self.version)
        if packet is None:
            properties = message.properties if self.version == V5 else {}
            publish = Publish(topic=message.topic, payload=message.payload, properties=properties)
            packet = message.plain[self.version] = encode(publish, self.version)
        if self._aliases_most and message.topic:
            self.publish(Publish(topic=message.topic, payload=message.payload, properties=message.properties))
        else:
            self.send_bytes(packet)


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
