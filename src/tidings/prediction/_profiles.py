"""From measured profiles, the tables that the pipeline computes from a trace, to the knowledge of a prediction.

What is measured is turned into distributions (`fit_of_duration`): a constant, an exponential, a uniform or a shifted
gamma one, the first that the measured quantiles do not contradict; if they contradict all, the distribution through the
quantiles themselves, with atoms where neighbours are equal. So a scenario that was run and measured is recovered within
the accuracy of its samples. Their number is kept (`observed`, `sampled`), and intervals follow from it. Where no
quantiles exist (a slowness is known by two moments), the distance of the result from what was measured is checked, and
reported if it is too large (`unmodelled`, kind "fit").

- Content is the match signatures as they are; lifetimes are those of all of a publisher's events.
- A link on which nobody ever waited has a delay and no queue. On others the slope over sizes is the slowness; where all
  sizes are equal, the transmission time is the one that explains the mean wait (M/D/1), and the rest is propagation.
- Trees are shortest paths over the measured slowness, as in a simulation. Expired events count as dropped if the
  profiles of links say so.

Tables are Arrow tables by name: `publishers`, `content`, `brokers`, `links` (docs/reference/profiles.md), and of the
trace itself `subscriptions` and `topology`. `read_profiles` reads them from the directory of a pipeline run, without
Spark.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    ShiftedGamma,
    Uniform,
    ks_limit,
    scaled,
)
from tidings.model.tables import has_table, table_place
from tidings.prediction._knowledge import (
    NO_CONTENT,
    BrokerKnowledge,
    FloatArray,
    Knowledge,
    LinkKnowledge,
    PublisherKnowledge,
    Signatures,
    exact_shares,
)
from tidings.prediction._unmodelled import Unmodelled, unmodelled_profiles
from tidings.routing import Overlay, Tree, shortest_path_trees
from tidings.statistics import PROBABILITIES

__all__ = [
    "PROFILE_TABLES",
    "SETTING_TABLES",
    "DurationFit",
    "brokers_of_topology",
    "distribution_of_duration",
    "fit_of_duration",
    "from_profiles",
    "imprecise",
    "lifetime_distribution",
    "outline_of_profiles",
    "read_profiles",
]

PROFILE_TABLES: Final = ("publishers", "content", "brokers", "links")
SETTING_TABLES: Final = ("subscriptions", "topology")
SKETCH_ERROR: Final = 0.0133  # in rank, of the sketch that quantiles come from (docs/reference/profiles.md)
SKETCH_EXACT: Final = 200  # as many values it holds as they are
CONSTANT_SCV: Final = 1e-6
_EMPIRICAL_PIECES: Final = 256
_SIZES, _SLOWNESSES = 64, 256  # points of the product that a link's delays are checked by
ENDLESS_S: Final = 1e9  # the lifetime of an event that has none, where others have one
_LIFETIME_STEPS: Final = 257

Row = Mapping[str, Any]


def read_profiles(directory: Path) -> dict[str, pa.Table]:
    """The tables of a pipeline run's directory, `components` too if it is there; an InputError says what is missing."""
    tables = {}
    for name in (*PROFILE_TABLES, *SETTING_TABLES):
        tables[name] = pq.read_table(table_place(directory, name))
    if has_table(directory, "components"):
        tables["components"] = pq.read_table(table_place(directory, "components"))
    return tables


def from_profiles(tables: Mapping[str, pa.Table]) -> Knowledge:
    """What a trace says; the same scenario taken from its text gives the same predictions within sampling noise."""
    missing = [name for name in (*PROFILE_TABLES, *SETTING_TABLES) if name not in tables]
    if missing:
        raise InputError(
            f"profiles: the table {missing[0]!r} is missing; give {', '.join(PROFILE_TABLES)} and the setting"
        )
    numbers = {name: number for number, name in enumerate(brokers_of_topology(tables["topology"]))}
    wanted = tables["subscriptions"].to_pylist()
    subscriptions = {row["subscription"]: number for number, row in enumerate(wanted)}
    contents: dict[str, list[Row]] = {name: [] for name in tables["publishers"].column("publisher").to_pylist()}
    for row in tables["content"].to_pylist():
        contents.setdefault(row["publisher"], []).append(row)
    lifetimes = {name: lifetime_distribution(_lifetimes(rows)) for name, rows in contents.items()}
    outline = outline_of_profiles(tables, lifetimes)
    return replace(
        outline,
        publishers=tuple(
            replace(publisher, content=_signatures(contents[publisher.name], subscriptions))
            for publisher in outline.publishers
        ),
        subscriptions=tuple(subscriptions),
        homes=np.array([numbers[row["broker"]] for row in wanted], np.int32),
        max_delays_s=np.array(
            [math.inf if row["max_delay_ns"] is None else row["max_delay_ns"] / 1e9 for row in wanted], np.float64
        ),
        prices=np.array([row["price"] for row in wanted], np.float64),
    )


def imprecise(knowledge: Knowledge, alpha: float) -> Knowledge:
    """The knowledge with the content known only to the power alpha (paper B, section 5.4): the chances of match
    signatures, that of matching nobody among them, raised to it and normalised. 1 is as it was measured."""
    if not (math.isfinite(alpha) and alpha > 0.0):
        raise InputError(f"alpha is {alpha!r}, but must be above 0: 1 is precise knowledge")
    if alpha == 1.0:
        return knowledge

    def blurred(content: Signatures) -> Signatures:
        rest = max(0.0, 1.0 - float(content.weights.sum()))
        chances = np.append(content.weights, rest) ** alpha
        return replace(content, weights=chances[:-1] / max(float(chances.sum()), 1e-300))

    publishers = tuple(replace(each, content=blurred(each.content)) for each in knowledge.publishers)
    return replace(knowledge, publishers=publishers)


def brokers_of_topology(topology: pa.Table) -> list[str]:
    """The brokers' names, in the order of their numbers."""
    return [row["source"] for row in topology.to_pylist() if row["kind"] == "broker"]


def outline_of_profiles(tables: Mapping[str, pa.Table], lifetimes: Mapping[str, DelayDistribution | None]) -> Knowledge:
    """All but subscriptions and content, which are the tables that grow: from `publishers`, `brokers`, `links` and
    `topology`, and the publishers' lifetimes."""
    names = brokers_of_topology(tables["topology"])
    numbers = {name: number for number, name in enumerate(names)}
    measured = {(row["source"], row["target"]): row for row in tables["links"].to_pylist()}
    brokers = {row["broker"]: row for row in tables["brokers"].to_pylist()}
    ends = [(row["source"], row["target"]) for row in tables["topology"].to_pylist() if row["kind"] == "link"]
    publishers = tables["publishers"].to_pylist()
    share = _sampled_share(publishers)
    links = [_link(measured.get(pair), numbers[pair[0]], numbers[pair[1]], share) for pair in ends]
    slowness = [_slowness(measured.get(pair), link) for pair, link in zip(ends, links, strict=True)]
    trees = _trees(names, links, np.array(slowness), [numbers[_home(row)] for row in publishers])
    dropped = sum((row["expired"] or 0) + (row["hopeless"] or 0) for row in measured.values())
    served = tuple(_broker(name, brokers.get(name)) for name in names)
    sending = tuple(
        _publisher(row, lifetimes.get(row["publisher"]), tree) for row, tree in zip(publishers, trees, strict=True)
    )
    return Knowledge(
        brokers=served,
        links=tuple(links),
        publishers=sending,
        subscriptions=(),
        homes=np.zeros(0, np.int32),
        max_delays_s=np.zeros(0),
        drops_expired=dropped > 0,
        unmodelled=(
            *unmodelled_profiles(
                served,
                links,
                {publisher.name: publisher.interval for publisher in sending},
                tables["components"].to_pylist() if "components" in tables else (),
            ),
            *_unfitting(
                {
                    f"{pair[0]} -> {pair[1]}": _doubt(measured.get(pair), link, _sizes(sending))
                    for pair, link in zip(ends, links, strict=True)
                }
            ),
        ),
    )


class DurationFit(NamedTuple):
    """The distribution of a measured duration, how far its probabilities are from the measured ones at the quantiles
    (Kolmogorov and Smirnov), and from which distance on they speak against it."""

    distribution: DelayDistribution
    distance: float
    limit: float

    @property
    def is_good(self) -> bool:
        return self.distance <= self.limit


def distribution_of_duration(row: Row, name: str) -> DelayDistribution | None:
    """The distribution of a measured duration, by its columns; None if it was never seen."""
    fit = fit_of_duration(row, name)
    return None if fit is None else fit.distribution


def fit_of_duration(row: Row, name: str) -> DurationFit | None:
    """The same with its distance from the quantiles. The simplest that fits is taken; through the quantiles fits."""
    count, mean_s = row[f"{name}_count"] or 0, row[f"{name}_mean_s"]
    if count == 0 or mean_s is None:
        return None
    least_s, most_s = max(0.0, row[f"{name}_min_ns"] / 1e9), max(0.0, row[f"{name}_max_ns"] / 1e9)
    scv, limit = row[f"{name}_scv"] or 0.0, _limit(count)
    if scv < CONSTANT_SCV or most_s <= least_s:
        return DurationFit(Deterministic(value=max(0.0, mean_s)), 0.0, limit)
    seen_s = np.maximum(np.array(row[f"{name}_quantiles_ns"], np.float64) / 1e9, 0.0)
    # The simplest first; the ends of a uniform distribution are a little beyond the extreme samples.
    beyond_s = (most_s - least_s) / max(1, count - 1)
    spread_s = math.sqrt(scv) * mean_s
    candidates: list[DelayDistribution] = [
        Exponential(scale=mean_s),
        Uniform(low=max(0.0, least_s - beyond_s), high=most_s + beyond_s),
        _gamma(mean_s, spread_s**2, least_s),
    ]
    for candidate in candidates:
        is_same = abs(candidate.mean() - mean_s) < 4.0 * spread_s / math.sqrt(count) + 0.01 * mean_s
        if is_same and (distance := _distance(candidate, seen_s)) <= limit:
            return DurationFit(candidate, distance, limit)
    followed = _through(np.array([0.0, *_probabilities(seen_s), 1.0]), np.array([least_s, *seen_s, most_s]), mean_s)
    return DurationFit(followed, _distance(followed, seen_s), limit)


def _limit(count: int) -> float:
    """The distance from which on quantiles of so many values speak against a distribution."""
    return ks_limit(count) + (SKETCH_ERROR if count > SKETCH_EXACT else 0.0)


def _probabilities(quantiles: FloatArray) -> tuple[float, ...]:
    if len(quantiles) != len(PROBABILITIES):
        raise InputError(
            f"profiles: a duration has {len(quantiles)} quantiles, and {len(PROBABILITIES)} are expected: they were "
            "made by another version; run `tidings pipeline run` again"
        )
    return PROBABILITIES


def _through(p: FloatArray, values: FloatArray, mean: float) -> DelayDistribution:
    """The distribution through quantiles: lines between them, and a step where those on both sides of two are equal, so
    that there are atoms. What quantiles do not say the mean does: where in between the steps are, and then how far the
    lines bend, each in its middle, by the same share of its height."""
    values = np.maximum.accumulate(values)
    is_flat = np.concatenate(([False], np.diff(values) == 0.0, [False]))  # before, between and after the values
    is_step = is_flat[:-2] & ~is_flat[1:-1] & is_flat[2:]
    width, height = np.diff(p), np.diff(values)
    missing = mean - float((width * (values[:-1] + np.where(is_step, 0.0, 0.5 * height))).sum())
    up = _share(missing, float((width * height)[is_step].sum()))
    missing -= up * float((width * height)[is_step].sum())
    bend = _share(
        missing + 0.25 * float((width * height)[~is_step].sum()), 0.5 * float((width * height)[~is_step].sum())
    )
    # Between two quantiles come two points: those of the step, or twice that where the line bends.
    inner_p = np.where(is_step, p[1:] - up * width, p[:-1] + 0.5 * width)
    low = np.where(is_step, values[:-1], values[:-1] + bend * height)
    points = np.concatenate((np.stack((p[:-1], inner_p, inner_p), 1).ravel(), p[-1:]))
    heights = np.concatenate((np.stack((values[:-1], low, np.where(is_step, values[1:], low)), 1).ravel(), values[-1:]))
    if (is_step | (height == 0.0)).all():
        weights = np.diff(points)
        is_held = weights > 0.0
        return Discrete(values=tuple(heights[:-1][is_held].tolist()), weights=tuple(weights[is_held].tolist()))
    grid = np.interp(np.linspace(0.0, 1.0, _EMPIRICAL_PIECES + 1), points, heights)
    off = mean - float(np.mean(0.5 * (grid[:-1] + grid[1:])))  # what a long tail has inside the last piece
    grid[-1] = min(max(grid[-1] + 2.0 * _EMPIRICAL_PIECES * off, grid[-2]), values[-1])
    return Empirical(quantiles=tuple(np.maximum.accumulate(grid).tolist()))


def _share(part: float, whole: float) -> float:
    """From 0 to 1; a half where there is nothing to share."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else 0.5


def _gamma(mean_s: float, variance_s2: float, least_s: float) -> ShiftedGamma:
    shift_s = min(least_s, 0.999 * mean_s)
    above_s = mean_s - shift_s
    return ShiftedGamma(shift=shift_s, shape=above_s**2 / variance_s2, scale=variance_s2 / above_s)


def _distance(distribution: DelayDistribution, seen_s: FloatArray) -> float:
    """How far the probabilities at the measured quantiles are from theirs; at an atom, from up to it to just below."""
    p = np.array(_probabilities(seen_s))
    above, below = np.asarray(distribution.cdf(seen_s)), np.asarray(distribution.cdf(np.nextafter(seen_s, -np.inf)))
    return float(np.maximum(np.maximum(p - above, below - p), 0.0).max())


def _home(row: Row) -> str:
    if not row["brokers"]:
        raise InputError(
            f"profiles: publisher {row['publisher']!r} has no home broker; profile a trace with publications"
        )
    return str(row["brokers"][-1])


def _broker(name: str, row: Row | None) -> BrokerKnowledge:
    if row is None:
        return BrokerKnowledge(name=name)
    distribution = distribution_of_duration(row, "service")
    has_service = distribution is not None and distribution.mean() > 0.0
    return BrokerKnowledge(name=name, service=distribution if has_service else None, observed=row["service_count"])


def _sampled_share(publishers: Sequence[Row]) -> float:
    """The share of the events that the trace has, by their sequence numbers: links were sent more than it shows."""
    had = sum(row["events"] for row in publishers)
    all_of_them = sum((row["rate_per_s"] or 0.0) * (row["last_ns"] - row["first_ns"]) / 1e9 + 1.0 for row in publishers)
    return min(had / all_of_them, 1.0) if had else 1.0


def _link(row: Row | None, source: int, target: int, share: float = 1.0) -> LinkKnowledge:
    nothing = Deterministic(value=0.0)
    if row is None or not row["delay_count"]:
        return LinkKnowledge(source=source, target=target, propagation=nothing)
    known: dict[str, Any] = {
        "source": source,
        "target": target,
        "loss": min(row["loss"] or 0.0, 1.0 - 1e-9),
        "observed": row["delay_count"],
    }
    delay = distribution_of_duration(row, "delay")
    assert delay is not None
    if not row["wait_max_ns"]:
        return LinkKnowledge(propagation=delay, **known)
    if row["slowness_mean_s_per_kb"] is not None and row["slowness_mean_s_per_kb"] > 0.0:
        mean, variance = row["slowness_mean_s_per_kb"], max(0.0, row["slowness_variance"] or 0.0)
        is_constant = variance < CONSTANT_SCV * mean**2
        slowness = Deterministic(value=mean) if is_constant else _gamma(mean, variance, 0.0)
        propagation = Deterministic(value=max(0.0, row["propagation_s"] or 0.0))
        return LinkKnowledge(propagation=propagation, slowness=slowness, **known)
    return _of_equal_sizes(row, delay, known, share)


def _doubt(row: Row | None, link: LinkKnowledge, size_kb: DelayDistribution | None) -> float | None:
    """How far the delays of a link that is known by size, slowness and propagation are from those measured; None if
    they are near enough, or follow the quantiles anyhow."""
    if row is None or link.slowness is None or size_kb is None or not row["delay_count"]:
        return None
    if not (row["slowness_mean_s_per_kb"] or 0.0) > 0.0:
        return None
    size, slowness = (
        distribution.quantile((np.arange(points) + 0.5) / points)
        for distribution, points in ((size_kb, _SIZES), (link.slowness, _SLOWNESSES))
    )
    delay_s = np.sort(np.outer(size, slowness).ravel()) + link.propagation.mean()
    seen_s = np.array(row["delay_quantiles_ns"], np.float64) / 1e9
    p = np.array(_probabilities(seen_s))
    below, above = (np.searchsorted(delay_s, seen_s, side=side) / len(delay_s) for side in ("left", "right"))
    distance = float(np.maximum(np.maximum(p - above, below - p), 0.0).max())
    return distance if distance > _limit(row["delay_count"]) + 1.0 / _SIZES else None


def _unfitting(doubts: Mapping[str, float | None]) -> tuple[Unmodelled, ...]:
    found = {name: distance for name, distance in doubts.items() if distance is not None}
    if not found:
        return ()
    worst = max(found, key=lambda name: found[name])
    return (
        Unmodelled(
            kind="fit",
            what=f"the shape of delays on {len(found):,} link{'s' if len(found) > 1 else ''}: size times slowness is "
            f"{found[worst]:.2f} off in probability on {worst}, more than its samples allow",
            effect="with a gamma distribution of the same mean and variance",
            remedy="compare `delay_quantiles_ns` of the profile `links` with it",
            links=tuple(found),
        ),
    )


def _of_equal_sizes(row: Row, delay: DelayDistribution, known: Mapping[str, Any], share: float) -> LinkKnowledge:
    """Equal sizes hide the slowness; with Poisson arrivals a wait of W needs t with rate t^2 / (2 (1 - rate t)) = W."""
    size_kb = row["bytes"] / max(1, row["delay_count"] + (row["lost"] or 0)) / 1000.0
    rate, wait_s = (row["transmissions_per_s"] or 0.0) / share, row["wait_mean_s"]
    turn_s = delay.mean() if rate <= 0.0 else -wait_s + math.sqrt(wait_s**2 + 2.0 * wait_s / rate)
    turn_s = min(turn_s, delay.mean())
    slowness = Deterministic(value=turn_s / size_kb)
    rest_s = delay.mean() - turn_s
    if rest_s <= 0.0 or delay.variance() <= 0.0:
        return LinkKnowledge(propagation=Deterministic(value=max(0.0, rest_s)), slowness=slowness, **known)
    return LinkKnowledge(propagation=_sooner(delay, turn_s), slowness=slowness, **known)


def _sooner(delay: DelayDistribution, by_s: float) -> DelayDistribution:
    """The distribution of the delay less a constant, and never below 0."""
    match delay:
        case Empirical(quantiles=values):
            return Empirical(quantiles=tuple(max(0.0, value - by_s) for value in values))
        case Discrete(values=values, weights=weights):
            return Discrete(values=tuple(max(0.0, value - by_s) for value in values), weights=weights)
        case ShiftedGamma(shift=shift, shape=shape, scale=scale) if shift >= by_s:
            return ShiftedGamma(shift=shift - by_s, shape=shape, scale=scale)
        case Uniform(low=low, high=high) if low >= by_s:
            return Uniform(low=low - by_s, high=high - by_s)
        case _:
            return _gamma(delay.mean() - by_s, delay.variance(), 0.0)


def _publisher(row: Row, lifetime: DelayDistribution | None, tree: Tree) -> PublisherKnowledge:
    name, rate = row["publisher"], row["rate_per_s"]
    if rate is None or rate <= 0.0:
        raise InputError(f"profiles: publisher {name!r} has no rate; it needs two events or more")
    return PublisherKnowledge(
        name=name,
        interval=_interval(row, rate),
        lifetime=lifetime,
        size_kb=_size(row),
        content=NO_CONTENT,
        tree=tree,
        observed=row["events"],
    )


def _interval(row: Row, rate_per_s: float) -> DelayDistribution:
    """Rate by sequence numbers, regularity by gaps."""
    distribution = distribution_of_duration(row, "gap")
    if distribution is None or distribution.mean() <= 0.0:
        return Exponential(scale=1.0 / rate_per_s)
    return scaled(distribution, 1.0 / (rate_per_s * distribution.mean()))


def _lifetimes(content: Sequence[Row]) -> dict[int | None, int]:
    known: dict[int | None, int] = {}
    for row in content:
        known[row["lifetime_ns"]] = known.get(row["lifetime_ns"], 0) + row["events"]
    return known


def lifetime_distribution(known: Mapping[int | None, int]) -> DelayDistribution | None:
    """The distribution of a publisher's lifetimes, from how many of its events have which one (None: no end)."""
    if set(known) <= {None}:
        return None
    values = np.array([ENDLESS_S if life is None else life / 1e9 for life in known])
    if len(values) == 1:
        return Deterministic(value=float(values[0]))
    order = np.argsort(values)
    edges = np.cumsum(np.array(list(known.values()))[order])
    places = np.searchsorted(edges, np.linspace(0.0, 1.0, _LIFETIME_STEPS) * edges[-1], side="left")
    return Empirical(quantiles=tuple(values[order][np.minimum(places, len(values) - 1)].tolist()))


def _sizes(publishers: Sequence[PublisherKnowledge]) -> DelayDistribution | None:
    """The sizes of events on any link, if they are the same for all publishers; else it depends on who sends there."""
    kinds = {publisher.size_kb for publisher in publishers}
    return kinds.pop() if len(kinds) == 1 else None


def _size(row: Row) -> DelayDistribution:
    mean_kb, low_kb, high_kb = (row[f"size_{name}_bytes"] / 1000.0 for name in ("mean", "min", "max"))
    is_even = abs(mean_kb - (low_kb + high_kb) / 2.0) < 0.02 * (high_kb - low_kb)
    return Uniform(low=low_kb, high=high_kb) if high_kb > low_kb and is_even else Deterministic(value=mean_kb)


def _signatures(content: Sequence[Row], subscriptions: Mapping[str, int]) -> Signatures:
    merged: dict[tuple[str, ...], int] = {}
    for row in content:
        key = tuple(row["subscriptions"] or ())
        merged[key] = merged.get(key, 0) + row["events"]
    total = sum(merged.values())
    kinds = [(names, count) for names, count in merged.items() if names]
    for names, _ in kinds:
        for name in names:
            if name not in subscriptions:
                raise InputError(
                    f"profiles: the content names subscription {name!r}, and the setting has none of this name"
                )
    return Signatures(
        weights=exact_shares(np.array([count / total for _, count in kinds])),
        offsets=np.cumsum([0, *(len(names) for names, _ in kinds)]).astype(np.int64),
        subscriptions=np.array([subscriptions[name] for names, _ in kinds for name in names], np.int32),
        sampled=total,
    )


def _slowness(row: Row | None, link: LinkKnowledge) -> float:
    """Of a link as routes go by it, seconds per kB: also where nobody ever waited, and so no queue is modelled."""
    if row is not None and (row["slowness_mean_s_per_kb"] or 0.0) > 0.0:
        return float(row["slowness_mean_s_per_kb"])
    return 0.0 if link.slowness is None else link.slowness.mean()


def _trees(
    names: Sequence[str], links: Sequence[LinkKnowledge], slowness_s_per_kb: FloatArray, roots: Sequence[int]
) -> tuple[Tree, ...]:
    """Only links that carried events: nothing is known of the others, except that no path used them.

    So each of those weighs more than all that were used.
    """
    is_used = np.array([bool(link.observed) for link in links], np.bool_)
    weights = np.where(is_used, slowness_s_per_kb, 1.0 + slowness_s_per_kb[is_used].sum())
    overlay = Overlay(
        brokers=tuple(names),
        source=np.array([link.source for link in links], np.int32),
        target=np.array([link.target for link in links], np.int32),
        slowness_mean_s_per_kb=weights,
        slowness_variance_s2_per_kb2=np.array([0.0 if k.slowness is None else k.slowness.variance() for k in links]),
        propagation_mean_s=np.array([link.propagation.mean() for link in links]),
    )
    return shortest_path_trees(overlay, roots, destinations=())
