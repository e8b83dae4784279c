"""What is checked twice a second during a storm: connections, and the contents of full stores."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from tidings.matching import PlainIndex
from tidings.protocol import Broker, Client, EventId, is_address, parsed
from tidings.storm._history import History, Report
from tidings.storm._process import Process

__all__ = ["connections_missing", "leftovers_in_full_stores", "reports", "stores_still_full"]

_EVENT: Final = "event/"
_SECOND: Final = 10**9


def connections_missing(
    graph: Mapping[str, frozenset[str]], brokers: Mapping[str, Broker | None], clients: Mapping[str, Client | None]
) -> list[str]:
    """The pairs that should be connected and are not, according to either end."""
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
    """Events that a broker has released and that still take room in its full store; `since_ns` is kept between checks.

    The time counts while the broker runs, its disk works, and the store is full.
    """
    for name, process in brokers.items():
        left = set(_leftovers(process))
        for seen in [seen for seen in since_ns if seen[0] == name and seen[1] not in left]:
            del since_ns[seen]
        for key in sorted(left):
            if now_ns - since_ns.setdefault((name, key), now_ns) > erase_ns:
                yield f"{name} at {now_ns / _SECOND:.1f} s is full of records that it no longer needs: {key}"


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
    """Brokers that have room and behave as if they had none."""
    return [
        name
        for name, process in brokers.items()
        if process.node is not None
        and process.disk.limit_bytes is None
        and (process.node.is_full or (process.door is not None and process.door.is_full))
    ]


def reports(brokers: Mapping[str, Process], clients: Mapping[str, Process], history: History) -> list[Report]:
    """The homes' accounts of connected clients' subscriptions, beside what is still held for them."""
    owed = _owed(brokers, history)
    found = []
    for name, process in clients.items():
        client = None if process.node is None else process.node.machine
        assert isinstance(client, Client)
        home = None if client.home is None else brokers[client.home.name].node
        broker = None if home is None else home.machine
        if client.home is None or not isinstance(broker, Broker) or name not in broker.clients:
            continue
        for label, account in broker.accounts.balances().items():
            if account.client == name:
                subscription = label[len(name) + 1 :]
                mine = owed[client.home.name, name, subscription]
                here = (client.home.name, client.home.epoch)
                found.append(Report(name, subscription, *here, account.known, frozenset(mine)))
    return found


def _owed(brokers: Mapping[str, Process], history: History) -> dict[tuple[str, str, str], set[EventId]]:
    """By home, client and subscription: the events that any broker or the client holds for it."""
    found: dict[tuple[str, str, str], set[EventId]] = defaultdict(set)
    for event, client, name in history.held:
        for home in brokers:
            found[home, client, name].add(event)
    alike: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for known in history.subscribed.values():
        alike[known.filter].append(known.key)
    wanted: PlainIndex[str] = PlainIndex()
    for text in alike:
        wanted.put(text, parsed(text))
    for process in brokers.values():
        machine = None if process.node is None else process.node.machine
        if not isinstance(machine, Broker):
            continue
        holdings = machine.carrier.holdings
        holdings.read(None, 0)
        for held in holdings.each(lambda _: True):
            for client, names in held.local.items():
                for name in names:
                    found[machine.name, client, name].add(held.id)
            homes = {target for target in held.targets if not is_address(target)}
            for text in wanted.match(history.published[held.id].attributes) if homes else ():
                for home in homes:
                    for client, name in alike[text]:
                        found[home, client, name].add(held.id)
    return found
