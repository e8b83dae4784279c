"""One MQTT session: its client, connected or away, its subscriptions, and the broker's answers.

Messages from the client are in `_publications.py`, those to it in `_deliveries.py`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.errors import TidingsError
from tidings.model.filters import Filter
from tidings.model.policies import NO_ORDERING
from tidings.mqtt._commits import Kept
from tidings.mqtt._deliveries import MOST_CONFLATED, Deliveries
from tidings.mqtt._link import Link
from tidings.mqtt._mapping import reason_of_code
from tidings.mqtt._member import Member
from tidings.mqtt._packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    PacketError,
    Ping,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsubscribe,
    Wanted,
    Will,
)
from tidings.mqtt._publications import Publications
from tidings.mqtt._records import (
    GIVEN,
    NEVER,
    SessionRecord,
    Subscription,
    key,
    pack,
)
from tidings.mqtt._topics import name_of, split_shared, topic_filter_sql
from tidings.ordering import Policy
from tidings.protocol import Deliver, DeliverTogether, Failed, attributes_of_key, late_ns_of
from tidings.protocol.wire import MAX_FILTER

if TYPE_CHECKING:
    from tidings.mqtt._gateway import Gateway

__all__ = ["Session"]

MAX_SUBSCRIBED: Final = 10_000
_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000
_REPORTS: Final = frozenset({"age", "late", "deadline"})


class _Request(msgspec.Struct):
    """A SUBSCRIBE or UNSUBSCRIBE with the results of its topic filters."""

    kind: Kind
    packet_id: int
    reasons: list[int | None]
    retained: list[tuple[Subscription, bool]]
    why: str = ""


class Session:
    """One session; its client may be connected or away."""

    def __init__(self, client_id: str, gateway: "Gateway") -> None:
        self.client_id = client_id
        self.expiry_s = 0
        self.link: Link | None = None
        self.member: Member | None = None
        self.will: Will | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.publications = Publications(self, gateway)
        self.deliveries = Deliveries(self, gateway)
        self.is_ending = False
        self.farewell_ns = 0
        """Until then the broker may confirm the last requests of a client that is away."""
        self._gateway = gateway
        self._by_name: dict[str, Subscription] = {}
        self._asked: dict[tuple[str, str], list[tuple[_Request, int]]] = {}

    # -- coming and going ------------------------------------------------------------------------------------------

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its connection."""
        return self.expiry_s > 0

    @property
    def is_settled(self) -> bool:
        """Whether the broker has nothing left to confirm."""
        return self.publications.is_settled and not self._asked

    def attach(
        self,
        link: Link,
        member: Member,
        connect: Connect,
        *,
        is_present: bool,
        is_durable: bool,
        more: dict[str, Any],
    ) -> None:
        """The client is connected. What CONNACK says about the session is durable before it is sent; until then, events
        for the client wait at the broker."""
        self.link, self.member, self.will = link, member, connect.will
        self._asked = {}
        self.publications.restart()
        self.deliveries.restart(_reports(dict(connect.properties.get("user", ()))))
        for subscription in self.subscriptions.values():
            self._ask(subscription)
        link.is_welcome = True
        self.store()
        if is_durable:
            self._gateway.gate(link)
        properties = {name: value for name, value in more.items() if value is not None}
        link.send(Connack(session_present=is_present, properties=properties if link.version == V5 else {}))
        if link.held:
            self._gateway.commits.when_durable(lambda: self._begin(link))
        else:
            self._begin(link)

    def _begin(self, link: Link) -> None:
        """Messages may be sent to the client."""
        if self.link is link:
            self.deliveries.send_again(self._gateway.now_ns)

    def detach(self) -> None:
        """The client is gone."""
        self.link = None
        self.deliveries.pause_if_full()

    def store(self) -> None:
        """Store the session, if it is kept."""
        ends_ns = None
        if self.link is None and self.expiry_s != NEVER:
            ends_ns = self._gateway.now_ns + self.expiry_s * _SECOND
        if self.is_kept:
            record = SessionRecord(
                client_id=self.client_id,
                expiry_s=self.expiry_s,
                ends_ns=ends_ns,
                subscriptions=tuple(self.subscriptions.values()),
            )
            self._gateway.commits.store(key("session", self.client_id), pack(record))

    def restore(self, kept: Kept) -> None:
        """Restore the session and its messages from the store."""
        record = kept.record
        self.expiry_s = record.expiry_s
        for subscription in record.subscriptions:
            self.subscriptions[subscription.topic_filter] = subscription
            self._by_name[name_of(subscription.topic_filter)] = subscription
        self.publications.incoming = {known.packet_id: known for known in kept.incoming}
        self.deliveries.restore(kept.out, kept.given)

    def erase(self) -> None:
        """Erase the session."""
        erase = self._gateway.commits.erase
        erase(key("session", self.client_id))
        for number in self.deliveries.out:
            erase(key("out", self.client_id, number))
        for number in self.publications.incoming:
            erase(key("in", self.client_id, number))
        for place in self.deliveries.given.values():
            erase(key("given", self.client_id, place % GIVEN))

    def forget_former(self, topic_filter: str) -> None:
        """End a subscription of the session that this one replaces."""
        if topic_filter not in self.subscriptions:
            self.request("unsubscribe", name_of(topic_filter), None)

    def take_back(self) -> None:
        """End all subscriptions and advertisements at the broker."""
        if self.member is None:
            return
        self.is_ending = True
        for topic_filter in list(self.subscriptions):
            self.request("unsubscribe", name_of(topic_filter), None)
        for name, is_allowed in self.publications.advertised.items():
            if is_allowed:
                self.request("unadvertise", name, None)

    # -- what the client sends -------------------------------------------------------------------------------------

    def handle(self, packet: Packet) -> None:
        """A packet of the client; PacketError if it may not send it."""
        match packet:
            case Publish():
                self.publications.take(packet)
            case Ack():
                self._on_ack(packet)
            case Subscribe():
                self._on_subscribe(packet)
            case Unsubscribe():
                self._on_unsubscribe(packet)
            case Ping(Kind.PINGREQ):
                self._send(Ping(Kind.PINGRESP))
            case Disconnect():
                self._on_disconnect(packet)
            case Auth():
                raise PacketError(Reason.PROTOCOL_ERROR, "AUTH without an agreed authentication method")
            case _:
                raise PacketError(Reason.PROTOCOL_ERROR, f"a client does not send {type(packet).__name__}")

    def _on_disconnect(self, packet: Disconnect) -> None:
        expiry_s = packet.properties.get("session_expiry_s")
        if expiry_s is not None:
            if expiry_s and not self.expiry_s:  # [MQTT-3.14.2-2]
                raise PacketError(Reason.PROTOCOL_ERROR, "a session that ends with its connection cannot be extended")
            if not expiry_s and self.is_kept:
                self.erase()
            self.expiry_s = self._gateway.longest(expiry_s)
        if packet.reason == Reason.SUCCESS:  # [MQTT-3.1.2-10]
            self.will = None
        assert self.link is not None
        self._gateway.close(self.link, "the client has disconnected")

    def publish_will(self) -> None:
        """The client was lost without DISCONNECT."""
        will, self.will = self.will, None
        if will is not None and self.member is not None and not self.member.is_over:
            self.publications.publish(will)

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def _on_ack(self, packet: Ack) -> None:
        match packet.kind:
            case Kind.PUBREL:
                self.publications.release(packet)
            case Kind.PUBACK:
                self.deliveries.end((packet.packet_id,))
            case Kind.PUBREC:
                self.deliveries.receive(packet)
            case Kind.PUBCOMP:
                self.deliveries.complete(packet.packet_id)

    def acknowledge(self, kind: Kind, number: int, reason: Reason = Reason.SUCCESS, why: str = "") -> None:
        explains = why and self.link is not None and self.link.explains
        packet = Ack(kind, number, reason, {"reason_string": why[:1000]} if explains else {})
        if not self._send(packet) and why:
            self._send(Ack(kind, number, reason))

    def _send(self, packet: Packet) -> bool:
        return self.link is not None and self.link.send(packet)

    # -- subscriptions ---------------------------------------------------------------------------------------------

    def _on_subscribe(self, packet: Subscribe) -> None:
        request = _Request(Kind.SUBACK, packet.packet_id, [None] * len(packet.wanted), [])
        for place, wanted in enumerate(packet.wanted):
            try:
                subscription = self._read(wanted, packet)
                if len(self.subscriptions) >= MAX_SUBSCRIBED and wanted.topic_filter not in self.subscriptions:
                    raise PacketError(Reason.QUOTA_EXCEEDED, f"at most {MAX_SUBSCRIBED} subscriptions")
                is_new = wanted.topic_filter not in self.subscriptions
                self._ask(subscription)
            except PacketError as error:
                if error.reason in (Reason.PROTOCOL_ERROR, Reason.MALFORMED_PACKET):
                    raise
                request.reasons[place], request.why = error.reason, str(error)
                continue
            except TidingsError as error:
                reason = reason_of_code(getattr(error, "code", ""))
                request.reasons[place], request.why = reason, str(error)
                continue
            self.subscriptions[subscription.topic_filter] = subscription
            self._asked.setdefault(("subscribe", name_of(subscription.topic_filter)), []).append((request, place))
            if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and is_new):
                request.retained.append((subscription, is_new))
        self._answer(request)

    def _read(self, wanted: Wanted, packet: Subscribe) -> Subscription:
        """A subscription by its topic filter, its options and the user properties of the packet."""
        shared = split_shared(wanted.topic_filter)
        if shared is None:
            raise PacketError(Reason.TOPIC_FILTER_INVALID, f"{wanted.topic_filter[:100]!r} is not a topic filter")
        if shared.group is not None and wanted.no_local:  # [MQTT-3.8.3-4]
            raise PacketError(Reason.PROTOCOL_ERROR, "a shared subscription with No Local")
        terms = dict(packet.properties.get("user", ()))
        filter = terms.get("filter", "")
        if filter:
            Filter.parse(filter)  # by itself: `a) OR (b` is none
        order = terms.get("order", NO_ORDERING) or NO_ORDERING
        if order != NO_ORDERING:
            Policy.parse(order)
        return Subscription(
            topic_filter=wanted.topic_filter,
            pattern=shared.topic_filter,
            group=shared.group,
            qos=wanted.qos,
            no_local=wanted.no_local,
            retain_as_published=wanted.retain_as_published,
            identifier=next(iter(packet.properties.get("subscription_ids", ())), 0),
            filter=filter,
            max_delay_ns=round(_number(terms, "max-delay-ms", 1e12) * _MS) if "max-delay-ms" in terms else None,
            price=_number(terms, "price", 1e300) if "price" in terms else 1.0,
            late_ns=late_ns_of(
                terms.get("late"), round(_number(terms, "late-ms", 1e12) * _MS) if "late-ms" in terms else None
            ),
            order=None if order == NO_ORDERING else order,
            report=_reports(terms),
            conflate=attributes_of_key(terms["conflate"]) if terms.get("conflate") else (),
        )

    def _ask(self, subscription: Subscription) -> None:
        """Subscribe at the broker."""
        sql = topic_filter_sql(subscription.pattern)
        if subscription.filter:
            sql = f"{sql} AND ({subscription.filter})"
        if len(sql) > MAX_FILTER:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"topic filter and filter have more than {MAX_FILTER} characters")
        assert self.member is not None
        if subscription.conflate:
            self.deliveries.most = min(self.deliveries.most, MOST_CONFLATED)
        name = name_of(subscription.topic_filter)
        policy = None if subscription.order is None else Policy.parse(subscription.order)
        self.member.call(
            self.member.machine.subscribe,
            self._gateway.now_ns,
            name,
            sql,
            policy=policy,
            max_delay_ns=subscription.max_delay_ns,
            price=subscription.price,
            late_ns=subscription.late_ns,
            conflate=subscription.conflate,
        )
        self._by_name[name] = subscription
        self._gateway.stir(self)

    def _on_unsubscribe(self, packet: Unsubscribe) -> None:
        request = _Request(Kind.UNSUBACK, packet.packet_id, [None] * len(packet.topic_filters), [])
        for place, topic_filter in enumerate(packet.topic_filters):
            if self.subscriptions.pop(topic_filter, None) is None:
                is_valid = split_shared(topic_filter) is not None
                request.reasons[place] = Reason.NO_SUBSCRIPTION_EXISTED if is_valid else Reason.TOPIC_FILTER_INVALID
                continue
            name = name_of(topic_filter)
            self._by_name.pop(name, None)
            self._asked.setdefault(("unsubscribe", name), []).append((request, place))
            self.request("unsubscribe", name, None)
        self._answer(request)

    def request(self, kind: str, name: str, what: str | None) -> None:
        assert self.member is not None
        if self.member.is_over:
            return
        machine, now_ns = self.member.machine, self._gateway.now_ns
        do: dict[str, Callable[..., Any]] = {
            "advertise": machine.advertise,
            "unadvertise": machine.unadvertise,
            "unsubscribe": machine.unsubscribe,
        }
        if self.is_ending:
            self._asked.setdefault((kind, name), [])
        self.member.call(do[kind], now_ns, *((name,) if what is None else (name, what)))
        self._gateway.stir(self)

    def _answer(self, request: _Request) -> None:
        """Answer once all of it is decided and, for a session that is kept, durable: it is true after a crash, too."""
        link = self.link
        if link is None or any(reason is None for reason in request.reasons):
            return
        if not self.is_kept:
            self._answer_now(request, link)
            return
        self.store()
        self._gateway.commits.when_durable(lambda: self._answer_now(request, link))

    def _answer_now(self, request: _Request, link: Link) -> None:
        """SUBACK or UNSUBACK, in the order asked [MQTT-3.8.4-6], and what was retained."""
        if self.link is not link:
            return
        reasons = tuple(int(reason or 0) for reason in request.reasons)
        if link.version != V5:
            reasons = tuple(0x80 if reason >= Reason.UNSPECIFIED else reason for reason in reasons)
        explains = bool(request.why) and link.explains
        properties = {"reason_string": request.why[:1000]} if explains else {}
        if not self._send(Suback(request.kind, request.packet_id, reasons, properties)):
            self._send(Suback(request.kind, request.packet_id, reasons))
        if request.kind is Kind.SUBACK:
            for subscription, _ in request.retained:
                if self._by_name.get(name_of(subscription.topic_filter)) is subscription and not subscription.group:
                    self._give_retained(subscription)

    def _give_retained(self, subscription: Subscription) -> None:
        wanted = Filter.parse(subscription.filter) if subscription.filter else None
        for message, attributes in self._gateway.retained.matching(subscription.pattern, self._gateway.now_ns):
            if wanted is None or wanted.matches(attributes):
                self.deliveries.give(subscription, message, retain=True, is_late=False)

    # -- what the broker does --------------------------------------------------------------------------------------

    def on_admitted(self) -> None:
        """The pipe was cut and is whole again."""

    def on_refused(self, code: str, why: str) -> None:
        """The broker wants no more of this client."""
        self._gateway.revoke(self, code, why)

    def on_confirmed(self, kind: str, name: str) -> None:
        """The broker has done what was asked."""
        if kind == "publish":
            self.publications.settle(name, Reason.SUCCESS)
        elif kind == "advertise":
            self.publications.advertised[name] = True
            self._gateway.stir(self)
        else:
            self._decide(kind, name, None, "")
        self._gateway.check_left(self)

    def on_failed(self, effect: Failed) -> None:
        """The broker does not do it."""
        reason = reason_of_code(effect.code)
        if effect.kind == "publish":
            self.publications.settle(effect.name, reason, effect.message)
        elif effect.kind == "advertise":
            self.publications.advertised[effect.name] = False
            self._gateway.stir(self)
        else:
            if effect.kind == "subscribe":
                subscription = self._by_name.pop(effect.name, None)
                if subscription is not None:
                    self.subscriptions.pop(subscription.topic_filter, None)
            self._decide(effect.kind, effect.name, reason, effect.message)
        self._gateway.check_left(self)

    def _decide(self, kind: str, name: str, reason: Reason | None, why: str) -> None:
        subscription = self._by_name.get(name)
        for request, place in self._asked.pop((kind, name), ()):
            granted = subscription.qos if kind == "subscribe" and subscription is not None else 0
            request.reasons[place] = granted if reason is None else reason
            request.why = why or request.why
            self._answer(request)

    def on_deliver_together(self, effect: DeliverTogether) -> None:
        """Events for one of the subscriptions."""
        subscription, link, bundle = self._by_name.get(effect.subscription), self.link, effect.bundle
        if subscription is None:
            return
        is_special = subscription.group is not None or (subscription.no_local and self.client_id in bundle.publishers)
        shares = None if is_special or link is None else self._gateway.shares_of(bundle, subscription, self.deliveries)
        if shares is None or link is None or shares.has_qos_2:
            for event, content, since_ns, lifetime_ns in bundle.events:
                what = (effect.subscription, event, content.attributes, content.payload)
                self.on_deliver(Deliver(*what, self._gateway.now_ns - since_ns, False, lifetime_ns=lifetime_ns))
        elif shares.is_qos_0 and link.is_plain:
            link.send_plain((shares.packets(link.version, self._gateway.now_ns),))
        else:
            self.deliveries.give_all(shares.copies)

    def on_deliver(self, effect: Deliver) -> None:
        """An event for one of the subscriptions."""
        subscription = self._by_name.get(effect.subscription)
        if subscription is None:
            return
        message = self._gateway.message_of(effect)
        if message is None:
            return
        if subscription.no_local and effect.event[0] == self.client_id:  # [MQTT-3.8.3-3]
            return
        if subscription.group is not None and not self._gateway.is_chosen(self, subscription, effect.event):
            return
        identity = ""
        if min(message.qos, subscription.qos) == 2:
            identity = message.identity or "/".join(map(str, effect.event))
            identity = f"{identity} {subscription.topic_filter}"
            if identity in self.deliveries.given:
                if self.member is not None:  # the broker may forget it when the first one is durable
                    self.member.gate = max(self.member.gate, self._gateway.commits.sync())
                return
        retain = message.retain and subscription.retain_as_published  # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
        self.deliveries.give(subscription, message, retain=retain, is_late=effect.late, identity=identity)


def _number(properties: Mapping[str, str], name: str, most: float) -> float:
    try:
        value = float(properties[name])
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise PacketError(
            Reason.IMPLEMENTATION_SPECIFIC,
            f"user property {name!r} is {properties[name][:40]!r}: give a number from 0 on",
        )
    return value


def _reports(properties: Mapping[str, str]) -> tuple[str, ...]:
    """What a client wants to know of each message: the user property `report`."""
    wanted = {word.strip() for word in properties.get("report", "").split(",")}
    return tuple(sorted(_REPORTS if "all" in wanted else wanted & _REPORTS))
