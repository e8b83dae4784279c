"""The effect of each remedy alone and of all together: R of every subscription before and after.

Four remedies are considered where they apply: deadline scheduling (links with queues), buffering and bypassing
(failures), moving publishers, and ordering at the receivers. Ordering speeds up nothing and delays the events that
receivers hold; it is shown for this cost.

`now` is predicted where the prediction covers the network and simulated otherwise. The effect of a remedy is added to
it as a difference, by the same method on both sides (`tidings.planning._estimator`); where `now` is simulated, this is
the outcome of one run. "All together" is one such estimate of the network with all remedies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY
from tidings.model.scenario import Network
from tidings.model.units import percent, points
from tidings.planning._candidates import best_moves, shortlist
from tidings.planning._changes import Change, MovePublisher, UseOrdering, UseScheme, UseStrategy, apply
from tidings.planning._estimator import EVENTS_MAX, Estimator, Means, gap, has_queues
from tidings.prediction import Unmodelled

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["ChangeOutcome", "WhatIf", "single_changes", "what_if"]

BEST_ORDERING: Final = "ours-record"

FloatArray = NDArray[np.float64]
Remedy = tuple[str, str, tuple[Change, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeOutcome:
    """One remedy: its changes, and R of every subscription with it."""

    name: str
    description: str
    reliability: FloatArray
    changes: tuple[Change, ...]
    means: Means

    @property
    def mean_reliability(self) -> float:
        return _mean(self.reliability)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WhatIf:
    """R by subscription now, after each remedy, and after all of them; NaN where no publisher matches, and in `all` if
    some remedies exclude each other.

    `means` is the method for `now`: if it was simulated, `unpredicted` is the effect that formulas do not cover;
    otherwise `unmodelled` is what the prediction leaves out. `best` is the remedy with the highest mean over the
    subscriptions, None without remedies.
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
        """For each subscription, R after its best remedy; `now` where none is better."""
        best: FloatArray = np.fmax.reduce([self.now, *(outcome.reliability for outcome in self.changes)])
        return best

    def to_arrow(self) -> "pa.Table":
        """One row per subscription: its on-time share `now`, after each change by its name, and after `all`."""
        return arrow_table(self._columns())

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns())

    def __repr__(self) -> str:
        best = "" if self.best is None else f", {self.best.name}: {percent(self.best.mean_reliability)}"
        return f"WhatIf(mean on-time share now: {percent(_mean(self.now))}{best})"

    def _repr_html_(self) -> str:
        """The changes with the mean on-time shares after them, and the gain in points."""
        now = _mean(self.now)
        rows = [
            (each.name, percent(each.mean_reliability), points(now, each.mean_reliability)) for each in self.changes
        ]
        heads = ("change", "mean on-time share", "gain")
        return html_page("What if", html_table(heads, [("none", percent(now), ""), *rows]))

    def _columns(self) -> dict[str, Column]:
        shares = {"now": self.now, **{each.name: each.reliability for each in self.changes}, "all": self.all}
        found = {"subscription": Column("text", self.subscribers)}
        return found | {name: Column("number", values.tolist()) for name, values in shares.items()}


def single_changes(network: Network, *, estimator: Estimator | None = None) -> list[Remedy]:
    """The remedies that apply here, as (name, description, changes), in the order of their application."""
    asked = Estimator(network) if estimator is None else estimator
    policies = network.policies
    found: list[Remedy] = []
    moves = _moves(network, asked)
    if moves:
        listed = ", ".join(f"{move.publisher} to {move.broker}" for move in moves[:3])
        more = f" and {len(moves) - 3} more" if len(moves) > 3 else ""
        found.append(("moving publishers", f"move {listed}{more}", moves))
    if network.has_failures and policies.faults.scheme != DEFAULT_SCHEME:
        words = "store events until the next broker has them, and route them around failed brokers and links"
        found.append(("buffering and bypassing", words, (UseScheme(scheme=DEFAULT_SCHEME),)))
    if has_queues(network) and policies.scheduling.name != DEFAULT_STRATEGY:
        words = "send first the events that can still be on time but would be late if they waited"
        found.append(("deadline scheduling", words, (UseStrategy(strategy=DEFAULT_STRATEGY),)))
    if policies.ordering is None:
        words = "hold events until those sent before them have arrived"
        found.append(("ordering", words, (UseOrdering(policy=BEST_ORDERING),)))
    return found


def what_if(
    network: Network,
    changes: Sequence[Change] | None = None,
    *,
    events_max: int = EVENTS_MAX,
    report: Callable[[str], None] | None = None,
) -> WhatIf:
    """R now, after each of these changes alone and after all of them; by default, after each remedy that applies.
    `events_max` bounds the simulations, `report` receives progress messages."""
    if not network.subscriptions:
        raise ConfigurationError("the network has no subscribers, so there is nothing to compare; add [[subscribers]]")
    for change in changes or ():
        apply(network, [change])  # an impossible change is refused before anything takes time
    note = report or (lambda _: None)
    asked = Estimator(network, events_max=events_max)
    note("estimating the present network")
    now, means = asked.reliability(network)
    if changes is None:
        note("looking for better places for publishers")
        remedies = single_changes(network, estimator=asked)
    else:
        remedies = [(change.words, change.words, (change,)) for change in changes]
    outcomes = []
    for name, description, own in remedies:
        note(f"estimating: {name}")
        difference, by = asked.difference(network, apply(network, own))
        outcomes.append(
            ChangeOutcome(
                name=name, description=description, reliability=_added(now, difference), changes=own, means=by
            )
        )
    every = [change for _, _, own in remedies for change in own]
    together = np.full(len(now), np.nan)
    if len({change.slot for change in every}) == len(every):
        note("all together")
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
    """A subscription without matching events in the run keeps its R."""
    return np.clip(now + np.nan_to_num(difference), 0.0, 1.0)


def _mean(reliability: FloatArray) -> float:
    known = reliability[~np.isnan(reliability)]
    return float(known.mean()) if len(known) else 0.0
