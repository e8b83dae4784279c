"""The settings of a storm: its size, length, scheme and strategy, and the guaranteed times.

The guarantees are checked: after the last fault, all are connected again within `reconnect_s`, and routing is
right `converge_s` later; an event that is undisturbed for `recover_s` before its deadline arrives; a subscription that
is undisturbed for `settle_s` is known everywhere; an undisturbed move completes within `move_s`; released records are
erased from a full store within `erase_s`.
"""

from typing import Literal

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY, Relocation, Scheme, StrategyName, policy
from tidings.storm._kinds import FaultKind

__all__ = ["LONGEST_LIFE_S", "StormSettings"]

LONGEST_LIFE_S = 30.0
"""The lifetime of an event that states none."""


class StormSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a storm; everything else follows from its seed."""

    brokers: int = 7
    clients: int = 30
    duration_s: float = 60.0
    scheme: Scheme = DEFAULT_SCHEME
    strategy: StrategyName = DEFAULT_STRATEGY
    rate_per_s: float = 4.0
    """The mean number of publications over storms: each has a rate of its own."""
    reconnect_s: float = 11.0
    """An unanswered dial takes 5 s, the pause before the next one up to 5 s, and greetings a moment."""
    converge_s: float = 8.0
    recover_s: float = 8.0
    settle_s: float = 5.0
    move_s: float = 5.0
    erase_s: float = 4.0
    faults: bool = True
    kinds: tuple[FaultKind, ...] = ()
    """The kinds of faults; empty: all."""
    large_subscriptions: int = 10_000
    """The number of subscriptions of a `large-state` that is requested by name, and the most otherwise."""
    moves: bool = True
    mqtt: Literal["mixed"] | bool = "mixed"
    """Whether some clients speak MQTT; mixed: in a share of the storms."""
    relocation: Relocation | Literal["mixed"] = "mixed"
    copies: Literal["mixed", 1, 2] = "mixed"
    """The number of disks that hold an event before it is accepted; mixed: 2 in a share of the storms."""

    def __post_init__(self) -> None:
        chosen = policy("strategy", self.strategy)
        if not chosen.has("storm"):
            raise ConfigurationError(f"strategy {self.strategy!r} is not for storms: {chosen.missing['storm']}")
        if self.brokers < 1 or self.clients < 2:
            raise ConfigurationError(
                f"a storm needs a broker and two clients at least, not {self.brokers} and {self.clients}"
            )
        if not 30.0 <= self.duration_s <= 86_400.0:
            raise ConfigurationError(
                f"a storm of {self.duration_s:g} s: it takes from half a minute (to heal and to be judged) to a day"
            )
        if not 0.0 < self.rate_per_s <= 10_000.0:
            raise ConfigurationError(f"rate_per_s is {self.rate_per_s!r}, but must be above 0 and at most 10,000")
        if not 1 <= self.large_subscriptions <= 50_000:
            raise ConfigurationError(
                f"large_subscriptions is {self.large_subscriptions}, but must be from 1 to 50,000, what a network holds"
            )
