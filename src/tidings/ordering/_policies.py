"""Policies: how long a receiver holds an event that arrived ahead of a gap, and what becomes of one that is too late.

Written as in the paper's figures:

- `P-0.05-25`: the probabilistic latch for a violation probability of .05, with records of up to 25 events (0: basic
  mode);
- `CST-30`: every event behind a gap is held for 30 ms;
- `ours-record`: records and the longer of two latches, for a tiny violation probability and for what overtaking has
  taught; what releases an event is then that its predecessors have come or are known not to come, rarely a timer, so
  the wait that the timer allows is hardly ever waited;
- `ours-quantile`, `Q-0.995`: no record; the latch is the quantile of observed overtaking that repairs the wanted
  share of out-of-order receptions (.99, .995), corrected by what happens.
"""

import math
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.policies import policies

__all__ = ["Policy"]

OUR_PROBABILITY: Final = 0.0006
OUR_SAMPLES: Final = 100
OUR_RECORD: Final = 25
OUR_TARGET: Final = 0.99
OUR_MARGIN: Final = 8.0
OUR_RECORD_MARGIN: Final = 4.0
OUR_MAX_LATCH_NS: Final = 10_000_000_000
"""The longest latch of ours for an event without a deadline: mobile networks stall for 6 s."""

PROBABILISTIC, STATIC, QUANTILE = 0, 1, 2
_KINDS: Final = {"probabilistic": PROBABILISTIC, "static": STATIC, "quantile": QUANTILE}


class Rule(NamedTuple):
    """A policy as a kernel takes it: plain numbers, the quantile of the distribution computed."""

    kind: int
    factor: float  # latch = factor · mean |x| - delta
    cold_factor: float  # the same, as long as nothing has come late
    record: int
    latch_ns: int
    target: float
    margin: float  # how far beyond what was seen the latch reaches at first; 0: overtaking teaches nothing
    samples: int
    drops: bool
    max_latch_ns: int
    max_held: int
    clock_step_ns: int


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver does about order; the bounds at the end hold for every kind.

    `samples` is the size of the ring of delay differences (the paper's q). No event is held longer than `max_latch_ns`
    for its own timer; at most `max_held` events of a publisher wait, then the first of them leaves. A delay difference
    beyond `clock_step_ns` is a stepped clock, not a delay.

    With a `margin` above 0 overtaking teaches: after k episodes of it the latch is at least (1 + margin / k) times the
    longest that was needed. Such a latch follows the deadline of an event that has one: up to `clock_step_ns`, whatever
    `max_latch_ns` says, and never beyond it. None is the margin of ours for quantiles, and 0 for the other kinds.
    """

    name: str
    kind: Literal["probabilistic", "static", "quantile"]
    violation_probability: float = 0.05
    cold_probability: float | None = None
    record: int = 0
    latch_ns: int = 0
    target: float = OUR_TARGET
    margin: float | None = None
    samples: int = 25
    late: Literal["deliver", "drop"] = "deliver"
    max_latch_ns: int = 2_000_000_000
    max_held: int = 1024
    clock_step_ns: int = 10_000_000_000

    def __post_init__(self) -> None:
        if not 0.0 < self.violation_probability <= 0.5:
            raise self._refuse("violation_probability", "above 0 and at most 0.5", self.violation_probability)
        if self.cold_probability is not None and not 0.0 < self.cold_probability <= 0.5:
            raise self._refuse("cold_probability", "above 0 and at most 0.5", self.cold_probability)
        if not 0.5 <= self.target < 1.0:
            raise self._refuse("target", "at least 0.5 and below 1", self.target)
        if self.margin is not None and not 0.0 <= self.margin < math.inf:
            raise self._refuse("margin", "at least 0 and finite", self.margin)
        for field, least in (("record", 0), ("latch_ns", 0), ("samples", 1), ("max_latch_ns", 0), ("max_held", 1)):
            if getattr(self, field) < least:
                raise self._refuse(field, f"at least {least}", getattr(self, field))
        if self.clock_step_ns <= self.max_latch_ns:
            raise self._refuse("clock_step_ns", "above max_latch_ns", self.clock_step_ns)

    @classmethod
    def parse(cls, text: str, *, late: Literal["deliver", "drop"] = "deliver") -> "Policy":
        """The policy that a name says; ConfigurationError if it says none."""
        if text == "ours-record":
            return cls(
                name=text,
                kind="probabilistic",
                violation_probability=OUR_PROBABILITY,
                cold_probability=0.05,
                record=OUR_RECORD,
                samples=OUR_SAMPLES,
                margin=OUR_RECORD_MARGIN,
                max_latch_ns=OUR_MAX_LATCH_NS,
                clock_step_ns=2 * OUR_MAX_LATCH_NS,
                late=late,
            )
        if text == "ours-quantile":
            return cls.quantile(OUR_TARGET, name=text, late=late)
        kind, _, rest = text.partition("-")
        try:
            if kind == "P":
                probability, _, record = rest.partition("-")
                return cls.probabilistic(float(probability), int(record), name=text, late=late)
            if kind == "CST":
                milliseconds = float(rest)
                if math.isfinite(milliseconds):
                    return cls.static(round(milliseconds * 1e6), name=text, late=late)
            if kind == "Q":
                return cls.quantile(float(rest), name=text, late=late)
        except ValueError:
            pass
        names = (each.name for each in policies("ordering") if not each.is_default)
        raise ConfigurationError(f"{text!r} is not an ordering policy: write one of {', '.join(names)}")

    @classmethod
    def probabilistic(
        cls, probability: float, record: int = 0, *, name: str = "", late: Literal["deliver", "drop"] = "deliver"
    ) -> "Policy":
        """The paper's rule: basic mode without a record, enhanced mode with one."""
        name = name or f"P-{probability:g}-{record}"
        return cls(name=name, kind="probabilistic", violation_probability=probability, record=record, late=late)

    @classmethod
    def static(cls, latch_ns: int, *, name: str = "", late: Literal["deliver", "drop"] = "deliver") -> "Policy":
        """The same latch behind every gap."""
        name = name or f"CST-{latch_ns / 1e6:g}"
        longest = max(latch_ns, 2_000_000_000)
        step = max(10_000_000_000, 2 * longest)
        return cls(name=name, kind="static", latch_ns=latch_ns, max_latch_ns=longest, clock_step_ns=step, late=late)

    @classmethod
    def quantile(
        cls, target: float = OUR_TARGET, *, name: str = "", late: Literal["deliver", "drop"] = "deliver"
    ) -> "Policy":
        """Ours without a record: the latch that repairs this share of out-of-order receptions."""
        return cls(
            name=name or f"Q-{target:g}",
            kind="quantile",
            target=target,
            cold_probability=0.2,
            max_latch_ns=OUR_MAX_LATCH_NS,
            clock_step_ns=2 * OUR_MAX_LATCH_NS,
            late=late,
        )

    def rule(self) -> Rule:
        """The numbers that decide."""
        return Rule(
            kind=_KINDS[self.kind],
            factor=_factor(self.violation_probability),
            cold_factor=_factor(self.cold_probability or self.violation_probability),
            record=self.record,
            latch_ns=self.latch_ns,
            target=self.target,
            margin=self._margin(),
            samples=self.samples,
            drops=self.late == "drop",
            max_latch_ns=self.max_latch_ns,
            max_held=self.max_held,
            clock_step_ns=self.clock_step_ns,
        )

    def _margin(self) -> float:
        if self.margin is None:
            return OUR_MARGIN if self.kind == "quantile" else 0.0
        return self.margin

    def _refuse(self, field: str, wanted: str, value: object) -> ConfigurationError:
        return ConfigurationError(f"ordering policy {self.name!r}: {field} must be {wanted}, not {value!r}")


@lru_cache(maxsize=256)
def _factor(probability: float) -> float:
    """The quantile of the distribution of delay differences, per unit of mean |x|."""
    from tidings.ordering._laplace import MOMENT_FACTOR, two_laplacians_quantile  # arrays: only receivers need them

    return MOMENT_FACTOR * float(two_laplacians_quantile(1.0 - probability, 1.0))
