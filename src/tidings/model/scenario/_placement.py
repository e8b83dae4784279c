"""The brokers of the clients of a group: from `at`, `count` and `per_broker` to one broker for each client.

| `at`                             | brokers                                                                    |
| -------------------------------- | -------------------------------------------------------------------------- |
| `"Berlin"`, `["Berlin", "Bonn"]` | those named                                                                |
| `"all"`                          | every broker                                                               |
| `"leaves"`                       | every broker with one neighbour                                            |
| `"layer:4"`                      | every broker of that layer of a layered mesh                               |
| `"random"`, `"random:leaves"`    | each client at a random broker of all (or of the selected ones)  |

Without "random", clients are assigned to the selected brokers in turn, so their numbers differ by at most one.
"""

from typing import TYPE_CHECKING

from tidings.model.documents import Place, closest
from tidings.model.scenario._schema import CLIENTS_MAX, PublisherGroup, SubscriberGroup
from tidings.model.topology import Topology

if TYPE_CHECKING:
    import numpy as np

__all__ = ["place_clients"]

_WORDS = ("all", "leaves", "random")
_NAMES_SHOWN = 12


def place_clients(
    group: PublisherGroup | SubscriberGroup, topology: Topology, place: Place, generator: "np.random.Generator"
) -> list[str]:
    """The home broker of each client of the group, in the order of the clients."""
    here = place / "at"
    at_random = isinstance(group.at, str) and (group.at == "random" or group.at.startswith("random:"))
    selection = group.at
    if isinstance(selection, str) and at_random:
        selection = selection.partition(":")[2] or "all"
    brokers = _selected(selection, topology, here)
    if group.per_broker is not None:
        if at_random:
            (place / "per_broker").fail('"random" places each client separately; write `count` instead')
        if group.per_broker * len(brokers) > CLIENTS_MAX:
            (place / "per_broker").fail(
                f"{group.per_broker} at {len(brokers)} brokers are over {CLIENTS_MAX:,} clients"
            )
        return [broker for broker in brokers for _ in range(group.per_broker)]
    count = 1 if group.count is None else group.count
    if at_random:
        return [brokers[number] for number in generator.integers(len(brokers), size=count).tolist()]
    return [brokers[number % len(brokers)] for number in range(count)]


def _selected(selection: str | tuple[str, ...], topology: Topology, place: Place) -> list[str]:
    names = [broker.name for broker in topology.brokers]
    if not isinstance(selection, str):
        if not selection:
            place.fail('name at least one broker, or write "all"')
        for number, name in enumerate(selection):
            _check_broker(name, names, place / number)
        return list(selection)
    if selection == "all":
        return names
    if selection == "leaves":
        return _leaves(topology, place)
    if selection.startswith("layer:"):
        return _layer(selection, topology, place)
    _check_broker(selection, names, place)
    return [selection]


def _check_broker(name: str, names: list[str], place: Place) -> None:
    if name not in names:
        close = closest(name, [*names, *_WORDS])
        shown = names if len(names) <= _NAMES_SHOWN else [*names[:_NAMES_SHOWN], "..."]
        hint = (
            f"did you mean `{close}`?" if close else f"write all, leaves, random, layer:N or one of {', '.join(shown)}"
        )
        place.fail(f"there is no broker {name!r}; {hint}")


def _leaves(topology: Topology, place: Place) -> list[str]:
    neighbours: dict[str, set[str]] = {broker.name: set() for broker in topology.brokers}
    for link in topology.links:
        neighbours[link.source].add(link.target)
        neighbours[link.target].add(link.source)
    leaves = [name for name, joined in neighbours.items() if len(joined) <= 1]
    if not leaves:
        place.fail('no broker is a leaf (has one neighbour only); write "all", "random" or names')
    return leaves


def _layer(selection: str, topology: Topology, place: Place) -> list[str]:
    layers = sorted({broker.layer for broker in topology.brokers if broker.layer is not None})
    if not layers:
        place.fail('this topology has no layers; only kind = "layered-mesh" has')
    wanted = selection.removeprefix("layer:").strip()
    found = [broker.name for broker in topology.brokers if str(broker.layer) == wanted]
    if not found:
        place.fail(f"there is no layer {wanted!r}; write layer:{layers[0]} to layer:{layers[-1]}")
    return found
