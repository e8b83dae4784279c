"""How a run is made, beside what the scenario says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution
from tidings.routing import Tree

__all__ = ["Kinds", "Options"]

Kinds = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Shares, offsets and numbers of subscriptions; see `Options`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the scenario leaves open; the defaults are the single-path reading of paper C with free access links.

    `access_slowness` gives each publisher, in order, an access link that costs a transmission (seconds per kB);
    `access_scheduling` says whether it is scheduled by the strategy of the run or first in, first out. `trees` gives
    each publisher its own dissemination tree instead of the path of least mean slowness. `stored` says which
    subscriptions a broker's table holds where service is per subscription: those routed through it, or all.

    After the duration publishing stops and the network drains for at most `drain_s`: unless given, as long again as
    the run, and no less than the longest deadline. More than `copies_max` copies in flight end the run with an error.
    `sample` is the share of events that leave a trace.

    `kinds` gives each publisher's events by kinds instead of attributes: the share of each kind, and offsets into the
    numbers of the subscriptions that it matches; what is missing to 1 matches nothing. No attributes are drawn and
    matched then, so nothing can be traced or depend on them.

    `chunk_events` and `steps_per_call` only say how often the compiled loop comes back to Python.
    """

    access_slowness: Sequence[DelayDistribution] | None = None
    access_scheduling: Literal["same", "fifo"] = "same"
    trees: Sequence[Tree] | None = None
    stored: Literal["routed", "all"] = "routed"
    drain_s: float | None = None
    copies_max: int = 2_000_000
    sample: float = 1.0
    kinds: Sequence[Kinds] | None = None
    chunk_events: int = 16_384
    steps_per_call: int = 2_000_000

    def __post_init__(self) -> None:
        if not 0.0 < self.sample <= 1.0:
            raise ConfigurationError(f"sample is {self.sample!r}, but must be a share above 0 and at most 1")
        if self.drain_s is not None and not 0.0 <= self.drain_s < 1e9:
            raise ConfigurationError(f"drain_s is {self.drain_s!r}, but must be 0 or more seconds")
        for name in ("copies_max", "chunk_events", "steps_per_call"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}, but must be at least 1")
