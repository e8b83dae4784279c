"""What moving a reader means for itself, and for the traffic: how far it is from what it reads, before and after.

`reach` is the path of a publisher's events to every broker; `chance_on_time` the chance that a delivery there meets its
deadline, by the same distribution as `on_time_shares`; `saved_in_turn` what brokers need not handle, move after move:
where several readers at one broker want the same events, only the last to leave saves anything, and all together do.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tidings.placement._on_time import _below
from tidings.placement._readers import Reader, Source, _count, _Traffic
from tidings.placement._times import Scatter, Times
from tidings.routing import Overlay, Tree

__all__ = ["chance_on_time", "reach", "saved_in_turn"]

Floats = NDArray[np.float64]


def reach(overlay: Overlay, times: Times, tree: Tree, ping_ns: float = 0.0) -> Scatter:
    """By broker: from departure at the publisher, whose home is the tree's root, to a client of that broker.

    A broker that is not in the tree has no time: infinite.
    """
    onward = times.onward(overlay)
    found = Scatter(*(np.full(overlay.broker_count, np.inf) for _ in range(3)))
    for figures, start in zip(found, (ping_ns, ping_ns, 0.0), strict=True):
        figures[tree.root] = start
    for broker in tree.order[1:].tolist():
        above, link = tree.parent[broker], tree.parent_link[broker]
        for figures, step in zip(found, onward, strict=True):
            figures[broker] = figures[above] + step[link]
    return Scatter(
        found.mean_ns + times.to_client.mean_ns,
        np.minimum(found.least_ns, found.mean_ns),
        found.variance_ns2 + times.to_client.variance_ns2,
    )


def chance_on_time(path: Scatter, broker: int, deadline_ns: Floats) -> Floats:
    """For each deadline the chance that a delivery at this broker takes less."""
    if not np.isfinite(path.mean_ns[broker]):
        return np.zeros(len(deadline_ns))
    here = (np.array([figures[broker]]) for figures in path)
    return _below(np.asarray(deadline_ns, np.float64)[:, None], *here)[:, 0]


def saved_in_turn(
    sources: Sequence[Source], readers: Sequence[Reader], targets: Sequence[int]
) -> Iterator[tuple[int, Floats]]:
    """For each reader that moves: its number, and by how many events a second each broker handles more after it."""
    traffic = _Traffic(sources, readers, None)
    for number, (reader, target) in enumerate(zip(readers, targets, strict=True)):
        if target == reader.broker:
            continue
        change = np.zeros(len(traffic.rate))
        for stream, flags in reader.matches.items():
            parent = sources[stream].tree.parent
            _count(traffic.behind[stream], parent, reader.broker, flags, -1)
            change += traffic._change(stream, flags, reader.broker, target)
            _count(traffic.behind[stream], parent, target, flags, 1)
        yield number, change
