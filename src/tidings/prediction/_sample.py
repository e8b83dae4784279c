"""Where no formula is good enough, a sample: the event loop of the simulator, for as long as it takes to be sure.

The laws of this room are for queues that are first in, first out, fed by streams that are all but Poisson, and shed
nothing. Schedulers, shedding, order at receivers, failures, bursts and regular publishers depend on who waits beside
whom, and are cheaper to run than to describe: about EVENTS events say what a formula is .01 to .3 off.

- It is a run of the very network and its trees, under a seed of its own, so that no simulation is a part of it; the
  same network gives the same answer. Its events are the kinds that the prediction has matched already, drawn evenly.
- Of a filter that few events match, R is known better from what else came to its broker (`statistics.pooled_shares`).
- How sure it is, is told: the intervals are those of a simulation (`statistics.shares_of_batches`).
- Where bursts, constant intervals or failures leave it unsure, it is taken again, longer.
- It lasts for EVENTS events, and for DEADLINES of the longest deadlines after a warm-up of WARMUP of them, since what
  may wait for long decides over what comes meanwhile; where something fails also for CYCLES of the cycles that it takes
  a component to fail and to be repaired; but for no more than MOST_EVENTS events.
- Publishers of the same period keep their phases for ever, and a run is one draw of them. Where there are such, it is
  BATCHES shorter runs, and R is the mean over phases.
- Where events pile up without end and are forwarded whatever their age, nothing lasts: there is no sample, and the rule
  of the laws holds, by which nothing behind an overload is on time.
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
    Scheme,
    StrategyName,
)
from tidings.model.scenario import Network
from tidings.prediction._content import ContentMatcher
from tidings.prediction._failing import Failing
from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._measured import is_within_limits, network_of
from tidings.prediction._network import from_network
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Model, Prediction, Sample
from tidings.prediction._unmodelled import UnmodelledKind, unmodelled, unmodelled_policies
from tidings.simulation import Kinds, Options, simulate
from tidings.statistics import BATCHES, ReliabilityInterval, pooled_shares, ratio, reliability_intervals

__all__ = ["predict_measured", "predict_network", "sampled_or_lawful", "take_sample"]

EVENTS: Final = 12_000
MOST_EVENTS: Final = 150_000
DEADLINES: Final = 20.0
WARMUP: Final = 3.0
CYCLES: Final = 30.0
LEAST_WARMUP: Final = 0.05
FEW_ROUNDS: Final = 2
"""Of the search for load and delays that fit each other, where R is not taken from them."""
UNSURE: Final = 0.03
SURE: Final = 0.02
"""Mean half widths of the intervals: above the first there is a longer run, meant to reach the second."""
SLOW: Final = frozenset[UnmodelledKind]({"bursts", "regularity", "failures"})
"""What queues forget slowly. Elsewhere intervals are wide because filters are rare, and longer runs cost too much."""
MOST_MATCHES: Final = 10_000_000
"""Of kinds of events and subscriptions, which are held for a sample; where there are more, events are drawn."""
_PURPOSE: Final = 0x5A3D1E


def predict_network(
    network: Network, *, model: Model = "ours", alpha: float = 1.0, matcher: ContentMatcher | None = None
) -> Prediction:
    """Who gets what share of its events on time: by laws where they are good, by a sample elsewhere.

    `model` may be one of the paper's, which has no samples; nor has content that is known only to a power `alpha`.
    """
    if model != "ours" or alpha != 1.0:
        return predict(from_network(network, alpha=alpha, matcher=matcher), model=model)
    if _has_own_trees(network):
        policies = msgspec.structs.replace(network.policies, routing=DEFAULT_ROUTING)
        knowledge = from_network(msgspec.structs.replace(network, policies=policies), matcher=matcher)
        return _predicted(network, replace(knowledge, unmodelled=unmodelled(network)))
    return _predicted(network, from_network(network, matcher=matcher))


def _has_own_trees(network: Network) -> bool:
    """Whether events take trees that formulas do not know."""
    return network.policies.routing not in ("single-path", "balanced")


def predict_measured(
    knowledge: Knowledge,
    failing: Failing | None = None,
    *,
    strategy: StrategyName = DEFAULT_STRATEGY,
    scheme: Scheme = DEFAULT_SCHEME,
    seed: int = 0,
) -> Prediction:
    """The same from profiles (`from_profiles`), with the policies that were in force, which these do not tell.

    By laws alone, as if links sent first in, first out, where events match in too many ways for a sample.
    """
    if not is_within_limits(knowledge):
        return predict(knowledge)
    network = network_of(knowledge, failing, strategy=strategy, scheme=scheme, seed=seed)
    kept = [each for each in knowledge.unmodelled if each.kind == "fit"]
    untold = unmodelled_policies(network)
    return _predicted(network, replace(knowledge, unmodelled=(untold, *unmodelled(network), *kept)))


def _predicted(network: Network, knowledge: Knowledge) -> Prediction:
    answer = predict(knowledge, rounds=FEW_ROUNDS)
    if answer.needs_sample:
        return replace(answer, sample=take_sample(network, answer))
    return answer if answer.has_converged else predict(knowledge)


def take_sample(network: Network, answer: Prediction) -> Sample:
    """A run of the network along the trees of a prediction by laws; or several, where publishers are regular. A second,
    longer one, if the first is not sure enough."""
    runs = BATCHES if "regularity" in answer.left_out_by_laws else 1
    lengths_s = _lengths(network, runs, EVENTS)
    first = _sampled(network, answer, runs, *lengths_s)
    unsure = first.mean_half_width
    if unsure is None or unsure <= UNSURE or not SLOW & set(answer.left_out_by_laws):
        return first
    # Half the width takes four times as many events.
    longer_s = _lengths(network, runs, first.events * (unsure / SURE) ** 2)
    return first if longer_s[1] <= lengths_s[1] else _sampled(network, answer, runs, *longer_s)


def _sampled(network: Network, answer: Prediction, runs: int, warmup_s: float, counted_s: float) -> Sample:
    options = Options()  # whoever moves has other trees, and other matches of its samples
    if network.policies.relocation.name == DEFAULT_RELOCATION and not _has_own_trees(network):
        options = Options(
            trees=[publisher.tree for publisher in answer.knowledge.publishers], kinds=_kinds(network, answer.knowledge)
        )
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
    busy = [[*result.brokers.values(), *result.links.values()] for result in results]
    return Sample(
        events=sum(result.published for result in results),
        duration_s=runs * counted_s,
        reliability=sampled_or_lawful(reliability, answer.by_law),
        intervals=tuple(intervals),
        utilisation=np.mean(busy, axis=0),
    )


def _pooled(
    share: FloatArray, intervals: list[ReliabilityInterval | None], matched: FloatArray, answer: Prediction
) -> tuple[FloatArray, list[ReliabilityInterval | None]]:
    """R of rare filters with the help of what else came to their brokers, by how far laws are off there."""
    effective = np.array([0.0 if each is None else each.effective_events for each in intervals])
    found = pooled_shares(share, matched.sum(axis=0), effective, answer.by_law, answer.knowledge.homes)
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
    """The kinds of events that the prediction knows, so that none is drawn and matched again; None if something depends
    on what they say, or on who is there, or if there are too many."""
    contents = [publisher.content for publisher in knowledge.publishers]
    depends = any(each.lifetime_by is not None or each.size_by is not None for each in network.publishers)
    comes_and_goes = any(subscriber.churn is not None for subscriber in network.subscribers)
    if depends or comes_and_goes or sum(len(content.subscriptions) for content in contents) > MOST_MATCHES:
        return None
    return [(content.weights, content.offsets, content.subscriptions) for content in contents]


def _lengths(network: Network, runs: int, events: float) -> tuple[float, float]:
    """How long to warm up in each run, and how long to count for so many events."""
    rate_per_s = runs * sum(publisher.rate_per_s for publisher in network.publishers)
    deadlines_s = [each.lifetime.mean() for each in network.publishers if each.lifetime is not None]
    deadlines_s += [each.max_delay_s for each in network.subscriptions if each.max_delay_s is not None]
    longest_s = max(deadlines_s, default=0.0)
    failing = [each for each in (*network.broker_failures, *network.link_failures) if each is not None]
    cycles_s = [each.up.mean() + each.down.mean() for each in failing]
    wanted_s = max(DEADLINES * longest_s, CYCLES * float(np.median(cycles_s)) if cycles_s else 0.0, events / rate_per_s)
    counted_s = min(wanted_s, MOST_EVENTS / rate_per_s)
    return min(max(WARMUP * longest_s, LEAST_WARMUP * counted_s), counted_s), counted_s


def sampled_or_lawful(sampled: FloatArray, by_law: FloatArray) -> FloatArray:
    """What was sampled; a subscription that is so rare that no event of the sample matched it keeps what laws say."""
    return np.where(np.isnan(sampled), by_law, sampled)
