"""What is published, in chunks of simulated time, with the subscriptions that each event matches.

Rules:

- A publisher draws from streams of its own (intervals, sizes, lifetimes, attributes, sampling), always a whole block at
  a time. So neither the length of a chunk nor another publisher moves what it publishes.
- Intervals add up in whole nanoseconds. With a constant interval the first one is cut by a uniform share: publishers
  that tick alike do not tick together.
- Sizes are whole bytes, lifetimes whole nanoseconds and at least one.
- Matching is done here, a block at a time (`matching.MatchingIndex`), never in the event loop. An event's matches are
  in the order of their home brokers in the publisher's tree, which the loop relies on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidings.errors import ConfigurationError
from tidings.matching import MatchingIndex
from tidings.model.distributions import Deterministic
from tidings.model.event import AttributeValue
from tidings.model.scenario import Network, Publisher
from tidings.model.trace import AttributeKind
from tidings.simulation._layout import NANOSECONDS, NEVER_NS, PUBLICATION, Array
from tidings.simulation._plan import Plan

__all__ = ["Chunk", "attribute_kinds", "chunks"]

BLOCK_MAX, BLOCK_MIN = 512, 16
INTERVAL_MIN_S = 1e-8
_PART = 100  # publishers' streams, apart from those of links and brokers
_INTERVALS, _SIZES, _LIFETIMES, _ATTRIBUTES, _SAMPLING, _PHASE = range(6)
_KINDS: Mapping[type, AttributeKind] = {bool: "boolean", int: "whole", float: "number", str: "string"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """All events that depart before `horizon_ns` and after the chunk before: records by time, and their matches.

    `attributes` is a table in the order of the records, or None when no trace is written.
    """

    horizon_ns: int
    events: Array
    matches: Array
    attributes: pa.Table | None


def attribute_kinds(network: Network) -> dict[str, AttributeKind]:
    """The kind of each attribute over all publishers; whole and other numbers are numbers, other mixtures are text."""
    kinds: dict[str, AttributeKind] = {}
    for publisher in network.publishers:
        for name, kind in _kinds_of(publisher).items():
            kinds[name] = _wider(kinds.get(name, kind), kind)
    return kinds


def chunks(plan: Plan, *, events: int, sample: float, is_traced: bool) -> Iterator[Chunk]:
    """The publications of a run, about `events` at a time; the last chunk ends with the run."""
    network = plan.network
    index = MatchingIndex((number, s.filter) for number, s in enumerate(network.subscriptions))
    kinds = attribute_kinds(network) if is_traced else None
    sources = [
        _Source(plan, number, index, sample if is_traced else 0.0, kinds) for number in range(len(plan.access_link))
    ]
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    window_ns = max(1, int(min(NANOSECONDS * events / rate_per_s, plan.end_ns))) if sources else plan.end_ns
    horizon_ns = 0
    while horizon_ns < plan.end_ns:
        horizon_ns = min(horizon_ns + window_ns, plan.end_ns)
        yield _merged(horizon_ns, [source.before(horizon_ns) for source in sources], kinds)


def _merged(horizon_ns: int, parts: list["_Part"], kinds: Mapping[str, AttributeKind] | None) -> Chunk:
    parts = [part for part in parts if len(part.events)]
    if not parts:
        return Chunk(
            horizon_ns=horizon_ns, events=np.zeros(0, PUBLICATION), matches=np.zeros(0, np.int32), attributes=None
        )
    passed = 0
    for part in parts:
        part.events["first"] += passed
        passed += len(part.matches)
    events = np.concatenate([part.events for part in parts])
    order = np.argsort(events["time"], kind="stable")  # equal times: by publisher
    attributes = None
    if kinds is not None:
        attributes = pa.concat_tables([table for part in parts for table in part.attributes]).take(pa.array(order))
    matches = np.concatenate([part.matches for part in parts])
    return Chunk(horizon_ns=horizon_ns, events=events[order], matches=matches, attributes=attributes)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Events of one publisher in order, their matches, and tables of their attributes."""

    events: Array
    matches: Array
    attributes: list[pa.Table]


class _Source:
    """One publisher: whole blocks go in, and what departs before a time comes out."""

    def __init__(
        self, plan: Plan, number: int, index: MatchingIndex, sample: float, kinds: Mapping[str, AttributeKind] | None
    ) -> None:
        network, self._publisher, self._number = plan.network, plan.network.publishers[number], number
        self._index, self._sample, self._kinds = index, sample, kinds
        self._is_mixed = any(_kind_of(content) is None for content in self._publisher.attributes.values())
        self._streams = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence([network.seed, _PART, number, purpose])))
            for purpose in range(_PHASE + 1)
        ]
        if self._publisher.interval.mean() < INTERVAL_MIN_S:
            raise ConfigurationError(
                f"publisher {self._publisher.name!r} publishes {self._publisher.rate_per_s:g} events a second, "
                f"more than nanoseconds hold apart: write a rate of at most {1 / INTERVAL_MIN_S:g} /s"
            )
        self._rank = _ranks(plan, number)
        expected = network.duration_s * self._publisher.rate_per_s
        self._block = int(np.clip(1.1 * expected, BLOCK_MIN, BLOCK_MAX))
        self._departed_ns, self._sequence = 0, 0
        self._held = _Part(events=np.zeros(0, PUBLICATION), matches=np.zeros(0, np.int32), attributes=[])

    def before(self, horizon_ns: int) -> _Part:
        """The events not yet taken that depart before this time."""
        blocks = [self._held] if len(self._held.events) else []
        while self._departed_ns < horizon_ns:
            blocks.append(self._make_block())
        taken = [_cut(block, 0, int(np.searchsorted(block.events["time"], horizon_ns))) for block in blocks]
        if blocks:
            last = blocks[-1]
            self._held = _cut(last, len(taken[-1].events), len(last.events))
        passed = 0
        for part in taken:
            part.events["first"] += passed
            passed += len(part.matches)
        empty = np.zeros(0, PUBLICATION)
        return _Part(
            events=np.concatenate([empty, *(part.events for part in taken)]),
            matches=np.concatenate([np.zeros(0, np.int32), *(part.matches for part in taken)]),
            attributes=[table for part in taken for table in part.attributes],
        )

    def _make_block(self) -> _Part:
        count, publisher, streams = self._block, self._publisher, self._streams
        intervals_s = publisher.interval.sample(streams[_INTERVALS], count)
        if self._sequence == 0 and isinstance(publisher.interval, Deterministic):
            intervals_s[0] *= streams[_PHASE].random()
        times = self._departed_ns + np.cumsum(_whole_ns(intervals_s))
        events = np.zeros(count, PUBLICATION)
        events["time"] = times
        events["sequence"] = self._sequence + np.arange(count)
        events["publisher"] = self._number
        events["size_kb"] = np.rint(1000.0 * publisher.size_kb.sample(streams[_SIZES], count)) / 1000.0
        events["lifetime"] = NEVER_NS
        if publisher.lifetime is not None:
            events["lifetime"] = np.maximum(1, _whole_ns(publisher.lifetime.sample(streams[_LIFETIMES], count)))
        if self._sample > 0.0:
            events["is_sampled"] = streams[_SAMPLING].random(count) < self._sample
        columns = {name: content.sample(streams[_ATTRIBUTES], count) for name, content in publisher.attributes.items()}
        offsets, matches = self._matched(columns, count)
        events["first"], events["count"] = offsets[:-1], np.diff(offsets)
        self._departed_ns = int(times[-1])
        self._sequence += count
        tables = [] if self._kinds is None else [_table(columns, self._kinds, count)]
        return _Part(events=events, matches=matches, attributes=tables)

    def _matched(self, columns: dict[str, list[AttributeValue]], count: int) -> tuple[Array, Array]:
        """Offsets and matches of each event, the matches by rank of their home, then by number."""
        if len(self._index) == 0:
            return np.zeros(count + 1, np.int64), np.zeros(0, np.int32)
        if self._is_mixed or not columns:  # values of several types in one attribute do not fit an Arrow column
            rows = [{name: values[row] for name, values in columns.items()} for row in range(count)]
            found: list[list[Any]] = [list(self._index.match(row)) for row in rows]
            offsets = np.concatenate([[0], np.cumsum([len(each) for each in found])])
            matched = np.array([number for each in found for number in each], np.int64)
        else:
            batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
            offsets, matched = self._index.match_batch(batch)
        event = np.repeat(np.arange(count), np.diff(offsets))
        order = np.lexsort((matched, self._rank[matched], event))
        return offsets, matched[order].astype(np.int32)


def _ranks(plan: Plan, publisher: int) -> Array:
    """Per subscription the place of its home in the publisher's tree; with several paths all are alike."""
    homes = plan.subscriptions["home"]
    if plan.routes.is_multi:
        return np.zeros(len(homes), np.int32)
    return np.asarray(plan.routes.position[plan.routes.tree_of[publisher]][homes])


def _cut(part: _Part, start: int, stop: int) -> _Part:
    events = part.events[start:stop].copy()
    first = int(events["first"][0]) if len(events) else 0
    last = int(events["first"][-1] + events["count"][-1]) if len(events) else 0
    events["first"] -= first
    tables = [table.slice(start, stop - start) for table in part.attributes]
    return _Part(events=events, matches=part.matches[first:last], attributes=tables)


def _whole_ns(seconds: Array) -> Array:
    return np.rint(np.minimum(seconds, 1e9) * NANOSECONDS).astype(np.int64)


def _kind_of(content: Any) -> AttributeKind | None:
    """The kind of an attribute's values, or None if they are of several."""
    if hasattr(content, "law"):
        return "whole" if content.decimals == 0 else "number"
    values = content.values if hasattr(content, "values") else (content.value,)
    kinds = {_KINDS[type(value)] for value in values}
    return kinds.pop() if len(kinds) == 1 else None


def _kinds_of(publisher: Publisher) -> dict[str, AttributeKind]:
    return {name: _kind_of(content) or "string" for name, content in publisher.attributes.items()}


def _wider(one: AttributeKind, other: AttributeKind) -> AttributeKind:
    if one == other:
        return one
    return "number" if {one, other} == {"whole", "number"} else "string"


def _table(columns: dict[str, list[AttributeValue]], kinds: Mapping[str, AttributeKind], count: int) -> pa.Table:
    """The attributes of a block in the columns of the trace; an attribute that this publisher lacks is NULL."""
    types = {"number": pa.float64(), "whole": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
    arrays = []
    for name, kind in kinds.items():
        values: list[Any] = list(columns.get(name, [None] * count))
        if kind == "string":
            values = [value if value is None else str(value) for value in values]
        elif kind == "number":
            values = [value if value is None else float(value) for value in values]
        arrays.append(pa.array(values, types[kind]))
    # a column that is always there keeps the number of rows where there are no attributes
    return pa.table([pa.array(range(count), pa.int32()), *arrays], names=["", *kinds])
