"""From a network and an objective to a plan: search, verify by simulation, and go on if the simulation disagrees.

1. Estimate R as it is. The search is for networks in which R is above the objective by a margin (`Objective.needed`),
   so that a single fresh run of the scenario's own length meets it too, not only the long run.
2. Search the cheapest set of changes (`tidings.planning._search`).
3. Simulate the changed network under seeds that nothing has seen. If a run misses the objective, or runs differ so much
   that the next one may, the set is left out, estimates of the like have to be as much better as that one was too
   good, and the search goes on.
4. If there is no such set, all is done again without the margin, and the plan says so.
5. If there is none either, the plan has no changes but obstacles: what stands in the way, and what would be needed.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network
from tidings.planning._candidates import Candidates, best_moves, candidates, shortlist
from tidings.planning._changes import KINDS, Change, Kind, apply
from tidings.planning._costs import Costs
from tidings.planning._estimating import EVENTS_MAX, Estimator, Means, gap
from tidings.planning._objective import RUNS, Objective, Verification, verify
from tidings.planning._obstacles import Obstacle, obstacles
from tidings.planning._search import ESTIMATES_MAX, Found, Judge, search
from tidings.prediction import Unmodelled

__all__ = ["USUAL_KINDS", "Plan", "Planned", "plan"]

REJECTED_MAX: Final = 6
"""Sets that simulations may contradict before the search is given up."""

HOPELESS: Final = 0.05
"""What is missing of R, added up over the subscriptions, with everything done that helps, from which on a greedy search
would run into nothing. Less may be the model's error."""

USUAL_KINDS: Final[tuple[Kind, ...]] = ("scheduling", "scheme", "move", "capacity")
"""What a plan is made of unless told otherwise: users are not asked for patience."""

FloatArray = NDArray[np.float64]
Set = tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One change of a plan, and what it costs."""

    change: Change
    cost: float

    @property
    def words(self) -> str:
        return self.change.words


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What to change, or why nothing helps.

    `now` and `then` are R by subscription as estimated, before and after (`now_means` and `means` say how);
    `unpredicted` is why `then` had to be simulated, `unmodelled` what a prediction of it leaves out. `network` is the
    network with the changes made.
    `verification` is None if nothing was found, or nothing could be simulated. `has_margin` says whether R is so far
    above the objective that a single run is not expected to miss it; `at_least` is what any set of the candidates costs
    whose estimate meets the objective, `is_cheapest` whether this one costs no more. `rejected` are sets that looked
    good until they were simulated.
    """

    objective: Objective
    subscribers: tuple[str, ...]
    is_possible: bool
    changes: tuple[Planned, ...]
    cost: float
    network: Network
    now: FloatArray
    now_means: Means
    then: FloatArray
    means: Means
    unpredicted: str | None
    unmodelled: tuple[Unmodelled, ...]
    has_margin: bool
    at_least: float
    verification: Verification | None
    rejected: tuple[Set, ...]
    obstacles: tuple[Obstacle, ...]
    predictions: int
    simulations: int

    @property
    def is_cheapest(self) -> bool:
        return self.is_possible and self.cost <= self.at_least + 1e-9


def plan(
    network: Network,
    objective: Objective,
    *,
    costs: Costs | None = None,
    allowed: Collection[Kind] = USUAL_KINDS,
    runs: int = RUNS,
    events_max: int = EVENTS_MAX,
    estimates_max: int = ESTIMATES_MAX,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """The cheapest changes found with which the network meets the objective, verified by `runs` simulations (0: none).

    `allowed` are the kinds of changes that may be made, `events_max` and `estimates_max` bound the search, and `say` is
    told what goes on.
    """
    _check(network, allowed)
    return _Planner(network, objective, costs or Costs(), allowed, runs, events_max, estimates_max, say).plan()


def _check(network: Network, allowed: Collection[Kind]) -> None:
    for kind in allowed:
        if kind not in KINDS:
            raise ConfigurationError(f"there is no kind of change {kind!r}; there are {', '.join(KINDS)}")
    if not network.publishers:
        raise ConfigurationError("the network has no publishers: there is nothing to be on time")
    if not network.subscriptions:
        raise ConfigurationError("the network has no subscribers: there is nobody to be on time for")


class _Planner:
    def __init__(
        self,
        network: Network,
        objective: Objective,
        costs: Costs,
        allowed: Collection[Kind],
        runs: int,
        events_max: int,
        estimates_max: int,
        say: Callable[[str], None] | None,
    ) -> None:
        self._network, self._objective, self._costs, self._allowed = network, objective, costs, allowed
        self._runs, self._estimates_max = runs, estimates_max
        self._say = say or (lambda _: None)
        self._estimator = Estimator(network, events_max=events_max)
        self._rejected: list[Set] = []
        self._at_least = math.inf  # by the first estimate; simulations may have made the judge stricter since

    def plan(self) -> Plan:
        self._say("estimating the network as it is")
        self._now, self._now_means = self._estimator.reliability(self._network)
        if np.isnan(self._now).all():
            raise ConfigurationError("no publisher's events match any subscription: there is nothing to be on time")
        prediction = self._estimator.prediction(self._network)
        moves = "move" in self._allowed and len(self._network.topology.brokers) > 1
        self._places = shortlist(self._network, prediction) if moves else {}
        matched = prediction.matched_per_s * (self._network.duration_s - self._network.warmup_s)
        with_margin = self._objective.needed(matched)
        without = np.full(len(matched), self._objective.reliability)
        for needed, has_margin in ((with_margin, True), (without, False)):
            judge = Judge(network=self._network, objective=self._objective, needed=needed, estimator=self._estimator)
            found = self._verified(judge, has_margin=has_margin)
            if found is not None:
                return self._made(*found, has_margin=has_margin)
        return self._impossible(judge)

    def _verified(self, judge: Judge, *, has_margin: bool) -> tuple[Found, Verification | None] | None:
        """The cheapest set that a simulation does not contradict."""
        for _ in range(REJECTED_MAX):
            found = self._searched(judge)
            if found is None:
                return None
            self._at_least = min(self._at_least, found.at_least)
            if self._runs == 0:
                return found, None
            shown = verify(apply(self._network, found.changes), self._objective, runs=self._runs, say=self._say)
            if shown.is_met if has_margin else shown.is_met_together:
                return found, shown
            self._say("the simulation contradicts it: going on")
            self._rejected.append(found.changes)
            judge.learn(found.changes, np.fmin(shown.reliability, shown.next_low))
        return None

    def _searched(self, judge: Judge) -> Found | None:
        if judge.is_met(()):
            return Found(changes=(), at_least=0.0)
        return search(
            judge,
            self._costs,
            lambda made: self._offered(judge, made),
            is_hopeful=self._lacking(judge, apply(self._network, self._as_good_as_can_be(judge))) < HOPELESS,
            estimates_max=self._estimates_max,
            say=self._say,
        )

    def _offered(self, judge: Judge, made: Sequence[Change]) -> Candidates:
        """What could be changed after some changes, for those who still fall short."""
        current = apply(self._network, made)
        predicted = judge.predicted(made)
        failing = predicted < judge.needed_for(made)
        if not failing.any():  # by the prediction all is well, and by the estimate it is not: everybody is in question
            failing = ~np.isnan(predicted)
        return candidates(current, self._estimator.prediction(current), failing, self._places, self._allowed)

    def _made(self, found: Found, verification: Verification | None, *, has_margin: bool) -> Plan:
        changed = apply(self._network, found.changes)
        then, means = self._estimator.reliability(changed)
        return self._told(
            is_possible=True,
            changes=tuple(Planned(change=change, cost=self._costs.of(change)) for change in found.changes),
            network=changed,
            then=then,
            means=means,
            has_margin=has_margin,
            at_least=min(self._at_least, found.at_least),
            verification=verification,
            obstacles=(),
        )

    def _impossible(self, judge: Judge) -> Plan:
        """What stands in the way once all choices are made as well as they can be."""
        self._say("finding out what stands in the way")
        best = self._as_good_as_can_be(judge)
        changed = apply(self._network, best)
        then, means = self._estimator.reliability(changed)
        return self._told(
            is_possible=False,
            changes=(),
            network=self._network,
            then=then,
            means=means,
            has_margin=False,
            at_least=0.0,
            verification=None,
            obstacles=obstacles(changed, self._objective, judge.needed, self._estimator),
        )

    def _as_good_as_can_be(self, judge: Judge) -> Set:
        """Every step at its greatest, the best scheme, and publishers at their best places."""
        self._say("trying everything at once")
        offered = self._offered(judge, ())
        strongest = tuple(options[-1] for options in offered.levels)
        schemes = [options for options in offered.choices if options[0].kind == "scheme"]
        tried: list[Set] = [strongest, *((*strongest, option) for options in schemes for option in options)]
        best = min(tried, key=judge.lack)
        if not self._places:
            return best
        faster = apply(self._network, best)
        moves = best_moves(faster, self._places, lambda moved: -self._lacking(judge, moved))
        return min(((*best, *moves), best), key=judge.lack)

    def _lacking(self, judge: Judge, network: Network) -> float:
        return self._objective.shortfall(self._estimator.predicted(network), judge.needed)

    def _told(
        self,
        *,
        is_possible: bool,
        changes: tuple[Planned, ...],
        network: Network,
        then: FloatArray,
        means: Means,
        has_margin: bool,
        at_least: float,
        verification: Verification | None,
        obstacles: tuple[Obstacle, ...],
    ) -> Plan:
        return Plan(
            objective=self._objective,
            subscribers=tuple(subscription.id for subscription in self._network.subscriptions),
            is_possible=is_possible,
            changes=changes,
            cost=self._costs.total(planned.change for planned in changes),
            network=network,
            now=self._now,
            now_means=self._now_means,
            then=then,
            means=means,
            unpredicted=gap(network),
            unmodelled=self._estimator.left_out(network),
            has_margin=has_margin,
            at_least=at_least,
            verification=verification,
            rejected=tuple(self._rejected),
            obstacles=obstacles,
            predictions=self._estimator.predictions,
            simulations=self._estimator.simulations,
        )
