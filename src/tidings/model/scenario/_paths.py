"""Subscribers that routing over several paths cannot serve ("multi-path" and "literal-table").

A broker's table then names a neighbour for each subscription and no publisher, so an event is forwarded wherever it
came from. That ends only without cycles. An overlay with downstream links only is used unchanged; of any other, only
the links that lead away from the nearest publisher's broker are used. Then no event reaches a subscriber that is nearer
to another publisher: such a network is refused, since it would lose those events.
"""

from collections import deque
from collections.abc import Iterable

from tidings.model.policies import COPYING
from tidings.model.scenario._network import Network
from tidings.model.topology import Topology

__all__ = ["unserved"]


def unserved(network: Network) -> str | None:
    """A publisher and a subscriber that this routing cannot connect, and the remedy; None if it connects all."""
    routing, topology = network.policies.routing, network.topology
    if routing not in COPYING or _runs_downstream(topology):
        return None
    roots = dict.fromkeys(publisher.broker for publisher in network.publishers)
    homes = dict.fromkeys(subscriber.broker for subscriber in network.subscribers)
    hops = _hops(topology, roots)
    for root in roots:
        served = _served(topology, root, hops)
        for home in homes:
            if home not in served and home in topology.reachable(root):
                return (
                    f'"{routing}" cannot carry events from publishers at {root!r} to subscribers at {home!r}: links '
                    "form cycles, so only those that lead away from the nearest publisher can be used; write "
                    'routing = "balanced" or "single-path", put all publishers at one broker, or use links that lead '
                    'downstream only (direction = "forward" in [topology])'
                )
    return None


def _runs_downstream(topology: Topology) -> bool:
    """Whether there is no cycle of links."""
    entering = {broker.name: 0 for broker in topology.brokers}
    for link in topology.links:
        entering[link.target] += 1
    order = [name for name, count in entering.items() if count == 0]
    for name in order:  # grows while it is read, by each broker at most once
        for target in topology.neighbours(name):
            entering[target] -= 1
            if entering[target] == 0:
                order.append(target)
    return len(order) == len(topology.brokers)


def _hops(topology: Topology, roots: Iterable[str]) -> dict[str, int]:
    """From the nearest of the roots to each broker that can be reached."""
    hops = dict.fromkeys(roots, 0)
    waiting = deque(hops)
    while waiting:
        here = waiting.popleft()
        for target in topology.neighbours(here):
            if target not in hops:
                hops[target] = hops[here] + 1
                waiting.append(target)
    return hops


def _served(topology: Topology, root: str, hops: dict[str, int]) -> set[str]:
    """The brokers that events of the root reach over links that lead one hop further from the nearest root."""
    served, waiting = {root}, deque([root])
    while waiting:
        here = waiting.popleft()
        for target in topology.neighbours(here):
            if target not in served and hops[target] > hops[here]:
                served.add(target)
                waiting.append(target)
    return served
