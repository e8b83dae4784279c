"""The broker overlay as arrays: what every routing algorithm works on.

Brokers are the dense integers 0..n-1 and links the dense integers 0..m-1, in the order given; links are directed, and
a connection that carries events in both directions is two links. At most one link leads from one broker to another.

`Overlay.of(topology)` takes names and distributions from a `Topology`; a link without a slowness has slowness 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import InputError
from tidings.routing._arrays import FloatArray, IntArray, LongArray, frozen, frozen_copy

if TYPE_CHECKING:
    from tidings.model.topology import Topology

Weight = Literal["slowness", "propagation", "hops"]

NO_LINK = -1
NO_BROKER = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlay:
    """Brokers and directed links, with adjacency in both directions.

    `out_links[out_offsets[b]:out_offsets[b + 1]]` are the links that leave broker b, by ascending target;
    `in_links` likewise the links that enter it, by ascending source.
    """

    brokers: tuple[str, ...]
    source: IntArray
    target: IntArray
    slowness_mean_s_per_kb: FloatArray
    slowness_variance_s2_per_kb2: FloatArray
    propagation_mean_s: FloatArray
    out_offsets: IntArray = field(init=False, repr=False)
    out_links: IntArray = field(init=False, repr=False)
    in_offsets: IntArray = field(init=False, repr=False)
    in_links: IntArray = field(init=False, repr=False)
    _link_keys: LongArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.brokers)
        for name in ("source", "target"):
            self._set(name, frozen_copy(getattr(self, name), np.int32))
        for name in ("slowness_mean_s_per_kb", "slowness_variance_s2_per_kb2", "propagation_mean_s"):
            self._set(name, frozen_copy(getattr(self, name), np.float64))
        self._check()
        by_source = np.lexsort((self.target, self.source))
        by_target = np.lexsort((self.source, self.target))
        self._set("out_links", frozen(by_source, np.int32))
        self._set("in_links", frozen(by_target, np.int32))
        self._set("out_offsets", frozen(np.searchsorted(self.source[by_source], np.arange(n + 1)), np.int32))
        self._set("in_offsets", frozen(np.searchsorted(self.target[by_target], np.arange(n + 1)), np.int32))
        keys = self.source.astype(np.int64) * n + self.target
        self._set("_link_keys", frozen(keys[by_source], np.int64))
        twice = np.flatnonzero(np.diff(self._link_keys) == 0)
        if len(twice):
            raise InputError(
                f"{self.link_name(int(self.out_links[twice[0]]))} is given twice: "
                "merge the two into one link with their joint behaviour"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        n, m = len(self.brokers), len(self.source)
        if n == 0:
            raise InputError("an overlay needs at least one broker")
        if len(set(self.brokers)) < n:
            name = next(name for name in self.brokers if self.brokers.count(name) > 1)
            raise InputError(f"two brokers are called {name!r}: give each its own name")
        for name in ("source", "target"):
            ends: IntArray = getattr(self, name)
            if ends.shape != (m,):
                raise InputError(f"overlay {name} has shape {ends.shape}, the sources have {m} links")
            outside = np.flatnonzero((ends < 0) | (ends >= n))
            if len(outside):
                link = outside[0]
                raise InputError(f"link {link} has {name} {ends[link]}, but brokers are 0..{n - 1}")
        loops = np.flatnonzero(self.source == self.target)
        if len(loops):
            raise InputError(f"{self.link_name(int(loops[0]))} leads from a broker to itself: remove it")
        for name in ("slowness_mean_s_per_kb", "slowness_variance_s2_per_kb2", "propagation_mean_s"):
            figures: FloatArray = getattr(self, name)
            if figures.shape != (m,):
                raise InputError(f"overlay {name} has shape {figures.shape}, expected one figure for each of {m} links")
            wrong = np.flatnonzero(~(np.isfinite(figures) & (figures >= 0)))
            if len(wrong):
                link = int(wrong[0])
                raise InputError(
                    f"{self.link_name(link)} has {name} {figures[link]}: it must be a finite number of at least 0"
                )

    @classmethod
    def of(cls, topology: "Topology") -> "Overlay":
        """The overlay of a topology: same order of brokers and links, distributions reduced to their moments."""
        distributions = [link.slowness for link in topology.links]
        return cls(
            brokers=tuple(broker.name for broker in topology.brokers),
            source=np.array([topology.index[link.source] for link in topology.links], np.int32),
            target=np.array([topology.index[link.target] for link in topology.links], np.int32),
            slowness_mean_s_per_kb=np.array(
                [0.0 if distribution is None else distribution.mean() for distribution in distributions]
            ),
            slowness_variance_s2_per_kb2=np.array(
                [0.0 if distribution is None else distribution.variance() for distribution in distributions]
            ),
            propagation_mean_s=np.array([link.propagation.mean() for link in topology.links]),
        )

    @property
    def broker_count(self) -> int:
        return len(self.brokers)

    @property
    def link_count(self) -> int:
        return len(self.source)

    def weights(self, weight: Weight) -> FloatArray:
        """The cost of each link in the measure that paths are to minimise."""
        if weight == "slowness":
            return self.slowness_mean_s_per_kb
        if weight == "propagation":
            return self.propagation_mean_s
        if weight == "hops":
            return frozen(np.ones(self.link_count), np.float64)
        raise InputError(f"unknown path weight {weight!r}: choose slowness, propagation or hops")

    def links_between(self, sources: ArrayLike, targets: ArrayLike) -> IntArray:
        """For each pair the link from source to target, or -1 where there is none."""
        keys = np.asarray(sources, np.int64) * self.broker_count + np.asarray(targets, np.int64)
        if self.link_count == 0:
            return frozen(np.full(keys.shape, NO_LINK), np.int32)
        place = np.minimum(np.searchsorted(self._link_keys, keys), self.link_count - 1)
        return frozen(np.where(self._link_keys[place] == keys, self.out_links[place], NO_LINK), np.int32)

    def require_broker(self, broker: int, role: str) -> None:
        if not 0 <= broker < self.broker_count:
            raise InputError(f"{role} {broker} is not a broker of this overlay (0..{self.broker_count - 1})")

    def link_name(self, link: int) -> str:
        return f"link {self.brokers[self.source[link]]!r} -> {self.brokers[self.target[link]]!r}"

    def names(self, brokers: Sequence[int], most: int = 5) -> str:
        """The first few of these brokers by name, for messages."""
        shown = ", ".join(repr(self.brokers[b]) for b in brokers[:most])
        return shown if len(brokers) <= most else f"{shown} and {len(brokers) - most} more"


def overlay_of_links(
    brokers: Sequence[str] | int,
    links: Sequence[tuple[int, int, float]],
    *,
    slowness_variance_s2_per_kb2: Sequence[float] | float = 0.0,
    propagation_mean_s: Sequence[float] | float = 0.0,
    both_ways: bool = False,
) -> Overlay:
    """An overlay from (source, target, mean slowness in s/kB) triples; `both_ways` adds each link's reverse after it.

    A count of brokers names them by their numbers.
    """
    names = tuple(str(b) for b in range(brokers)) if isinstance(brokers, int) else tuple(brokers)
    variance = np.broadcast_to(np.asarray(slowness_variance_s2_per_kb2, np.float64), len(links))
    propagation = np.broadcast_to(np.asarray(propagation_mean_s, np.float64), len(links))
    source = np.array([link[0] for link in links], np.int64)
    target = np.array([link[1] for link in links], np.int64)
    slowness = np.array([link[2] for link in links], np.float64)
    copies = 2 if both_ways else 1
    return Overlay(
        brokers=names,
        source=(np.stack((source, target), axis=1).ravel() if both_ways else source).astype(np.int32),
        target=(np.stack((target, source), axis=1).ravel() if both_ways else target).astype(np.int32),
        slowness_mean_s_per_kb=np.repeat(slowness, copies),
        slowness_variance_s2_per_kb2=np.repeat(variance, copies),
        propagation_mean_s=np.repeat(propagation, copies),
    )
