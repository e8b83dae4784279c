"""The plain linear scan: the twin of `tidings.scheduling._choosing`, compiled so that it can be asked at any depth.

At every decision it purges and then looks at all that waits. What earlier decisions learnt about a slot (`known`)
bounds its worth from above, so that contenders alone are computed; the choice is the same as after computing
everything.
"""

import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from tidings.compiled import compiled, compiled_inline
from tidings.scheduling import NORMAL_TABLE, TIE, TURNS, Deleted, Strategy, Waiting
from tidings.scheduling._kernels import FloatArray, IntArray, deletion_time, remaining_lifetime, tabulated_benefit
from tidings.scheduling._strategies import EBPC, FIFO, PLAN, RL, TRIAGE
from tidings.scheduling._waiting import reason_of

T = TypeVar("T")
_NOBODY = -1


class ScanQueue(Generic[T]):
    """An output queue of any strategy, without chains and without a bound on what waits, for so many events in all."""

    def __init__(
        self, strategy: Strategy, *, turn_s: float = 0.0, processing_s: float = 0.0, events: int = 1_000, pairs: int = 8
    ) -> None:
        self._strategy = strategy
        self._postponed_s = strategy.postponed_s(turn_s)
        self._processing_s = processing_s
        self._slots = empty_slots(events)
        self._rows = np.zeros((5, events * pairs))
        self._end = 0
        allowed_s, *paths = self._rows
        self._tables = (self._slots, Pairs(np.arange(events * pairs), allowed_s), Paths(*paths))
        self._order = np.zeros(events, np.int64)
        self._count = 0
        self._waiting: list[Waiting[T]] = []

    def __len__(self) -> int:
        return self._count

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:  # noqa: ARG002
        slot, count = len(self._waiting), waiting.rows.shape[1]
        start, stop = self._end, self._end + count
        self._rows[:, start:stop] = waiting.rows
        figures = (float(waiting.published_s), float(waiting.size_kb), start, stop, slot, self._strategy.quantile)
        fill_slot(slot, *figures, *self._tables, self._processing_s)
        self._waiting.append(waiting)
        self._end = stop
        self._order[self._count] = slot
        self._count += 1
        return ()

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        deleted = np.empty(self._count, np.int64)
        position, self._count, removed = decide(
            self._strategy.code,
            self._strategy.r,
            now_s,
            self._postponed_s,
            self._order,
            self._count,
            *self._tables,
            self._processing_s,
            NORMAL_TABLE,
            deleted,
        )
        gone = [self._waiting[slot] for slot in deleted[:removed].tolist()]
        reasons = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in gone)
        if position < 0:
            return None, reasons
        slot = take(self._order, self._count, position)
        self._count -= 1
        return self._waiting[slot], reasons


class Slots(NamedTuple):
    """By slot: the event's own figures, its pairs start..stop-1, when to delete it, its place in the order."""

    published_s: FloatArray
    size_kb: FloatArray
    start: IntArray
    stop: IntArray
    delete_s: FloatArray
    sequence: IntArray
    known: FloatArray


class Pairs(NamedTuple):
    """By pair: the subscription (an index into the paths) and the tighter of the two deadlines."""

    target: IntArray
    allowed_s: FloatArray


class Paths(NamedTuple):
    """By subscription: what an on-time delivery pays, and the path that is left (see `_kernels`)."""

    price: FloatArray
    nodes: FloatArray
    mean_s_per_kb: FloatArray
    sd_s_per_kb: FloatArray


def empty_slots(capacity: int) -> Slots:
    """Room for this many events."""
    return Slots(
        published_s=np.zeros(capacity),
        size_kb=np.zeros(capacity),
        start=np.zeros(capacity, np.int64),
        stop=np.zeros(capacity, np.int64),
        delete_s=np.zeros(capacity),
        sequence=np.zeros(capacity, np.int64),
        known=np.full((capacity, TURNS), math.inf),
    )


@compiled
def fill_slot(
    slot: int,
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    sequence: int,
    quantile: float,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
) -> None:
    """Enter an event whose pairs start..stop-1 are in place; its deletion time follows from them."""
    published, size, starts, stops, delete_s, sequences, known = slots
    target, allowed_s = pairs
    _, nodes, mean_s_per_kb, sd_s_per_kb = paths
    published[slot] = published_s
    size[slot] = size_kb
    starts[slot] = start
    stops[slot] = stop
    sequences[slot] = sequence
    known[slot, :] = math.inf
    delete_s[slot] = deletion_time(
        published_s,
        size_kb,
        start,
        stop,
        target,
        allowed_s,
        nodes,
        mean_s_per_kb,
        sd_s_per_kb,
        processing_s,
        quantile,
    )


@compiled
def decide(
    code: int,
    r: float,
    now_s: float,
    postponed_s: float,
    queue: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
    deleted: IntArray,
) -> tuple[int, int, int]:
    """Purge, then choose: the position to send (-1: nothing waits), how many wait now, how many were deleted."""
    _, _, _, _, delete_s, _, _ = slots
    count, removed, _ = purge(now_s, queue, count, delete_s, deleted)
    position = choose(code, r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table)
    return position, count, removed


@compiled_inline
def purge(now_s: float, queue: IntArray, count: int, delete_s: FloatArray, deleted: IntArray) -> tuple[int, int, float]:
    """Take out the slots whose deletion time has come; the others keep their order.

    Returns how many stay, how many went (their numbers are in `deleted`), and the next deletion time: until then
    there is nothing to purge.
    """
    kept = 0
    removed = 0
    soonest_s = math.inf
    for position in range(count):
        slot = queue[position]
        when_s = delete_s[slot]
        if now_s >= when_s:
            deleted[removed] = slot
            removed += 1
        else:
            queue[kept] = slot
            kept += 1
            soonest_s = min(soonest_s, when_s)
    return kept, removed, soonest_s


@compiled_inline
def take(queue: IntArray, count: int, position: int) -> int:
    """Remove the slot at `position` and return it; the others keep their order."""
    slot = queue[position]
    for later in range(position + 1, count):
        queue[later - 1] = queue[later]
    return int(slot)


@compiled
def choose(
    code: int,
    r: float,
    now_s: float,
    postponed_s: float,
    queue: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
) -> int:
    """The position in the queue to send next, -1 if nothing waits; nothing is removed.

    `postponed_s` is how much later "later" is: FT for PC and EBPC, and once more for each further turn of a plan; for
    triage the time that each event is given.
    """
    if count == 0:
        return -1
    if code == FIFO or count == 1:
        return 0
    if code == EBPC:
        return _choose_postponable(r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table)
    if code == PLAN:
        return choose_plan(r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table, TIE)
    if code == TRIAGE and _is_time_for_all(now_s, postponed_s, queue, count, slots):
        return _choose_urgent(queue, count, slots)
    return _choose_monotone(code, now_s, queue, count, slots, pairs, paths, processing_s, table)


@compiled_inline
def monotone_worth(
    code: int,
    slot: int,
    now_s: float,
    published_s: FloatArray,
    size_kb: FloatArray,
    start: IntArray,
    stop: IntArray,
    target: IntArray,
    allowed_s: FloatArray,
    price: FloatArray,
    nodes: FloatArray,
    mean_s_per_kb: FloatArray,
    sd_s_per_kb: FloatArray,
    processing_s: float,
    table: FloatArray,
) -> float:
    """EB, or for RL the negative mean of the deadlines still ahead: neither ever rises."""
    worth = 0.0
    if code == RL:
        # As a moment, not as time left, it stays the same until a deadline passes, and then the mean moves out.
        worth = -(now_s + remaining_lifetime(now_s, published_s[slot], start[slot], stop[slot], allowed_s))
    else:
        worth = tabulated_benefit(
            now_s,
            published_s[slot],
            size_kb[slot],
            start[slot],
            stop[slot],
            target,
            allowed_s,
            price,
            nodes,
            mean_s_per_kb,
            sd_s_per_kb,
            processing_s,
            0.0,
            table,
        )
    return worth


@compiled_inline
def _choose_monotone(
    code: int,
    now_s: float,
    queue: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
) -> int:
    published_s, size_kb, start, stop, _, _, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    likely = 0
    for position in range(1, count):
        if known[queue[position], 0] > known[queue[likely], 0]:
            likely = position
    best = -math.inf
    # The likely winner goes first, so that its worth rules out most of the others.
    for turn in range(-1, count):
        slot = queue[likely if turn < 0 else turn]
        if turn == likely or known[slot, 0] < best - TIE:
            continue
        known[slot, 0] = monotone_worth(
            code,
            slot,
            now_s,
            published_s,
            size_kb,
            start,
            stop,
            target,
            allowed_s,
            price,
            nodes,
            mean_s_per_kb,
            sd_s_per_kb,
            processing_s,
            table,
        )
        best = max(best, known[slot, 0])
    # Whatever is still within TIE of the best was computed just now.
    chosen = 0
    for position in range(count):
        if known[queue[position], 0] >= best - TIE:
            chosen = position
            if code != TRIAGE:
                break
    return chosen


@compiled_inline
def _is_time_for_all(now_s: float, step_s: float, queue: IntArray, count: int, slots: Slots) -> bool:
    """Whether, at `step_s` for each and the most urgent first, the last of all would leave before it is deleted."""
    _, _, _, _, delete_s, _, _ = slots
    if step_s <= 0.0:
        return True
    # By how many steps there are left: the k-th to leave needs k. More than `count` steps are enough for anyone.
    urgent = np.zeros(count + 1, np.int64)
    for position in range(count):
        steps = (delete_s[queue[position]] - now_s) / step_s
        if steps <= count:
            urgent[max(int(steps), 0)] += 1
    needed = 0
    for steps in range(count + 1):
        needed += urgent[steps]
        if needed > steps:
            return False
    return True


@compiled_inline
def _choose_urgent(queue: IntArray, count: int, slots: Slots) -> int:
    _, _, _, _, delete_s, _, _ = slots
    first = 0
    for position in range(1, count):
        if delete_s[queue[position]] < delete_s[queue[first]]:
            first = position
    return first


@compiled_inline
def _choose_postponable(
    r: float,
    now_s: float,
    postponed_s: float,
    queue: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
) -> int:
    published_s, size_kb, start, stop, _, _, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    # Column 0 bounds EB from above; column 1 is the EBPC of this decision, or of the last one that computed it.
    likely = 0
    for position in range(1, count):
        if known[queue[position], 1] > known[queue[likely], 1]:
            likely = position
    best = -math.inf
    for turn in range(-1, count):
        slot = queue[likely if turn < 0 else turn]
        if turn == likely:
            continue
        if known[slot, 0] < best - TIE:
            known[slot, 1] = -math.inf
            continue
        worth = 0.0
        for step in range(2):
            # One place for the long call keeps the compiled code small: first EB, then EB'.
            value = tabulated_benefit(
                now_s,
                published_s[slot],
                size_kb[slot],
                start[slot],
                stop[slot],
                target,
                allowed_s,
                price,
                nodes,
                mean_s_per_kb,
                sd_s_per_kb,
                processing_s,
                postponed_s * step,
                table,
            )
            if step == 0:
                known[slot, 0] = worth = value
                if worth < best - TIE or r == 1.0:
                    break
            else:
                worth -= (1.0 - r) * value
        known[slot, 1] = worth
        best = max(best, worth)
    for position in range(count):
        if known[queue[position], 1] >= best - TIE:
            return position
    return 0


@compiled_inline
def choose_plan(
    r: float,
    now_s: float,
    turn_s: float,
    queue: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
    tie: float,
) -> int:
    """The position in the queue (of at least one event) whose T is the greatest; `known` is of discounted worths."""
    published_s, size_kb, start, stop, _, _, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    top = np.full((TURNS, TURNS), 0.0)
    holder = np.full((TURNS, TURNS), _NOBODY)
    used = np.full(TURNS, _NOBODY)
    without = np.zeros(TURNS)
    best = -math.inf
    planned = 0.0
    discount = 1.0 - r
    # Turns 3, 2, 1 first, to know what the rest of the plan is worth; then the turn at hand.
    for turn in range(TURNS - 1, -1, -1):
        if turn == 0:
            planned = _plan(top, holder, _NOBODY, used)
            for place in range(1, TURNS):
                without[place] = _plan(top, holder, used[place], np.empty(TURNS, np.int64)) if used[place] >= 0 else 0.0
        for position in range(count):
            slot = queue[position]
            rest = planned
            if turn == 0:
                for place in range(1, TURNS):
                    if used[place] == position:
                        rest = without[place]
                if known[slot, 0] + rest < best - tie:
                    continue
            elif known[slot, turn] <= top[turn, TURNS - 1]:
                continue
            value = tabulated_benefit(
                now_s,
                published_s[slot],
                size_kb[slot],
                start[slot],
                stop[slot],
                target,
                allowed_s,
                price,
                nodes,
                mean_s_per_kb,
                sd_s_per_kb,
                processing_s,
                turn_s * turn,
                table,
            )
            if turn > 0:
                value *= discount
            known[slot, turn] = value
            if turn == 0:
                best = max(best, value + rest)
            else:
                _enter(top, holder, turn, value, position)
    for position in range(count):
        rest = planned
        for place in range(1, TURNS):
            if used[place] == position:
                rest = without[place]
        if known[queue[position], 0] + rest >= best - tie:
            return position
    return 0


@compiled_inline
def _enter(top: FloatArray, holder: IntArray, turn: int, value: float, position: int) -> None:
    """Keep the best of a turn in falling order; of equals the earlier enqueued stays ahead."""
    if value > top[turn, TURNS - 1]:
        place = TURNS - 1
        while place > 0 and value > top[turn, place - 1]:
            top[turn, place] = top[turn, place - 1]
            holder[turn, place] = holder[turn, place - 1]
            place -= 1
        top[turn, place] = value
        holder[turn, place] = position


@compiled
def _plan(top: FloatArray, holder: IntArray, excluded: int, used: IntArray) -> float:
    """The worth of the best plan of turns 1..3 without the event at position `excluded`; `used` gets its events."""
    best = -1.0
    # One step beyond the list is "nobody"; the last turn takes the best that the first two have left.
    for first in range(TURNS + 1):
        a = holder[1, first] if first < TURNS else _NOBODY
        if a >= 0 and a == excluded:
            continue
        value_a = top[1, first] if a >= 0 else 0.0
        for second in range(TURNS + 1):
            b = holder[2, second] if second < TURNS else _NOBODY
            if b >= 0 and b in (excluded, a):
                continue
            value_b = top[2, second] if b >= 0 else 0.0
            c = _NOBODY
            value_c = 0.0
            for third in range(TURNS):
                c = holder[3, third]
                if c < 0 or c not in (excluded, a, b):
                    value_c = top[3, third] if c >= 0 else 0.0
                    break
                c = _NOBODY
            if value_a + value_b + value_c > best:
                best = value_a + value_b + value_c
                used[1], used[2], used[3] = a, b, c
    return best
