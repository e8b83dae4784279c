"""Up and down times of components: rates with censoring handled, and whether the times are exponential.

A component is watched from a start to an end. Its transitions cut that into periods. The first period began before
the start (left truncated), the last goes on after the end (right censored). Rules:

- Transitions come in order of time; one to the present state of the component is ignored.
- Before its first transition a component is in the other state; without any it is up.
- A rate is events / exposed time, the maximum likelihood estimate for exponential periods: all periods count as
  exposure (a cut one is as good as new, the distribution has no memory), only those that ended inside as events.
- Its interval goes by cycles: leaving a state is a renewal process in the time spent in it, so d events know as much
  as d / c2 of a Poisson process, with c2 the squared coefficient of variation of the periods; the interval is the exact
  Poisson one (Garwood) for that many events, with c2 raised by Student's over the normal quantile, squared. A sample's
  own c2 misses the long periods that it has not seen. So it is the geometric mean of that and of the c2 of the more
  likely of a Weibull and a log-normal distribution, where the latter is larger. Below COMPLETE_LEAST complete periods
  c2 is taken as 1. With fewer than EVENTS_LEAST events, or EFFECTIVE_LEAST effective ones, the interval is rough, and
  too narrow where periods vary much (benchmarks/coverage.py has figures).
- Exponentiality is tested by Cox and Oakes's score test against a Weibull distribution, which takes right censoring
  as it is.
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
from tidings.statistics._batches import student_quantiles
from tidings.statistics._intervals import poisson_interval, standard_normal_quantile

__all__ = [
    "FEWEST_EVENTS",
    "Exponentiality",
    "Periods",
    "Rates",
    "censored_rates",
    "exponentiality",
    "periods",
]

FEWEST_EVENTS: Final = 8
"""With fewer periods that ended, the normal approximation of the test is not to be trusted."""

COMPLETE_LEAST: Final = 3
EVENTS_LEAST: Final = 20
EFFECTIVE_LEAST: Final = 10.0
_UNSEEN: Final = 3.0  # so many periods as of an exponential distribution besides, where those seen vary less
_LOGARITHM_VARIANCE_MAX: Final = 6.0
_SHAPE_LEAST, _SHAPE_MOST, _SHAPE_STEPS = 0.15, 20.0, 40

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
    """One entry per component: events out of the state, time in it, and their quotient with an interval; `effective` is
    for how many events of a Poisson process these count, and where they are too few the interval `is_rough`."""

    events: IntArray
    exposure_s: FloatArray
    rate_per_s: FloatArray
    low_per_s: FloatArray
    high_per_s: FloatArray
    effective: FloatArray
    is_rough: BoolArray


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
    complete = kept & lengths.began & lengths.ended & (lengths.length_s > 0.0)
    variability, seen = _variability(lengths.component[complete], lengths.length_s[complete], components)
    raised = student_quantiles(level, np.maximum(seen - 1.0, 1.0)) / standard_normal_quantile(level)
    scale = np.where(seen >= COMPLETE_LEAST, variability * raised**2, 1.0)
    low, high = poisson_interval(events / scale, exposure / scale, level=level)
    effective = events / scale
    is_rough = (events < EVENTS_LEAST) | (effective < EFFECTIVE_LEAST)
    return Rates(events, exposure, ratio(events, exposure), low, high, effective, is_rough)


def _variability(owner: IntArray, x: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """By component: the squared coefficient of variation of its complete periods, and how many there are."""
    from scipy.special import gammaln

    def mean(values: FloatArray, over: FloatArray) -> FloatArray:
        return ratio(np.bincount(owner, weights=values, minlength=components), over)

    count = floats(np.bincount(owner, minlength=components))
    x = x / mean(x, count)[owner]  # in units of the component's mean
    logarithm = np.log(x)
    middle = mean(logarithm, count)
    spread = mean((logarithm - middle[owner]) ** 2, count)
    seen = np.nan_to_num(mean((x - 1.0) ** 2, count - 1.0))
    seen = np.maximum(seen, (count * seen + _UNSEEN) / (count + _UNSEEN))
    shape = np.clip(1.28 / np.sqrt(np.maximum(np.nan_to_num(spread, nan=1.0), 1e-6)), _SHAPE_LEAST, _SHAPE_MOST)
    for _ in range(_SHAPE_STEPS):  # the most likely Weibull shape, by Newton's method, a factor of 2 at most at once
        power = x ** shape[owner]
        weight = np.maximum(np.bincount(owner, weights=power, minlength=components), 1e-300)
        slope = mean(power * logarithm, weight)
        curve = mean(power * logarithm**2, weight) - slope**2
        step = (1.0 / shape + middle - slope) / (1.0 / shape**2 + curve)
        shape = np.clip(np.clip(shape + np.nan_to_num(step), shape / 2.0, shape * 2.0), _SHAPE_LEAST, _SHAPE_MOST)
    # Log-likelihoods of a period, without common terms.
    weibull = np.log(shape) - np.log(ratio(weight, count)) + shape * middle - 1.0
    normal = -0.5 * np.log(2.0 * np.pi * np.maximum(np.nan_to_num(spread), 1e-300)) - 0.5
    corrected = np.nan_to_num(spread * ratio(count, count - 1.0))
    modelled = np.where(
        np.nan_to_num(normal) > np.nan_to_num(weibull),
        np.expm1(np.minimum(corrected, _LOGARITHM_VARIANCE_MAX)),
        np.expm1(gammaln(1.0 + 2.0 / shape) - 2.0 * gammaln(1.0 + 1.0 / shape)),
    )
    return np.sqrt(seen * np.maximum(seen, modelled)), count


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
