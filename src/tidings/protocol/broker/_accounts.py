"""The outcomes of the events of every subscription at this broker: accounts that balance.

For each subscription, since this incarnation of the broker began or since the client subscribed:

    matched = on time + late + dropped + replaced + lost + under way

Each figure has its source:

- *matched*: the home broker of the publisher, when it accepts an event. It reports to the subscriber's home in ledgers
  (`_ledgers`), by period: every event carries the period of its acceptance, so arrivals are compared with acceptances.
  Events without a period, because another broker or another incarnation may have accepted them before, count when they
  are seen.
- *on time, late*, and what the client itself discards, recognises as a duplicate or still holds: the client, with its
  acknowledgements and its answers to pings.
- *dropped*: the broker that drops. If that is another broker, it reports the drop in its ledgers.
- *replaced*: the subscriber's home, when a newer event of the same key takes the place of one that waits there
  (`_conflation`). The subscription wants it so; the on-time share is that of the others.
- *lost*: events that were accepted in a period, and had neither arrived nor been dropped when the last event of the
  period expired; and events that a client held for order when its incarnation ended.
- *under way*: the rest: queued, in transit, or held by the client.

Arrivals are counted by course (`Course.ledger`), with one addition per event however many subscriptions it matches, and
spread over the subscriptions when an account is read or a report is due. The cost then does not depend on the number of
accounts: only those that have changed are visited.

Events are late together, so the uncertainty of a share shows in how much it differs from one time to another. An
account counts settled and on-time events in at most BATCHES_MOST batches of time, of equal length, which doubles when
there are too many (`Batches`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidings.protocol._names import is_address, qualified_name, split_qualified
from tidings.protocol._settings import SECOND, BrokerSettings
from tidings.protocol.broker._account import Account, Balance, Period
from tidings.protocol.broker._courses import Course
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._interests import LocalInterests
from tidings.protocol.broker._ledgers import REPORT_NS, UNAUDITED, Ledgers
from tidings.protocol.wire import Ledger, Outcome

__all__ = ["Accounts"]


_GRACE_NS: Final = 5 * SECOND
"""Brokers may report what they dropped of a period for this long after its last event has expired."""
_SLOT_NS: Final = 20 * SECOND


class Accounts:
    """The accounts of one broker, by qualified name; `wake_at` asks for a `tick`."""

    def __init__(
        self,
        settings: BrokerSettings,
        ledgers: Ledgers,
        *,
        local: LocalInterests,
        now_ns: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self._name = settings.name
        self._keep_ns = settings.max_lifetime_ns + 2 * settings.refresh_ns
        self._local = local
        self._ledgers = ledgers
        self._now_ns = now_ns
        self._wake_at = wake_at
        self._epoch = 0
        self._accounts: dict[str, Account] = {}
        self._stirred: list[Course] = []  # courses with something in their ledgers
        self.lacking: dict[str, Account] = {}
        """Accounts with events that are not on time, or under way, as of the last look; the most recent last."""
        self._touched: dict[str, Account] = {}  # changed since the last look
        self._unslotted: dict[str, Account] = {}  # changed since the slot began
        self._periods: dict[str, dict[int, Period]] = {}  # by the broker that accepted, and the period's number
        self._closed: dict[str, int] = {}  # by broker: the last period that is closed
        self._slot = 0
        self._slot_ends_ns = 0
        self._whole = Account("", 0)  # all subscriptions that were ever here

    def __len__(self) -> int:
        return len(self._accounts)

    def begin(self, epoch: int) -> None:
        """Begin a new epoch."""
        self._epoch = epoch
        self._ledgers.begin(epoch)
        self._slot_ends_ns = self._now_ns() + _SLOT_NS
        self._wake_at(self._slot_ends_ns)

    # -- events --------------------------------------------------------------------------------------------------

    def period(self) -> int:
        """The period in which events are accepted now."""
        if self._ledgers.is_outdated:
            self.look()
            self._ledgers.renew()
        return self._ledgers.period

    def prepare(self) -> None:
        """Subscriptions elsewhere may end: count the events accepted for them first. `Ledgers.end` has to follow."""
        self._spread()

    def accepted(self, course: Course, period: int) -> None:
        """Count an event of this course, for subscribers elsewhere, that was accepted here in this period."""
        self._note(course, ("", period), 1)

    def arrived(self, course: Course, root: str, period: int, many: int = 1) -> None:
        """Count events of this course that have arrived for all clients here that it names."""
        self._note(course, (root, period), many)

    def arrived_in(self, course: Course, before: str, root: str, period: int) -> None:
        """Move an event that has arrived, and belonged to no period, into this period of another broker."""
        self._note(course, (before, UNAUDITED), -1)
        self._note(course, (root, period), 1)

    def _note(self, course: Course, key: tuple[str, int], many: int) -> None:
        ledger = course.ledger
        if not ledger:
            if not self._stirred:
                self._wake_at(self._now_ns() + REPORT_NS)
            self._stirred.append(course)
        ledger[key] = ledger.get(key, 0) + many

    def arrived_for(self, client: str, names: Iterable[str], many: int = 1) -> None:
        """Count an event that has arrived for one client alone; -1: it has not, after all."""
        for name in names:
            account = self._touch(qualified_name(client, name))
            if account is not None:
                account.arrived += many

    def dropped_in_transit(self, held: Held, targets: Iterable[str], many: int = 1) -> None:
        """Count an event for other brokers that is dropped here; -1: it had been delivered, after all."""
        self._ledgers.dropped(held, targets, many)

    def dropped(self, held: Held, client: str, names: Iterable[str], many: int = 1, *, was_sent: bool = False) -> None:
        """Count an event for a client that is dropped here; -1: the client had got it after all.

        An event from the store counts if the client reports it: the client may have got it from the last incarnation.
        """
        if client in held.restored_for:
            if was_sent:
                self.arrived_for(client, names, -many)
        else:
            self.dropped_here(client, names, many)

    def dropped_here(self, client: str, names: Iterable[str], many: int) -> None:
        """Count events for a client, not from the store, that are dropped here."""
        for name in names:
            account = self._touch(qualified_name(client, name))
            if account is not None:
                account.drop(self._name, many)

    def replaced(self, held: Held, client: str, names: Iterable[str], many: int = 1, *, was_sent: bool = False) -> None:
        """Count an event that a newer one has replaced for a client; -1: the client had got it after all.

        Of events from the store the same holds as for dropped ones.
        """
        if client in held.restored_for:
            if was_sent:
                self.arrived_for(client, names, -many)
            return
        for name in names:
            account = self._touch(qualified_name(client, name))
            if account is not None:
                account.replaced += many

    def _touch(self, qualified: str) -> Account | None:
        """The account of a subscription that something happens to; None if the subscription is unknown."""
        account = self._accounts.get(qualified)
        if account is None:
            client, name = split_qualified(qualified)
            if is_address(client) or name not in self._local.of(client):
                return None
            account = self._accounts[qualified] = Account(client, self._now_ns())
        self._touched[qualified] = account
        return account

    # -- reports -------------------------------------------------------------------------------------------------

    def hear(self, client: str, epoch: int, outcomes: Mapping[str, Outcome]) -> None:
        """Enter a client's report on its events; it can only report on its own subscriptions."""
        for name, outcome in outcomes.items():
            account = self._touch(qualified_name(client, name))
            if account is not None:
                if epoch != account.epoch:
                    self._spread()  # what the last incarnation may have been given
                account.hear(epoch, outcome)

    def read(self, ledger: Ledger) -> None:
        """Enter another broker's report: events accepted for subscriptions here, and events dropped in transit."""
        is_closed = ledger.period != UNAUDITED and ledger.period <= self._closed.get(ledger.root, -1)
        if ledger.life != self._epoch or is_closed:
            return
        period = self._period(ledger.root, ledger.period)
        if ledger.is_final:
            period.ends_ns = self._now_ns() + _GRACE_NS
        key, number = (ledger.origin, ledger.epoch), ledger.number
        for qualified, (matched, dropped) in ledger.rows.items():
            account = self._touch(qualified)
            if account is not None:
                row = account.row(ledger.root, ledger.period, period, qualified)
                row.matched = max(row.matched, matched)
                if number > row.dropped.get(key, (-1, 0))[0] and (dropped or key in row.dropped):
                    row.dropped[key] = (number, dropped)

    def _period(self, root: str, number: int) -> Period:
        periods = self._periods.setdefault(root, {})
        period = periods.get(number)
        if period is None:
            period = periods[number] = Period()
        period.ends_ns = self._now_ns() + self._keep_ns  # if its end is never reported
        return period

    def forget(self, client: str, names: Iterable[str]) -> None:
        """End the accounts of a client's subscriptions that have ended."""
        self.look()
        for qualified in (qualified_name(client, name) for name in names):
            self._unslotted.pop(qualified, None)
            self.lacking.pop(qualified, None)
            if self._accounts.pop(qualified, None) is not None:
                for periods in self._periods.values():
                    for period in periods.values():
                        period.rows.pop(qualified, None)

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Bring the accounts, their total and the ledgers up to date."""
        self._spread()
        touched, self._touched = self._touched, {}
        for account in touched.values():
            now = account.balance()
            self._whole.known += now.since(account.known)
            account.known = now
        self._unslotted.update(touched)
        for qualified, account in touched.items():
            self.lacking.pop(qualified, None)
            if account.known.settled > account.known.on_time or account.known.under_way:
                self.lacking[qualified] = account

    def _spread(self) -> None:
        """Enter the counts of courses into the accounts of their subscriptions, and into the ledgers."""
        stirred, self._stirred = self._stirred, []
        for course in stirred:
            counted = dict(course.ledger)
            course.ledger.clear()
            for (root, number), many in counted.items():
                if root:
                    self._spread_one(course, root, number, many)
                else:
                    self._ledgers.accepted(course, number, many)

    def _spread_one(self, course: Course, root: str, number: int, many: int) -> None:
        is_open = number != UNAUDITED and root != self._name and number > self._closed.get(root, -1)
        period = self._period(root, number) if is_open else None
        for client, wanted in course.local.items():
            for name in wanted:
                qualified = qualified_name(client, name)
                account = self._touch(qualified)
                if account is None:
                    continue
                if period is None:
                    account.arrived += many
                else:
                    account.row(root, number, period, qualified).arrived += many

    def balances(self) -> dict[str, Account]:
        """All accounts, each with its present state in `known`."""
        self.look()
        return self._accounts

    def age_ns(self, account: Account) -> int:
        """How long an account has existed: since the first event, or since its client came here."""
        return self._now_ns() - account.began_ns

    @property
    def total(self) -> Balance:
        """Of all subscriptions that were ever here, as of the last look."""
        return self._whole.known

    def last_minute(self, account: Account | None = None) -> Balance:
        """The changes of an account, or of all together, in the last minute or slightly more."""
        account = account or self._whole
        return account.known.since(self.minute_ago(account))

    def batches(self, account: Account | None = None) -> list[tuple[int, int]]:
        """Settled events, and those on time, in batches of time since an account, or all together, began; the last
        batch is the present slot."""
        account = account or self._whole
        return [each for each in (*account.batches, account.unslotted()) if each[0] > 0]

    def minute_ago(self, account: Account) -> Balance:
        """The state of an account a minute ago, or slightly earlier."""
        return account.minute_ago(self._slot)

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Report to other brokers, close periods that have ended, and remember the present state for the last
        minute."""
        now_ns = self._now_ns()
        self.period()
        self._close(now_ns)
        self.look()
        self._ledgers.report()
        if now_ns >= self._slot_ends_ns:
            for account in (*self._unslotted.values(), self._whole):
                account.end_slot(self._slot)
            self._unslotted.clear()
            self._slot += max((now_ns - self._slot_ends_ns) // _SLOT_NS, 0) + 1
            self._slot_ends_ns = now_ns + _SLOT_NS
        self._wake_at(self._slot_ends_ns)

    def _close(self, now_ns: int) -> None:
        """Close the periods that have ended, in order for each broker: what has not arrived is lost."""
        for root, periods in list(self._periods.items()):
            for number in sorted(periods.keys() - {UNAUDITED}):
                if periods[number].ends_ns > now_ns:
                    break
                self._closed[root] = number
                for qualified in periods.pop(number).rows:
                    account = self._touch(qualified)
                    if account is not None:
                        account.close(root, number)
            if not periods:
                del self._periods[root]
