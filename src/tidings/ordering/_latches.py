"""How long to hold by what was seen to overtake: two quantiles of observed overtaking, with feedback.

When an event arrives late, its receiver knows what would have been needed: the first event that overtook it had come
`lasted` before, behind a gap of `delta` at the sender. The paper's rule, reach - delta, would have needed a reach of
lasted + delta; a constant hold, one of `lasted`. The latch takes both, min(hold, reach - delta). It keeps short what
is always short (bursts out of a stalled broker, however long the gap was), and does not wait behind gaps so long that
nothing was ever seen to overtake across them.

Both are tracked by stochastic approximation, which assumes no law and no independence. A violation moves up, by a
share `gain`, the one that was too short; every other late event moves both down, by gain x budget. The two budgets
add up to the violations allowed, so that in the long run violations are as frequent as allowed. In the short run the
balance of violations allowed and seen loosens or tightens the budget, and in debt a violation takes the latch half
the way (in the logarithm) to what was needed: delays of two sizes, a thread that is stuck beside three that are not,
need that.

The functions are plain arithmetic, so that the compiled receiver and the plain one take the same steps, bit for bit:
the kernel calls them compiled, the state machine as they stand.
"""

import math
from typing import Final, NamedTuple

from tidings.compiled import compiled

__all__ = [
    "UNKNOWN_OVERTAKING",
    "Overtaking",
    "learn",
    "learn_compiled",
    "overtaking_latch",
    "overtaking_latch_compiled",
]

AIM: Final = 0.9
"""The share of the allowed violations that is aimed at: a target is met from above."""

GAIN: Final = 0.2
"""The least step up. The first steps are larger: 1/2, 1/3, 1/4."""

REACH_SHARE: Final = 0.3
"""The part of the violations that too short a reach may cause; too short a hold has the rest."""

MOST_BALANCE: Final = 20.0
"""Violations saved or owed beyond this are forgotten: what was long ago must not matter."""

BALANCE_SLOPE: Final = 0.1
DEBT: Final = 8.0
FIRST_MARGIN: Final = 2.0
"""After the first late event, hold and reach are this many times what it would have needed."""


class Overtaking(NamedTuple):
    """What has been learnt of one publisher's overtaking; no hold: nothing yet."""

    hold_ns: float
    reach_ns: float
    violations: int
    balance: float


UNKNOWN_OVERTAKING: Final = Overtaking(0.0, 0.0, 0, 0.0)


def overtaking_latch(known: Overtaking, delta_ns: int) -> float:
    """The hold behind a gap of `delta_ns` at the sender."""
    return max(min(known.hold_ns, known.reach_ns - delta_ns), 0.0)


def learn(known: Overtaking, lasted_ns: int, delta_ns: int, violated: bool, target: float) -> Overtaking:
    """One late event: it came `lasted_ns` after the first that overtook it, which came behind a gap of `delta_ns`."""
    hold, reach, violations, balance = known
    needed_hold, needed_reach = float(max(lasted_ns, 1)), float(max(lasted_ns + delta_ns, 1))
    if hold == 0.0:
        return Overtaking(FIRST_MARGIN * needed_hold, FIRST_MARGIN * needed_reach, 1, 0.0)
    allowed = AIM * (1.0 - target)
    balance = min(max(balance + allowed - (1.0 if violated else 0.0), -MOST_BALANCE), MOST_BALANCE)
    budget = allowed * min(max(1.0 + BALANCE_SLOPE * balance, 0.0), 2.0)
    gain = max(GAIN, 1.0 / (1.0 + violations))
    hold_was_short = violated and needed_hold > hold
    reach_was_short = violated and not hold_was_short
    hold = hold * (1.0 + gain) if hold_was_short else hold * (1.0 - gain * budget * (1.0 - REACH_SHARE))
    reach = reach * (1.0 + gain) if reach_was_short else reach * (1.0 - gain * budget * REACH_SHARE)
    if violated:
        violations += 1
        if balance < -DEBT:
            hold = max(hold, math.sqrt(hold * needed_hold))
            reach = max(reach, math.sqrt(reach * needed_reach))
    return Overtaking(hold, reach, violations, balance)


learn_compiled = compiled(learn)
overtaking_latch_compiled = compiled(overtaking_latch)
