"""What each subscription receives of each publisher, block by block, as streams that `ordering` replays.

Kept are the publications that an event still to arrive may name: those that are under way, the ones before them that
their records reach back to, and what is published next. A stream begins with the first arrival, and keeps its number
in the order of (publisher, subscription).
"""

from typing import Final, NamedTuple

import numpy as np

from tidings.ordering import FALSE_MATCHES, Policy, Streams, draw_names, sparse_draws_between
from tidings.simulation._layout import NEVER_NS, Array
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._publications import Chunk

__all__ = ["Received", "Taken"]

SHARING: Final = 256
"""The publishers that a subscription learns from together; of more, so many at a time."""

PUBLISHED: Final = np.dtype([(name, np.int64) for name in ("publisher", "sequence", "time", "lifetime")])
WANTED: Final = np.dtype([(name, np.int64) for name in ("publisher", "sequence", "subscription")])


class Taken(NamedTuple):
    """A block as streams; row i of these is row order[i] of the block. Times are by row of the block."""

    streams: Streams
    order: Array
    published_ns: Array
    deadline_ns: Array


class Received:
    """All streams of a run; `streams` counts them, `rows` is how many publications and matches are kept."""

    def __init__(self, plan: SimulationPlan, policy: Policy) -> None:
        self._plan, self._record = plan, policy.record
        self._published = np.zeros(0, PUBLISHED)
        self._wanted = np.zeros(0, WANTED)
        self._stream = np.zeros(0, np.int64)  # publisher * subscriptions + subscription, sorted
        self._receiver = np.zeros(0, np.int64)
        self._draws = np.zeros(0, np.uint64)
        self._drawn = np.zeros(0, np.float64)
        self._first = np.zeros(len(plan.publishers), np.int64)  # the first publication of each publisher that is kept

    @property
    def streams(self) -> int:
        return len(self._stream)

    @property
    def rows(self) -> int:
        return len(self._published) + len(self._wanted)

    def publish(self, chunk: Chunk) -> None:
        """The events of a chunk, before any of them arrives."""
        events = chunk.events
        published = np.zeros(len(events), PUBLISHED)
        for name in PUBLISHED.names or ():
            published[name] = events[name]
        self._published = np.concatenate([self._published, published])
        if self._record:
            row = np.repeat(np.arange(len(events)), events["count"])
            within = np.arange(row.size) - np.repeat(np.cumsum(events["count"]) - events["count"], events["count"])
            wanted = np.zeros(row.size, WANTED)
            wanted["publisher"], wanted["sequence"] = events["publisher"][row], events["sequence"][row]
            wanted["subscription"] = chunk.matches[events["first"][row] + within]
            self._wanted = np.concatenate([self._wanted, wanted])

    def insert(self, block: Array) -> tuple[Array, Array]:
        """Number the streams and receivers that begin in this block: before which of the old ones they stand."""
        found = np.setdiff1d(self._keys(block), self._stream)
        places = np.searchsorted(self._stream, found)
        publisher, subscription = np.divmod(found, self._subscriptions)
        self._stream = np.insert(self._stream, places, found)
        names = draw_names(publisher, subscription, self._plan.network.seed)
        self._draws, self._drawn = np.insert(self._draws, places, names), np.insert(self._drawn, places, -1.0)
        receivers = np.unique(self._receivers(found))
        receivers = receivers[~np.isin(receivers, self._receiver)]
        receiver_places = np.searchsorted(self._receiver, receivers)
        self._receiver = np.insert(self._receiver, receiver_places, receivers)
        return places, receiver_places

    def taken(self, block: Array) -> Taken:
        """The rows of a block in their streams, by arrival and at the same instant by number."""
        published = self._published[np.argsort(self._published["publisher"], kind="stable")]
        starts = np.searchsorted(published["publisher"], np.arange(len(self._first)))
        event = starts[block["publisher"]] + block["sequence"] - self._first[block["publisher"]]
        departure_ns = np.ascontiguousarray(published["time"])
        published_ns = departure_ns[event]
        allowed_ns = np.minimum(
            published["lifetime"][event], self._plan.subscriptions["allowed"][block["subscription"]]
        )
        # Who has no deadline is allowed more than a sum can hold.
        deadline_ns = published_ns + np.minimum(allowed_ns, NEVER_NS - published_ns)
        # Before the deadline, strictly; what is late already has nothing to lose by being held.
        until_ns = np.where(block["arrived"] < deadline_ns, deadline_ns - 1, NEVER_NS)
        key, number = self._keys(block), block["sequence"]
        order = np.lexsort((number, block["arrived"], key))
        publisher = self._stream // self._subscriptions
        wanted_starts, wanted = self._wanted_by_stream(publisher)
        streams = Streams(
            starts=np.append(np.searchsorted(key[order], self._stream), len(order)).astype(np.int64),
            sequence=number[order],
            departure_ns=published_ns[order],
            previous_departure_ns=departure_ns[(event - (number > 0))[order]],
            arrival_ns=block["arrived"][order],
            table_starts=starts[publisher],
            table_departure_ns=departure_ns,
            wanted_starts=wanted_starts,
            wanted=wanted,
            until_ns=until_ns[order],
            receiver=np.searchsorted(self._receiver, self._receivers(self._stream)),
            table_first=self._first[publisher],
        )
        return Taken(streams, order, published_ns, deadline_ns)

    def forget(self, now_ns: int, events: Array, rest: Array) -> None:
        """Drop what no event names that is under way, has arrived and was not taken, or is published from now on."""
        past, first = self._published[self._published["time"] < now_ns], self._first.copy()
        np.maximum.at(first, past["publisher"], past["sequence"] + 1)
        for some in (events[events["copies"] > 0], rest):
            np.minimum.at(first, some["publisher"], some["sequence"])
        self._first = np.maximum(self._first, first - max(self._record, 1))
        self._published, self._wanted = (
            rows[rows["sequence"] >= self._first[rows["publisher"]]] for rows in (self._published, self._wanted)
        )

    def _wanted_by_stream(self, publisher: Array) -> tuple[Array, Array]:
        """The numbers that summaries match: what is wanted, and what is taken for it by mistake."""
        count = len(self._stream)
        if not self._record:
            return np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
        key = self._keys(self._wanted)
        stream = np.searchsorted(self._stream, key)
        is_known = stream < count
        is_known[is_known] = self._stream[stream[is_known]] == key[is_known]
        last = self._first.copy()
        np.maximum.at(last, self._published["publisher"], self._published["sequence"] + 1)
        starts, mistaken = sparse_draws_between(
            self._draws, self._drawn, self._first[publisher], last[publisher], np.log1p(-FALSE_MATCHES)
        )
        owner = np.concatenate([stream[is_known], np.repeat(np.arange(count), np.diff(starts))])
        number = np.concatenate([self._wanted["sequence"][is_known], mistaken])
        order = np.argsort(owner, kind="stable")
        return np.searchsorted(owner[order], np.arange(count + 1)).astype(np.int64), number[order]

    @property
    def _subscriptions(self) -> int:
        return max(1, len(self._plan.subscriptions))

    def _keys(self, rows: Array) -> Array:
        return np.asarray(rows["publisher"] * self._subscriptions + rows["subscription"])

    def _receivers(self, stream: Array) -> Array:
        """By subscription, then by the publishers that it learns from together."""
        publisher, subscription = np.divmod(stream, self._subscriptions)
        return np.asarray(subscription * (len(self._first) // SHARING + 1) + publisher // SHARING)
