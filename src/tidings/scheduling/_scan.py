"""Which waiting event a link sends next, by scanning the queue: for the simulator, whose loop keeps flat arrays.

Live brokers decide by tournament (`_tournament`), which pays where thousands wait; tests hold both to the same choices.

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

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.scheduling._kernels import IntArray, remaining_lifetime, tabulated_benefit
from tidings.scheduling._lane import TURNS
from tidings.scheduling._layout import Board, Room
from tidings.scheduling._plan import NOBODY, best_plan
from tidings.scheduling._strategies import EBPC, FIFO, PLAN, RL, TRIAGE
from tidings.scheduling._tournament import TIE

__all__ = ["choose", "decide"]

_PLANNED, _SPARE = 0, TURNS
"""Rows of the holders of a plan beside those of turns 1..3: of the best plan, and of plans without one of them."""


@borrowing
def decide(
    board: Board,
    code: int,
    r: float,
    now_s: float,
    postponed_s: float,
    count: int,
    processing_s: float,
    deleted: IntArray,
) -> tuple[int, int, int]:
    """Purge, then choose: the position to send (-1: nothing waits), how many wait now, how many were deleted."""
    count, removed = purge(board, now_s, count, deleted)
    return choose(board, code, r, now_s, postponed_s, count, processing_s), count, removed


@borrowing_inner
def purge(board: Board, now_s: float, count: int, deleted: IntArray) -> tuple[int, int]:
    """Take out the slots whose deletion time has come: how many stay, in their order, and how many went."""
    kept = removed = 0
    for position in range(count):
        slot = board.queue[position]
        if now_s >= board.slots.delete_s[slot]:
            deleted[removed] = slot
            removed += 1
        else:
            board.queue[kept] = slot
            kept += 1
    return kept, removed


@borrowing_inner
def choose(board: Board, code: int, r: float, now_s: float, postponed_s: float, count: int, processing_s: float) -> int:
    """The position in the queue to send next, -1 if nothing waits; nothing is removed.

    `postponed_s` is how much later "later" is: FT for PC and EBPC, and once more for each further turn of a plan; for
    triage the time that each event is given.
    """
    if count == 0:
        return -1
    if code == FIFO or count == 1:
        return 0
    if code == EBPC:
        return _choose_postponable(board, r, now_s, postponed_s, count, processing_s)
    if code == PLAN:
        return _choose_plan(board, r, now_s, postponed_s, count, processing_s)
    if code == TRIAGE and _is_time_for_all(board, now_s, postponed_s, count):
        return _choose_urgent(board, count)
    return _choose_monotone(board, code, now_s, count, processing_s)


@borrowing_inner
def _benefit(board: Board, slot: int, now_s: float, processing_s: float, extra_s: float) -> float:
    """The expected benefit of a slot if it is sent `extra_s` from now."""
    return tabulated_benefit(
        now_s,
        board.slots.published_s[slot],
        board.slots.size_kb[slot],
        board.slots.start[slot],
        board.slots.stop[slot],
        board.pairs.target,
        board.pairs.allowed_s,
        board.paths.price,
        board.paths.nodes,
        board.paths.mean_s_per_kb,
        board.paths.sd_s_per_kb,
        processing_s,
        extra_s,
        board.table,
    )


@borrowing_step
def _monotone_worth(board: Board, code: int, slot: int, now_s: float, processing_s: float) -> float:
    """EB, or for RL the negative mean of the deadlines still ahead: neither ever rises."""
    if code != RL:
        return _benefit(board, slot, now_s, processing_s, 0.0)
    # As a moment, not as time left, it stays the same until a deadline passes, and then the mean moves out.
    slots = board.slots
    return -(
        now_s
        + remaining_lifetime(now_s, slots.published_s[slot], slots.start[slot], slots.stop[slot], board.pairs.allowed_s)
    )


@borrowing_inner
def _choose_monotone(board: Board, code: int, now_s: float, count: int, processing_s: float) -> int:
    queue, known = board.queue, board.slots.known
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
        known[slot, 0] = _monotone_worth(board, code, slot, now_s, processing_s)
        best = max(best, known[slot, 0])
    # Whatever is still within TIE of the best was computed just now.
    chosen = 0
    for position in range(count):
        if known[queue[position], 0] >= best - TIE:
            chosen = position
            if code != TRIAGE:
                break
    return chosen


@borrowing_inner
def _is_time_for_all(board: Board, now_s: float, step_s: float, count: int) -> bool:
    """Whether, at `step_s` for each and the most urgent first, the last of all would leave before it is deleted."""
    if step_s <= 0.0:
        return True
    # By how many steps there are left: the k-th to leave needs k. More than `count` steps are enough for anyone.
    urgent = board.room.urgent
    for steps in range(count + 1):
        urgent[steps] = 0
    for position in range(count):
        left = (board.slots.delete_s[board.queue[position]] - now_s) / step_s
        if left <= count:
            urgent[max(int(left), 0)] += 1
    needed = 0
    for steps in range(count + 1):
        needed += urgent[steps]
        if needed > steps:
            return False
    return True


@borrowing_inner
def _choose_urgent(board: Board, count: int) -> int:
    queue, delete_s = board.queue, board.slots.delete_s
    first = 0
    for position in range(1, count):
        if delete_s[queue[position]] < delete_s[queue[first]]:
            first = position
    return first


@borrowing_inner
def _choose_postponable(
    board: Board, r: float, now_s: float, postponed_s: float, count: int, processing_s: float
) -> int:
    queue, known = board.queue, board.slots.known
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
        worth = _benefit(board, slot, now_s, processing_s, 0.0)
        known[slot, 0] = worth
        if worth >= best - TIE and r != 1.0:
            worth -= (1.0 - r) * _benefit(board, slot, now_s, processing_s, postponed_s)
        known[slot, 1] = worth
        best = max(best, worth)
    for position in range(count):
        if known[queue[position], 1] >= best - TIE:
            return position
    return 0


@borrowing_inner
def _rest_of_plan(room: Room, planned: float, position: int) -> float:
    """What the later turns are worth if the event at a position is sent now."""
    rest = planned
    for place in range(1, TURNS):
        if room.holder[_PLANNED, place] == position:
            rest = room.without[place]
    return rest


@borrowing_inner
def _plan_later_turns(board: Board, r: float, now_s: float, turn_s: float, count: int, processing_s: float) -> float:
    """The worth of the best plan of turns 1..3; the room gets its events, and the worth without each of them."""
    room, known = board.room, board.slots.known
    for turn in range(TURNS + 1):
        for place in range(TURNS):
            room.holder[turn, place] = NOBODY
            if turn < TURNS:
                room.top[turn, place] = 0.0
    for turn in range(TURNS - 1, 0, -1):
        for position in range(count):
            slot = board.queue[position]
            if known[slot, turn] > room.top[turn, TURNS - 1]:
                value = (1.0 - r) * _benefit(board, slot, now_s, processing_s, turn_s * turn)
                known[slot, turn] = value
                _enter(room, turn, value, position)
    planned = best_plan(room.top, room.holder, NOBODY, _PLANNED)
    for place in range(1, TURNS):
        used = room.holder[_PLANNED, place]
        room.without[place] = best_plan(room.top, room.holder, used, _SPARE) if used >= 0 else 0.0
    return planned


@borrowing_inner
def _choose_plan(board: Board, r: float, now_s: float, turn_s: float, count: int, processing_s: float) -> int:
    """The position in the queue (of at least one event) whose plan is worth most (`_plan`); `known` is of discounted
    worths."""
    queue, room, known = board.queue, board.room, board.slots.known
    planned = _plan_later_turns(board, r, now_s, turn_s, count, processing_s)
    best = -math.inf
    for position in range(count):
        slot = queue[position]
        rest = _rest_of_plan(room, planned, position)
        if known[slot, 0] + rest < best - TIE:
            continue
        known[slot, 0] = _benefit(board, slot, now_s, processing_s, 0.0)
        best = max(best, known[slot, 0] + rest)
    for position in range(count):
        if known[queue[position], 0] + _rest_of_plan(room, planned, position) >= best - TIE:
            return position
    return 0


@borrowing_inner
def _enter(room: Room, turn: int, value: float, position: int) -> None:
    """Keep the best of a turn in falling order; of equals the earlier enqueued stays ahead."""
    if value > room.top[turn, TURNS - 1]:
        place = TURNS - 1
        while place > 0 and value > room.top[turn, place - 1]:
            room.top[turn, place] = room.top[turn, place - 1]
            room.holder[turn, place] = room.holder[turn, place - 1]
            place -= 1
        room.top[turn, place] = value
        room.holder[turn, place] = position
