"""How long to hold by what was seen to overtake: two quantiles of observed overtaking, with feedback.

When an event arrives late, its receiver knows what would have been needed: the first event that overtook it had come
`lasted` before, behind a gap of `delta` at the sender. The paper's rule, reach - delta, would have needed a reach of
lasted + delta; a constant hold, one of `lasted`. The latch takes both, min(hold, reach - delta). It keeps short what
is always short (bursts out of a stalled broker, however long the gap was), and does not wait behind gaps so long that
nothing was ever seen to overtake across them.

In the long run both are tracked by stochastic approximation, which assumes no distribution and no independence. A
violation moves up, by a share `gain`, the one that was too short; every other late event moves both down, by gain x
budget. The two budgets add up to the violations allowed, so that in the long run violations are as frequent as
allowed. In the short run the balance of violations allowed and seen loosens or tightens the budget, and in debt a
violation takes the latch halfway (in the logarithm) to what was needed: delays of two sizes, a thread that is
stuck beside three that are not, need that.

At first that is too slow: 99 % of what k late events needed is beyond all of them if k is below 100. Three things help:

- *Margins.* After k episodes the latch is at least (1 + margin / k) times the longest that was needed, less as k grows.
- *Episodes*, not events, are counted: who was late in the same stall says little more than one of them. Their effective
  number is n² / Σ b² for n late events in bursts of sizes b, so that a stall of thirty is not outvoted by thirty events
  that were overtaken by a millisecond. Bursts of STALL_BURST on average mean that delays come in stalls; if many events
  are missing then, one is under way, and what is missing may take longer than anything before.
- *Pools.* All pairs of a receiver teach it what was needed, in time and in multiples of their own spread (the median of
  their delay differences). A pair that has seen little holds for what the pool says, the time or twice the multiple,
  whichever is less: the time suits pairs that share a cause, the multiple those of different distance. The weight of
  the pool fades as the pair's own episodes come.

The functions are plain arithmetic, so that the compiled receiver and the plain one take the same steps, bit for bit:
the kernel calls them compiled, the state machine as they stand.
"""

import math
from typing import Final, NamedTuple

from tidings.compiled import borrowing_step

__all__ = [
    "STALLED",
    "STALL_MARGIN",
    "STALL_WINDOW",
    "UNKNOWN_OVERTAKING",
    "Overtaking",
    "Pool",
    "comes_in_stalls",
    "comes_in_stalls_compiled",
    "learn",
    "learn_compiled",
    "missing_of_usual",
    "missing_of_usual_compiled",
    "next_spread",
    "next_spread_compiled",
    "overtaking_latch",
    "overtaking_latch_compiled",
    "teaches_pool",
    "teaches_pool_compiled",
    "would_violate",
    "would_violate_compiled",
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

LEARNT: Final = 200.0
"""Episodes after which hold and reach need no margin."""

FADED: Final = 250.0
"""Episodes after which a pair no longer asks what other pairs have needed; no fewer than LEARNT."""

MOST_MARGIN: Final = 3.0
"""The margin after the first episodes, beyond the longest itself."""

FORGETTING: Final = 0.01
"""The share of the longest that each further episode takes away: one outlier must not stay for ever."""

POOL_KNOWN: Final = 20.0
"""Episodes of all pairs after which no pair's margin goes beyond what the pool says."""

POOL_SHARE: Final = 8.0

MOST_SPREADS: Final = 2.0
"""How many times the pooled multiple of its spread a pair may be held: spreads are estimates."""

SPREAD_GAIN: Final = 0.02

STALL_BURST: Final = 8.0
"""Delays come in stalls if a late event has so many late ones in its episode, on average."""

STALLED: Final = 3
"""A stall is under way if so many are missing: losses are rarely that close together."""

STALL_MARGIN: Final = 1.75
"""How many times as long as otherwise to wait in a stall."""

STALL_WINDOW: Final = 32
STALL_SHARE: Final = 0.6
"""Without a record, a stall is when of the last STALL_WINDOW numbers less than this share of the usual has come."""


class Overtaking(NamedTuple):
    """What has been learnt of overtaking; no hold: nothing yet. (In a pool also in spreads, instead of ns.)

    Of `lates` late events the last `burst` were one episode; `squares` is the sum of all bursts' squares.
    """

    hold_ns: float
    reach_ns: float
    violations: float
    balance: float
    longest_hold_ns: float = 0.0
    longest_reach_ns: float = 0.0
    lates: float = 0.0
    burst: float = 0.0
    squares: float = 0.0
    episodes: float = 0.0


UNKNOWN_OVERTAKING: Final = Overtaking(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def next_spread(spread_ns: float, size_ns: int, count: int) -> float:
    """About the median of the sizes of delay differences: the next is `size_ns`, of which `count` were seen lately."""
    size = float(max(size_ns, 1))
    if spread_ns == 0.0:
        return size
    gain = max(SPREAD_GAIN, 0.5 / count)
    return spread_ns * (1.0 + gain) if size > spread_ns else spread_ns * (1.0 - gain)


def overtaking_latch(
    own: Overtaking,
    delta_ns: int,
    pool: Overtaking = UNKNOWN_OVERTAKING,
    scaled: Overtaking = UNKNOWN_OVERTAKING,
    spread_ns: float = 0.0,
    margin: float = 0.0,
) -> float:
    """The hold behind a gap of `delta_ns` at the sender, by what the pair has taught, and what its receiver's pairs.

    `scaled` is the pool in spreads.
    """
    hold, reach, episodes = own.hold_ns, own.reach_ns, pool.episodes
    if own.episodes >= FADED:
        return max(min(hold, reach - delta_ns), 0.0)
    times = 0.0
    if 0.0 < episodes < LEARNT:
        times = (1.0 + min(margin / episodes, MOST_MARGIN)) * (1.0 - episodes / (2.0 * LEARNT))
    pool_hold = max(pool.hold_ns, times * pool.longest_hold_ns)
    pool_reach = max(pool.reach_ns, times * pool.longest_reach_ns)
    scaled_hold = spread_ns * max(scaled.hold_ns, times * scaled.longest_hold_ns)
    scaled_reach = spread_ns * max(scaled.reach_ns, times * scaled.longest_reach_ns)
    if 0.0 < own.episodes < LEARNT:
        times = (1.0 + min(margin / own.episodes, MOST_MARGIN)) * (1.0 - own.episodes / (2.0 * LEARNT))
        most_hold, most_reach = times * own.longest_hold_ns, times * own.longest_reach_ns
        if episodes > POOL_KNOWN:
            most_hold = min(most_hold, max(own.longest_hold_ns, pool_hold, scaled_hold))
            most_reach = min(most_reach, max(own.longest_reach_ns, pool_reach, scaled_reach))
        hold, reach = max(hold, most_hold), max(reach, most_reach)
    weight = 1.0 - own.episodes / FADED
    hold += weight * max(min(pool_hold, MOST_SPREADS * scaled_hold) - hold, 0.0)
    reach += weight * max(min(pool_reach, MOST_SPREADS * scaled_reach) - reach, 0.0)
    return max(min(hold, reach - delta_ns), 0.0)


def learn(
    known: Overtaking, lasted_ns: float, delta_ns: float, violated: bool, target: float, is_new: bool = True
) -> Overtaking:
    """One late event: it came `lasted_ns` after the first that overtook it, which came behind a gap of `delta_ns`.

    `violated`: it was not put right. `is_new`: no other had been late since the first that overtook it.
    """
    hold, reach, violations, balance, longest_hold, longest_reach, lates, burst, squares, before = known
    needed_hold, needed_reach = lasted_ns, lasted_ns + delta_ns
    lates += 1.0
    burst = 1.0 if is_new else burst + 1.0
    squares += 2.0 * burst - 1.0
    episodes = lates * lates / squares
    kept = 1.0 - FORGETTING * min(max(episodes - before, 0.0), 1.0)
    longest_hold, longest_reach = max(kept * longest_hold, needed_hold), max(kept * longest_reach, needed_reach)
    if hold == 0.0:
        hold, reach, violations = FIRST_MARGIN * needed_hold, FIRST_MARGIN * needed_reach, 1.0
        return Overtaking(hold, reach, violations, 0.0, longest_hold, longest_reach, lates, burst, squares, episodes)
    allowed = AIM * (1.0 - target)
    balance = min(max(balance + allowed - (1.0 if violated else 0.0), -MOST_BALANCE), MOST_BALANCE)
    if episodes < LEARNT:  # margins and the pool put right more than hold and reach alone would have
        violated = needed_hold > min(hold, reach - delta_ns)
    budget = allowed * min(max(1.0 + BALANCE_SLOPE * balance, 0.0), 2.0)
    gain = max(GAIN, 1.0 / (1.0 + violations))
    hold_was_short = violated and needed_hold > hold
    reach_was_short = violated and not hold_was_short
    hold = hold * (1.0 + gain) if hold_was_short else hold * (1.0 - gain * budget * (1.0 - REACH_SHARE))
    reach = reach * (1.0 + gain) if reach_was_short else reach * (1.0 - gain * budget * REACH_SHARE)
    if violated:
        violations += 1.0
        if balance < -DEBT or (is_new and episodes < LEARNT):
            hold = max(hold, math.sqrt(hold * needed_hold))
            reach = max(reach, math.sqrt(reach * needed_reach))
    return Overtaking(hold, reach, violations, balance, longest_hold, longest_reach, lates, burst, squares, episodes)


def teaches_pool(own: Overtaking) -> bool:
    """Whether a late event is for the pool, too: of a pair that has taught much, one in POOL_SHARE is enough."""
    return own.episodes < LEARNT or own.lates % POOL_SHARE == 0.0


def would_violate(known: Overtaking, lasted_ns: float, delta_ns: float) -> bool:
    """Whether hold and reach, without margins, would have been too short for a late event."""
    return lasted_ns > min(known.hold_ns, known.reach_ns - delta_ns)


def comes_in_stalls(own: Overtaking, pool: Overtaking) -> bool:
    """Whether many are late at a time, when any is."""
    return own.lates + pool.lates > STALL_BURST * (own.episodes + pool.episodes)


def missing_of_usual(recent: int, arrived: int, span: int) -> int:
    """How many of the last STALL_WINDOW numbers are missing, if far fewer came than is usual: `arrived` of `span`."""
    return STALL_WINDOW - recent if recent * span < STALL_SHARE * STALL_WINDOW * arrived else 0


class Pool:
    """What all pairs of a receiver have taught: in nanoseconds, and in multiples of each pair's spread."""

    __slots__ = ("known", "scaled")

    def __init__(self) -> None:
        self.known = self.scaled = UNKNOWN_OVERTAKING

    def learn(self, lasted_ns: float, delta_ns: float, spread_ns: float, target: float, is_new: bool) -> None:
        """One late event of one of the pairs."""
        known, scaled = self.known, self.scaled
        self.known = learn(known, lasted_ns, delta_ns, would_violate(known, lasted_ns, delta_ns), target, is_new)
        lasted, delta = lasted_ns / spread_ns, delta_ns / spread_ns
        self.scaled = learn(scaled, lasted, delta, would_violate(scaled, lasted, delta), target, is_new)


comes_in_stalls_compiled = borrowing_step(comes_in_stalls)
learn_compiled = borrowing_step(learn)
missing_of_usual_compiled = borrowing_step(missing_of_usual)
next_spread_compiled = borrowing_step(next_spread)
teaches_pool_compiled = borrowing_step(teaches_pool)
overtaking_latch_compiled = borrowing_step(overtaking_latch)
would_violate_compiled = borrowing_step(would_violate)
