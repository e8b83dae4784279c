"""A client's subscriptions and the events that come for them (paper A, section 3; paper C's deadlines).

- An event is given to a subscription once: copies are known by the event's identity until none can come any more,
  whichever broker they come from.
- On time means that the application gets the event before its deadline, holding included. What is too late is dropped,
  or delivered and marked as late if the subscription takes late events.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from tidings.errors import InputError
from tidings.ordering import DEFAULT_IDLE_NS, Policy, Receiver, Stamp, SummaryMatcher
from tidings.protocol import wire
from tidings.protocol._effects import Deliver, Effect, EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol._seen import Seen
from tidings.protocol._settings import ClientSettings
from tidings.protocol.links._peers import Peer

__all__ = ["Arrival", "Receiving", "Subscription"]

_FORGETS: Final = 8
"""So often within `seen_grace_ns` a client forgets the events of which no copy can come any more."""


class Arrival(NamedTuple):
    """An event on its way to the application."""

    event: EventId
    content: wire.Content
    since_ns: int
    lifetime_ns: int
    arrived_ns: int


class Subscription(NamedTuple):
    """What the application asked for, and what restores its order."""

    entry: wire.Entry
    receiver: Receiver[Arrival] | None


class Receiving:
    """The receiving half of a client; `order_at` is told when a subscription's receiver has to be woken."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        counts: Counter[str],
        emit: Callable[[Effect], None],
        order_at: Callable[[str, int], None],
        forget_at: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._emit = emit
        self._order_at = order_at
        self._forget_at = forget_at
        self._subscriptions: dict[str, Subscription] = {}
        self._seen: Seen[tuple[str, str, int]] = Seen(settings.max_seen)

    @property
    def seen(self) -> int:
        """How many deliveries are remembered."""
        return len(self._seen)

    def add(self, entry: wire.Entry, policy: Policy | None) -> None:
        """A subscription, in the order of the policy."""
        receiver: Receiver[Arrival] | None = None
        if policy is not None:
            # An event may be under way for as long as it lives: only what is older can be a publisher's new beginning.
            oldest_ns = self._settings.max_lifetime_ns + entry.late_ns + 1
            policy = msgspec.structs.replace(policy, clock_step_ns=max(policy.clock_step_ns, oldest_ns))
            idle_ns = max(DEFAULT_IDLE_NS, 2 * oldest_ns)
            receiver = Receiver(policy, SummaryMatcher([parsed(entry.filter)]), idle_ns=idle_ns)
        self._subscriptions[entry.name] = Subscription(entry, receiver)

    def drop(self, name: str) -> None:
        """No more of them; what is held to restore order is dropped."""
        self._subscriptions.pop(name, None)

    def take(self, source: Peer, said: wire.Event, targets: Iterable[str], now_ns: int) -> None:
        """An event has come from a broker."""
        content = wire.decode_content(said.content)
        try:
            stamp = Stamp.decode(content.stamp)
        except InputError as error:
            raise PeerError("content", str(error)) from None
        id = (said.publisher, said.epoch, said.sequence)
        since_ns = now_ns - said.age_ns - source.meter.transit_ns(said.size_bytes)
        if self._settings.synchronised_clocks:
            since_ns = min(said.departure_ns, now_ns)
        lifetime_ns = min(said.lifetime_ns or self._settings.max_lifetime_ns, self._settings.max_lifetime_ns)
        arrival = Arrival(id, content, since_ns, lifetime_ns, now_ns)
        for name in targets:
            subscription = self._subscriptions.get(name)
            if subscription is None:
                self._counts["not subscribed"] += 1
            elif self.is_first(subscription, arrival, now_ns):
                if subscription.receiver is None:
                    self._hand_over(subscription, arrival, now_ns)
                else:
                    publisher = f"{said.epoch}/{said.publisher}"
                    ready = subscription.receiver.receive(publisher, arrival, stamp, now_ns)
                    self._deliver(subscription, ready, now_ns)

    def is_first(self, subscription: Subscription, arrival: Arrival, now_ns: int) -> bool:
        """Whether no copy has come to this subscription before; this one is remembered."""
        publisher, epoch, sequence = arrival.event
        group = (subscription.entry.name, publisher, epoch)
        if self._seen.has(group, sequence):
            self._counts["duplicates"] += 1
            return False
        late_ns = subscription.entry.late_ns
        expires_ns = max(arrival.since_ns + arrival.lifetime_ns + late_ns, now_ns) + self._settings.seen_grace_ns
        if self._seen.add(group, sequence, expires_ns):
            self._counts["seen forgotten"] += 1
        self._set_timer()
        return True

    def restore_order(self, name: str, now_ns: int) -> None:
        """The time has come to go on without what is missing."""
        subscription = self._subscriptions.get(name)
        if subscription is not None and subscription.receiver is not None:
            self._deliver(subscription, subscription.receiver.advance(now_ns), now_ns)

    def forget_old(self, now_ns: int) -> None:
        """Forget deliveries of which no copy can come any more."""
        for _ in self._seen.forget_old(now_ns):
            pass
        self._set_timer()

    def _set_timer(self) -> None:
        expiry_ns = self._seen.next_expiry_ns
        if expiry_ns is not None:  # nothing hangs on the moment: many are forgotten together
            self._forget_at(expiry_ns + self._settings.seen_grace_ns // _FORGETS)

    def _deliver(self, subscription: Subscription, deliveries: list[Any], now_ns: int) -> None:
        for delivery in deliveries:
            self._hand_over(subscription, delivery.item, now_ns)
        receiver = subscription.receiver
        due_ns = None if receiver is None else receiver.next_timer_ns
        if due_ns is not None:
            self._order_at(subscription.entry.name, due_ns)

    def _hand_over(self, subscription: Subscription, arrival: Arrival, now_ns: int) -> None:
        """To the application, if it is on time or late events are wanted."""
        entry = subscription.entry
        age_ns = now_ns - arrival.since_ns
        allowed_ns = arrival.lifetime_ns
        if entry.max_delay_ns is not None:
            allowed_ns = min(allowed_ns, entry.max_delay_ns)
        is_late = age_ns >= allowed_ns
        if is_late and age_ns >= allowed_ns + entry.late_ns:
            self._counts["too late"] += 1
            return
        content, held_ns = arrival.content, now_ns - arrival.arrived_ns
        self._emit(Deliver(entry.name, arrival.event, content.attributes, content.payload, age_ns, is_late, held_ns))
