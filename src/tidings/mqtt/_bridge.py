"""A bridge to another MQTT broker (Mosquitto, EMQX, ...), without I/O: two MQTT clients, back to back.

One half is a client of the other broker, the other half a client of this broker's gateway. Each subscribes to what the
other half publishes, in MQTT 5, with No Local, so no message returns to its origin. A message of QoS 1 is acknowledged
when the other half's broker has acknowledged it, and both ends keep their sessions. So with QoS 1 nothing is lost while
either end is away, as long as the ends keep sessions, and a message may arrive twice. When one end is lost, the other
is closed, too: its broker sends unacknowledged messages again, and messages for the lost end wait at this broker, where
the deadline decides. The message expiry interval is the lifetime, or `lifetime_s` if there is none.

At most MAX_UNDER_WAY messages are under way in each direction: this is the receive maximum that each half announces.
"""

from typing import Final

import msgspec

from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Publish,
    Subscribe,
    Wanted,
)

__all__ = ["KEEP_ALIVE_S", "Bridge", "BridgeSettings", "bridge_client"]

MAX_UNDER_WAY: Final = 64
KEEP_ALIVE_S: Final = 30
_PASSED: Final = ("payload_format", "message_expiry_s", "content_type", "response_topic", "correlation_data", "user")


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One bridge; `topics_in` are subscribed to at the other broker, `topics_out` at this one."""

    name: str
    topics_in: tuple[str, ...] = ()
    topics_out: tuple[str, ...] = ()
    qos: int = 1
    lifetime_s: int | None = None
    session_s: int = 600
    """How long both ends keep what the bridge has not fetched while it is away."""
    username: str | None = None
    password: str | None = None
    local_password: str | None = None


def bridge_client(name: str) -> str:
    """The name of a bridge's clients, at both ends."""
    return f"bridge-{name}"


class _Half:
    """One of the two clients; `out` holds the bytes to send to its broker."""

    def __init__(self, connect: Connect, topics: tuple[str, ...], qos: int) -> None:
        self.is_up = False
        self.out = b""
        self.waiting: list[tuple[Publish, int]] = []
        """Messages to publish, each with the number to acknowledge to the other half."""
        self.owed: dict[int, int] = {}
        """By the number of a publication here: the number to acknowledge to the other half."""
        self._connect = connect
        self._topics = topics
        self._qos = qos
        self._last = 0
        self._reader = Reader()

    def begin(self) -> None:
        """There is a connection."""
        self._reader = Reader()
        self.is_up = False
        self.out = encode(self._connect)

    def end(self) -> None:
        """The connection is gone: unacknowledged messages are sent again by their senders."""
        self.is_up = False
        self.out = b""
        self.waiting.clear()
        self.owed.clear()

    def feed(self, data: bytes) -> list[Packet]:
        """What the broker has sent for the other half; PacketError if it refuses this one."""
        found: list[Packet] = []
        self._reader.feed(data)
        while (packet := self._reader.next()) is not None:
            if isinstance(packet, Connack):
                self._welcome(packet)
            elif isinstance(packet, Publish | Ack):
                found.append(packet)
            elif isinstance(packet, Disconnect):
                raise PacketError(packet.reason, f"dismissed with reason {packet.reason:#x}")  # type: ignore[arg-type]
        return found

    def _welcome(self, packet: Connack) -> None:
        if packet.reason:
            raise PacketError(packet.reason, f"refused with reason {packet.reason:#x}")  # type: ignore[arg-type]
        self.is_up = True
        if self._topics:
            wanted = tuple(
                Wanted(topic_filter=each, qos=self._qos, no_local=True, retain_as_published=True, retain_handling=1)
                for each in self._topics
            )
            self.out += encode(Subscribe(packet_id=0xFFFF, wanted=wanted))
        self.flush()

    def publish(self, packet: Publish, owed: int) -> None:
        """Forward a message of the other half."""
        self.waiting.append((packet, owed))
        self.flush()

    def flush(self) -> None:
        """Send waiting messages, as far as the broker accepts them."""
        while self.is_up and self.waiting and len(self.owed) < MAX_UNDER_WAY:
            packet, owed = self.waiting.pop(0)
            number = 0
            if packet.qos:
                while True:
                    self._last = self._last % 0xFFF0 + 1
                    if self._last not in self.owed:
                        break
                number = self._last
                self.owed[number] = owed
            self.out += encode(msgspec.structs.replace(packet, packet_id=number))

    def acknowledge(self, number: int) -> None:
        """The other half has forwarded a message."""
        if self.is_up:
            self.out += encode(Ack(Kind.PUBACK, number))

    def ping(self) -> None:
        """Keep the connection alive."""
        if self.is_up:
            self.out += encode(Ping(Kind.PINGREQ))


class Bridge:
    """A bridge; its ends are named "remote" and "local"."""

    def __init__(self, settings: BridgeSettings) -> None:
        self.settings = settings
        self.passed = {"in": 0, "out": 0}
        facts = {"session_expiry_s": settings.session_s, "receive_maximum": MAX_UNDER_WAY}
        common = Connect(
            client_id=bridge_client(settings.name), clean_start=False, keep_alive_s=KEEP_ALIVE_S, properties=facts
        )
        remote, local = (
            msgspec.structs.replace(common, username=name, password=None if word is None else word.encode())
            for name, word in ((settings.username, settings.password), ("bridge", settings.local_password))
        )
        self.halves = {
            "remote": _Half(remote, settings.topics_in, settings.qos),
            "local": _Half(local, settings.topics_out, settings.qos),
        }

    def opened(self, end: str) -> None:
        """There is a connection at this end."""
        self.halves[end].begin()

    def lost(self, end: str) -> None:
        """The connection is gone. What arrived over it is not acknowledged; unsent messages stay with their sender."""
        self.halves[end].end()
        other = self.halves[_OTHER[end]]
        other.owed = dict.fromkeys(other.owed, 0)

    def received(self, end: str, data: bytes) -> None:
        """Bytes of one end; PacketError if it refuses the bridge."""
        half, other = self.halves[end], self.halves[_OTHER[end]]
        for packet in half.feed(data):
            if isinstance(packet, Publish):
                self.passed["in" if end == "remote" else "out"] += 1
                other.publish(self._passed_on(packet), packet.packet_id)
            elif isinstance(packet, Ack) and packet.kind is Kind.PUBACK:
                owed = half.owed.pop(packet.packet_id, 0)
                if owed:
                    other.acknowledge(owed)
                half.flush()

    def take(self, end: str) -> bytes:
        """The bytes to send at this end."""
        half = self.halves[end]
        out, half.out = half.out, b""
        return out

    def ping(self) -> None:
        """To be called more often than every KEEP_ALIVE_S."""
        for half in self.halves.values():
            half.ping()

    def _passed_on(self, packet: Publish) -> Publish:
        properties = {name: packet.properties[name] for name in _PASSED if name in packet.properties}
        if self.settings.lifetime_s is not None:
            properties.setdefault("message_expiry_s", self.settings.lifetime_s)
        qos = min(packet.qos, 1)
        return Publish(topic=packet.topic, payload=packet.payload, qos=qos, retain=packet.retain, properties=properties)


_OTHER: Final = {"remote": "local", "local": "remote"}
