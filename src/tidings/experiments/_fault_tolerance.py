"""Paper D, section 5: predicted against simulated reliability where brokers and links fail.

A case is a topology, a class of brokers, a topic tree and a scheme, on some networks, each run several times with
failures of their own (all schemes see the same). The actual reliability of a subscriber is its mean over the runs, as
in the paper; `mae` is the mean distance of the prediction from it over all subscribers. Twenty cycles of failure and
repair in 14 days say little about an availability, so even a perfect prediction has an error: `noise`, from how far the
runs lie apart (the mean distance of a run from the mean of K runs, times sqrt(K / (K - 1)) / sqrt(K)).

`bias` is the mean of actual - predicted with its own noise as `sd`: what would be left with very many runs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tidings.experiments._claims import Claim
from tidings.experiments._fault_tolerance_costs import cost_claims
from tidings.experiments._fault_tolerance_network import (
    CLASSES,
    SCHEMES,
    TOPOLOGIES,
    TREES,
    Quality,
    TopicTree,
    Topology,
    make_network,
    predict,
    topic_trees,
    with_scheme,
)
from tidings.experiments._processes import worker_processes
from tidings.faults import Scheme
from tidings.simulation import Options, simulate

__all__ = ["Case", "FaultOutcome", "FaultScale", "draw_fault_tolerance", "fault_tolerance"]

FloatArray = NDArray[np.float64]

FIRST_SEED: Final = 501
ORDERS: Final[Mapping[Quality, tuple[Scheme, ...]]] = {
    "low": ("bypass+buffer", "bypass", "buffer", "periodic"),
    "high": ("bypass+buffer", "buffer", "bypass", "periodic"),
}
_PANEL_IN: Final = 4.2
_TIE: Final = 0.002  # "as well as": less apart than this is no order


class FaultScale(NamedTuple):
    """How much is run: networks for each case, runs of each, their length, and the time between a publisher's events.

    `path_days` is how long the path of the traps is watched.
    """

    networks: int
    runs: int
    days: float
    interval_s: float
    refresh_s: float
    path_days: float

    @classmethod
    def quick(cls) -> "FaultScale":
        """One network and three runs for each case, an event every ten minutes."""
        return cls(networks=1, runs=3, days=14.0, interval_s=600.0, refresh_s=60.0, path_days=700.0)

    @classmethod
    def full(cls) -> "FaultScale":
        """As the paper: ten runs with an event every minute; on ten networks."""
        return cls(networks=10, runs=10, days=14.0, interval_s=60.0, refresh_s=60.0, path_days=7000.0)


class Case(NamedTuple):
    """What is run and compared."""

    topology: Topology
    quality: Quality
    tree: TopicTree
    scheme: Scheme


class FaultOutcome(NamedTuple):
    """One network: the actual reliability by run and subscriber, and the predictions by subscriber."""

    actual: FloatArray
    paper: FloatArray
    ours: FloatArray

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.actual.mean(axis=0))


def fault_tolerance(
    scale: FaultScale, *, progress: Callable[[float], None] | None = None, workers: int | None = None
) -> tuple[list[Claim], dict[Case, list[FaultOutcome]]]:
    """All claims, and the outcomes that they are made of, by case and network."""
    jobs = [
        (topology, quality, FIRST_SEED + network, scale)
        for network in range(scale.networks)
        for topology in TOPOLOGIES
        for quality in CLASSES
    ]
    outcomes: dict[Case, list[FaultOutcome]] = {}
    with worker_processes(workers) as pool:
        costs = pool.submit(cost_claims, scale.path_days)
        for done, found in enumerate(pool.map(_run, jobs)):
            for case, outcome in found.items():
                outcomes.setdefault(case, []).append(outcome)
            if progress is not None:
                progress((done + 1) / (len(jobs) + 1))
        claims = _claims(outcomes) + costs.result()
    return claims, outcomes


def _run(job: tuple[Topology, Quality, int, FaultScale]) -> dict[Case, FaultOutcome]:
    """All schemes and topic trees on one network."""
    topology, quality, seed, scale = job
    network = make_network(topology, quality, seed, days=scale.days, interval_s=scale.interval_s)
    outcomes = {}
    for tree in TREES if topology == "graph" else TREES[:1]:
        trees = topic_trees(network, tree)
        for scheme in SCHEMES:
            chosen = with_scheme(network, scheme, scale.refresh_s)
            actual = []
            for run in range(scale.runs):
                result = simulate(replace(chosen, seed=1000 * seed + run), Options(trees=trees))
                actual.append([each.on_time_reliability for each in result.subscribers.values()])
            outcomes[Case(topology, quality, tree, scheme)] = FaultOutcome(
                actual=np.array(actual, np.float64),
                paper=predict(network, trees, scheme, "paper", refresh_s=scale.refresh_s),
                ours=predict(network, trees, scheme, "ours", refresh_s=scale.refresh_s),
            )
    return outcomes


def _claims(outcomes: Mapping[Case, Sequence[FaultOutcome]]) -> list[Claim]:
    claims = []
    for case, found in outcomes.items():
        if case.tree == TREES[0]:
            claims += _errors(f"{case.topology}.{case.quality}.{case.scheme}", found)
    claims += [_order(quality, outcomes) for quality in CLASSES]
    for case, found in outcomes.items():
        if case.topology == "graph":
            end = f"{case.quality}.{case.tree}.{case.scheme}"
            means = [float(outcome.actual.mean()) for outcome in found]
            claims.append(_claim(f"reliability.graph.{end}", means, note="mean over subscribers and runs"))
    return claims


def _errors(end: str, found: Sequence[FaultOutcome]) -> list[Claim]:
    noise = [_noise(outcome.actual) for outcome in found]
    floor = f"noise floor {np.mean(noise):.4f}"
    claims = [
        _claim(f"mae.{end}", [float(np.abs(each.mean - each.paper).mean()) for each in found], note=floor),
        _claim(f"noise.{end}", noise, note="what the runs differ by"),
        _claim(f"ours.mae.{end}", [float(np.abs(each.mean - each.ours).mean()) for each in found], note=floor),
    ]
    for name in ("paper", "ours"):
        of_runs = np.array([(each.actual - getattr(each, name)).mean(axis=1) for each in found]).ravel()
        error = float(of_runs.std(ddof=1) / np.sqrt(len(of_runs))) if len(of_runs) > 1 else None
        claims.append(
            Claim(
                id=f"{'' if name == 'paper' else 'ours.'}bias.{end}",
                paper=None,
                measured=float(of_runs.mean()),
                unit="reliability",
                sd=error,
                note="actual - predicted; sd is the standard error of the mean",
            )
        )
    return claims


def _noise(actual: FloatArray) -> float:
    """How far the mean over the runs is from the truth, on average over the subscribers."""
    runs = len(actual)
    if runs < 2:
        return float("nan")
    apart = np.abs(actual - actual.mean(axis=0)).mean()
    return float(apart * np.sqrt(runs / (runs - 1)) / np.sqrt(runs))


def _order(quality: Quality, outcomes: Mapping[Case, Sequence[FaultOutcome]]) -> Claim:
    """Whether the schemes come in the order of the paper, on the graph, for both readings of the topic tree."""
    notes, holds = [], []
    for tree in TREES:
        means = {
            scheme: float(np.mean([each.actual.mean() for each in outcomes[Case("graph", quality, tree, scheme)]]))
            for scheme in SCHEMES
        }
        order = ORDERS[quality]
        holds.append(all(means[one] >= means[other] - _TIE for one, other in pairwise(order)))
        ranked = sorted(SCHEMES, key=lambda scheme: -means[scheme])
        notes.append(f"{tree} tree: " + " > ".join(f"{scheme} {means[scheme]:.4f}" for scheme in ranked))
    return Claim(
        id=f"order.{quality}",
        paper=1.0,
        measured=float(holds[0]),
        unit="holds",
        note=f"the paper's order is {' > '.join(ORDERS[quality])}; {'; '.join(notes)}",
    )


def _claim(name: str, values: Sequence[float], *, note: str) -> Claim:
    known = np.array(values)
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    return Claim(id=name, paper=None, measured=float(known.mean()), unit="reliability", sd=sd, note=note)


def draw_fault_tolerance(outcomes: Mapping[Case, Sequence[FaultOutcome]], folder: Path) -> list[Path]:
    """Figure 6 (trees, static schemes) and 7 (graphs, all schemes), as PNG: the paper's model above, ours below."""
    folder.mkdir(parents=True, exist_ok=True)
    trees = {
        "10-broker trees": [Case("tree", quality, "arbitrary", scheme) for quality in CLASSES for scheme in SCHEMES[:2]]
    }
    graphs = {
        f"10-broker graphs, {quality}-end brokers": [Case("graph", quality, "arbitrary", scheme) for scheme in SCHEMES]
        for quality in CLASSES
    }
    written = []
    for number, panels in ((6, trees), (7, graphs)):
        written.append(folder / f"figure-{number}.png")
        _draw(panels, outcomes, f"Figure {number}", written[-1])
    return written


def _draw(
    panels: Mapping[str, Sequence[Case]], outcomes: Mapping[Case, Sequence[FaultOutcome]], title: str, path: Path
) -> None:
    from matplotlib.figure import Figure

    models = ("paper", "ours")
    size = (_PANEL_IN * len(panels) + 0.4, _PANEL_IN * len(models) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    for row, model in enumerate(models):
        for column, (heading, cases) in enumerate(panels.items()):
            axes: Any = figure.add_subplot(len(models), len(panels), row * len(panels) + column + 1)
            least = 1.0
            for case in cases:
                predicted = [value for outcome in outcomes[case] for value in getattr(outcome, model)]
                actual = [value for outcome in outcomes[case] for value in outcome.mean]
                axes.scatter(predicted, actual, s=6, alpha=0.5, linewidths=0, label=f"{case.quality}, {case.scheme}")
                least = min(least, *predicted, *actual)
            axes.plot([least, 1], [least, 1], color="0.6", linewidth=1)
            axes.set(xlabel=f"predicted ({model})", ylabel="actual", aspect="equal")
            axes.set_title(heading, fontsize=9)
            axes.legend(fontsize=7, markerscale=2)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120, metadata={"Software": None})
