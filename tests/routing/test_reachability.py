import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.routing import Overlay, downstream_links, overlay_of_links, reachability_table


def random_dag(seed: int, brokers: int, share: float) -> Overlay:
    rng = np.random.default_rng(seed)
    rank = rng.permutation(brokers)
    links = [
        (a, b, float(rng.choice([0.0, 0.1, 0.2, 0.3])))
        for a in range(brokers)
        for b in range(brokers)
        if rank[a] < rank[b] and rng.random() < share
    ]
    return overlay_of_links(brokers, links, slowness_variance_s2_per_kb2=rng.uniform(0, 1, len(links)).tolist())


def paths_from(overlay: Overlay, broker: int) -> list[list[int]]:
    """Every downstream path from this broker, as links."""
    out = overlay.out_links[overlay.out_offsets[broker] : overlay.out_offsets[broker + 1]]
    return [[]] + [[int(link), *rest] for link in out for rest in paths_from(overlay, int(overlay.target[link]))]


@settings(deadline=None)  # the first call compiles
@given(seed=st.integers(0, 2**32 - 1), brokers=st.integers(1, 7), share=st.floats(0.2, 0.9))
def test_against_all_paths(seed: int, brokers: int, share: float) -> None:
    overlay = random_dag(seed, brokers, share)
    table = reachability_table(overlay)
    tenths = np.rint(overlay.slowness_mean_s_per_kb * 10).astype(int)
    for broker in range(brokers):
        best: dict[tuple[int, int], tuple[int, int]] = {}
        for path in paths_from(overlay, broker):
            if path:
                key = (path[0], int(overlay.target[path[-1]]))
                label = (int(tenths[path].sum()), len(path))
                best[key] = min(best.get(key, label), label)
        for link in np.flatnonzero(overlay.source == broker):
            for destination in range(brokers):
                found = best.get((int(link), destination))
                assert table.reaches[link, destination] == (found is not None)
                assert table.nodes[link, destination] == (-1 if found is None else found[1])
                expected = np.inf if found is None else found[0] / 10
                assert table.mean_s_per_kb[link, destination] == pytest.approx(expected)
        for homes in ([0], list(range(brokers)), []):
            wanted = {link for (link, destination) in best if destination in homes}
            assert set(table.links_towards(broker, homes).tolist()) == wanted


def test_figures_of_the_best_path_behind_each_neighbour() -> None:
    links = [(0, 1, 0.1), (0, 2, 0.1), (1, 3, 0.5), (2, 3, 0.2), (1, 2, 0.1)]
    overlay = overlay_of_links(4, links, slowness_variance_s2_per_kb2=[1, 2, 4, 8, 16])
    table = reachability_table(overlay)
    assert table.nodes[:, 3].tolist() == [3, 2, 1, 1, 2]
    assert table.mean_s_per_kb[:, 3] == pytest.approx([0.4, 0.3, 0.5, 0.2, 0.3])
    assert table.variance_s2_per_kb2[:, 3].tolist() == [25, 10, 4, 8, 24]


@pytest.mark.parametrize("both_ways", [False, True])
def test_layered_mesh_forwards_to_every_neighbour_that_leads_on(layered_mesh, both_ways: bool) -> None:
    overlay = layered_mesh(7, both_ways=both_ways)
    downstream = downstream_links(overlay, range(4))
    assert (overlay.source[downstream] < overlay.target[downstream]).all()
    assert downstream.sum() == 16 + 16 + 32
    table = reachability_table(overlay, downstream)
    for home in range(16, 32):
        above = set(overlay.source[downstream & (overlay.target == home)].tolist())
        copies = overlay.target[table.links_towards(4, [home])]
        assert set(copies.tolist()) == above & set(overlay.target[downstream & (overlay.source == 4)].tolist())
        assert len(table.links_towards(0, [home])) >= 1


def test_a_circle_is_refused_with_a_remedy() -> None:
    overlay = overlay_of_links(["a", "b", "c"], [(0, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0)])
    with pytest.raises(ConfigurationError, match=r"cycle at or before 'b', 'c'.*downstream_links"):
        reachability_table(overlay)
    assert reachability_table(overlay, downstream_links(overlay, [0])).reaches[0].tolist() == [False, True, True]


def test_a_publisher_on_no_broker_is_named() -> None:
    with pytest.raises(InputError, match="publisher's broker 9"):
        downstream_links(overlay_of_links(2, [(0, 1, 1.0)]), [9])
