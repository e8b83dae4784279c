"""Dissemination trees: the one path by which a publisher's events reach each broker (paper C, section 3.3).

Theory of operation:

- The path to each broker minimises the sum of link weights (mean slowness by default); among equals the one
  with fewer hops; among those, going back from the broker, the one whose previous broker has the lowest number. So the
  tree depends on nothing but the overlay, and renumbering brokers renumbers the tree wherever no two paths are equal.
- Weights are compared as whole numbers of 10^-12 of the decade of the largest weight. Sums of floats depend on the
  order of adding; sums of whole numbers do not, so paths that are equal as written (.1 + .2 and .3) are ties.
- On an overlay without cycles every tree is the overlay itself, seen from its root.
- A tree may leave out brokers that no path leads to (a mesh may run downstream only); asking for one is an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidings.compiled import borrowing
from tidings.errors import ConfigurationError, InputError
from tidings.routing._arrays import BoolArray, FloatArray, IntArray, LongArray, frozen
from tidings.routing._overlay import NO_BROKER, NO_LINK, Overlay, Weight

_UNREACHED = np.iinfo(np.int64).max
_QUANTA_PER_DECADE = 10**12


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """A rooted tree of links, all leading away from the root.

    `order` lists the brokers of the tree in preorder, children by ascending number: the subtree of b is
    `order[position[b] : position[b] + size[b]]`. Outside the tree parent, parent_link, depth and position are -1 and
    size is 0; the root has parent and parent_link -1.
    """

    root: int
    parent: IntArray
    parent_link: IntArray
    depth: IntArray
    order: IntArray
    position: IntArray
    size: IntArray

    def __contains__(self, broker: int) -> bool:
        return bool(self.position[broker] >= 0)

    @property
    def links(self) -> IntArray:
        """Every link of the tree, from the root to the leaves."""
        return frozen(self.parent_link[self.order[1:]], np.int32)

    def children(self, broker: int) -> tuple[int, ...]:
        found = []
        place = int(self.position[broker]) + 1
        end = place - 1 + int(self.size[broker])
        while place < end:
            child = int(self.order[place])
            found.append(child)
            place += int(self.size[child])
        return tuple(found)

    def path(self, broker: int) -> tuple[int, ...]:
        """The brokers from the root to this one, both included."""
        if broker not in self:
            raise InputError(f"broker {broker} is not in the tree of broker {self.root}")
        back = [broker]
        while back[-1] != self.root:
            back.append(int(self.parent[back[-1]]))
        return tuple(reversed(back))


def tree_of_parents(overlay: Overlay, root: int, parents: Sequence[int] | IntArray) -> Tree:
    """The tree in which each broker hangs under its parent (-1: the root, or not in the tree)."""
    overlay.require_broker(root, "root")
    parent = frozen(parents, np.int32)
    n = overlay.broker_count
    if parent.shape != (n,) or parent[root] != NO_BROKER:
        raise InputError(f"parents must name one broker for each of {n} brokers and -1 for the root {root}")
    members = np.flatnonzero(parent != NO_BROKER)
    links = np.full(n, NO_LINK, np.int32)
    links[members] = overlay.links_between(parent[members], members)
    missing = members[links[members] == NO_LINK]
    if len(missing):
        child = int(missing[0])
        raise InputError(f"no link leads from broker {parent[child]} to broker {child}, its child in the tree")
    order, depth, size = _preorder(root, parent)
    if len(order) != len(members) + 1:
        loose = sorted(set(members.tolist()) - set(order))
        raise InputError(f"broker {loose[0]} does not hang under root {root}: its parents form a cycle")
    position = np.full(n, -1, np.int32)
    position[order] = np.arange(len(order))
    return Tree(
        root=root,
        parent=frozen(parent.copy(), np.int32),
        parent_link=frozen(links, np.int32),
        depth=frozen(depth, np.int32),
        order=frozen(order, np.int32),
        position=frozen(position, np.int32),
        size=frozen(size, np.int32),
    )


def _preorder(root: int, parent: IntArray) -> tuple[list[int], list[int], list[int]]:
    children: list[list[int]] = [[] for _ in parent]
    for broker, above in enumerate(parent.tolist()):
        if above != NO_BROKER:
            children[above].append(broker)
    order: list[int] = []
    depth, size = [-1] * len(parent), [0] * len(parent)
    depth[root] = 0
    waiting = [root]
    while waiting:
        broker = waiting.pop()
        order.append(broker)
        for child in reversed(children[broker]):
            depth[child] = depth[broker] + 1
            waiting.append(child)
    for broker in reversed(order):
        size[broker] += 1
        if broker != root:
            size[parent[broker]] += size[broker]
    return order, depth, size


def shortest_path_tree(
    overlay: Overlay, root: int, *, weight: Weight = "slowness", destinations: Iterable[int] | None = None
) -> Tree:
    """The tree of shortest paths from the root; `destinations` are the brokers it must reach (default: all)."""
    overlay.require_broker(root, "root")
    heads = overlay.target[overlay.out_links]
    quanta = whole_weights(overlay.weights(weight))[overlay.out_links]
    parent = shortest_parents(root, overlay.out_offsets, frozen(heads, np.int32), frozen(quanta, np.int64))[2]
    tree = tree_of_parents(overlay, root, parent)
    require_reached(overlay, tree, range(overlay.broker_count) if destinations is None else destinations)
    return tree


def shortest_path_trees(
    overlay: Overlay, roots: Iterable[int], *, weight: Weight = "slowness", destinations: Iterable[int] | None = None
) -> tuple[Tree, ...]:
    """One tree per root, in order (roots are publishers' home brokers); equal roots share one tree."""
    wanted = None if destinations is None else tuple(destinations)
    made: dict[int, Tree] = {}
    trees = []
    for root in roots:
        if root not in made:
            made[root] = shortest_path_tree(overlay, root, weight=weight, destinations=wanted)
        trees.append(made[root])
    return tuple(trees)


def require_reached(overlay: Overlay, tree: Tree, destinations: Iterable[int]) -> None:
    lost = sorted({broker for broker in destinations if broker not in tree})
    if lost:
        raise ConfigurationError(
            f"no path leads from broker {overlay.brokers[tree.root]!r} to {overlay.names(lost)}: "
            "add links towards them, or attach no subscriber there"
        )


def whole_weights(weights: FloatArray) -> LongArray:
    """The weights as whole numbers, exact for up to 12 decimal digits after the leading one of the largest."""
    largest = float(weights.max(initial=0.0))
    if largest == 0.0:
        return np.zeros(len(weights), np.int64)
    decade = 10.0 ** np.floor(np.log10(largest))
    whole: LongArray = np.rint(weights / decade * _QUANTA_PER_DECADE).astype(np.int64)
    return whole


def shortest_parents(
    root: int, offsets: IntArray, heads: IntArray, weights: LongArray
) -> tuple[LongArray, LongArray, IntArray]:
    """The least (weight, hops) of every broker, and the lowest-numbered parent that attains them."""
    n = len(offsets) - 1
    cost, hops = np.full(n, _UNREACHED), np.full(n, _UNREACHED)
    parent = np.full(n, NO_BROKER, np.int32)
    cost[root] = hops[root] = 0
    queue, is_queued = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    queue[0] = root
    correct_labels(offsets, heads, weights, cost, hops, parent, queue, is_queued)
    return cost, hops, parent


@borrowing
def correct_labels(
    offsets: IntArray,
    heads: IntArray,
    weights: LongArray,
    cost: LongArray,
    hops: LongArray,
    parent: IntArray,
    queue: LongArray,
    is_queued: BoolArray,
) -> None:
    """Improve labels until none is improved, brokers in the order in which they were; then find parents.

    The queue is a ring that has each broker once at most, and the root at first. A heap would look at fewer brokers
    twice, but takes the compiler more than twice as long. `scipy.sparse.csgraph` minimises one weight: it knows neither
    the second one, hops, nor which of several equal parents it takes, and has no links of weight 0.
    """
    n = len(cost)
    taken, waiting = 0, 1
    while waiting > 0:
        broker = queue[taken]
        taken = (taken + 1) % n
        waiting -= 1
        is_queued[broker] = False
        so_far, steps = cost[broker], hops[broker]
        for slot in range(offsets[broker], offsets[broker + 1]):
            head = heads[slot]
            longer = so_far + weights[slot]
            if longer < cost[head] or (longer == cost[head] and steps + 1 < hops[head]):
                cost[head] = longer
                hops[head] = steps + 1
                if not is_queued[head]:
                    is_queued[head] = True
                    queue[(taken + waiting) % n] = head
                    waiting += 1
    for near in range(n):
        if cost[near] == _UNREACHED:
            continue
        for slot in range(offsets[near], offsets[near + 1]):
            head = heads[slot]
            attains = cost[near] + weights[slot] == cost[head] and hops[near] + 1 == hops[head]
            if attains and parent[head] < 0:
                parent[head] = near
