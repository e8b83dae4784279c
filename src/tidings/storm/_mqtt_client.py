"""A client of MQTT 5 or 3.1.1, without I/O: bytes and times in, bytes out. It keeps to the standard.

- A client with a session keeps its side of it: unconfirmed messages are sent again under their numbers, and a message
  of QoS 2 whose number is known is not taken again.
- If the broker has no session for it, it discards its side, subscribes again, and publishes again, as new messages,
  what was not confirmed.
- It subscribes again only if SUBACK has not come in this session: a broker that remembers the session, and not the
  subscription, is found out.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidings.mqtt.packets import (
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Publish,
    Reader,
    Suback,
    Subscribe,
    Wanted,
    encode,
)
from tidings.storm._mqtt_plan import MqttClientPlan, MqttPublication

__all__ = ["MqttClient", "Sent"]

SECOND: Final = 10**9
KEEP_ALIVE_S: Final = 2
PING_NS: Final = SECOND
SILENCE_NS: Final = 3 * SECOND
"""A connection over which nothing has come for so long is given up; also one over which CONNACK does not come."""
MAX_UNDER_WAY: Final = 20
MAX_WAITING: Final = 500
SUBSCRIBES: Final = 0xFF00
"""Packet identifiers from here on are those of SUBSCRIBE."""


class Sent(msgspec.Struct, eq=False):
    """A message that the client publishes. `is_repeated`: it was published again as a new message."""

    plan: MqttPublication
    payload: bytes
    is_repeated: bool = False


class MqttClient:
    """One client; `out` holds the bytes to send. `note` is called with what the client has seen."""

    def __init__(self, plan: MqttClientPlan, password: bytes, note: Callable[..., None]) -> None:
        self.plan = plan
        self.out = b""
        self.is_connected = self.is_up = self.is_ready = False
        """Whether there is a connection; whether CONNACK has come; whether SUBACK has come, now or in this session."""
        self.wants_to_close = False
        self.session = 0
        """Counts the sessions."""
        self.wants_fresh = False
        """Whether the next connection is to begin a new session."""
        self._note = note
        self._password = password
        self._reader = Reader(version=plan.version)
        self.heard_ns: int | None = None
        """When anything last came."""
        self.away_since_ns: int | None = None
        """The same before the present connection."""
        self.sent: dict[bytes, Sent] = {}
        """All that it wanted to publish, by payload."""
        self._begun_ns = self._pinged_ns = 0
        self._aliases: dict[int, str] = {}
        self._waiting: deque[Sent] = deque()
        self._under_way: dict[int, tuple[Sent, bool]] = {}
        """By number: the message, and whether PUBREC has come."""
        self._known: set[int] = set()
        self._last = 0
        self._granted: set[int] = set()
        """The packet identifiers of SUBACKs in this session."""
        self._most = MAX_UNDER_WAY

    # -- connections -----------------------------------------------------------------------------------------------

    def opened(self, now_ns: int) -> None:
        """There is a connection."""
        plan = self.plan
        self._reader = Reader(version=plan.version)
        self._aliases = {}
        self.is_connected, self.wants_to_close = True, False
        self.away_since_ns = self.heard_ns
        self._begun_ns = self._pinged_ns = now_ns
        properties: dict[str, Any] = {}
        if plan.version == V5:
            properties = {"session_expiry_s": plan.session_s, "receive_maximum": plan.receive_maximum}
            if plan.has_aliases:
                properties["topic_alias_maximum"] = 4
        is_clean = self.wants_fresh or not plan.is_kept
        self._note("asked", is_clean=is_clean)
        self._send(
            Connect(
                client_id=plan.name,
                version=plan.version,
                clean_start=is_clean,
                keep_alive_s=KEEP_ALIVE_S,
                username="storm",
                password=self._password,
                properties=properties,
            )
        )

    def lost(self) -> None:
        """The connection is gone."""
        self.out = b""
        self.is_connected = self.is_up = self.is_ready = False

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes of the broker."""
        self.heard_ns = now_ns
        self._reader.feed(data)
        try:
            while self.is_connected and (packet := self._reader.next()) is not None:
                self._handle(packet)
        except PacketError as error:
            self._note("broken", why=str(error))
            self.wants_to_close = True

    def wake(self, now_ns: int) -> None:
        """Some time has passed: to be called more often than every PING_NS."""
        if not self.is_connected:
            return
        if now_ns - max(self.heard_ns or 0, self._begun_ns) > SILENCE_NS:
            self.wants_to_close = True
        elif self.is_up and now_ns - self._pinged_ns >= PING_NS:
            self._pinged_ns = now_ns
            self._send(Ping(Kind.PINGREQ))

    def publish(self, plan: MqttPublication) -> bool:
        """Publish a message; False if it is not taken: QoS 0 without a connection, or too many wait."""
        if len(self._waiting) >= MAX_WAITING or (not plan.qos and not self.is_up):
            return False
        sent = Sent(plan, msgspec.json.encode(plan.fields))
        self.sent[sent.payload] = sent
        self._waiting.append(sent)
        self._pump()
        return True

    # -- packets ---------------------------------------------------------------------------------------------------

    def _handle(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._on_connack(packet)
            case Publish():
                self._on_publish(packet)
            case Ack():
                self._on_ack(packet)
            case Suback(Kind.SUBACK):
                self._granted.add(packet.packet_id)
                self.is_ready = len(self._granted) == len(self.plan.wishes)
                self._note("subscribed", number=packet.packet_id - SUBSCRIBES, reason=packet.reasons[0])
            case Disconnect():
                self._note("dismissed", reason=packet.reason)
                self.wants_to_close = True
            case _:
                pass

    def _on_connack(self, packet: Connack) -> None:
        if packet.reason:
            self._note("refused", reason=packet.reason)
            self.wants_to_close = True
            return
        self.is_up, self.wants_fresh = True, False
        self._most = min(packet.properties.get("receive_maximum", MAX_UNDER_WAY), MAX_UNDER_WAY)
        if not packet.session_present:
            self.session += 1
            self._known, self._granted = set(), set()
            again = [sent for sent, is_received in self._under_way.values() if not is_received]
            self._under_way = {}
            for sent in reversed(again):
                sent.is_repeated = True
                self._waiting.appendleft(sent)
        self._note("welcome", is_present=packet.session_present)
        missing = [wish for wish in self.plan.wishes if SUBSCRIBES + wish.number not in self._granted]
        self.is_ready = not missing
        for wish in missing:
            self._send(self._subscribe(wish))
        for number, (sent, is_received) in self._under_way.items():
            self._send(Ack(Kind.PUBREL, number) if is_received else self._packet(sent, number, dup=True))
        self._pump()

    def _subscribe(self, wish: Any) -> Subscribe:
        properties: dict[str, Any] = {}
        if self.plan.version == V5:
            terms = [("filter", wish.filter)] if wish.filter else []
            if wish.max_delay_ns is not None:
                terms.append(("max-delay-ms", f"{wish.max_delay_ns / 1e6:g}"))
            properties = {"subscription_ids": (wish.number,)}
            if terms:
                properties["user"] = tuple(terms)
        wanted = Wanted(topic_filter=wish.topic_filter, qos=wish.qos, retain_handling=2 * (self.plan.version == V5))
        return Subscribe(packet_id=SUBSCRIBES + wish.number, wanted=(wanted,), properties=properties)

    def _on_publish(self, packet: Publish) -> None:
        topic, alias = packet.topic, packet.properties.get("topic_alias")
        if alias is not None:
            topic = self._aliases.setdefault(alias, topic)
        is_new = True
        if packet.qos == 2:
            is_new = packet.packet_id not in self._known
            self._known.add(packet.packet_id)
        numbers = packet.properties.get("subscription_ids", (1,))
        self._note("got", topic=topic, packet=packet, number=numbers[0], is_new=is_new)
        if packet.qos:
            self._send(Ack(Kind.PUBACK if packet.qos == 1 else Kind.PUBREC, packet.packet_id))

    def _on_ack(self, packet: Ack) -> None:
        number = packet.packet_id
        if packet.kind is Kind.PUBREL:
            self._known.discard(number)
            self._send(Ack(Kind.PUBCOMP, number))
            return
        sent, is_received = self._under_way.get(number, (None, False))
        if sent is None:
            return
        if packet.kind is Kind.PUBREC and packet.reason < 0x80:
            if not is_received:
                self._note("accepted", sent=sent)
            self._under_way[number] = (sent, True)
            self._send(Ack(Kind.PUBREL, number))
            return
        if packet.kind is Kind.PUBACK and packet.reason < 0x80:
            self._note("accepted", sent=sent)
        elif packet.reason >= 0x80 and packet.kind is not Kind.PUBCOMP:
            self._note("not-accepted", sent=sent, reason=packet.reason)
        del self._under_way[number]
        self._pump()

    # -- sending ---------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        while self.is_up and self._waiting and len(self._under_way) < self._most:
            sent = self._waiting.popleft()
            number = 0
            if sent.plan.qos:
                number = self._last
                while True:
                    number = number % 0xFE00 + 1
                    if number not in self._under_way:
                        break
                self._last = number
                self._under_way[number] = (sent, False)
            self._send(self._packet(sent, number, dup=False))

    def _packet(self, sent: Sent, number: int, *, dup: bool) -> Publish:
        properties: dict[str, Any] = {}
        if self.plan.version == V5:
            properties = {"content_type": "application/json"}
            if sent.plan.lifetime_s is not None:
                properties["message_expiry_s"] = sent.plan.lifetime_s
        plan = sent.plan
        return Publish(
            topic=plan.topic, payload=sent.payload, qos=plan.qos, dup=dup, packet_id=number, properties=properties
        )

    def _send(self, packet: Packet) -> None:
        self.out += encode(packet, self.plan.version)
