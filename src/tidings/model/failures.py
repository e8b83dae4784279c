"""How a component fails and is repaired (paper D, sections 2.3 and 5.1).

A broker or a link is either up or down. It stays up for a draw of `up`, then down for a draw of `down`, and so on; all
draws are independent of each other and of other components. With exponential distributions this is the paper's model:
failure rate 1 / mean up time, repair rate 1 / mean down time, availability a = mean up / (mean up + mean down), and the
period, the mean length of one cycle, is mean up + mean down. What the paper calls MTBF is the mean up time.

Both may be any distribution of the model: real repairs are rarely exponential.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tidings.errors import ConfigurationError

if TYPE_CHECKING:  # a scenario is read without loading the numerics behind the distributions
    from tidings.model.distributions import DelayDistribution

__all__ = ["Failures"]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The distributions of the times that a component is up and down, in seconds."""

    up: "DelayDistribution"
    down: "DelayDistribution"

    def __post_init__(self) -> None:
        for name, distribution in (("up", self.up), ("down", self.down)):
            mean_s = distribution.mean()
            if not 0.0 < mean_s < math.inf:
                raise ConfigurationError(
                    f"the mean {name} time is {mean_s!r} s, but must be above 0 and finite; "
                    "leave the failures out for a component that never fails, and the component out if it is never up"
                )

    @classmethod
    def exponential(cls, *, availability: float, period_s: float) -> Self:
        """Exponential times by the share of time that the component is up and the mean length of a cycle."""
        from tidings.model.distributions import Exponential

        check_availability(availability)
        if not 0.0 < period_s < math.inf:
            raise ConfigurationError(f"the period is {period_s!r} s, but must be above 0 and finite")
        return cls(
            up=Exponential(scale=availability * period_s),
            down=Exponential(scale=(1.0 - availability) * period_s),
        )

    @classmethod
    def by_rates(cls, *, failure_per_s: float, repair_per_s: float) -> Self:
        """Exponential times by the rates of failures while up and of repairs while down."""
        from tidings.model.distributions import Exponential

        for name, rate_per_s in (("failure", failure_per_s), ("repair", repair_per_s)):
            if not 0.0 < rate_per_s < math.inf:
                raise ConfigurationError(
                    f"the {name} rate is {rate_per_s!r} per second, but must be above 0 and finite; "
                    "leave the failures out for a component that never fails"
                )
        return cls(up=Exponential(scale=1.0 / failure_per_s), down=Exponential(scale=1.0 / repair_per_s))

    @classmethod
    def from_profile(cls, row: Mapping[str, Any]) -> Self | None:
        """From a row of the pipeline's table `components`: exponential times with the rates found there.

        None for a component that never failed in the trace. One that failed and was never repaired in the trace is
        refused: only an upper bound of its repair rate is known.
        """
        named = " -> ".join(str(row[end]) for end in ("source", "target") if row.get(end) is not None)
        failure_per_s, repair_per_s = row.get("failure_rate_per_s"), row.get("repair_rate_per_s")
        if not failure_per_s:
            return None
        if not repair_per_s:
            raise ConfigurationError(
                f"{row.get('kind', 'component')} {named!r} failed {row.get('failures', 'at least once')} times and was "
                "never repaired in the trace: use a longer trace, or give its repair rate yourself"
            )
        return cls.by_rates(failure_per_s=float(failure_per_s), repair_per_s=float(repair_per_s))

    @property
    def availability(self) -> float:
        """The share of time that the component is up in the long run."""
        up_s, down_s = self.up.mean(), self.down.mean()
        return up_s / (up_s + down_s)

    @property
    def period_s(self) -> float:
        """The mean length of a cycle of one time up and one time down."""
        return self.up.mean() + self.down.mean()

    @property
    def failure_rate_per_s(self) -> float:
        """Failures per second of up time: 1 / mean up time, the paper's gamma where it is exponential."""
        return 1.0 / self.up.mean()

    @property
    def repair_rate_per_s(self) -> float:
        """Repairs per second of down time: 1 / mean down time, the paper's sigma where it is exponential."""
        return 1.0 / self.down.mean()

    @property
    def is_exponential(self) -> bool:
        """Whether both distributions are exponential, as the equations of paper D assume."""
        from tidings.model.distributions import Exponential

        return isinstance(self.up, Exponential) and isinstance(self.down, Exponential)


def check_availability(availability: float) -> None:
    """ConfigurationError unless a component is up some of the time and down some of the time."""
    if not 0.0 < availability < 1.0:
        remedy = (
            "leave the failures of a component that is always up out"
            if availability >= 1.0
            else "leave a component that is never up out of the topology"
        )
        raise ConfigurationError(f"availability is {availability!r}, but must be above 0 and below 1; {remedy}")
