"""Which waiting event a link sends next, by scanning the queue: for the simulator, whose loop keeps flat arrays.

Live brokers decide by tournament (`_choosing`), which pays where thousands wait; tests hold both to the same choices.

Rules:

- What is expired or hopeless leaves first (`purge`), by its static key; then the event with the greatest worth is
  chosen. Worths within TIE of the greatest are ties, and the earliest enqueued of them wins.
- Worth by strategy: FIFO none (the earliest), RL the negative mean of the deadlines still ahead, EB, EBPC(r) (PC is
  EBPC(0)); for plans see `_plan`.
- Triage: if there is time for all, the one that is deleted first (of equals the earliest enqueued); otherwise the
  greatest EB, of equals the latest enqueued.
- EB and RL's worth never rise with time, and EBPC is at most EB. So the last EB computed for a slot bounds its worth
  from above, and a slot whose bound is below the best worth found so far is passed over. The choice is the same as
  after computing everything; only contenders cost anything.
"""

import math

from tidings.compiled import compiled, compiled_inline
from tidings.scheduling._choosing import TIE
from tidings.scheduling._kernels import FloatArray, IntArray, remaining_lifetime, tabulated_benefit
from tidings.scheduling._lane import TURNS
from tidings.scheduling._layout import Pairs, Paths, Room, Slots, make_room
from tidings.scheduling._plan import NOBODY, best_plan
from tidings.scheduling._strategies import EBPC, FIFO, PLAN, RL, TRIAGE

__all__ = ["choose", "choose_in", "decide", "purge", "take"]

_PLANNED, _SPARE = 0, TURNS
"""Rows of the holders of a plan beside those of turns 1..3: of the best plan, and of plans without one of them."""


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
    room = make_room(count)
    return choose_in(room, code, r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table)


@compiled_inline
def choose_in(
    room: Room,
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
    """As `choose`, for a loop that must not allocate: `room` is for at least as many as wait."""
    if count == 0:
        return -1
    if code == FIFO or count == 1:
        return 0
    if code == EBPC:
        return _choose_postponable(r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table)
    if code == PLAN:
        return _choose_plan(r, now_s, postponed_s, queue, count, slots, pairs, paths, processing_s, table, room)
    if code == TRIAGE and _is_time_for_all(now_s, postponed_s, queue, count, slots, room):
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


@compiled
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
def _is_time_for_all(now_s: float, step_s: float, queue: IntArray, count: int, slots: Slots, room: Room) -> bool:
    """Whether, at `step_s` for each and the most urgent first, the last of all would leave before it is deleted."""
    _, _, _, _, delete_s, _, _ = slots
    if step_s <= 0.0:
        return True
    # By how many steps there are left: the k-th to leave needs k. More than `count` steps are enough for anyone.
    urgent, _, _, _ = room
    for steps in range(count + 1):
        urgent[steps] = 0
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


@compiled
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


@compiled
def _choose_plan(
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
    room: Room,
) -> int:
    """The position in the queue (of at least one event) whose plan is worth most (`_plan`); `known` is of discounted
    worths."""
    published_s, size_kb, start, stop, _, _, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    _, top, holder, without = room
    top[:] = 0.0
    holder[:] = NOBODY
    used = holder[_PLANNED]
    best = -math.inf
    planned = 0.0
    discount = 1.0 - r
    # Turns 3, 2, 1 first, to know what the rest of the plan is worth; then the turn at hand.
    for turn in range(TURNS - 1, -1, -1):
        if turn == 0:
            planned = best_plan(top, holder, NOBODY, _PLANNED)
            for place in range(1, TURNS):
                without[place] = best_plan(top, holder, used[place], _SPARE) if used[place] >= 0 else 0.0
        for position in range(count):
            slot = queue[position]
            rest = planned
            if turn == 0:
                for place in range(1, TURNS):
                    if used[place] == position:
                        rest = without[place]
                if known[slot, 0] + rest < best - TIE:
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
        if known[queue[position], 0] + rest >= best - TIE:
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
