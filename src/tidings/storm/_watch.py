"""What is looked at twice a second while a storm lasts: who is connected with whom, and what full stores hold."""

from collections.abc import Iterator, Mapping
from typing import Final

from tidings.protocol import Broker, Client
from tidings.storm._history import Report
from tidings.storm._process import Process

__all__ = ["connections_missing", "leftovers_in_full_stores", "reports", "stores_still_full"]

_EVENT: Final = "event/"
_SECOND: Final = 10**9


def connections_missing(
    graph: Mapping[str, frozenset[str]], brokers: Mapping[str, Broker | None], clients: Mapping[str, Client | None]
) -> list[str]:
    """The pairs that should hear each other, and do not, by what either end knows."""
    found = []
    for name, neighbours in graph.items():
        broker = brokers[name]
        for other in neighbours:
            peer = None if broker is None else broker.neighbours.get(other)
            if peer is None or not peer.is_up:
                found.append(f"{name} with {other}")
        others = set() if broker is None else broker.neighbours.keys() - neighbours
        found += [f"{name} without {other}, which is no neighbour" for other in sorted(others)]
    for name, client in clients.items():
        home = None if client is None else client.home
        broker = None if home is None else brokers.get(home.name)
        peer = None if broker is None else broker.clients.get(name)
        if home is None or not home.is_up or peer is None or not peer.is_up:
            found.append(f"{name} with its home{'' if home is None else ' ' + home.name}")
    return found


def leftovers_in_full_stores(
    brokers: Mapping[str, Process], now_ns: int, erase_ns: int, since_ns: dict[tuple[str, str], int]
) -> Iterator[str]:
    """Events that a broker has let go of, and that take room in its full store; `since_ns` is kept from look to look.

    The time counts while the broker runs, its disk does its work, and the store is full.
    """
    for name, process in brokers.items():
        left = set(_leftovers(process))
        for seen in [seen for seen in since_ns if seen[0] == name and seen[1] not in left]:
            del since_ns[seen]
        for key in sorted(left):
            if now_ns - since_ns.setdefault((name, key), now_ns) > erase_ns:
                yield f"{name} at {now_ns / _SECOND:.1f} s is full of what it does not need any more: {key}"


def _leftovers(process: Process) -> Iterator[str]:
    node, disk = process.node, process.disk
    if node is None or not node.commits.is_full or process.is_paused or disk.is_slow or disk.fails:
        return
    assert isinstance(node.machine, Broker)
    holdings = node.machine.carrier.holdings
    if holdings.unread:
        return
    for key in disk.kept:
        if key.startswith(_EVENT):
            _, epoch, sequence, publisher = key.split("/", 3)
            if (publisher, int(epoch), int(sequence)) not in holdings.held:
                yield key


def stores_still_full(brokers: Mapping[str, Process]) -> list[str]:
    """Brokers that have room, and go on as if they had none."""
    return [
        name
        for name, process in brokers.items()
        if process.node is not None and process.node.is_full and process.disk.limit_bytes is None
    ]


def reports(brokers: Mapping[str, Process], clients: Mapping[str, Process]) -> list[Report]:
    """What homes count for their clients, and what these have told them."""
    found = []
    for name, process in clients.items():
        client = None if process.node is None else process.node.machine
        assert isinstance(client, Client)
        home = None if client.home is None else brokers[client.home.name].node
        broker = None if home is None else home.machine
        peer = broker.clients.get(name) if isinstance(broker, Broker) else None
        if client.home is not None and peer is not None and peer.reported is not None:
            told, shown = peer.reported, peer.outcomes
            counted = ((told.on_time, told.late), (shown.on_time, shown.late))
            home_is = (client.home.name, client.home.epoch)
            found.append(Report(name, process.life, *home_is, *counted, process.life == 1))
    return found
