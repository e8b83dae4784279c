"""A component as a Markov chain: phases in which it is up, phases in which it is down, and, if wanted, a lag.

Exponential times need one phase each; phase-type distributions are used directly; any other distribution is fitted
(`phases_of`).

The fit is to the part of a distribution that matters in a prediction. An event that finds a component down waits for
the rest of the repair, whose distribution function is H(x) = (1/m) integral of P[X > y] over 0..x. The phases are a
mixture, of exponentials or of Erlang distributions of one rate, whose weights are the non-negative ones for which H
comes out best in the least squares, with the mean kept exactly: so availability and frequency are exact whatever the
shape.

`lag_s` is the time after a repair until a broker has its table again: refreshes are periodic (section 2.4.1),
so it is uniform from 0 to the interval, here three exponential phases of that mean and variance. In these phases the
broker holds and sends its events (`holds`), but cannot accept new ones (`ready`).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tidings.faults._graph import Array, FloatArray

if TYPE_CHECKING:
    from tidings.model.distributions import DelayDistribution
    from tidings.model.failures import Failures

__all__ = ["PHASES_MAX", "Chains", "chains_of", "phases_of"]

PHASES_MAX = 8
"""The most phases that a distribution is given."""

_LAG_PHASES = 3  # of a uniform distribution: scv 1/3
_POINTS = 80
_EXACTLY = 30.0  # how much the equations for total and mean weigh against a point of the distribution function


class Chains(NamedTuple):
    """One chain per component, padded to the largest: generator, stationary distribution, number of phases, and masks.

    In `holds` the component is up; in `ready` it is up and, if it is a broker, has its table.
    """

    generator: FloatArray
    stationary: FloatArray
    phases: Array
    holds: Array
    ready: Array


def chains_of(failures: "Sequence[Failures | None]", *, lag_s: float = 0.0, exponential: bool = False) -> Chains:
    """The chains of these components; `exponential` replaces every distribution by an exponential one of the same
    mean."""
    made = [_chain(each, lag_s, exponential) for each in failures]
    most = max((len(one[1]) for one in made), default=1)
    count = len(made)
    chains = Chains(
        np.zeros((count, most, most)),
        np.zeros((count, most)),
        np.ones(count, np.int64),
        np.zeros((count, most), np.bool_),
        np.zeros((count, most), np.bool_),
    )
    for number, (generator, stationary, holds, ready) in enumerate(made):
        k = len(stationary)
        chains.generator[number, :k, :k] = generator
        chains.stationary[number, :k] = stationary
        chains.phases[number] = k
        chains.holds[number, :k] = holds
        chains.ready[number, :k] = ready
    return chains


def _chain(failures: "Failures | None", lag_s: float, exponential: bool) -> tuple[FloatArray, FloatArray, Array, Array]:
    if failures is None:
        always = np.ones(1, np.bool_)
        return np.zeros((1, 1)), np.ones(1), always, always
    if exponential:
        up, down = (
            (np.ones(1), np.array([[-1.0 / distribution.mean()]])) for distribution in (failures.up, failures.down)
        )
    else:
        up, down = phases_of(failures.up), phases_of(failures.down)
    lag = _erlang(_LAG_PHASES, lag_s / 2.0) if lag_s > 0.0 else (np.ones(0), np.zeros((0, 0)))
    u, d, e = len(up[0]), len(down[0]), len(lag[0])
    k = u + d + e
    generator = np.zeros((k, k))
    generator[:u, :u], generator[u : u + d, u : u + d] = up[1], down[1]
    failing, repairing = -up[1].sum(axis=1), -down[1].sum(axis=1)
    generator[:u, u : u + d] = np.outer(failing, down[0])
    if e:
        generator[u + d :, u + d :] = lag[1]
        generator[u : u + d, u + d :] = np.outer(repairing, lag[0])
        generator[u + d :, :u] = np.outer(-lag[1].sum(axis=1), up[0])
        # It may fail while it waits; the mean rate is the right one for exponential up times.
        generator[u + d :, u : u + d] += np.outer(np.ones(e), down[0]) / failures.up.mean()
        generator[np.arange(u + d, k), np.arange(u + d, k)] -= 1.0 / failures.up.mean()
    else:
        generator[u : u + d, :u] = np.outer(repairing, up[0])
    phase = np.arange(k)
    ready = phase < u
    return generator, _stationary(generator), ready | (phase >= u + d), ready


def _stationary(generator: FloatArray) -> FloatArray:
    k = len(generator)
    equations = np.vstack((generator.T, np.ones(k)))
    wanted = np.zeros(k + 1)
    wanted[k] = 1.0
    scale = np.abs(generator).max()
    equations[:k] /= scale
    found = np.linalg.lstsq(equations, wanted, rcond=None)[0]
    return np.asarray(np.maximum(found, 0.0) / np.maximum(found, 0.0).sum())


def _erlang(phases: int, mean_s: float) -> tuple[FloatArray, FloatArray]:
    rate = phases / mean_s
    start = np.zeros(phases)
    start[0] = 1.0
    return start, np.diag(np.full(phases, -rate)) + np.diag(np.full(phases - 1, rate), 1)


@lru_cache(maxsize=4096)
def phases_of(distribution: "DelayDistribution") -> tuple[FloatArray, FloatArray]:
    """Initial distribution and sub-generator of a phase-type distribution with the same mean; exact if it is one
    already."""
    from tidings.model.distributions import Exponential, Hypoexponential, PhaseType

    match distribution:
        case Exponential(scale=scale):
            return np.ones(1), np.array([[-1.0 / scale]])
        case Hypoexponential(rates=rates) if len(rates) <= PHASES_MAX:
            start = np.zeros(len(rates))
            start[0] = 1.0
            return start, np.diag(-np.array(rates)) + np.diag(np.array(rates[:-1]), 1)
        case PhaseType(alpha=alpha, sub_generator=sub) if len(alpha) <= PHASES_MAX:
            return np.array(alpha), np.array(sub)
        case _:
            return _fitted(distribution)


def _fitted(distribution: "DelayDistribution") -> tuple[FloatArray, FloatArray]:
    mean_s = distribution.mean()
    x, rest = _rest(distribution, mean_s)
    spans = [(least, most) for least in (0.003, 0.03, 0.1, 0.3, 0.9) for most in (1.1, 3.0, 10.0, 30.0, 100.0, 1e3)]
    candidates = [_exponentials(x, rest, *span) for span in spans]
    candidates += [_erlangs(x, rest, stages) for stages in np.geomspace(1.5, PHASES_MAX, 12).tolist()]
    start, sub, _ = min(candidates, key=lambda candidate: candidate[2])
    return start, sub / mean_s


def _rest(distribution: "DelayDistribution", mean_s: float) -> tuple[FloatArray, FloatArray]:
    """Times in means, and the distribution function of the residual of X at a random moment."""
    far = float(distribution.quantile(1.0 - 1e-9)) / mean_s
    fine = np.concatenate(([0.0], np.geomspace(1e-5, max(far, 10.0), 4_000)))
    middle = 0.5 * (fine[1:] + fine[:-1])
    steps = (1.0 - np.asarray(distribution.cdf(middle * mean_s))) * np.diff(fine)
    whole = np.concatenate(([0.0], np.cumsum(steps)))
    whole /= max(1.0, float(whole[-1]))
    chances = (np.arange(_POINTS) + 0.5) / _POINTS
    x = np.interp(chances, whole, fine)
    kept = chances < whole[-1]
    return x[kept], chances[kept]


def _shares(basis: FloatArray, rest: FloatArray, rates: FloatArray) -> FloatArray:
    """Shares of the time by which the columns of `basis` add up to `rest`; they and shares * rates have sum 1."""
    from scipy.optimize import nnls

    matrix = np.vstack((basis, np.full((1, len(rates)), _EXACTLY), _EXACTLY * rates))
    found, _ = nnls(matrix, np.concatenate((rest, [_EXACTLY, _EXACTLY])), maxiter=100 * len(rates))
    return np.asarray(found / found.sum())


def _exponentials(x: FloatArray, rest: FloatArray, least: float, most: float) -> tuple[FloatArray, FloatArray, float]:
    """A mixture of exponentials whose means are spread evenly, by their logarithms, between these two."""
    means = np.geomspace(least, most, PHASES_MAX)
    share = _shares(-np.expm1(-x[:, None] / means), rest, 1.0 / means)
    kept = share > 1e-9
    means, share = means[kept], share[kept] / share[kept].sum()
    means = means * float(share @ (1.0 / means))  # the distribution's mean exactly
    distance = float(np.abs(-np.expm1(-x[:, None] / means) @ share - rest).max())
    return share / means, np.diag(-1.0 / means), distance


def _erlangs(x: FloatArray, rest: FloatArray, rate: float) -> tuple[FloatArray, FloatArray, float]:
    """Erlang distributions of 1..PHASES_MAX stages of this rate; each is entered that many stages before the end."""
    from scipy.special import gammainc

    stages = np.arange(1, PHASES_MAX + 1)
    lasts = np.cumsum(gammainc(stages, rate * x[:, None]), axis=1) / stages
    found = _shares(lasts, rest, rate / stages) / stages
    found = found / found.sum()
    rate = float(found @ stages)  # the distribution's mean exactly
    of_stages = np.cumsum(gammainc(stages, rate * x[:, None]) / rate, axis=1)
    distance = float(np.abs(of_stages @ found - rest).max())
    k = int(np.flatnonzero(found > 1e-9)[-1]) + 1
    start = found[:k][::-1] / found[:k].sum()
    return start, np.diag(np.full(k, -rate)) + np.diag(np.full(k - 1, rate), 1), distance
