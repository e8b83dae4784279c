"""From a measured network to a proposal: the cheapest changes that meet the objective, rehearsed by simulation.

0. Where the accounts have a subscription late and the prediction has it on time, its deadline is taken to be shorter,
   until both agree (`_calibrated`): profiles can misjudge a delay and still rank places by it.
1. The cheapest set of permitted changes (`planning.plan`), with publishers at the best of the places that suffice. The
   costs of kinds whose predictions were worth little are higher, so others are preferred.
2. If no set meets the objective, the changes that reduce the shortfall most for their cost, one by one, up to
   STEPS_MAX. Where none does, advice: the capacity that would be needed by name and amount, or else the obstacles.
3. Rehearsal: the network without and with the changes is simulated under the same seed. If that shows less than
   CONFIRMED of the predicted gain, nothing is proposed.
4. The steps are ordered so that each adds the largest predicted gain. Each has the forecast of the network with it and
   the steps before it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.autopilot._audit import Change, Forecast
from tidings.model.policies import DEFAULT_STRATEGY, strategies
from tidings.model.scenario import Network, Scenario
from tidings.model.units import percent
from tidings.planning import Change as AnyChange
from tidings.planning import Costs, Estimator, MovePublisher, Objective, Plan, UseStrategy, apply, plan, shortlist

__all__ = ["Proposal", "Step", "propose", "warm_up"]

STEPS_MAX: Final = 3
ESTIMATES_MAX: Final = 60
EVENTS_MAX: Final = 20_000
"""Of a simulation."""
REHEARSED_S: Final = 120.0
"""The longest time that a rehearsal simulates."""
CONFIRMED: Final = 0.25
ADVICE_MAX: Final = 5
ADVICE_EVENTS_MAX: Final = 5_000
TINY: Final = 1e-3
AGREED: Final = 0.1
"""How much more than was measured a prediction may promise."""
SHORTENED: Final = 0.8
SHORTENED_MAX: Final = 12
USUAL_KINDS: Final = ("scheduling", "move")

_SMALL: Final = """
duration = "20 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { bandwidth = "50 kbit/s", propagation = "50 ms" }
publishers = [{ name = "p", at = "a", rate = "10 /s", size = "500 B", attributes = { x = 1 } }]
subscribers = [{ name = "s", at = "b", filter = "x = 1", max_delay = "40 ms" }]
"""

FloatArray = NDArray[np.float64]
May = Callable[[AnyChange], bool]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change, and the forecast with it and the steps before it."""

    change: Change
    predicted: Forecast


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """The steps to make, in order; in words, what they are for or why there are none; and advice to the operator."""

    steps: tuple[Step, ...] = ()
    words: str
    advice: tuple[str, ...] = ()


def propose(
    network: Network,
    objective: Objective,
    *,
    may: May,
    worths: Mapping[str, float] | None = None,
    measured: Mapping[str, float] | None = None,
    gain_least: float = 0.02,
    known_as: Callable[[Change], Change] = lambda change: change,
    report: Callable[[str], None] | None = None,
) -> Proposal:
    """What to do about a network as it was measured.

    `may` permits changes one by one; `measured` are on-time shares from the accounts, by subscription; `known_as` is
    what a change of the measured network is in the live one, where several may be the same.
    """
    known = {} if worths is None else worths
    usual = Costs()
    costs = usual.changed({kind: getattr(usual, kind) / max(worth, 1e-3) for kind, worth in known.items()})
    # A profile covers seconds; simulations need more events than that.
    rate_per_s = max(sum(publisher.rate_per_s for publisher in network.publishers), 1e-9)
    network = msgspec.structs.replace(network, duration_s=min(REHEARSED_S, EVENTS_MAX / rate_per_s), warmup_s=0.0)
    network = _calibrated(network, measured or {})
    found = plan(
        network,
        objective,
        costs=costs,
        allowed=USUAL_KINDS,
        runs=0,
        events_max=EVENTS_MAX,
        estimates_max=ESTIMATES_MAX,
        may=may,
        report=report,
    )
    if found.is_possible and not found.changes:
        return Proposal(words="the profiles predict that the objective is met, so the cause is not in them")
    room = _Room(network, objective)
    changes = room.nearest([planned.change for planned in found.changes], may)
    if not found.is_possible:
        changes = room.greedy(may, costs, gain_least)
    if not changes:
        return Proposal(
            words="no change that it may make would help", advice=_advice(network, objective, costs, may, found)
        )
    steps = room.steps(changes, known_as)
    forecast = steps[-1].predicted
    rehearsed = room.rehearsed_gain(changes)
    if rehearsed < max(CONFIRMED * forecast.gain, gain_least):
        words = f"the simulation contradicts the prediction of {'; '.join(step.change.words for step in steps)}"
        return Proposal(words=f"{words} (gain {rehearsed:.3g} instead of {forecast.gain:.3g})")
    last = msgspec.structs.replace(forecast, rehearsed_gain=round(rehearsed, 6))
    steps = [*steps[:-1], msgspec.structs.replace(steps[-1], predicted=last)]
    shares = f"mean on-time share {percent(room.mean(()))} -> {percent(room.mean(changes))}"
    words = f"{'; '.join(step.change.words for step in steps)}: predicted {shares}"
    return Proposal(steps=tuple(steps), words=words)


class _Room:
    """Estimates of one network under changes."""

    def __init__(self, network: Network, objective: Objective) -> None:
        self._network, self._objective = network, objective
        self._estimator = Estimator(network, events_max=EVENTS_MAX)

    def shares(self, changes: Sequence[AnyChange]) -> FloatArray:
        return self._estimator.reliability(apply(self._network, changes))[0]

    def shortfall(self, changes: Sequence[AnyChange]) -> float:
        return self._objective.shortfall(self.shares(changes))

    def mean(self, changes: Sequence[AnyChange]) -> float:
        shares = self.shares(changes)
        return float(np.nanmean(shares)) if not np.isnan(shares).all() else float("nan")

    def rehearsed_gain(self, changes: Sequence[AnyChange]) -> float:
        simulated = (self._estimator.simulated(each) for each in (self._network, apply(self._network, changes)))
        before, after = (self._objective.shortfall(shares) for shares in simulated)
        return before - after

    def nearest(self, changes: Sequence[AnyChange], may: May) -> list[AnyChange]:
        """The same moves to the best places that do as well: a search takes any that suffices."""
        found = list(changes)
        if not any(isinstance(change, MovePublisher) for change in found):
            return found
        places = self._places()
        for number, change in enumerate(changes):
            if not isinstance(change, MovePublisher):
                continue
            for broker in places.get(change.publisher, ()):
                other = [
                    *found[:number],
                    MovePublisher(publisher=change.publisher, broker=broker),
                    *found[number + 1 :],
                ]
                if may(other[number]) and self.shortfall(other) <= self.shortfall(found) + TINY:
                    found = other
                    break
        return found

    def _places(self) -> dict[str, list[str]]:
        """The brokers that a publisher could move to, the best first."""
        return shortlist(self._network, self._estimator.prediction(self._network))

    def greedy(self, may: May, costs: Costs, gain_least: float) -> list[AnyChange]:
        """The changes with most gain for their cost, one by one."""
        offered: list[AnyChange] = [
            MovePublisher(publisher=publisher, broker=broker)
            for publisher, some in self._places().items()
            for broker in some
        ]
        now = self._network.policies.scheduling.name
        names = [DEFAULT_STRATEGY, *(name for name in strategies("planner") if name != DEFAULT_STRATEGY)]
        offered += [UseStrategy(strategy=name) for name in names if name != now]
        offered = [change for change in offered if may(change)]
        chosen: list[AnyChange] = []
        present = self.shortfall(())
        for _ in range(STEPS_MAX):
            taken = {change.slot for change in chosen}
            rated = [
                ((present - self.shortfall([*chosen, change])) / costs.of(change), change)
                for change in offered
                if change.slot not in taken
            ]
            ratio, best = max(rated, key=lambda each: each[0], default=(0.0, None))
            if best is None or ratio * costs.of(best) < gain_least:
                break
            chosen.append(best)
            present = self.shortfall(chosen)
        return chosen

    def steps(self, changes: Sequence[AnyChange], known_as: Callable[[Change], Change]) -> list[Step]:
        """The changes as steps, the largest further gain first; one step for each slot of the live network."""
        left, made = list(changes), list[AnyChange]()
        now = self.shortfall(())
        steps: list[Step] = []
        while left:
            best = min(left, key=lambda change: self.shortfall([*made, change]))
            left.remove(best)
            made.append(best)
            then = self.shortfall(made)
            assert isinstance(best, MovePublisher | UseStrategy)
            forecast = Forecast(now=round(now, 6), then=round(then, 6), gain=round(now - then, 6))
            change = known_as(best)
            if change.slot not in {step.change.slot for step in steps}:
                steps.append(Step(change=change, predicted=forecast))
        return steps


def _calibrated(network: Network, measured: Mapping[str, float]) -> Network:
    """The network with shorter deadlines for subscriptions that the accounts have late and the prediction on time,
    until both agree. Then the prediction knows at least that less delay helps them."""
    estimator = Estimator(network, events_max=EVENTS_MAX)
    for _ in range(SHORTENED_MAX):
        predicted = estimator.reliability(network)[0]
        off = {
            each.id
            for each, share in zip(network.subscriptions, predicted.tolist(), strict=True)
            if each.max_delay_s is not None and share > measured.get(each.id, 1.0) + AGREED
        }
        if not off:
            break
        subscriptions = tuple(
            msgspec.structs.replace(each, max_delay_s=SHORTENED * (each.max_delay_s or 0.0)) if each.id in off else each
            for each in network.subscriptions
        )
        network = msgspec.structs.replace(network, subscriptions=subscriptions)
    return network


def warm_up() -> None:
    """Compile or load what a proposal needs: the first one of a machine takes a minute otherwise."""
    propose(Scenario.parse(_SMALL).expand(), Objective(reliability=0.9), may=lambda _: True)


def _advice(network: Network, objective: Objective, costs: Costs, may: May, found: Plan) -> tuple[str, ...]:
    """What an operator could do: capacity by name and amount, or what prevents the objective. From shorter
    simulations, since it is advice; `tidings plan` takes its time."""
    bought = plan(
        network,
        objective,
        costs=costs,
        allowed=(*USUAL_KINDS, "capacity"),
        runs=0,
        events_max=ADVICE_EVENTS_MAX,
        estimates_max=ESTIMATES_MAX,
        may=may,
    )
    changes = [planned.change for planned in bought.changes if planned.change.kind == "capacity"]
    if bought.is_possible and changes:
        return tuple(change.words for change in changes[:ADVICE_MAX])
    found = found if bought.is_possible else bought
    return tuple(obstacle.words for obstacle in found.obstacles[:ADVICE_MAX]) or (
        "neither the obstacle nor the capacity that is needed was found in time: `tidings plan` searches for longer",
    )
