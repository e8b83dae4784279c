"""Publishers that move to where their subscribers are, by the algorithms and the rules of live brokers (paper E, ours).

A home decides by whom its publishers' events were for, and by what links take in the long run. Both are known when the
events are made, so moves are decided there, at the event that completes a sample, and an event carries the home from
which it goes; those under way go on by the tree of the old one. So a run is the same whatever the size of its chunks.

The rules are those of `protocol.relocation`:

- A publisher that has just come, or has just been asked to move, stays for `stay_s`; nothing is sampled meanwhile.
- `on-time` looks at `events` events that somebody wants and decides at the last (`placement.choose_on_time`). `grape`
  looks at `events` in a row and decides DEFAULT_WAIT_NS after the last of them (`placement.select`, by load). `pop`
  traces at most DEFAULT_TRACED_PER_WINDOW in a window and walks when it has `events` (`placement.walk`).
- By `on-time` and `grape` a move must gain more than `hysteresis`.

What differs: a move takes no time, what others say always arrives, and nobody looks at what is down or waits.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from tidings import placement
from tidings.routing import NO_BROKER, Overlay, Tree, shortest_path_tree, tree_of_parents
from tidings.simulation._layout import NEVER_NS, Array
from tidings.simulation._plan import SimulationPlan

__all__ = ["Published", "Relocation"]

_SHARES: Final = 2**32
_MOST_PROMISES: Final = 256
"""Of the promises of a sample those that are worth most are looked at, as live brokers do."""


class Published(NamedTuple):
    """Events of one publisher in order: matches[offsets[i]:offsets[i + 1]] are the subscriptions that want event i."""

    publisher: int
    time: Array
    sequence: Array
    size_kb: Array
    lifetime: Array
    offsets: Array
    matches: Array


class Relocation:
    """Where the publishers of a run are; `moves` counts how often any of them went elsewhere."""

    def __init__(self, plan: SimulationPlan) -> None:
        policy, index = plan.network.policies.relocation, plan.network.topology.index
        network = _Figures(plan)
        kinds: dict[str, Callable[[_Figures, int, int], _Mover]] = {"pop": _Pop, "grape": _Grape, "on-time": _OnTime}
        kind = kinds[policy.name]
        self._movers = [
            kind(network, number, index[publisher.broker]) for number, publisher in enumerate(plan.network.publishers)
        ]

    @property
    def homes(self) -> list[int]:
        return [mover.home for mover in self._movers]

    @property
    def moves(self) -> int:
        return sum(mover.moves for mover in self._movers)

    def homes_of(self, events: Published) -> Array:
        """The home from which each of these events goes."""
        return self._movers[events.publisher].homes_of(events)


class _Figures:
    """What decisions know of the network: its links as they are in the long run, and the trees of all homes.

    They know it as it is written: access links of subscribers are no business of theirs.
    """

    def __init__(self, plan: SimulationPlan) -> None:
        written = plan.written
        self.policy = plan.network.policies.relocation
        self.stay_ns = round(self.policy.stay_s * 1e9)
        homes = (written.homes[subscription.subscriber] for subscription in written.subscriptions)
        self.home_of = np.array([written.topology.index[home] for home in homes], np.int64)
        self.allowed_ns, self.price = plan.subscriptions["allowed"], plan.subscriptions["price"]
        self.overlay = Overlay.of(written.topology)
        self.brokers = self.overlay.broker_count
        self.tree_at: Callable[[int], Tree] = cache(
            lambda root: shortest_path_tree(self.overlay, root, destinations=())
        )
        source, target = self.overlay.source.tolist(), self.overlay.target.tolist()
        self.neighbours = [
            tuple(sorted({one for one, other in zip(source, target, strict=True) if other == broker}))
            for broker in range(self.brokers)
        ]


class _Mover(ABC):
    """One publisher: where it is, and until when it stays there whatever its events say."""

    def __init__(self, network: _Figures, number: int, home: int) -> None:
        self.home = home
        self.moves = 0
        self._network, self._number = network, number
        self._stays_ns: int | None = None  # from the first event at a home on

    def homes_of(self, events: Published) -> Array:
        homes = np.empty(len(events.time), np.int64)
        done = 0
        while done < len(homes):
            if self._stays_ns is None:
                self._stays_ns = int(events.time[done]) + self._network.stay_ns
            start, home = max(done, int(np.searchsorted(events.time, self._stays_ns))), self.home
            stop = len(homes) if start == len(homes) else self._look(events, start)
            homes[done:stop] = home
            done = stop
        return homes

    @abstractmethod
    def _look(self, events: Published, start: int) -> int:
        """Sample events from here on; how many go from the present home before anything may change."""

    def _advised(self, target: int, now_ns: int) -> None:
        """A place was found: the publisher goes there, and stays in either case."""
        self._stays_ns = now_ns + self._network.stay_ns
        if target != self.home:
            self.home, self._stays_ns = target, None
            self.moves += 1


class _Sampling(_Mover):
    """Decides by which events were for whom, all of a sample together."""

    def __init__(self, network: _Figures, number: int, home: int) -> None:
        super().__init__(network, number, home)
        self._sample: list[tuple[Array, int, float]] = []  # matches, lifetime, size

    @property
    def _missing(self) -> int:
        return self._network.policy.events - len(self._sample)

    def _note(self, events: Published, numbers: Array) -> None:
        for number in numbers.tolist():
            wanted = events.matches[events.offsets[number] : events.offsets[number + 1]]
            self._sample.append((wanted, int(events.lifetime[number]), float(events.size_kb[number])))

    def _traced(self) -> tuple[placement.Traced, placement.Times]:
        """The sample as a trace would show it, and what links take for events of its mean size."""
        network, events = self._network, len(self._sample)
        wanted = np.concatenate([matches for matches, _, _ in self._sample])
        counts = [len(matches) for matches, _, _ in self._sample]
        event = np.repeat(np.arange(events), counts)
        broker = network.home_of[wanted]
        words = np.zeros((network.brokers, placement.bit_words(events)), np.uint64)
        np.bitwise_or.at(words, (broker, event // 64), np.uint64(1) << (event % 64).astype(np.uint64))
        allowed_ns = np.minimum(
            np.repeat([lifetime for _, lifetime, _ in self._sample], counts), network.allowed_ns[wanted]
        )
        traced = placement.Traced(
            name="",
            rate_per_s=1.0,
            tree=network.tree_at(self.home),
            bits=words,
            deliveries=np.bincount(broker, minlength=network.brokers),
            traced=events,
            wanted=_wanted(broker, allowed_ns, network.price[wanted]),
        )
        size_kb = sum(size_kb for _, _, size_kb in self._sample) / events
        return traced, placement.times_of_links(network.overlay, size_kb=size_kb, longest_ns=float(NEVER_NS))


def _wanted(broker: Array, allowed_ns: Array, price: Array) -> placement.Wanted:
    """What was promised, by broker and deadline, weighted by its worth: the most worth first, and not too many."""
    paid = price > 0.0
    pairs, which = np.unique(np.stack([broker[paid], allowed_ns[paid]], axis=1), axis=0, return_inverse=True)
    many, worth = np.bincount(which), np.bincount(which, weights=price[paid])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -worth))[:_MOST_PROMISES]
    pairs, many, worth = pairs[order], many[order], worth[order]
    return placement.Wanted(
        broker=pairs[:, 0],
        deadline_s=np.where(pairs[:, 1] < NEVER_NS, pairs[:, 1] / 1e9, np.inf),
        deliveries=worth * (many.sum() / max(worth.sum(), np.finfo(np.float64).tiny)),
    )


class _OnTime(_Sampling):
    """Where most of what is promised, by price, is on time."""

    def _look(self, events: Published, start: int) -> int:
        counts = np.diff(events.offsets)[start:]
        taken = start + np.flatnonzero(counts)[: self._missing]
        self._note(events, taken)
        if self._missing:
            return len(events.time)
        traced, times = self._traced()
        self._sample.clear()
        target = self.home
        if len(traced.wanted.broker):
            target = placement.choose_on_time(
                traced,
                self._network.overlay,
                times,
                hysteresis=self._network.policy.hysteresis,
                tree_at=self._network.tree_at,
            )
        self._advised(target, int(events.time[taken[-1]]))
        return int(taken[-1]) + 1


class _Grape(_Sampling):
    """The least load, and among equals the least delay (GRAPE)."""

    def __init__(self, network: _Figures, number: int, home: int) -> None:
        super().__init__(network, number, home)
        self._ends_ns: int | None = None

    def _look(self, events: Published, start: int) -> int:
        if self._ends_ns is None:
            taken = np.arange(start, min(start + self._missing, len(events.time)))
            self._note(events, taken)
            if self._missing:
                return len(events.time)
            self._ends_ns = int(events.time[taken[-1]]) + placement.DEFAULT_WAIT_NS
        stop = max(start, int(np.searchsorted(events.time, self._ends_ns)))
        if stop < len(events.time):
            target = self._target()
            if target != self.home:  # who is not moved is sampled on at once
                self._advised(target, self._ends_ns)
            self._sample.clear()
            self._ends_ns = None
        return stop

    def _target(self) -> int:
        traced, times = self._traced()
        session = replace(traced, tree=self._used(traced)).session(self._network.overlay, times)
        hysteresis = self._network.policy.hysteresis
        return placement.select(placement.evaluate(session), metric="load", weight=100.0, hysteresis=hysteresis).target

    def _used(self, traced: placement.Traced) -> Tree:
        """The tree of the brokers that had to do with the sample: only these answer."""
        parent = traced.tree.parent
        parents = np.full(len(parent), NO_BROKER, np.int32)
        for broker in np.flatnonzero(traced.deliveries).tolist():
            while broker != traced.home and broker in traced.tree and parents[broker] == NO_BROKER:
                parents[broker] = parent[broker]
                broker = int(parent[broker])
        return tree_of_parents(self._network.overlay, traced.home, parents)


class _Pop(_Mover):
    """Towards the neighbour behind which most of the subscribers are (POP)."""

    def __init__(self, network: _Figures, number: int, home: int) -> None:
        super().__init__(network, number, home)
        self._begin()

    def _begin(self) -> None:
        self._window = placement.TagWindow()
        self._tables: dict[int, placement.ProfileTable] = {}
        self._traced = 0

    def _look(self, events: Published, start: int) -> int:
        for number in range(start, len(events.time)):
            now_ns = int(events.time[number])
            # The draw is the event's own, so it does not depend on what else is drawn.
            uniform = zlib.crc32(f"{int(events.sequence[number])}/{self._number}".encode()) / _SHARES
            if not self._window.tag(now_ns, uniform):
                continue
            self._record(events.matches[events.offsets[number] : events.offsets[number + 1]])
            self._traced += 1
            if self._traced >= self._network.policy.events:
                self._traced = 0
                target = placement.walk(self.home, self._table)[-1]
                if target != self.home:  # who is not moved is traced on at once
                    self._advised(target, now_ns)
                    self._begin()
                    return number + 1
        return len(events.time)

    def _record(self, wanted: Array) -> None:
        """What every broker that the event comes to learns of it."""
        tree = self._network.tree_at(self.home)
        local = np.bincount(self._network.home_of[wanted], minlength=self._network.brokers)
        behind = np.where(tree.position >= 0, local, 0)
        for broker in reversed(tree.order[1:].tolist()):
            behind[tree.parent[broker]] += behind[broker]
        for broker in tree.order.tolist():
            if behind[broker] or broker == self.home:
                served = {child: int(behind[child]) for child in tree.children(broker) if behind[child]}
                upstream = None if broker == self.home else int(tree.parent[broker])
                self._table(broker).record(local=int(local[broker]), behind=served, upstream=upstream)

    def _table(self, broker: int) -> placement.ProfileTable:
        if broker not in self._tables:
            self._tables[broker] = placement.ProfileTable(self._network.neighbours[broker])
        return self._tables[broker]
