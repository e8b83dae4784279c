"""What each remedy would change, by itself and all together: R of every subscription now and then.

Four remedies are looked at, those of them that mean something in the network: deadline scheduling (where links have
queues), buffering and bypassing (where something fails), moving publishers, and ordering at the receivers. Ordering
brings nobody an event sooner, and costs what receivers hold back: it is shown for what it costs.

`now` is predicted where the prediction covers the network and simulated otherwise. What a remedy changes is added to
that as a difference, taken by the same means on both sides (`tidings.planning._estimating`): where `now` is simulated
that is the outcome of one run. All together is one such estimate of the network with all remedies made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY
from tidings.model.scenario import Network
from tidings.planning._candidates import best_moves, shortlist
from tidings.planning._changes import Change, MovePublisher, UseOrdering, UseScheme, UseStrategy, apply
from tidings.planning._estimating import EVENTS_MAX, Estimator, Means, gap, has_queues
from tidings.prediction import Unmodelled

__all__ = ["ChangeOutcome", "WhatIf", "single_changes", "what_if"]

BEST_ORDERING: Final = "ours-record"

FloatArray = NDArray[np.float64]
Remedy = tuple[str, str, tuple[Change, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeOutcome:
    """One remedy: the changes that it consists of, and R of every subscription with it."""

    name: str
    description: str
    reliability: FloatArray
    changes: tuple[Change, ...]
    means: Means

    @property
    def mean_reliability(self) -> float:
        return _mean(self.reliability)


@dataclass(frozen=True, kw_only=True, eq=False)
class WhatIf:
    """R by subscription now, after each remedy, and after all of them; NaN where no publisher matches, and in `all` if
    some of them exclude each other.

    `means` says how `now` was found: if it was simulated, `unpredicted` is what no formula knows; otherwise
    `unmodelled` is what the prediction leaves out. `best` is the remedy with the highest mean over the subscriptions,
    None where there is no remedy at all.
    """

    subscribers: tuple[str, ...]
    now: FloatArray
    means: Means
    unpredicted: str | None
    unmodelled: tuple[Unmodelled, ...]
    changes: tuple[ChangeOutcome, ...]
    best: ChangeOutcome | None
    all: FloatArray

    @cached_property
    def best_for_each(self) -> FloatArray:
        """For each subscription R after the remedy that is best for it alone; `now`, where none is better."""
        best: FloatArray = np.fmax.reduce([self.now, *(outcome.reliability for outcome in self.changes)])
        return best


def single_changes(network: Network, *, estimator: Estimator | None = None) -> list[Remedy]:
    """The remedies that mean something here, as (name, description, changes), in the order in which they are made."""
    asked = Estimator(network) if estimator is None else estimator
    policies = network.policies
    found: list[Remedy] = []
    moves = _moves(network, asked)
    if moves:
        listed = ", ".join(f"{move.publisher} to {move.broker}" for move in moves[:3])
        more = f" and {len(moves) - 3} more" if len(moves) > 3 else ""
        found.append(("moving publishers", f"move {listed}{more}", moves))
    if network.has_failures and policies.faults.scheme != DEFAULT_SCHEME:
        words = "store events until the next broker has them, and lead them around what is down"
        found.append(("buffering and bypassing", words, (UseScheme(scheme=DEFAULT_SCHEME),)))
    if has_queues(network) and policies.scheduling.name != DEFAULT_STRATEGY:
        words = "send first what can still be on time and would be late if it waited"
        found.append(("deadline scheduling", words, (UseStrategy(strategy=DEFAULT_STRATEGY),)))
    if policies.ordering is None:
        words = "hold events back until those sent before them are there"
        found.append(("ordering", words, (UseOrdering(policy=BEST_ORDERING),)))
    return found


def what_if(
    network: Network,
    changes: Sequence[Change] | None = None,
    *,
    events_max: int = EVENTS_MAX,
    say: Callable[[str], None] | None = None,
) -> WhatIf:
    """R now, after each of these changes by itself and after all; without any, after each remedy that means something
    here. `events_max` bounds the simulations, `say` is told what goes on."""
    if not network.subscriptions:
        raise ConfigurationError("the network has no subscribers: there is nobody to be on time for")
    for change in changes or ():
        apply(network, [change])  # what cannot be made is refused before anything takes time
    report = say or (lambda _: None)
    asked = Estimator(network, events_max=events_max)
    report("estimating the network as it is")
    now, means = asked.reliability(network)
    if changes is None:
        report("looking for better places for publishers")
        remedies = single_changes(network, estimator=asked)
    else:
        remedies = [(change.words, change.words, (change,)) for change in changes]
    outcomes = []
    for name, description, own in remedies:
        report(f"{name}: what it would change")
        difference, by = asked.difference(network, apply(network, own))
        outcomes.append(
            ChangeOutcome(
                name=name, description=description, reliability=_added(now, difference), changes=own, means=by
            )
        )
    every = [change for _, _, own in remedies for change in own]
    together = np.full(len(now), np.nan)
    if len({change.slot for change in every}) == len(every):
        report("all together")
        together = _added(now, asked.difference(network, apply(network, every))[0])
    return WhatIf(
        subscribers=tuple(subscription.id for subscription in network.subscriptions),
        now=now,
        means=means,
        unpredicted=gap(network),
        unmodelled=asked.left_out(network),
        changes=tuple(outcomes),
        best=max(outcomes, key=lambda outcome: outcome.mean_reliability, default=None),
        all=together,
    )


def _moves(network: Network, asked: Estimator) -> tuple[MovePublisher, ...]:
    places = shortlist(network, asked.prediction(network))
    return best_moves(network, places, lambda changed: _mean(asked.predicted(changed)))


def _added(now: FloatArray, difference: FloatArray) -> FloatArray:
    """A difference that a run has nothing to say about, because nothing matched in it, is none."""
    return np.clip(now + np.nan_to_num(difference), 0.0, 1.0)


def _mean(reliability: FloatArray) -> float:
    known = reliability[~np.isnan(reliability)]
    return float(known.mean()) if len(known) else 0.0
