"""What each broker knows of the dissemination trees: its neighbours in each, and where publishers lie.

Trees made of the same connections are one shared tree, whichever way they are rooted: on an overlay without cycles
there is only one, and a subscription crosses each connection at most once for all publishers together. In a mesh each
publisher's tree stands for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidings.errors import InputError
from tidings.routing._trees import Tree


@dataclass(frozen=True, kw_only=True)
class BrokerView:
    """One broker's part in every shared tree; `neighbours[t]` is None for a tree that it is not in."""

    broker: int
    neighbours: tuple[tuple[int, ...] | None, ...]
    towards_publishers: tuple[frozenset[int], ...]


@dataclass(frozen=True, kw_only=True)
class Dissemination:
    """The shared tree of each publisher, the publishers' brokers, and the view of each broker."""

    shared_tree: tuple[int, ...]
    roots: tuple[int, ...]
    views: tuple[BrokerView, ...]


def plan_dissemination(trees: Sequence[Tree]) -> Dissemination:
    """Group the publishers' trees (one per publisher) into shared trees and cut them into brokers' views."""
    if not trees:
        raise InputError("there is nothing to route: give at least one publisher's tree")
    members: dict[frozenset[tuple[int, int]], list[Tree]] = {}
    keys = []
    for tree in trees:
        pairs = ((int(tree.parent[b]), int(b)) for b in tree.order[1:])
        # A lone root has no connection to be known by, so it stands for itself.
        key = frozenset((min(pair), max(pair)) for pair in pairs) or frozenset({(tree.root, tree.root)})
        members.setdefault(key, []).append(tree)
        keys.append(key)
    number = {key: index for index, key in enumerate(members)}
    parts = [_split(shared) for shared in members.values()]
    views = [
        BrokerView(
            broker=broker,
            neighbours=tuple(neighbours[broker] for neighbours, _ in parts),
            towards_publishers=tuple(towards[broker] for _, towards in parts),
        )
        for broker in range(len(trees[0].parent))
    ]
    return Dissemination(
        shared_tree=tuple(number[key] for key in keys), roots=tuple(tree.root for tree in trees), views=tuple(views)
    )


def _split(shared: Sequence[Tree]) -> tuple[list[tuple[int, ...] | None], list[frozenset[int]]]:
    """Per broker: its neighbours in the shared tree, and those beyond which some root lies."""
    tree = shared[0]
    roots_below = [0] * len(tree.parent)
    for other in shared:
        roots_below[other.root] += 1
    for broker in reversed(tree.order[1:].tolist()):
        roots_below[tree.parent[broker]] += roots_below[broker]
    neighbours: list[tuple[int, ...] | None] = [None] * len(tree.parent)
    towards = [frozenset[int]()] * len(tree.parent)
    for broker in tree.order.tolist():
        children = tree.children(broker)
        above = () if broker == tree.root else (int(tree.parent[broker]),)
        neighbours[broker] = tuple(sorted(above + children))
        # The root of the first tree lies upwards from every other broker.
        towards[broker] = frozenset(above).union(child for child in children if roots_below[child])
    return neighbours, towards
