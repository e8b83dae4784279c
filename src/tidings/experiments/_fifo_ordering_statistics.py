"""Paper A's model put to the test: do delays and their differences follow it, does it adapt (Figures 2, 4, 7)?"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.experiments._fifo_ordering_network import LINK_S, LOW, make_traffic
from tidings.model.distributions import Hypoexponential, ks_distance
from tidings.ordering import Policy, Streams, fit_moment, replay, two_laplacians_cdf, violation_probability

__all__ = ["Adaptivity", "adaptivity", "draw_adaptivity", "fit_distances", "independence"]

FloatArray = NDArray[np.float64]

_DELAYS = 6_500
_HOPS = 5
_WINDOW = 25
_RATES_PER_S = (20.0, 200.0, 60.0, 500.0, 20.0, 1000.0, 100.0)
_PHASE_S = 8.0
_BROKERS = 3
_PROCESSING_S = 0.001
_INTEREST = 0.5


def fit_distances(seed: int) -> tuple[float, float]:
    """KS distances over 5 brokers, independent model: differences to two Laplacians, delays to 5 stages (Figure 2)."""
    traffic = make_traffic("46", "independent", seed, share=0.1, jitter_s=0.0)
    publisher = LOW
    broker = int(np.flatnonzero(traffic.depth[publisher] == _HOPS)[0])
    delay_s = traffic.left_s[publisher][broker] - traffic.departure_s[publisher] - (_HOPS - 1) * LINK_S
    difference_s = np.sort(np.diff(delay_s))
    distribution = two_laplacians_cdf(difference_s, fit_moment(difference_s))
    steps = np.arange(difference_s.size + 1) / difference_s.size
    laplace = float(max(np.max(distribution - steps[:-1]), np.max(steps[1:] - distribution)))
    samples = np.maximum(delay_s[:_DELAYS], 0.0)
    return laplace, float(ks_distance(Hypoexponential.fit(samples, phases=_HOPS), samples))


def independence(seed: int, *, share: float) -> tuple[float, float, str]:
    """Is the delay's variation the same at low and at high delay (Figure 4)? The p-values of two tests.

    An intense flow over the 8 brokers with stalls; high is what a stall delayed, 5 ms and more above the least.
    """
    from scipy.stats import ks_2samp, mannwhitneyu

    traffic = make_traffic("8", "stall", seed, share=share, jitter_s=0.0)
    publisher = LOW
    broker = int(np.argmax(traffic.depth[publisher]))
    delay_s = traffic.left_s[publisher][broker] - traffic.departure_s[publisher]
    high = delay_s > delay_s.min() + 0.005
    variation_s = np.diff(delay_s)
    low_pairs, high_pairs = variation_s[~high[1:] & ~high[:-1]], variation_s[high[1:] & high[:-1]]
    sizes = tuple(float(np.abs(values).mean()) * 1e3 for values in (low_pairs, high_pairs))
    note = (
        f"8 brokers, stall: {low_pairs.size} consecutive pairs at low and {high_pairs.size} at high delay, "
        f"mean |variation| {sizes[0]:.3f} and {sizes[1]:.3f} ms"
    )
    return float(mannwhitneyu(low_pairs, high_pairs).pvalue), float(ks_2samp(low_pairs, high_pairs).pvalue), note


class Adaptivity(NamedTuple):
    """One publisher whose rate changes, at one subscriber: what Figure 7 shows."""

    arrival_s: FloatArray
    is_late: NDArray[np.bool_]
    rate_at_s: FloatArray
    rate_per_s: FloatArray
    probability: FloatArray
    enhanced_ms: FloatArray
    basic_ms: FloatArray
    rank_correlation: float


def adaptivity(seed: int) -> Adaptivity:
    """Seven phases of different rates over three brokers, independent model; half of the events match."""
    from scipy.stats import spearmanr

    generator = np.random.default_rng([seed, 7])
    departure_s = np.concatenate(
        [
            np.sort(generator.uniform(phase * _PHASE_S, (phase + 1) * _PHASE_S, generator.poisson(rate * _PHASE_S)))
            for phase, rate in enumerate(_RATES_PER_S)
        ]
    )
    delay_s = generator.exponential(_PROCESSING_S, (_BROKERS, departure_s.size)).sum(axis=0) + (_BROKERS - 1) * LINK_S
    matched = generator.random(departure_s.size) < _INTEREST
    sequence = np.flatnonzero(matched)
    arrival_ns = np.rint((departure_s + delay_s)[sequence] * 1e9).astype(np.int64)
    order = np.argsort(arrival_ns, kind="stable")
    streams = Streams.of_one_publisher(
        departure_ns=np.rint(departure_s * 1e9).astype(np.int64),
        stream=np.zeros(sequence.size, np.int64),
        sequence=sequence[order],
        arrival_ns=arrival_ns[order],
        wanted=matched[None, :],
    )
    found = replay(streams, [Policy.parse("P-0.05-0"), Policy.parse("P-0.05-25")])
    probability, is_late = _computed_probability(streams)
    seconds = np.arange(int(_PHASE_S * len(_RATES_PER_S)))
    rate = np.bincount(departure_s.astype(np.int64), minlength=seconds.size)[: seconds.size].astype(np.float64)
    bins = np.clip((streams.departure_ns / 1e9).astype(np.int64), 0, seconds.size - 1)
    mean = np.bincount(bins, probability, seconds.size) / np.maximum(np.bincount(bins, minlength=seconds.size), 1)
    return Adaptivity(
        arrival_s=streams.arrival_ns / 1e9,
        is_late=is_late,
        rate_at_s=seconds.astype(np.float64) + 0.5,
        rate_per_s=rate,
        probability=probability,
        enhanced_ms=found["P-0.05-25"].assessed_ns / 1e6,
        basic_ms=found["P-0.05-0"].assessed_ns / 1e6,
        rank_correlation=float(spearmanr(rate, mean).statistic),
    )


def _computed_probability(streams: Streams) -> tuple[FloatArray, NDArray[np.bool_]]:
    """By arrival, the violation probability that the receiver computes for it, and whether it came late."""
    highest = np.maximum.accumulate(streams.sequence)
    is_late = streams.sequence < highest
    rows = np.arange(streams.sequence.size)
    base = np.concatenate([[0], np.maximum.accumulate(np.where(is_late, 0, rows))[:-1]])
    difference_ns = (streams.arrival_ns - streams.arrival_ns[base]) - (
        streams.departure_ns - streams.departure_ns[base]
    )
    total = np.concatenate([[0.0], np.cumsum(np.abs(difference_ns))])
    start = np.maximum(rows + 1 - _WINDOW, 0)
    scale_ns = 2.0 / 3.0 * (total[rows + 1] - total[start]) / (rows + 1 - start)
    gap_ns = streams.departure_ns - streams.previous_departure_ns
    return violation_probability(scale_ns, gap_ns), is_late


def draw_adaptivity(series: Adaptivity, folder: Path) -> Path:
    """Figure 7 of the paper, as PNG."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(9, 9), layout="constrained")
    late, rate, probability, enhanced, basic = figure.subplots(5, 1, sharex=True)
    late.vlines(series.arrival_s[series.is_late], 0.0, 1.0, linewidth=0.4)
    late.set_yticks([])
    late.set_ylabel("out of order")
    rate.plot(series.rate_at_s, series.rate_per_s)
    rate.set_ylabel("events/s")
    probability.plot(series.arrival_s, series.probability, linewidth=0.4)
    probability.set_ylabel("violation probability")
    for axes, values, label in (
        (enhanced, series.enhanced_ms, "latch, ms (record 25)"),
        (basic, series.basic_ms, "latch, ms (basic)"),
    ):
        axes.plot(series.arrival_s, values, linewidth=0.4)
        axes.set_ylabel(label)
        axes.set_ylim(0.0, max(float(series.basic_ms.max()), 0.1))
    basic.set_xlabel("s")
    figure.suptitle("Figure 7: the latch follows the publishing rate")
    path = folder / "figure-7.png"
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return path
