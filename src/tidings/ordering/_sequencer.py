"""One publisher's events in order: Algorithm 1 of paper A as a state machine, event and time in, deliveries out.

Rules, where the paper is silent or wrong in print as our errata read it:

- `base` is the highest sequence number received. A late event does not move it, but its delay difference still counts
  as a sample. The scale is 2/3 of the mean over the samples held, not over the size of the ring.
- The first event of a stream is delivered at once. Duplicates are dropped. Of an event WINDOW or more numbers behind
  the highest it is forgotten whether it came before: it counts as late like any other, but nothing is learnt from it.
- Nothing overtakes a held event. The first in line leaves when its timer ends or when every number before it has
  come, was given up, or is known from a record not to match; who stands behind it can only leave after it. So an event
  that has to leave by a certain time takes with it whatever stands before it then.
- A late event whose successors are all still held takes its place before them and leaves with the next of them. It is
  a violation only if a higher number was delivered before: then it is delivered at once, or dropped, as the policy
  says.
- Enhanced mode: of the numbers that the record covers, those that do not match count as come. The latch is for the
  latest that matches and has not come; if there is none, for the earliest in the record, or none at all if the record
  covers the gap.

Clocks and restarts:

- A lower number that left later is a publisher that began again at 0, and so is one that seems to have been under way
  for longer than `clock_step_ns`. What is held is delivered, and the stream begins anew; samples are kept. Where a
  publisher that begins again has another name (`restarts=False`), a lower number is always an earlier event.
- A delay difference beyond `clock_step_ns` is no sample, but a clock that was set. For `clock_step_ns` after a
  departure went back (or such a difference), lower numbers are stragglers from before the step, not a restart.
- If the receiver's own clock goes back, what is held keeps the wait it had left.

Learning (`_latches`): a late event teaches the pair, and the pool that it shares with its receiver's other pairs, if it
was given one. The latch of a policy that learns follows the deadline of the event.

Memory is bounded: `samples` differences, WINDOW bits twice (for policies that learn also WINDOW pairs of times),
`max_held` events; one more lets the first in line go.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from tidings.ordering._kernels import END_NS, WINDOW
from tidings.ordering._latches import (
    STALL_MARGIN,
    STALL_WINDOW,
    STALLED,
    UNKNOWN_OVERTAKING,
    Pool,
    comes_in_stalls,
    learn,
    missing_of_usual,
    next_spread,
    overtaking_latch,
    teaches_pool,
)
from tidings.ordering._policies import PROBABILISTIC, STATIC, Policy
from tidings.ordering._snapshot import Snapshot
from tidings.ordering._stamps import RecordEntry, Stamp

__all__ = ["Counts", "Delivery", "Sequencer"]

T = TypeVar("T")

_MASK: Final = (1 << WINDOW) - 1
_NEVER: Final = -1
_NO_POOL: Final = Pool()


class Delivery(NamedTuple, Generic[T]):
    """An event for the application; `late` if one that was sent after it has already been delivered."""

    item: T
    sequence: int
    late: bool


class _Held(NamedTuple, Generic[T]):
    """A held event: its timer ends at `due_ns`; it, or one behind it, has to leave by `until_ns`."""

    sequence: int
    due_ns: int
    until_ns: int
    item: T

    @property
    def leaves_ns(self) -> int:
        """When it leaves if nothing comes, once it is the first in line."""
        return min(self.due_ns, self.until_ns)


class Counts:
    """What has happened to the events of one publisher."""

    __slots__ = ("duplicates", "forced", "forgotten", "out_of_order", "received", "restarts", "violations")

    def __init__(self) -> None:
        self.received = self.out_of_order = self.violations = 0
        self.duplicates = self.forgotten = self.restarts = self.forced = 0


class Sequencer(Generic[T]):
    """The receiver's state for one publisher; `wants` says of a summary whether the event may be for us, `restarts`
    whether the publisher may begin again at 0."""

    def __init__(
        self,
        policy: Policy,
        wants: Callable[[bytes], bool] | None = None,
        *,
        pool: Pool | None = None,
        restarts: bool = True,
    ) -> None:
        self.policy = policy
        self._restarts = restarts
        self.counts = Counts()
        self.assessed_ns = 0
        """The latch of the event received last, before anything cut it short."""
        self._rule = policy.rule()
        self._wants = wants
        self._base: Stamp | None = None
        self._arrival_ns = 0
        self._clock_ns = 0
        self._held: deque[_Held[T]] = deque()
        self._frontier = self._highest = 0
        # Bit i is the number base - i: has it come; has it come or is it known not to.
        self._received = self._resolved = 0
        self._differences: deque[int] = deque()
        self._difference_sum = 0
        self._overtaken = False
        self._overtaking = UNKNOWN_OVERTAKING
        self._spread = 0.0
        self._late_ns = 0
        self._opened = self._arrived = 0
        self._pool = _NO_POOL if pool is None else pool
        self._first: dict[int, tuple[int, int]] = {}
        self._stepped_at = self._step_over_ns = _NEVER

    def snapshot(self) -> Snapshot[T]:
        """What it takes to go on elsewhere, or later, as if nothing had been."""
        base = self._base
        return Snapshot(
            base=None if base is None else (base.sequence, base.departure_ns, base.previous_departure_ns),
            arrival_ns=self._arrival_ns,
            clock_ns=self._clock_ns,
            held=[(held.sequence, held.leaves_ns, held.item) for held in self._held],
            frontier=self._frontier,
            highest=self._highest,
            received=self._received.to_bytes(WINDOW // 8, "little").rstrip(b"\0"),
            resolved=self._resolved.to_bytes(WINDOW // 8, "little").rstrip(b"\0"),
            differences=list(self._differences),
            overtaken=self._overtaken,
            overtaking=self._overtaking,
            spread=self._spread,
            late_ns=self._late_ns,
            opened=self._opened,
            arrived=self._arrived,
            first=dict(self._first),
            stepped_at=self._stepped_at,
            step_over_ns=self._step_over_ns,
            counts=[getattr(self.counts, name) for name in Counts.__slots__],
        )

    @classmethod
    def restored(
        cls,
        policy: Policy,
        known: Snapshot[T],
        wants: Callable[[bytes], bool] | None = None,
        *,
        pool: Pool | None = None,
    ) -> "Sequencer[T]":
        """One that goes on where a snapshot of the same policy was taken."""
        self = cls(policy, wants, pool=pool)
        if known.base is not None:
            number, departure_ns, previous_ns = known.base
            self._base = Stamp(sequence=number, departure_ns=departure_ns, previous_departure_ns=previous_ns)
        self._arrival_ns, self._clock_ns = known.arrival_ns, known.clock_ns
        self._held = deque(_Held(number, due_ns, END_NS, item) for number, due_ns, item in known.held)
        self._frontier, self._highest = known.frontier, known.highest
        self._received = int.from_bytes(known.received, "little")
        self._resolved = int.from_bytes(known.resolved, "little")
        self._differences = deque(known.differences)
        self._difference_sum = sum(known.differences)
        self._overtaken, self._overtaking = known.overtaken, known.overtaking
        self._spread, self._late_ns = known.spread, known.late_ns
        self._opened, self._arrived = known.opened, known.arrived
        self._first = dict(known.first)
        self._stepped_at, self._step_over_ns = known.stepped_at, known.step_over_ns
        for name, count in zip(Counts.__slots__, known.counts, strict=True):
            setattr(self.counts, name, count)
        return self

    @property
    def next_timer_ns(self) -> int | None:
        """When `advance` should be called, if nothing arrives before; None if nothing is held."""
        return self._held[0].leaves_ns if self._held else None

    @property
    def held(self) -> int:
        """How many events wait."""
        return len(self._held)

    def advance(self, now_ns: int) -> list[Delivery[T]]:
        """What leaves because its time has come."""
        out: list[Delivery[T]] = []
        self._turn_clock(now_ns)
        self._release(now_ns, out)
        return out

    def flush(self) -> list[Delivery[T]]:
        """Everything that is held, in order: the end of the stream."""
        out = [Delivery(held.item, held.sequence, False) for held in self._held]
        if self._held:
            self._frontier = self._highest = self._held[-1].sequence
            self._held.clear()
        return out

    def receive(self, item: T, stamp: Stamp, now_ns: int, *, until_ns: int | None = None) -> list[Delivery[T]]:
        """What leaves because this event arrived (perhaps itself), and because its time had come.

        If the event is held, it leaves at `until_ns` at the latest.
        """
        out: list[Delivery[T]] = []
        if self._held:
            self._turn_clock(now_ns)
            self._release(now_ns, out)
        else:
            self._clock_ns = now_ns
        self.counts.received += 1
        self.assessed_ns = 0
        base = self._base
        if base is not None and self._is_restart(base, stamp, now_ns):
            self.counts.restarts += 1
            out += self.flush()
            base = None
        if base is None:
            self._begin(stamp, now_ns)
            out.append(Delivery(item, stamp.sequence, False))
            return out
        behind = base.sequence - stamp.sequence
        if behind >= 0 and self._has_come(stamp.sequence, behind):
            self.counts.duplicates += 1
            return out
        until_ns = END_NS if until_ns is None else until_ns
        self._arrived += 1
        if behind < 0:
            self._sample(base, stamp, now_ns)
            self._take_next(item, base, stamp, until_ns, now_ns)
        else:
            if behind < WINDOW:
                self._sample(base, stamp, now_ns)
                self._learn_late(base, stamp, behind, now_ns)
            else:
                self.counts.forgotten += 1
            self._take_late(item, stamp.sequence, until_ns, out)
        self._release(now_ns, out)
        return out

    def _has_come(self, number: int, behind: int) -> bool:
        """Whether a number up to the highest has come before, as far as that is known."""
        if behind < WINDOW:
            return bool(self._received >> behind & 1)
        return any(held.sequence == number for held in self._held)

    def _begin(self, stamp: Stamp, now_ns: int) -> None:
        self._base = stamp
        self._arrival_ns = self._clock_ns = now_ns
        self._frontier = self._highest = self._opened = stamp.sequence
        self._arrived = 1
        self._received = self._resolved = 1
        self._first.clear()
        self._note_first(stamp.sequence, now_ns, max(stamp.departure_ns - stamp.previous_departure_ns, 0))
        self._stepped_at = _NEVER

    def _is_restart(self, base: Stamp, stamp: Stamp, now_ns: int) -> bool:
        if not self._restarts or stamp.sequence > base.sequence:
            return False
        if stamp.sequence == base.sequence and stamp.departure_ns == base.departure_ns:
            return False
        if stamp.sequence < self._stepped_at and now_ns < self._step_over_ns:
            return False
        difference = self._difference_ns(base, stamp, now_ns)
        return stamp.departure_ns > base.departure_ns or difference > self._rule.clock_step_ns

    def _difference_ns(self, base: Stamp, stamp: Stamp, now_ns: int) -> int:
        """How much longer than `base` the event was under way: no clock is compared with another."""
        return (now_ns - self._arrival_ns) - (stamp.departure_ns - base.departure_ns)

    def _sample(self, base: Stamp, stamp: Stamp, now_ns: int) -> None:
        """Lines 7 and 32 to 34 of the algorithm."""
        size_ns = abs(self._difference_ns(base, stamp, now_ns))
        stepped = size_ns > self._rule.clock_step_ns
        if not stepped:
            if len(self._differences) == self._rule.samples:
                self._difference_sum -= self._differences.popleft()
            self._differences.append(size_ns)
            self._difference_sum += size_ns
            self._spread = next_spread(self._spread, size_ns, len(self._differences))
        if stamp.sequence > base.sequence and (stepped or stamp.departure_ns < base.departure_ns):
            self._stepped_at, self._step_over_ns = stamp.sequence, now_ns + self._rule.clock_step_ns

    def _take_next(self, item: T, base: Stamp, stamp: Stamp, until_ns: int, now_ns: int) -> None:
        """A number higher than all before: held for its latch, which is 0 without a gap."""
        number = stamp.sequence
        step = number - base.sequence
        self._received = (self._received << step | 1) & _MASK if step < WINDOW else 1
        self._resolved = self._resolved << step & _MASK if step < WINDOW else 0
        record = stamp.record[: self._rule.record]
        missing, open_ = self._read(record, number, number) if record else (None, 0)
        self._resolved |= 1
        delta_ns = max(stamp.departure_ns - stamp.previous_departure_ns, 0)
        latch_ns = 0
        if step > 1:
            if self._rule.kind == STATIC:
                latch_ns = self._rule.latch_ns
            elif record and missing is None and number - len(record) <= base.sequence + 1:
                pass  # the record covers the gap, and nothing in it is for us
            else:
                if record:
                    since = record[-1] if missing is None else record[number - 1 - missing]
                    delta_ns = max(stamp.departure_ns - since.departure_ns, 0)
                longest_ns = self._rule.max_latch_ns
                if self._rule.margin > 0.0 and until_ns < END_NS:
                    longest_ns = min(max(until_ns - now_ns, 0), self._rule.clock_step_ns)
                latch_ns = int(min(self._latch_ns(number, delta_ns, open_), longest_ns))
        if self._rule.margin > 0.0:
            self._note_first(number, now_ns, delta_ns)
        self._base, self._arrival_ns = stamp, now_ns
        self.assessed_ns = latch_ns
        self._held.append(_Held(number, now_ns + latch_ns, until_ns, item))
        self._hasten(len(self._held) - 1, until_ns)

    def _learn_late(self, base: Stamp, stamp: Stamp, behind: int, now_ns: int) -> None:
        """What a number lower than the highest teaches: it has come, and how long overtaking lasted."""
        number = stamp.sequence
        self._received |= 1 << behind
        if self._rule.record:
            self._read(stamp.record[: self._rule.record], number, base.sequence)
        self._resolved |= 1 << behind
        self._overtaken = True
        if self._rule.margin > 0.0:
            # Who came first of those that overtook it is known at the next number that has come.
            above = self._received & (1 << behind) - 1
            came_ns, delta_ns = self._first[base.sequence - above.bit_length() + 1]
            self._note_first(number, came_ns, delta_ns)
            self._learn(max(now_ns - came_ns, 0), delta_ns, now_ns, number < self._highest)

    def _learn(self, lasted_ns: int, delta_ns: int, now_ns: int, violated: bool) -> None:
        """What a late event teaches the pair, and in units of the pair's spread its receiver."""
        is_new = self._overtaking.episodes == 0.0 or now_ns - lasted_ns >= self._late_ns
        self._late_ns = now_ns
        lasted, delta, target = float(max(lasted_ns, 1)), float(delta_ns), self._rule.target
        self._overtaking = learn(self._overtaking, lasted, delta, violated, target, is_new)
        if self._pool is not _NO_POOL and teaches_pool(self._overtaking):
            self._pool.learn(lasted, delta, max(self._spread, 1.0), target, is_new)

    def _take_late(self, item: T, number: int, until_ns: int, out: list[Delivery[T]]) -> None:
        """A number lower than the highest: in its place if there still is one, otherwise a violation."""
        self.counts.out_of_order += 1
        if number < self._highest:
            self.counts.violations += 1
            if not self._rule.drops:
                out.append(Delivery(item, number, True))
            return
        place = len(self._held)
        while place > 0 and self._held[place - 1].sequence > number:
            place -= 1
        after = self._held[place]
        until_ns = min(until_ns, after.until_ns)
        self._held.insert(place, _Held(number, after.due_ns, until_ns, item))
        self._hasten(place, until_ns)

    def _hasten(self, place: int, until_ns: int) -> None:
        """What stands before this place has to leave by then as well."""
        while place > 0 and self._held[place - 1].until_ns > until_ns:
            place -= 1
            self._held[place] = self._held[place]._replace(until_ns=until_ns)

    def _read(self, record: tuple[RecordEntry, ...], number: int, highest: int) -> tuple[int | None, int]:
        """Note what will not come (line 18); the latest that is for us and has not come, and how many there are."""
        missing, open_ = None, 0
        lowest = max(number - len(record), self._frontier + 1, highest - WINDOW + 1)
        for other in range(number - 1, lowest - 1, -1):
            bit = 1 << highest - other
            if not self._resolved & bit:
                if self._wants is not None and not self._wants(record[number - 1 - other].summary):
                    self._resolved |= bit
                else:
                    missing = other if missing is None else missing
                    open_ += 1
        return missing, open_

    def _latch_ns(self, number: int, delta_ns: int, missing: int) -> float:
        """Line 29 of the algorithm, with the quantile as it should be printed; ours; or the longer of the two."""
        rule, wait_ns = self._rule, 0.0
        if (rule.kind == PROBABILISTIC or not self._overtaken) and self._differences:
            factor = rule.factor if self._overtaken else rule.cold_factor
            wait_ns = max(factor * (self._difference_sum / len(self._differences)) - delta_ns, 0.0)
        if rule.margin > 0.0:
            own, pool = self._overtaking, self._pool
            taught_ns = overtaking_latch(own, delta_ns, pool.known, pool.scaled, self._spread, rule.margin)
            if comes_in_stalls(own, pool.known):
                span = number - self._opened
                if rule.record == 0 and span > STALL_WINDOW:
                    recent = (self._received >> 1 & (1 << STALL_WINDOW) - 1).bit_count()
                    missing = missing_of_usual(recent, self._arrived, span)
                if missing >= STALLED:
                    taught_ns *= STALL_MARGIN
            wait_ns = max(wait_ns, taught_ns)
        return wait_ns

    def _note_first(self, number: int, came_ns: int, delta_ns: int) -> None:
        """Keep, for every number that has come, the first arrival of any number from it on."""
        if self._rule.margin == 0.0:
            return
        self._first[number] = came_ns, delta_ns
        if len(self._first) > 2 * WINDOW and self._base is not None:
            oldest = self._base.sequence - WINDOW
            self._first = {other: first for other, first in self._first.items() if other > oldest}

    def _turn_clock(self, now_ns: int) -> None:
        back_ns = self._clock_ns - now_ns
        if back_ns > 0 and self._held:
            self._held = deque(
                held._replace(due_ns=held.due_ns - back_ns, until_ns=held.until_ns - back_ns) for held in self._held
            )
        self._clock_ns = now_ns

    def _release(self, now_ns: int, out: list[Delivery[T]]) -> None:
        """Let the first in line go for as long as it may."""
        held = self._held
        while held:
            first = held[0]
            if first.sequence > self._frontier:
                self._advance_frontier()
            if first.sequence > self._frontier and first.leaves_ns > now_ns:
                if len(held) <= self._rule.max_held:
                    return
                self.counts.forced += 1
            out.append(Delivery(first.item, first.sequence, False))
            self._highest = first.sequence
            if first.sequence > self._frontier:
                self._frontier = first.sequence
            held.popleft()

    def _advance_frontier(self) -> None:
        """Up to which number everything has come, was given up or will not come."""
        assert self._base is not None
        open_ = self._base.sequence - self._frontier
        if 0 < open_ <= WINDOW:
            missing = ~self._resolved & (1 << open_) - 1
            self._frontier = self._base.sequence - missing.bit_length()
