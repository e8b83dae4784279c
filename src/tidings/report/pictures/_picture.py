"""A picture of the overlay: brokers where the map puts them, or laid out by their layers, their tree or their graph.

Brokers with publishers are orange, others grow with their subscribers; links are coloured by the mean time that an
event of mean size takes over them. The same network gives the same bytes: no clock, no random layout without a seed.
"""

import math
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.errors import InputError
from tidings.model.scenario import Network
from tidings.model.topology import Link, Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INK", "LABELS_MAX", "PUBLISHER", "Positions", "check_format", "draw", "plain", "positions_of"]

FORMATS = (".svg", ".png")
LABELS_MAX = 70
PUBLISHER, _BROKER, INK = "#e07a1f", "#2f6f9f", "#26323b"
_QUICK_TO_SLOW = ("#a9c8dc", "#4b8ab8", "#6a4c93", "#8f1d46")
_LAYOUT_SEED = 1

Positions = dict[str, tuple[float, float]]


def check_format(path: Path) -> None:
    """Refuse a picture that could not be written, before any work is done."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: the name of a picture ends in {' or '.join(FORMATS)}, for example {path.stem}.svg")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}; create it, or write the picture elsewhere")


def draw(network: Network, path: Path) -> None:
    """Draw the overlay to an SVG or PNG file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "tidings", "font.family": "DejaVu Sans", "font.size": 8}):
        figure = Figure(figsize=(10, 7), layout="constrained")
        axes = figure.add_subplot()
        positions, is_map = positions_of(network.topology)
        _draw_links(axes, network, positions)
        _draw_brokers(axes, network, positions)
        axes.set_title(_title(network), loc="left", color=INK, fontsize=11)
        axes.set_axis_off()
        axes.margins(0.06)
        if is_map:
            latitude = sum(y for _, y in positions.values()) / len(positions)
            axes.set_aspect(1 / max(0.1, math.cos(math.radians(latitude))))
        try:
            metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
            figure.savefig(path, format=path.suffix[1:].lower(), dpi=150, metadata=metadata)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _title(network: Network) -> str:
    brokers, clients = len(network.topology.brokers), len(network.subscriptions)
    counts = f"{brokers:,} brokers, {len(network.publishers):,} publishers, {clients:,} subscriptions"
    return f"{network.title}\n{counts}" if network.title else counts


def _draw_links(axes: "Axes", network: Network, positions: Positions) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    size_kb = _mean_size_kb(network)
    slowest_s: dict[frozenset[str], float] = {}
    for link in network.topology.links:
        ends = frozenset((link.source, link.target))
        slowest_s[ends] = max(slowest_s.get(ends, 0.0), _transit_s(link, size_kb))
    segments = [[positions[name] for name in sorted(ends)] for ends in slowest_s]
    unit, scale = ("s", 1.0) if max(slowest_s.values(), default=0.0) >= 1 else ("ms", 1000.0)
    transits = [scale * transit_s for transit_s in slowest_s.values()]
    width = 1.6 if len(segments) <= 200 else 0.7
    if len({round(transit, 9) for transit in transits}) <= 1:
        axes.add_collection(LineCollection(segments, colors="#9aa7b0", linewidths=width, zorder=1))
        return
    colours = LinearSegmentedColormap.from_list("transit", _QUICK_TO_SLOW)
    lines = LineCollection(segments, array=transits, cmap=colours, linewidths=width, zorder=1)
    axes.add_collection(lines)
    bar = axes.figure.colorbar(lines, ax=axes, shrink=0.5, aspect=30, pad=0.01)
    bar.set_label(f"mean transit of an event, {unit}")
    bar.outline.set_visible(False)


def _draw_brokers(axes: "Axes", network: Network, positions: Positions) -> None:
    from matplotlib.patheffects import withStroke

    names = [broker.name for broker in network.topology.brokers]
    homes = network.homes
    listening = Counter(homes[subscription.subscriber] for subscription in network.subscriptions)
    publishing = {publisher.broker for publisher in network.publishers}
    most = max(listening.values(), default=1)
    base = 90.0 if len(names) <= LABELS_MAX else 14.0
    area = {name: base * (0.5 + 1.5 * listening[name] / most) for name in names}
    for label, colour, members in (
        ("broker", _BROKER, [name for name in names if name not in publishing]),
        ("broker with publishers", PUBLISHER, [name for name in names if name in publishing]),
    ):
        if members:
            x, y = zip(*(positions[name] for name in members), strict=True)
            sizes = [area[name] for name in members]
            axes.scatter(x, y, s=sizes, c=colour, edgecolors="white", linewidths=0.9, zorder=3, label=label)
    if len(names) <= LABELS_MAX:
        for name in names:
            offset = (0, 3 + math.sqrt(area[name]) / 2)
            style: dict[str, Any] = {"ha": "center", "va": "bottom", "color": INK, "fontsize": 7, "zorder": 4}
            text = axes.annotate(plain(name), positions[name], offset, textcoords="offset points", **style)
            text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
    if publishing or listening:
        axes.scatter([], [], c="none", label="(larger: more subscriptions)")
        legend = axes.figure.legend(loc="outside lower left", frameon=False, fontsize=8, ncols=3)
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([45.0])


def plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would take a pair of dollars for mathematics


def _mean_size_kb(network: Network) -> float:
    rates = [publisher.rate_per_s for publisher in network.publishers]
    sizes = [publisher.rate_per_s * publisher.size_kb.mean() for publisher in network.publishers]
    return sum(sizes) / sum(rates) if rates else 1.0


def _transit_s(link: Link, size_kb: float) -> float:
    transfer_s = 0.0 if link.slowness is None else size_kb * link.slowness.mean()
    return link.propagation.mean() + transfer_s


def positions_of(topology: Topology) -> tuple[Positions, bool]:
    """Where each broker is drawn, and whether that is on a map."""
    mapped = {broker.name: broker.position for broker in topology.brokers if broker.position is not None}
    if len(mapped) == len(topology.brokers):
        return mapped, True
    if all(broker.layer is not None for broker in topology.brokers):
        return _by_layer(topology), False
    joined = {frozenset((link.source, link.target)) for link in topology.links}
    if len(joined) == len(topology.brokers) - 1:
        return _radial(topology), False
    import networkx

    graph = topology.to_networkx().to_undirected()
    if len(topology.brokers) <= 300:
        found = networkx.kamada_kawai_layout(graph)
    else:
        found = networkx.spring_layout(graph, seed=_LAYOUT_SEED, iterations=60)
    return {name: (float(x), float(y)) for name, (x, y) in found.items()}, False


def _by_layer(topology: Topology) -> Positions:
    rows: dict[int, list[str]] = {}
    for broker in topology.brokers:
        rows.setdefault(broker.layer or 0, []).append(broker.name)
    return {
        name: ((number + 0.5) / len(row), -float(layer))
        for layer, row in rows.items()
        for number, name in enumerate(row)
    }


def _radial(topology: Topology) -> Positions:
    """A tree around its first broker: each subtree gets an angle in proportion to its leaves."""
    joined: dict[str, list[str]] = {broker.name: [] for broker in topology.brokers}
    for link in topology.links:
        if link.target not in joined[link.source]:
            joined[link.source].append(link.target)
            joined[link.target].append(link.source)
    root = topology.brokers[0].name
    parent: dict[str, str | None] = {root: None}
    order = deque([root])
    depth = {root: 0}
    reached = []
    while order:
        name = order.popleft()
        reached.append(name)
        for child in joined[name]:
            if child not in parent:
                parent[child], depth[child] = name, depth[name] + 1
                order.append(child)
    leaves = dict.fromkeys(joined, 0)
    for name in reversed(reached):
        leaves[name] = max(1, leaves[name])
        above = parent[name]
        if above is not None:
            leaves[above] += leaves[name]
    begin = {root: 0.0}
    positions: Positions = {}
    for name in reached:
        angle = math.tau * (begin[name] + leaves[name] / 2) / leaves[root]
        positions[name] = (depth[name] * math.cos(angle), depth[name] * math.sin(angle))
        at = begin[name]
        for child in joined[name]:
            if parent[child] == name:
                begin[child] = at
                at += leaves[child]
    return positions
