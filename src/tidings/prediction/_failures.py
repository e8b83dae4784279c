"""Queueing and failures in one R': paper B's delays and paper D's outages, for each scheme and subscription.

    R'_s = sum over p of rate_p C_p(f_s) kept_p P[B + Q < allowed] / sum over p of rate_p C_p(f_s)

Q is the delay by queues and links (`predict`), B the delay that outages add: 0 or infinite for `periodic` and `bypass`,
with buffering a delay with a mass at 0 (`tidings.faults`). The two are taken as independent, so the chance is

    integral over q of P[B <= allowed - q] dP[Q <= q],

by the trapezoidal rule over a grid of q that is fine near 0, where delays are, and goes up to the deadline.

Left out: events delayed by a failure arrive in a burst, and queue; a detour has the delay of the tree path; events lost
at failures load nothing behind them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tidings.errors import ConfigurationError, InputError
from tidings.faults import SCHEMES, FaultGraph, FaultModel, Route, Scheme, SchemePredictor
from tidings.model.distributions import DelayDistribution, Deterministic
from tidings.model.failures import Failures
from tidings.prediction._knowledge import FloatArray, IntArray, Knowledge
from tidings.prediction._overheads import Overhead, Waiting, overhead_of
from tidings.prediction._prediction import Prediction
from tidings.prediction._stages import nodes_of
from tidings.prediction._unmodelled import Unmodelled, has_detours, has_queue, unmodelled_scheme

if TYPE_CHECKING:
    from tidings.model.scenario import Network

__all__ = ["Failing", "SchemePrediction", "failing_network", "predict_schemes"]

GRID = np.concatenate(([0.0], np.geomspace(1e-6, 0.1, 11), np.linspace(0.19, 1.0, 10)))
"""The points at which the delay by queues is computed, in shares of the deadline."""

_LIFETIME_PANELS = (0.0, 0.5, 0.9, 0.99, 1.0)
_LIFETIME_NODES = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Failing:
    """The failures of brokers and directed links, numbered as in the knowledge; links of one component fail together.

    `refresh_s`, `timeout_s` and `retry_s` are the intervals of the schemes; with durable tables a refresh only costs
    messages. `detection_s`, `acks_early` and `is_volatile` are further settings of a scenario
    (`tidings.model.scenario.Faults`), which predictions leave out and list as unmodelled.
    """

    brokers: tuple[Failures | None, ...]
    links: tuple[Failures | None, ...]
    components: tuple[int, ...]
    refresh_s: float = 0.0
    timeout_s: float = math.inf
    retry_s: float = 1.0
    detection_s: float = 0.0
    acks_early: bool = False
    is_volatile: bool = False
    has_durable_tables: bool = False

    def __post_init__(self) -> None:
        if all(each is None for each in (*self.brokers, *self.links)):
            raise InputError(
                "nothing fails here, so all schemes are equal: state how brokers or links fail, for example "
                '[brokers] failures = { availability = 0.99, period = "60000 s" } (docs/reference/scenarios.md)'
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class SchemePrediction:
    """One scheme: R' by subscription (NaN where no publisher can match it), its overhead, and what is left out."""

    scheme: Scheme
    model: FaultModel
    reliability: FloatArray
    overhead: Overhead
    unmodelled: tuple[Unmodelled, ...]


def failing_network(network: "Network") -> Failing:
    """The failures and intervals of a scenario."""
    faults = network.policies.faults
    return Failing(
        brokers=network.broker_failures,
        links=network.link_failures,
        components=network.link_components,
        refresh_s=faults.refresh_s,
        timeout_s=faults.timeout_s,
        retry_s=faults.retry_s,
        detection_s=faults.detection_s,
        acks_early=faults.ack == "early",
        is_volatile=faults.queues == "volatile",
        has_durable_tables=faults.has_durable_tables,
    )


def predict_schemes(
    prediction: Prediction,
    failing: Failing,
    *,
    schemes: Sequence[Scheme] = SCHEMES,
    model: FaultModel = "ours",
) -> dict[Scheme, SchemePrediction]:
    """R' of every subscription under each scheme; `prediction` has the delays by queues and links."""
    knowledge = prediction.knowledge
    for name, have, want in (
        ("brokers", len(failing.brokers), len(knowledge.brokers)),
        ("links", len(failing.links), len(knowledge.links)),
    ):
        if have != want:
            raise InputError(f"failures are given for {have} {name}, but the network has {want}")
    outages = _Outages(knowledge, failing, model)
    return {scheme: _predict_scheme(prediction, failing, outages, scheme, model) for scheme in schemes}


def _predict_scheme(
    prediction: Prediction, failing: Failing, outages: "_Outages", scheme: Scheme, model: FaultModel
) -> SchemePrediction:
    knowledge, layout = prediction.knowledge, prediction.layout
    count = len(knowledge.subscriptions)
    on_time, matched_per_s = np.zeros(count), np.zeros(count)
    kinds, kind_of = np.unique(
        np.stack([knowledge.homes.astype(np.float64), knowledge.max_delays_s]), axis=1, return_inverse=True
    )
    homes, max_delays_s = kinds[0].astype(np.int32), kinds[1]
    waiting = []
    for number, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        points_s, weights = _lifetimes(publisher.lifetime)
        rate = publisher.rate_per_s * masses
        matched_per_s[matched] += rate
        asked, place = np.unique(kind_of[matched], return_inverse=True)
        chance = np.zeros(len(asked))
        for point_s, weight in zip(points_s.tolist(), weights.tolist(), strict=True):
            allowed_s = np.minimum(max_delays_s[asked], point_s)
            chance += weight * _in_time(prediction, outages, scheme, number, homes[asked], allowed_s)
        on_time[matched] += rate * layout.kept[number][knowledge.homes[matched]] * chance[place]
        waiting.append(_waiting(outages, scheme, number, float(points_s @ weights)))
    with np.errstate(invalid="ignore", divide="ignore"):
        reliability = np.where(matched_per_s > 0.0, on_time / matched_per_s, np.nan)
    overhead = overhead_of(prediction, failing, scheme, waiting)
    return SchemePrediction(
        scheme=scheme,
        model=model,
        reliability=reliability,
        overhead=overhead,
        unmodelled=_unmodelled(prediction, failing, scheme),
    )


def _unmodelled(prediction: Prediction, failing: Failing, scheme: Scheme) -> tuple[Unmodelled, ...]:
    """The effects that `predict` leaves out except failures, and those that the scheme's prediction leaves out."""
    knowledge = prediction.knowledge
    lifetimes = [
        distribution.mean() for publisher in knowledge.publishers if (distribution := publisher.lifetime) is not None
    ]
    own = unmodelled_scheme(
        scheme,
        retry_s=failing.retry_s,
        detection_s=failing.detection_s,
        acks_early=failing.acks_early,
        is_volatile=failing.is_volatile,
        tightest_s=min([*lifetimes, *knowledge.max_delays_s.tolist()], default=math.inf),
        waits=any(k.service for k in knowledge.brokers) or any(has_queue(k.slowness) for k in knowledge.links),
        has_detours=has_detours([(k.source, k.target) for k in knowledge.links], len(knowledge.brokers)),
    )
    return (*(each for each in prediction.unmodelled if each.kind != "failures"), *own)


def _lifetimes(distribution: DelayDistribution | None) -> tuple[FloatArray, FloatArray]:
    if distribution is None:
        return np.array([math.inf]), np.ones(1)
    if isinstance(distribution, Deterministic):
        return np.array([distribution.value]), np.ones(1)
    return nodes_of(distribution, panels=_LIFETIME_PANELS, nodes=_LIFETIME_NODES)


def _in_time(
    prediction: Prediction, outages: "_Outages", scheme: Scheme, publisher: int, homes: IntArray, allowed_s: FloatArray
) -> FloatArray:
    """P[B + Q < allowed] for each pair of a broker and a deadline."""
    if "buffer" not in scheme:
        chance = prediction.delays.chances(publisher, homes, allowed_s)
        return np.asarray(chance * outages.arrivals(scheme, publisher, np.zeros(1))[0][homes])
    out = np.zeros(len(homes))
    for limit_s in np.unique(allowed_s).tolist():
        chosen = np.flatnonzero(allowed_s == limit_s)
        at = homes[chosen]
        if math.isinf(limit_s):
            by_outages = outages.arrivals(scheme, publisher, np.array([limit_s]))[0][at]
            out[chosen] = by_outages * prediction.delays.chances(publisher, at, np.full(len(at), limit_s))
            continue
        q = GRID * limit_s
        asked_s = np.tile(q[1:], len(at))
        queued = prediction.delays.chances(publisher, np.repeat(at, len(q) - 1), asked_s).reshape(len(at), -1)
        steps = np.diff(queued, axis=1, prepend=0.0)
        arrived = outages.arrivals(scheme, publisher, limit_s - q)[:, at]
        out[chosen] = (np.maximum(steps, 0.0).T * 0.5 * (arrived[1:] + arrived[:-1])).sum(axis=0)
    return out


def _waiting(outages: "_Outages", scheme: Scheme, publisher: int, lifetime_s: float) -> Waiting:
    """Over a lifetime: the chance that each broker gets an event, and how long the event is stored before."""
    steps = 16 if "buffer" in scheme and math.isfinite(lifetime_s) else 1
    times = np.linspace(0.0, lifetime_s, steps) if steps > 1 else np.array([lifetime_s])
    arrived = outages.arrivals(scheme, publisher, times)
    tree = outages.route(publisher)
    stored_s = np.zeros(len(tree.parent))
    if steps > 1:
        members = tree.order[1:]
        behind = np.maximum(arrived[:, tree.parent[members]] - arrived[:, members], 0.0)
        stored_s[members] = np.trapezoid(behind, times, axis=0)
    return Waiting(reached=arrived[-1], stored_s=stored_s, lifetime_s=lifetime_s)


class _Outages:
    """The chances of `tidings.faults` for each publisher's tree."""

    def __init__(self, knowledge: Knowledge, failing: Failing, model: FaultModel) -> None:
        self._knowledge, self._failing, self._model = knowledge, failing, model
        self._routes: dict[int, Route] = {}
        self._own: dict[int, SchemePredictor] = {}

    def arrivals(self, scheme: Scheme, publisher: int, times_s: FloatArray) -> FloatArray:
        """[time, broker]: the chance that an event has arrived, considering outages only."""
        predictor = self._predictor(publisher)
        if self._shared is None and "bypass" in scheme:
            raise ConfigurationError(
                "bypass is predicted only for links in both directions that fail together, but "
                f"{self._apart}: write failures.together = true and links in both directions, or simulate it"
            )
        if scheme == "static" and self._failing.has_durable_tables:
            scheme = "periodic"  # a subscription once issued is known for good
        return predictor.on_time(scheme, self.route(publisher), times_s)

    def route(self, publisher: int) -> Route:
        if publisher not in self._routes:
            tree = self._knowledge.publishers[publisher].tree
            self._routes[publisher] = Route.of(self._predictor(publisher).graph, tree.root, tree.parent.tolist())
        return self._routes[publisher]

    def _predictor(self, publisher: int) -> SchemePredictor:
        if self._shared is not None:
            return self._shared
        if publisher not in self._own:  # every tree separately: a link counts in the direction of its use
            tree = self._knowledge.publishers[publisher].tree
            links = [int(link) for link in tree.parent_link.tolist() if link >= 0]
            known = [self._knowledge.links[link] for link in links]
            ends = np.array([(link.source, link.target) for link in known], np.int64).reshape(-1, 2)
            self._own[publisher] = self._made(ends, tuple(self._failing.links[link] for link in links))
        return self._own[publisher]

    def _made(self, ends: Any, links: tuple[Failures | None, ...]) -> SchemePredictor:
        return SchemePredictor(
            graph=FaultGraph(brokers=self._failing.brokers, links=links, ends=ends),
            model=self._model,
            refresh_s=0.0 if self._failing.has_durable_tables else self._failing.refresh_s,
            timeout_s=self._failing.timeout_s,
        )

    @cached_property
    def _shared(self) -> SchemePredictor | None:
        """One graph for all publishers, if both directions of every connection are one component."""
        first: dict[tuple[int, int], int] = {}
        for number, link in enumerate(self._knowledge.links):
            first.setdefault((min(link.source, link.target), max(link.source, link.target)), number)
        if self._apart is not None:
            return None
        ends = np.array(list(first), np.int64).reshape(-1, 2)
        return self._made(ends, tuple(self._failing.links[number] for number in first.values()))

    @cached_property
    def _apart(self) -> str | None:
        links, components = self._knowledge.links, self._failing.components
        numbers = {(link.source, link.target): number for number, link in enumerate(links)}
        for number, link in enumerate(links):
            back = numbers.get((link.target, link.source))
            if back is None:
                return f"{self._knowledge.link_name(number)} has only one direction"
            if components[back] != components[number] and self._failing.links[number] is not None:
                return f"the directions of {self._knowledge.link_name(number)} fail separately"
        return None
