"""The input of a prediction: the a priori knowledge of paper B, section 2.1, as plain values.

It comes from a scenario (`from_network`) or from measurements. Brokers, links, publishers and subscriptions are
numbered in the given order. Content is described by its signatures: which subscriptions an event matches, and how
often. A link's load is the mass of a union of filters, for which signatures are enough.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.model.distributions import DelayDistribution
from tidings.prediction._unmodelled import Unmodelled
from tidings.routing import Tree

__all__ = [
    "NO_CONTENT",
    "SHARE_QUANTUM",
    "BrokerKnowledge",
    "Knowledge",
    "LinkKnowledge",
    "PublisherKnowledge",
    "Signatures",
    "exact_shares",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Signatures:
    """The kinds of events of a publisher, as far as subscriptions can tell them apart.

    A share `weights[i]` of the events matches exactly `subscriptions[offsets[i]:offsets[i + 1]]`; the remaining share
    matches nothing. `sampled` is the number of events behind the estimate, None if it is exact.
    """

    weights: FloatArray
    offsets: LongArray
    subscriptions: IntArray
    sampled: int | None = None

    def __post_init__(self) -> None:
        if len(self.offsets) != len(self.weights) + 1 or self.offsets[-1] != len(self.subscriptions):
            raise InputError(
                f"signatures: {len(self.weights)} weights need {len(self.weights) + 1} offsets that end at "
                f"{len(self.subscriptions)}, the number of matches"
            )
        total = float(self.weights.sum())
        if (self.weights < 0.0).any() or total > 1.0 + 1e-6:
            raise InputError(f"signatures: the weights are shares of all events, but they add up to {total:g}")

    @cached_property
    def masses(self) -> tuple[IntArray, FloatArray]:
        """The subscriptions that are ever matched, and the share of the events that each one matches."""
        weight = np.repeat(self.weights, np.diff(self.offsets))
        sums = np.asarray(np.bincount(self.subscriptions, weight), np.float64)
        matched = np.flatnonzero(sums > 0.0)
        return matched.astype(np.int32), sums[matched]


SHARE_QUANTUM: Final = 2.0**-52


def exact_shares(weights: FloatArray) -> FloatArray:
    """Shares of all events, rounded so that any sum of them is exact in every order.

    Delays are found by inverting transforms, which amplifies a difference of 1e-16 to 1e-8: with sums that depend on
    the order of adding, results would too.
    """
    rounded = np.rint(np.asarray(weights) / SHARE_QUANTUM) * SHARE_QUANTUM
    return np.where(weights > 0.0, np.maximum(rounded, SHARE_QUANTUM), 0.0)


NO_CONTENT: Final = Signatures(weights=np.zeros(0), offsets=np.zeros(1, np.int64), subscriptions=np.zeros(0, np.int32))
"""Signatures of events that match nothing, or with content kept elsewhere."""


@dataclass(frozen=True, kw_only=True)
class BrokerKnowledge:
    """`service` in seconds times `service_factor` for each event, one at a time; then `processing`, all at once.

    `observed` is the number of services behind its distribution, None if it was not measured.
    """

    name: str
    service: DelayDistribution | None = None
    service_factor: float = 1.0
    processing: DelayDistribution | None = None
    observed: int | None = None


@dataclass(frozen=True, kw_only=True)
class LinkKnowledge:
    """From one broker to another, by number: a transmission of size times `slowness`, one at a time, then propagation.

    The factors scale both. `observed` is the number of events behind its distributions.
    """

    source: int
    target: int
    propagation: DelayDistribution
    slowness: DelayDistribution | None = None
    loss: float = 0.0
    propagation_factor: float = 1.0
    slowness_factor: float = 1.0
    observed: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PublisherKnowledge:
    """A publisher at the root of its tree; `interval` and `lifetime` in seconds, `size_kb` in kB.

    `observed` is the number of intervals behind its rate, None if it was not measured.
    """

    name: str
    interval: DelayDistribution
    lifetime: DelayDistribution | None
    size_kb: DelayDistribution
    content: Signatures
    tree: Tree
    observed: int | None = None

    @property
    def rate_per_s(self) -> float:
        return 1.0 / self.interval.mean()


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """The whole knowledge; `homes`, `max_delays_s` (infinite: none) and `prices` (None: 1 each) are in the order of
    `subscriptions`, the identifiers.

    `unmodelled` are the effects in the source that every prediction from this knowledge leaves out.
    """

    brokers: Sequence[BrokerKnowledge]
    links: Sequence[LinkKnowledge]
    publishers: Sequence[PublisherKnowledge]
    subscriptions: Sequence[str]
    homes: IntArray
    max_delays_s: FloatArray
    prices: FloatArray | None = None
    drops_expired: bool = False
    unmodelled: tuple[Unmodelled, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.subscriptions)
        for name in ("homes", "max_delays_s", "prices"):
            if getattr(self, name) is not None and len(getattr(self, name)) != count:
                raise InputError(f"knowledge: {name} has {len(getattr(self, name))} entries for {count} subscriptions")
        if count and not 0 <= self.homes.min() <= self.homes.max() < len(self.brokers):
            raise InputError(f"knowledge: homes must be brokers 0..{len(self.brokers) - 1}")
        for publisher in self.publishers:
            held = publisher.content.subscriptions
            if len(held) and not 0 <= held.min() <= held.max() < count:
                raise InputError(
                    f"publisher {publisher.name!r}: its content names subscriptions outside 0..{count - 1}"
                )

    def number_of(self, subscription: str) -> int:
        """The number of a subscription; an InputError if the name is unknown."""
        try:
            return self._numbers[subscription]
        except KeyError:
            close = difflib.get_close_matches(subscription, self.subscriptions, n=1)
            others = (
                f"the network has {len(self.subscriptions):,}, such as {', '.join(map(repr, self.subscriptions[:3]))}"
            )
            hint = f"did you mean {close[0]!r}?" if close else others
            raise InputError(f"there is no subscription {subscription!r}; {hint}") from None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.subscriptions)}

    def link_name(self, link: int) -> str:
        """As in traces and results."""
        known = self.links[link]
        return f"{self.brokers[known.source].name} -> {self.brokers[known.target].name}"
