"""Spread routes: several trees for each publisher, of which every event takes one.

Theory of operation:

- One tree takes all events of a publisher to a broker over the same link. Here its demand is cut into equal parts,
  and `balance_routes` finds a tree for each part. An event takes the whole of one tree, so every broker gets it once.
- There are `TREES_TOTAL` trees or so: with many publishers the load mixes well with few trees each, and finding more
  takes longer.
- An event takes the tree with the least sum of s (a s + w) over the links that it needs there. s is how long the event
  occupies the link, w how long the publisher's own earlier events still will, and a is `OWN_WEIGHT`: a tree is cheap if
  it reaches the brokers that want this event over few, fast links that have little left to do. Among equals the tree
  with the lowest number is taken.
- w grows by s with each event that takes the link, up to `BACKLOG_TURNS` times s (what cannot be sent in time is
  dropped, so a queue does not grow for ever), and falls with time at the publisher's share of what the trees ask of the
  link. So a choice depends on the publisher's own events and on the plan: its home broker can make it alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.routing._arrays import FloatArray, IntArray, LongArray, frozen
from tidings.routing._balance import Demand, balance_routes, link_utilisations
from tidings.routing._overlay import Overlay
from tidings.routing._trees import Tree

TREES_TOTAL: Final = 64
TREES_EACH_MIN, TREES_EACH_MAX = 2, 16
OWN_WEIGHT: Final = 0.25
BACKLOG_TURNS: Final = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SpreadRoutes:
    """By demand its trees, and which share of what all trees ask of each link is its own."""

    trees: tuple[tuple[Tree, ...], ...]
    shares: tuple[FloatArray, ...]


def spread_routes(
    overlay: Overlay, demands: Sequence[Demand], *, keep_below_utilisation: float = 0.0, trees: int | None = None
) -> SpreadRoutes:
    """Balanced trees for equal parts of each demand; while no link is busier than this, one shortest-path tree each."""
    if trees is None:
        trees = min(TREES_EACH_MAX, max(TREES_EACH_MIN, TREES_TOTAL // max(1, len(demands))))
    parts = [part for demand in demands for part in [replace(demand, rate_per_s=demand.rate_per_s / trees)] * trees]
    found = balance_routes(overlay, parts, keep_below_utilisation=keep_below_utilisation)
    step = 1 if found.moves == 0 else trees
    grouped = tuple(found.trees[first : first + step] for first in range(0, len(parts), trees))
    own = [
        link_utilisations(overlay, found.trees[first : first + trees], parts[first : first + trees])
        for first in range(0, len(parts), trees)
    ]
    whole = np.where(found.utilisation > 0.0, found.utilisation, 1.0)
    return SpreadRoutes(trees=grouped, shares=tuple(frozen(each / whole, np.float64) for each in own))


class _Links(NamedTuple):
    """What a choice reads, and what it notes: by link the work left at the time of the last event there."""

    parent: IntArray
    parent_link: IntArray
    slowness: FloatArray
    share: FloatArray
    work_s: FloatArray
    since_s: FloatArray
    seen: LongArray


class TreeChoice:
    """Which of its trees each event of one publisher takes; events are given in the order in which they depart."""

    def __init__(self, overlay: Overlay, trees: Sequence[Tree], share: FloatArray) -> None:
        self._links = _Links(
            parent=np.array([tree.parent for tree in trees], np.int32),
            parent_link=np.array([tree.parent_link for tree in trees], np.int32),
            slowness=overlay.slowness_mean_s_per_kb,
            share=frozen(share, np.float64),
            work_s=np.zeros(overlay.link_count),
            since_s=np.zeros(overlay.link_count),
            seen=np.zeros(overlay.broker_count, np.int64),
        )

    def choose(self, departed_s: FloatArray, size_kb: FloatArray, offsets: LongArray, homes: IntArray) -> LongArray:
        """A tree for each event; event i is wanted at the brokers homes[offsets[i]:offsets[i + 1]]."""
        chosen = np.zeros(len(departed_s), np.int64)
        if len(self._links.parent) > 1:
            events = (frozen(departed_s, np.float64), frozen(size_kb, np.float64))
            _choose(self._links, *events, frozen(offsets, np.int64), frozen(homes, np.int64), chosen)
        return chosen


@compiled
def _left_s(links: _Links, link: int, now_s: float) -> float:
    """How long the publisher's own events still occupy a link."""
    return float(max(0.0, links.work_s[link] - links.share[link] * (now_s - links.since_s[link])))


@compiled
def _choose(
    links: _Links,
    departed_s: FloatArray,
    size_kb: FloatArray,
    offsets: LongArray,
    homes: LongArray,
    chosen: LongArray,
) -> None:
    parent, seen = links.parent, links.seen
    seen[:] = -1
    mark = np.int64(0)
    for event in range(len(chosen)):
        now_s, least = departed_s[event], np.inf
        for tree in range(len(parent)):
            cost = 0.0
            mark += 1
            for place in range(offsets[event], offsets[event + 1]):
                broker = homes[place]
                while parent[tree, broker] >= 0 and seen[broker] != mark:
                    seen[broker] = mark
                    link = links.parent_link[tree, broker]
                    turn_s = size_kb[event] * links.slowness[link]
                    cost += turn_s * (OWN_WEIGHT * turn_s + _left_s(links, link, now_s))
                    broker = parent[tree, broker]
            if cost < least:
                least = cost
                chosen[event] = tree
        tree = chosen[event]
        for place in range(offsets[event], offsets[event + 1]):
            broker = homes[place]
            while parent[tree, broker] >= 0 and seen[broker] != -1:
                seen[broker] = -1
                link = links.parent_link[tree, broker]
                turn_s = size_kb[event] * links.slowness[link]
                links.work_s[link] = min(BACKLOG_TURNS * turn_s, _left_s(links, link, now_s) + turn_s)
                links.since_s[link] = now_s
                broker = parent[tree, broker]
