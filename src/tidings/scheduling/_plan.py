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
- v falls with time in every column, so a figure from an earlier decision bounds it, as for EB: `_tournament` finds the
  four best of each turn by a tournament of its own, `_scan` by looking at all that wait.
"""

from typing import Final

from tidings.compiled import borrowing_inner
from tidings.scheduling._kernels import FloatArray, IntArray
from tidings.scheduling._lane import TURNS

__all__ = ["NOBODY", "best_plan"]

NOBODY: Final = -1


@borrowing_inner
def best_plan(top: FloatArray, holder: IntArray, excluded: int, used: int) -> float:
    """The worth of the best plan of turns 1..3 without the event at position `excluded`.

    `top` and `holder` have the four best of each turn, the best first: their worths, and the positions (NOBODY beyond
    the last). Row `used` of the holders gets the events of the plan.
    """
    best = -1.0
    # One step beyond the list is "nobody"; the last turn takes the best that the first two have left.
    for first in range(TURNS + 1):
        a = holder[1, first] if first < TURNS else NOBODY
        if a >= 0 and a == excluded:
            continue
        value_a = top[1, first] if a >= 0 else 0.0
        for second in range(TURNS + 1):
            b = holder[2, second] if second < TURNS else NOBODY
            if b >= 0 and b in (excluded, a):
                continue
            value_b = top[2, second] if b >= 0 else 0.0
            c = NOBODY
            value_c = 0.0
            for third in range(TURNS):
                c = holder[3, third]
                if c < 0 or c not in (excluded, a, b):
                    value_c = top[3, third] if c >= 0 else 0.0
                    break
                c = NOBODY
            if value_a + value_b + value_c > best:
                best = value_a + value_b + value_c
                holder[used, 1], holder[used, 2], holder[used, 3] = a, b, c
    return best
