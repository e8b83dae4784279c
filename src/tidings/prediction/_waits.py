"""Waiting at one station: the paper's mean waits, and whole waiting-time distributions.

- `mm1_wait`: equation 5. `gg1_wait`: Whitt's approximation, in which burstiness corrects the mean (section 4.5).
- The Pollaczek-Khinchine formula: with Poisson arrivals of load sigma, E[exp(-s W)] is (1 - sigma) / (1 - sigma
  Be(s)), where Be is the transform of a service's residual. It is an atom 1 - sigma at 0 and a tail, exact for M/G/1;
  and with exponential service it is exact for any GI/M/1 queue too, sigma then being the chance that an arrival has to
  wait. So a waiting distribution is known here by its sigma, and sigma by the mean wait (`sigma_of_wait`).
"""

import numpy as np

from tidings.prediction._knowledge import FloatArray

__all__ = ["gg1_wait", "mm1_wait", "poisson_wait", "residual_mean", "sigma_of_wait", "wait_of_sigma"]


def mm1_wait(rate_per_s: FloatArray, mean_s: FloatArray) -> FloatArray:
    """The mean wait of equation 5, infinite at a load of 1 and above."""
    load = rate_per_s * mean_s
    return np.where(load < 1.0, mean_s * load / np.where(load < 1.0, 1.0 - load, 1.0), np.inf)


def gg1_wait(
    rate_per_s: FloatArray, mean_s: FloatArray, arrival_scv: FloatArray, service_scv: FloatArray
) -> FloatArray:
    """Whitt's mean wait from the variability of arrivals and service; with both 1 it is `mm1_wait`."""
    load = rate_per_s * mean_s
    spread = arrival_scv + service_scv
    safe = np.where((load > 0.0) & (load < 1.0) & (spread > 0.0), load, 0.5)
    exponent = -2.0 * (1.0 - safe) * (1.0 - arrival_scv) ** 2 / (3.0 * safe * np.maximum(spread, 1e-300))
    regular = np.where(arrival_scv < 1.0, np.exp(np.minimum(exponent, 0.0)), 1.0)
    return mm1_wait(rate_per_s, mean_s) * np.where(spread > 0.0, spread / 2.0 * regular, 0.0)


def residual_mean(mean_s: FloatArray, second_s2: FloatArray) -> FloatArray:
    """The mean time that a service in progress still takes: E[S^2] / (2 E[S])."""
    return np.where(mean_s > 0.0, second_s2 / (2.0 * np.maximum(mean_s, 1e-300)), 0.0)


def poisson_wait(rate_per_s: FloatArray, mean_s: FloatArray, second_s2: FloatArray) -> FloatArray:
    """The mean wait with Poisson arrivals (Pollaczek and Khinchine)."""
    return wait_of_sigma(rate_per_s * mean_s, residual_mean(mean_s, second_s2))


def wait_of_sigma(sigma: FloatArray, residual_s: FloatArray) -> FloatArray:
    """The mean of the waiting distribution with this sigma."""
    below = sigma < 1.0
    return np.where(below, residual_s * sigma / np.where(below, 1.0 - sigma, 1.0), np.inf)


def sigma_of_wait(wait_s: FloatArray, residual_s: FloatArray) -> FloatArray:
    """The sigma of the waiting distribution with this mean."""
    finite = np.where(np.isfinite(wait_s), wait_s, 0.0)
    sigma = np.where(finite > 0.0, finite / np.where(finite > 0.0, finite + residual_s, 1.0), 0.0)
    return np.where(np.isfinite(wait_s), sigma, 1.0)
