"""The cheapest set of changes with an estimate that meets the objective.

Theory of operation. A greedy search comes first: for each strategy or scheme (and none), it adds the change that
removes most of the shortfall per unit of cost until nothing is missing. Then it removes or reduces changes that are not
needed. This gives a set and an upper bound on the cost. Branch and bound then searches the sets below the bound, the
cheapest first, within the budget of estimates; the first that meets the objective is the cheapest. Where changes come
in steps (capacities, deadlines), a larger step never harms. So, given the other changes:

- a step that is needed even with all others at their largest is in every sufficient set (`_needed`);
- if a set does not suffice with everything affordable added, it is discarded with all its extensions.

So few estimates decide all pairs of steps, alone or with one other change. Sets of two or more other changes
(strategies, schemes, places), which have to be tried one by one, come after them. If the budget ends early, the cost
below which every set was considered is a lower bound of the cost (`at_least`).

The estimate (predicted where the model covers the network, else simulated) decides whether a set meets the objective;
the prediction, which costs less, decides the direction of the search.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.model.scenario import Network
from tidings.planning._candidates import Candidates, Options, milder_steps
from tidings.planning._changes import AllowLonger, Change, Slot, UseScheme, UseStrategy, apply
from tidings.planning._costs import Costs
from tidings.planning._estimator import Estimator, Means
from tidings.planning._objective import Objective

__all__ = ["ESTIMATES_MAX", "Found", "Judge", "search"]

ESTIMATES_MAX: Final = 400
"""Estimates that branch and bound may use; beyond it the result is a lower bound of the cost, not the cheapest set."""

STEPS_MAX: Final = 40
HEAP_MAX: Final = 200_000
SLOTS_PER_STEP: Final = 8
AT_ONCE: Final = 2
USELESS: Final = 0.02
"""Share of the shortfall: if the largest step gains no more, smaller ones are not tried."""

LEAST_LATE: Final = 1e-4
"""The least share of late events to assume in an estimate that turned out to be wrong."""

_TINY: Final = 1e-9

FloatArray = NDArray[np.float64]
Set = tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A set of changes, and a lower bound of the cost of any sufficient set of the candidates."""

    changes: Set
    at_least: float


@dataclass(kw_only=True)
class Judge:
    """Whether a set of changes meets the objective, by its estimate and by earlier simulations.

    `lessons` are by strategy and scheme: the R that an estimate has to reach there to be accepted.
    """

    network: Network
    objective: Objective
    needed: FloatArray
    estimator: Estimator
    excluded: set[frozenset[Change]] = field(default_factory=set)
    lessons: dict[Set, FloatArray] = field(default_factory=dict)

    def estimate(self, changes: Iterable[Change]) -> tuple[FloatArray, Means]:
        return self.estimator.reliability(apply(self.network, changes))

    def is_met(self, changes: Iterable[Change]) -> bool:
        chosen = tuple(changes)
        return frozenset(chosen) not in self.excluded and self.looks_met(chosen)

    def looks_met(self, changes: Iterable[Change]) -> bool:
        """The same without the rejections of this set: these do not apply to larger sets."""
        chosen = tuple(changes)
        return self.objective.is_met(self.estimate(chosen)[0], self.needed_for(chosen))

    def lack(self, changes: Iterable[Change]) -> float:
        """The predicted shortfall; an overload counts by its size, since everything behind it is late anyway."""
        chosen = tuple(changes)
        overload = self.estimator.overload(apply(self.network, chosen))
        return self.objective.shortfall(self.predicted(chosen), self.needed_for(chosen)) + overload

    def predicted(self, changes: Iterable[Change]) -> FloatArray:
        """The predicted R, even if the prediction does not cover the policies."""
        return self.estimator.predicted(apply(self.network, changes))

    def needed_for(self, changes: Iterable[Change]) -> FloatArray:
        """The R that each subscription needs in the estimate of this set."""
        return np.maximum(self.needed, self.lessons.get(_policies(changes), self.needed))

    def learn(self, changes: Set, simulated: FloatArray) -> None:
        """Reject this set, which simulations contradicted. If k times as many events were late as estimated, similar
        sets are accepted only with k times fewer late events than the objective allows."""
        self.excluded.add(frozenset(changes))
        late = np.maximum(1.0 - self.estimate(changes)[0], LEAST_LATE)
        times = np.maximum(1.0, np.nan_to_num((1.0 - simulated) / late, nan=1.0))
        stricter = np.where(simulated < self.needed, 1.0 - np.maximum(1.0 - self.needed, LEAST_LATE) / times, 0.0)
        self.lessons[_policies(changes)] = np.maximum(self.needed_for(changes), stricter)

    def counts(self, changes: Iterable[Change]) -> int:
        return self.estimator.work(apply(self.network, changes))


def search(
    judge: Judge,
    costs: Costs,
    find: Callable[[Sequence[Change]], Candidates],
    *,
    is_hopeful: bool = True,
    estimates_max: int = ESTIMATES_MAX,
    report: Callable[[str], None] | None = None,
) -> Found | None:
    """The cheapest set found, or None; `find` returns the candidates after some changes.

    The greedy search is skipped unless `is_hopeful`.
    """
    note = report or (lambda _: None)
    first = find(())
    policies = _policies(option for options in first.choices for option in options)
    best: Set | None = None
    for start in ((), *((option,) for option in policies)) if is_hopeful else ():
        named = start[0].words if start else "with the present policies"
        note(f"looking for further changes: {named}")
        bound = math.inf if best is None else costs.total(best)
        found = _greedy(judge, costs, find, start, bound)
        if found is not None and costs.total(found) < bound - _TINY:
            best = found
    bound = math.inf if best is None else costs.total(best)
    note("checking cheaper sets" if best else "checking all sets")
    cheaper, at_least = _Branches(judge, costs, first, estimates_max).cheapest(best, bound)
    return None if cheaper is None else Found(changes=cheaper, at_least=min(at_least, costs.total(cheaper)))


def _greedy(
    judge: Judge, costs: Costs, find: Callable[[Sequence[Change]], Candidates], start: Set, bound: float
) -> Set | None:
    """A sufficient set that extends the start; None if there is none that could cost less than the bound."""
    chosen: dict[Slot, Change] = {change.slot: change for change in start}
    complete: list[dict[Slot, Change]] = []
    for _ in range(STEPS_MAX):
        if judge.is_met(chosen.values()):
            complete.append(chosen)
            break
        offered = find(tuple(chosen.values()))
        relaxed = _with_deadlines(judge, offered, chosen)
        if relaxed is not None:
            complete.append(relaxed)
        following = _best_steps(judge, costs, offered, chosen)
        if not following:
            break
        chosen = chosen | {change.slot: change for change in following}
        if (
            sum(costs.of(milder_steps(change)[0] if milder_steps(change) else change) for change in chosen.values())
            >= bound
        ):
            break  # even with every step reduced as far as possible
    if not complete:
        return None
    cheapest = min(complete, key=lambda each: costs.total(each.values()))
    return _reduced(judge, costs, cheapest)


def _with_deadlines(judge: Judge, offered: Candidates, chosen: dict[Slot, Change]) -> dict[Slot, Change] | None:
    """The rest by longer deadlines alone, if allowed: the smallest sufficient step for each failing subscription."""
    asked = [options for options in offered.levels if isinstance(options[0], AllowLonger)]
    numbers = {subscription.id: number for number, subscription in enumerate(judge.network.subscriptions)}
    settled: dict[Slot, Change] = {}
    for step in range(max((len(options) for options in asked), default=0)):
        tried = {options[step].slot: options[step] for options in asked}
        together = tuple((chosen | tried).values())
        enough = judge.predicted(together) >= judge.needed_for(together)
        for change in tried.values():
            if isinstance(change, AllowLonger) and enough[numbers[change.subscription]]:
                settled.setdefault(change.slot, change)
    relaxed = chosen | settled
    return relaxed if settled and judge.is_met(relaxed.values()) else None


def _best_steps(judge: Judge, costs: Costs, offered: Candidates, chosen: dict[Slot, Change]) -> list[Change]:
    """The changes in different slots that remove most of the shortfall for their cost, if at least half as good as the
    best; unnecessary ones are removed in the end."""
    lacking = judge.lack(chosen.values())
    moves = [options for options in offered.choices if not isinstance(options[0], UseStrategy | UseScheme)]
    levels = [options for options in offered.levels if not isinstance(options[0], AllowLonger)]
    found: list[tuple[float, Change]] = []
    for options in (*moves[:SLOTS_PER_STEP], *levels[:SLOTS_PER_STEP]):
        present = chosen.get(options[0].slot)
        paid = 0.0 if present is None else costs.of(present)
        own: list[tuple[float, Change]] = []
        for option in options if options in moves else _coarse(options, present):
            if option == present:
                continue
            gain = lacking - judge.lack((chosen | {option.slot: option}).values())
            if gain > _TINY:
                own.append((gain / max(costs.of(option) - paid, _TINY), option))
            if (
                gain <= USELESS * lacking and options in levels
            ):  # the largest step comes first: smaller ones gain no more
                break
        found += sorted(own, key=lambda rated: rated[0])[-1:]
    found.sort(key=lambda rated: -rated[0])
    best = [option for ratio, option in found if ratio >= 0.5 * found[0][0]][:AT_ONCE]
    if not best and lacking <= _TINY:  # the prediction suffices, the estimate does not: continue with the busiest
        following = (options[_place(options, chosen.get(options[0].slot)) + 1 :] for options in levels)
        best = [steps[0] for steps in following if steps][:1]
    return best


def _reduced(judge: Judge, costs: Costs, chosen: dict[Slot, Change]) -> Set:
    """Remove or reduce changes that are not needed, the most expensive first."""
    for change in sorted(chosen.values(), key=costs.of, reverse=True):
        rest = {slot: other for slot, other in chosen.items() if slot != change.slot}
        if judge.is_met(rest.values()):
            chosen = rest
            continue
        steps = (*milder_steps(change), change)
        enough = bisect_left(steps, True, key=lambda step: judge.is_met((rest | {step.slot: step}).values()))
        chosen = rest | {change.slot: steps[min(enough, len(steps) - 1)]}
    return tuple(chosen.values())


def _coarse(options: Options, present: Change | None) -> Options:
    """Every second step above the present one, the largest first; excess is removed in the end."""
    return options[_place(options, present) + 1 :][::-1][::2]


def _place(options: Options, present: Change | None) -> int:
    """The position of the present step among the options; -1 if it is not there."""
    return options.index(present) if present in options else -1


class _Branches:
    """Branch and bound over the sets of some candidates; `left` is the remaining budget of estimates."""

    def __init__(self, judge: Judge, costs: Costs, offered: Candidates, estimates_max: int) -> None:
        self._judge, self._costs, self._levels = judge, costs, offered.levels
        self._prices = [[costs.of(option) for option in options] for options in offered.levels]
        self._choices = offered.choices
        self.left = estimates_max

    def cheapest(self, best: Set | None, bound: float) -> tuple[Set | None, float]:
        """The cheapest known set, initially `best` of cost `bound`, and a lower bound of the cost of any."""
        few, at_least = self._under(self._chosen(most=1), bound)
        if few is not None:
            best, bound = few, self._costs.total(few)
        many, most = self._under(self._chosen(least=2), bound)
        return (best if many is None else many), min(at_least, most)

    def _chosen(self, *, least: int = 0, most: int | None = None) -> Iterator[tuple[float, Set]]:
        """Sets of this many choices with their costs, by rising cost."""
        heap: list[tuple[float, int, Set, int]] = [(0.0, 0, (), 0)]
        pushed = 0
        while heap:
            cost, _, chosen, begin = heapq.heappop(heap)
            if len(chosen) >= least:
                yield cost, chosen
            if most is not None and len(chosen) >= most:
                continue
            for slot in range(begin, len(self._choices)):
                for option in self._choices[slot]:
                    pushed += 1
                    heapq.heappush(heap, (cost + self._costs.of(option), pushed, (*chosen, option), slot + 1))
            if len(heap) > HEAP_MAX:
                return

    def _under(self, choices: Iterator[tuple[float, Set]], bound: float) -> tuple[Set | None, float]:
        """The cheapest set below the bound with one of these choices, and a lower bound of the cost of any such set."""
        # A node is a choice with steps (-1: none), of which those before a position are fixed. Its key is a lower bound
        # of its cost: its own cost before it was estimated, afterwards that plus the least step that may follow.
        heap: list[tuple[float, int, Set, tuple[int, ...], int, bool]] = []
        following = next(choices, None)
        pushed = 0
        while True:
            while following is not None and (not heap or following[0] <= heap[0][0]) and following[0] < bound - _TINY:
                if self.left <= 0:
                    return None, following[0]
                needed = self._needed(following[1], bound - following[0])
                if needed is not None:
                    pushed += 1
                    cost = following[0] + self._paid(needed)
                    heapq.heappush(heap, (cost, pushed, following[1], needed, 0, True))
                following = next(choices, None)
            if not heap:
                return None, bound
            least, _, choice, taken, place, is_new = heapq.heappop(heap)
            if least >= bound - _TINY:
                return None, bound
            if self.left <= 0:
                return None, least
            if is_new and self._is(self._judge.is_met, choice, taken):
                return self._set(choice, taken), least
            cost = self._costs.total(choice) + self._paid(taken)
            for at_least, more, settled, is_more in self._grown(choice, taken, place, cost, bound):
                pushed += 1
                heapq.heappush(heap, (at_least, pushed, choice, more, settled, is_more))

    def _grown(
        self, choice: Set, taken: tuple[int, ...], place: int, cost: float, bound: float
    ) -> Iterator[tuple[float, tuple[int, ...], int, bool]]:
        """The extensions of an insufficient set: the next slot unchanged, or in a larger step."""
        strongest = list(taken)
        extra = math.inf
        for slot in range(place, len(taken)):
            paid = self._price(slot, taken[slot])
            for option in range(taken[slot] + 1, len(self._prices[slot])):
                if cost - paid + self._prices[slot][option] < bound - _TINY:
                    strongest[slot] = option
                    extra = min(extra, self._prices[slot][option] - paid)
        if tuple(strongest) == taken or not self._is(self._judge.looks_met, choice, tuple(strongest)):
            return
        if strongest[place] > taken[place]:
            for option in range(taken[place] + 1, strongest[place] + 1):
                more = (*taken[:place], option, *taken[place + 1 :])
                yield cost - self._price(place, taken[place]) + self._prices[place][option], more, place + 1, True
        if place + 1 < len(taken):
            yield cost + extra, taken, place + 1, False

    def _needed(self, choice: Set, budget: float) -> tuple[int, ...] | None:
        """By slot: the least step that this choice needs even with all others at the largest affordable step; None if
        these do not suffice."""
        strongest = [max((o for o, price in enumerate(own) if price < budget), default=-1) for own in self._prices]
        if not self._is(self._judge.looks_met, choice, tuple(strongest)):
            return None
        needed = []
        for slot, most in enumerate(strongest):

            def does(step: int, slot: int = slot) -> bool:
                tried = (*strongest[:slot], step, *strongest[slot + 1 :])
                return self._is(self._judge.looks_met, choice, tried)

            # Most are not needed at all, which one estimate shows.
            is_spare = most < 0 or does(-1)
            needed.append(-1 if is_spare else bisect_left(range(most), True, key=does))
        return tuple(needed)

    def _is(self, verdict: Callable[[Set], bool], choice: Set, taken: tuple[int, ...]) -> bool:
        changes = self._set(choice, taken)
        self.left -= self._judge.counts(changes)
        return verdict(changes)

    def _set(self, choice: Set, taken: tuple[int, ...]) -> Set:
        return (*choice, *(self._levels[slot][option] for slot, option in enumerate(taken) if option >= 0))

    def _price(self, slot: int, option: int) -> float:
        return self._prices[slot][option] if option >= 0 else 0.0

    def _paid(self, taken: tuple[int, ...]) -> float:
        return math.fsum(self._price(slot, option) for slot, option in enumerate(taken))


def _policies(changes: Iterable[Change]) -> Set:
    return tuple(change for change in changes if isinstance(change, UseStrategy | UseScheme))
