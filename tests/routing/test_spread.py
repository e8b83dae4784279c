"""Several trees per publisher: each reaches all, the load falls, and events choose by their publisher's own work."""

import numpy as np
import pytest

from tidings.routing import (
    Demand,
    Overlay,
    TreeChoice,
    balance_routes,
    forwarding_set,
    link_utilisations,
    overlay_of_links,
    spread_routes,
)
from tidings.routing._spread import BACKLOG_TURNS, OWN_WEIGHT


@pytest.fixture
def diamond() -> Overlay:
    """From a to d over b or c, equally slow; e hangs on b, f on c."""
    links = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0), (1, 4, 1.0), (2, 5, 1.0)]
    return overlay_of_links(list("abcdef"), links)


def demand(rate_per_s: float = 1.0) -> Demand:
    return Demand.of_fractions(broker=0, rate_per_s=rate_per_s, size_kb=1.0, fractions=[0, 0, 0, 1.0, 0, 0])


def test_one_publisher_uses_both_sides(diamond: Overlay) -> None:
    alone = balance_routes(diamond, [demand()])
    assert alone.utilisation.max() == pytest.approx(1.0)
    found = spread_routes(diamond, [demand()], trees=4)
    assert len(found.trees[0]) == 4
    asked = link_utilisations(diamond, found.trees[0], [demand(0.25)] * 4)
    assert asked[:4].tolist() == pytest.approx([0.5] * 4)
    assert found.shares[0][:4].tolist() == pytest.approx([1.0] * 4)


def test_every_tree_reaches_every_destination(diamond: Overlay) -> None:
    everywhere = Demand.of_fractions(broker=0, rate_per_s=2.0, size_kb=1.0, fractions=[0.5] * 6)
    for tree in spread_routes(diamond, [everywhere]).trees[0]:
        links = forwarding_set(tree, [1, 2, 3, 4, 5])
        targets = diamond.target[links].tolist()
        assert sorted(targets) == [1, 2, 3, 4, 5]  # each once


def test_without_load_there_is_one_shortest_path(diamond: Overlay) -> None:
    found = spread_routes(diamond, [demand(0.1)], keep_below_utilisation=0.5)
    assert len(found.trees[0]) == 1


def test_two_publishers_share_a_link_by_what_they_ask(diamond: Overlay) -> None:
    only = Demand.of_fractions(broker=0, rate_per_s=0.3, size_kb=1.0, fractions=[0, 0, 0, 0, 1.0, 0])
    more = Demand.of_fractions(broker=0, rate_per_s=0.6, size_kb=1.0, fractions=[0, 0, 0, 0, 1.0, 0])
    found = spread_routes(diamond, [only, more], trees=2)
    assert [share[4] for share in found.shares] == pytest.approx([1 / 3, 2 / 3])


def plainly(overlay: Overlay, trees, share, events) -> list[int]:
    """The rule as it is written, event by event."""
    work, since, chosen = np.zeros(overlay.link_count), np.zeros(overlay.link_count), []
    for now, size, homes in events:
        turn = size * overlay.slowness_mean_s_per_kb
        left = np.maximum(0.0, work - share * (now - since))
        needed = [np.array(forwarding_set(tree, homes), int) for tree in trees]
        costs = [float((turn[links] * (OWN_WEIGHT * turn[links] + left[links])).sum()) for links in needed]
        chosen.append(min(range(len(trees)), key=lambda tree: (round(costs[tree], 9), tree)))
        links = needed[chosen[-1]]
        work[links] = np.minimum(BACKLOG_TURNS * turn[links], left[links] + turn[links])
        since[links] = now
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_the_rule_as_written(diamond: Overlay, seed: int) -> None:
    generator = np.random.default_rng(seed)
    everywhere = Demand.of_fractions(broker=0, rate_per_s=2.0, size_kb=1.0, fractions=[0.5] * 6)
    routes = spread_routes(diamond, [everywhere], trees=5)
    events = [
        (float(now), float(generator.integers(1, 9)), sorted(generator.choice(6, generator.integers(0, 6), False)))
        for now in np.cumsum(generator.integers(0, 4, 200))
    ]
    columns = [np.array([event[place] for event in events]) for place in range(2)]
    offsets = np.cumsum([0, *(len(event[2]) for event in events)])
    homes = np.array([home for event in events for home in event[2]], np.int64)
    expected = plainly(diamond, routes.trees[0], routes.shares[0], events)
    whole = TreeChoice(diamond, routes.trees[0], routes.shares[0])
    assert whole.choose(*columns, offsets, homes).tolist() == expected
    assert len(set(expected)) > 1
    pieces = TreeChoice(diamond, routes.trees[0], routes.shares[0])  # a choice goes on where the last call ended
    found: list[int] = []
    for start in range(0, 200, 30):
        here = offsets[start : start + 31]
        part = [column[start : start + 30] for column in columns]
        found += pieces.choose(*part, here - here[0], homes[here[0] : here[-1]]).tolist()
    assert found == expected
