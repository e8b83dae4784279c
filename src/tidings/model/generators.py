"""Generated topologies: trees, random graphs, the layered mesh of paper C, and real networks from topohub.

Every generator returns a `Topology` of free links (no propagation delay, no transfer time, no loss), except that a real
network has its lengths and the delays that follow from them; `Topology.map` gives links and brokers their behaviour.
Connections have both directions by default: two links each, in the order they were drawn. Random generators use only
the given NumPy Generator, so the same state gives the same topology.
"""

import difflib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from tidings.errors import ConfigurationError
from tidings.model.topology import Broker, Link, Topology

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "FIBRE_REFRACTIVE_INDEX",
    "balanced_tree",
    "layered_mesh",
    "length_delay_s",
    "random_graph",
    "random_tree",
    "topohub_names",
    "topohub_network",
]

_LIGHT_KM_PER_S = 299_792.458
FIBRE_REFRACTIVE_INDEX = _LIGHT_KM_PER_S / 200_000.0
"""The refractive index of fibre: signals travel at 200,000 km/s."""

BROKERS_MAX = 100_000
"""The most brokers of a generated topology: far more than anybody simulates, far fewer than would fill the memory."""


def length_delay_s(length_km: float, *, refractive_index: float = FIBRE_REFRACTIVE_INDEX) -> float:
    """The propagation delay of a fibre of this length."""
    return length_km * refractive_index / _LIGHT_KM_PER_S


def balanced_tree(*, branching: int, depth: int) -> Topology:
    """Every broker above the last level has `branching` children; the root is level 0, the leaves are level `depth`."""
    _at_least("branching", branching, 1)
    _at_least("depth", depth, 0)
    count = width = 1
    for _ in range(depth):  # level by level, so that an absurd depth is refused early
        width *= branching
        count += width
        _bounded(count)
    return _undirected(_numbered(count), [((child - 1) // branching, child) for child in range(1, count)])


def random_tree(*, brokers: int, generator: "np.random.Generator", max_degree: int | None = None) -> Topology:
    """A random recursive tree: each broker joins an earlier one that has fewer than `max_degree` neighbours."""
    _at_least("brokers", brokers, 1)
    _bounded(brokers)
    if max_degree is not None:
        _at_least("max_degree", max_degree, 2)
    open_brokers = [0]
    degree = [0] * brokers
    pairs = []
    for child in range(1, brokers):
        chosen = int(generator.integers(len(open_brokers)))
        parent = open_brokers[chosen]
        pairs.append((parent, child))
        degree[parent] += 1
        degree[child] = 1
        if degree[parent] == max_degree:
            open_brokers[chosen] = open_brokers[-1]
            open_brokers.pop()
        open_brokers.append(child)
    return _undirected(_numbered(brokers), pairs)


def random_graph(*, brokers: int, mean_degree: float, generator: "np.random.Generator") -> Topology:
    """A connected random graph: a uniformly random tree, and then uniformly random connections up to the mean degree.

    The number of connections is `brokers * mean_degree / 2`, rounded.
    """
    _at_least("brokers", brokers, 1)
    _bounded(brokers)
    pairs_max = brokers * (brokers - 1) // 2
    wanted = round(brokers * mean_degree / 2)
    if not brokers - 1 <= wanted <= pairs_max:
        least = 2 * (brokers - 1) / brokers
        raise ConfigurationError(
            f"a connected graph of {brokers} brokers cannot have mean degree {mean_degree:g}; "
            f"give mean_degree from {least:.4g} to {brokers - 1}"
        )
    pairs = _random_tree_pairs(brokers, generator)
    present = {_ordered(pair) for pair in pairs}
    missing = wanted - len(pairs)
    if wanted > pairs_max // 2:
        absent = [(a, b) for a in range(brokers) for b in range(a + 1, brokers) if (a, b) not in present]
        chosen = generator.permutation(len(absent))[:missing]
        pairs.extend(absent[number] for number in chosen.tolist())
        return _undirected(_numbered(brokers), pairs)
    # At most half of all pairs are taken, so a draw is new with probability at least one half.
    while len(pairs) < wanted:
        a, b = generator.integers(brokers, size=2).tolist()
        pair = _ordered((a, b))
        if a != b and pair not in present:
            present.add(pair)
            pairs.append(pair)
    return _undirected(_numbered(brokers), pairs)


def layered_mesh(
    *,
    generator: "np.random.Generator",
    layers: Sequence[int] = (4, 4, 8, 16),
    fan_in: Sequence[int | Literal["all"]] = ("all", 2, 2),
    direction: Literal["downstream", "both"] = "downstream",
) -> Topology:
    """The mesh of paper C, section 6.1: each broker of a layer is joined to `fan_in` random brokers of the layer above.

    `fan_in` has one entry for each layer below the first. A disconnected draw is repeated.
    """
    if not layers:
        raise ConfigurationError("a layered mesh has at least one layer; write layers = [4, 4, 8, 16]")
    for size in layers:
        _at_least("each of layers", size, 1)
    _bounded(sum(layers))
    if len(fan_in) != len(layers) - 1:
        raise ConfigurationError(
            f"{len(layers)} layers need {len(layers) - 1} values of fan_in (one for each layer below the first), "
            f"not {len(fan_in)}"
        )
    taken = [above if wanted == "all" else wanted for above, wanted in zip(layers, fan_in, strict=False)]
    for number, (above, wanted) in enumerate(zip(layers, taken, strict=False), start=2):
        if not 1 <= wanted <= above:
            raise ConfigurationError(
                f"layer {number} takes {wanted} links from the {above} brokers above it; "
                f'give a fan_in from 1 to {above}, or "all"'
            )
    for _ in range(_MESH_DRAWS_MAX):
        pairs = _mesh_pairs(layers, taken, generator)
        if _connected(sum(layers), pairs):
            break
    else:
        raise ConfigurationError(
            f"layers {list(layers)} with fan_in {list(fan_in)} came out disconnected {_MESH_DRAWS_MAX} times; "
            "give a larger fan_in"
        )
    brokers = [
        Broker(name=f"l{layer}b{number}", layer=layer)
        for layer, size in enumerate(layers, start=1)
        for number in range(1, size + 1)
    ]
    if direction == "both":
        return _undirected(brokers, pairs)
    return Topology(brokers=tuple(brokers), links=tuple(_free(brokers, a, b) for a, b in pairs))


_MESH_DRAWS_MAX = 1_000


@cache
def topohub_names() -> tuple[str, ...]:
    """Every network in the installed topohub, as `group/name`, sorted."""
    root = resources.files("topohub") / "data"
    return tuple(sorted(_json_files(root, "")))


def topohub_network(name: str, *, refractive_index: float = FIBRE_REFRACTIVE_INDEX) -> Topology:
    """A real network: positions from the map, lengths in km, and propagation delays that follow from the lengths."""
    from tidings.model.distributions import Deterministic

    if name not in topohub_names():
        close = difflib.get_close_matches(name, topohub_names(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else "for example 'sndlib/germany50'"
        raise ConfigurationError(f"topohub has no network {name!r}; {hint}")
    if not refractive_index >= 1:
        raise ConfigurationError(
            f"refractive_index is {refractive_index:g}, but signals are not faster than light: give 1 or more"
        )
    path = resources.files("topohub") / "data" / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    names = _unique_names(document["nodes"])
    brokers = [
        Broker(name=names[node["id"]], position=(float(node["pos"][0]), float(node["pos"][1])))
        for node in document["nodes"]
    ]
    links = []
    for edge in document["edges"]:
        length_km = float(edge["dist"])
        delay = Deterministic(value=length_delay_s(length_km, refractive_index=refractive_index))
        ends = names[edge["source"]], names[edge["target"]]
        for source, target in (ends, ends[::-1]):
            links.append(Link(source=source, target=target, propagation=delay, length_km=length_km))
    return Topology(brokers=tuple(brokers), links=tuple(links))


def _json_files(folder: Any, prefix: str) -> Iterable[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _json_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".json"):
            yield prefix + entry.name.removesuffix(".json")


def _unique_names(nodes: list[dict[str, Any]]) -> dict[int, str]:
    """Names of places; places without a name, or with a name that others have, get the number of the node."""
    seen: dict[str, int] = {}
    for node in nodes:
        if node.get("name"):
            seen[node["name"]] = seen.get(node["name"], 0) + 1
    names = {}
    for node in nodes:
        name = node.get("name") or "node"
        names[node["id"]] = name if seen.get(name) == 1 else f"{name}-{node['id']}"
    return names


def _random_tree_pairs(brokers: int, generator: "np.random.Generator") -> list[tuple[int, int]]:
    """A labelled tree, each equally likely: the first entries of a random walk on the complete graph (Aldous 1990).

    In random order, each broker joins the one before it, or one of those earlier where the walk went back to it first.
    """
    order = generator.permutation(brokers).tolist()
    stops = generator.integers(brokers, size=brokers).tolist()
    return [(order[min(stops[number], number - 1)], order[number]) for number in range(1, brokers)]


def _mesh_pairs(
    layers: Sequence[int], fan_in: Sequence[int], generator: "np.random.Generator"
) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    first_above = 0
    for above, size, wanted in zip(layers, layers[1:], fan_in, strict=False):
        first = first_above + above
        for number in range(size):
            parents = sorted(generator.choice(above, size=wanted, replace=False).tolist())
            pairs.extend((first_above + parent, first + number) for parent in parents)
        first_above = first
    return pairs


def _connected(count: int, pairs: Iterable[tuple[int, int]]) -> bool:
    parts = count
    root = list(range(count))

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    for a, b in pairs:
        one, other = find(a), find(b)
        if one != other:
            root[one] = other
            parts -= 1
    return parts == 1


def _numbered(count: int) -> list[Broker]:
    return [Broker(name=f"b{number}") for number in range(1, count + 1)]


def _undirected(brokers: Sequence[Broker], pairs: Iterable[tuple[int, int]]) -> Topology:
    links = [_free(brokers, *ends) for a, b in pairs for ends in ((a, b), (b, a))]
    return Topology(brokers=tuple(brokers), links=tuple(links))


def _free(brokers: Sequence[Broker], source: int, target: int) -> Link:
    from tidings.model.distributions import Deterministic

    return Link(source=brokers[source].name, target=brokers[target].name, propagation=Deterministic(value=0.0))


def _ordered(pair: tuple[int, int]) -> tuple[int, int]:
    return pair if pair[0] < pair[1] else (pair[1], pair[0])


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigurationError(f"{name} is {value}, but must be at least {least}")


def _bounded(count: int) -> None:
    if count > BROKERS_MAX:
        raise ConfigurationError(f"{count} brokers are too many: at most {BROKERS_MAX:,} can be generated")
