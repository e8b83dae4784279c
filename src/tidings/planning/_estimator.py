"""R of every subscription of a network: predicted where the model covers it, simulated where it does not.

The prediction covers first-in-first-out queues, one path for each publisher and subscriber, and every fault-tolerance
scheme. It does not cover other strategies at links with queues, several paths, receivers that hold events to order
them, or the effect on queues of events delayed by a failure. `gap` names what is missing, and such networks are
simulated.

Differences are more accurate than values: `difference` uses the same method for both networks, and both simulations see
the same events (the same seed), so model error and most of the noise cancel.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.policies import DEFAULT_RELOCATION, ONE_TREE, policy
from tidings.model.scenario import Network, Scheduling, Scheme
from tidings.prediction import (
    ContentMatcher,
    Prediction,
    Unmodelled,
    UnmodelledKind,
    failing_network,
    from_network,
    predict,
    predict_schemes,
    unmodelled,
)
from tidings.simulation import Result, simulate

__all__ = ["EVENTS_MAX", "Estimator", "Means", "Report", "gap", "has_queues", "shares", "without_failures"]

EVENTS_MAX: Final = 40_000
"""Publications of a simulation that replaces a prediction."""

EVENTS_PER_PREDICTION: Final = 4_000
"""Publications whose simulation takes about as long as a prediction."""

POLICIES: Final[tuple[UnmodelledKind, ...]] = ("routing", "ordering", "scheduling")
RECOVERY: Final[tuple[UnmodelledKind, ...]] = ("backlogs", "retries", "acknowledgements", "storage", "detection")
"""Effects that predictions leave out and that matter too much: such networks are simulated. Recovery from failures is
included only where the simulator models it: acknowledgements need a link back."""

Means = Literal["predicted", "simulated"]
FloatArray = NDArray[np.float64]
Report = Callable[[str], None]


def has_queues(network: Network) -> bool:
    """Whether events wait for links; if not, all strategies are the same."""
    return any(link.slowness is not None and link.slowness.mean() > 0.0 for link in network.topology.links)


def gap(network: Network) -> str | None:
    """The effect that forces a simulation because formulas do not cover it; None if they cover the network."""
    for left_out in unmodelled(network, scheme=network.policies.faults.scheme):
        if left_out.kind in POLICIES or (left_out.kind in RECOVERY and _leads_back(network)):
            return left_out.what
    if network.has_failures and network.policies.faults.is_bypassing and not _fails_both_ways(network):
        return "detours where the two directions of a link fail separately, or one is missing"
    return None


def without_failures(network: Network) -> Network:
    """The same network without failures."""
    return msgspec.structs.replace(network, broker_failures=(), link_failures=(), link_components=())


class _Known(NamedTuple):
    reliability: FloatArray
    overload: float
    unmodelled: tuple[Unmodelled, ...]


class Estimator:
    """Estimates for networks that share the filters and publishers' content of the first one."""

    def __init__(self, network: Network, *, events_max: int = EVENTS_MAX, report: Report | None = None) -> None:
        relocation = network.policies.relocation.name
        if relocation != DEFAULT_RELOCATION:
            raise ConfigurationError(
                f'relocation "{relocation}": {policy("relocation", relocation).missing["planner"]}; write relocation = '
                '"off" in [policies]'
            )
        self._matcher = ContentMatcher([each.filter for each in network.subscriptions], seed=network.seed)
        self._events_max = events_max
        self._report = report or (lambda _: None)
        self._predicted: dict[bytes, _Known] = {}
        self._simulated: dict[bytes, FloatArray] = {}
        self.predictions = self.simulations = 0

    def reliability(self, network: Network) -> tuple[FloatArray, Means]:
        """R by subscription (NaN: no publisher can match it, or none did), and the method used."""
        if gap(network) is None:
            return self.predicted(network), "predicted"
        return self.simulated(network), "simulated"

    def difference(self, before: Network, after: Network) -> tuple[FloatArray, Means]:
        """The change of R from one network to the other, both by the same method."""
        if gap(before) is None and gap(after) is None:
            return self.predicted(after) - self.predicted(before), "predicted"
        return self.simulated(after) - self.simulated(before), "simulated"

    def predicted(self, network: Network) -> FloatArray:
        """R by the model: links first in, first out, one path, whatever the policies."""
        return self._known(network).reliability

    def left_out(self, network: Network) -> tuple[Unmodelled, ...]:
        """The effects that `reliability` leaves out; a simulation leaves out none."""
        return self._known(network).unmodelled if gap(network) is None else ()

    def overload(self, network: Network) -> float:
        """The load above 1 of brokers and links, added up; 0 if none is overloaded."""
        return self._known(network).overload

    def prediction(self, network: Network) -> Prediction:
        """The prediction of the queues, without failures."""
        self.predictions += 1
        with np.errstate(all="ignore"):  # shares are 0 / 0 where almost nothing passes a link that sheds
            return predict(from_network(_as_modelled(network), matcher=self._matcher))

    def simulated(self, network: Network) -> FloatArray:
        """R in a run of at most `events_max` events, with the network's own seed."""
        key = _key(network)
        if key not in self._simulated:
            self.simulations += 1
            self._report(f"simulating ({self.simulations})")
            self._simulated[key] = shares(simulate(self._shortened(network)))
        return self._simulated[key]

    def _known(self, network: Network) -> "_Known":
        modelled = _as_modelled(network)
        key = _key(modelled)
        if key not in self._predicted:
            prediction = self.prediction(modelled)
            overload = float(np.maximum(0.0, prediction.stations.utilisation - 1.0).sum())
            found, left_out = _with_failures(prediction, modelled)
            reliability = np.where(prediction.matched_per_s > 0.0, np.nan_to_num(found), np.nan)
            self._predicted[key] = _Known(reliability, overload, left_out)
        return self._predicted[key]

    def work(self, network: Network) -> int:
        """The approximate cost of an estimate of this network, in predictions."""
        if gap(network) is None:
            return 1
        rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
        return 1 + round(rate_per_s * self._shortened(network).duration_s / EVENTS_PER_PREDICTION)

    def _shortened(self, network: Network) -> Network:
        rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
        if rate_per_s <= 0.0:
            raise ConfigurationError(
                "the network has no publishers, so there is nothing to estimate; add [[publishers]]"
            )
        enough_s = network.warmup_s + self._events_max / rate_per_s
        return msgspec.structs.replace(network, duration_s=min(network.duration_s, enough_s))


def shares(result: Result) -> FloatArray:
    """R by subscription in a run, NaN where nothing matched."""
    found = (each.on_time_reliability for each in result.subscribers.values())
    return np.array([np.nan if share is None else share for share in found], np.float64)


def _first_in_first_out(network: Network) -> Network:
    """The same network with first-in-first-out links and receivers that deliver events as they arrive."""
    policies = msgspec.structs.replace(network.policies, scheduling=Scheduling(name="fifo"), ordering=None)
    return msgspec.structs.replace(network, policies=policies)


def _as_modelled(network: Network) -> Network:
    """The nearest network that the model covers: first in, first out, events delivered as they arrive, one path, and no
    detours where the model does not cover them."""
    replace = msgspec.structs.replace
    policies = _first_in_first_out(network).policies
    if policies.routing not in ONE_TREE:
        policies = replace(policies, routing="balanced" if policies.routing == "spread" else "single-path")
    if network.has_failures and policies.faults.is_bypassing and not _fails_both_ways(network):
        plain: Scheme = "buffer" if policies.faults.is_buffering else "periodic"
        policies = replace(policies, faults=replace(policies.faults, scheme=plain))
    return replace(network, policies=policies)


def _with_failures(prediction: Prediction, network: Network) -> tuple[FloatArray, tuple[Unmodelled, ...]]:
    if not network.has_failures:
        return prediction.reliability, prediction.unmodelled
    scheme = network.policies.faults.scheme
    found = predict_schemes(prediction, failing_network(network), schemes=(scheme,))[scheme]
    return found.reliability, found.unmodelled


def _key(network: Network) -> bytes:
    """Equal for networks with equal estimates; filters and content are those of the estimator."""
    parts = (
        network.topology,
        [(publisher.broker, publisher.lifetime) for publisher in network.publishers],
        [subscription.max_delay_s for subscription in network.subscriptions],
        network.policies,
        network.broker_failures,
        network.link_failures,
        (network.seed, network.duration_s, network.warmup_s),
    )
    return msgspec.json.encode(parts)


def _leads_back(network: Network) -> bool:
    """Whether every link has one in the other direction."""
    ends = {(link.source, link.target) for link in network.topology.links}
    return all((target, source) in ends for source, target in ends)


def _fails_both_ways(network: Network) -> bool:
    """Whether every link has a reverse link that fails together with it, as predictions of detours need."""
    links = network.topology.links
    numbers = {(link.source, link.target): number for number, link in enumerate(links)}
    for number, link in enumerate(links):
        back = numbers.get((link.target, link.source))
        if back is None:
            return False
        if (
            network.link_failures[number] is not None
            and network.link_components[back] != network.link_components[number]
        ):
            return False
    return True
