"""Forwarding sets: which links an event takes, each once, given the subscriptions that it matches (single path).

Theory of operation: an event needs the union of the tree paths from its publisher's broker to the homes of the matched
subscriptions. Walking up from each home until a broker already seen touches every link of that union exactly once. At
one broker the same union is found locally: in preorder a child's subtree is one interval of positions, so the child
behind which a home lies is found by bisection, and no table of brokers times destinations is needed.

Links come in preorder: each after the link that feeds it. Homes outside the tree (or, locally, outside the broker's
subtree) are not served by it and are passed over; `require_reached` tells beforehand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidings.compiled import compiled
from tidings.errors import InputError
from tidings.routing._arrays import IntArray, frozen, frozen_copy
from tidings.routing._overlay import NO_BROKER, NO_LINK
from tidings.routing._trees import Tree


def forwarding_set(tree: Tree, homes: Iterable[int]) -> list[int]:
    """The links that one event takes to these home brokers: the plain twin of `forwarding_sets`."""
    needed: set[int] = set()
    for home in homes:
        broker = int(home)
        while broker in tree and broker != tree.root and broker not in needed:
            needed.add(broker)
            broker = int(tree.parent[broker])
    return [int(tree.parent_link[broker]) for broker in sorted(needed, key=lambda b: int(tree.position[b]))]


def forwarding_sets(tree: Tree, offsets: IntArray, homes: IntArray) -> tuple[IntArray, IntArray]:
    """The same for a batch: event i goes to `homes[offsets[i]:offsets[i + 1]]`; gives link offsets and links."""
    bounds, brokers = _checked(offsets, homes, len(tree.parent), "home broker")
    return path_unions(bounds, brokers, tree.parent, tree.parent_link, tree.order, tree.position)


def _checked(offsets: IntArray, values: IntArray, limit: int, name: str) -> tuple[IntArray, IntArray]:
    bounds, found = frozen(offsets, np.int32), frozen(values, np.int32)
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(found) or (np.diff(bounds) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of values, {len(found)}")
    outside = np.flatnonzero((found < 0) | (found >= limit))
    if len(outside):
        raise InputError(f"{name} {found[outside[0]]} does not exist: they are 0..{limit - 1}")
    return bounds, found


@compiled
def path_unions(
    offsets: IntArray, homes: IntArray, parent: IntArray, parent_link: IntArray, order: IntArray, position: IntArray
) -> tuple[IntArray, IntArray]:
    """Kernel of `forwarding_sets`: `seen` holds the last event that touched a broker, so it needs no clearing."""
    events = len(offsets) - 1
    seen = np.full(len(parent), -1, np.int32)
    link_offsets = np.zeros(events + 1, np.int32)
    places = np.empty(len(order), np.int32)
    links = np.empty(max(len(homes), 16), np.int32)
    total = 0
    for event in range(events):
        found = 0
        for slot in range(offsets[event], offsets[event + 1]):
            broker = homes[slot]
            while position[broker] > 0 and seen[broker] != event:
                seen[broker] = event
                places[found] = position[broker]
                found += 1
                broker = parent[broker]
        while total + found > len(links):
            links = np.concatenate((links, np.empty_like(links)))
        for place in np.sort(places[:found]):
            links[total] = parent_link[order[place]]
            total += 1
        link_offsets[event + 1] = total
    return link_offsets, links[:total].copy()


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingTables:
    """The compiled form for simulators and brokers: per tree and broker the child links, per subscription its home.

    The children of broker b in tree t are `child[t, first_child[t, b]:first_child[t, b + 1]]`, by ascending position,
    and `child_link` the links to them. `subtree_end` is the position after b's subtree. Numbers outside a tree are -1.
    """

    root: IntArray
    position: IntArray
    subtree_end: IntArray
    parent: IntArray
    parent_link: IntArray
    first_child: IntArray
    child: IntArray
    child_link: IntArray
    subscription_home: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Forwarded:
    """For a batch of events at one broker: output links and local subscriptions, each as offsets and values."""

    link_offsets: IntArray
    links: IntArray
    local_offsets: IntArray
    local_subscriptions: IntArray


def compile_forwarding(trees: Sequence[Tree], subscription_home: Sequence[int] | IntArray) -> ForwardingTables:
    """Tables for these trees (one per publisher or per publisher's broker) and the subscriptions' home brokers."""
    if not trees:
        raise InputError("forwarding tables need at least one tree")
    n = len(trees[0].parent)
    if any(len(tree.parent) != n for tree in trees):
        raise InputError("the trees belong to different overlays: build them all on one")
    homes = frozen_copy(subscription_home, np.int32)
    _checked(np.array([0, len(homes)], np.int32), homes, n, "home broker")
    first = np.zeros((len(trees), n + 1), np.int32)
    child = np.full((len(trees), max(n - 1, 1)), NO_BROKER, np.int32)
    child_link = np.full(child.shape, NO_LINK, np.int32)
    for index, tree in enumerate(trees):
        below = tree.order[1:]
        by_parent = below[np.argsort(tree.parent[below], kind="stable")]
        first[index] = np.searchsorted(tree.parent[by_parent], np.arange(n + 1))
        child[index, : len(below)] = by_parent
        child_link[index, : len(below)] = tree.parent_link[by_parent]
    position = np.stack([tree.position for tree in trees])
    size = np.stack([tree.size for tree in trees])
    return ForwardingTables(
        root=frozen([tree.root for tree in trees], np.int32),
        position=frozen(position, np.int32),
        subtree_end=frozen(np.where(position >= 0, position + size, -1), np.int32),
        parent=frozen(np.stack([tree.parent for tree in trees]), np.int32),
        parent_link=frozen(np.stack([tree.parent_link for tree in trees]), np.int32),
        first_child=frozen(first, np.int32),
        child=frozen(child, np.int32),
        child_link=frozen(child_link, np.int32),
        subscription_home=homes,
    )


def forward(tables: ForwardingTables, tree: int, broker: int, offsets: IntArray, subscriptions: IntArray) -> Forwarded:
    """What this broker does with events of this tree that match `subscriptions[offsets[i]:offsets[i + 1]]`."""
    if not 0 <= tree < len(tables.root):
        raise InputError(f"tree {tree} does not exist: they are 0..{len(tables.root) - 1}")
    if not 0 <= broker < tables.position.shape[1]:
        raise InputError(f"broker {broker} does not exist: they are 0..{tables.position.shape[1] - 1}")
    bounds, matched = _checked(offsets, subscriptions, len(tables.subscription_home), "subscription")
    link_offsets, links, local_offsets, local = forward_batch(
        broker,
        bounds,
        matched,
        tables.subscription_home,
        tables.position[tree],
        tables.subtree_end[tree],
        tables.first_child[tree],
        tables.child[tree],
        tables.child_link[tree],
    )
    return Forwarded(link_offsets=link_offsets, links=links, local_offsets=local_offsets, local_subscriptions=local)


def forward_plain(
    tables: ForwardingTables, tree: int, broker: int, matched: Iterable[int]
) -> tuple[list[int], list[int]]:
    """The plain twin of `forward` for one event: (links, local subscriptions)."""
    position, end = tables.position[tree], tables.subtree_end[tree]
    children = range(tables.first_child[tree, broker], tables.first_child[tree, broker + 1])
    subscriptions = [int(subscription) for subscription in matched]
    homes = [int(tables.subscription_home[subscription]) for subscription in subscriptions]
    links = [
        int(tables.child_link[tree, slot])
        for slot in children
        if any(position[tables.child[tree, slot]] <= position[home] < end[tables.child[tree, slot]] for home in homes)
    ]
    return links, [subscription for subscription, home in zip(subscriptions, homes, strict=True) if home == broker]


@compiled
def child_slot_towards(
    home: int,
    broker: int,
    position: IntArray,
    subtree_end: IntArray,
    first_child: IntArray,
    child: IntArray,
) -> int:
    """The slot of the child of `broker` whose subtree holds `home`, or -1 if home is not below broker."""
    place = position[home]
    if place <= position[broker] or place >= subtree_end[broker] or position[broker] < 0:
        return -1
    low, high = first_child[broker], first_child[broker + 1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if position[child[middle]] <= place:
            low = middle
        else:
            high = middle - 1
    return int(low)


@compiled
def forward_batch(
    broker: int,
    offsets: IntArray,
    subscriptions: IntArray,
    subscription_home: IntArray,
    position: IntArray,
    subtree_end: IntArray,
    first_child: IntArray,
    child: IntArray,
    child_link: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Kernel of `forward`; links come in the order of the children."""
    events = len(offsets) - 1
    begin, end = first_child[broker], first_child[broker + 1]
    wanted = np.full(end - begin, -1, np.int32)
    link_offsets = np.zeros(events + 1, np.int32)
    local_offsets = np.zeros(events + 1, np.int32)
    links = np.empty(len(subscriptions), np.int32)
    local = np.empty(len(subscriptions), np.int32)
    link_total = 0
    local_total = 0
    for event in range(events):
        for index in range(offsets[event], offsets[event + 1]):
            home = subscription_home[subscriptions[index]]
            if home == broker:
                local[local_total] = subscriptions[index]
                local_total += 1
                continue
            slot = child_slot_towards(home, broker, position, subtree_end, first_child, child)
            if slot >= 0:
                wanted[slot - begin] = event
        for slot in range(begin, end):
            if wanted[slot - begin] == event:
                links[link_total] = child_link[slot]
                link_total += 1
        link_offsets[event + 1] = link_total
        local_offsets[event + 1] = local_total
    return link_offsets, links[:link_total].copy(), local_offsets, local[:local_total].copy()
