"""What the client of a session is given: numbered messages until it has confirmed them, and QoS 2 from our side.

- A delivery of QoS 1 or 2 gets a number at once. For a session that outlives its connection it is stored, and once that
  is durable it is acknowledged to the broker. A delivery of QoS 2 is sent after that, and so is its PUBREL.
- No events are taken from the broker while as many as the client's receive maximum are unconfirmed: they wait at the
  broker, where the deadline decides.
- A number is in use until PUBACK or PUBCOMP. When the client returns, unconfirmed messages are sent again, in order.
"""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidings.mqtt._mapping import Message
from tidings.mqtt._packets import V5, Ack, Kind, Publish, Reason
from tidings.mqtt._records import GIVEN, Outgoing, Subscription, key, pack

if TYPE_CHECKING:
    from tidings.mqtt._gateway import Gateway
    from tidings.mqtt._session import Session

__all__ = ["Deliveries"]

_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000


class Deliveries:
    """The messages for a client."""

    def __init__(self, session: "Session", gateway: "Gateway") -> None:
        self.out: dict[int, Outgoing] = {}
        """Unconfirmed, by number."""
        self.given: dict[str, int] = {}
        """Of the last messages of QoS 2: their identities, and where these are stored."""
        self.report: tuple[str, ...] = ()
        """What the client wants to know of each message."""
        self._session = session
        self._gateway = gateway
        self._places = 0
        self._last_id = 0
        self._unsent: deque[int] = deque()
        self._sent = 0
        self._is_paused = False

    def restart(self, report: tuple[str, ...]) -> None:
        """The client has a new connection to the broker, which is not paused."""
        self.report, self._is_paused = report, False

    def receive(self, packet: Ack) -> None:
        message = self.out.get(packet.packet_id)
        if message is None or message.qos != 2:
            self._session.acknowledge(Kind.PUBREL, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)
        elif packet.reason >= Reason.UNSPECIFIED:
            self._end(packet.packet_id)
        else:
            released = Outgoing(packet_id=packet.packet_id, qos=2, is_released=True, is_sent=True)
            self.out[packet.packet_id] = released
            if not self._session.is_kept:
                self._session.acknowledge(Kind.PUBREL, packet.packet_id)
                return
            self._gateway.commits.store(key("out", self._session.client_id, packet.packet_id), pack(released))
            number, link = packet.packet_id, self._session.link
            self._gateway.commits.when_durable(
                lambda: self._session.acknowledge(Kind.PUBREL, number) if self._session.link is link else None
            )

    def end(self, packet: Ack, *, qos: int) -> None:
        message = self.out.get(packet.packet_id)
        if message is not None and message.qos == qos:
            self._end(packet.packet_id)

    def _end(self, number: int) -> None:
        message = self.out.pop(number)
        if message.is_sent:
            self._sent -= 1
        if self._session.is_kept:
            self._gateway.commits.erase(key("out", self._session.client_id, number))
        self._pump()

    def give(
        self, subscription: Subscription, message: Message, *, retain: bool, is_late: bool, identity: str = ""
    ) -> None:
        qos = min(message.qos, subscription.qos)
        report = subscription.report or self.report
        if not (qos or retain or report or subscription.identifier or message.expires_ns is not None):
            if self._session.link is not None:
                self._session.link.publish_plain(message)
            return
        properties = message.properties
        if subscription.identifier:
            properties = {**properties, "subscription_ids": (subscription.identifier,)}
        deadline_ns = message.expires_ns
        if subscription.max_delay_ns is not None:
            own_ns = message.since_ns + subscription.max_delay_ns
            deadline_ns = own_ns if deadline_ns is None else min(deadline_ns, own_ns)
        outgoing = Outgoing(
            packet_id=self._next_id() if qos else 0,
            qos=qos,
            topic=message.topic,
            payload=message.payload,
            retain=retain,
            properties=properties,
            since_ns=message.since_ns,
            expires_ns=message.expires_ns,
            deadline_ns=deadline_ns,
            report=report,
            is_late=is_late,
        )
        if not qos:
            if self._session.link is not None:
                self._send_message(outgoing)
            return
        self.out[outgoing.packet_id] = outgoing
        if identity:
            self._remember(identity)
        if self._session.is_kept:
            number = self._gateway.commits.store(
                key("out", self._session.client_id, outgoing.packet_id), pack(outgoing)
            )
            if self._session.member is not None:
                self._session.member.gate = number
        if self._session.is_kept and qos == 2:
            self._gateway.commits.when_durable(lambda: self._line_up(outgoing))
        else:
            self._line_up(outgoing)
        self.pause_if_full()

    def _line_up(self, message: Outgoing) -> None:
        if self.out.get(message.packet_id) is message and not message.is_sent:
            self._unsent.append(message.packet_id)
            self._pump()

    def _remember(self, identity: str) -> None:
        place = self._places
        self._places += 1
        self.given[identity] = place
        if self._session.is_kept:
            self._gateway.commits.store(key("given", self._session.client_id, place % GIVEN), pack((identity, place)))
        while len(self.given) > GIVEN:
            del self.given[next(iter(self.given))]

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self.out:
                return self._last_id

    def _pump(self) -> None:
        """Send as many messages as the client takes at once [MQTT-4.9.0-2]."""
        link = self._session.link
        while link is not None and self._unsent and self._sent < link.receive_maximum:
            message = self.out.get(self._unsent.popleft())
            if message is None or message.is_sent:
                continue
            is_over = message.expires_ns is not None and message.expires_ns <= self._gateway.now_ns
            if is_over and not message.is_late:  # [MQTT-3.3.2-5]; who wants it late gets it late
                self._forget(message)
                continue
            self._sent += 1
            message.is_sent = True
            if not self._send_message(message):
                self._end(message.packet_id)  # as if it had been sent [MQTT-3.1.2-25]
        self.pause_if_full()

    def _forget(self, message: Outgoing) -> None:
        del self.out[message.packet_id]
        if self._session.is_kept:
            self._gateway.commits.erase(key("out", self._session.client_id, message.packet_id))

    def send_again(self, now_ns: int) -> None:
        """The client is back: what it has not confirmed, under its number and in order [MQTT-4.4.0-1]; but nothing of
        QoS 1 whose time is over."""
        self._unsent.clear()
        self._sent = 0
        for message in list(self.out.values()):
            if message.is_released:
                self._sent += 1
                self._session.acknowledge(Kind.PUBREL, message.packet_id)
            elif message.expires_ns is not None and message.expires_ns <= now_ns and message.qos == 1:
                self._forget(message)
            elif message.is_sent:
                self._sent += 1
                self._send_message(message, dup=True)
            else:
                self._unsent.append(message.packet_id)
        self._pump()

    def _send_message(self, message: Outgoing, *, dup: bool = False) -> bool:
        """Send a message with what is left of its time; False if it is longer than the client takes."""
        assert self._session.link is not None
        properties: Mapping[str, Any] = {}
        if self._session.link.version == V5:
            properties = message.properties
            now_ns = self._gateway.now_ns
            if message.expires_ns is not None:  # [MQTT-3.3.2-6]
                properties = {**properties, "message_expiry_s": max(message.expires_ns - now_ns, 0) // _SECOND or 1}
            if message.report:
                pairs = (*properties.get("user", ()), *_facts(message, now_ns))
                properties = {**properties, "user": pairs}
        return self._session.link.publish(
            Publish(
                topic=message.topic,
                payload=message.payload,
                qos=message.qos,
                retain=message.retain,
                dup=dup,
                packet_id=message.packet_id,
                properties=properties,
            )
        )

    def pause_if_full(self) -> None:
        """Take events from the broker only while the client takes them."""
        member, link = self._session.member, self._session.link
        if member is None or member.is_over:
            return
        most = 0 if link is None else min(link.receive_maximum, self._gateway.settings.max_under_way)
        is_full = link is None or link.is_congested or len(self.out) >= most
        if is_full != self._is_paused and (is_full or len(self.out) <= most // 2):
            self._is_paused = is_full
            member.call(member.machine.pause if is_full else member.machine.resume, self._gateway.now_ns)
            self._gateway.stir(self._session)

    def restore(self, out: list[Outgoing], given: list[tuple[int, str]]) -> None:
        """Restore stored messages, and the identities of messages of QoS 2 that were given, in the order of places."""
        self.out = {message.packet_id: message for message in out}
        self.given = {identity: place for place, identity in given}
        self._places = given[-1][0] + 1 if given else 0


def _facts(message: Outgoing, now_ns: int) -> list[tuple[str, str]]:
    found = []
    if "age" in message.report:
        found.append(("age-ms", f"{(now_ns - message.since_ns) / _MS:.3f}"))
    is_late = message.is_late or (message.deadline_ns is not None and now_ns >= message.deadline_ns)
    if "late" in message.report:
        found.append(("late", "true" if is_late else "false"))
    if "deadline" in message.report and message.deadline_ns is not None:
        found.append(("deadline-left-ms", f"{(message.deadline_ns - now_ns) / _MS:.3f}"))
    return found
