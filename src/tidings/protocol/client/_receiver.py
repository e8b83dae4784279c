"""A client's subscriptions and the events for them (paper A, section 3; paper C's deadlines).

- An event is given to a subscription once. Duplicates from any broker are recognised by the event's identity until none
  can arrive any more.
- On time means that the application gets the event before its deadline, holding included. A late event is discarded, or
  delivered and marked as late if the subscription takes late events.
- An event of a subscription that this incarnation has neither made nor ended is for a former incarnation. In the first
  moments of an incarnation (`settle_ns`) it waits for the application to subscribe (`_early`); later it is unwanted.
- The outcome of each event is counted for the broker that it came from, and reported to it (`links/_peers`).
- No event is held for order beyond its deadline: it is delivered TIMER_SLACK_NS before, because timers may be late,
  together with earlier held events. An event that is already late is held until it is unwanted.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidings.errors import InputError
from tidings.ordering import Policy, Stamp
from tidings.protocol import wire
from tidings.protocol._effects import Deliver, DeliverTogether, Effect, EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol._seen import Seen
from tidings.protocol._settings import ClientSettings
from tidings.protocol.client._bundle import Bundle
from tidings.protocol.links._meter import DRIFT
from tidings.protocol.links._peers import Outcomes, Peer

if TYPE_CHECKING:
    from tidings.ordering import Receiver

__all__ = ["Arrival", "EventReceiver", "Subscription"]

TIMER_SLACK_NS: Final = 5_000_000
_FORGETS: Final = 8
"""How often within `seen_grace_ns` a client forgets events that no duplicate can arrive of any more."""


class Arrival(NamedTuple):
    """An event on its path to the application."""

    event: EventId
    content: wire.Content
    departure_ns: int
    """By the clock of its publisher's home."""
    since_ns: int
    """The same by this client's clock."""
    lifetime_ns: int
    arrived_ns: int
    outcomes: Outcomes
    """Where its outcome is counted."""
    error_ns: int | None
    """The possible error of its age, from the links that it came over; None if unknown."""


class Subscription(NamedTuple):
    """A request of the application, and the receiver that restores its order."""

    entry: wire.Entry
    receiver: "Receiver[Arrival] | None"

    def deadline_ns(self, arrival: Arrival) -> int:
        """The time until which an event is on time."""
        allowed_ns = self.entry.max_delay_ns
        return arrival.since_ns + (arrival.lifetime_ns if allowed_ns is None else min(arrival.lifetime_ns, allowed_ns))


class EventReceiver:
    """The receiving half of a client; `order_at` gets the time when a subscription's receiver has to be woken."""

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
        self._ended: set[str] | None = set()  # subscriptions that this incarnation has ended; None when it has settled
        self.given = False
        """Whether the application was given events that a tracing broker wants a report on."""

    @property
    def seen(self) -> int:
        """How many deliveries are remembered."""
        return len(self._seen)

    def add(self, entry: wire.Entry, policy: Policy | None) -> None:
        """Add a subscription, in the order of the policy."""
        self._subscriptions[entry.name] = Subscription(entry, None if policy is None else self._ordered(entry, policy))

    def _ordered(self, entry: wire.Entry, policy: Policy) -> "Receiver[Arrival]":
        # Compiled, and an extra: loaded only if an order is asked for.
        from tidings.ordering import DEFAULT_IDLE_NS, Receiver, SummaryMatcher

        # An event may be under way for its whole lifetime: if it seems to be older, a clock has jumped. A publisher
        # that restarts has another epoch, and so another name here: a lower number is always an earlier event.
        oldest_ns = self._settings.max_lifetime_ns + entry.late_ns + 1
        policy = msgspec.structs.replace(policy, clock_step_ns=max(policy.clock_step_ns, oldest_ns))
        idle_ns = max(DEFAULT_IDLE_NS, 2 * oldest_ns)
        # One that wants the latest events alone must not wait for earlier ones, which may have been replaced.
        expected = [] if entry.conflate else [parsed(entry.filter)]
        return Receiver(policy, SummaryMatcher(expected), idle_ns=idle_ns, restarts=False)

    def settle(self) -> None:
        """From now on no subscription of a former incarnation is repeated."""
        self._ended = None

    def former(self, targets: Iterable[str]) -> list[str]:
        """Those of these subscriptions that are a former incarnation's, and may still be made again."""
        ended = self._ended
        if ended is None:
            return []
        return [name for name in targets if name not in self._subscriptions and name not in ended]

    def drop(self, name: str) -> None:
        """End a subscription; events held to restore order are dropped."""
        self._subscriptions.pop(name, None)
        if self._ended is not None:
            self._ended.add(name)

    def end(self) -> list[tuple[str, EventId]]:
        """The events held to restore order, by subscription; they are held no longer."""
        receivers = [(name, each.receiver) for name, each in self._subscriptions.items() if each.receiver is not None]
        return [(name, left.item.event) for name, receiver in receivers for left in receiver.flush()]

    def take(
        self,
        source: Peer,
        event: wire.Event,
        targets: Iterable[str],
        left_ns: int,
        link_ns: int | None,
        now_ns: int,
    ) -> None:
        """Take an event from a broker, whose frame left at `left_ns` of this client's clock, give or take `link_ns`."""
        content = wire.decode_content(event.content, event.check)
        try:
            stamp = Stamp.decode(content.stamp)
        except InputError as error:
            raise PeerError("content", str(error)) from None
        id = (event.publisher, event.epoch, event.sequence)
        since_ns = min(event.departure_ns, now_ns) if self._settings.synchronised_clocks else left_ns - event.age_ns
        lifetime_ns = min(event.lifetime_ns or self._settings.max_lifetime_ns, self._settings.max_lifetime_ns)
        error_ns = None
        if not (self._settings.synchronised_clocks or link_ns is None or event.error_ns is None):
            error_ns = event.error_ns + link_ns
        arrival = Arrival(id, content, event.departure_ns, since_ns, lifetime_ns, now_ns, source.outcomes, error_ns)
        for name in targets:
            subscription = self._subscriptions.get(name)
            if subscription is None:
                self._counts["not subscribed"] += 1
            elif not self.is_first(subscription, arrival, now_ns):
                arrival.outcomes.of(name).again += 1
            elif subscription.receiver is None:
                self._hand_over(subscription, arrival, now_ns)
            else:
                self._put_in_order(subscription, subscription.receiver, arrival, stamp, now_ns)

    def take_together(self, outcomes: Outcomes, name: str, bundle: Bundle, now_ns: int) -> bool:
        """Take events all at once; whether that was possible: they are new and on time, and nobody wants order."""
        subscription = self._subscriptions.get(name)
        if subscription is None or subscription.receiver is not None or self._settings.synchronised_clocks:
            return False
        entry, many = subscription.entry, len(bundle.events)
        if now_ns >= bundle.ends_ns:
            return False
        if entry.max_delay_ns is not None and now_ns >= bundle.oldest_ns + entry.max_delay_ns:
            return False
        batch = bundle.seen(name, entry.late_ns + self._settings.seen_grace_ns)
        if batch is None or not self._seen.has_room(many) or self._seen.has_any(batch):
            return False
        self._seen.add_all(batch)
        self._set_timer()
        outcomes.of(name).note_on_time(many, bundle.ages(now_ns))
        self._emit(DeliverTogether(name, bundle))
        return True

    def is_first(self, subscription: Subscription, arrival: Arrival, now_ns: int) -> bool:
        """Whether no duplicate has come to this subscription before; this one is remembered."""
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

    def _put_in_order(
        self, subscription: Subscription, receiver: "Receiver[Arrival]", arrival: Arrival, stamp: Stamp, now_ns: int
    ) -> None:
        publisher = f"{arrival.event[1]}/{arrival.event[0]}"
        deadline_ns, late_ns = subscription.deadline_ns(arrival), subscription.entry.late_ns
        until_ns: int | None = (deadline_ns if now_ns < deadline_ns else deadline_ns + late_ns) - TIMER_SLACK_NS
        if now_ns >= deadline_ns + late_ns:
            until_ns = None  # it only fills a gap: others need not be delivered earlier for it
        before = receiver.counts(publisher)
        violations = 0 if before is None else before.violations
        tally = arrival.outcomes.of(subscription.entry.name)
        tally.held += 1
        ready = receiver.receive(publisher, arrival, stamp, now_ns, until_ns=until_ns)
        after = receiver.counts(publisher)
        if after is not None and after.violations > violations:
            self._counts["out of order"] += 1
            if receiver.policy.late == "drop":
                tally.held -= 1
                tally.discarded += 1
            else:
                tally.out_of_order += 1
        self._deliver(subscription, ready, now_ns)

    def restore_order(self, name: str, now_ns: int) -> None:
        """The time has come to deliver without the missing events."""
        subscription = self._subscriptions.get(name)
        if subscription is not None and subscription.receiver is not None:
            self._deliver(subscription, subscription.receiver.advance(now_ns), now_ns)

    def forget_old(self, now_ns: int) -> None:
        """Forget deliveries of which no duplicate can arrive any more."""
        for _ in self._seen.forget_old(now_ns):
            pass
        self._set_timer()

    def _set_timer(self) -> None:
        expiry_ns = self._seen.next_expiry_ns
        if expiry_ns is not None:  # the time is not critical: many are forgotten together
            self._forget_at(expiry_ns + self._settings.seen_grace_ns // _FORGETS)

    def _deliver(self, subscription: Subscription, deliveries: list[Any], now_ns: int) -> None:
        for delivery in deliveries:
            delivery.item.outcomes.of(subscription.entry.name).held -= 1
            self._hand_over(subscription, delivery.item, now_ns, out_of_order=delivery.late)
        receiver = subscription.receiver
        due_ns = None if receiver is None else receiver.next_timer_ns
        if due_ns is not None:
            self._order_at(subscription.entry.name, due_ns)

    def _hand_over(
        self, subscription: Subscription, arrival: Arrival, now_ns: int, *, out_of_order: bool = False
    ) -> None:
        """Give an event to the application, if it is on time or late events are wanted."""
        entry = subscription.entry
        tally = arrival.outcomes.of(entry.name)
        age_ns = now_ns - arrival.since_ns
        by_ns = now_ns - subscription.deadline_ns(arrival)
        is_late = by_ns >= 0
        if is_late and by_ns >= entry.late_ns:
            self._counts["too late"] += 1
            tally.discarded += 1
            return
        if is_late:
            tally.late += 1
        else:
            tally.on_time += 1
        content, held_ns, error_ns = arrival.content, now_ns - arrival.arrived_ns, arrival.error_ns
        tally.note(age_ns, held_ns)
        traced = arrival.outcomes.is_traced
        if traced is not None and traced(arrival.event):
            ages_ns = (arrival.departure_ns, age_ns - held_ns, age_ns)
            arrival.outcomes.given.append(wire.Handover(*arrival.event, entry.name, *ages_ns))
            self.given = True
        if error_ns is not None:  # it was held, and links were measured, with drifting clocks
            error_ns += math.ceil(DRIFT * (age_ns + error_ns))
        what = (entry.name, arrival.event, content.attributes, content.payload)
        self._emit(Deliver(*what, age_ns, is_late, held_ns, error_ns, out_of_order, arrival.lifetime_ns))
