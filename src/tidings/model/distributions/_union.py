"""The unions that a strict decoder needs: ``law = "..."`` says which of these a table is."""

from tidings.model.distributions._discrete import Discrete
from tidings.model.distributions._elementary import Deterministic, Exponential, Uniform
from tidings.model.distributions._empirical import Empirical
from tidings.model.distributions._gamma import ShiftedGamma, Weibull
from tidings.model.distributions._normal import LogNormal, TruncatedNormal
from tidings.model.distributions._phase_type import Hypoexponential, PhaseType
from tidings.model.distributions._replay import Replay
from tidings.model.distributions._zipf import Zipf

# Laws of durations, intervals and sizes: what a link, a broker or a publisher is described with.
DelayDistribution = (
    Deterministic
    | Exponential
    | Uniform
    | TruncatedNormal
    | ShiftedGamma
    | LogNormal
    | Hypoexponential
    | PhaseType
    | Empirical
    | Weibull
    | Discrete
    | Replay
)

# Every law, that of content included.
Distribution = DelayDistribution | Zipf
