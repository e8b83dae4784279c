"""Probability distributions as frozen values: durations, sizes, the popularity of content.

Every distribution has ``mean()``, ``variance()``, ``scv()``, ``pdf(x)`` (Zipf: ``pmf``), ``cdf(x)``, ``quantile(p)``
and ``sample(rng, size)``. In machine formats a distribution is a table with its name under the key ``law``, such as
``{"law": "exponential", "mean": 0.002}``; ``msgspec.convert(table, Distribution)`` decodes it strictly.

Importing this package loads NumPy only; SciPy is loaded by the functions that need it.
"""

from tidings.model.distributions._discrete import Discrete
from tidings.model.distributions._elementary import Deterministic, Exponential, Uniform
from tidings.model.distributions._empirical import Empirical
from tidings.model.distributions._errors import DistributionError
from tidings.model.distributions._gamma import ShiftedGamma, Weibull
from tidings.model.distributions._normal import LogNormal, TruncatedNormal
from tidings.model.distributions._phase_type import Hypoexponential, PhaseType
from tidings.model.distributions._replay import Replay
from tidings.model.distributions._union import DelayDistribution, Distribution, ks_distance, ks_limit, scaled
from tidings.model.distributions._zipf import Zipf

__all__ = [
    "DelayDistribution",
    "Deterministic",
    "Discrete",
    "Distribution",
    "DistributionError",
    "Empirical",
    "Exponential",
    "Hypoexponential",
    "LogNormal",
    "PhaseType",
    "Replay",
    "ShiftedGamma",
    "TruncatedNormal",
    "Uniform",
    "Weibull",
    "Zipf",
    "ks_distance",
    "ks_limit",
    "scaled",
]
