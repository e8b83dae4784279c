"""Probability laws as frozen values: how long things take, how large they are, which content is popular.

Every law offers ``mean()``, ``variance()``, ``scv()``, ``pdf(x)`` (Zipf: ``pmf``), ``cdf(x)``, ``quantile(p)``,
``sample(rng, size)`` and the class method ``fit(samples)``. In TOML a law is a table whose key ``law`` names it,
such as ``{law = "exponential", mean = 0.002}``; ``msgspec.convert(table, Distribution)`` decodes it strictly.

Importing this package loads NumPy only; SciPy is loaded by the functions that need it.
"""

from tidings.model.distributions._choice import DEFAULT_LAWS, Fitted, fit_best, ks_distance, ks_limit, tabulate
from tidings.model.distributions._discrete import Discrete
from tidings.model.distributions._elementary import Deterministic, Exponential, Uniform
from tidings.model.distributions._empirical import Empirical
from tidings.model.distributions._errors import DistributionError
from tidings.model.distributions._gamma import ShiftedGamma, Weibull
from tidings.model.distributions._normal import LogNormal, TruncatedNormal
from tidings.model.distributions._phase_type import Hypoexponential, PhaseType
from tidings.model.distributions._replay import Replay
from tidings.model.distributions._scaled import scaled
from tidings.model.distributions._union import DelayDistribution, Distribution
from tidings.model.distributions._zipf import Zipf

__all__ = [
    "DEFAULT_LAWS",
    "DelayDistribution",
    "Deterministic",
    "Discrete",
    "Distribution",
    "DistributionError",
    "Empirical",
    "Exponential",
    "Fitted",
    "Hypoexponential",
    "LogNormal",
    "PhaseType",
    "Replay",
    "ShiftedGamma",
    "TruncatedNormal",
    "Uniform",
    "Weibull",
    "Zipf",
    "fit_best",
    "ks_distance",
    "ks_limit",
    "scaled",
    "tabulate",
]
