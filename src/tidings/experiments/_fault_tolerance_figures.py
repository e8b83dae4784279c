"""Figures 6 and 7 of paper D: predicted against actual reliability, a point for each subscriber, a colour a scheme."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidings.experiments._fault_tolerance import Case, FaultOutcome
from tidings.experiments._fault_tolerance_network import CLASSES, SCHEMES

__all__ = ["draw_fault_tolerance"]

_PANEL_IN = 4.2


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
