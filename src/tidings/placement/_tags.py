"""POP, phase 1: which events are traced, and what every broker learns from them (paper E, section 3.1).

Rules:

- The home broker tags an event for tracing with probability 1 - T / N, where T is how many it has tagged in the present
  window. So at least the first event of a window is traced and at most N are. (The chance falls within a window: that
  of the k-th event is (1 - 1/N)^(k-1), contrary to the paper's third claim.)
- A broker that handles a traced event learns, for each neighbour it forwarded the event to, how many subscribers were
  served there and beyond (the trace result message), and how many it served itself. A neighbour that the event was not
  forwarded to counts as 0: without the zeros a link that is seldom used looks as busy as one that always is.
- The table keeps running averages; the first sample of a place is its first average.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import ConfigurationError, InputError
from tidings.placement._defaults import DEFAULT_TRACED_PER_WINDOW, DEFAULT_WEIGHT, DEFAULT_WINDOW_NS

__all__ = [
    "ProfileTable",
    "TagWindow",
    "running_average",
]


class TagWindow:
    """Whether the next event of one publisher is traced."""

    def __init__(self, *, most: int = DEFAULT_TRACED_PER_WINDOW, window_ns: int = DEFAULT_WINDOW_NS) -> None:
        if most < 1:
            raise ConfigurationError(f"at most {most} traced events in a window: it must be at least 1")
        if window_ns < 1:
            raise ConfigurationError(f"a window of {window_ns} ns: it must be longer than nothing")
        self._most = most
        self._window_ns = window_ns
        self._since_ns: int | None = None
        self._tagged = 0

    @property
    def probability(self) -> float:
        """The chance of the next event to be traced, if the window does not end before."""
        return 1.0 - self._tagged / self._most

    def tag(self, now_ns: int, uniform: float) -> bool:
        """Whether the event that is published now is traced; `uniform` is drawn from [0, 1)."""
        if self._since_ns is None or now_ns - self._since_ns >= self._window_ns:
            self._since_ns = now_ns
            self._tagged = 0
        traced = uniform < self.probability
        self._tagged += traced
        return traced


class ProfileTable:
    """A broker's view of one publisher: the average number of subscribers served here, and behind each neighbour."""

    def __init__(self, neighbours: tuple[int, ...], *, weight: float = DEFAULT_WEIGHT) -> None:
        if not 0.0 < weight <= 1.0:
            raise ConfigurationError(f"the weight of the newest value is {weight!r}: it must be above 0 and at most 1")
        self._weight = weight
        self._neighbours = neighbours
        self._local: float | None = None
        self._behind: dict[int, float] = {}

    @property
    def local(self) -> float:
        """How many subscribers of this broker an event reaches, on average."""
        return 0.0 if self._local is None else self._local

    @property
    def behind(self) -> Mapping[int, float]:
        """How many an event reaches behind each neighbour, on average; the neighbour it comes from is not in it."""
        return dict(self._behind)

    def record(self, *, local: int, behind: Mapping[int, int], upstream: int | None = None) -> None:
        """One traced event: served here, and reported by the neighbours it was forwarded to."""
        strangers = sorted(set(behind) - set(self._neighbours))
        if strangers:
            raise InputError(f"a trace result came from broker {strangers[0]}, which is not a neighbour")
        if upstream is not None and upstream in behind:
            raise InputError(f"a trace result came from broker {upstream}, which the event itself came from")
        self._local = self._averaged(self._local, local)
        for neighbour in self._neighbours:
            if neighbour != upstream:
                self._behind[neighbour] = self._averaged(self._behind.get(neighbour), behind.get(neighbour, 0))
        if upstream is not None:
            self._behind.pop(upstream, None)

    def _averaged(self, before: float | None, newest: int) -> float:
        return float(newest) if before is None else (1.0 - self._weight) * before + self._weight * newest


def running_average(samples: ArrayLike, weight: float = DEFAULT_WEIGHT) -> float:
    """What a table's average is after these samples, oldest first; 0 where there are none."""
    values = np.asarray(samples, np.float64)
    if not len(values):
        return 0.0
    left = (1.0 - weight) ** np.arange(len(values) - 1, -1, -1)
    shares = np.where(np.arange(len(values)) == 0, left, weight * left)
    return float(shares @ values)
