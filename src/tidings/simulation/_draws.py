"""Distributions in compiled form: every draw that the event loop makes.

Theory of operation:

- A distribution is one record with its parameters and the state of a random stream of its own (SplitMix64, 64 bits). A
  component's draws depend on the seed, on what the component is and on how often it drew before; on nothing else.
- All samplers are exact (no tables): inversion for the exponential, uniform and Weibull ones, Box-Muller for the
  normal ones (drawn again while negative), Marsaglia-Tsang for the gamma, sums of stages, a walk through the phases or
  the values, straight lines between quantiles. What is replayed is not drawn: its state is the place of the next
  value. The one error is that of the generator: probabilities come in steps of
  2^-53.
- Durations become whole nanoseconds by rounding, so times are exact and two events fall together only if they do.

The constant draws nothing; a record of kind NONE is the constant 0.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    Replay,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
)
from tidings.simulation._layout import DISTRIBUTION, NANOSECONDS, NEVER_NS, Array

CONSTANT, EXPONENTIAL, UNIFORM, NORMAL, GAMMA, LOG_NORMAL, WEIBULL, STAGES, PHASES, QUANTILES, DISCRETE, REPLAY = range(
    12
)

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_BITS_30, _BITS_27, _BITS_31, _BITS_11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_TO_UNIT = 2.0**-53
_TURN = 2.0 * math.pi
_LONGEST_S = NEVER_NS / NANOSECONDS / 4.0


class Distributions(NamedTuple):
    """One record for each distribution, and the parameters of those that have many; kernels take it as it is lent."""

    records: Array
    rows: Array

    def copy(self) -> "Distributions":
        """The same distributions at the same place of their streams; drawing from one does not move the other."""
        return Distributions(self.records.copy(), self.rows)

    def with_more(self, more: "Distributions") -> "Distributions":
        """These distributions and others after them."""
        records = more.records.copy()
        records["first"] += len(self.rows)
        return Distributions(np.concatenate([self.records, records]), np.concatenate([self.rows, more.rows]))


def encode(distributions: Sequence[DelayDistribution | None], seed: int, part: int) -> Distributions:
    """These distributions; `part` separates the streams of different kinds."""
    records = np.zeros(len(distributions), DISTRIBUTION)
    rows: list[float] = []
    recordings: dict[int, int] = {}  # many links may replay the same one: its values are held once
    states = np.random.SeedSequence([seed, part]).generate_state(max(len(distributions), 1), np.uint64)
    for record, distribution, state in zip(records, distributions, states, strict=False):
        kind, numbers, row = _parameters(distribution)
        record["kind"], record["state"] = kind, 0 if kind == REPLAY else state
        for name, number in zip("abcd", numbers, strict=False):
            record[name] = number
        record["first"], record["count"] = len(rows), len(row)
        if kind == REPLAY:
            record["first"] = recordings.setdefault(id(distribution), len(rows))
        if record["first"] == len(rows):
            rows += row
    return Distributions(records, np.array(rows, np.float64))


def encode_all(kinds: Sequence[Sequence[DelayDistribution | None]], seed: int, *, first_part: int = 0) -> Distributions:
    """All distributions of several kinds one after the other; each kind is a part of its own, from `first_part` on."""
    return reduce(
        Distributions.with_more,
        (encode(distributions, seed, part) for part, distributions in enumerate(kinds, first_part)),
    )


def _parameters(distribution: DelayDistribution | None) -> tuple[int, Sequence[float], list[float]]:
    match distribution:
        case None:
            return CONSTANT, (0.0,), []
        case Deterministic():
            return CONSTANT, (distribution.value,), []
        case Exponential():
            return EXPONENTIAL, (distribution.scale,), []
        case Uniform():
            return UNIFORM, (distribution.low, distribution.high - distribution.low), []
        case TruncatedNormal():
            return NORMAL, (distribution.location, distribution.scale), []
        case ShiftedGamma():
            return GAMMA, (distribution.shift, distribution.shape, distribution.scale), []
        case LogNormal():
            bounds = (
                0.0 if distribution.low is None else distribution.low,
                math.inf if distribution.high is None else distribution.high,
            )
            return LOG_NORMAL, (distribution.median, distribution.sigma, *bounds), []
        case Weibull():
            return WEIBULL, (1.0 / distribution.shape, distribution.scale), []
        case Hypoexponential():
            return STAGES, (), [1.0 / rate for rate in distribution.rates]
        case PhaseType():
            return PHASES, (float(len(distribution.alpha)),), _phase_rows(distribution)
        case Discrete():
            values, below = distribution.cumulated()
            return DISCRETE, (), [*below.tolist(), *values.tolist()]
        case Replay():
            return REPLAY, (1.0 if distribution.then == "repeat" else 0.0,), list(distribution.values)
        case Empirical():
            return QUANTILES, (), [float(value) for value in distribution.quantiles]


def _phase_rows(distribution: PhaseType) -> list[float]:
    """The cumulated chances of the first phase; then per phase its mean stay and the cumulated chances of the next."""
    generator = np.array(distribution.sub_generator, np.float64)
    row = np.cumsum(np.array(distribution.alpha, np.float64)).tolist()
    for phase, rates in enumerate(generator):
        leaving = -rates[phase]
        onward = np.where(np.arange(len(rates)) == phase, 0.0, rates) / leaving
        row += [1.0 / leaving, *np.cumsum(onward).tolist()]
    return [float(number) for number in row]


@borrowing
def uniform(distributions: Distributions, distribution: int) -> float:
    """The next number of this distribution's stream, from 0 to below 1."""
    state = distributions.records[distribution].state + _STEP
    distributions.records[distribution].state = state
    state = (state ^ (state >> _BITS_30)) * _FIRST
    state = (state ^ (state >> _BITS_27)) * _SECOND
    state = state ^ (state >> _BITS_31)
    return float((state >> _BITS_11) * _TO_UNIT)


@borrowing_step
def _normal(distributions: Distributions, distribution: int) -> float:
    radius = math.sqrt(-2.0 * math.log1p(-uniform(distributions, distribution)))
    return radius * math.cos(_TURN * uniform(distributions, distribution))


@borrowing_inner
def _gamma(distributions: Distributions, distribution: int, shape: float) -> float:
    """Marsaglia and Tsang (2000); a shape below 1 is lifted by 1 and brought back by a power of a uniform."""
    lift = 1.0
    if shape < 1.0:
        lift = (1.0 - uniform(distributions, distribution)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = _normal(distributions, distribution)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log1p(-uniform(distributions, distribution)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * lift


@borrowing_inner
def _through_phases(distributions: Distributions, distribution: int) -> float:
    rows, first = distributions.rows, distributions.records[distribution].first
    count = int(distributions.records[distribution].a)
    chance = uniform(distributions, distribution)
    phase = 0
    while phase < count and chance >= rows[first + phase]:
        phase += 1
    total = 0.0
    while phase < count:
        row = first + count + phase * (count + 1)
        total -= rows[row] * math.log1p(-uniform(distributions, distribution))
        chance = uniform(distributions, distribution)
        phase = 0
        while phase < count and chance >= rows[row + 1 + phase]:
            phase += 1
    return total


@borrowing_inner
def _replayed(distributions: Distributions, distribution: int) -> float:
    """The next recorded value; after the last one the first again, or the last for ever."""
    place = int(distributions.records[distribution].state)
    following = place + 1
    if following == distributions.records[distribution].count:
        following = 0 if distributions.records[distribution].a > 0.0 else place
    distributions.records[distribution].state = np.uint64(following)
    return float(distributions.rows[distributions.records[distribution].first + place])


@borrowing_inner
def _other(distributions: Distributions, distribution: int) -> float:
    """All kinds but the commonest two, so that `draw` stays short."""
    rows, record = distributions.rows, distributions.records[distribution]
    if record.kind == UNIFORM:
        return float(record.a + record.b * uniform(distributions, distribution))
    if record.kind == NORMAL:
        drawn = record.a + record.b * _normal(distributions, distribution)
        while drawn < 0.0:
            drawn = record.a + record.b * _normal(distributions, distribution)
        return float(drawn)
    if record.kind == GAMMA:
        return float(record.a + record.c * _gamma(distributions, distribution, record.b))
    if record.kind == LOG_NORMAL:
        return float(min(max(record.a * math.exp(record.b * _normal(distributions, distribution)), record.c), record.d))
    if record.kind == WEIBULL:
        return float(record.b * (-math.log1p(-uniform(distributions, distribution))) ** record.a)
    if record.kind == PHASES:
        return _through_phases(distributions, distribution)
    first, count = record.first, record.count
    if record.kind == STAGES:
        total = 0.0
        for stage in range(first, first + count):
            total -= rows[stage] * math.log1p(-uniform(distributions, distribution))
        return total
    if record.kind == DISCRETE:
        chance, cell = uniform(distributions, distribution), first
        while chance >= rows[cell]:
            cell += 1
        return float(rows[cell + count // 2])
    if record.kind == REPLAY:
        return _replayed(distributions, distribution)
    place = uniform(distributions, distribution) * (count - 1)
    cell = first + int(place)
    return float(rows[cell] + (place - int(place)) * (rows[cell + 1] - rows[cell]))


@borrowing
def draw(distributions: Distributions, distribution: int) -> float:
    """The next value of this distribution; the commonest kinds are decided here."""
    kind = distributions.records[distribution].kind
    value = distributions.records[distribution].a
    if kind == EXPONENTIAL:
        value = -value * math.log1p(-uniform(distributions, distribution))
    elif kind != CONSTANT:
        value = _other(distributions, distribution)
    return float(value)


@borrowing
def whole_ns(seconds: float) -> int:
    """Seconds as the nearest whole number of nanoseconds, at most some decades."""
    return int(np.rint(min(seconds, _LONGEST_S) * NANOSECONDS))
