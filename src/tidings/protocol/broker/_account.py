"""The account of one subscription: its counts, their balance, and its recent history."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tidings.protocol.wire import Outcome

__all__ = ["BATCHES_MOST", "NOTHING", "Account", "Balance", "Batches", "Period"]

K = TypeVar("K", str, int)
_SLOTS: Final = 3
"""The last minute begins with the state of so many slots ago."""
_NO_OUTCOME: Final = Outcome()
BATCHES_MOST: Final = 16
"""The most batches of an account: from 9 on, once it has lasted for so many slots."""


class Balance(NamedTuple):
    """The state of an account, or the difference of two states. `dropped_by`: brokers by name, or `client`.

    `replaced` are events that a newer one of their key has replaced, as the subscription wants it. They are neither
    settled nor under way: the on-time share is that of the others.
    """

    matched: int
    on_time: int
    late: int
    dropped_by: Mapping[str, int]
    lost: int
    out_of_order: int
    delays: Mapping[int, int]
    holds: Mapping[int, int]
    replaced: int = 0

    @property
    def dropped(self) -> int:
        """How many were dropped, by anybody."""
        return sum(self.dropped_by.values()) if self.dropped_by else 0

    @property
    def settled(self) -> int:
        """How many are no longer under way."""
        return self.on_time + self.late + self.dropped + self.lost

    @property
    def under_way(self) -> int:
        """How many may still arrive."""
        return self.matched - self.settled - self.replaced

    @property
    def on_time_share(self) -> float | None:
        """R: the share of the settled events that the application got on time; None if there are none."""
        return self.share_since(NOTHING)

    def share_since(self, before: "Balance") -> float | None:
        """The same since another state of the account. A drop may have been taken back since."""
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
            self.replaced + more.replaced,
        )

    def since(self, before: "Balance") -> "Balance":
        """The changes since another state of the same account."""
        return Balance(
            self.matched - before.matched,
            self.on_time - before.on_time,
            self.late - before.late,
            _difference(self.dropped_by, before.dropped_by),
            self.lost - before.lost,
            self.out_of_order - before.out_of_order,
            _difference(self.delays, before.delays),
            _difference(self.holds, before.holds),
            self.replaced - before.replaced,
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
        self.matched = 0  # as the publishers' home reports
        self.arrived = 0
        self.dropped: dict[
            tuple[str, int], tuple[int, int]
        ] = {}  # by broker and its epoch: number of the report, count

    @property
    def seen(self) -> int:
        """How many have arrived, or were dropped by a broker."""
        return self.arrived + sum(count for _, count in self.dropped.values())

    @property
    def many(self) -> int:
        """How many there were: at least as many as were seen."""
        return max(self.matched, self.seen)


class Period:
    """The events that one broker has accepted in one period, for subscriptions here."""

    __slots__ = ("ends_ns", "rows")

    def __init__(self) -> None:
        self.ends_ns = 0
        self.rows: dict[str, _Row] = {}


class Batches:
    """Settled events, and those on time among them, in batches of time; a batch is 2 ** doublings slots long."""

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
        """Count events that were settled in this slot, which is not before those added already."""
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
        *("_before", "_heard", "_heard_delays", "_heard_holds", "_rows", "_reported", "_start", "_trusted"),
        *("arrived", "batches", "began_ns", "client", "dropped_by", "epoch", "known", "lost", "replaced", "slots"),
    )

    def __init__(self, client: str, began_ns: int) -> None:
        self.client = client
        self.began_ns = began_ns
        self.arrived = 0  # all known ones, except those of open periods
        self.dropped_by: dict[str, int] = {}
        self.lost = 0
        self.replaced = 0
        self.epoch = -1  # of the client's incarnation that made `_reported`
        self._reported = self._before = _NO_OUTCOME  # of its present incarnation, and of those before
        self._trusted = _NO_OUTCOME  # its last plausible report
        self._start = _NO_OUTCOME  # its counts when this account began
        self._heard: Outcome | None = None  # its last report, if it was not entered yet
        self._heard_delays: dict[int, int] = {}
        self._heard_holds: dict[int, int] = {}
        self._rows: dict[tuple[str, int], _Row] = {}  # of open periods
        self.known = NOTHING
        """The state when it was last computed."""
        self.slots: list[tuple[int, Balance]] = []  # states at the end of slots in which something happened
        self.batches = Batches()
        """Of the slots that have ended."""

    def drop(self, by: str, many: int = 1) -> None:
        """Count dropped events; less than 0: they were delivered after all."""
        self.dropped_by[by] = self.dropped_by.get(by, 0) + many

    def row(self, root: str, number: int, period: Period, qualified: str) -> _Row:
        """The counts of this subscription in an open period."""
        row = self._rows.get((root, number))
        if row is None:
            row = self._rows[root, number] = period.rows[qualified] = _Row()
        return row

    def close(self, root: str, number: int) -> None:
        """End a period: events that have not arrived are lost."""
        row = self._rows.pop((root, number))
        self.arrived += row.many
        self.lost += row.many - row.seen
        for (broker, _), (_, count) in row.dropped.items():
            self.drop(broker, count)

    def hear(self, epoch: int, outcome: Outcome) -> None:
        """Note a report of the client. Reports are frequent and cumulative, so they are entered later."""
        if epoch != self.epoch:
            self._end_incarnation()
            self.epoch = epoch
        self._heard = outcome
        if outcome.delays:
            self._heard_delays.update(outcome.delays)
        if outcome.holds:
            self._heard_holds.update(outcome.holds)

    def _take(self, outcome: Outcome) -> None:
        """Enter a report; one with lower counts than before changes nothing."""
        known, start = self._reported, self._start
        delays = {**known.delays, **_difference(self._heard_delays, start.delays)}
        holds = {**known.holds, **_difference(self._heard_holds, start.holds)}
        self._heard_delays, self._heard_holds = {}, {}
        counts = [now - then for now, then in zip(_counts(outcome), _counts(start), strict=True)]
        if min(now - then for now, then in zip(counts, _counts(known), strict=True)) >= 0:
            self._reported = _outcome(counts, outcome.held, delays, holds)

    def _end_incarnation(self) -> None:
        """An incarnation of the client has ended: what it held is lost."""
        self.balance()
        self.lost += self._trusted.held
        self._before = _both(self._before, self._trusted)
        self._reported = self._trusted = self._start = _NO_OUTCOME

    def balance(self) -> Balance:
        """The present state.

        A report of more events than the client was given is not believed. If it is the first one, it is of a time
        before this account, and counting begins there: the client had moved away, and has come back.
        """
        if self._heard is not None:
            outcome, self._heard = self._heard, None
            self._take(outcome)
        now = self._balance(self._reported)
        if now.under_way < self._reported.held:
            if self._trusted is _NO_OUTCOME:
                self._start = _both(self._start, self._reported)
            self._reported = self._trusted
            return self._balance(self._reported)
        self._trusted = self._reported
        return now

    def _balance(self, outcome: Outcome) -> Balance:
        before, dropped_by, matched = self._before, dict(self.dropped_by), self.arrived
        for row in self._rows.values():
            matched += row.many
            for (broker, _), (_, count) in row.dropped.items():
                dropped_by[broker] = dropped_by.get(broker, 0) + count
        dropped_by["client"] = before.discarded + outcome.discarded
        return Balance(
            matched=matched - before.again - outcome.again,
            on_time=before.on_time + outcome.on_time,
            late=before.late + outcome.late,
            dropped_by={by: many for by, many in dropped_by.items() if many},
            lost=self.lost,
            out_of_order=before.out_of_order + outcome.out_of_order,
            delays=_sum(before.delays, outcome.delays),
            holds=_sum(before.holds, outcome.holds),
            replaced=self.replaced,
        )

    def minute_ago(self, slot: int) -> Balance:
        """The state a minute ago or slightly earlier; `slot` is the present one."""
        before = [balance for ended, balance in self.slots if ended < slot - _SLOTS]
        return before[-1] if before else NOTHING

    def unslotted(self) -> tuple[int, int]:
        """What was settled, and of it on time, since the last slot in which something happened."""
        before = self.slots[-1][1] if self.slots else NOTHING
        return self.known.settled - before.settled, self.known.on_time - before.on_time

    def end_slot(self, slot: int) -> None:
        """End a slot: its state is kept while the last minute may begin with it."""
        self.batches.add(slot, *self.unslotted())
        old = [place for place, (ended, _) in enumerate(self.slots) if ended < slot - _SLOTS]
        self.slots = [*self.slots[old[-1] if old else 0 :], (slot, self.known)]


def _both(one: Outcome, other: Outcome) -> Outcome:
    counts = [count + more for count, more in zip(_counts(one), _counts(other), strict=True)]
    return _outcome(counts, 0, _sum(one.delays, other.delays), _sum(one.holds, other.holds))


def _outcome(counts: Sequence[int], held: int, delays: Mapping[int, int], holds: Mapping[int, int]) -> Outcome:
    on_time, late, discarded, again, out_of_order = counts
    return Outcome(on_time, late, discarded, again, out_of_order, held, dict(delays), dict(holds))


def _counts(outcome: Outcome) -> tuple[int, int, int, int, int]:
    """The counts that only grow."""
    return outcome.on_time, outcome.late, outcome.discarded, outcome.again, outcome.out_of_order
