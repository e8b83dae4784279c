"""Scatter plots of predicted against actual reliability, as in paper B, Figures 4 to 6: one point per subscriber."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_scatter"]

Pairs = tuple[NDArray[np.float64], NDArray[np.float64]]
_COLUMNS = 3
_PANEL_IN = 3.2


def draw_scatter(panels: Mapping[str, Pairs], path: Path, *, title: str = "") -> None:
    """One panel for each pair of arrays (predicted, actual), by heading; the format follows the file's name."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(_PANEL_IN * columns + 0.4, _PANEL_IN * rows + 0.5), layout="constrained")
    for number, (heading, (predicted, actual)) in enumerate(panels.items()):
        axes: Any = figure.add_subplot(rows, columns, number + 1)
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        axes.scatter(predicted, actual, s=8, alpha=0.5, linewidths=0)
        error = float(np.abs(predicted - actual).mean()) if len(predicted) else 0.0
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel="predicted", ylabel="actual")
        axes.set_title(f"{heading}, mean error {error:.3f}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)
