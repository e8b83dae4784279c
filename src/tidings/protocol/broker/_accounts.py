"""What became of the events of every subscription at this broker: accounts that balance.

For each subscription, since this broker's life began or since the client subscribed:

    matched = on time + late + dropped + lost + under way

Who knows what, and how it comes here:

- *matched*: the home broker of the publisher, when it accepts an event. It tells the home of the subscriber in ledgers
  (`_ledgers`), by period: every event carries the period of its acceptance, so what arrives is held against what was
  accepted. Of events that carry none, because another broker or another life may have accepted them before, those are
  known that are seen.
- *on time, late*, and what the client itself discards, finds to be a copy or still holds: the client, with its
  acknowledgements and answers to pings.
- *dropped*: whoever drops. On the way that is another broker, which says so in its ledgers.
- *lost*: what a period says was accepted, and neither arrived nor was dropped when the last of its events has expired;
  and what a client held for order when its life ended.
- *under way*: the rest. It waits somewhere, or travels, or is held by the client.

What arrives is counted by course (`Course.ledger`), one addition per event however many want it, and spread over the
subscriptions when somebody looks or a report is due. What an account costs then does not depend on how many there are:
only those are looked at that something has happened to.

Events are late together, so how sure a share is shows in how much it differs from one time to another. An account keeps
what was settled and on time in at most BATCHES_MOST batches of time, of one length each, which doubles when there are
too many (`Batches`).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tidings.protocol._addresses import is_address
from tidings.protocol._settings import SECOND, BrokerSettings
from tidings.protocol.broker._courses import Course
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._interests import LocalInterests
from tidings.protocol.broker._ledgers import REPORT_NS, UNAUDITED, Ledgers
from tidings.protocol.broker._told_names import split_told, told_name
from tidings.protocol.wire import Ledger, Outcome

__all__ = ["BATCHES_MOST", "NOTHING", "Account", "Accounts", "Balance", "Batches"]

K = TypeVar("K", str, int)

_GRACE_NS: Final = 5 * SECOND
"""So long after its last event has expired brokers may still report what they have dropped of a period."""
_SLOT_NS: Final = 20 * SECOND
_SLOTS: Final = 3
"""The last minute begins with what was known so many slots ago."""
_NO_OUTCOME: Final = Outcome()
BATCHES_MOST: Final = 16
"""Of which an account keeps what was settled in each: from 9 on, once it has lasted for so many slots."""


class Balance(NamedTuple):
    """The state of an account, or the difference of two states. `dropped_by`: brokers by name, `client`."""

    matched: int
    on_time: int
    late: int
    dropped_by: Mapping[str, int]
    lost: int
    out_of_order: int
    delays: Mapping[int, int]
    holds: Mapping[int, int]

    @property
    def dropped(self) -> int:
        """How many were dropped, whoever did."""
        return sum(self.dropped_by.values())

    @property
    def settled(self) -> int:
        """How many are not under way any more."""
        return self.on_time + self.late + self.dropped + self.lost

    @property
    def under_way(self) -> int:
        """How many may still arrive."""
        return self.matched - self.settled

    @property
    def on_time_share(self) -> float | None:
        """R: of those whose fate is known, the share that the application got on time; None if there are none."""
        return self.share_since(NOTHING)

    def share_since(self, before: "Balance") -> float | None:
        """The same of what has happened since another state of the account. A drop may have been taken back since."""
        settled = self.settled - before.settled
        return min((self.on_time - before.on_time) / settled, 1.0) if settled > 0 else None

    def __add__(self, more: "Balance") -> "Balance":  # type: ignore[override]
        """Both accounts together."""
        return Balance(
            self.matched + more.matched,
            self.on_time + more.on_time,
            self.late + more.late,
            _sum(self.dropped_by, more.dropped_by),
            self.lost + more.lost,
            self.out_of_order + more.out_of_order,
            _sum(self.delays, more.delays),
            _sum(self.holds, more.holds),
        )

    def since(self, before: "Balance") -> "Balance":
        """What has happened since another state of the same account."""
        return Balance(
            self.matched - before.matched,
            self.on_time - before.on_time,
            self.late - before.late,
            _difference(self.dropped_by, before.dropped_by),
            self.lost - before.lost,
            self.out_of_order - before.out_of_order,
            _difference(self.delays, before.delays),
            _difference(self.holds, before.holds),
        )


NOTHING: Final = Balance(0, 0, 0, {}, 0, 0, {}, {})


def _sum(one: Mapping[K, int], other: Mapping[K, int]) -> Mapping[K, int]:
    return {**one, **{key: one.get(key, 0) + count for key, count in other.items()}} if one and other else one or other


def _difference(now: Mapping[K, int], before: Mapping[K, int]) -> dict[K, int]:
    return {key: more for key, count in now.items() if (more := count - before.get(key, 0))}


class _Row:
    """One subscription in one period of one publisher's home."""

    __slots__ = ("arrived", "dropped", "matched")

    def __init__(self) -> None:
        self.matched = 0  # as the home of the publishers says
        self.arrived = 0
        self.dropped: dict[tuple[str, int], tuple[int, int]] = {}  # by broker and its life: number of the report, count

    @property
    def seen(self) -> int:
        """How many have arrived, or were dropped on the way."""
        return self.arrived + sum(count for _, count in self.dropped.values())

    @property
    def many(self) -> int:
        """How many there were: as many as were seen at least."""
        return max(self.matched, self.seen)


class _Period:
    """The events that one broker has accepted in one period, for subscriptions here."""

    __slots__ = ("ends_ns", "rows")

    def __init__(self) -> None:
        self.ends_ns = 0
        self.rows: dict[str, _Row] = {}


class Batches:
    """What was settled, and of it on time, in batches of time; a batch is 2 ** doublings slots long."""

    __slots__ = ("_doublings", "_rows")

    def __init__(self) -> None:
        self._doublings = 0
        self._rows = array(
            "q"
        )  # number, settled, on time, of each batch in which something was settled, in their order

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Settled and on time in each."""
        return zip(self._rows[1::3], self._rows[2::3], strict=True)

    def add(self, slot: int, settled: int, on_time: int) -> None:
        """So many were settled in this slot, which is not before those that were added already."""
        if not settled:
            return
        self._put(slot >> self._doublings, settled, on_time)
        while len(self._rows) > 3 * BATCHES_MOST:
            self._doublings += 1
            old, self._rows = self._rows, array("q")
            for place in range(0, len(old), 3):
                self._put(old[place] >> 1, old[place + 1], old[place + 2])

    def _put(self, number: int, settled: int, on_time: int) -> None:
        if self._rows and self._rows[-3] == number:
            self._rows[-2] += settled
            self._rows[-1] += on_time
        else:
            self._rows.extend((number, settled, on_time))


class Account:
    """One subscription of a client here."""

    __slots__ = (
        *("_before", "_heard", "_heard_delays", "_heard_holds", "_rows", "_said", "_start", "_trusted"),
        *("arrived", "batches", "began_ns", "client", "dropped_by", "epoch", "known", "lost", "slots"),
    )

    def __init__(self, client: str, began_ns: int) -> None:
        self.client = client
        self.began_ns = began_ns
        self.arrived = 0  # all that are known of, but for those of open periods
        self.dropped_by: dict[str, int] = {}
        self.lost = 0
        self.epoch = -1  # the life of the client that `_said` is of
        self._said = self._before = _NO_OUTCOME  # of its present life, and of its lives before
        self._trusted = _NO_OUTCOME  # its last report that may be true
        self._start = _NO_OUTCOME  # what it had counted before this account began
        self._heard: Outcome | None = None  # its last report, if it was not looked at yet
        self._heard_delays: dict[int, int] = {}
        self._heard_holds: dict[int, int] = {}
        self._rows: dict[tuple[str, int], _Row] = {}  # of open periods
        self.known = NOTHING
        """The state when it was last looked at."""
        self.slots: list[tuple[int, Balance]] = []  # states at the end of slots in which something happened
        self.batches = Batches()
        """Of the slots that are over."""

    def drop(self, by: str, many: int = 1) -> None:
        """Events will not arrive, because somebody has dropped them; less than 0: they had been there after all."""
        self.dropped_by[by] = self.dropped_by.get(by, 0) + many

    def row(self, root: str, number: int, period: _Period, told: str) -> _Row:
        """What is known of this subscription in an open period."""
        row = self._rows.get((root, number))
        if row is None:
            row = self._rows[root, number] = period.rows[told] = _Row()
        return row

    def close(self, root: str, number: int) -> None:
        """A period is over: what has not come is lost."""
        row = self._rows.pop((root, number))
        self.arrived += row.many
        self.lost += row.many - row.seen
        for (broker, _), (_, count) in row.dropped.items():
            self.drop(broker, count)

    def hear(self, epoch: int, said: Outcome) -> None:
        """The client reports. Reports are frequent, and of two the later says it all: they are looked at later."""
        if epoch != self.epoch:
            self._end_life()
            self.epoch = epoch
        self._heard = said
        if said.delays:
            self._heard_delays.update(said.delays)
        if said.holds:
            self._heard_holds.update(said.holds)

    def _take(self, said: Outcome) -> None:
        """Go by a report; one of less than before changes nothing."""
        known, start = self._said, self._start
        delays = {**known.delays, **_difference(self._heard_delays, start.delays)}
        holds = {**known.holds, **_difference(self._heard_holds, start.holds)}
        self._heard_delays, self._heard_holds = {}, {}
        counts = [now - then for now, then in zip(_counts(said), _counts(start), strict=True)]
        if min(now - then for now, then in zip(counts, _counts(known), strict=True)) >= 0:
            self._said = _outcome(counts, said.held, delays, holds)

    def _end_life(self) -> None:
        """A life of the client is over: what it held then is lost."""
        self.balance()
        self.lost += self._trusted.held
        self._before = _both(self._before, self._trusted)
        self._said = self._trusted = self._start = _NO_OUTCOME

    def balance(self) -> Balance:
        """The state of now. A report of more than the client was given is not believed; if it is the first one, it is
        of a time before this account, and counting begins there: the client had moved away, and has come back."""
        if self._heard is not None:
            said, self._heard = self._heard, None
            self._take(said)
        now = self._balance(self._said)
        if now.under_way < self._said.held:
            if self._trusted is _NO_OUTCOME:
                self._start = _both(self._start, self._said)
            self._said = self._trusted
            return self._balance(self._said)
        self._trusted = self._said
        return now

    def _balance(self, said: Outcome) -> Balance:
        before, dropped_by, matched = self._before, dict(self.dropped_by), self.arrived
        for row in self._rows.values():
            matched += row.many
            for (broker, _), (_, count) in row.dropped.items():
                dropped_by[broker] = dropped_by.get(broker, 0) + count
        dropped_by["client"] = before.discarded + said.discarded
        return Balance(
            matched=matched - before.again - said.again,
            on_time=before.on_time + said.on_time,
            late=before.late + said.late,
            dropped_by={by: many for by, many in dropped_by.items() if many},
            lost=self.lost,
            out_of_order=before.out_of_order + said.out_of_order,
            delays=_sum(before.delays, said.delays),
            holds=_sum(before.holds, said.holds),
        )

    def minute_ago(self, slot: int) -> Balance:
        """The state of a minute ago, or of a little before; this is the slot of now."""
        before = [balance for ended, balance in self.slots if ended < slot - _SLOTS]
        return before[-1] if before else NOTHING

    def unslotted(self) -> tuple[int, int]:
        """What was settled, and of it on time, since the last slot in which something happened."""
        before = self.slots[-1][1] if self.slots else NOTHING
        return self.known.settled - before.settled, self.known.on_time - before.on_time

    def end_slot(self, slot: int) -> None:
        """The slot is over: its state is kept while the last minute may begin with it."""
        self.batches.add(slot, *self.unslotted())
        old = [place for place, (ended, _) in enumerate(self.slots) if ended < slot - _SLOTS]
        self.slots = [*self.slots[old[-1] if old else 0 :], (slot, self.known)]


def _both(one: Outcome, other: Outcome) -> Outcome:
    counts = [count + more for count, more in zip(_counts(one), _counts(other), strict=True)]
    return _outcome(counts, 0, _sum(one.delays, other.delays), _sum(one.holds, other.holds))


def _outcome(counts: Sequence[int], held: int, delays: Mapping[int, int], holds: Mapping[int, int]) -> Outcome:
    on_time, late, discarded, again, out_of_order = counts
    return Outcome(on_time, late, discarded, again, out_of_order, held, dict(delays), dict(holds))


def _counts(said: Outcome) -> tuple[int, int, int, int, int]:
    """What only ever grows."""
    return said.on_time, said.late, said.discarded, said.again, said.out_of_order


class Accounts:
    """The accounts of one broker, by the names that others know subscriptions by; `wake_at` asks for a `tick`."""

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
        self._life_ns = settings.max_lifetime_ns + 2 * settings.refresh_ns
        self._local = local
        self._ledgers = ledgers
        self._now_ns = now_ns
        self._wake_at = wake_at
        self._epoch = 0
        self._accounts: dict[str, Account] = {}
        self._stirred: list[Course] = []  # courses with something in their ledgers
        self.lacking: dict[str, Account] = {}
        """Those that did not get everything on time, or wait for something; as of the last look, the last that
        something happened to last."""
        self._touched: dict[str, Account] = {}  # something has happened to them since they were looked at
        self._unslotted: dict[str, Account] = {}  # the same, since the slot began
        self._periods: dict[str, dict[int, _Period]] = {}  # by the broker that accepted, and the period's number
        self._closed: dict[str, int] = {}  # by broker: the last period that is closed
        self._slot = 0
        self._slot_ends_ns = 0
        self._whole = Account("", 0)  # all subscriptions that were ever here

    def __len__(self) -> int:
        return len(self._accounts)

    def begin(self, epoch: int) -> None:
        """A new life."""
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
        """Subscriptions elsewhere may end: what was accepted for them is counted first. `Ledgers.end` has to follow."""
        self._spread()

    def accepted(self, course: Course, period: int) -> None:
        """An event of this course, for somebody elsewhere, was accepted here in this period."""
        self._note(course, ("", period), 1)

    def arrived(self, course: Course, root: str, period: int, many: int = 1) -> None:
        """Events of this course are there for all clients here that it names."""
        self._note(course, (root, period), many)

    def arrived_in(self, course: Course, before: str, root: str, period: int) -> None:
        """An event that has arrived, and counted by itself, was accepted in this period of another broker as well."""
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
        """An event is there for one client alone; -1: it is not, after all."""
        for name in names:
            account = self._touch(told_name(client, name))
            if account is not None:
                account.arrived += many

    def dropped_on_the_way(self, held: Held, targets: Iterable[str], many: int = 1) -> None:
        """An event for other brokers will go no further; -1: it had got further, after all."""
        self._ledgers.dropped(held, targets, many)

    def dropped(self, held: Held, client: str, names: Iterable[str], many: int = 1, *, was_sent: bool = False) -> None:
        """An event that was there for a client is dropped here; -1: the client had got it after all.

        One that the store kept counts if the client reports it: it may have had it in the life before.
        """
        if client in held.restored_for:
            if was_sent:
                self.arrived_for(client, names, -many)
        else:
            self.dropped_here(client, names, many)

    def dropped_here(self, client: str, names: Iterable[str], many: int) -> None:
        """Events that were there for a client, and that the store did not keep, are dropped here."""
        for name in names:
            account = self._touch(told_name(client, name))
            if account is not None:
                account.drop(self._name, many)

    def _touch(self, told: str) -> Account | None:
        """The account of a subscription that something happens to; None if there is no such subscription here."""
        account = self._accounts.get(told)
        if account is None:
            client, name = split_told(told)
            if is_address(client) or name not in self._local.of(client):
                return None
            account = self._accounts[told] = Account(client, self._now_ns())
        self._touched[told] = account
        return account

    # -- reports -------------------------------------------------------------------------------------------------

    def hear(self, client: str, epoch: int, said: Mapping[str, Outcome]) -> None:
        """A client reports what became of events that it was given; it can speak of nothing but itself."""
        for name, outcome in said.items():
            account = self._touch(told_name(client, name))
            if account is not None:
                if epoch != account.epoch:
                    self._spread()  # what the life before can have been given
                account.hear(epoch, outcome)

    def read(self, said: Ledger) -> None:
        """Another broker says what it has accepted for subscriptions here, and what it has dropped on the way."""
        is_closed = said.period != UNAUDITED and said.period <= self._closed.get(said.root, -1)
        if said.life != self._epoch or is_closed:
            return
        period = self._period(said.root, said.period)
        if said.is_final:
            period.ends_ns = self._now_ns() + _GRACE_NS
        key, number = (said.origin, said.epoch), said.number
        for told, (matched, dropped) in said.rows.items():
            account = self._touch(told)
            if account is not None:
                row = account.row(said.root, said.period, period, told)
                row.matched = max(row.matched, matched)
                if number > row.dropped.get(key, (-1, 0))[0] and (dropped or key in row.dropped):
                    row.dropped[key] = (number, dropped)

    def _period(self, root: str, number: int) -> _Period:
        periods = self._periods.setdefault(root, {})
        period = periods.get(number)
        if period is None:
            period = periods[number] = _Period()
        period.ends_ns = self._now_ns() + self._life_ns  # if nobody ever says that it is over
        return period

    def forget(self, client: str, names: Iterable[str]) -> None:
        """Subscriptions of a client are gone: their accounts end as they are."""
        self.look()
        for told in (told_name(client, name) for name in names):
            self._unslotted.pop(told, None)
            self.lacking.pop(told, None)
            if self._accounts.pop(told, None) is not None:
                for periods in self._periods.values():
                    for period in periods.values():
                        period.rows.pop(told, None)

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
        for told, account in touched.items():
            self.lacking.pop(told, None)
            if account.known.settled > account.known.on_time or account.known.under_way:
                self.lacking[told] = account

    def _spread(self) -> None:
        """Enter what courses have counted into the accounts of their subscriptions, and into the ledgers."""
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
                told = told_name(client, name)
                account = self._touch(told)
                if account is None:
                    continue
                if period is None:
                    account.arrived += many
                else:
                    account.row(root, number, period, told).arrived += many

    def balances(self) -> dict[str, Account]:
        """All accounts, each as it is `known` now."""
        self.look()
        return self._accounts

    def age_ns(self, account: Account) -> int:
        """For how long there has been an account: since the first event, or since its client came here."""
        return self._now_ns() - account.began_ns

    @property
    def total(self) -> Balance:
        """Of all subscriptions that were ever here, as of the last look."""
        return self._whole.known

    def last_minute(self, account: Account | None = None) -> Balance:
        """What has happened to an account, or to all together, in the last minute, or a little more."""
        account = account or self._whole
        return account.known.since(self.minute_ago(account))

    def batches(self, account: Account | None = None) -> list[tuple[int, int]]:
        """What was settled, and of it on time, in batches of time since an account, or all together, began; the last
        one is the slot that goes on."""
        account = account or self._whole
        return [each for each in (*account.batches, account.unslotted()) if each[0] > 0]

    def minute_ago(self, account: Account) -> Balance:
        """The state of an account a minute ago, or a little before."""
        return account.minute_ago(self._slot)

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Tell the others what is new for them, close periods that are over, and remember the state of now: later it is
        that of a minute ago."""
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
        """What has not arrived of the periods that are over is lost; those of one broker end in their order."""
        for root, periods in list(self._periods.items()):
            for number in sorted(periods.keys() - {UNAUDITED}):
                if periods[number].ends_ns > now_ns:
                    break
                self._closed[root] = number
                for told in periods.pop(number).rows:
                    account = self._touch(told)
                    if account is not None:
                        account.close(root, number)
            if not periods:
                del self._periods[root]
