"""The plain twin of every queue: at each decision it computes everything again, with the exact normal cdf.

No bound, no table, no heap: this is what the fast queues must agree with, choice for choice.
"""

import math
from typing import Generic, TypeVar

import numpy as np

from tidings.scheduling import TIE, TURNS, Deleted, Strategy, Waiting
from tidings.scheduling._entry import reason_of

__all__ = ["PlainQueue", "plain_benefit", "plain_deletion_time_s"]

T = TypeVar("T")


def plain_benefit(waiting: Waiting[T], now_s: float, *, extra_s: float, processing_s: float) -> float:
    """Equation 3, or 8 if `extra_s` is FT, term by term."""
    total = 0.0
    for allowed_s, price, nodes, mean_s_per_kb, sd_s_per_kb in waiting.rows.T.tolist():
        done_s = now_s - waiting.published_s + extra_s + nodes * processing_s
        slack_s = allowed_s - done_s - waiting.size_kb * mean_s_per_kb
        spread_s = waiting.size_kb * sd_s_per_kb
        if spread_s > 0.0:
            success = 0.5 * math.erfc(-slack_s / spread_s / math.sqrt(2.0))
        else:
            success = 1.0 if slack_s >= 0.0 else 0.0
        total += price * success
    return total


def plain_deletion_time_s(waiting: Waiting[T], *, quantile: float, processing_s: float) -> float:
    """From when on the event is expired or, for a finite quantile, hopeless."""
    expired_s = hopeless_s = -math.inf
    for allowed_s, _, nodes, mean_s_per_kb, sd_s_per_kb in waiting.rows.T.tolist():
        expired_s = max(expired_s, allowed_s)
        path_s = nodes * processing_s + waiting.size_kb * mean_s_per_kb
        if quantile < math.inf:
            hopeless_s = max(hopeless_s, allowed_s - path_s + quantile * waiting.size_kb * sd_s_per_kb)
        else:
            hopeless_s = math.inf
    return waiting.published_s + min(expired_s, hopeless_s)


class PlainQueue(Generic[T]):
    """An output queue of any strategy, without a bound on what waits."""

    def __init__(self, strategy: Strategy, *, turn_s: float = 0.0, processing_s: float = 0.0) -> None:
        self.strategy = strategy
        self.turn_s = turn_s
        self.processing_s = processing_s
        self._queue: list[Waiting[T]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:  # noqa: ARG002
        self._queue.append(waiting)
        return ()

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        gone = [waiting for waiting in self._queue if now_s >= self._deletion_time_s(waiting)]
        self._queue = [waiting for waiting in self._queue if now_s < self._deletion_time_s(waiting)]
        deleted = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in gone)
        if not self._queue:
            return None, deleted
        return self._queue.pop(self._first(self._choose(now_s))), deleted

    def _first(self, chosen: int) -> int:
        """The place in the queue of the event that leaves instead: the first of its chain."""
        chain = self._queue[chosen].chain
        if chain is None:
            return chosen
        members = [number for number, waiting in enumerate(self._queue) if waiting.chain == chain]
        return min(members, key=lambda number: self._queue[number].place)

    def _choose(self, now_s: float) -> int:
        is_triage = self.strategy.name == "triage"
        if is_triage and self._is_time_for_all(now_s):
            return min(range(len(self._queue)), key=lambda number: self._deletion_time_s(self._queue[number]))
        worths = self._worths(now_s)
        best = max(worths)
        ties = [number for number, worth in enumerate(worths) if worth >= best - TIE]
        return ties[-1] if is_triage else ties[0]

    def _is_time_for_all(self, now_s: float) -> bool:
        step_s = self.strategy.postponed_s(self.turn_s)
        left_s = sorted(self._deletion_time_s(waiting) - now_s for waiting in self._queue)
        return step_s == 0.0 or all(left / step_s >= place for place, left in enumerate(left_s, start=1))

    def _deletion_time_s(self, waiting: Waiting[T]) -> float:
        return plain_deletion_time_s(waiting, quantile=self.strategy.quantile, processing_s=self.processing_s)

    def _benefits(self, now_s: float, extra_s: float) -> list[float]:
        processing_s = self.processing_s
        return [plain_benefit(waiting, now_s, extra_s=extra_s, processing_s=processing_s) for waiting in self._queue]

    def _worths(self, now_s: float) -> list[float]:
        match self.strategy.name:
            case "fifo":
                return [0.0] * len(self._queue)
            case "rl":
                return [-_mean_lifetime_left_s(waiting, now_s) for waiting in self._queue]
            case "eb" | "triage":
                return self._benefits(now_s, 0.0)
            case "pc" | "ebpc" | "lookahead":
                later = self._benefits(now_s, self.strategy.postponed_s(self.turn_s))
                r = self.strategy.r
                return [now - (1.0 - r) * then for now, then in zip(self._benefits(now_s, 0.0), later, strict=True)]
            case _:
                return self._plans(now_s)

    def _plans(self, now_s: float) -> list[float]:
        """The worth of sending each event now, and of the best of the others in the three turns after it."""
        from scipy.optimize import linear_sum_assignment  # takes long to load, and no fast queue needs it

        step_s = self.strategy.postponed_s(self.turn_s)
        worth = np.array([self._benefits(now_s, turn * step_s) for turn in range(TURNS)])
        totals = []
        for number in range(len(self._queue)):
            others = np.delete(worth[1:], number, axis=1)
            turns, events = linear_sum_assignment(others, maximize=True)
            later = (1.0 - self.strategy.r) * others[turns, events].sum()
            totals.append(float(worth[0, number] + later))
        return totals


def _mean_lifetime_left_s(waiting: Waiting[T], now_s: float) -> float:
    left_s = [waiting.published_s + allowed_s - now_s for allowed_s in waiting.rows[0].tolist()]
    ahead_s = [left for left in left_s if 0.0 < left < math.inf]
    return sum(ahead_s) / len(ahead_s) if ahead_s else math.inf
