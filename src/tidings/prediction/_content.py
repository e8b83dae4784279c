"""Which subscriptions do a publisher's events match, and how often: the masses that flows are made of.

- Product form: attributes are independent of each other, as scenarios say. When all that filters read is discrete, the
  content space is cut into cells that no filter tells apart (attribute by attribute), and the cells are matched: exact.
- Otherwise, or when there would be too many cells, events are sampled by a Latin hypercube: each attribute takes evenly
  spread quantiles, in random order.
- Match signatures: rows of a trace that say what an event matched serve as they are (`signatures_of_matches`).

Imprecise knowledge (section 5.4) raises every probability to a power alpha and normalises; on product form that is the
same for each attribute. It applies to discrete attributes; a continuous one stays as it is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.matching import MatchingIndex
from tidings.model.filters import Filter, OneOf, Topic, Within
from tidings.model.scenario import AttributeValue, Choice, Constant, Content
from tidings.prediction._knowledge import FloatArray, IntArray, LongArray, Signatures, exact_shares

__all__ = [
    "CELLS_MAX",
    "SAMPLES",
    "ContentMatcher",
    "ContentSpace",
    "EventKinds",
    "match_columns",
    "signatures_of_matches",
]

CELLS_MAX = 200_000
SAMPLES = 20_000
_TELLING_MAX = 2_000_000  # tests times values, beyond which cells are not merged


@dataclass(frozen=True, kw_only=True, eq=False)
class EventKinds:
    """The kinds of events that a content gives, before anything is matched: each with its share of the events.

    `cells` are the values of every attribute that filters tell apart, with their chances, and every combination is a
    kind, the last attribute running fastest. Without them (None) kinds are events on a Latin hypercube over `read`.
    """

    cells: Mapping[str, tuple[list[AttributeValue], FloatArray]] | None
    read: Mapping[str, Content]
    alpha: float
    seed: int

    @property
    def sampled(self) -> int | None:
        """How many events stand for the content; None if the kinds are all there are."""
        return SAMPLES if self.cells is None else None

    @property
    def weights(self) -> FloatArray:
        if self.cells is None:
            return exact_shares(np.full(SAMPLES, 1.0 / SAMPLES))
        weights = np.ones(1)
        for _, chances in self.cells.values():
            weights = np.outer(weights, chances).ravel()
        return exact_shares(weights)

    @property
    def key(self) -> object:
        """What is the same for contents that give the same events, if in other shares; None for samples."""
        return None if self.cells is None else tuple((name, tuple(values)) for name, (values, _) in self.cells.items())

    def match(self, index: MatchingIndex) -> tuple[LongArray, IntArray]:
        """What each kind matches: offsets, and the numbers of the filters between them."""
        if self.cells is None:
            generator = np.random.default_rng([self.seed, SAMPLES])
            sampled: dict[str, list[Any] | NDArray[Any]] = {}
            for name, content in self.read.items():
                u = (generator.permutation(SAMPLES) + generator.random(SAMPLES)) / SAMPLES
                sampled[name] = _values_at(content, u, self.alpha)
            return match_columns(index, sampled, SAMPLES)
        count = math.prod(len(values) for values, _ in self.cells.values())
        columns, repeat = {}, count
        is_plain = all(len({type(value) for value in values}) == 1 for values, _ in self.cells.values())
        for name, (values, _) in self.cells.items():
            repeat //= len(values)
            place = np.tile(np.repeat(np.arange(len(values)), repeat), count // (repeat * len(values)))
            columns[name] = pa.array(values).take(pa.array(place)) if is_plain else [values[k] for k in place.tolist()]
        if columns and is_plain and len(index):
            return _match_batch(index, columns)
        return match_columns(index, {name: list(column) for name, column in columns.items()}, count)


class ContentSpace:
    """What a set of filters reads of events, and by which tests: it decides how contents are cut into kinds."""

    def __init__(self, filters: Iterable[Filter], *, seed: int = 0) -> None:
        self._seed = seed
        self._tests: dict[str, set[Within | OneOf]] = {}
        self._opaque: set[str] = set()
        for each in filters:
            self._note(each)
        self._known: dict[object, EventKinds] = {}

    def kinds(self, attributes: Mapping[str, Content], *, alpha: float = 1.0) -> EventKinds:
        """The kinds of events with these attributes, independent of each other and known to the power alpha; the same
        object for contents that filters cannot tell apart."""
        if not (math.isfinite(alpha) and alpha > 0.0):
            raise InputError(f"alpha is {alpha!r}, but must be above 0: 1 is precise knowledge")
        read = {name: content for name, content in attributes.items() if name in self._tests or name in self._opaque}
        key = (alpha, tuple(sorted(read.items(), key=lambda item: item[0])))
        if key not in self._known:
            self._known[key] = self._work_out(read, alpha)
        return self._known[key]

    def _note(self, each: Filter) -> None:
        for clause in each.clauses:
            for test in clause.tests:
                group = self._tests.setdefault(test.attribute, set())
                if isinstance(test, Within | OneOf):
                    group.add(test)
                elif isinstance(test, Topic):
                    self._opaque.add(test.attribute)
            if clause.residual is not None:
                self._opaque |= each.attributes

    def _work_out(self, read: Mapping[str, Content], alpha: float) -> EventKinds:
        discrete = {name: _chances(content, alpha) for name, content in read.items()}
        cells = {name: self._merged(name, *chances) for name, chances in discrete.items() if chances is not None}
        is_exact = len(cells) == len(read) and math.prod(len(values) for values, _ in cells.values()) <= CELLS_MAX
        return EventKinds(cells=cells if is_exact else None, read=read, alpha=alpha, seed=self._seed)

    def _merged(self, name: str, values: list[AttributeValue], chances: FloatArray) -> tuple[list[Any], FloatArray]:
        """Values that no test tells apart become one, with their chances together."""
        tests = list(self._tests.get(name, ()))
        if name in self._opaque or len(tests) * len(values) > _TELLING_MAX:
            return values, chances
        groups: dict[tuple[bool, ...], int] = {}
        kept: list[AttributeValue] = []
        sums: list[float] = []
        for value, chance in zip(values, chances.tolist(), strict=True):
            accepted = tuple(_accepts(test, value) for test in tests)
            if accepted not in groups:
                groups[accepted] = len(kept)
                kept.append(value)
                sums.append(0.0)
            sums[groups[accepted]] += chance
        return kept, np.array(sums)


class ContentMatcher:
    """Signatures of contents against one set of filters; what contents have in common is worked out once."""

    def __init__(self, filters: Sequence[Filter], *, seed: int = 0) -> None:
        self._index: MatchingIndex = MatchingIndex(enumerate(filters))
        self._space = ContentSpace(filters, seed=seed)
        self._matched: dict[object, tuple[LongArray, IntArray]] = {}
        self._known: dict[int, tuple[EventKinds, Signatures]] = {}

    def signatures(self, attributes: Mapping[str, Content], *, alpha: float = 1.0) -> Signatures:
        """The signatures of events with these attributes, independent of each other and known to the power alpha."""
        kinds = self._space.kinds(attributes, alpha=alpha)
        if id(kinds) not in self._known:  # the kinds are kept with them, so the number stays theirs
            matched = signatures_of_matches(*self._match(kinds), weights=kinds.weights, sampled=kinds.sampled)
            self._known[id(kinds)] = kinds, matched
        return self._known[id(kinds)][1]

    def match(self, columns: Mapping[str, list[Any]], count: int) -> tuple[LongArray, IntArray]:
        """What each of `count` events matches: offsets, and the numbers of the filters between them."""
        return match_columns(self._index, columns, count)

    def _match(self, kinds: EventKinds) -> tuple[LongArray, IntArray]:
        if kinds.key is None:
            return kinds.match(self._index)
        if kinds.key not in self._matched:
            self._matched[kinds.key] = kinds.match(self._index)
        return self._matched[kinds.key]


def match_columns(
    index: MatchingIndex, columns: Mapping[str, list[Any] | NDArray[Any]], count: int
) -> tuple[LongArray, IntArray]:
    """What each of `count` events matches, their values given by attribute: offsets, and the numbers between them."""
    if len(index) == 0:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int32)
    is_plain = all(
        isinstance(values, np.ndarray) or len({type(value) for value in values}) == 1 for values in columns.values()
    )
    if columns and is_plain:
        return _match_batch(index, {name: pa.array(values) for name, values in columns.items()})
    plain = {name: list(values) for name, values in columns.items()}
    rows = ({name: values[row] for name, values in plain.items()} for row in range(count))
    each: list[list[Any]] = [list(index.match(row)) for row in rows]
    ends = np.cumsum([0, *(len(found) for found in each)])
    return ends.astype(np.int64), np.array([number for found in each for number in found], np.int32)


def _match_batch(index: MatchingIndex, columns: Mapping[str, Any]) -> tuple[LongArray, IntArray]:
    offsets, found = index.match_batch(pa.record_batch(dict(columns)))
    return offsets, found.astype(np.int32)


def signatures_of_matches(
    offsets: LongArray, subscriptions: IntArray, *, weights: FloatArray, sampled: int | None
) -> Signatures:
    """Signatures of events given one by one, event i matching `subscriptions[offsets[i]:offsets[i + 1]]`; equal ones
    are put together."""
    lengths = np.diff(offsets)
    # Equal sets get equal sums of 64-bit random labels; different sets share one once in 10**19.
    labels = np.random.default_rng(5).integers(1, 2**63, size=int(subscriptions.max(initial=0)) + 1, dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(labels[subscriptions], dtype=np.uint64)])
    keys = sums[offsets[1:]] - sums[offsets[:-1]]
    kinds, first, place = np.unique(keys, return_index=True, return_inverse=True)
    shares = np.asarray(np.bincount(place, weights, minlength=len(kinds)), np.float64)
    kept = lengths[first] > 0
    first, shares = first[kept], shares[kept]
    lengths = lengths[first]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    rows = np.arange(ends[-1]) - np.repeat(ends[:-1] - offsets[first], lengths)
    return Signatures(weights=shares, offsets=ends, subscriptions=subscriptions[rows].astype(np.int32), sampled=sampled)


def _chances(content: Content, alpha: float) -> tuple[list[AttributeValue], FloatArray] | None:
    if isinstance(content, Constant):
        return [content.value], np.ones(1)
    if not isinstance(content, Choice):
        return None
    chances = np.array(content.probabilities or [1.0] * len(content.values)) ** alpha
    return list(content.values), chances / chances.sum()


def _values_at(content: Content, u: FloatArray, alpha: float) -> list[AttributeValue] | NDArray[Any]:
    """The values at these shares of the content's distribution."""
    discrete = _chances(content, alpha)
    if discrete is not None:
        values, chances = discrete
        place = np.minimum(np.searchsorted(np.cumsum(chances), u, side="right"), len(values) - 1)
        return [values[number] for number in place.tolist()]
    assert not isinstance(content, Constant | Choice)
    return content.settled(np.asarray(content.distribution.quantile(u)))


def _accepts(test: Within | OneOf, value: AttributeValue) -> bool:
    kind = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
    if isinstance(test, Within):
        return kind == "number" and test.low <= float(value) <= test.high
    held = float(value) if kind == "number" else value
    return test.kind == kind and ((held in test.values) != test.negated)
