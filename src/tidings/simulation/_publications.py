"""What is published, in chunks of simulated time, with the subscriptions that each event matches.

Rules:

- A publisher draws from streams of its own (intervals, sizes, lifetimes, attributes, sampling), always a whole block at
  a time. So neither the length of a chunk nor another publisher moves what it publishes.
- Intervals add up in whole nanoseconds. With a constant interval the first one is cut by a uniform share: publishers
  that tick alike do not tick together.
- Sizes are whole bytes, lifetimes whole nanoseconds and at least one; either may depend on what an event says.
- Where the rate follows the day, intervals add up in busy time (`model.scenario.Day`).
- Matching is done here, a chunk at a time (`matching.MatchingIndex`), never in the event loop; publishers whose events
  have the same columns share a batch. An event's matches are in the order of their home brokers in its tree, which the
  loop relies on. Events of a publisher whose attributes are all constant match alike: they are matched once, and share
  the list, unless subscribers come and go (`_presence`), publishers move (`_relocation`) or events choose their tree.
- Where events are given by kinds (`Options.kinds`), these are drawn evenly within each block, and matches are theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from tidings.errors import ConfigurationError
from tidings.matching import MatchingIndex
from tidings.model.distributions import DelayDistribution, Deterministic
from tidings.model.scenario import ByContent, Choice, Constant, Content, Network, Numeric, Publisher
from tidings.model.trace import AttributeKind
from tidings.simulation._layout import NANOSECONDS, NEVER_NS, PUBLICATION, Array
from tidings.simulation._options import Kinds
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._presence import Presence
from tidings.simulation._relocation import Published, Relocation

__all__ = ["Chunk", "attribute_kinds", "chunks"]

BLOCK_MAX, BLOCK_MIN = 512, 16
INTERVAL_MIN_S = 1e-8
_PART = 100  # publishers' streams, apart from those of links and brokers
_INTERVALS, _SIZES, _LIFETIMES, _ATTRIBUTES, _SAMPLING, _PHASE = range(6)
_KIND = "kind"  # the only attribute of events that are given by kinds
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


def chunks(
    plan: SimulationPlan,
    *,
    events: int,
    sample: float,
    is_traced: bool,
    relocation: Relocation | None = None,
    given: Sequence[Kinds] | None = None,
) -> Iterator[Chunk]:
    """The publications of a run, about `events` at a time; a chunk ends with each batch, and the last with the run.
    `given` are the kinds of each publisher's events, if they are."""
    network = plan.network
    matcher = _Matcher(plan, relocation) if given is None else _Given(plan, given)
    kinds = attribute_kinds(network) if is_traced and given is None else None
    sources = [
        _Source(plan, number, sample if is_traced else 0.0, None if given is None else given[number][0])
        for number in range(len(plan.publishers))
    ]
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    window_ns = max(1, int(min(NANOSECONDS * events / rate_per_s, plan.end_ns))) if sources else plan.end_ns
    horizon_ns = 0
    for end_ns in plan.batch_ends_ns.tolist():
        while horizon_ns < end_ns:
            horizon_ns = min(horizon_ns + window_ns, end_ns)
            parts = [source.before(horizon_ns) for source in sources]
            yield _merged(horizon_ns, [part for part in parts if len(part)], matcher, kinds)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Events of one publisher in order of departure, as columns; `kinds` are those of its attributes."""

    publisher: int
    time: Array
    sequence: Array
    size_kb: Array
    lifetime: Array
    is_sampled: Array
    attributes: Mapping[str, Array]
    kinds: tuple[tuple[str, AttributeKind | None], ...]

    def __len__(self) -> int:
        return len(self.time)

    def cut(self, start: int, stop: int) -> "_Part":
        """The events from the `start`-th to before the `stop`-th."""
        columns: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in _COLUMNS}
        attributes = {name: values[start:stop] for name, values in self.attributes.items()}
        return replace(self, attributes=attributes, **columns)


_COLUMNS = ("time", "sequence", "size_kb", "lifetime", "is_sampled")


def _joined(parts: Sequence[_Part]) -> _Part:
    """The parts of one publisher one after the other."""
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return replace(parts[0], attributes=_all_attributes(parts), **columns)


def _all_attributes(parts: Sequence[_Part]) -> dict[str, Array]:
    """The columns of parts that have the same attributes."""
    return {name: np.concatenate([part.attributes[name] for part in parts]) for name in parts[0].attributes}


def _merged(
    horizon_ns: int, parts: Sequence[_Part], matcher: "_Matcher | _Given", kinds: Mapping[str, AttributeKind] | None
) -> Chunk:
    """The events of all publishers in order of time; at equal times in the order of publishers."""
    first, count, matches, tree = matcher.matched(parts)
    events = np.zeros(len(first), PUBLICATION)
    if not parts:
        return Chunk(horizon_ns=horizon_ns, events=events, matches=matches, attributes=None)
    order = np.argsort(np.concatenate([part.time for part in parts]), kind="stable")
    for name in _COLUMNS:
        events[name] = np.concatenate([getattr(part, name) for part in parts])[order]
    events["publisher"] = np.repeat([part.publisher for part in parts], [len(part) for part in parts])[order]
    events["first"], events["count"], events["tree"] = first[order], count[order], tree[order]
    events["link"] = matcher.link_of(events["publisher"], events["tree"])
    attributes = None
    if kinds is not None:
        attributes = pa.concat_tables([_table(part, kinds) for part in parts]).take(pa.array(order))
    return Chunk(horizon_ns=horizon_ns, events=events, matches=matches, attributes=attributes)


class _Source:
    """One publisher: whole blocks are drawn, and what departs before a time comes out."""

    def __init__(self, plan: SimulationPlan, number: int, sample: float, shares: Array | None) -> None:
        network, self._publisher, self._number = plan.network, plan.network.publishers[number], number
        self._edges = None if shares is None else np.cumsum(shares)
        self._sample = sample
        self._kinds = tuple((name, _kind_of(content)) for name, content in self._publisher.attributes.items())
        self._streams = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence([network.seed, _PART, number, purpose])))
            for purpose in range(_PHASE + 1)
        ]
        if self._publisher.interval.mean() < INTERVAL_MIN_S:
            raise ConfigurationError(
                f"publisher {self._publisher.name!r} publishes {self._publisher.rate_per_s:g} events a second, "
                f"more than nanoseconds hold apart: write a rate of at most {1 / INTERVAL_MIN_S:g} /s"
            )
        expected = network.duration_s * self._publisher.rate_per_s
        self._block = int(np.clip(1.1 * expected, BLOCK_MIN, BLOCK_MAX))
        self._departed_ns, self._sequence = 0, 0
        self._busy_ns = 0  # as the publisher's day goes; without one, the same as the clock
        self._held = self._make_block()

    def before(self, horizon_ns: int) -> _Part:
        """The events not yet taken that depart before this time."""
        blocks = [self._held]
        while self._departed_ns < horizon_ns:
            blocks.append(self._make_block())
        drawn = _joined(blocks) if len(blocks) > 1 else blocks[0]
        taken = int(np.searchsorted(drawn.time, horizon_ns))
        self._held = drawn.cut(taken, len(drawn))
        return drawn.cut(0, taken)

    def _make_block(self) -> _Part:
        count, publisher, streams = self._block, self._publisher, self._streams
        if self._edges is not None:
            even = (streams[_ATTRIBUTES].permutation(count) + streams[_ATTRIBUTES].random(count)) / count
            attributes = {_KIND: np.searchsorted(self._edges, even, side="right")}
        else:
            attributes = {
                name: _drawn(content, streams[_ATTRIBUTES], count) for name, content in publisher.attributes.items()
            }
        intervals_s = publisher.interval.sample(streams[_INTERVALS], count)
        if self._sequence == 0 and isinstance(publisher.interval, Deterministic):
            intervals_s[0] *= streams[_PHASE].random()
        lifetime = np.full(count, NEVER_NS)
        if publisher.lifetime is not None:
            drawn_s = _by_content(publisher.lifetime, publisher.lifetime_by, attributes, streams[_LIFETIMES], count)
            lifetime = np.maximum(1, _whole_ns(drawn_s))
        size_kb = _by_content(publisher.size_kb, publisher.size_by, attributes, streams[_SIZES], count)
        busy_ns = self._busy_ns + np.cumsum(_whole_ns(intervals_s))
        is_sampled = np.zeros(count, np.bool_)
        if self._sample > 0.0:
            is_sampled = streams[_SAMPLING].random(count) < self._sample
        block = _Part(
            publisher=self._number,
            time=busy_ns if publisher.day is None else _whole_ns(publisher.day.clock_s(busy_ns / NANOSECONDS)),
            sequence=self._sequence + np.arange(count),
            size_kb=np.rint(1000.0 * size_kb) / 1000.0,
            lifetime=lifetime,
            is_sampled=is_sampled,
            attributes=attributes,
            kinds=self._kinds,
        )
        self._busy_ns, self._departed_ns = int(busy_ns[-1]), int(block.time[-1])
        self._sequence += count
        return block


def _by_content(
    distribution: DelayDistribution, by: ByContent | None, attributes: Mapping[str, Array], generator: Any, count: int
) -> Array:
    """A draw for each event: of its distribution, or of that of its content."""
    if by is None:
        return distribution.sample(generator, count)
    return by.sample(generator, attributes[by.attribute].tolist())


class _Matcher:
    """Who wants what, for all publishers of a run."""

    def __init__(self, plan: SimulationPlan, relocation: Relocation | None) -> None:
        self._index = MatchingIndex((number, s.filter) for number, s in enumerate(plan.network.subscriptions))
        # Per tree and subscription the place of its home in the tree; all alike with several paths.
        homes, routes = plan.subscriptions["home"], plan.routes
        self._ranks = np.zeros((1, len(homes)), np.int64)
        if not routes.is_multi:
            self._ranks = routes.position[:, homes]
        self._publishers, self._relocation, self._homes = plan.publishers, relocation, homes
        self._choices = routes.choices(plan.network)
        self._first_access = len(plan.network.topology.links)
        self._broker_count = len(plan.brokers)
        self._presence = Presence(plan.network)
        self._constant = {
            number
            for number, publisher in enumerate(plan.network.publishers)
            if self._presence.is_always
            and relocation is None
            and not self._choices
            and all(isinstance(content, Constant) for content in publisher.attributes.values())
        }

    def link_of(self, publisher: Array, tree: Array) -> Array:
        """The access link by which events come to the root of their tree; who moves has one at every broker."""
        return self._publishers["link"][publisher] if self._relocation is None else self._first_access + tree

    def matched(self, parts: Sequence[_Part]) -> tuple[Array, Array, Array, Array]:
        """For the events of all parts where in the matches theirs begin, how many there are, and by which tree they go.

        They are sorted by rank of the home in that tree, then by number.
        """
        alone = [part.cut(0, 1) if part.publisher in self._constant else part for part in parts]
        offsets, matches, trees = self._matched(alone)
        first, count, tree, passed = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for part, matched in zip(parts, alone, strict=True):
            place = offsets[passed : passed + len(matched) + 1]
            repeated = len(part) // len(matched)  # 1, unless one event stands for all
            first.append(np.repeat(place[:-1], repeated))
            count.append(np.repeat(np.diff(place), repeated))
            tree.append(np.repeat(trees[passed : passed + len(matched)], repeated))
            passed += len(matched)
        return np.concatenate(first), np.concatenate(count), matches, np.concatenate(tree)

    def _matched(self, parts: Sequence[_Part]) -> tuple[Array, Array, Array]:
        counts, found = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        for kinds, group in groupby(parts, key=lambda part: part.kinds):
            alike = list(group)
            offsets, numbers = self._found(dict(kinds), _all_attributes(alike), sum(len(part) for part in alike))
            counts.append(np.diff(offsets))
            found.append(numbers)
        offsets, numbers = np.cumsum(np.concatenate(counts)), np.concatenate(found)
        event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        if not self._presence.is_always:
            there = self._presence.there(numbers, np.concatenate([part.time for part in parts])[event])
            event, numbers = event[there], numbers[there]
            offsets = np.searchsorted(event, np.arange(len(offsets)))
        tree = self._trees(parts, offsets, numbers)
        # One number that sorts like (event, rank, subscription); a rank is -1 where no path leads.
        place = event * (self._broker_count + 1) + self._ranks[tree[event], numbers] + 1
        count = max(1, self._ranks.shape[1])
        return offsets, np.sort(place * count + numbers) % count, tree

    def _trees(self, parts: Sequence[_Part], offsets: Array, numbers: Array) -> Array:
        """The tree by which each event goes."""
        found, passed = [np.zeros(0, np.int64)], 0
        for part in parts:
            found.append(self._trees_of(part, offsets[passed : passed + len(part) + 1], numbers))
            passed += len(part)
        return np.concatenate(found)

    def _trees_of(self, part: _Part, offsets: Array, numbers: Array) -> Array:
        """That of its publisher, that of the home its publisher has moved to, or one that is chosen for it."""
        if self._relocation is not None:
            columns = {name: getattr(part, name) for name in ("time", "sequence", "size_kb", "lifetime")}
            return self._relocation.homes_of(
                Published(publisher=part.publisher, **columns, offsets=offsets, matches=numbers)
            )
        first = int(self._publishers["tree"][part.publisher])
        if not self._choices:
            return np.full(len(part), first)
        homes = self._homes[numbers[offsets[0] : offsets[-1]]]
        choice = self._choices[part.publisher]
        return first + choice.choose(part.time / NANOSECONDS, part.size_kb, offsets - offsets[0], homes)

    def _found(
        self, kinds: Mapping[str, AttributeKind | None], columns: Mapping[str, Array], count: int
    ) -> tuple[Array, Array]:
        """The same as the index finds them, in any order, for events with these columns."""
        if len(self._index) == 0:
            return np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
        if columns and None not in kinds.values():
            return self._index.match_batch(pa.record_batch({name: pa.array(each) for name, each in columns.items()}))
        # values of several types in one attribute do not fit an Arrow column
        plain = {name: values.tolist() for name, values in columns.items()}
        found = [self._index.match({name: values[row] for name, values in plain.items()}) for row in range(count)]
        offsets = np.concatenate([[0], np.cumsum([len(numbers) for numbers in found])])
        return offsets, np.array([number for numbers in found for number in numbers], np.int64)


class _Given:
    """Who wants what, where events are given by their kinds; the kind after the last one matches nothing."""

    def __init__(self, plan: SimulationPlan, given: Sequence[Kinds]) -> None:
        homes, routes = plan.subscriptions["home"], plan.routes
        self._publishers = plan.publishers
        self._first: list[Array] = []
        self._count: list[Array] = []
        matches, passed = [np.zeros(0, np.int64)], 0
        for publisher, (_, offsets, numbers) in enumerate(given):
            ranks = np.zeros(len(homes), np.int64)
            if not routes.is_multi:
                ranks = routes.position[plan.publishers["tree"][publisher]][homes].astype(np.int64)
            kind = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            matches.append(numbers[np.lexsort((numbers, ranks[numbers], kind))].astype(np.int64))
            self._first.append(passed + np.asarray(offsets))
            self._count.append(np.append(np.diff(offsets), 0))
            passed += len(numbers)
        self._matches = np.concatenate(matches)

    def link_of(self, publisher: Array, _: Array) -> Array:
        """As of `_Matcher`, for publishers that stay."""
        return np.asarray(self._publishers["link"][publisher])

    def matched(self, parts: Sequence[_Part]) -> tuple[Array, Array, Array, Array]:
        """As of `_Matcher`."""
        first = [self._first[part.publisher][part.attributes[_KIND]] for part in parts]
        count = [self._count[part.publisher][part.attributes[_KIND]] for part in parts]
        tree = np.repeat(self._publishers["tree"][[part.publisher for part in parts]], [len(part) for part in parts])
        nothing = np.zeros(0, np.int64)
        return np.concatenate([nothing, *first]), np.concatenate([nothing, *count]), self._matches, tree


def _whole_ns(seconds: Array) -> Array:
    return np.rint(np.minimum(seconds, 1e9) * NANOSECONDS).astype(np.int64)


def _kind_of(content: Content) -> AttributeKind | None:
    """The kind of an attribute's values, or None if they are of several."""
    if isinstance(content, Numeric):
        return "whole" if content.decimals == 0 else "number"
    values = content.values if isinstance(content, Choice) else (content.value,)
    kinds = {_KINDS[type(value)] for value in values}
    return kinds.pop() if len(kinds) == 1 else None


def _drawn(content: Content, stream: np.random.Generator, count: int) -> Array:
    """Values of an attribute as an array; the draws are those of `content.sample`."""
    match content:
        case Numeric(distribution=distribution):
            return content.settled(distribution.sample(stream, count))
        case Constant(value=value):
            return np.full(count, value, _types_of(content))
        case _:
            return np.array(content.sample(stream, count), _types_of(content))


def _types_of(content: Content) -> type:
    return {"boolean": np.bool_, "whole": np.int64, "number": np.float64}.get(_kind_of(content) or "", np.object_)


def _kinds_of(publisher: Publisher) -> dict[str, AttributeKind]:
    return {name: _kind_of(content) or "string" for name, content in publisher.attributes.items()}


def _wider(one: AttributeKind, other: AttributeKind) -> AttributeKind:
    if one == other:
        return one
    return "number" if {one, other} == {"whole", "number"} else "string"


def _table(part: _Part, kinds: Mapping[str, AttributeKind]) -> pa.Table:
    """The attributes of a part in the columns of the trace; an attribute that this publisher lacks is NULL."""
    arrays = []
    for name, kind in kinds.items():
        values = part.attributes.get(name)
        if values is None:
            arrays.append(pa.nulls(len(part), _ARROW[kind]))
        elif kind == "string":
            arrays.append(pa.array([str(value) for value in values.tolist()], pa.string()))
        else:
            arrays.append(pa.array(values).cast(_ARROW[kind]))
    # a column that is always there keeps the number of rows where there are no attributes
    return pa.table([pa.nulls(len(part)), *arrays], names=["", *kinds])


_ARROW = {"number": pa.float64(), "whole": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
