"""The receiver over arrays, compiled: streams of arrivals in, delivery times and counts out.

The rules are those of `_sequencer`, which is the readable form and the twin: both decide alike for every event of
every stream, to the nanosecond. Here the sequence numbers of the window live in a ring of slots (a slot holds the
number itself, so nothing is cleared when the window moves) instead of the bits of an integer, and what is held in a
ring of rows.

The record of event n is not carried along: it is the `record` rows before n of its publisher's table, whose departures
all streams of the publisher share. Which of them a summary matches is said by the numbers `wanted` of the stream; they
are set in one array of flags while the stream is replayed and taken out after it, so that memory is that of the longest
table, not of all streams' tables. `until` is when each event has to leave at the latest, or empty.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled, compiled_inline
from tidings.ordering._latches import UNKNOWN_OVERTAKING, Overtaking, learn_compiled, overtaking_latch_compiled
from tidings.ordering._policies import PROBABILISTIC, QUANTILE, STATIC, Rule

__all__ = ["COUNTS", "END_NS", "WINDOW", "FlagArray", "IntArray", "replay_streams"]

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
NOTHING: Final = -1
END_NS: Final = 2**62


class Slots(NamedTuple):
    """By sequence number modulo WINDOW: has it come, has it come or will not, and who came first from it on."""

    received: IntArray
    resolved: IntArray
    first_arrival: IntArray
    first_delta: IntArray


class Held(NamedTuple):
    """A ring of held events, a power of two long."""

    sequence: IntArray
    due: IntArray
    until: IntArray
    row: IntArray


@compiled
def replay_streams(
    rule: Rule,
    starts: IntArray,
    sequence: IntArray,
    departure: IntArray,
    previous: IntArray,
    arrival: IntArray,
    table_starts: IntArray,
    table_departure: IntArray,
    wanted_starts: IntArray,
    wanted: IntArray,
    until: IntArray,
    flags: FlagArray,
    delivered: IntArray,
    assessed: IntArray,
    overtaken: IntArray,
    counts: IntArray,
) -> None:
    """Replay every stream (rows starts[i] to starts[i + 1], by arrival) under one rule, into the last four arrays.

    `flags` is as long as the longest table (with a record) and all False, before and after. `overtaken` may be empty.
    """
    slots = Slots(
        np.empty(WINDOW, np.int64), np.empty(WINDOW, np.int64), np.empty(WINDOW, np.int64), np.empty(WINDOW, np.int64)
    )
    capacity = 1
    while capacity < rule.max_held + 2:
        capacity *= 2
    held = Held(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
    )
    ring = np.empty(rule.samples, np.int64)
    for stream in range(len(starts) - 1):
        start, stop = starts[stream], starts[stream + 1]
        table = table_departure[table_starts[stream] :]
        matching = wanted[wanted_starts[stream] : wanted_starts[stream + 1]]
        if rule.record > 0:
            for number in matching:
                flags[number] = True
        arrivals = (
            sequence[start:stop],
            departure[start:stop],
            previous[start:stop],
            arrival[start:stop],
            until[start:stop],
        )
        _replay_stream(
            rule,
            arrivals,
            table,
            flags,
            delivered[start:stop],
            assessed[start:stop],
            overtaken[start:stop],
            counts[stream],
            slots,
            ring,
            held,
        )
        if rule.record > 0:
            for number in matching:
                flags[number] = False


@compiled
def _replay_stream(
    rule: Rule,
    arrivals: tuple[IntArray, IntArray, IntArray, IntArray, IntArray],
    table: IntArray,
    wanted: FlagArray,
    delivered: IntArray,
    assessed: IntArray,
    lasted: IntArray,
    counts: IntArray,
    slots: Slots,
    ring: IntArray,
    held: Held,
) -> None:
    sequence, departure, previous, arrival, until = arrivals
    received, resolved, first_arrival, first_delta = slots
    held_sequence, held_due, held_until, held_row = held
    mask = len(held_sequence) - 1
    head = waiting = 0
    base = base_left = base_came = frontier = highest = opened = NOTHING
    ring_count = ring_next = ring_sum = 0
    overtaking, overtaken = UNKNOWN_OVERTAKING, False
    stepped_at = step_over = NOTHING
    clock, begun = 0, False
    received[:] = NOTHING
    resolved[:] = NOTHING
    for row in range(len(sequence) + 1):
        # Timers that end before this arrival; after the last arrival, all that are left.
        now = arrival[row] if row < len(sequence) else END_NS
        if now < clock:
            for offset in range(waiting):
                held_due[(head + offset) & mask] -= clock - now
                held_until[(head + offset) & mask] -= clock - now
            clock = now
        while waiting > 0:
            place = head & mask
            if held_sequence[place] > frontier:
                leaves = min(held_due[place], held_until[place])
                if leaves > now:
                    break
                clock = max(clock, leaves)
            delivered[held_row[place]] = clock
            highest = held_sequence[place]
            frontier = _frontier_from(max(frontier, highest), base, resolved)
            head += 1
            waiting -= 1
        if row == len(sequence):
            break
        clock = now
        n, left = sequence[row], departure[row]
        counts[RECEIVED] += 1
        assessed[row] = 0
        difference = (now - base_came) - (left - base_left)
        delta = max(left - previous[row], 0)
        if begun and n <= base and not (n == base and left == base_left):
            straggler = n < stepped_at and now < step_over
            if not straggler and (left > base_left or difference > rule.clock_step_ns):
                counts[RESTARTS] += 1
                for offset in range(waiting):
                    delivered[held_row[(head + offset) & mask]] = now
                waiting = 0
                received[:] = NOTHING
                resolved[:] = NOTHING
                begun = False
        if not begun:
            begun = True
            base, base_left, base_came = n, left, now
            frontier = highest = opened = n
            stepped_at = NOTHING
            received[n % WINDOW] = resolved[n % WINDOW] = n
            first_arrival[n % WINDOW], first_delta[n % WINDOW] = now, delta
            delivered[row] = now
            continue
        known = n > base - WINDOW
        if n <= base and (received[n % WINDOW] == n if known else _is_held(n, held, head, waiting)):
            counts[DUPLICATES] += 1
            delivered[row] = DROPPED
            continue
        limit = until[row] if len(until) > 0 else END_NS
        earliest, missing = max(n - rule.record, 0), NOTHING
        if known:
            size = abs(difference)
            if size <= rule.clock_step_ns:
                if ring_count == len(ring):
                    ring_sum -= ring[ring_next]
                else:
                    ring_count += 1
                ring[ring_next] = size
                ring_sum += size
                ring_next = ring_next + 1 if ring_next + 1 < len(ring) else 0
            if n > base and (size > rule.clock_step_ns or left < base_left):
                stepped_at, step_over = n, now + rule.clock_step_ns
            received[n % WINDOW] = n
            missing = _read_record(n, max(earliest, frontier + 1, max(base, n) - WINDOW + 1), wanted, resolved)
            resolved[n % WINDOW] = n
        if n > base:
            latch = 0
            if n != base + 1:
                if rule.kind == STATIC:
                    latch = rule.latch_ns
                elif earliest == n or missing != NOTHING or earliest > base + 1:
                    if earliest < n:
                        delta = max(left - table[missing if missing != NOTHING else earliest], 0)
                    mean = ring_sum / ring_count if ring_count > 0 else 0.0
                    latch = _latch(rule, mean, overtaking, overtaken, delta)
            assessed[row] = latch
            counts[ASSESSED] += latch
            first_arrival[n % WINDOW], first_delta[n % WINDOW] = now, delta
            base, base_left, base_came = n, left, now
            place = (head + waiting) & mask
            held_sequence[place], held_due[place], held_row[place] = n, now + latch, row
            _hasten(waiting, limit, held, head)
            waiting += 1
        else:
            counts[OUT_OF_ORDER] += 1
            violated = n < highest
            if rule.kind == QUANTILE or len(lasted) > 0:
                # Who came first of those that overtook it is known at the next number that has come and is known.
                after = max(n, base - WINDOW) + 1
                while received[after % WINDOW] != after:
                    after += 1
                came, delta = first_arrival[after % WINDOW], first_delta[after % WINDOW]
                if known:
                    first_arrival[n % WINDOW], first_delta[n % WINDOW] = came, delta
                    overtaking = learn_compiled(overtaking, max(now - came, 0), delta, violated, rule.target)
                if len(lasted) > 0:
                    lasted[row] = max(now - came, 0) if n > opened else END_NS
            if known:
                overtaken = True
            else:
                counts[FORGOTTEN] += 1
            if violated:
                counts[VIOLATIONS] += 1
                delivered[row] = DROPPED if rule.drops else now
            else:
                _insert(n, row, limit, held, head, waiting)
                waiting += 1
        while waiting > 0:
            frontier = _frontier_from(frontier, base, resolved)
            place = head & mask
            if held_sequence[place] > frontier and min(held_due[place], held_until[place]) > now:
                if waiting <= rule.max_held:
                    break
                counts[FORCED] += 1
            delivered[held_row[place]] = now
            highest = held_sequence[place]
            frontier = max(frontier, highest)
            head += 1
            waiting -= 1
    for row in range(len(sequence)):
        if delivered[row] != DROPPED:
            counts[HOLD] += delivered[row] - arrival[row]


@compiled_inline
def _frontier_from(frontier: int, base: int, resolved: IntArray) -> int:
    """Up to which number everything has come, was given up or will not come."""
    while frontier < base and frontier + 1 > base - WINDOW and resolved[(frontier + 1) % WINDOW] == frontier + 1:
        frontier += 1
    return frontier


@compiled_inline
def _read_record(n: int, lowest: int, wanted: FlagArray, resolved: IntArray) -> int:
    """Note what will not come; the latest before n that matches and has not come, or NOTHING."""
    missing = NOTHING
    for other in range(n - 1, lowest - 1, -1):
        if resolved[other % WINDOW] != other:
            if not wanted[other]:
                resolved[other % WINDOW] = other
            elif missing == NOTHING:
                missing = other
    return missing


@compiled_inline
def _latch(rule: Rule, mean: float, overtaking: Overtaking, overtaken: bool, delta: int) -> int:
    """The paper's rule, or what overtaking has taught."""
    if rule.kind == PROBABILISTIC or not overtaken:
        factor = rule.factor if overtaken else rule.cold_factor
        wait = max(factor * mean - delta, 0.0)
    else:
        wait = overtaking_latch_compiled(overtaking, delta)
    return int(min(wait, rule.max_latch_ns))


@compiled_inline
def _is_held(n: int, held: Held, head: int, waiting: int) -> bool:
    """Whether a number is among those that are held."""
    mask = len(held.sequence) - 1
    found = False
    for offset in range(waiting):
        found |= held.sequence[(head + offset) & mask] == n
    return found


@compiled_inline
def _hasten(offset: int, limit: int, held: Held, head: int) -> None:
    """The event at this place has to leave by then, and what stands before it as well."""
    mask = len(held.until) - 1
    held.until[(head + offset) & mask] = limit
    while offset > 0 and held.until[(head + offset - 1) & mask] > limit:
        offset -= 1
        held.until[(head + offset) & mask] = limit


@compiled_inline
def _insert(n: int, row: int, limit: int, held: Held, head: int, waiting: int) -> None:
    """Put a late event in its place before its successor, with which it leaves."""
    held_sequence, held_due, held_until, held_row = held
    mask = len(held_sequence) - 1
    offset = waiting
    while offset > 0 and held_sequence[(head + offset - 1) & mask] > n:
        before, after = (head + offset - 1) & mask, (head + offset) & mask
        held_sequence[after], held_due[after], held_until[after], held_row[after] = (
            held_sequence[before],
            held_due[before],
            held_until[before],
            held_row[before],
        )
        offset -= 1
    place, after = (head + offset) & mask, (head + offset + 1) & mask
    held_sequence[place], held_row[place] = n, row
    held_due[place] = held_due[after]
    _hasten(offset, min(limit, held_until[after]), held, head)
