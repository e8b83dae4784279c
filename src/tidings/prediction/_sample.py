"""Samples: where formulas are not accurate enough, a short run of the simulator's event loop.

The formulas of this package are for first-in-first-out queues with nearly Poisson arrivals and no shedding.
Strategies, shedding, ordering at receivers, failures, bursts and regular publishers depend on which events wait
together, and are cheaper to run than to describe: formulas are off by .01 to .3, about EVENTS events are enough.

- A sample runs the network itself along the predicted trees, under its own seed, so it is independent of every
  simulation; the same network gives the same result. Its events are the kinds that the prediction has already matched,
  drawn evenly.
- R of a filter that few events match is estimated with the help of the other events at its broker
  (`statistics.pooled_shares`).
- Its uncertainty is stated: the intervals are those of a simulation (`statistics.shares_of_batches`).
- Where bursts, constant intervals or failures leave wide intervals, a longer sample follows.
- It lasts for EVENTS events, and for DEADLINES times the longest deadline after a warm-up of WARMUP times that, since
  events that may wait long affect all that arrive meanwhile; with failures also for CYCLES cycles of failure and
  repair; but for at most MOST_EVENTS events.
- Publishers with equal periods keep their phases for ever, and a run is one draw of them. With such publishers the
  sample consists of BATCHES shorter runs, and R is the mean over phases.
- Where queues grow without end and events are forwarded at any age, there is no steady state and no sample: by formulas
  nothing behind an overload is on time.
"""

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from tidings.model.policies import (
    DEFAULT_RELOCATION,
    DEFAULT_ROUTING,
    DEFAULT_SCHEME,
    DEFAULT_STRATEGY,
    ONE_TREE,
    Scheme,
    StrategyName,
)
from tidings.model.scenario import Network
from tidings.prediction._content import ContentMatcher
from tidings.prediction._failures import Failing
from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._measured import is_within_limits, network_of
from tidings.prediction._network import from_network
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Model, Prediction, Sample
from tidings.prediction._unmodelled import UnmodelledKind, unmodelled, unmodelled_policies
from tidings.simulation import Kinds, Options, simulate
from tidings.statistics import BATCHES, ReliabilityInterval, pooled_shares, ratio, reliability_intervals

__all__ = ["predict_measured", "predict_network", "sampled_or_formula", "take_sample"]

EVENTS: Final = 12_000
MOST_EVENTS: Final = 150_000
DEADLINES: Final = 20.0
WARMUP: Final = 3.0
CYCLES: Final = 30.0
LEAST_WARMUP: Final = 0.05
FEW_ROUNDS: Final = 2
"""Bound on the search for consistent load and delays where R is taken from a sample."""
UNSURE: Final = 0.03
SURE: Final = 0.02
"""Mean half widths of the intervals: above the first a longer run follows, which aims at the second."""
SLOW: Final = frozenset[UnmodelledKind]({"bursts", "regularity", "failures"})
"""Effects with long memory. For others, intervals are wide because matches are rare, and longer runs cost too much."""
MOST_MATCHES: Final = 10_000_000
"""Pairs of event kinds and subscriptions that a sample may hold; beyond it, events are drawn."""
_PURPOSE: Final = 0x5A3D1E


def predict_network(
    network: Network, *, model: Model = "ours", alpha: float = 1.0, matcher: ContentMatcher | None = None
) -> Prediction:
    """Predict the on-time share of every subscriber: by formulas where they are accurate, by a sample elsewhere.

    The paper's models (`model`) and imprecise content (`alpha`) have no samples.
    """
    if model != "ours" or alpha != 1.0:
        return predict(from_network(network, alpha=alpha, matcher=matcher), model=model)
    if _has_own_trees(network):
        policies = msgspec.structs.replace(network.policies, routing=DEFAULT_ROUTING)
        knowledge = from_network(msgspec.structs.replace(network, policies=policies), matcher=matcher)
        return _predicted(network, replace(knowledge, unmodelled=unmodelled(network)))
    return _predicted(network, from_network(network, matcher=matcher))


def _has_own_trees(network: Network) -> bool:
    """Whether events take trees that formulas do not cover."""
    return network.policies.routing not in ONE_TREE


def predict_measured(
    knowledge: Knowledge,
    failing: Failing | None = None,
    *,
    strategy: StrategyName = DEFAULT_STRATEGY,
    scheme: Scheme = DEFAULT_SCHEME,
    seed: int = 0,
) -> Prediction:
    """The same from profiles (`from_profiles`), with the policies in use, which profiles do not record.

    By formulas alone, as if links sent first in, first out, where there are too many match signatures for a sample.
    """
    if not is_within_limits(knowledge):
        return predict(knowledge)
    network = network_of(knowledge, failing, strategy=strategy, scheme=scheme, seed=seed)
    kept = [each for each in knowledge.unmodelled if each.kind == "fit"]
    unstated = unmodelled_policies(network)
    return _predicted(network, replace(knowledge, unmodelled=(unstated, *unmodelled(network), *kept)))


def _predicted(network: Network, knowledge: Knowledge) -> Prediction:
    answer = predict(knowledge, rounds=FEW_ROUNDS)
    if answer.needs_sample:
        return replace(answer, sample=take_sample(network, answer))
    return answer if answer.has_converged else predict(knowledge)


def take_sample(network: Network, answer: Prediction) -> Sample:
    """A run of the network along the predicted trees, or several if publishers are regular; a second, longer one if the
    intervals are too wide."""
    runs = BATCHES if "regularity" in answer.left_out_by_formulas else 1
    lengths_s = _lengths(network, runs, EVENTS)
    first = _sampled(network, answer, runs, *lengths_s)
    unsure = first.mean_half_width
    if unsure is None or unsure <= UNSURE or not SLOW & set(answer.left_out_by_formulas):
        return first
    # Half the width takes four times as many events.
    longer_s = _lengths(network, runs, first.events * (unsure / SURE) ** 2)
    return first if longer_s[1] <= lengths_s[1] else _sampled(network, answer, runs, *longer_s)


def _sampled(network: Network, answer: Prediction, runs: int, warmup_s: float, counted_s: float) -> Sample:
    options = Options()  # publishers that move have other trees, and other matches of their samples
    if network.policies.relocation.name == DEFAULT_RELOCATION and not _has_own_trees(network):
        trees = [publisher.tree for publisher in answer.knowledge.publishers]
        is_distant = any(subscriber.access is not None for subscriber in network.subscribers)
        # the predicted trees end before the access links of subscribers
        options = Options(trees=None if is_distant else trees, kinds=_kinds(network, answer.knowledge))
    results = [
        simulate(
            msgspec.structs.replace(network, seed=int(seed), duration_s=warmup_s + counted_s, warmup_s=warmup_s),
            options,
        )
        for seed in np.random.SeedSequence([network.seed, _PURPOSE]).generate_state(runs)
    ]
    matched, on_time = (
        np.array([[getattr(row, name) for row in result.subscribers.values()] for result in results])
        for name in ("matched", "on_time")
    )
    intervals = [row.interval for row in results[0].subscribers.values()]
    if runs > 1:
        intervals = reliability_intervals(on_time, matched)
    reliability, intervals = _pooled(ratio(on_time.sum(axis=0), matched.sum(axis=0)), intervals, matched, answer)
    links = len(network.topology.links)  # after which those to subscribers come
    busy = [[*result.brokers.values(), *list(result.links.values())[:links]] for result in results]
    return Sample(
        events=sum(result.published for result in results),
        duration_s=runs * counted_s,
        reliability=sampled_or_formula(reliability, answer.by_formulas),
        intervals=tuple(intervals),
        utilisation=np.mean(busy, axis=0),
    )


def _pooled(
    share: FloatArray, intervals: list[ReliabilityInterval | None], matched: FloatArray, answer: Prediction
) -> tuple[FloatArray, list[ReliabilityInterval | None]]:
    """R of rare filters, pooled with other subscriptions at their brokers by the error of the formulas there."""
    effective = np.array([0.0 if each is None else each.effective_events for each in intervals])
    found = pooled_shares(share, matched.sum(axis=0), effective, answer.by_formulas, answer.knowledge.homes)
    pooled = list(intervals)
    for row in np.flatnonzero(found.is_pooled).tolist():
        centre, half = float(found.share[row]), float(found.half_width[row])
        pooled[row] = ReliabilityInterval(
            low=max(0.0, centre - half),
            high=min(1.0, centre + half),
            effective_events=float(found.effective[row]),
            is_rough=False,
        )
    return found.share, pooled


def _kinds(network: Network, knowledge: Knowledge) -> list[Kinds] | None:
    """The kinds of events that the prediction knows, so that none is matched again; None if anything depends on content
    or on present subscribers, or if there are too many."""
    contents = [publisher.content for publisher in knowledge.publishers]
    depends = any(each.lifetime_by is not None or each.size_by is not None for each in network.publishers)
    comes_and_goes = any(subscriber.churn is not None for subscriber in network.subscribers)
    if depends or comes_and_goes or sum(len(content.subscriptions) for content in contents) > MOST_MATCHES:
        return None
    return [(content.weights, content.offsets, content.subscriptions) for content in contents]


def _lengths(network: Network, runs: int, events: float) -> tuple[float, float]:
    """The warm-up of each run, and the time to count this many events."""
    rate_per_s = runs * sum(publisher.rate_per_s for publisher in network.publishers)
    deadlines_s = [each.lifetime.mean() for each in network.publishers if each.lifetime is not None]
    deadlines_s += [each.max_delay_s for each in network.subscriptions if each.max_delay_s is not None]
    longest_s = max(deadlines_s, default=0.0)
    failing = [each for each in (*network.broker_failures, *network.link_failures) if each is not None]
    cycles_s = [each.up.mean() + each.down.mean() for each in failing]
    wanted_s = max(DEADLINES * longest_s, CYCLES * float(np.median(cycles_s)) if cycles_s else 0.0, events / rate_per_s)
    counted_s = min(wanted_s, MOST_EVENTS / rate_per_s)
    return min(max(WARMUP * longest_s, LEAST_WARMUP * counted_s), counted_s), counted_s


def sampled_or_formula(sampled: FloatArray, by_formulas: FloatArray) -> FloatArray:
    """The sampled shares; a subscription without a match in the sample keeps its share by formulas."""
    return np.where(np.isnan(sampled), by_formulas, sampled)
