"""What clients are given of a message: one copy for all clients that are given it alike.

A copy is encoded once for each version of MQTT; of a packet with QoS 1 or 2 only the packet identifier differs from
client to client. What changes with time (expiry, age, what is left) is encoded again when time has passed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidings.mqtt._codec import encode_publish
from tidings.mqtt._mapping import Message
from tidings.mqtt._packets import V5, Publish
from tidings.mqtt._records import Given, Outgoing, Subscription

__all__ = ["Copy", "Shares", "copy_of", "restored"]

_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000


class Copy(Given, kw_only=True):
    """A message as some clients are given it."""

    encoded: dict[int, tuple[int, tuple[bytes, bytes]]] = msgspec.field(default_factory=dict)
    """By version: when it was encoded, and the packet before and after its identifier."""

    def is_over(self, now_ns: int) -> bool:
        """Whether it is not wanted any more."""
        return self.ends_ns is not None and self.ends_ns <= now_ns

    @property
    def is_timed(self) -> bool:
        """Whether its packet changes with time."""
        return self.expires_ns is not None or bool(self.report)

    def packet(self, version: int, now_ns: int) -> tuple[bytes, bytes]:
        """Its PUBLISH at this time, before and after the packet identifier."""
        known = self.encoded.get(version)
        if known is None or (known[0] != now_ns and version == V5 and self.is_timed):
            known = self.encoded[version] = (now_ns, encode_publish(self.publish(version, now_ns), version))
        return known[1]

    def publish(self, version: int, now_ns: int, number: int = 0, *, dup: bool = False) -> Publish:
        """The same as a value."""
        properties: Mapping[str, Any] = {}
        if version == V5:
            properties = self.properties
            if self.expires_ns is not None:  # [MQTT-3.3.2-6]
                properties = {**properties, "message_expiry_s": max(self.expires_ns - now_ns, 0) // _SECOND or 1}
            if self.report:
                properties = {**properties, "user": (*properties.get("user", ()), *self._facts(now_ns))}
        return Publish(
            topic=self.topic,
            payload=self.payload,
            qos=self.qos,
            retain=self.retain,
            dup=dup,
            packet_id=number,
            properties=properties,
        )

    def _facts(self, now_ns: int) -> list[tuple[str, str]]:
        found = []
        if "age" in self.report:
            found.append(("age-ms", f"{(now_ns - self.since_ns) / _MS:.3f}"))
        is_late = self.is_late or (self.deadline_ns is not None and now_ns >= self.deadline_ns)
        if "late" in self.report:
            found.append(("late", "true" if is_late else "false"))
        if "deadline" in self.report and self.deadline_ns is not None:
            found.append(("deadline-left-ms", f"{(self.deadline_ns - now_ns) / _MS:.3f}"))
        return found

    def record(self, number: int) -> Outgoing:
        """The record of a client that has not confirmed it."""
        return Outgoing(
            packet_id=number,
            qos=self.qos,
            topic=self.topic,
            payload=self.payload,
            retain=self.retain,
            properties=self.properties,
            since_ns=self.since_ns,
            expires_ns=self.expires_ns,
            deadline_ns=self.deadline_ns,
            ends_ns=self.ends_ns,
            report=self.report,
            is_late=self.is_late,
        )


class Shares:
    """Messages that came together, as the clients of equal subscriptions are given them."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self.copies = copies
        self.has_qos_2 = any(copy.qos == 2 for copy in copies)
        self.is_qos_0 = not any(copy.qos for copy in copies)
        self._is_timed = any(copy.is_timed for copy in copies)
        self._packets: dict[int, tuple[int, bytes]] = {}

    def packets(self, version: int, now_ns: int) -> bytes:
        """All of them, if they are of QoS 0."""
        known = self._packets.get(version)
        if known is None or (self._is_timed and known[0] != now_ns):
            data = b"".join([copy.packet(version, now_ns)[0] for copy in self.copies])
            known = self._packets[version] = (now_ns, data)
        return known[1]


def copy_of(
    message: Message, subscription: Subscription, report: tuple[str, ...], *, retain: bool, is_late: bool
) -> Copy:
    """What the clients of equal subscriptions are given; `report` is what a client wants to know of each message."""
    qos = min(message.qos, subscription.qos)
    report = subscription.report or report
    key = (qos, retain, is_late, subscription.identifier, subscription.max_delay_ns, subscription.late_ns, report)
    copy: Copy | None = message.copies.get(key)
    if copy is None:
        properties = message.properties
        if subscription.identifier:
            properties = {**properties, "subscription_ids": (subscription.identifier,)}
        deadline_ns = message.expires_ns
        if subscription.max_delay_ns is not None:
            own_ns = message.since_ns + subscription.max_delay_ns
            deadline_ns = own_ns if deadline_ns is None else min(deadline_ns, own_ns)
        # A retained message may be as old as it is: only its expiry counts.
        ends = (deadline_ns, message.ends_ns) if message.ends_ns is not None else (message.expires_ns,)
        known = [each for each in ends if each is not None]
        copy = message.copies[key] = Copy(
            topic=message.topic,
            payload=message.payload,
            qos=qos,
            retain=retain,
            properties=properties,
            since_ns=message.since_ns,
            expires_ns=message.expires_ns,
            deadline_ns=deadline_ns,
            ends_ns=min(known) + subscription.late_ns if known else None,
            report=report,
            is_late=is_late,
        )
    return copy


def restored(record: Outgoing) -> Copy | None:
    """The copy of a stored record; None if the client has released it."""
    if record.is_released:
        return None
    return Copy(**{name: getattr(record, name) for name in Given.__struct_fields__})
