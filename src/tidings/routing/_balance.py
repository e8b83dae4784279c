"""Load-balanced routes: one tree per publisher that keeps any link from carrying too much.

Theory of operation:

- The utilisation of a link is the time it is busy per second: the sum over publishers of rate x size x slowness x the
  share of events that need the link, an event with several destinations behind the link counted once.
- What an event needs is a mixture: with the weight of class j it belongs to class j, and then each broker has a match
  with probability interest[j, broker], independently. A sample of match signatures is the case of certainties (one
  class per signature), plain match fractions the case of one class.
- Routes minimise the sum of utilisation cubed: waiting grows steeply with utilisation, so the busiest links count most.
  Local search from the shortest-path trees: take publishers and brokers in turn, hang a broker (with all below it)
  under the parent that lowers the sum most, until a whole sweep lowers it by less than the share `tolerance` (then the
  routes are `settled`) or `max_sweeps` is reached. The sum never rises.
- Equal input gives equal routes, on every machine: no draw is made anywhere, and rounding decides neither between two
  parents that are equally good nor whether a link is as busy as `keep_below_utilisation`.
- `max_stretch` bounds every path's mean slowness to that many times the shortest; `keep_below_utilisation` leaves the
  shortest paths alone while no link is that busy, since then detours cost more than they save.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import InputError
from tidings.routing._arrays import FloatArray, frozen, frozen_copy
from tidings.routing._descent import CERTAIN, Search, improve_tree
from tidings.routing._figures import root_figures
from tidings.routing._overlay import Overlay
from tidings.routing._trees import Tree, require_reached, shortest_path_tree, tree_of_parents

DEFAULT_MAX_SWEEPS = 50
DEFAULT_TOLERANCE = 1e-4
_ROUNDING = 1e-12  # sums of figures that differ by this share may be equal


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """What one publisher sends, and which brokers have matching subscribers for it (see the module's theory)."""

    broker: int
    rate_per_s: float
    size_kb: float
    interest: FloatArray
    weight: FloatArray

    def __post_init__(self) -> None:
        interest, weight = frozen_copy(self.interest, np.float64), frozen_copy(self.weight, np.float64)
        if interest.ndim != 2 or weight.shape != (len(interest),):
            raise InputError(
                f"interest must be [class, broker] and weight [class], but they have shapes {interest.shape} and "
                f"{weight.shape}"
            )
        if not ((interest >= 0) & (interest <= 1)).all():
            raise InputError("interest holds probabilities: every value must be between 0 and 1")
        if not (weight >= 0).all() or weight.sum() > 1 + 1e-9:
            raise InputError("the weights of the classes are shares of events: at least 0 each, at most 1 together")
        for name in ("rate_per_s", "size_kb"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"a publisher's {name} is {value}: it must be a finite number of at least 0")
        object.__setattr__(self, "interest", interest)
        object.__setattr__(self, "weight", weight)

    @classmethod
    def of_fractions(cls, *, broker: int, rate_per_s: float, size_kb: float, fractions: ArrayLike) -> "Demand":
        """From the share of events that each broker has a match for, brokers independent of each other."""
        interest = np.atleast_2d(np.asarray(fractions, np.float64))
        return cls(broker=broker, rate_per_s=rate_per_s, size_kb=size_kb, interest=interest, weight=np.ones(1))

    @classmethod
    def of_signatures(
        cls, *, broker: int, rate_per_s: float, size_kb: float, signatures: ArrayLike, weight: ArrayLike | None = None
    ) -> "Demand":
        """From a sample of events: for each the brokers with a match ([event, broker]), equally likely by default."""
        interest = np.asarray(signatures, np.bool_).astype(np.float64)
        shares = np.full(len(interest), 1.0 / max(len(interest), 1)) if weight is None else np.asarray(weight)
        return cls(broker=broker, rate_per_s=rate_per_s, size_kb=size_kb, interest=interest, weight=shares)

    @property
    def destinations(self) -> list[int]:
        """The brokers that some event may have a match at."""
        found: list[int] = np.flatnonzero((self.interest * self.weight[:, None]).any(axis=0)).tolist()
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedRoutes:
    """One tree per demand, what the links will carry, and what shortest paths would have made them carry."""

    trees: tuple[Tree, ...]
    utilisation: FloatArray
    objective: float
    shortest_utilisation: FloatArray
    shortest_objective: float
    moves: int
    sweeps: int
    settled: bool


def link_utilisations(overlay: Overlay, trees: Sequence[Tree], demands: Sequence[Demand]) -> FloatArray:
    """The share of time that each link is busy when each demand takes its tree; above 1 it cannot keep up."""
    utilisation = np.zeros(overlay.link_count)
    for tree, demand in zip(trees, demands, strict=True):
        missed = 1.0 - demand.interest  # becomes: chance that no broker of the subtree has a match
        for broker in reversed(tree.order[1:].tolist()):
            used = float((demand.weight * (1.0 - missed[:, broker])).sum())  # `@` adds in an order of the machine's own
            link = tree.parent_link[broker]
            utilisation[link] += demand.rate_per_s * demand.size_kb * overlay.slowness_mean_s_per_kb[link] * used
            missed[:, tree.parent[broker]] *= missed[:, broker]
    return frozen(utilisation, np.float64)


def balance_routes(
    overlay: Overlay,
    demands: Sequence[Demand],
    *,
    max_stretch: float | None = None,
    keep_below_utilisation: float = 0.0,
    max_sweeps: int = DEFAULT_MAX_SWEEPS,
    tolerance: float = DEFAULT_TOLERANCE,
) -> BalancedRoutes:
    """Routes for these demands that minimise the sum over links of utilisation cubed."""
    if max_stretch is not None and not max_stretch >= 1:
        raise InputError(f"max_stretch is {max_stretch}: a path cannot be shorter than the shortest, give at least 1")
    shortest = tuple(_shortest_tree(overlay, demand) for demand in demands)
    before = link_utilisations(overlay, shortest, demands)
    trees, moves, sweeps, settled = shortest, 0, 0, True
    if before.max(initial=0.0) >= keep_below_utilisation * (1 - _ROUNDING):
        stretch = np.inf if max_stretch is None else max_stretch
        trees, moves, sweeps, settled = _descend(overlay, demands, shortest, before, stretch, max_sweeps, tolerance)
    after = link_utilisations(overlay, trees, demands)
    return BalancedRoutes(
        trees=trees,
        utilisation=after,
        objective=_objective(after),
        shortest_utilisation=before,
        shortest_objective=_objective(before),
        moves=moves,
        sweeps=sweeps,
        settled=settled,
    )


def _objective(utilisation: FloatArray) -> float:
    return float((utilisation**3).sum())


def _shortest_tree(overlay: Overlay, demand: Demand) -> Tree:
    if demand.interest.shape[1] != overlay.broker_count:
        raise InputError(
            f"the demand at broker {demand.broker} is for {demand.interest.shape[1]} brokers, "
            f"the overlay has {overlay.broker_count}"
        )
    tree = shortest_path_tree(overlay, demand.broker, destinations=())
    require_reached(overlay, tree, demand.destinations)
    return tree


def _descend(
    overlay: Overlay,
    demands: Sequence[Demand],
    shortest: Sequence[Tree],
    before: FloatArray,
    stretch: float,
    max_sweeps: int,
    tolerance: float,
) -> tuple[tuple[Tree, ...], int, int, bool]:
    utilisation = before.copy()
    searches = [_search(overlay, d, tree, stretch, utilisation) for d, tree in zip(demands, shortest, strict=True)]
    moves = sweeps = 0
    settled = False
    while sweeps < max_sweeps and not settled:
        sweeps += 1
        objective = _objective(utilisation)
        moved = sum(improve_tree(search) for search in searches)
        moves += moved
        settled = moved == 0 or objective - _objective(utilisation) < tolerance * objective
    trees = tuple(tree_of_parents(overlay, d.broker, s.parent) for d, s in zip(demands, searches, strict=True))
    return trees, moves, sweeps, settled


def _search(overlay: Overlay, demand: Demand, tree: Tree, stretch: float, utilisation: FloatArray) -> Search:
    bound = np.full(overlay.broker_count, np.inf)
    if stretch < np.inf:  # infinity times a path of slowness 0 is no number
        bound = stretch * root_figures(overlay, tree).mean_s_per_kb * (1 + _ROUNDING)
    return Search(
        members=tree.order,
        parent=tree.parent.copy(),
        parent_link=tree.parent_link.copy(),
        utilisation=utilisation,
        in_offsets=overlay.in_offsets,
        in_links=overlay.in_links,
        source=overlay.source,
        slowness=overlay.slowness_mean_s_per_kb,
        load=frozen(demand.rate_per_s * demand.size_kb * overlay.slowness_mean_s_per_kb, np.float64),
        bound=frozen(bound, np.float64),
        mass=_masses(demand),
        weight=demand.weight,
    )


def _masses(demand: Demand) -> FloatArray:
    """-ln(1 - probability) per [broker, class]: masses of a subtree add up; beyond `CERTAIN` a match is certain."""
    with np.errstate(divide="ignore"):
        mass = -np.log1p(-demand.interest.T)
    return frozen(np.minimum(mass, CERTAIN), np.float64)
