"""Ours: plan the next four transmissions of the link and send the first of the plan.

EB asks what an event is worth now, PC what one turn of waiting costs it. A plan asks both of several turns at once:
the worth of event j in turn k is v[j, k] = EB if it leaves k turns from now (extra = k times `turn_s`), and a plan
gives each of four turns an event of its own, or none. The worth of sending j now is

    T(j) = v[j, 0] + (1 - r) W(j),  W(j) = the greatest sum of v over turns 1..3, an event other than j in each

and the event with the greatest T is sent; within TIE of it the earliest enqueued. Later turns count less because events
yet to come will want them as well: taken at full worth (r = 0), plans put off what is worth most for ever, and under
overload deliver less than EB. At r = 1 the plan is EB.

Exact, without trying all plans:

- An optimal plan of three turns over events other than j needs, for each turn, only the three best of them; so four
  best per turn serve every j (an exchange argument: of the best of a turn, the others use up at most two).
- W(j) is the same for all events but the (at most three) that the best plan of turns 1..3 uses; for those it is
  solved again without them.
- v falls with time in every column, so a figure from an earlier decision bounds it (`known`), as for EB.
"""

import math

from tidings.compiled import compiled, compiled_inline
from tidings.scheduling._kernels import FloatArray, IntArray, tabulated_benefit
from tidings.scheduling._lane import TURNS
from tidings.scheduling._layout import Pairs, Paths, Room, Slots

__all__ = ["choose_plan"]

_NOBODY = -1


@compiled
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
    room: Room,
) -> int:
    """The position in the queue (of at least one event) whose T is the greatest; `known` is of discounted worths."""
    published_s, size_kb, start, stop, _, _, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    _, top, holder, plans, without = room
    top[:] = 0.0
    holder[:] = _NOBODY
    plans[:] = _NOBODY
    used, other = plans[0], plans[1]
    best = -math.inf
    planned = 0.0
    discount = 1.0 - r
    # Turns 3, 2, 1 first, to know what the rest of the plan is worth; then the turn at hand.
    for turn in range(TURNS - 1, -1, -1):
        if turn == 0:
            planned = _plan(top, holder, _NOBODY, used)
            for place in range(1, TURNS):
                without[place] = _plan(top, holder, used[place], other) if used[place] >= 0 else 0.0
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
