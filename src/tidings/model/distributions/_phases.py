"""Phase-type arithmetic on arrays: the time until a Markov chain (initial distribution alpha, sub-generator S) is
absorbed.

P[X > x] = alpha exp(Sx) 1 and the density is alpha exp(Sx) s, s = -S1, for any S: equal or nearly equal rates need no
care, unlike in the textbook sum over partial fractions, which divides by their differences.

The matrix exponential is that of a sub-generator, and is taken by uniformisation: exp(St) is a sum of Poisson weights
times powers of the non-negative matrix I + S/rate, for a short time that is then doubled by squaring. Nothing is
ever subtracted, so nothing cancels. (The general routine scipy.linalg.expm, as of 1.17, takes divided differences
beside the diagonal of triangular matrices: 9 digits are left for rates that differ in the eighth, 5 in the twelfth.)
On triangular matrices, which all the usual distributions have, the diagonal is known exactly and is put right after
every squaring: the error then grows with the number of squarings, not with the time.

Many points at once: x is written in base 32 as multiples of a tiny step, one matrix exponential is taken for each digit
of each place, and the row vector alpha is multiplied through the places. That costs a few hundred small matrix
exponentials however many points there are. What is left below the step is a second-order Taylor term. Probabilities
come out right to about 1e-14, densities to about 1e-13 of their largest value.
"""

import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions._errors import DistributionError, FloatArray

# Up to this many points, one matrix exponential each is cheaper.
_DIRECT_POINTS = 64
_BASE = 32
# Terms of the series for rate * time <= 1: the next one is below 1e-19.
_SERIES_TERMS = 20
# The step below which Taylor takes over, in units of 1 / (largest rate): its third-order term is below 1e-15.
_STEP = 1e-5
_START_POINTS = 513
_MAX_NEWTON_STEPS = 80
# A chain that jumps this often before it is absorbed is no delay distribution; see `sample_chain`.
MAX_JUMPS = 1_000_000


def moments(alpha: FloatArray, sub: FloatArray) -> tuple[float, float]:
    """Mean and variance."""
    occupation = np.linalg.solve(-sub, np.ones(alpha.size))
    mean = float(alpha @ occupation)
    second = 2.0 * float(alpha @ np.linalg.solve(-sub, occupation))
    return mean, second - mean**2


def _horizon(sub: FloatArray) -> float:
    """A time by which every distribution with this sub-generator is absorbed, as far as doubles can tell."""
    slowest = float(np.min(-np.linalg.eigvals(sub).real))
    return float(1000.0 + 100.0 * sub.shape[0]) / slowest


def exponentials(sub: FloatArray, times: FloatArray) -> FloatArray:
    """exp(S t) for each finite t >= 0, stacked."""
    diagonal = np.diag(sub)
    rate = float(np.max(-diagonal))
    doublings = np.ceil(np.log2(np.maximum(rate * times, 1.0))).astype(np.int64)
    short = times / 2.0**doublings
    jumps = np.maximum(np.eye(diagonal.size) + sub / rate, 0.0)
    term = np.exp(-rate * short)[:, None, None] * np.eye(diagonal.size)
    result = term.copy()
    for k in range(1, _SERIES_TERMS):
        term = (rate * short / k)[:, None, None] * (term @ jumps)
        result += term
    corner = np.arange(diagonal.size)
    triangular = not np.tril(sub, -1).any() or not np.triu(sub, 1).any()
    for done in range(int(doublings.max(initial=0)) + 1):
        current = doublings >= done
        if done:
            short[current] *= 2.0
            result[current] = result[current] @ result[current]
        if triangular:
            result[:, corner, corner] = np.exp(short[:, None] * diagonal)
    return result


def transient(alpha: FloatArray, sub: FloatArray, x: FloatArray) -> FloatArray:
    """Rows alpha exp(S x) for each finite x >= 0: the probability of being in each phase at time x."""
    x = np.minimum(x, _horizon(sub))
    if x.size <= _DIRECT_POINTS:
        rows = np.einsum("i,nij->nj", alpha, exponentials(sub, x)) if x.size else np.empty((0, alpha.size))
        return np.maximum(rows, 0.0)
    largest = float(x.max())
    step = max(_STEP / float(np.max(-np.diag(sub))), largest / 2.0**60)
    count = np.floor(x / step)
    by_digits, order = _multiply_through(alpha, sub, step, count.astype(np.int64))
    rows = np.empty_like(by_digits)
    rows[order] = by_digits
    rest = (x - count * step)[:, None]
    drift = rows @ sub
    return np.maximum(rows + rest * drift + 0.5 * rest**2 * (drift @ sub), 0.0)


def _multiply_through(
    alpha: FloatArray, sub: FloatArray, step: float, steps: NDArray[np.int64]
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Rows alpha exp(S step n) for each n of `steps`, digit by digit, and which n each row belongs to."""
    rows = np.tile(alpha, (steps.size, 1))
    order = np.arange(steps.size)
    place = step
    while steps.any():  # at most 12 places, as a count is below 2**60
        digit = (steps % _BASE).astype(np.int8)
        # Rows of the same digit are brought together, so that each digit is one product over a slice.
        together = np.argsort(digit, kind="stable")
        rows, order, steps = rows[together], order[together], steps[together] // _BASE
        ends = np.cumsum(np.bincount(digit, minlength=_BASE))
        present = np.flatnonzero(np.diff(ends)) + 1
        for value, power in zip(present, exponentials(sub, place * present.astype(np.float64)), strict=True):
            same = slice(ends[value - 1], ends[value])
            rows[same] = rows[same] @ power
        place *= _BASE
    return rows, order


def survival_and_density(alpha: FloatArray, sub: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P[X > x] and the density at x, for any x: 1 and 0 below 0, 0 and 0 at infinity, NaN at NaN."""
    survival = np.where(np.isnan(x), np.nan, np.where(x < 0.0, 1.0, 0.0))
    density = np.where(np.isnan(x), np.nan, 0.0)
    usual = np.isfinite(x) & (x >= 0.0)
    rows = transient(alpha, sub, x[usual])
    survival[usual] = np.minimum(rows.sum(axis=1), 1.0)
    density[usual] = rows @ np.maximum(-sub.sum(axis=1), 0.0)
    return survival, density


def quantiles(alpha: FloatArray, sub: FloatArray, p: FloatArray) -> FloatArray:
    """Solve P[X <= x] = p: Newton's steps, kept inside a bracket that halves whenever a step would leave it."""
    result = np.where(p >= 1.0, np.inf, 0.0)
    inner = (p > 0.0) & (p < 1.0)
    if not inner.any():
        return result
    wanted = 1.0 - p[inner]
    low, high, x = _brackets(alpha, sub, wanted)
    open_ = np.arange(x.size)
    for _ in range(_MAX_NEWTON_STEPS):
        survival, density = survival_and_density(alpha, sub, x[open_])
        excess = survival - wanted[open_]
        low[open_] = np.where(excess > 0.0, x[open_], low[open_])
        high[open_] = np.where(excess <= 0.0, x[open_], high[open_])
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = x[open_] + excess / density
        outside = ~((moved >= low[open_]) & (moved <= high[open_]))
        moved = np.where(outside, 0.5 * (low[open_] + high[open_]), moved)
        settled = (np.abs(moved - x[open_]) <= 1e-14 * moved) | (np.abs(excess) <= 1e-16)
        x[open_] = moved
        open_ = open_[~settled]
        if open_.size == 0:
            break
    result[inner] = x
    return result


def _brackets(alpha: FloatArray, sub: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each survival probability an interval that holds its point, and a first guess inside."""
    horizon = _horizon(sub)
    reach, least = moments(alpha, sub)[0], float(wanted.min())
    while reach < horizon and survival_and_density(alpha, sub, np.array([reach]))[0][0] > least:
        reach *= 2.0
    grid = np.linspace(0.0, min(reach, horizon), _START_POINTS)
    # Rounding may lift a value above its left neighbour by an ulp; a search needs them in order.
    falling = np.minimum.accumulate(survival_and_density(alpha, sub, grid)[0])
    right = np.clip(np.searchsorted(-falling, -wanted, side="left"), 1, grid.size - 1)
    low, high = grid[right - 1].copy(), grid[right].copy()
    above, below = falling[right - 1], falling[right]
    share = np.where(above > below, (above - wanted) / np.where(above > below, above - below, 1.0), 0.5)
    return low, high, low + np.clip(share, 0.0, 1.0) * (high - low)


def sample_chain(alpha: FloatArray, sub: FloatArray, rng: np.random.Generator, count: int) -> FloatArray:
    """Run `count` chains side by side until each is absorbed; all that are still running jump together."""
    phases = alpha.size
    rates = -np.diag(sub)
    starts = np.cumsum(alpha)
    # Row i of the jump distribution lies in (i, i + 1), so that one search over all rows picks every chain's next
    # phase; the rest of the row above its last entry is absorption.
    jumps = np.cumsum(np.where(np.eye(phases, dtype=bool), 0.0, sub) / rates[:, None], axis=1)
    stays = np.maximum(-sub.sum(axis=1), 0.0) <= 1e-12 * rates
    jumps[stays] /= jumps[stays, -1:]
    ladder = (np.minimum(jumps, 1.0) + np.arange(phases)[:, None]).ravel()
    phase: NDArray[np.int64] = np.minimum(
        np.searchsorted(starts / starts[-1], rng.random(count), side="right"), phases - 1
    )
    total = np.zeros(count)
    running = np.arange(count)
    for _ in range(MAX_JUMPS):
        if running.size == 0:
            return total
        total[running] += rng.standard_exponential(running.size) / rates[phase]
        drawn = phase + rng.random(running.size)
        following = np.searchsorted(ladder, drawn, side="right") - phase * phases
        going = following < phases
        running, phase = running[going], following[going]
    raise DistributionError(
        f"phase-type: a chain was not absorbed within {MAX_JUMPS} jumps; "
        "raise the exit rates of `sub_generator` or merge phases that only hand over to each other"
    )
