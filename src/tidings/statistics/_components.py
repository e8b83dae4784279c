"""Up and down times of components: rates with censoring handled, and whether the times are exponential.

A component is watched from a start to an end. Its transitions cut that into periods. The first period began before
the start (left truncated), the last goes on after the end (right censored). Rules:

- Transitions come in order of time; one to the state that the component is already in says nothing and is ignored.
- Before its first transition a component is in the other state; without any it is up.
- A rate is events / exposed time, the maximum likelihood estimate for exponential periods: all periods count as
  exposure (a cut one is as good as new, the law has no memory), only those that ended inside as events.
- Exponentiality is tested by Cox and Oakes's score test against a Weibull law, which takes right censoring as it is.
  With d events, lengths x (ended or not) and sums over all of them:

      U = d + Sum_ended ln x - d Sum x ln x / Sum x,
      V = d + d [Sum x ln**2 x / Sum x - (Sum x ln x / Sum x)**2],   U / sqrt(V) ~ N(0, 1).

  Left truncated periods are left out, their age is unknown, and so are those of length 0. Positive: lengths more
  regular than exponential; negative: more bursty. Below FEWEST_EVENTS events it is NaN.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.statistics._arrays import FloatArray, Numbers, floats, ratio
from tidings.statistics._intervals import poisson_interval

__all__ = ["FEWEST_EVENTS", "Exponentiality", "Periods", "Rates", "censored_rates", "exponentiality", "periods"]

FEWEST_EVENTS: Final = 8
"""With fewer periods that ended, the normal approximation of the test is not to be trusted."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Periods(NamedTuple):
    """One entry per period: whose it is, which state, how long in seconds, and which of its ends were seen."""

    component: IntArray
    up: BoolArray
    length_s: FloatArray
    began: BoolArray
    ended: BoolArray


class Rates(NamedTuple):
    """One entry per component: events out of the state, time in it, and their quotient with an interval."""

    events: IntArray
    exposure_s: FloatArray
    rate_per_s: FloatArray
    low_per_s: FloatArray
    high_per_s: FloatArray


class Exponentiality(NamedTuple):
    """One entry per component: the score (positive: more regular than exponential) and its two-sided p-value."""

    score: FloatArray
    p_value: FloatArray


def periods(offsets: IntArray, at_ns: IntArray, up: BoolArray, start_ns: IntArray, end_ns: IntArray) -> Periods:
    """The periods of components whose transitions are at_ns[offsets[i]:offsets[i + 1]], in order of time."""
    components = len(offsets) - 1
    owner = np.repeat(np.arange(components), np.diff(offsets))
    first = np.zeros(len(owner), dtype=np.bool_)
    first[offsets[:-1][np.diff(offsets) > 0]] = True
    changes = first | (up != np.roll(up, 1))
    owner, at_ns, up, first = owner[changes], at_ns[changes], up[changes], first[changes]

    # A period begins at each transition, and one at each component's start, in the state that its first one ends.
    began_up = np.ones(components, dtype=np.bool_)
    began_up[owner[first]] = ~up[first]
    counts = np.bincount(owner, minlength=components)
    heads = np.concatenate(([0], np.cumsum(counts + 1)))[:-1].astype(np.int64)
    is_head = np.zeros(len(owner) + components, dtype=np.bool_)
    is_head[heads] = True
    begins = np.empty(len(is_head), dtype=np.int64)
    begins[is_head], begins[~is_head] = start_ns, at_ns
    state = np.empty(len(is_head), dtype=np.bool_)
    state[is_head], state[~is_head] = began_up, up
    tails = heads + counts
    is_tail = np.zeros(len(is_head), dtype=np.bool_)
    is_tail[tails] = True
    ends = np.roll(begins, -1)
    ends[is_tail] = end_ns
    return Periods(
        component=np.repeat(np.arange(components), counts + 1),
        up=state,
        length_s=(ends - begins) / 1e9,
        began=~is_head,
        ended=~is_tail,
    )


def censored_rates(lengths: Periods, components: int, *, up: bool, level: float) -> Rates:
    """How often components leave the state `up`, per second in it."""
    kept = lengths.up == up
    owner = lengths.component[kept]
    exposure = floats(np.bincount(owner, weights=lengths.length_s[kept], minlength=components))
    events = np.bincount(owner[lengths.ended[kept]], minlength=components)
    low, high = poisson_interval(events, exposure, level=level)
    return Rates(events, exposure, ratio(events, exposure), low, high)


def exponentiality(lengths: Periods, components: int, *, up: bool) -> Exponentiality:
    """Cox and Oakes's test of the times in the state `up`, for each component."""
    kept = (lengths.up == up) & lengths.began & (lengths.length_s > 0.0)
    owner, x, ended = lengths.component[kept], lengths.length_s[kept], lengths.ended[kept]

    def per_component(values: Numbers) -> FloatArray:
        return floats(np.bincount(owner, weights=floats(values), minlength=components))

    # In units of the component's mean, so that the logarithms stay small whatever the clock's unit.
    mean = ratio(per_component(x), per_component(np.ones(len(x))))
    x = x / mean[owner]
    logarithm = np.log(x)
    d, total = per_component(ended), per_component(x)
    slope = ratio(per_component(x * logarithm), total)
    curve = ratio(per_component(x * logarithm**2), total)
    score = d + per_component(ended * logarithm) - d * slope
    information = d * (1.0 + curve - slope**2)
    z = np.where(d >= FEWEST_EVENTS, ratio(score, np.sqrt(information)), np.nan)
    return Exponentiality(z, _two_sided(z))


def _two_sided(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(2.0 * ndtr(-np.abs(z)))
