"""The receiver over arrays, compiled: streams of arrivals in, delivery times and counts out.

The rules are those of `_sequencer`, which is the readable form and the twin: both decide alike for every event of
every stream, to the nanosecond. Here the sequence numbers of the window live in a ring of slots (a slot holds the
number itself, so nothing is cleared when the window moves) instead of the bits of an integer, and what is held in a
ring of rows. All streams' slots and rings lie end to end in one array: pair p has the p-th part.

The record of event n is not carried along: it is the `record` rows before n of its publisher's table, whose departures
all streams of the publisher share. Which of them a summary matches is given by the numbers `wanted` of the stream; they
are set in flags while the stream is replayed and taken out after it, so that memory is that of the longest tables, not
of all streams' tables. `until` is when each event has to leave at the latest, or empty.

Streams are replayed in groups: those of one receiver, which learn from each other, in the order of their arrivals. A
stream that learns from no other is a group of its own.

A replay in blocks (`Kept`) remembers of each stream what the next block needs: its record, its samples, which numbers
of the window have come or will not, who came first from those on, and what is held.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.ordering._latches import (
    STALL_MARGIN,
    STALL_WINDOW,
    STALLED,
    UNKNOWN_OVERTAKING,
    Overtaking,
    comes_in_stalls_compiled,
    learn_compiled,
    missing_of_usual_compiled,
    next_spread_compiled,
    overtaking_latch_compiled,
    teaches_pool_compiled,
    would_violate_compiled,
)
from tidings.ordering._policies import PROBABILISTIC, STATIC, Rule

__all__ = [
    "COUNTS",
    "END_NS",
    "STILL_HELD",
    "WINDOW",
    "Columns",
    "FlagArray",
    "Groups",
    "IntArray",
    "Kept",
    "Memory",
    "Out",
    "replay_streams",
]

IntArray = NDArray[np.int64]
FlagArray = NDArray[np.bool_]

WINDOW: Final = 1024
"""How many sequence numbers up to the highest are remembered; of one before them it is forgotten whether it came."""

COUNTS: Final = (
    "received",
    "out_of_order",
    "violations",
    "duplicates",
    "forgotten",
    "restarts",
    "forced",
    "hold_ns",
    "assessed_ns",
)
RECEIVED, OUT_OF_ORDER, VIOLATIONS, DUPLICATES, FORGOTTEN, RESTARTS, FORCED, HOLD, ASSESSED = range(len(COUNTS))
DROPPED: Final = -1
STILL_HELD: Final = -2
NOTHING: Final = -1
END_NS: Final = 2**62

PAIR: Final = np.dtype(
    [
        *((name, np.int64) for name in ("head", "waiting", "base", "base_left", "base_came", "frontier", "highest")),
        *((name, np.int64) for name in ("opened", "ring_count", "ring_next", "ring_sum", "overtaken", "late")),
        *((name, np.int64) for name in ("arrived", "stepped_at", "step_over", "clock", "begun")),
        *((name, np.float64) for name in ("spread", *Overtaking._fields)),
    ]
)
"""What is known of a pair of publisher and receiver; the last two rows are a group's pools, in time and in spreads."""

Pairs = NDArray[Any]


class Columns(NamedTuple):
    """The arrivals of all streams and the tables of their publishers, as in `Streams`."""

    starts: IntArray
    sequence: IntArray
    departure: IntArray
    previous: IntArray
    arrival: IntArray
    table_starts: IntArray
    table_departure: IntArray
    wanted_starts: IntArray
    wanted: IntArray
    until: IntArray


class Groups(NamedTuple):
    """Group g is the streams members[starts[g]:starts[g + 1]] and the rows[row_starts[g]:row_starts[g + 1]].

    `place` says by row which member its stream is, `flag_starts` by stream where its flags start. If the streams do not
    share what they learn, every stream is a group, and the others but `starts` are empty.
    """

    starts: IntArray
    members: IntArray
    row_starts: IntArray
    rows: IntArray
    place: IntArray
    flag_starts: IntArray


class Memory(NamedTuple):
    """What the pairs of one group need; `capacity` of each pair's ring of held events is a power of two.

    The slots are by sequence number modulo WINDOW: has it come, has it come or will not, who came first from it on.
    `flags` are all False, before and after.
    """

    capacity: int
    pairs: Pairs
    received: IntArray
    resolved: IntArray
    first_arrival: IntArray
    first_delta: IntArray
    held_sequence: IntArray
    held_due: IntArray
    held_until: IntArray
    held_row: IntArray
    ring: IntArray
    flags: FlagArray


class Out(NamedTuple):
    """By row when it was delivered, its latch, and (or empty) since when it had been overtaken; counts by stream."""

    delivered: IntArray
    assessed: IntArray
    lasted: IntArray
    counts: IntArray


class Kept(NamedTuple):
    """What a replay in blocks knows of each stream when a block begins, and room for the same when it ends.

    No arrival of a later block is before `now`. The records, two pools for each group, the samples and the window (by
    number modulo WINDOW: 1 if it has come, 2 if it has come or will not) are renewed in place. What varies in length is
    read from one list and written to another: `firsts` (arrival, delta) of the numbers that have come, in the order of
    the window, and `held` (number, due, until, row).
    """

    now: int
    pairs: Pairs
    pools: Pairs
    ring: IntArray
    window: NDArray[np.uint8]
    first_starts: IntArray
    firsts: IntArray
    held_starts: IntArray
    held: IntArray
    next_first_starts: IntArray
    next_firsts: IntArray
    next_held_starts: IntArray
    next_held: IntArray


@borrowing
def replay_streams(rule: Rule, columns: Columns, groups: Groups, memory: Memory, out: Out, kept: Kept | None) -> None:
    """Replay every stream (rows starts[i] to starts[i + 1], by arrival) under one rule, whole or in blocks."""
    shares = len(groups.members) > 0
    for group in range(len(groups.starts) - 1):
        first = groups.starts[group]
        size = groups.starts[group + 1] - first
        for pool in range(2):
            _keep(memory.pairs, len(memory.pairs) - 2 + pool, UNKNOWN_OVERTAKING)
            if kept is not None and shares:
                memory.pairs[len(memory.pairs) - 2 + pool] = kept.pools[2 * group + pool]
        for p in range(size):
            stream = groups.members[first + p] if shares else first + p
            _begin_pair(p, memory)
            if kept is not None:
                _resume_pair(rule, p, stream, kept, memory)
            _set_flags(rule, stream, columns, groups, memory, True)
        if shares:
            for at in range(groups.row_starts[group], groups.row_starts[group + 1]):
                row = groups.rows[at]
                p = groups.place[row]
                _take(rule, p, groups.members[first + p], row, True, columns, groups, memory, out)
        else:
            for row in range(columns.starts[first], columns.starts[first + 1]):
                _take(rule, 0, first, row, False, columns, groups, memory, out)
        for p in range(size):
            stream = groups.members[first + p] if shares else first + p
            _set_flags(rule, stream, columns, groups, memory, False)
            if kept is not None:
                _release_due(p, kept.now, memory, out)
                _keep_pair(rule, p, stream, kept, memory)
            else:
                _release_due(p, END_NS, memory, out)
                for row in range(columns.starts[stream], columns.starts[stream + 1]):
                    if out.delivered[row] != DROPPED:
                        out.counts[stream, HOLD] += out.delivered[row] - columns.arrival[row]
        if kept is not None and shares:
            for pool in range(2):
                kept.pools[2 * group + pool] = memory.pairs[len(memory.pairs) - 2 + pool]


@borrowing_inner
def _resume_pair(rule: Rule, p: int, stream: int, kept: Kept, memory: Memory) -> None:
    """A pair as the block before left it."""
    memory.pairs[p] = kept.pairs[stream]
    pair, own = memory.pairs[p], p * memory.capacity
    pair.head = 0
    for sample in range(rule.samples):
        memory.ring[p * rule.samples + sample] = kept.ring[stream * rule.samples + sample]
    first = kept.first_starts[stream]
    for slot in range(WINDOW):
        known, place = kept.window[stream * WINDOW + slot], p * WINDOW + slot
        if known != 0:
            number = pair.base - (pair.base - slot) % WINDOW
            if known & 1 != 0:
                memory.received[place] = number
                if rule.margin > 0.0:
                    memory.first_arrival[place], memory.first_delta[place] = (
                        kept.firsts[first, 0],
                        kept.firsts[first, 1],
                    )
                    first += 1
            if known & 2 != 0:
                memory.resolved[place] = number
    for waiting in range(pair.waiting):
        at = kept.held_starts[stream] + waiting
        memory.held_sequence[own + waiting], memory.held_due[own + waiting] = kept.held[at, 0], kept.held[at, 1]
        memory.held_until[own + waiting], memory.held_row[own + waiting] = kept.held[at, 2], kept.held[at, 3]


@borrowing_inner
def _keep_pair(rule: Rule, p: int, stream: int, kept: Kept, memory: Memory) -> None:
    """Note what the next block has to know; streams end in the order of groups, so each list says where it starts."""
    kept.pairs[stream] = memory.pairs[p]
    pair, own, mask = memory.pairs[p], p * memory.capacity, memory.capacity - 1
    for sample in range(rule.samples):
        kept.ring[stream * rule.samples + sample] = memory.ring[p * rule.samples + sample]
    first = kept.next_first_starts[-1]
    kept.next_first_starts[stream] = first
    for slot in range(WINDOW):
        number, place, known = pair.base - (pair.base - slot) % WINDOW, p * WINDOW + slot, 0
        if number >= 0 and memory.received[place] == number:
            known = 1
            if rule.margin > 0.0:
                kept.next_firsts[first, 0] = memory.first_arrival[place]
                kept.next_firsts[first, 1] = memory.first_delta[place]
                first += 1
        if number >= 0 and memory.resolved[place] == number:
            known += 2
        kept.window[stream * WINDOW + slot] = known
    kept.next_first_starts[-1] = first
    at = kept.next_held_starts[-1]
    kept.next_held_starts[stream] = at
    for waiting in range(pair.waiting):
        place = own + ((pair.head + waiting) & mask)
        kept.next_held[at, 0], kept.next_held[at, 1] = memory.held_sequence[place], memory.held_due[place]
        kept.next_held[at, 2], kept.next_held[at, 3] = memory.held_until[place], memory.held_row[place]
        at += 1
    kept.next_held_starts[-1] = at


@borrowing_inner
def _begin_pair(p: int, memory: Memory) -> None:
    pair = memory.pairs[p]
    pair.head = pair.waiting = pair.ring_count = pair.ring_next = pair.ring_sum = 0
    pair.base = pair.base_left = pair.base_came = pair.frontier = pair.highest = pair.opened = NOTHING
    pair.stepped_at = pair.step_over = NOTHING
    pair.overtaken = pair.late = pair.arrived = pair.clock = pair.begun = 0
    pair.spread = 0.0
    _keep(memory.pairs, p, UNKNOWN_OVERTAKING)
    _forget_window(p, memory)


@borrowing_step
def _forget_window(p: int, memory: Memory) -> None:
    for place in range(p * WINDOW, (p + 1) * WINDOW):
        memory.received[place] = memory.resolved[place] = NOTHING


@borrowing_inner
def _set_flags(rule: Rule, stream: int, columns: Columns, groups: Groups, memory: Memory, value: bool) -> None:
    if rule.record > 0:
        start = groups.flag_starts[stream] if len(groups.flag_starts) > 0 else 0
        for at in range(columns.wanted_starts[stream], columns.wanted_starts[stream + 1]):
            memory.flags[start + columns.wanted[at]] = value


@borrowing_step
def _known(pairs: Pairs, p: int) -> Overtaking:
    pair = pairs[p]
    return Overtaking(
        pair.hold_ns,
        pair.reach_ns,
        pair.violations,
        pair.balance,
        pair.longest_hold_ns,
        pair.longest_reach_ns,
        pair.lates,
        pair.burst,
        pair.squares,
        pair.episodes,
    )


@borrowing_step
def _keep(pairs: Pairs, p: int, known: Overtaking) -> None:
    pair = pairs[p]
    pair.hold_ns, pair.reach_ns, pair.violations = known.hold_ns, known.reach_ns, known.violations
    pair.balance = known.balance
    pair.longest_hold_ns, pair.longest_reach_ns = known.longest_hold_ns, known.longest_reach_ns
    pair.lates, pair.burst, pair.squares, pair.episodes = known.lates, known.burst, known.squares, known.episodes


@borrowing_step
def _release_due(p: int, now: int, memory: Memory, out: Out) -> None:
    """Timers that have ended by now."""
    pair, mask, own = memory.pairs[p], memory.capacity - 1, p * memory.capacity
    while pair.waiting > 0:
        place = own + (pair.head & mask)
        if memory.held_sequence[place] > pair.frontier:
            leaves = min(memory.held_due[place], memory.held_until[place])
            if leaves > now:
                break
            pair.clock = max(pair.clock, leaves)
        out.delivered[memory.held_row[place]] = pair.clock
        pair.highest = memory.held_sequence[place]
        pair.frontier = max(pair.frontier, pair.highest)
        _advance_frontier(p, memory)
        pair.head += 1
        pair.waiting -= 1


@borrowing_step
def _take(
    rule: Rule,
    p: int,
    stream: int,
    row: int,
    shares: bool,
    columns: Columns,
    groups: Groups,
    memory: Memory,
    out: Out,
) -> None:
    """One arrival of one pair; timers that end before it come first."""
    pair, slot = memory.pairs[p], p * WINDOW
    now, n, left = columns.arrival[row], columns.sequence[row], columns.departure[row]
    if now < pair.clock:
        _turn_clock(p, now, memory)
    _release_due(p, now, memory, out)
    pair.clock = now
    out.counts[stream, RECEIVED] += 1
    out.assessed[row] = 0
    difference = (now - pair.base_came) - (left - pair.base_left)
    if pair.begun and n <= pair.base and not (n == pair.base and left == pair.base_left):
        straggler = n < pair.stepped_at and now < pair.step_over
        if not straggler and (left > pair.base_left or difference > rule.clock_step_ns):
            out.counts[stream, RESTARTS] += 1
            _flush(p, memory, out)
    if not pair.begun:
        _begin_stream(p, row, columns, memory)
        out.delivered[row] = now
        return
    known = n > pair.base - WINDOW
    if n <= pair.base and (memory.received[slot + n % WINDOW] == n if known else _is_held(n, p, memory)):
        out.counts[stream, DUPLICATES] += 1
        out.delivered[row] = DROPPED
        return
    pair.arrived += 1
    missing, open_ = NOTHING, 0
    if known:
        _sample(rule, p, n, abs(difference), left, now, memory)
        memory.received[slot + n % WINDOW] = n
        flag = groups.flag_starts[stream] if len(groups.flag_starts) > 0 else 0
        lowest = max(n - rule.record, 0, pair.frontier + 1, max(pair.base, n) - WINDOW + 1)
        missing, open_ = _read_record(n, lowest, slot, flag, memory)
        memory.resolved[slot + n % WINDOW] = n
    if n > pair.base:
        _take_next(rule, p, stream, row, missing, open_, columns, memory, out)
    else:
        limit = columns.until[row] if len(columns.until) > 0 else END_NS
        _take_late(rule, p, n, stream, row, known, limit, shares, memory, out)
    _release_now(rule, p, stream, memory, out)


@borrowing_inner
def _turn_clock(p: int, now: int, memory: Memory) -> None:
    """The receiver's clock went back: what is held keeps the wait it had left."""
    pair, mask, own = memory.pairs[p], memory.capacity - 1, p * memory.capacity
    for offset in range(pair.waiting):
        memory.held_due[own + ((pair.head + offset) & mask)] -= pair.clock - now
        memory.held_until[own + ((pair.head + offset) & mask)] -= pair.clock - now
    pair.clock = now


@borrowing_inner
def _flush(p: int, memory: Memory, out: Out) -> None:
    """The publisher began again: what is held leaves, and the window is forgotten."""
    pair, mask, own = memory.pairs[p], memory.capacity - 1, p * memory.capacity
    for offset in range(pair.waiting):
        out.delivered[memory.held_row[own + ((pair.head + offset) & mask)]] = pair.clock
    pair.waiting = pair.begun = 0
    _forget_window(p, memory)


@borrowing_inner
def _begin_stream(p: int, row: int, columns: Columns, memory: Memory) -> None:
    pair, n, left = memory.pairs[p], columns.sequence[row], columns.departure[row]
    place = p * WINDOW + n % WINDOW
    pair.begun = pair.arrived = 1
    pair.base, pair.base_left, pair.base_came = n, left, pair.clock
    pair.frontier = pair.highest = pair.opened = n
    pair.stepped_at = NOTHING
    memory.received[place] = memory.resolved[place] = n
    memory.first_arrival[place], memory.first_delta[place] = pair.clock, max(left - columns.previous[row], 0)


@borrowing_step
def _take_next(
    rule: Rule,
    p: int,
    stream: int,
    row: int,
    missing: int,
    open_: int,
    columns: Columns,
    memory: Memory,
    out: Out,
) -> None:
    """A number higher than all before: held for its latch, which is 0 without a gap."""
    pair, n, left = memory.pairs[p], columns.sequence[row], columns.departure[row]
    limit = columns.until[row] if len(columns.until) > 0 else END_NS
    earliest, latch = max(n - rule.record, 0), 0
    delta = max(left - columns.previous[row], 0)
    if n != pair.base + 1:
        if rule.kind == STATIC:
            latch = rule.latch_ns
        elif earliest == n or missing != NOTHING or earliest > pair.base + 1:
            if earliest < n:
                since = columns.table_starts[stream] + (missing if missing != NOTHING else earliest)
                delta = max(left - columns.table_departure[since], 0)
            latch = _latch(rule, p, n, delta, open_, limit, memory)
    out.assessed[row] = latch
    out.counts[stream, ASSESSED] += latch
    place = p * WINDOW + n % WINDOW
    memory.first_arrival[place], memory.first_delta[place] = pair.clock, delta
    pair.base, pair.base_left, pair.base_came = n, left, pair.clock
    place = p * memory.capacity + ((pair.head + pair.waiting) & (memory.capacity - 1))
    memory.held_sequence[place], memory.held_due[place], memory.held_row[place] = n, pair.clock + latch, row
    _hasten(pair.waiting, limit, p, memory)
    pair.waiting += 1


@borrowing_step
def _release_now(rule: Rule, p: int, stream: int, memory: Memory, out: Out) -> None:
    """Let the first in line go for as long as it may, at the time of an arrival."""
    pair, mask, own = memory.pairs[p], memory.capacity - 1, p * memory.capacity
    while pair.waiting > 0:
        _advance_frontier(p, memory)
        place = own + (pair.head & mask)
        leaves = min(memory.held_due[place], memory.held_until[place])
        if memory.held_sequence[place] > pair.frontier and leaves > pair.clock:
            if pair.waiting <= rule.max_held:
                break
            out.counts[stream, FORCED] += 1
        out.delivered[memory.held_row[place]] = pair.clock
        pair.highest = memory.held_sequence[place]
        pair.frontier = max(pair.frontier, pair.highest)
        pair.head += 1
        pair.waiting -= 1


@borrowing_step
def _sample(rule: Rule, p: int, n: int, size: int, left: int, now: int, memory: Memory) -> None:
    """The size of a delay difference, unless a clock was set."""
    pair = memory.pairs[p]
    if size <= rule.clock_step_ns:
        place = p * rule.samples + pair.ring_next
        if pair.ring_count == rule.samples:
            pair.ring_sum -= memory.ring[place]
        else:
            pair.ring_count += 1
        memory.ring[place] = size
        pair.ring_sum += size
        pair.ring_next = pair.ring_next + 1 if pair.ring_next + 1 < rule.samples else 0
        pair.spread = next_spread_compiled(pair.spread, size, pair.ring_count)
    if n > pair.base and (size > rule.clock_step_ns or left < pair.base_left):
        pair.stepped_at, pair.step_over = n, now + rule.clock_step_ns


@borrowing_step
def _take_late(
    rule: Rule, p: int, n: int, stream: int, row: int, known: bool, limit: int, shares: bool, memory: Memory, out: Out
) -> None:
    """A number lower than the highest: what it teaches, and its place if there still is one."""
    pair, slot = memory.pairs[p], p * WINDOW
    now, violated = pair.clock, n < pair.highest
    out.counts[stream, OUT_OF_ORDER] += 1
    if rule.margin > 0.0 or len(out.lasted) > 0:
        # Who came first of those that overtook it is known at the next number that has come and is known.
        after = max(n, pair.base - WINDOW) + 1
        while memory.received[slot + after % WINDOW] != after:
            after += 1
        came, delta = memory.first_arrival[slot + after % WINDOW], memory.first_delta[slot + after % WINDOW]
        if known:
            memory.first_arrival[slot + n % WINDOW], memory.first_delta[slot + n % WINDOW] = came, delta
            _learn(rule, p, max(now - came, 0), delta, violated, shares, memory)
        if len(out.lasted) > 0:
            out.lasted[row] = max(now - came, 0) if n > pair.opened else END_NS
    if known:
        pair.overtaken = 1
    else:
        out.counts[stream, FORGOTTEN] += 1
    if violated:
        out.counts[stream, VIOLATIONS] += 1
        out.delivered[row] = DROPPED if rule.drops else now
    else:
        _insert(n, row, limit, p, memory)
        pair.waiting += 1


@borrowing_step
def _learn(rule: Rule, p: int, lasted: int, delta: int, violated: bool, shares: bool, memory: Memory) -> None:
    """What a late event teaches the pair, and its receiver's pools."""
    pairs, pair, target = memory.pairs, memory.pairs[p], rule.target
    is_new = pair.episodes == 0.0 or pair.clock - lasted >= pair.late
    pair.late = pair.clock
    took, gap = float(max(lasted, 1)), float(delta)
    own = learn_compiled(_known(pairs, p), took, gap, violated, target, is_new)
    _keep(pairs, p, own)
    if shares and teaches_pool_compiled(own):
        spread = max(pair.spread, 1.0)
        for pool in range(len(pairs) - 2, len(pairs)):
            known = _known(pairs, pool)
            _keep(
                pairs, pool, learn_compiled(known, took, gap, would_violate_compiled(known, took, gap), target, is_new)
            )
            took, gap = took / spread, gap / spread


@borrowing_step
def _advance_frontier(p: int, memory: Memory) -> None:
    """Up to which number everything has come, was given up or will not come."""
    pair, slot = memory.pairs[p], p * WINDOW
    frontier, base = pair.frontier, pair.base
    while frontier < base and frontier + 1 > base - WINDOW:
        if memory.resolved[slot + (frontier + 1) % WINDOW] != frontier + 1:
            break
        frontier += 1
    pair.frontier = frontier


@borrowing_step
def _read_record(n: int, lowest: int, slot: int, flag: int, memory: Memory) -> tuple[int, int]:
    """Note what will not come; the latest before n that matches and is missing, or NOTHING, and how many there are."""
    missing, open_ = NOTHING, 0
    for other in range(n - 1, lowest - 1, -1):
        if memory.resolved[slot + other % WINDOW] != other:
            if not memory.flags[flag + other]:
                memory.resolved[slot + other % WINDOW] = other
            else:
                missing = max(missing, other)
                open_ += 1
    return missing, open_


@borrowing_step
def _latch(rule: Rule, p: int, n: int, delta: int, missing: int, limit: int, memory: Memory) -> int:
    """The paper's rule, what overtaking has taught, or the longer of the two."""
    pair, wait = memory.pairs[p], 0.0
    if (rule.kind == PROBABILISTIC or not pair.overtaken) and pair.ring_count > 0:
        factor = rule.factor if pair.overtaken else rule.cold_factor
        wait = max(factor * (pair.ring_sum / pair.ring_count) - delta, 0.0)
    if rule.margin > 0.0:
        pool, scaled = _known(memory.pairs, len(memory.pairs) - 2), _known(memory.pairs, len(memory.pairs) - 1)
        own = _known(memory.pairs, p)
        taught = overtaking_latch_compiled(own, delta, pool, scaled, pair.spread, rule.margin)
        if comes_in_stalls_compiled(own, pool):
            if rule.record == 0 and n - pair.opened > STALL_WINDOW:
                recent = 0
                for other in range(n - STALL_WINDOW, n):
                    recent += memory.received[p * WINDOW + other % WINDOW] == other
                missing = missing_of_usual_compiled(recent, pair.arrived, n - pair.opened)
            if missing >= STALLED:
                taught *= STALL_MARGIN
        wait = max(wait, taught)
    longest = rule.max_latch_ns
    if rule.margin > 0.0 and limit < END_NS:
        longest = min(max(limit - pair.clock, 0), rule.clock_step_ns)
    return int(min(wait, longest))


@borrowing_inner
def _is_held(n: int, p: int, memory: Memory) -> bool:
    """Whether a number is among those that are held."""
    pair, mask = memory.pairs[p], memory.capacity - 1
    found = False
    for offset in range(pair.waiting):
        found |= memory.held_sequence[p * memory.capacity + ((pair.head + offset) & mask)] == n
    return found


@borrowing_step
def _hasten(offset: int, limit: int, p: int, memory: Memory) -> None:
    """The event at this place has to leave by then, and what stands before it as well."""
    head, mask, own = memory.pairs[p].head, memory.capacity - 1, p * memory.capacity
    memory.held_until[own + ((head + offset) & mask)] = limit
    while offset > 0 and memory.held_until[own + ((head + offset - 1) & mask)] > limit:
        offset -= 1
        memory.held_until[own + ((head + offset) & mask)] = limit


@borrowing_step
def _insert(n: int, row: int, limit: int, p: int, memory: Memory) -> None:
    """Put a late event in its place before its successor, with which it leaves."""
    head, offset, mask, own = memory.pairs[p].head, memory.pairs[p].waiting, memory.capacity - 1, p * memory.capacity
    while offset > 0 and memory.held_sequence[own + ((head + offset - 1) & mask)] > n:
        before, after = own + ((head + offset - 1) & mask), own + ((head + offset) & mask)
        memory.held_sequence[after] = memory.held_sequence[before]
        memory.held_due[after] = memory.held_due[before]
        memory.held_until[after] = memory.held_until[before]
        memory.held_row[after] = memory.held_row[before]
        offset -= 1
    place, after = own + ((head + offset) & mask), own + ((head + offset + 1) & mask)
    memory.held_sequence[place], memory.held_row[place] = n, row
    memory.held_due[place] = memory.held_due[after]
    _hasten(offset, min(limit, memory.held_until[after]), p, memory)
