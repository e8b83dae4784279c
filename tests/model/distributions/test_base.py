"""What holds for every distribution: its moments, density, cdf, quantile and sampler are of one and the same
distribution."""

import pickle
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings.model.distributions as distributions
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Distribution,
    DistributionError,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    ks_distance,
)

SAMPLES = 200_000
# Five standard errors: a right sampler fails one check in 1.7 million.
MARGIN_Z = 5.0
# P[sqrt(n) D > 2.3] = 2 exp(-2 * 2.3**2) = 5e-5 for a right sampler, whatever the distribution.
MARGIN_KS = 2.3


def integrate(distribution: DelayDistribution, power: int, centre: float) -> float:
    """E[(X - centre)**power] from the density and the atoms, by 20-point Gauss between many quantiles."""
    tails = 10.0 ** -np.arange(1.0, 14.0, 0.5)
    p = np.unique(np.concatenate(([0.0], tails, np.linspace(0.05, 0.95, 37), 1.0 - tails)))
    edges = distribution.quantile(p)
    if isinstance(distribution, Empirical):
        edges = np.concatenate((edges, distribution.quantiles))
    edges = np.unique(edges)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * np.diff(edges)[:, None]
    x = edges[:-1, None] + half * (1.0 + nodes)
    smooth = float(np.sum(half * weights * distribution.pdf(x) * (x - centre) ** power))
    return smooth + sum(mass * (value - centre) ** power for value, mass in distribution.atoms())


def test_moments_are_those_of_the_density(distribution: DelayDistribution) -> None:
    assert integrate(distribution, 0, 0.0) == pytest.approx(1.0, abs=1e-7)
    assert integrate(distribution, 1, 0.0) == pytest.approx(distribution.mean(), rel=1e-7)
    assert integrate(distribution, 2, distribution.mean()) == pytest.approx(
        distribution.variance(), rel=1e-6, abs=1e-15
    )


def test_mean_is_the_integral_of_the_quantile(distribution: DelayDistribution) -> None:
    # The midpoint rule leaves out half of the last cell's tail; 1e-3 is far above that for these distributions.
    p = (np.arange(20_000) + 0.5) / 20_000
    assert float(distribution.quantile(p).mean()) == pytest.approx(distribution.mean(), rel=1e-3)


def test_scv_is_variance_over_squared_mean(distribution: DelayDistribution) -> None:
    assert distribution.scv() == pytest.approx(distribution.variance() / distribution.mean() ** 2, rel=1e-14)


def test_samples_have_the_moments(distribution: DelayDistribution, rng: np.random.Generator) -> None:
    x = distribution.sample(rng, SAMPLES)
    away = x - distribution.mean()
    if distribution.variance() == 0.0:
        assert (x == distribution.mean()).all()
        return
    assert abs(away.mean()) < MARGIN_Z * np.sqrt(distribution.variance() / SAMPLES)
    assert abs(np.mean(away**2) - distribution.variance()) < MARGIN_Z * np.std(away**2) / np.sqrt(SAMPLES)


def test_samples_follow_the_cdf(distribution: DelayDistribution, rng: np.random.Generator) -> None:
    assert ks_distance(distribution, distribution.sample(rng, SAMPLES)) * np.sqrt(SAMPLES) < MARGIN_KS


def test_the_sampler_has_the_atoms(distribution: DelayDistribution, rng: np.random.Generator) -> None:
    x = distribution.sample(rng, SAMPLES)
    for value, mass in distribution.atoms():
        error = np.sqrt(mass * (1.0 - mass) / SAMPLES)
        # Interpolation inside an empirical atom returns the value itself, so equality is the right test.
        assert abs(np.mean(x == value) - mass) <= MARGIN_Z * error


def test_cdf_is_a_distribution_function(distribution: DelayDistribution) -> None:
    x = np.concatenate(
        ([-np.inf, -1.0, -1e-300], np.sort(distribution.quantile(np.linspace(0.0, 0.999, 200))), [1e300, np.inf])
    )
    below = distribution.cdf(x)
    assert (below[:3] == 0.0).all()
    assert (np.diff(below) >= -1e-15).all()
    assert (below[-2:] == 1.0).all()
    assert (distribution.pdf(x) >= 0.0).all()
    assert (distribution.pdf(x[:3]) == 0.0).all()
    assert distribution.pdf(np.inf) == 0.0


def test_density_is_the_slope_of_the_cdf(distribution: DelayDistribution) -> None:
    masses = [value for value, _ in distribution.atoms()]
    for p in (0.13, 0.37, 0.61, 0.88):
        x = distribution.quantile(p)
        if any(abs(x - value) < 1e-3 * (value + 1.0) for value in masses):
            continue  # there the cdf jumps
        step = 1e-5 * x
        slope = (distribution.cdf(x + step) - distribution.cdf(x - step)) / (2.0 * step)
        assert slope == pytest.approx(distribution.pdf(x), rel=1e-5)


def test_scalars_give_floats_and_arrays_keep_their_shape(
    distribution: DelayDistribution, rng: np.random.Generator
) -> None:
    grid = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    for method in (distribution.pdf, distribution.cdf, distribution.quantile):
        assert type(method(0.5)) is float
        assert method(grid).shape == (2, 3)
        assert method(grid)[1, 1] == pytest.approx(method(0.5), rel=1e-12)
        assert method([0.1, 0.2]).shape == (2,)
        assert method([]).shape == (0,)
    assert type(distribution.sample(rng)) is float
    assert distribution.sample(rng, 5).shape == (5,)
    assert distribution.sample(rng, (2, 3)).shape == (2, 3)
    assert distribution.sample(rng, 0).shape == (0,)


def test_nan_gives_nan(distribution: DelayDistribution) -> None:
    assert np.isnan(distribution.cdf(np.nan))
    assert np.isnan(distribution.pdf(np.nan))


def test_same_seed_same_numbers(distribution: DelayDistribution) -> None:
    first = distribution.sample(np.random.default_rng(7), 1000)
    assert (first == distribution.sample(np.random.default_rng(7), 1000)).all()
    if distribution.variance() > 0.0:
        assert (first != distribution.sample(np.random.default_rng(8), 1000)).any()


@pytest.mark.parametrize("p", [-1e-9, 1.0000001, np.nan, np.inf])
def test_quantile_refuses_what_is_no_probability(distribution: DelayDistribution, p: float) -> None:
    with pytest.raises(DistributionError, match="probabilities from 0 to 1"):
        distribution.quantile([0.5, p])


def test_quantile_ends(distribution: DelayDistribution) -> None:
    low, high = distribution.quantile(0.0), distribution.quantile(1.0)
    assert low >= 0.0
    assert distribution.cdf(np.nextafter(low, -1.0)) == 0.0
    assert distribution.cdf(high) == 1.0


def test_round_trip_through_builtins_and_pickle(distribution: DelayDistribution) -> None:
    table = msgspec.to_builtins(distribution)
    assert msgspec.convert(table, Distribution) == distribution
    assert msgspec.json.decode(msgspec.json.encode(distribution), type=DelayDistribution) == distribution
    twin = pickle.loads(pickle.dumps(distribution))
    assert twin == distribution
    assert hash(twin) == hash(distribution)


def test_a_distribution_is_frozen(distribution: DelayDistribution) -> None:
    with pytest.raises(AttributeError):
        setattr(distribution, distribution.__struct_fields__[0], 1.0)


positive = st.floats(1e-3, 1e3)
random_distributions = st.one_of(
    st.builds(Exponential, scale=positive),
    st.builds(lambda low, width: Uniform(low=low, high=low + width), positive, positive),
    st.builds(TruncatedNormal, location=st.floats(0.0, 1e3), scale=positive),
    st.builds(ShiftedGamma, shift=st.floats(0.0, 1.0), shape=st.floats(1.0, 50.0), scale=st.floats(0.01, 1e3)),
    # A density that is infinite at the shift packs more probability between two doubles there than the test allows;
    # around 0 the doubles are dense enough.
    st.builds(ShiftedGamma, shift=st.just(0.0), shape=st.floats(0.3, 1.0), scale=positive),
    st.builds(LogNormal, median=positive, sigma=st.floats(0.05, 3.0)),
    st.builds(Weibull, shape=st.floats(0.3, 20.0), scale=positive),
    st.builds(Hypoexponential, rates=st.lists(positive, min_size=1, max_size=5)),
    st.builds(lambda mean, scv: PhaseType.from_moments(mean=mean, scv=scv), positive, st.floats(0.1, 20.0)),
    st.builds(
        lambda start, steps: Empirical(quantiles=np.cumsum([start, *steps])),
        st.floats(0.0, 10.0),
        st.lists(st.floats(0.01, 10.0), min_size=1, max_size=20),
    ),
)
probabilities = st.floats(1e-6, 1.0 - 1e-6)


@given(distribution=random_distributions, p=probabilities)
def test_cdf_undoes_quantile_for_continuous_distributions(distribution: DelayDistribution, p: float) -> None:
    assert distribution.cdf(distribution.quantile(p)) == pytest.approx(p, abs=1e-9)


@given(distribution=random_distributions, p=st.lists(probabilities, min_size=2, max_size=100))
def test_quantile_rises(distribution: DelayDistribution, p: list[float]) -> None:
    x = distribution.quantile(np.sort(p))
    assert (np.diff(x) >= -1e-12 * x[1:]).all()


@given(
    sigma=st.floats(0.05, 2.0),
    low=st.floats(0.0, 2.0),
    width=st.floats(1e-3, 5.0),
    p=probabilities,
)
def test_clipped_quantile_is_the_smallest_value_that_reaches_p(
    sigma: float, low: float, width: float, p: float
) -> None:
    distribution = LogNormal(median=1.0, sigma=sigma, low=low, high=low + width)
    x = distribution.quantile(p)
    assert distribution.cdf(x) >= p - 1e-9
    assert distribution.cdf(x * (1.0 - 1e-9)) <= p + 1e-6
    assert low <= distribution.mean() <= low + width
    assert 0.0 <= distribution.variance() <= (width / 2.0) ** 2 + 1e-12


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_is_either_a_good_mean_or_refused(value: float) -> None:
    if 0.0 < value < np.inf:
        assert Exponential(scale=value).mean() == value
    else:
        with pytest.raises(DistributionError, match="exponential: `mean`"):
            Exponential(scale=value)


def test_equality_and_hash_ignore_the_type_of_number() -> None:
    plain = Exponential(scale=2.0)
    assert plain == Exponential(scale=2) == Exponential(scale=np.float64(2.0)) == Exponential(scale=np.int64(2))
    assert len({plain, Exponential(scale=2), Exponential(scale=np.float32(2.0))}) == 1
    assert Hypoexponential(rates=[1, 2]) == Hypoexponential(rates=np.array([1.0, 2.0]))
    assert hash(Hypoexponential(rates=[1, 2])) == hash(Hypoexponential(rates=(1.0, 2.0)))
    assert plain != Deterministic(value=2.0)


def test_public_names_exist_and_are_sorted() -> None:
    assert list(distributions.__all__) == sorted(distributions.__all__)
    for name in distributions.__all__:
        assert getattr(distributions, name) is not None


def test_import_loads_neither_scipy_nor_numba() -> None:
    code = "import sys, tidings.model.distributions; print([m for m in ('scipy', 'numba') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
