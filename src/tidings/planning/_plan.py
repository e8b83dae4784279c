"""From a network and an objective to a plan: search, verify by simulation, and continue if the simulation disagrees.

1. Estimate the present R. The search looks for networks in which R exceeds the objective by a margin
   (`Objective.needed`), so that a single fresh run of the scenario's own length meets it too, not only the long run.
2. Search for the cheapest set of changes (`tidings.planning._search`).
3. Simulate the changed network under unused seeds. If a run misses the objective, or runs differ so much that the next
   one may, reject the set, require estimates of similar sets to be better by the error just seen, and continue.
4. If no set is found, repeat without the margin; the plan states it.
5. If that fails too, the plan has no changes but obstacles: the causes, and what each of them would need.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.scenario import Network
from tidings.model.units import percent
from tidings.planning._candidates import Candidates, best_moves, candidates, shortlist
from tidings.planning._changes import KINDS, Change, Kind, MovePublisher, apply
from tidings.planning._costs import Costs
from tidings.planning._estimator import EVENTS_MAX, Estimator, Means, gap
from tidings.planning._objective import RUNS, Objective, Verification, verify
from tidings.planning._obstacles import Obstacle, obstacles
from tidings.planning._search import ESTIMATES_MAX, Found, Judge, search
from tidings.prediction import Unmodelled

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["USUAL_KINDS", "Plan", "Planned", "plan"]

REJECTED_MAX: Final = 6
"""Sets that simulations may reject before the search ends."""

HOPELESS: Final = 0.05
"""Shortfall of R, added up over the subscriptions with every helpful change made, from which a greedy search is
pointless. A smaller one may be model error."""

USUAL_KINDS: Final[tuple[Kind, ...]] = ("scheduling", "scheme", "move", "capacity")
"""The kinds of change in a plan by default: longer deadlines, a concession by users, are not among them."""

FloatArray = NDArray[np.float64]
Rows = Literal["changes", "subscribers"]
Set = tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One change of a plan, and its cost."""

    change: Change
    cost: float

    @property
    def words(self) -> str:
        return self.change.words


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """The changes to make, or the obstacles if nothing helps.

    `now` and `then` are the estimated R by subscription before and after, `now_means` and `means` the methods;
    `unpredicted` is the reason why `then` had to be simulated, `unmodelled` what a prediction of it leaves out.
    `network` is the changed network. `verification` is None if no set was found or simulation was off. `has_margin` is
    whether R exceeds the objective by enough that a single run should not miss it. `at_least` is the lowest cost of any
    set of candidates with a sufficient estimate, `is_cheapest` whether this set costs no more. `rejected` are sets that
    a simulation contradicted.
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

    def to_arrow(self, rows: Rows = "changes") -> "pa.Table":
        """One row per change, or per subscription with its on-time shares before and after."""
        return arrow_table(self._columns(rows))

    def to_pandas(self, rows: Rows = "changes") -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns(rows))

    def __repr__(self) -> str:
        return f"Plan({self._verdict})"

    def _repr_html_(self) -> str:
        """The verdict, the changes with their costs or the obstacles, and the subscriptions, the lowest share first."""
        changes = html_table(("change", "cost"), [(each.words, f"{each.cost:g}") for each in self.changes])
        obstacles = html_table(("obstacle",), [(each.words,) for each in self.obstacles])
        order = np.argsort(self.now, kind="stable").tolist()  # NaN, without matches, comes last
        rows = [(self.subscribers[n], _share(self.now[n]), _share(self.then[n])) for n in order]
        after = "after" if self.is_possible else "after every allowed change"
        shares = html_table(("subscription", "on-time share now", after), rows)
        return html_page(f"Plan: {self._verdict}", changes if self.is_possible else obstacles, shares)

    @property
    def _verdict(self) -> str:
        goal = f"{percent(self.objective.reliability)} on time"
        if not self.is_possible:
            return f"{goal} is not possible with the allowed changes"
        if not self.changes:
            return f"{goal} is met without changes"
        count = f"{len(self.changes)} change{'s' if len(self.changes) > 1 else ''}"
        return f"{goal} with {count} at cost {self.cost:g}"

    def _columns(self, rows: Rows) -> dict[str, Column]:
        match rows:
            case "changes":
                return {
                    "kind": Column("text", [each.change.kind for each in self.changes]),
                    "change": Column("text", [each.words for each in self.changes]),
                    "cost": Column("number", [each.cost for each in self.changes]),
                }
            case "subscribers":
                return {
                    "subscription": Column("text", self.subscribers),
                    "on_time_share_now": Column("number", self.now.tolist()),
                    "on_time_share_then": Column("number", self.then.tolist()),
                }
        raise ConfigurationError(f"rows is {rows!r}; write one of {', '.join(get_args(Rows))}")


def _share(share: float) -> str:
    return "no matches" if math.isnan(share) else percent(share)


def plan(
    network: Network,
    objective: Objective,
    *,
    costs: Costs | None = None,
    allowed: Collection[Kind] = USUAL_KINDS,
    runs: int = RUNS,
    events_max: int = EVENTS_MAX,
    estimates_max: int = ESTIMATES_MAX,
    may: Callable[[Change], bool] | None = None,
    report: Callable[[str], None] | None = None,
) -> Plan:
    """The cheapest changes found that meet the objective, verified by `runs` simulations (0: none).

    `allowed` are the kinds of change to consider, and of strategies, schemes and moves only those that `may` accepts;
    `events_max` and `estimates_max` bound the search, and `report`
    receives progress messages.
    """
    _check(network, allowed)
    may = may or (lambda _: True)
    return _Planner(network, objective, costs or Costs(), allowed, runs, events_max, estimates_max, may, report).plan()


def _check(network: Network, allowed: Collection[Kind]) -> None:
    for kind in allowed:
        if kind not in KINDS:
            raise ConfigurationError(f"there is no kind of change {kind!r}; write one of {', '.join(KINDS)}")
    if not network.publishers:
        raise ConfigurationError("the network has no publishers, so there is nothing to plan; add [[publishers]]")
    if not network.subscriptions:
        raise ConfigurationError("the network has no subscribers, so there is nothing to plan; add [[subscribers]]")


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
        may: Callable[[Change], bool],
        report: Callable[[str], None] | None,
    ) -> None:
        self._network, self._objective, self._costs, self._allowed = network, objective, costs, allowed
        self._runs, self._estimates_max, self._may = runs, estimates_max, may
        self._report = report or (lambda _: None)
        self._estimator = Estimator(network, events_max=events_max)
        self._rejected: list[Set] = []
        self._at_least = math.inf  # by the first estimate; simulations may make the judge stricter later

    def plan(self) -> Plan:
        self._report("estimating the present network")
        self._now, self._now_means = self._estimator.reliability(self._network)
        if np.isnan(self._now).all():
            raise ConfigurationError(
                "no publisher's events match any subscription, so there is nothing to plan; check the filters"
            )
        prediction = self._estimator.prediction(self._network)
        moves = "move" in self._allowed and len(self._network.topology.brokers) > 1
        places = shortlist(self._network, prediction) if moves else {}
        self._places = {
            name: [broker for broker in brokers if self._may(MovePublisher(publisher=name, broker=broker))]
            for name, brokers in places.items()
        }
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
        """The cheapest set that no simulation contradicts."""
        for _ in range(REJECTED_MAX):
            found = self._searched(judge)
            if found is None:
                return None
            self._at_least = min(self._at_least, found.at_least)
            if self._runs == 0:
                return found, None
            shown = verify(apply(self._network, found.changes), self._objective, runs=self._runs, report=self._report)
            if shown.is_met if has_margin else shown.is_met_together:
                return found, shown
            self._report("the simulation contradicts it: continuing the search")
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
            report=self._report,
        )

    def _offered(self, judge: Judge, made: Sequence[Change]) -> Candidates:
        """The candidates after some changes, for subscriptions that still fall short."""
        current = apply(self._network, made)
        predicted = judge.predicted(made)
        failing = predicted < judge.needed_for(made)
        if (
            not failing.any()
        ):  # the prediction meets the objective, the estimate does not: any subscription may be failing
            failing = ~np.isnan(predicted)
        found = candidates(current, self._estimator.prediction(current), failing, self._places, self._allowed)
        choices = (tuple(filter(self._may, options)) for options in found.choices)
        return Candidates(choices=tuple(options for options in choices if options), levels=found.levels)

    def _made(self, found: Found, verification: Verification | None, *, has_margin: bool) -> Plan:
        changed = apply(self._network, found.changes)
        then, means = self._estimator.reliability(changed)
        return self._plan(
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
        """The plan without changes: the obstacles that remain with the best choices made."""
        self._report("looking for the obstacles")
        best = self._as_good_as_can_be(judge)
        changed = apply(self._network, best)
        then, means = self._estimator.reliability(changed)
        return self._plan(
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
        """Every step at its largest, the best scheme, and publishers at their best places."""
        self._report("trying all changes together")
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

    def _plan(
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
