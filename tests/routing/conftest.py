"""Random overlays for the routing tests: small enough to be checked by hand-written brute force."""

from collections.abc import Callable

import numpy as np
import pytest

from tidings.routing import Overlay, overlay_of_links

MakeOverlay = Callable[..., Overlay]


def _make_overlay(
    seed: int, brokers: int, extra: int, *, weights: tuple[float, ...] = (), one_way: float = 0.0
) -> Overlay:
    """A random tree of both-way connections plus `extra` more; a share `one_way` of those extra runs one way only.

    Weights are drawn from the given ones (ties are then common), or are continuous (then there are none).
    """
    rng = np.random.default_rng(seed)
    pairs = [(int(rng.integers(0, b)), b) for b in range(1, brokers)]
    free = [(a, b) for a in range(brokers) for b in range(a) if (b, a) not in set(pairs)]
    chosen = [free[i] for i in rng.permutation(len(free))[:extra]]
    links = [link for a, b in pairs for link in ((a, b), (b, a))]
    for a, b in chosen:
        links += [(a, b)] if rng.random() < one_way else [(a, b), (b, a)]
    slowness = rng.choice(weights, len(links)) if weights else rng.uniform(0.05, 0.1, len(links))
    triples = [(a, b, float(w)) for (a, b), w in zip(links, slowness, strict=True)]
    return overlay_of_links(
        brokers,
        triples,
        slowness_variance_s2_per_kb2=rng.uniform(0, 1, len(links)).tolist(),
        propagation_mean_s=rng.uniform(0, 1, len(links)).tolist(),
    )


@pytest.fixture(scope="session")
def make_overlay() -> MakeOverlay:
    return _make_overlay


@pytest.fixture(scope="session")
def layered_mesh() -> MakeOverlay:
    """The mesh of paper C's evaluation: 4, 4, 8 and 16 brokers; the last two layers hang on two random ones above."""

    def make(seed: int, *, both_ways: bool = False) -> Overlay:
        rng = np.random.default_rng(seed)
        links = [(a, b) for a in range(4) for b in range(4, 8)]
        links += [(int(a), b) for b in range(8, 16) for a in sorted(rng.choice(range(4, 8), 2, replace=False))]
        links += [(int(a), b) for b in range(16, 32) for a in sorted(rng.choice(range(8, 16), 2, replace=False))]
        triples = [(a, b, float(rng.uniform(0.05, 0.1))) for a, b in links]
        return overlay_of_links(32, triples, slowness_variance_s2_per_kb2=0.02**2, both_ways=both_ways)

    return make
