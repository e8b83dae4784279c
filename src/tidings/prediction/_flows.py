"""Flows: how many events a second reach each broker, cross each link, and queue at each station (paper B, 4.1-4.2).

On trees the paper's table over the content space collapses exactly: of publisher p's events a share C_p(f) has to
reach a broker, f being the union of the filters at home at it and behind it, and a share prod(1 - loss) of those gets
there. Every publisher has its own tree, so meshes are no different. Unmatched events still load the home broker.

Stations are where events wait for their turn: brokers 0..n-1 with a service distribution, and links n..n+m-1 with a
slowness. Rates are by [publisher, station]; an event that will be lost on a link is still transmitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled
from tidings.model.distributions import DelayDistribution, Deterministic
from tidings.prediction._knowledge import FloatArray, IntArray, Knowledge
from tidings.prediction._stages import NOTHING, Stage, nodes_of, product_stage, scaled_stage, stage_of

__all__ = ["Layout", "Stations", "layout_of", "load", "union_masses"]

Array = NDArray[Any]

SIZE_NODES, SIZES_MAX = 5, 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """What does not change with the load: stages by number, trees as arrays, masses of filter unions.

    `service[p, station]` and `delay[station]` (propagation of links, processing of brokers) are numbers of `stages`;
    number 0 takes no time. `by_size[p]` are rows like `service[p]` for events of a given size, with the share of such
    events: a large event is slow on every link of its path. `order[p]` lists the brokers of p's tree from the root on,
    padded with -1; `parent` and `link` are by [publisher, broker]. `mass[p, broker]` is the share of p's events that
    has to reach the broker, `kept[p, broker]` what the links' losses leave of it.
    """

    stages: Sequence[Stage]
    service: IntArray
    by_size: Sequence[Sequence[tuple[float, IntArray]]]
    delay: IntArray
    rate_per_s: FloatArray
    order: IntArray
    parent: IntArray
    link: IntArray
    mass: FloatArray
    kept: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Stations:
    """Who queues where: rates by [publisher, station], and the first three moments of each station's service."""

    rate_per_s: FloatArray
    total_per_s: FloatArray
    mean_s: FloatArray
    second_s2: FloatArray
    third_s3: FloatArray

    @property
    def utilisation(self) -> FloatArray:
        return self.total_per_s * self.mean_s

    @property
    def scv(self) -> FloatArray:
        square = np.where(self.mean_s > 0.0, self.mean_s, 1.0) ** 2
        return np.where(self.mean_s > 0.0, np.maximum(0.0, self.second_s2 / square - 1.0), 1.0)

    def mean(self, figures: FloatArray) -> FloatArray:
        """By station, the mean over its events of a figure by [publisher, station]."""
        return np.asarray((self.rate_per_s * figures).sum(axis=0) / np.maximum(self.total_per_s, 1e-300))


def layout_of(knowledge: Knowledge, mass: FloatArray | None = None) -> Layout:
    """Trees, stages and masses of a network; `mass` by [publisher, broker] if it is known without the content."""
    n, m, count = len(knowledge.brokers), len(knowledge.links), len(knowledge.publishers)
    stages: list[Stage] = [NOTHING]
    numbers: dict[tuple[object, ...], int] = {}

    def stage_number(distribution: DelayDistribution, factor: float, size: DelayDistribution | None = None) -> int:
        key = (distribution, factor, size)
        if key not in numbers:
            numbers[key] = len(stages)
            stages.append(
                scaled_stage(stage_of(distribution) if size is None else product_stage(size, distribution), factor)
            )
        return numbers[key]

    delay = np.zeros(n + m, np.int32)
    service = np.zeros((count, n + m), np.int32)
    for number, broker in enumerate(knowledge.brokers):
        if broker.service is not None and broker.service.mean() > 0.0:
            service[:, number] = stage_number(broker.service, broker.service_factor)
        if broker.processing is not None:
            delay[number] = stage_number(broker.processing, 1.0)
    sizes = list({publisher.size_kb: None for publisher in knowledge.publishers})
    size_of = np.array([sizes.index(publisher.size_kb) for publisher in knowledge.publishers], np.int64)
    for number, link in enumerate(knowledge.links):
        delay[n + number] = stage_number(link.propagation, link.propagation_factor)
        if link.slowness is not None and link.slowness.mean() > 0.0:
            each = [stage_number(link.slowness, link.slowness_factor, size) for size in sizes]
            service[:, n + number] = np.array(each, np.int32)[size_of]
    by_size = []
    for p, publisher in enumerate(knowledge.publishers):
        rows = []
        for weight, size in _sizes(publisher.size_kb, is_queued=bool((service[p, n:] > 0).any())):
            row = service[p].copy()
            for number, link in enumerate(knowledge.links):
                if row[n + number] > 0 and link.slowness is not None:
                    row[n + number] = stage_number(link.slowness, link.slowness_factor, size)
            rows.append((weight, row))
        by_size.append(tuple(rows))
    order = np.full((count, n), -1, np.int32)
    parent, via = np.full((count, n), -1, np.int32), np.full((count, n), -1, np.int32)
    reached, kept = np.zeros((count, n)), np.zeros((count, n))
    survives = np.array([1.0 - link.loss for link in knowledge.links])
    for number, publisher in enumerate(knowledge.publishers):
        tree, content = publisher.tree, publisher.content
        order[number, : len(tree.order)] = tree.order
        parent[number], via[number] = tree.parent, tree.parent_link
        reached[number] = (
            union_masses(
                content.weights, content.offsets, content.subscriptions, knowledge.homes, tree.parent, tree.position
            )
            if mass is None
            else mass[number]
        )
        reached[number, tree.root] = 1.0
        kept[number] = _kept(tree.order, tree.parent, tree.parent_link, survives)
    rate_per_s = np.array([publisher.rate_per_s for publisher in knowledge.publishers])
    return Layout(
        stages=stages,
        service=service,
        by_size=by_size,
        delay=delay,
        rate_per_s=rate_per_s,
        order=order,
        parent=parent,
        link=via,
        mass=reached,
        kept=kept,
    )


def _sizes(distribution: DelayDistribution, *, is_queued: bool) -> list[tuple[float, DelayDistribution]]:
    """A distribution of sizes as a few sizes with their shares; as it is where it makes no difference."""
    if not is_queued or isinstance(distribution, Deterministic):
        return [(1.0, distribution)]
    points, weights = nodes_of(distribution, panels=(0.0, 1.0), nodes=SIZE_NODES, most=SIZES_MAX)
    return [(float(w), Deterministic(value=float(x))) for x, w in zip(points, weights, strict=True)]


def load(layout: Layout, alive: FloatArray, passed: FloatArray) -> Stations:
    """The stations' load, when of p's events a share `alive[p, broker]` is still sent on the link into the broker.

    `passed[station]` is what an overloaded station lets through of what comes to it (1: everything).
    """
    rate = np.zeros(layout.service.shape)
    _spread(layout.order, layout.parent, layout.link, layout.rate_per_s, layout.mass, layout.kept, alive, passed, rate)
    total = rate.sum(axis=0)
    moments = []
    for name in ("mean_s", "second_s2", "third_s3"):
        of_stage = np.array([getattr(stage, name) for stage in layout.stages])
        sums = (rate * of_stage[layout.service]).sum(axis=0)
        idle = of_stage[layout.service].max(axis=0, initial=0.0)
        moments.append(np.where(total > 0.0, sums / np.maximum(total, 1e-300), idle))
    return Stations(rate_per_s=rate, total_per_s=total, mean_s=moments[0], second_s2=moments[1], third_s3=moments[2])


@compiled
def union_masses(
    weights: Array, offsets: Array, subscriptions: Array, homes: Array, parent: Array, position: Array
) -> Array:
    """By broker: the share of events that somebody at it or behind it in the tree wants."""
    mass = np.zeros(len(parent))
    seen = np.full(len(parent), -1, np.int64)
    for kind in range(len(weights)):
        for place in range(offsets[kind], offsets[kind + 1]):
            broker = homes[subscriptions[place]]
            if position[broker] < 0:
                continue
            while broker >= 0 and seen[broker] != kind:
                seen[broker] = kind
                mass[broker] += weights[kind]
                broker = parent[broker]
    return mass


@compiled
def _kept(order: Array, parent: Array, link: Array, survives: Array) -> Array:
    kept = np.zeros(len(parent))
    kept[order[0]] = 1.0
    for place in range(1, len(order)):
        broker = order[place]
        kept[broker] = kept[parent[broker]] * survives[link[broker]]
    return kept


@compiled
def _spread(
    order: Array,
    parent: Array,
    link: Array,
    rate_per_s: Array,
    mass: Array,
    kept: Array,
    alive: Array,
    passed: Array,
    rate: Array,
) -> None:
    """Rates by [publisher, station]; each broker's share of what passed is that of the broker before, less the queues
    between them that let only a part through."""
    count, n = mass.shape
    share = np.ones(n)
    for p in range(count):
        for place in range(n):
            broker = order[p, place]
            if broker < 0:
                break
            if place == 0:
                share[broker] = 1.0
            else:
                above = parent[p, broker]
                lost = kept[p, broker] / kept[p, above] if kept[p, above] > 0.0 else 0.0
                sent = rate_per_s[p] * mass[p, broker] * kept[p, above] * share[above] * passed[above]
                sent *= alive[p, broker]
                station = n + link[p, broker]
                rate[p, station] = sent
                share[broker] = share[above] * passed[above] * passed[station] * alive[p, broker]
                rate[p, broker] = sent * passed[station] * lost
            if place == 0:
                rate[p, broker] = rate_per_s[p]
