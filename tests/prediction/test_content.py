"""Masses of filters and of their unions: exact on product form, the same from signatures, and near when sampled."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.model.distributions import Exponential, Zipf
from tidings.model.filters import Filter
from tidings.model.scenario import Choice, Constant, Numeric
from tidings.prediction import ContentMatcher, Signatures, signatures_of_matches
from tidings.prediction._flows import union_masses

TEXTS = [
    "topic = 'a' AND x BETWEEN 2 AND 4",
    "topic = 'a' AND y > 2",
    "x = 1 OR y = 4",
    "topic = 'b'",
    "x + y > 6",
    "topic <> 'a' AND x IN (1, 5)",
]


def zipf(count: int) -> tuple[float, ...]:
    return tuple(Zipf(count=count, exponent=1.0).pmf(np.arange(1.0, count + 1)).tolist())


CONTENT = {
    "topic": Choice(values=("a", "b"), probabilities=(0.7, 0.3)),
    "x": Choice(values=(1, 2, 3, 4, 5), probabilities=zipf(5)),
    "y": Choice(values=(1, 2, 3, 4), probabilities=zipf(4)),
    "unread": Choice(values=tuple(range(1000))),
}


def brute_force(filters):
    """{set of matching filters: mass}, by every combination of values."""
    masses: dict[frozenset[int], float] = {}
    names = ("topic", "x", "y")
    for places in itertools.product(*(range(len(CONTENT[name].values)) for name in names)):
        row = {name: CONTENT[name].values[place] for name, place in zip(names, places, strict=True)}
        mass = np.prod([CONTENT[name].probabilities[place] for name, place in zip(names, places, strict=True)])
        key = frozenset(number for number, each in enumerate(filters) if each.matches(row))
        masses[key] = masses.get(key, 0.0) + float(mass)
    return masses


def as_sets(signatures: Signatures) -> dict[frozenset[int], float]:
    return {
        frozenset(signatures.subscriptions[a:b].tolist()): float(weight)
        for weight, a, b in zip(signatures.weights, signatures.offsets[:-1], signatures.offsets[1:], strict=True)
    }


@settings(deadline=None)
@given(st.lists(st.sampled_from(TEXTS), unique=True, max_size=6))
def test_product_form_is_exact(texts) -> None:
    filters = [Filter.parse(text) for text in texts]
    found = as_sets(ContentMatcher(filters).signatures(CONTENT))
    wanted = brute_force(filters)
    wanted.pop(frozenset(), None)
    assert found.keys() == wanted.keys()
    for key, mass in wanted.items():
        assert found[key] == pytest.approx(mass, abs=1e-12)


def test_masses_of_single_filters() -> None:
    signatures = ContentMatcher([Filter.parse(text) for text in TEXTS]).signatures(CONTENT)
    matched, masses = signatures.masses
    assert matched.tolist() == [0, 1, 2, 3, 4, 5]
    assert masses[3] == pytest.approx(0.3)
    x = zipf(5)
    assert masses[0] == pytest.approx(0.7 * (x[1] + x[2] + x[3]))


def test_alpha_on_zipf_is_zipf_of_the_product() -> None:
    matcher = ContentMatcher([Filter.parse(f"x = {value}") for value in range(1, 6)])
    masses = matcher.signatures(CONTENT, alpha=1.7).masses[1]
    assert masses == pytest.approx(Zipf(count=5, exponent=1.7).pmf(np.arange(1.0, 6.0)))
    with pytest.raises(InputError, match="alpha is 0"):
        matcher.signatures(CONTENT, alpha=0.0)


def test_continuous_content_is_sampled_evenly() -> None:
    content = {"price": Numeric(distribution=Exponential(scale=10.0)), "kind": Constant(value="q")}
    signatures = ContentMatcher([Filter.parse("price > 20 AND kind = 'q'")]).signatures(content)
    assert signatures.sampled == 20_000
    # A Latin hypercube puts the same number of samples into each 20,000th part: the share is right to one sample.
    assert signatures.masses[1][0] == pytest.approx(np.exp(-2.0), abs=1.0 / 20_000)


def test_values_of_several_types_are_matched_one_by_one() -> None:
    content = {"v": Choice(values=(1, "one", True))}
    signatures = ContentMatcher([Filter.parse("v = 1"), Filter.parse("v = 'one'")]).signatures(content)
    assert signatures.masses[1] == pytest.approx([1 / 3, 1 / 3])


def test_equal_signatures_are_put_together() -> None:
    offsets, matches = np.array([0, 2, 2, 4, 5]), np.array([0, 1, 1, 0, 2], np.int32)
    signatures = signatures_of_matches(offsets, matches, weights=np.full(4, 0.25), sampled=4)
    assert as_sets(signatures) == {frozenset({0, 1}): 0.5, frozenset({2}): 0.25}
    assert signatures.sampled == 4


def test_bad_signatures_are_refused() -> None:
    with pytest.raises(InputError, match=r"add up to 1\.5"):
        Signatures(weights=np.array([1.5]), offsets=np.array([0, 1]), subscriptions=np.zeros(1, np.int32))
    with pytest.raises(InputError, match="offsets"):
        Signatures(weights=np.array([0.5]), offsets=np.array([0, 2]), subscriptions=np.zeros(1, np.int32))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_union_masses_against_the_plain_definition(seed) -> None:
    """Kernel and its Python twin, against: the mass of all signatures with a home in the broker's subtree."""
    generator = np.random.default_rng(seed)
    n, subscriptions, kinds = 7, 9, 5
    parent = np.array([-1, *(int(generator.integers(b)) for b in range(1, n))], np.int32)
    position = np.arange(n, dtype=np.int32)
    homes = generator.integers(n, size=subscriptions).astype(np.int32)
    held = [np.flatnonzero(generator.random(subscriptions) < 0.3).astype(np.int32) for _ in range(kinds)]
    offsets = np.cumsum([0, *(len(each) for each in held)])
    weights = generator.dirichlet(np.ones(kinds))
    wanted = np.zeros(n)
    for weight, each in zip(weights, held, strict=True):
        touched = set()
        for broker in homes[each].tolist():
            while broker >= 0:
                touched.add(broker)
                broker = int(parent[broker])
        for broker in touched:
            wanted[broker] += weight
    arguments = (weights, offsets, np.concatenate(held), homes, parent, position)
    assert union_masses(*arguments) == pytest.approx(wanted)
    assert union_masses.py_func(*arguments) == pytest.approx(wanted)
