"""Messages from the client of a session: for the broker, and QoS 2 from the client's side.

- A PUBLISH is answered when the broker has durably accepted the event.
- PUBLISH of QoS 2 is stored with an identity before it is published, and answered by PUBREC when the event is accepted.
  If the process dies in between, the client sends it again under its number, and it is published again under its
  identity; a session that has received that identity does not get it again.
- Topics are advertised before they are published to: everything at once or, if the broker refuses that, topic by topic.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.mqtt._mapping import lifetime_ns, reason_of_code, to_attributes
from tidings.mqtt._packets import Ack, Kind, PacketError, Publish, Reason, Will
from tidings.mqtt._records import Incoming, key, pack
from tidings.mqtt._topics import is_topic, name_of, topic_filter_sql
from tidings.protocol import RequestError

if TYPE_CHECKING:
    from tidings.mqtt._gateway import Gateway
    from tidings.mqtt._session import Session

__all__ = ["MAX_UNCONFIRMED", "TOLERANCE", "Publications"]

MAX_UNCONFIRMED: Final = 512
"""How many messages of a client may wait for the broker before reading from the client stops."""
TOLERANCE: Final = 8
"""How many times the receive maximum a client may have under way before it is disconnected: after a reconnect, paho
sends everything it has without counting."""
_EVERYTHING: Final = "everything"


class _Publication(msgspec.Struct):
    """A message that the broker has not accepted yet."""

    packet_id: int
    qos: int
    attributes: dict[str, bool | int | float | str]
    payload: bytes
    lifetime_ns: int | None


class Publications:
    """The messages that a client publishes."""

    def __init__(self, session: "Session", gateway: "Gateway") -> None:
        self.incoming: dict[int, Incoming] = {}
        """Of QoS 2, by number, until the client releases them."""
        self.advertised: dict[str, bool | None] = {}
        """By name: whether the broker allows it; None if it has yet to answer."""
        self._session = session
        self._gateway = gateway
        self._waiting: deque[_Publication] | tuple[()] = ()  # most clients never publish
        self._unconfirmed: dict[str, _Publication] = {}

    def restart(self) -> None:
        """The client has a new connection to the broker: it repeats what was not confirmed."""
        self.advertised, self._unconfirmed, self._waiting = {}, {}, ()
        for each in self.incoming.values():
            each.is_under_way = False

    @property
    def is_busy(self) -> bool:
        """Whether the broker has to catch up before more is read."""
        return len(self._waiting) + len(self._unconfirmed) >= MAX_UNCONFIRMED

    @property
    def is_settled(self) -> bool:
        """Whether the broker has nothing left to accept."""
        return not (self._waiting or self._unconfirmed)

    def take(self, packet: Publish) -> None:
        assert self._session.link is not None
        topic = self._session.link.topic_of(packet)
        if not is_topic(topic):  # [MQTT-3.3.2-2]
            raise PacketError(Reason.TOPIC_NAME_INVALID, f"{topic[:100]!r} is not a valid topic for publishing")
        if "subscription_ids" in packet.properties:  # [MQTT-3.3.4-6]
            raise PacketError(Reason.PROTOCOL_ERROR, "a client's PUBLISH has a subscription identifier")
        response = packet.properties.get("response_topic")
        if response is not None and not is_topic(response):  # [MQTT-3.3.2-14]
            raise PacketError(Reason.PROTOCOL_ERROR, "the response topic has wildcards")
        if packet.properties.get("payload_format") == 1:
            try:
                packet.payload.decode()
            except UnicodeDecodeError:
                self._refuse(packet, Reason.PAYLOAD_FORMAT_INVALID, "the payload is not UTF-8")
                return
        if packet.topic != topic:
            packet = msgspec.structs.replace(packet, topic=topic)
        try:
            if packet.qos == 2:
                self._on_publish_twice(packet)
            else:
                self.publish(packet)
        except PacketError as error:
            if error.reason is not Reason.IMPLEMENTATION_SPECIFIC:
                raise
            self._refuse(packet, error.reason, str(error))

    def _refuse(self, packet: Publish, reason: Reason, why: str) -> None:
        """Refuse a message; with QoS 0 the client is not informed."""
        if packet.qos:
            self._session.acknowledge(Kind.PUBACK if packet.qos == 1 else Kind.PUBREC, packet.packet_id, reason, why)

    def _on_publish_twice(self, packet: Publish) -> None:
        """QoS 2: a repeated message under the same number is not published twice [MQTT-4.3.3-10]."""
        known = self.incoming.get(packet.packet_id)
        if known is not None and (known.is_accepted or known.is_under_way):
            if known.is_accepted:
                self._session.acknowledge(Kind.PUBREC, packet.packet_id)
            return
        if known is None:
            if len(self.incoming) >= TOLERANCE * self._gateway.settings.receive_maximum:  # [MQTT-3.3.4-7]
                raise PacketError(Reason.RECEIVE_MAXIMUM_EXCEEDED, "more messages of QoS 2 than the receive maximum")
            # Numbered by the process: a client may have many sessions in its time, and each of them forgets.
            identity = f"{self._session.client_id}/{self._gateway.life}/{next(self._gateway.identities)}"
            known = Incoming(packet_id=packet.packet_id, identity=identity)
        attributes = to_attributes(packet, self._gateway.settings.json_topics, identity=known.identity)
        self.incoming[packet.packet_id] = known
        known.is_under_way = True
        if not self._session.is_kept:
            self.publish(packet, attributes)
            return
        self._gateway.commits.store(key("in", self._session.client_id, packet.packet_id), pack(known))
        member = self._session.member
        self._gateway.commits.when_durable(
            lambda: self.publish(packet, attributes) if self._session.member is member else None
        )

    def publish(self, packet: Publish | Will, attributes: dict[str, Any] | None = None) -> None:
        if attributes is None:
            attributes = to_attributes(packet, self._gateway.settings.json_topics)
        lives_ns = lifetime_ns(packet.properties)
        most_ns = self._gateway.settings.max_lifetime_ns
        number = packet.packet_id if isinstance(packet, Publish) else 0
        qos = packet.qos if isinstance(packet, Publish) else 0
        lives_ns = None if lives_ns is None else min(lives_ns, most_ns)
        if isinstance(self._waiting, tuple):
            self._waiting = deque()
        self._waiting.append(_Publication(number, qos, attributes, packet.payload, lives_ns))
        self._gateway.stir(self._session)

    def flush(self) -> None:
        """Publish waiting messages once they are advertised: everything or, if that is refused, topic by topic."""
        member, machine = self._session.member, None if self._session.member is None else self._session.member.machine
        if member is None or machine is None or member.is_over:
            return
        ready: list[_Publication] = []
        while not isinstance(self._waiting, tuple) and self._waiting:
            publication = self._waiting[0]
            is_allowed = self._may_publish(str(publication.attributes["topic"]))
            if is_allowed is None:
                break
            self._waiting.popleft()
            if not is_allowed:
                self._settle(
                    publication, Reason.NOT_AUTHORIZED, f"may not publish to {publication.attributes['topic']!r}"
                )
                continue
            ready.append(publication)
        if not ready:
            return
        events = [(each.attributes, each.payload, each.lifetime_ns) for each in ready]
        found = member.call(machine.publish_all, self._gateway.now_ns, events)
        for publication, sequence in zip(ready, found, strict=True):
            if isinstance(sequence, RequestError):
                self._settle(publication, reason_of_code(sequence.code), str(sequence))
            else:
                self._unconfirmed[str(sequence)] = publication

    def _may_publish(self, topic: str) -> bool | None:
        """Whether a topic is advertised; None if the broker has yet to say."""
        name, filter = _EVERYTHING, "TRUE"
        if self.advertised.get(_EVERYTHING, True) is False:
            name, filter = name_of(topic), topic_filter_sql(topic)
        if name not in self.advertised:
            self.advertised[name] = None
            self._session.request("advertise", name, filter)
        return self.advertised[name]

    def release(self, packet: Ack) -> None:
        """The client has PUBREC, and forgets the message [MQTT-4.3.3-11]."""
        known = self.incoming.pop(packet.packet_id, None)
        if known is not None and self._session.is_kept:
            self._gateway.commits.erase(key("in", self._session.client_id, packet.packet_id))
        reason = Reason.SUCCESS if known is not None else Reason.PACKET_IDENTIFIER_NOT_FOUND
        number = packet.packet_id
        if not self._session.is_kept:
            self._session.acknowledge(Kind.PUBCOMP, number, reason)
            return
        # The number may be used again after PUBCOMP: by then nothing may remember its old use.
        link = self._session.link
        self._gateway.commits.when_durable(
            lambda: self._session.acknowledge(Kind.PUBCOMP, number, reason) if self._session.link is link else None
        )

    def _settle(self, publication: _Publication, reason: Reason, why: str) -> None:
        """The broker has accepted a message, or refused it."""
        is_accepted = reason < Reason.UNSPECIFIED
        if is_accepted and publication.attributes.get("mqtt_retain") is True:
            age_ns = 0
            self._gateway.retained.put(
                publication.attributes, publication.payload, age_ns, self._session.client_id, self._gateway.now_ns
            )
        if publication.qos == 2:
            known = self.incoming.get(publication.packet_id)
            if known is not None:
                known.is_under_way, known.is_accepted = False, is_accepted
                if not is_accepted:
                    del self.incoming[publication.packet_id]
                    if self._session.is_kept:
                        self._gateway.commits.erase(key("in", self._session.client_id, publication.packet_id))
            self._confirm(publication.packet_id, reason, why, is_durable=is_accepted or not self._session.is_kept)
        elif publication.qos == 1:
            self._session.acknowledge(Kind.PUBACK, publication.packet_id, reason, why)

    def _confirm(self, number: int, reason: Reason, why: str, *, is_durable: bool) -> None:
        """PUBREC. A refused message's number may be used again: by then nothing may remember its old use."""
        link = self._session.link
        if is_durable:
            self._session.acknowledge(Kind.PUBREC, number, reason, why)
        else:
            self._gateway.commits.when_durable(
                lambda: (
                    self._session.acknowledge(Kind.PUBREC, number, reason, why) if self._session.link is link else None
                )
            )

    def settle(self, name: str, reason: Reason, why: str = "") -> None:
        """The broker has accepted the message of this name, or refused it."""
        publication = self._unconfirmed.pop(name, None)
        if publication is not None:
            self._settle(publication, reason, why)
            self._gateway.read_on(self._session)
