"""Intervals: known things have none, measured ones cover the truth about as often as they say."""

from dataclasses import replace

import numpy as np
import pytest

from tidings.errors import InputError
from tidings.model.distributions import Deterministic, Exponential, LogNormal, ShiftedGamma, Uniform
from tidings.model.distributions import scaled as _stretched
from tidings.prediction import from_network, predict, predict_intervals, signatures_of_matches


@pytest.fixture(scope="module")
def knowledge(chain):
    """Two M/M/1 brokers at load .7 with a lossy link, and two subscriptions."""
    return from_network(
        chain(2, interval=Exponential(scale=1.0 / 7.0), loss=0.05, filters=("x <= 3", "x = 4"), homes=(1, 0))
    )


def measured(knowledge, generator, n: int):
    """The same knowledge as n observations of everything would have it."""
    publisher = knowledge.publishers[0]
    content = publisher.content
    counts = generator.multinomial(n, np.append(content.weights, max(0.0, 1.0 - content.weights.sum())))
    return replace(
        knowledge,
        brokers=tuple(
            replace(b, service=Exponential(scale=float(generator.exponential(0.1, n).mean())), observed=n)
            for b in knowledge.brokers
        ),
        links=tuple(replace(link, loss=generator.binomial(n, link.loss) / n, observed=n) for link in knowledge.links),
        publishers=(
            replace(
                publisher,
                interval=Exponential(scale=float(generator.exponential(1.0 / 7.0, n).mean())),
                content=replace(content, weights=counts[:-1] / n, sampled=n),
                observed=n,
            ),
        ),
    )


def test_intervals_cover_the_truth(knowledge) -> None:
    """40 measurements of 400 observations each, level .9, two subscriptions: with the right coverage fewer than 29 of
    40 happen once in 2,000 times."""
    truth = predict(knowledge).reliability
    generator = np.random.default_rng(11)
    covered = np.zeros(2)
    for _ in range(40):
        found = predict_intervals(measured(knowledge, generator, 400), generator, replicates=30)
        covered += (found.low <= truth) & (truth <= found.high)
    assert (covered >= 29).all()


def test_more_observations_make_them_narrower(knowledge) -> None:
    generator = np.random.default_rng(12)
    few, many = (predict_intervals(measured(knowledge, generator, n), generator) for n in (200, 20_000))
    assert (many.high - many.low < 0.4 * (few.high - few.low)).all()


def test_what_is_known_has_no_interval(knowledge) -> None:
    found = predict_intervals(knowledge, np.random.default_rng(1), replicates=3)
    assert found.low == pytest.approx(found.high, abs=1e-12)


def test_no_reliability_no_interval(chain) -> None:
    found = predict_intervals(from_network(chain(1, filters=("x > 9",))), np.random.default_rng(1), replicates=3)
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()


def test_signatures_of_a_trace_serve_as_they_are(knowledge) -> None:
    """The same content by sampled match signatures: within three standard errors of the rates."""
    generator = np.random.default_rng(3)
    x = generator.choice([1, 2, 3, 4], p=[0.4, 0.3, 0.2, 0.1], size=5000)
    matches = np.where(x <= 3, 0, 1).astype(np.int32)
    content = signatures_of_matches(np.arange(5001), matches, weights=np.full(5000, 1 / 5000), sampled=5000)
    publisher = replace(knowledge.publishers[0], content=content)
    found = predict(replace(knowledge, publishers=(publisher,)))
    assert found.reliability == pytest.approx(predict(knowledge).reliability, abs=0.01)


def test_bad_levels_are_refused(knowledge) -> None:
    with pytest.raises(InputError, match="level between 0 and 1"):
        predict_intervals(knowledge, np.random.default_rng(1), level=1.0)


@pytest.mark.parametrize(
    "distribution",
    [
        Deterministic(value=0.5),
        Exponential(scale=0.5),
        ShiftedGamma(shift=0.1, shape=2.0, scale=0.3),
        Uniform(low=0.0, high=1.0),
        LogNormal(median=1.0, sigma=0.5),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_stretching_scales_mean_and_deviation(distribution) -> None:
    stretched = _stretched(distribution, 1.5)
    assert stretched.mean() == pytest.approx(1.5 * distribution.mean())
    assert stretched.variance() == pytest.approx(2.25 * distribution.variance())
