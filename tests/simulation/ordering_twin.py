"""The plain twin of ordering in a run: keep everything, and put it in order when the run has ended."""

import numpy as np

from tidings.model import Network
from tidings.ordering import FALSE_MATCHES, Arrivals, Policy, Publications, Replayed, recorded_streams, replay
from tidings.simulation._layout import DELIVERY, NEVER_NS, PUBLICATION, Array
from tidings.simulation._options import Options
from tidings.simulation._plan import plan
from tidings.simulation._publications import Chunk
from tidings.simulation._run import Run
from tidings.simulation._trace import TraceOutput


class WholeRun(TraceOutput):
    """Keeps publications, matches and arrivals of a run."""

    def __init__(self) -> None:
        self._events, self._arrived = [np.zeros(0, PUBLICATION)], [np.zeros(0, DELIVERY)]
        self._wanted: list[tuple[Array, Array]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        self._count = 0

    def write_publications(self, chunk: Chunk) -> None:
        for row, event in enumerate(chunk.events):
            first, count = int(event["first"]), int(event["count"])
            self._wanted.append((np.full(count, self._count + row), chunk.matches[first : first + count].copy()))
        self._events.append(chunk.events.copy())
        self._count += len(chunk.events)

    def write_hops(self, rows: Array) -> None:
        pass

    def write_transitions(self, rows: Array) -> None:
        pass

    def reached(self, now_ns: int, events: Array) -> None:
        pass

    def write_deliveries(self, rows: Array) -> None:
        self._arrived.append(rows.copy())

    def ordered(self, network: Network, policy: Policy) -> tuple[Array, Array, Replayed]:
        """What arrived, when it was delivered, and what the replay counted."""
        events, arrived = np.concatenate(self._events), np.concatenate(self._arrived)
        published = Publications(
            *(np.ascontiguousarray(events[name]) for name in ("publisher", "sequence", "time")),
            key=np.arange(len(network.publishers), dtype=np.int64),
            wanted_row=np.concatenate([row for row, _ in self._wanted]),
            wanted_by=np.concatenate([by for _, by in self._wanted]),
        )
        columns = (np.ascontiguousarray(arrived[n]) for n in ("publisher", "subscription", "sequence", "arrived"))
        recorded = recorded_streams(published, Arrivals(*columns), false_matches=FALSE_MATCHES, seed=network.seed)
        event = {(int(e["publisher"]), int(e["sequence"])): e for e in events}
        until_ns = []
        for row in arrived[recorded.row]:
            left = event[int(row["publisher"]), int(row["sequence"])]
            max_delay_s = network.subscriptions[int(row["subscription"])].max_delay_s
            allowed_ns = int(left["lifetime"])
            if max_delay_s is not None:
                allowed_ns = min(allowed_ns, round(max_delay_s * 1e9))
            deadline_ns = min(int(left["time"]) + allowed_ns, NEVER_NS)
            until_ns.append(deadline_ns - 1 if row["arrived"] < deadline_ns else NEVER_NS)
        streams = recorded.streams.held_until(np.array(until_ns, np.int64)).shared_by(recorded.subscription)
        replayed = replay(streams, [policy])[policy.name]
        delivered_ns = np.empty(len(arrived), np.int64)
        delivered_ns[recorded.row] = replayed.delivered_ns
        return arrived, delivered_ns, replayed


def order_whole(network: Network) -> tuple[Array, Array, Replayed]:
    """Run a network, and order it as a whole."""
    assert network.policies.ordering is not None
    whole, options = WholeRun(), Options()
    Run(plan(network, options), options, whole, None).go()
    return whole.ordered(network, Policy.parse(network.policies.ordering))
