"""Laws in compiled form: every draw that the event loop makes.

Theory of operation:

- A law is one record with its parameters and the state of a random stream of its own (SplitMix64, 64 bits). A
  component's draws depend on the seed, on what the component is and on how often it drew before; on nothing else.
- All samplers are exact (no tables): inversion for the exponential, uniform and Weibull laws, Box-Muller for the
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
from tidings.simulation._layout import LAW, NANOSECONDS, NEVER_NS, Array

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


class Laws(NamedTuple):
    """One record for each law, and the parameters of those that have many; kernels take it as it is lent."""

    records: Array
    rows: Array

    def copy(self) -> "Laws":
        """The same laws at the same place of their streams; drawing from one does not move the other."""
        return Laws(self.records.copy(), self.rows)

    def with_more(self, more: "Laws") -> "Laws":
        """These laws and others after them."""
        records = more.records.copy()
        records["first"] += len(self.rows)
        return Laws(np.concatenate([self.records, records]), np.concatenate([self.rows, more.rows]))


def encode(laws: Sequence[DelayDistribution | None], seed: int, part: int) -> Laws:
    """These laws; `part` keeps the streams of different kinds of laws apart."""
    records = np.zeros(len(laws), LAW)
    rows: list[float] = []
    recordings: dict[int, int] = {}  # many links may replay the same one: its values are held once
    states = np.random.SeedSequence([seed, part]).generate_state(max(len(laws), 1), np.uint64)
    for record, law, state in zip(records, laws, states, strict=False):
        kind, numbers, row = _parameters(law)
        record["kind"], record["state"] = kind, 0 if kind == REPLAY else state
        for name, number in zip("abcd", numbers, strict=False):
            record[name] = number
        record["first"], record["count"] = len(rows), len(row)
        if kind == REPLAY:
            record["first"] = recordings.setdefault(id(law), len(rows))
        if record["first"] == len(rows):
            rows += row
    return Laws(records, np.array(rows, np.float64))


def encode_all(kinds: Sequence[Sequence[DelayDistribution | None]], seed: int, *, first_part: int = 0) -> Laws:
    """All laws of several kinds one after the other; each kind is a part of its own, from `first_part` on."""
    return reduce(Laws.with_more, (encode(laws, seed, part) for part, laws in enumerate(kinds, first_part)))


def _parameters(law: DelayDistribution | None) -> tuple[int, Sequence[float], list[float]]:
    match law:
        case None:
            return CONSTANT, (0.0,), []
        case Deterministic():
            return CONSTANT, (law.value,), []
        case Exponential():
            return EXPONENTIAL, (law.scale,), []
        case Uniform():
            return UNIFORM, (law.low, law.high - law.low), []
        case TruncatedNormal():
            return NORMAL, (law.location, law.scale), []
        case ShiftedGamma():
            return GAMMA, (law.shift, law.shape, law.scale), []
        case LogNormal():
            bounds = (0.0 if law.low is None else law.low, math.inf if law.high is None else law.high)
            return LOG_NORMAL, (law.median, law.sigma, *bounds), []
        case Weibull():
            return WEIBULL, (1.0 / law.shape, law.scale), []
        case Hypoexponential():
            return STAGES, (), [1.0 / rate for rate in law.rates]
        case PhaseType():
            return PHASES, (float(len(law.alpha)),), _phase_rows(law)
        case Discrete():
            values, below = law.cumulated()
            return DISCRETE, (), [*below.tolist(), *values.tolist()]
        case Replay():
            return REPLAY, (1.0 if law.then == "repeat" else 0.0,), list(law.values)
        case Empirical():
            return QUANTILES, (), [float(value) for value in law.quantiles]


def _phase_rows(law: PhaseType) -> list[float]:
    """The cumulated chances of the first phase; then per phase its mean stay and the cumulated chances of the next."""
    generator = np.array(law.sub_generator, np.float64)
    row = np.cumsum(np.array(law.alpha, np.float64)).tolist()
    for phase, rates in enumerate(generator):
        leaving = -rates[phase]
        onward = np.where(np.arange(len(rates)) == phase, 0.0, rates) / leaving
        row += [1.0 / leaving, *np.cumsum(onward).tolist()]
    return [float(number) for number in row]


@borrowing
def uniform(laws: Laws, law: int) -> float:
    """The next number of this law's stream, from 0 to below 1."""
    state = laws.records[law].state + _STEP
    laws.records[law].state = state
    state = (state ^ (state >> _BITS_30)) * _FIRST
    state = (state ^ (state >> _BITS_27)) * _SECOND
    state = state ^ (state >> _BITS_31)
    return float((state >> _BITS_11) * _TO_UNIT)


@borrowing_step
def _normal(laws: Laws, law: int) -> float:
    radius = math.sqrt(-2.0 * math.log1p(-uniform(laws, law)))
    return radius * math.cos(_TURN * uniform(laws, law))


@borrowing_inner
def _gamma(laws: Laws, law: int, shape: float) -> float:
    """Marsaglia and Tsang (2000); a shape below 1 is lifted by 1 and brought back by a power of a uniform."""
    lift = 1.0
    if shape < 1.0:
        lift = (1.0 - uniform(laws, law)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = _normal(laws, law)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log1p(-uniform(laws, law)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * lift


@borrowing_inner
def _through_phases(laws: Laws, law: int) -> float:
    rows, first = laws.rows, laws.records[law].first
    count = int(laws.records[law].a)
    chance = uniform(laws, law)
    phase = 0
    while phase < count and chance >= rows[first + phase]:
        phase += 1
    total = 0.0
    while phase < count:
        row = first + count + phase * (count + 1)
        total -= rows[row] * math.log1p(-uniform(laws, law))
        chance = uniform(laws, law)
        phase = 0
        while phase < count and chance >= rows[row + 1 + phase]:
            phase += 1
    return total


@borrowing_inner
def _replayed(laws: Laws, law: int) -> float:
    """The next recorded value; after the last one the first again, or the last for ever."""
    place = int(laws.records[law].state)
    following = place + 1
    if following == laws.records[law].count:
        following = 0 if laws.records[law].a > 0.0 else place
    laws.records[law].state = np.uint64(following)
    return float(laws.rows[laws.records[law].first + place])


@borrowing_inner
def _other(laws: Laws, law: int) -> float:
    """All kinds but the commonest two, so that `draw` stays short."""
    rows, record = laws.rows, laws.records[law]
    if record.kind == UNIFORM:
        return float(record.a + record.b * uniform(laws, law))
    if record.kind == NORMAL:
        drawn = record.a + record.b * _normal(laws, law)
        while drawn < 0.0:
            drawn = record.a + record.b * _normal(laws, law)
        return float(drawn)
    if record.kind == GAMMA:
        return float(record.a + record.c * _gamma(laws, law, record.b))
    if record.kind == LOG_NORMAL:
        return float(min(max(record.a * math.exp(record.b * _normal(laws, law)), record.c), record.d))
    if record.kind == WEIBULL:
        return float(record.b * (-math.log1p(-uniform(laws, law))) ** record.a)
    if record.kind == PHASES:
        return _through_phases(laws, law)
    first, count = record.first, record.count
    if record.kind == STAGES:
        total = 0.0
        for stage in range(first, first + count):
            total -= rows[stage] * math.log1p(-uniform(laws, law))
        return total
    if record.kind == DISCRETE:
        chance, cell = uniform(laws, law), first
        while chance >= rows[cell]:
            cell += 1
        return float(rows[cell + count // 2])
    if record.kind == REPLAY:
        return _replayed(laws, law)
    place = uniform(laws, law) * (count - 1)
    cell = first + int(place)
    return float(rows[cell] + (place - int(place)) * (rows[cell + 1] - rows[cell]))


@borrowing
def draw(laws: Laws, law: int) -> float:
    """The next value of this law; the commonest kinds are decided here."""
    kind = laws.records[law].kind
    value = laws.records[law].a
    if kind == EXPONENTIAL:
        value = -value * math.log1p(-uniform(laws, law))
    elif kind != CONSTANT:
        value = _other(laws, law)
    return float(value)


@borrowing
def whole_ns(seconds: float) -> int:
    """Seconds as the nearest whole number of nanoseconds, at most some decades."""
    return int(np.rint(min(seconds, _LONGEST_S) * NANOSECONDS))
