import numpy as np
import pytest

import tidings.routing as routing
from tidings.errors import InputError
from tidings.routing import Overlay, overlay_of_links


def test_every_public_name_exists() -> None:
    assert sorted(routing.__all__, key=str.casefold) == sorted(set(routing.__all__), key=str.casefold)
    assert all(hasattr(routing, name) for name in routing.__all__)


def test_adjacency_lists_links_by_neighbour() -> None:
    overlay = overlay_of_links(3, [(0, 2, 3.0), (1, 0, 1.0), (0, 1, 2.0)])
    assert overlay.out_links[overlay.out_offsets[0] : overlay.out_offsets[1]].tolist() == [2, 0]
    assert overlay.in_links[overlay.in_offsets[0] : overlay.in_offsets[1]].tolist() == [1]
    assert overlay.links_between([0, 0, 1, 2], [1, 2, 2, 0]).tolist() == [2, 0, -1, -1]


def test_both_ways_adds_the_reverse_after_each_link() -> None:
    overlay = overlay_of_links(["a", "b", "c"], [(0, 1, 0.5), (1, 2, 0.7)], both_ways=True)
    assert list(zip(overlay.source.tolist(), overlay.target.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert overlay.slowness_mean_s_per_kb.tolist() == [0.5, 0.5, 0.7, 0.7]


def test_values_are_frozen_and_independent_of_their_source() -> None:
    slowness = np.array([0.5])
    overlay = Overlay(
        brokers=("a", "b"),
        source=np.array([0], np.int32),
        target=np.array([1], np.int32),
        slowness_mean_s_per_kb=slowness,
        slowness_variance_s2_per_kb2=np.zeros(1),
        propagation_mean_s=np.zeros(1),
    )
    slowness[0] = 9.0
    assert overlay.slowness_mean_s_per_kb[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        overlay.slowness_mean_s_per_kb[0] = 1.0


@pytest.mark.parametrize(
    ("brokers", "links", "message"),
    [
        (0, [], "at least one broker"),
        (2, [(0, 2, 1.0)], "target 2, but brokers are 0..1"),
        (2, [(1, 1, 1.0)], "'1' -> '1' leads from a broker to itself"),
        (2, [(0, 1, 1.0), (0, 1, 2.0)], "'0' -> '1' is given twice"),
        (2, [(0, 1, -1.0)], "at least 0"),
        (2, [(0, 1, float("nan"))], "finite"),
        (["x", "x"], [], "two brokers are called 'x'"),
    ],
)
def test_a_wrong_overlay_is_named(brokers: int, links: list[tuple[int, int, float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        overlay_of_links(brokers, links)


def test_unknown_weight_names_the_choices() -> None:
    with pytest.raises(InputError, match="slowness, propagation or hops"):
        overlay_of_links(1, []).weights("price")  # type: ignore[arg-type]


def test_of_topology_takes_names_and_moments() -> None:
    from tidings.model.distributions import Deterministic, Exponential
    from tidings.model.topology import Broker, Link, Topology

    topology = Topology(
        brokers=(Broker(name="paris"), Broker(name="lyon")),
        links=(
            Link(source="lyon", target="paris", propagation=Deterministic(value=0.004)),
            Link(
                source="paris",
                target="lyon",
                propagation=Deterministic(value=0.003),
                slowness=Exponential(scale=0.5),
            ),
        ),
    )
    overlay = Overlay.of(topology)
    assert overlay.brokers == ("paris", "lyon")
    assert overlay.source.tolist() == [1, 0]
    assert overlay.target.tolist() == [0, 1]
    assert overlay.slowness_mean_s_per_kb.tolist() == [0.0, 0.5]
    assert overlay.slowness_variance_s2_per_kb2.tolist() == [0.0, 0.25]
    assert overlay.propagation_mean_s.tolist() == [0.004, 0.003]
