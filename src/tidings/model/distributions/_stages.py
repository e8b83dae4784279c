"""Fitting the rates of a hypoexponential distribution.

The samples are counted in equal cells from 0 to the largest. The probability of every cell then comes from one matrix
exponential, that of a step of one cell, and a handful of matrix products that double the number of steps known; so a
likelihood costs well under a millisecond however many samples there are, and an ordinary optimiser over the
logarithms of the rates does the rest. A cell is about 1/40 of the mean, far finer than the distribution's features.
"""

import math

import numpy as np

from tidings.model.distributions._errors import DistributionError, FloatArray
from tidings.model.distributions._phases import exponentials

_CELLS = 1024
_MOST_STAGES = 8
# A stage this much shorter than the mean leaves no trace in the samples.
_FASTEST = 1e4


def fit_rates(values: FloatArray, stages: int | None) -> tuple[float, ...]:
    """Rates in ascending order, for sorted samples >= 0 that are not all equal."""
    mean = float(values.mean())
    step = float(values[-1]) / (_CELLS - 1) / mean  # in means: the search is then the same in every unit
    if step == 0.0:
        raise DistributionError("hypoexponential: the samples are too close to 0; use a smaller unit")
    counts = np.bincount(np.minimum((values / (mean * step)).astype(np.int64), _CELLS - 1), minlength=_CELLS)
    shares = counts / values.size
    scv = float(values.var()) / mean**2
    if stages is not None:
        best = _most_likely(shares, step, scv, stages)[0]
    else:
        best, least = np.ones(1), math.inf
        for k in range(2, _MOST_STAGES + 1):
            rates, cost = _most_likely(shares, step, scv, k)
            criterion = k + cost * values.size  # half of Akaike's
            if criterion >= least:
                break
            best, least = rates, criterion
    return tuple(float(rate) / mean for rate in np.sort(best))


def _most_likely(shares: FloatArray, step: float, scv: float, stages: int) -> tuple[FloatArray, float]:
    """The best rates (for mean 1) and the negative log-likelihood per sample."""
    from scipy.optimize import minimize

    occupied = np.flatnonzero(shares)
    weights = shares[occupied]

    def cost(log_rates: FloatArray) -> float:
        masses = _cell_masses(np.exp(log_rates), step)[occupied]
        return -float(weights @ np.log(np.maximum(masses, 1e-300)))

    bounds = [(math.log(0.25), math.log(_FASTEST))] * stages
    found = minimize(cost, np.log(_start(scv, stages)), method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return np.exp(found.x), float(found.fun)


def _start(scv: float, stages: int) -> FloatArray:
    """One long stage and stages - 1 equal short ones with this scv and mean 1, as near as such a distribution can come.

    The short ones are then spread by a few per cent: from equal rates the search could not tell them apart.
    """
    k = stages
    if k == 1:
        return np.ones(1)
    inside = min(max(scv, 1.0 / k + 1e-3), 0.95)
    # b long, a short: b + (k-1) a = 1 and b**2 + (k-1) a**2 = scv.
    long = (1.0 + math.sqrt((k - 1) * (k * inside - 1.0))) / k
    short = (1.0 - long) / (k - 1)
    return 1.0 / np.concatenate(([long], short * np.linspace(0.95, 1.05, k - 1)))


def _cell_masses(rates: FloatArray, step: float) -> FloatArray:
    """P[cell] for the cells [i * step, (i + 1) * step), the last one open upwards."""
    phases = rates.size
    sub = np.diag(-rates) + np.diag(rates[:-1], 1)
    power = exponentials(sub, np.array([step]))[0]
    rows = np.zeros((_CELLS, phases))
    rows[0, 0] = 1.0
    known = 1
    while known < _CELLS:
        rows[known : 2 * known] = rows[:known] @ power
        power = power @ power
        known *= 2
    survival = np.append(rows.sum(axis=1), 0.0)
    return np.asarray(survival[:-1] - survival[1:])
