"""Brokers and connections that fail: the input of every predictor of this package.

Brokers are 0..n-1. A connection joins two brokers, carries events in both directions, and fails as a whole. Components
(brokers and connections) fail independently of each other (paper D, section 2.3); None stands for one that never fails.
Rules:

    a = up / (up + down),  gamma = 1 / up,  sigma = 1 / down,  frequency = gamma a = sigma (1 - a) = 1 / period

with mean times; a component that never fails has a = 1 and frequency 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidings.errors import InputError

if TYPE_CHECKING:
    from tidings.model.failures import Failures

__all__ = ["FaultGraph"]

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FaultGraph:
    """`ends[l]` are the two brokers that connection l joins; `links[l]` are its failures, `brokers[b]` those of b."""

    brokers: "tuple[Failures | None, ...]"
    links: "tuple[Failures | None, ...]"
    ends: LongArray

    def __post_init__(self) -> None:
        ends = np.array(self.ends, np.int64).reshape(-1, 2)
        ends.flags.writeable = False
        object.__setattr__(self, "ends", ends)
        n = len(self.brokers)
        if n == 0:
            raise InputError("a graph that fails needs at least one broker")
        if len(ends) != len(self.links):
            raise InputError(f"{len(ends)} connections have ends, but {len(self.links)} have failures: give one each")
        if len(ends) and not (ends.min() >= 0 and ends.max() < n):
            raise InputError(f"a connection joins brokers 0..{n - 1}, but one has an end {int(ends.max())}")
        loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
        if len(loops):
            raise InputError(f"connection {int(loops[0])} joins broker {int(ends[loops[0], 0])} to itself: remove it")
        keys = np.sort(ends, axis=1) @ np.array([n, 1])
        if len(np.unique(keys)) < len(keys):
            raise InputError("two connections join the same brokers: merge them into one")

    @classmethod
    def exponential(
        cls, *, ends: ArrayLike, brokers: Sequence[float], links: Sequence[float] | float, period_s: float
    ) -> "FaultGraph":
        """By availabilities, all of one mean cycle length; an availability of 1 never fails."""
        from tidings.model.failures import Failures

        joined = np.array(ends, np.int64).reshape(-1, 2)

        def failures(availability: float) -> "Failures | None":
            return None if availability == 1.0 else Failures.exponential(availability=availability, period_s=period_s)

        of_links = np.broadcast_to(np.asarray(links, np.float64), len(joined)).tolist()
        return cls(brokers=tuple(map(failures, brokers)), links=tuple(map(failures, of_links)), ends=joined)

    @property
    def broker_count(self) -> int:
        return len(self.brokers)

    @cached_property
    def broker_availability(self) -> FloatArray:
        return _availability(self.brokers)

    @cached_property
    def link_availability(self) -> FloatArray:
        return _availability(self.links)

    @cached_property
    def broker_frequency_per_s(self) -> FloatArray:
        """How often each broker fails, per second."""
        return _frequency(self.brokers)

    @cached_property
    def link_frequency_per_s(self) -> FloatArray:
        return _frequency(self.links)

    @cached_property
    def adjacency(self) -> tuple[LongArray, LongArray, LongArray]:
        """(offsets, neighbours, connections): those of broker b are at offsets[b]:offsets[b + 1]."""
        m = len(self.ends)
        tail = np.concatenate((self.ends[:, 0], self.ends[:, 1]))
        head = np.concatenate((self.ends[:, 1], self.ends[:, 0]))
        order = np.lexsort((head, tail))
        offsets = np.searchsorted(tail[order], np.arange(self.broker_count + 1)).astype(np.int64)
        return offsets, head[order], np.tile(np.arange(m), 2)[order]

    def connections_between(self, one: ArrayLike, other: ArrayLike) -> LongArray:
        """For each pair of brokers the connection that joins them, or -1."""
        n = self.broker_count
        keys = np.sort(self.ends, axis=1) @ np.array([n, 1])
        order = np.argsort(keys)
        pairs = np.stack(np.broadcast_arrays(np.asarray(one, np.int64), np.asarray(other, np.int64)), axis=-1)
        wanted = np.sort(pairs, axis=-1) @ np.array([n, 1])
        if not len(keys):
            return np.full(wanted.shape, -1, np.int64)
        place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        return np.where(keys[order][place] == wanted, order[place], -1)

    def require_broker(self, broker: int, role: str) -> None:
        if not 0 <= broker < self.broker_count:
            raise InputError(f"{role} {broker} is not a broker of this graph (0..{self.broker_count - 1})")


def _availability(failures: "Sequence[Failures | None]") -> FloatArray:
    return np.array([1.0 if each is None else each.availability for each in failures], np.float64)


def _frequency(failures: "Sequence[Failures | None]") -> FloatArray:
    return np.array([0.0 if each is None else 1.0 / each.period_s for each in failures], np.float64)
