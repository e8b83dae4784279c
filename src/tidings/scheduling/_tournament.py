"""Which waiting event a link sends next: compiled decisions by tournament, the same as after computing everything.

Rules:

- What is expired or hopeless leaves first, by its static key; then the event with the greatest worth is chosen. Worths
  within TIE of the greatest are ties, and the earliest enqueued of them wins.
- Worth by strategy: FIFO none (the earliest), RL the negative mean of the deadlines still ahead, EB, EBPC(r) (PC is
  EBPC(0)); for plans see `_plan`.
- Triage: if there is time for all (`_urgency`), the one that is deleted first (of equals the earliest enqueued);
  otherwise the greatest EB, of equals the latest enqueued.

How a decision looks at few events, however many wait. The tournament holds an upper bound for the worth of each:

- While the greatest bound is above the best worth found, it is replaced by the worth itself. Then the best worth is
  known: nothing has a greater bound. Of what ties with it, the leftmost (for triage the rightmost) bound within TIE is
  replaced by the worth until it is the worth.
- RL's worth and EB never rise with time, so a worth once computed stays a bound. The first bound of EB is the sum of
  all prices, which is the worth itself as long as every success is 1.
- EBPC = EB - (1 - r) EB' does rise, as an event becomes urgent, but its greatest value from now until some later time
  is known: with d = FT / spread, F(z) - (1 - r) F(z - d) rises as z falls down to d / 2 - ln(1 - r) / d, and falls from
  there on; for several subscriptions the sum of the greatest is a bound. It is valid until that time (the tournament
  VALID), and for good once all are past it; then it falls back to EB. As long as every success is 1, the worth does not
  change at all. The time grows while the bound is good enough to rule the event out, and shrinks when it was not.

An adversary can still make one decision look at everything: by a step in time after which every bound is stale. But a
bound is improved only where it decides, and once for each moment.
"""

import math
from math import inf
from typing import Final

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.scheduling._kernels import NORMAL_TABLE_ERROR, FloatArray, tabulated_benefit, tabulated_normal_cdf
from tidings.scheduling._lane import (
    AT,
    BENEFIT,
    CALM,
    DELETE,
    DUE,
    EXACT,
    HORIZON,
    NUMBER,
    PUBLISHED,
    SIZE,
    START,
    STOP,
    TOTAL,
    TURNS,
    VALID,
    WORTHS,
    Lane,
    clear,
    leftmost,
    position_of,
    put,
    rightmost,
)
from tidings.scheduling._plan import NOBODY, best_plan
from tidings.scheduling._strategies import EBPC, FIFO, PLAN, RL, TRIAGE
from tidings.scheduling._urgency import Urgency, enter, is_time_for_all, leave, most_urgent

__all__ = ["LATER", "RULE", "TIE", "benefit_of", "choose", "forget", "push_all", "take", "take_all"]

TIE: Final = 1e-9
"""Worths that differ by no more than this are equal: success saturates at 1, so rounding must not decide."""

CODE, R, LATER, PROCESSING, QUANTILE = range(5)
RULE: Final = 5
"""A rule in numbers: the code of the strategy, r, how much later "later" is, the time of a node, the quantile."""

_CERTAIN: Final = 7.6
"""So many standard deviations of slack make success 1 in the table; the last .1 is for rounding."""
_MARGIN_S: Final = 1e-6
"""For rounding too, where a path has no spread."""
_FIRST_HORIZON_S: Final = 0.01
_LEAST_HORIZON_S: Final = 1e-6
_FURTHER: Final = 4.0
"""How far a bound of EBPC looks ahead at first (or a turn, if that is longer), at least, and by how much further."""
_LOWEST: Final = -1.7e308
"""The worth of what has no deadline ahead, for RL: below all others, above what is not there."""
_PLANNED, _SPARE = 0, TURNS
"""Rows of the scratch of a plan beside those of turns 1..3: of the best plan, and of plans without one of them."""


@borrowing
def push_all(
    rule: FloatArray,
    lane: Lane,
    urgency: Urgency,
    table: FloatArray,
    position: int,
    start: int,
    new_rows: FloatArray,
    arrivals: FloatArray,
    count: int,
    number: int,
    now_s: float,
) -> None:
    """Enter events with equal rows at the next positions, their rows from `start` on.

    A column of `arrivals` is one of them: when it was published, its size, and how much it is worth now, which is
    written there.
    """
    for place in range(count):
        at = start + place * new_rows.shape[1]
        _push(
            rule, lane, urgency, position + place, at, new_rows, arrivals[0, place], arrivals[1, place], number + place
        )
        arrivals[2, place] = benefit_of(rule, lane, table, position + place, now_s, 0.0)


@borrowing_inner
def _push(
    rule: FloatArray,
    lane: Lane,
    urgency: Urgency,
    position: int,
    start: int,
    new_rows: FloatArray,
    published_s: float,
    size_kb: float,
    number: int,
) -> None:
    """Enter an event at the next position, its rows from `start` on."""
    facts, spans, rows, trees = lane[0], lane[1], lane[2], lane[4]
    count = new_rows.shape[1]
    last_s = hopeless_s = -inf
    calm_s = inf
    total = 0.0
    for column in range(count):
        for row in range(5):
            rows[row, start + column] = new_rows[row, column]
        allowed_s, price, nodes = new_rows[0, column], new_rows[1, column], new_rows[2, column]
        mean_s, sd_s = size_kb * new_rows[3, column], size_kb * new_rows[4, column]
        latest_s = allowed_s
        if rule[QUANTILE] < inf:
            latest_s += (
                size_kb * (rule[QUANTILE] * new_rows[4, column] - new_rows[3, column]) - nodes * rule[PROCESSING]
            )
        last_s = max(last_s, allowed_s)
        hopeless_s = max(hopeless_s, latest_s)
        calm_s = min(calm_s, allowed_s - nodes * rule[PROCESSING] - mean_s - _CERTAIN * sd_s)
        total += price
    spans[position, START] = start
    spans[position, STOP] = start + count
    spans[position, NUMBER] = number
    facts[position, PUBLISHED] = published_s
    facts[position, SIZE] = size_kb
    facts[position, DELETE] = published_s + min(last_s, hopeless_s)
    facts[position, TOTAL] = total
    facts[position, CALM] = published_s + calm_s - _MARGIN_S
    put(trees, DUE, position, -facts[position, DELETE])
    _bound_anew(rule, lane, position)
    if rule[CODE] == TRIAGE:
        enter(facts[position, DELETE], number, rule[LATER], urgency)


@borrowing_step
def _bound_anew(rule: FloatArray, lane: Lane, position: int) -> None:
    """The first bounds, when nothing has been computed yet."""
    facts, trees = lane[0], lane[4]
    total = facts[position, TOTAL]
    for turn in range(TURNS):
        facts[position, AT + turn] = -inf
    bound = total
    if rule[CODE] == FIFO:
        bound = 0.0
    elif rule[CODE] == RL:
        bound = _deadline_worth(lane, position, -inf)
    elif rule[CODE] == PLAN:
        for turn in range(1, TURNS):
            put(trees, WORTHS + turn, position, total * (1.0 - rule[R]))
    elif rule[CODE] == EBPC:
        facts[position, BENEFIT] = total
        facts[position, HORIZON] = max(rule[LATER], _FIRST_HORIZON_S)
        bound = total - (1.0 - rule[R]) * total
        put(trees, VALID, position, rule[LATER] - facts[position, CALM])
    put(trees, WORTHS, position, bound)


@borrowing
def forget(rule: FloatArray, lane: Lane, tail: int) -> None:
    """The time of a turn is another: what was learnt with the old one is worth nothing."""
    trees = lane[4]
    width = trees.shape[1] >> 1
    for position in range(tail):
        if trees[WORTHS, width + position] > -inf:
            _bound_anew(rule, lane, position)


@borrowing
def take(rule: FloatArray, lane: Lane, urgency: Urgency, tail: int, number: int) -> None:
    """The event with this number leaves."""
    _take(rule, lane, urgency, position_of(lane[1], tail, number))


@borrowing
def take_all(rule: FloatArray, lane: Lane, urgency: Urgency, tail: int, count: int) -> None:
    """The events whose numbers are the first so many in `scratch` leave."""
    spans, scratch = lane[1], lane[5]
    for place in range(count):
        _take(rule, lane, urgency, position_of(spans, tail, scratch[place]))


@borrowing_inner
def _take(rule: FloatArray, lane: Lane, urgency: Urgency, position: int) -> None:
    facts, spans, trees = lane[0], lane[1], lane[4]
    clear(trees, position)
    if rule[CODE] == TRIAGE:
        leave(facts[position, DELETE], spans[position, NUMBER], rule[LATER], urgency)


@borrowing
def choose(
    rule: FloatArray, lane: Lane, urgency: Urgency, table: FloatArray, tail: int, count: int, now_s: float, takes: bool
) -> tuple[int, int]:
    """Delete what is due (into `scratch`), then choose: the number to send, -1 if nothing waits, and how many were due.

    What is chosen leaves at once if `takes` says so.
    """
    spans, trees, scratch = lane[1], lane[4], lane[5]
    removed = 0
    while -trees[DUE, 1] <= now_s and removed < count:
        position = leftmost(trees, DUE, trees[DUE, 1])
        scratch[removed] = spans[position, NUMBER]
        removed += 1
        _take(rule, lane, urgency, position)
    if count == removed:
        return -1, removed
    code = int(rule[CODE])
    if code == FIFO:
        position = leftmost(trees, WORTHS, 0.0)
    elif code == EBPC and rule[R] < 1.0:
        position = _choose_postponable(rule, lane, table, now_s, removed)
    elif code == PLAN:
        position = _choose_plan(rule, lane, table, now_s)
    elif code == TRIAGE and is_time_for_all(now_s, rule[LATER], urgency):
        position = position_of(spans, tail, most_urgent(urgency))
    else:
        position = _choose_monotone(rule, lane, table, now_s)
    number = int(spans[position, NUMBER])
    if takes:
        _take(rule, lane, urgency, position)
    return number, removed


@borrowing
def benefit_of(rule: FloatArray, lane: Lane, table: FloatArray, position: int, now_s: float, extra_s: float) -> float:
    """The expected benefit of the event at a position if it leaves `extra_s` from now."""
    facts, spans, rows, itself = lane[0], lane[1], lane[2], lane[3]
    return tabulated_benefit(
        now_s,
        facts[position, PUBLISHED],
        facts[position, SIZE],
        spans[position, START],
        spans[position, STOP],
        itself,
        rows[0],
        rows[1],
        rows[2],
        rows[3],
        rows[4],
        rule[PROCESSING],
        extra_s,
        table,
    )


@borrowing_step
def _deadline_worth(lane: Lane, position: int, now_s: float) -> float:
    """The negative mean of the deadlines still ahead: a moment, so it stays the same until a deadline passes."""
    facts, spans, rows = lane[0], lane[1], lane[2]
    published_s = facts[position, PUBLISHED]
    total_s = 0.0
    count = 0
    for column in range(spans[position, START], spans[position, STOP]):
        deadline_s = published_s + rows[0, column]
        if now_s < deadline_s < inf:
            total_s += deadline_s
            count += 1
    return -total_s / count if count > 0 else _LOWEST


@borrowing_step
def _refresh(rule: FloatArray, lane: Lane, table: FloatArray, turn: int, position: int, now_s: float) -> float:
    """Replace the bound of a worth that never rises by the worth itself."""
    facts, trees = lane[0], lane[4]
    width = trees.shape[1] >> 1
    if facts[position, AT + turn] == now_s:
        return float(trees[WORTHS + turn, width + position])
    if rule[CODE] == RL:
        worth = _deadline_worth(lane, position, now_s)
    else:
        worth = benefit_of(rule, lane, table, position, now_s, turn * rule[LATER])
        if turn > 0:
            worth *= 1.0 - rule[R]
    facts[position, AT + turn] = now_s
    put(trees, WORTHS + turn, position, worth)
    return worth


@borrowing_step
def _greatest(rule: FloatArray, lane: Lane, table: FloatArray, turn: int, now_s: float) -> int:
    """The position of the greatest worth of a turn, of equals the earliest; its bound is the worth then."""
    trees = lane[4]
    while True:
        bound = trees[WORTHS + turn, 1]
        position = leftmost(trees, WORTHS + turn, bound)
        if bound == -inf or _refresh(rule, lane, table, turn, position, now_s) == bound:
            return position


@borrowing_inner
def _choose_monotone(rule: FloatArray, lane: Lane, table: FloatArray, now_s: float) -> int:
    trees = lane[4]
    width = trees.shape[1] >> 1
    least = trees[WORTHS, width + _greatest(rule, lane, table, 0, now_s)] - TIE
    while True:
        position = rightmost(trees, WORTHS, least) if rule[CODE] == TRIAGE else leftmost(trees, WORTHS, least)
        if _refresh(rule, lane, table, 0, position, now_s) >= least:
            return position


@borrowing_inner
def _choose_postponable(rule: FloatArray, lane: Lane, table: FloatArray, now_s: float, begin: int) -> int:
    """EBPC; positions whose bound was replaced are noted in `scratch` from `begin` on."""
    facts, trees, scratch = lane[0], lane[4], lane[5]
    while -trees[VALID, 1] < now_s:
        position = leftmost(trees, VALID, trees[VALID, 1])
        put(trees, VALID, position, -inf)
        put(trees, WORTHS, position, facts[position, BENEFIT])
    best = -inf
    noted = begin
    while trees[WORTHS, 1] > best:
        position = leftmost(trees, WORTHS, trees[WORTHS, 1])
        worth, is_exact = _postponable_worth(rule, lane, table, position, now_s, best)
        put(trees, WORTHS, position, worth)
        if is_exact:
            best = max(best, worth)
            scratch[noted] = position
            noted += 1
        else:
            put(trees, VALID, position, -inf)
    while True:
        position = leftmost(trees, WORTHS, best - TIE)
        worth, _ = _postponable_worth(rule, lane, table, position, now_s, -inf)
        if worth >= best - TIE:
            break
        put(trees, WORTHS, position, worth)
        scratch[noted] = position
        noted += 1
    for place in range(begin, noted):
        _settle(rule, lane, table, scratch[place], now_s, best)
    return position


@borrowing_step
def _postponable_worth(
    rule: FloatArray, lane: Lane, table: FloatArray, position: int, now_s: float, best: float
) -> tuple[float, bool]:
    """The worth now, or a bound of it for good that is no greater than `best`; and whether it is the worth."""
    facts = lane[0]
    if facts[position, AT] == now_s:
        return facts[position, EXACT], True
    worth = benefit_of(rule, lane, table, position, now_s, 0.0)
    facts[position, BENEFIT] = worth
    if worth <= best:
        return worth, False
    worth -= (1.0 - rule[R]) * benefit_of(rule, lane, table, position, now_s, rule[LATER])
    facts[position, EXACT] = worth
    facts[position, AT] = now_s
    return worth, True


@borrowing_step
def _settle(rule: FloatArray, lane: Lane, table: FloatArray, position: int, now_s: float, best: float) -> None:
    """Give an event whose worth is known now a bound for later."""
    facts, trees = lane[0], lane[4]
    calm_s = facts[position, CALM] - rule[LATER]
    if now_s <= calm_s:
        put(trees, VALID, position, -calm_s)
        return
    ahead_s = inf
    bound = _greatest_until(rule, lane, table, position, now_s, ahead_s)
    if bound >= best:
        # Further than the last time, or as far, or less.
        ahead_s = _FURTHER * facts[position, HORIZON]
        bound = _greatest_until(rule, lane, table, position, now_s, ahead_s)
        if bound >= best:
            ahead_s /= _FURTHER
            bound = _greatest_until(rule, lane, table, position, now_s, ahead_s)
            if bound >= best:
                ahead_s = max(ahead_s / _FURTHER, _LEAST_HORIZON_S)
                bound = _greatest_until(rule, lane, table, position, now_s, ahead_s)
        facts[position, HORIZON] = ahead_s
    put(trees, VALID, position, -(now_s + ahead_s))
    put(trees, WORTHS, position, bound)


@borrowing_inner
def _greatest_until(
    rule: FloatArray, lane: Lane, table: FloatArray, position: int, now_s: float, ahead_s: float
) -> float:
    """The greatest EBPC that the event can have from now until `ahead_s` later: the sum of each subscription's."""
    facts, spans, rows = lane[0], lane[1], lane[2]
    later = 1.0 - rule[R]
    elapsed_s, size_kb = now_s - facts[position, PUBLISHED], facts[position, SIZE]
    total = 2.0 * NORMAL_TABLE_ERROR * facts[position, TOTAL]
    for column in range(spans[position, START], spans[position, STOP]):
        slack_s = rows[0, column] - elapsed_s - rows[2, column] * rule[PROCESSING] - size_kb * rows[3, column]
        spread_s = size_kb * rows[4, column]
        if slack_s == inf:
            total += rows[1, column] * rule[R]
        elif spread_s > 0.0:
            z = slack_s / spread_s
            shift = rule[LATER] / spread_s
            if shift > 0.0:
                # It rises until here, and falls from then on.
                z = min(z, max(z - ahead_s / spread_s, 0.5 * shift - math.log(later) / shift))
            total += rows[1, column] * (tabulated_normal_cdf(z, table) - later * tabulated_normal_cdf(z - shift, table))
        elif slack_s - ahead_s > rule[LATER] + _MARGIN_S:
            total += rows[1, column] * rule[R]
        elif slack_s >= -_MARGIN_S:
            total += rows[1, column]
    return float(total)


@borrowing_inner
def _choose_plan(rule: FloatArray, lane: Lane, table: FloatArray, now_s: float) -> int:
    """The position whose T is the greatest (`_plan`)."""
    trees, top, holder = lane[4], lane[6], lane[7]
    width = trees.shape[1] >> 1
    for turn in range(1, TURNS):
        _find_best_of_turn(rule, lane, table, turn, now_s)
    planned = best_plan(top, holder, NOBODY, _PLANNED)
    best = -inf
    # The events of the plan stand aside for a while, because the rest of the plan is worth less without them.
    for turn in range(1, TURNS):
        position = holder[_PLANNED, turn]
        if position >= 0:
            top[_PLANNED, turn] = _refresh(rule, lane, table, 0, position, now_s)
            top[_SPARE, turn] = top[_PLANNED, turn] + best_plan(top, holder, position, _SPARE)
            best = max(best, top[_SPARE, turn])
            put(trees, WORTHS, position, -inf)
    if trees[WORTHS, 1] > -inf:
        best = max(best, trees[WORTHS, width + _greatest(rule, lane, table, 0, now_s)] + planned)
    least = best - TIE - planned
    chosen = width
    while trees[WORTHS, 1] >= least:
        position = leftmost(trees, WORTHS, least)
        if _refresh(rule, lane, table, 0, position, now_s) >= least:
            chosen = position
            break
    for turn in range(1, TURNS):
        position = holder[_PLANNED, turn]
        if position >= 0:
            put(trees, WORTHS, position, top[_PLANNED, turn])
            if top[_SPARE, turn] >= best - TIE:
                chosen = min(chosen, position)
    return int(chosen)


@borrowing_inner
def _find_best_of_turn(rule: FloatArray, lane: Lane, table: FloatArray, turn: int, now_s: float) -> None:
    """The four best of a turn, into the rows of the turn of `top` and `holder`."""
    trees, top, holder = lane[4], lane[6], lane[7]
    width = trees.shape[1] >> 1
    for place in range(TURNS):
        top[turn, place] = 0.0
        holder[turn, place] = NOBODY
        position = _greatest(rule, lane, table, turn, now_s)
        worth = trees[WORTHS + turn, width + position]
        if worth > 0.0:
            top[turn, place] = worth
            holder[turn, place] = position
            put(trees, WORTHS + turn, position, -inf)
    for place in range(TURNS):
        if holder[turn, place] >= 0:
            put(trees, WORTHS + turn, holder[turn, place], top[turn, place])
