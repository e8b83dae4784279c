"""GRAPE, phase 2, as printed: Algorithms 1 to 3 with the corrections of three slips (paper E, section 4.2).

One walk over the whole tree for each candidate and each metric, so O(N) for one and O(N²) for all of them. Kept to
compare the quick evaluation with. Corrected: a neighbour that sent no answer is passed over; the vector is copied
before others are joined to it (the printed Algorithm 3 changes the broker's own); nobody divides by no deliveries.
"""

from dataclasses import dataclass

import numpy as np

from tidings.placement._sessions import TraceSession, WordArray

__all__ = ["PrintedEvaluation"]


@dataclass(slots=True)
class _Statistics:
    total_delay_ns: int = 0
    total_deliveries: int = 0


class PrintedEvaluation:
    """The printed algorithms on one session; vectors behind a link are kept once computed, as the paper does."""

    def __init__(self, session: TraceSession) -> None:
        self._session = session
        tree, back = session.tree, session.back_links
        self._neighbours: dict[int, list[tuple[int, int]]] = {int(b): [] for b in tree.order}
        for place, broker in enumerate(tree.order.tolist()):
            parent = int(tree.parent[broker])
            if parent >= 0:
                self._neighbours[broker].append((parent, int(back[place])))
                self._neighbours[parent].append((broker, int(tree.parent_link[broker])))
        self._vectors: dict[tuple[int, int], WordArray] = {}

    def total_delay_ns(self, candidate: int) -> int:
        """The delays of all deliveries of the session with the publisher at this broker (Algorithm 1)."""
        statistics = _Statistics()
        waiting = [(int(self._session.ping_ns[candidate]), candidate, -1)]
        while waiting:
            so_far_ns, broker, previous = waiting.pop()
            deliveries = int(self._session.deliveries[broker])
            statistics.total_delay_ns += deliveries * (so_far_ns + int(self._session.to_client_ns[broker]))
            statistics.total_deliveries += deliveries
            for neighbour, link in self._neighbours[broker]:
                if neighbour != previous:
                    waiting.append((so_far_ns + int(self._session.onward_ns[link]), neighbour, broker))
        return statistics.total_delay_ns

    def total_messages(self, candidate: int) -> int:
        """How many times brokers handle the session's events with the publisher at this broker (Algorithm 2)."""
        total = 0
        waiting = [(candidate, -1)]
        while waiting:
            broker, previous = waiting.pop()
            total += int(np.bitwise_count(self._vector(broker, previous)).sum())
            waiting += [(neighbour, broker) for neighbour, _ in self._neighbours[broker] if neighbour != previous]
        return total

    def _vector(self, broker: int, previous: int) -> WordArray:
        """Which events are delivered at this broker or behind it, seen from the previous one (Algorithm 3).

        The printed recursion as a stack: a tree may be a chain of thousands of brokers.
        """
        pending = [(broker, previous)]
        while pending:
            here, before = pending[-1]
            missing = [
                (neighbour, here)
                for neighbour, _ in self._neighbours[here]
                if neighbour != before and (neighbour, here) not in self._vectors
            ]
            if missing:
                pending += missing
                continue
            joined = self._session.bits[here].copy()
            for neighbour, _ in self._neighbours[here]:
                if neighbour != before:
                    joined |= self._vectors[neighbour, here]
            self._vectors[here, before] = joined
            pending.pop()
        return self._vectors[broker, previous]
