"""A client's subscriptions and the events that come for them (paper A, section 3; paper C's deadlines).

- An event is given to a subscription once: copies are known by the event's identity until none can come any more,
  whichever broker they come from.
- On time means that the application gets the event before its deadline, holding included. What is too late is
  discarded, or delivered and marked as late if the subscription takes late events.
- An event of a subscription that this life has neither asked for nor ended is for a former life. In the first moments
  of a life (`settle_ns`) it is left with the broker, so that it comes again when the application has asked; later on
  nobody wants it.
- What became of each event is counted for the broker that it came from, who is told (`links/_peers`).
- No event is held for order until its deadline has passed: it leaves TIMER_SLACK_NS before, for timers may be late, and
  whatever stands before it in line leaves with it. One that is late already is held until nobody wants it any more.
"""

import math
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
from tidings.protocol.links._meter import DRIFT
from tidings.protocol.links._peers import Outcomes, Peer

__all__ = ["Arrival", "Receiving", "Subscription"]

TIMER_SLACK_NS: Final = 5_000_000
_FORGETS: Final = 8
"""So often within `seen_grace_ns` a client forgets the events of which no copy can come any more."""


class Arrival(NamedTuple):
    """An event on its way to the application."""

    event: EventId
    content: wire.Content
    departure_ns: int
    """By the clock of its publisher's home."""
    since_ns: int
    """The same by this client's."""
    lifetime_ns: int
    arrived_ns: int
    outcomes: Outcomes
    """Where it is counted what becomes of it."""
    error_ns: int | None
    """By how much the links that it came over may have made its age wrong; None: not known."""


class Subscription(NamedTuple):
    """What the application asked for, and what restores its order."""

    entry: wire.Entry
    receiver: Receiver[Arrival] | None

    def deadline_ns(self, arrival: Arrival) -> int:
        """Until when an event is on time."""
        allowed_ns = self.entry.max_delay_ns
        return arrival.since_ns + (arrival.lifetime_ns if allowed_ns is None else min(arrival.lifetime_ns, allowed_ns))


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
        self._ended: set[str] | None = set()  # subscriptions that this life has ended; None when it has settled
        self.given = False
        """Whether a broker that traces has to be told what the application was given."""

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

    def settle(self) -> None:
        """From now on nobody will ask for what a former life wanted."""
        self._ended = None

    def former(self, targets: Iterable[str]) -> list[str]:
        """Which of these subscriptions are a former life's, and may be asked for yet."""
        ended = self._ended
        if ended is None:
            return []
        return [name for name in targets if name not in self._subscriptions and name not in ended]

    def drop(self, name: str) -> None:
        """No more of them; what is held to restore order is dropped."""
        self._subscriptions.pop(name, None)
        if self._ended is not None:
            self._ended.add(name)

    def end(self) -> list[tuple[str, EventId]]:
        """What is held to restore order, by subscription; it is held no longer."""
        receivers = [(name, each.receiver) for name, each in self._subscriptions.items() if each.receiver is not None]
        return [(name, left.item.event) for name, receiver in receivers for left in receiver.flush()]

    def take(self, source: Peer, said: wire.Event, targets: Iterable[str], left_ns: int, now_ns: int) -> None:
        """An event has come from a broker, where its frame left at `left_ns` by this client's clock."""
        content = wire.decode_content(said.content, said.check)
        try:
            stamp = Stamp.decode(content.stamp)
        except InputError as error:
            raise PeerError("content", str(error)) from None
        id = (said.publisher, said.epoch, said.sequence)
        since_ns = min(said.departure_ns, now_ns) if self._settings.synchronised_clocks else left_ns - said.age_ns
        lifetime_ns = min(said.lifetime_ns or self._settings.max_lifetime_ns, self._settings.max_lifetime_ns)
        link_ns = None if self._settings.synchronised_clocks else source.meter.error_ns(now_ns)
        error_ns = None if link_ns is None or said.error_ns is None else said.error_ns + link_ns
        arrival = Arrival(id, content, said.departure_ns, since_ns, lifetime_ns, now_ns, source.outcomes, error_ns)
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

    def _put_in_order(
        self, subscription: Subscription, receiver: Receiver[Arrival], arrival: Arrival, stamp: Stamp, now_ns: int
    ) -> None:
        publisher = f"{arrival.event[1]}/{arrival.event[0]}"
        deadline_ns, late_ns = subscription.deadline_ns(arrival), subscription.entry.late_ns
        until_ns: int | None = (deadline_ns if now_ns < deadline_ns else deadline_ns + late_ns) - TIMER_SLACK_NS
        if now_ns >= deadline_ns + late_ns:
            until_ns = None  # it fills a gap, and is not worth that others leave earlier for it
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
            delivery.item.outcomes.of(subscription.entry.name).held -= 1
            self._hand_over(subscription, delivery.item, now_ns, out_of_order=delivery.late)
        receiver = subscription.receiver
        due_ns = None if receiver is None else receiver.next_timer_ns
        if due_ns is not None:
            self._order_at(subscription.entry.name, due_ns)

    def _hand_over(
        self, subscription: Subscription, arrival: Arrival, now_ns: int, *, out_of_order: bool = False
    ) -> None:
        """To the application, if it is on time or late events are wanted."""
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
        if error_ns is not None:  # whoever held it, or measured a link meanwhile, did so with a clock that drifts
            error_ns += math.ceil(DRIFT * (age_ns + error_ns))
        what = (entry.name, arrival.event, content.attributes, content.payload)
        self._emit(Deliver(*what, age_ns, is_late, held_ns, error_ns, out_of_order))
