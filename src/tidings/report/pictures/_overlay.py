"""The overlay before and after a plan: who is where, how busy each broker is, and where publishers move.

Two panels with the same places and the same scale. Brokers are coloured by utilisation; the publishers at a broker are
orange dots around it (a number stands for many); in the second panel an arrow leads from where publishers were to where
they are, the thicker the more of them. The same plan gives the same bytes.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import InputError
from tidings.model.distributions import Deterministic
from tidings.model.topology import Broker, Link, Topology
from tidings.model.units import percent
from tidings.report.pictures._picture import (
    INK,
    LABELS_MAX,
    PUBLISHER,
    Positions,
    check_format,
    plain,
    positions_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidings.pipeline.placement import Placement

__all__ = ["draw_placement"]

DOTS_MAX: Final = 8
"""Up to this many publishers at a broker are drawn as dots; more as a number."""
_COLOURS: Final = ("#dfeaf2", "#7fb0d3", "#3b6ea8", "#6a2c70", "#b0003a")


def draw_placement(placement: "Placement", path: Path) -> None:
    """Draw both to an SVG or PNG file."""
    check_format(path)
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    positions, is_map = positions_of(_topology(placement))
    most = max(float(placement.utilisation_now.max()), float(placement.utilisation_then.max()), 1e-9)
    colours = ScalarMappable(Normalize(0.0, most), LinearSegmentedColormap.from_list("utilisation", _COLOURS))
    with mpl.rc_context({"svg.hashsalt": "tidings", "font.family": "DejaVu Sans", "font.size": 8}):
        figure = Figure(figsize=(16, 8), layout=ConstrainedLayoutEngine(h_pad=0.25))
        panels = figure.subplots(1, 2)
        moves = {ends: count for ends, count in placement.publishers.items() if ends[0] != ends[1]}
        for axes, title, shares, side in zip(
            panels, _titles(placement), (placement.utilisation_now, placement.utilisation_then), (0, 1), strict=True
        ):
            _draw_links(axes, placement, positions)
            _draw_brokers(axes, placement, positions, list(colours.to_rgba(shares)))
            _draw_publishers(axes, placement, positions, side)
            if side:
                _draw_moves(axes, placement, positions, moves)
            axes.set_title(title, loc="left", color=INK, fontsize=11)
            axes.set_axis_off()
            axes.margins(0.08)
            latitude = sum(y for _, y in positions.values()) / len(positions)
            axes.set_aspect(1 / max(0.1, math.cos(math.radians(latitude))) if is_map else "equal")
            for text in axes.texts:
                text.set_in_layout(False)  # they stand by their brokers; to measure them all takes long
        bar = figure.colorbar(colours, ax=panels, shrink=0.5, aspect=30, pad=0.01)
        bar.set_label("utilisation of a broker")
        bar.ax.yaxis.set_major_formatter(lambda share, _: f"{share:.3g}" if most < 0.01 else f"{share:.0%}")
        bar.outline.set_visible(False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        try:
            figure.savefig(path, format=path.suffix[1:].lower(), dpi=130, metadata=metadata)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _topology(placement: "Placement") -> Topology:
    overlay, positions = placement.overlay, placement.positions
    nothing = Deterministic(value=0.0)
    return Topology(
        brokers=tuple(Broker(name=name, position=positions.get(name)) for name in overlay.brokers),
        links=tuple(
            Link(source=overlay.brokers[source], target=overlay.brokers[target], propagation=nothing)
            for source, target in zip(overlay.source.tolist(), overlay.target.tolist(), strict=True)
        ),
    )


def _titles(placement: "Placement") -> tuple[str, str]:
    expected = placement.plan.expected
    titles = []
    for when in ("now", "then"):
        figures = (
            f"{getattr(expected.messages_per_s, when):,.4g} messages/s",
            f"{getattr(expected.delay_ms, when):,.4g} ms",
            f"busiest {percent(getattr(expected.busiest, when))}",
            *([] if expected.on_time is None else [f"{percent(getattr(expected.on_time, when))} on time"]),
        )
        titles.append(f"{'now' if when == 'now' else 'after the plan'}\n{', '.join(figures)}")
    return titles[0], titles[1]


def _draw_links(axes: "Axes", placement: "Placement", positions: Positions) -> None:
    from matplotlib.collections import LineCollection

    names = placement.overlay.brokers
    ends = zip(placement.overlay.source.tolist(), placement.overlay.target.tolist(), strict=True)
    pairs = sorted({(min(pair), max(pair)) for pair in ends})
    segments = [[positions[names[one]], positions[names[other]]] for one, other in pairs]
    axes.add_collection(LineCollection(segments, colors="#b8c2c9", linewidths=1.0, zorder=1))


def _draw_brokers(axes: "Axes", placement: "Placement", positions: Positions, colours: list[Any]) -> None:
    from matplotlib.patheffects import withStroke

    names = placement.overlay.brokers
    x, y = zip(*(positions[name] for name in names), strict=True)
    is_small = len(names) > LABELS_MAX
    axes.scatter(x, y, s=16 if is_small else 110, c=colours, edgecolors=INK, linewidths=0.5, zorder=3)
    if is_small:
        return
    for name in names:
        style: dict[str, Any] = {"ha": "center", "va": "top", "color": INK, "fontsize": 6.5, "zorder": 6}
        text = axes.annotate(plain(name), positions[name], (0, -7), textcoords="offset points", **style)
        text.set_path_effects([withStroke(linewidth=2.0, foreground="white")])


def _draw_publishers(axes: "Axes", placement: "Placement", positions: Positions, side: int) -> None:
    """Dots around each broker, in points so that they keep clear of it at any scale."""
    counts: dict[int, int] = {}
    for ends, count in placement.publishers.items():
        counts[ends[side]] = counts.get(ends[side], 0) + count
    for broker, count in sorted(counts.items()):
        at = positions[placement.overlay.brokers[broker]]
        if count > DOTS_MAX:
            box = {"boxstyle": "round,pad=0.2", "fc": PUBLISHER, "ec": "white"}
            style: dict[str, Any] = {"ha": "center", "va": "bottom", "color": "white", "zorder": 5, "bbox": box}
            axes.annotate(f"{count:,}", at, (0, 8), textcoords="offset points", fontsize=7, **style)
            continue
        for place in range(count):
            angle = math.pi / 2 + (place - (count - 1) / 2) * math.radians(38)
            offset = (10.5 * math.cos(angle), 10.5 * math.sin(angle))
            centred: dict[str, Any] = {"ha": "center", "va": "center", "color": PUBLISHER, "zorder": 5}
            axes.annotate("●", at, offset, textcoords="offset points", fontsize=7, **centred)


def _draw_moves(axes: "Axes", placement: "Placement", positions: Positions, moves: dict[tuple[int, int], int]) -> None:
    most = max(moves.values(), default=1)
    names = placement.overlay.brokers
    for (home, target), count in sorted(moves.items()):
        arrow = {
            "arrowstyle": "-|>",
            "color": PUBLISHER,
            "alpha": 0.75,
            "linewidth": 1.0 + 2.0 * (count - 1) / max(1, most - 1),
            "shrinkA": 7,
            "shrinkB": 8,
            "connectionstyle": "arc3,rad=0.18",
        }
        axes.annotate("", positions[names[target]], positions[names[home]], arrowprops=arrow, zorder=4)
