"""Matching by bit masks: a fraction of a microsecond per filter, for as many as one broker's clients usually have.

Every clause of every filter (`Filter.clauses`) has a bit. For each attribute that filters test, the values that they
name divide the numbers into points and gaps, and the strings into those that are named and all others. For each of
these cells a mask has the bits of the clauses that accept a value in it; clauses that do not test the attribute accept
all. An event satisfies the clauses whose bit is in the masks of all attributes: one look-up and one AND for each. Topic
patterns have a table for each of their shapes (`_topics`). What tests cannot express (the residual of a clause) is
evaluated by the filter itself, and so is every filter if an event has whole numbers that doubles cannot hold. So the
answer is exact for the whole language.

Tables take time that grows with the clauses and the values that they name, so they are not rebuilt for every change: a
new filter is evaluated by itself until that has cost as much as new tables would; a removed one is left out of the
answer. Beyond MOST_MASKED clauses `MatchingIndex` is the better choice.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import xor
from typing import Any, Final, cast

from tidings.matching._topics import TopicShape, TopicShapes, shape_of
from tidings.model.filters import Filter, OneOf, Presence, Topic, Within, condition_size

__all__ = ["MOST_MASKED", "MaskIndex", "each_bit", "matching_us"]

MOST_MASKED: Final = 2_048
"""How many clauses one index should hold at most."""
_EXACT: Final = 1 << 53
_WORTH: Final = 8
"""Evaluating so many filters takes about as long as new tables take for one clause. A first evaluation takes longer, so
no more than one part in so many of all filters is outside the tables."""

_CLAUSE_US: Final = 0.1
_NODE_US: Final = 0.25
_LIKE_US: Final = 0.5
"""In addition, for a pattern of LIKE or MATCHES; a long text costs more."""


def matching_us(filter: Filter) -> float:
    """The processor time that a filter adds to the matching of an event, by estimate: a figure for budgets.

    A filter whose clauses are all tests costs a share of the tables. One with a residual (LIKE, arithmetic, a
    disjunction of too many clauses) is evaluated node by node if its tests hold; the estimate assumes that they do.
    """
    if all(clause.residual is None for clause in filter.clauses):
        return _CLAUSE_US * len(filter.clauses)
    nodes, patterns = condition_size(filter)
    return _NODE_US * nodes + _LIKE_US * patterns


def each_bit(mask: int) -> Iterator[int]:
    """The bits of a mask, one by one, the lowest first."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


class _Table:
    """The masks of one attribute."""

    __slots__ = ("booleans", "bounds", "missing", "numbers", "other", "strings")

    def __init__(self, tested: Mapping[int, list[Any]], everybody: int) -> None:
        free = everybody & ~sum(tested)
        self.missing = free | sum(bit for bit, those in tested.items() if all(map(_accepts_missing, those)))
        self.booleans = {
            value: free | sum(bit for bit, those in tested.items() if _accept_boolean(those, value))
            for value in (False, True)
        }
        self.strings, self.other = self._strings(tested, free)
        self.bounds: list[float] = sorted(
            {float(value) for value in _named(tested.values(), "number")}
            | {end for those in tested.values() for test in those if isinstance(test, Within) for end in _ends(test)}
        )
        self.numbers = self._numbers(tested, free)

    def _strings(self, tested: Mapping[int, list[Any]], free: int) -> tuple[dict[str, int], int]:
        """The clauses that accept a string: by each string that a filter names, and for all others."""
        any_other = 0
        only: dict[str, int] = {}
        never: dict[str, int] = {}
        for bit, tests in tested.items():
            wanted, excluded = _strings_of(tests)
            if wanted is None:
                any_other |= bit
                for value in excluded:
                    never[value] = never.get(value, 0) | bit
            else:
                for value in wanted - excluded:
                    only[value] = only.get(value, 0) | bit
        named = dict.fromkeys((*only, *never))
        strings = {value: free | only.get(value, 0) | (any_other & ~never.get(value, 0)) for value in named}
        return strings, free | any_other

    def _numbers(self, tested: Mapping[int, list[Any]], free: int) -> list[int]:
        """By cell, 2 i being the gap below bound i and 2 i + 1 the bound itself: the clauses that accept it."""
        place = {bound: 2 * i + 1 for i, bound in enumerate(self.bounds)}
        cells = 2 * len(self.bounds) + 1
        flips = [0] * (cells + 1)
        only: list[tuple[int, int]] = []
        never: list[tuple[int, int]] = []
        for bit, tests in tested.items():
            begin, end, points = _extent(tests, place, cells)
            never += [(bit, place[float(value)]) for value in _excluded(tests)]
            if points is None:
                flips[begin] ^= bit
                flips[end] ^= bit
            else:
                only += [(bit, point) for point in points if begin <= point < end]
        masks = [free | mask for mask in accumulate(flips[:cells], xor)]
        for bit, cell in only:
            masks[cell] |= bit
        for bit, cell in never:
            masks[cell] &= ~bit
        return masks


class MaskIndex:
    """Filters by text, as bits; an event's answer is the mask of its clauses."""

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}  # by the bits of its clauses together
        self._fresh: dict[int, Filter] = {}  # those that are not in the tables yet
        self._evaluated = 0  # how often one of them was evaluated
        self._count = 0  # clauses
        self._residual = 0
        self._everybody = self._tabled = 0
        self._free: list[int] = []
        self._stale: list[int] = []  # places that are free, but in the tables
        self._next = 0
        self._tables: list[tuple[str, _Table]] = []
        self._topics: dict[str, list[tuple[TopicShape, _Table]]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, filter: Filter) -> int:
        """Add a filter. Returns the mask of its clauses; an event that it accepts satisfies at least one."""
        bits = 0
        for _ in filter.clauses:
            place = self._free.pop() if self._free else self._next
            self._next = max(self._next, place + 1)
            bits |= 1 << place
            self._count += 1
        if not bits:
            return 0  # no event satisfies this filter
        self._filters[bits] = self._fresh[bits] = filter
        self._everybody |= bits
        return bits

    def remove(self, bits: int) -> None:
        """Forget a filter."""
        if not bits:
            return
        is_fresh = self._fresh.pop(bits, None) is not None
        for bit in each_bit(bits):
            self._count -= 1
            (self._free if is_fresh else self._stale).append(bit.bit_length() - 1)
        del self._filters[bits]
        self._everybody &= ~bits
        self._tabled &= ~bits
        self._residual &= ~bits

    def match(self, attributes: Mapping[str, Any]) -> int:
        """The clauses that an event satisfies; EventError if an attribute that filters read has no usable value."""
        fresh = 0
        if self._fresh:
            fresh = self._match_fresh(attributes)
        mask = self._tabled
        get = attributes.get
        for name, table in self._tables:
            value = get(name)
            kind = type(value)
            if kind is str:
                mask &= table.strings.get(value, table.other)  # type: ignore[arg-type]
            elif kind is float or kind is int:
                if kind is int and not -_EXACT <= value <= _EXACT:  # type: ignore[operator]
                    return self._confirmed(attributes, self._everybody)
                bounds = table.bounds
                i = bisect_left(bounds, value)  # type: ignore[type-var]
                mask &= table.numbers[2 * i + (i < len(bounds) and bounds[i] == value)]
            elif value is None:
                mask &= table.missing
            else:
                mask &= table.booleans[value]
            if not mask:
                return fresh
        for name, shapes in self._topics.items():
            value = get(name)
            if type(value) is not str:
                for _, table in shapes:
                    mask &= table.missing
                continue
            levels = value.split("/")
            for shape, table in shapes:
                mask &= table.strings.get(shape.key(levels), table.other)  # type: ignore[arg-type]
        return fresh | (self._confirmed(attributes, mask) if mask & self._residual else mask)

    def _match_fresh(self, attributes: Mapping[str, Any]) -> int:
        """The clauses of filters that are not in the tables and accept the event; none if new tables are worth it."""
        self._evaluated += len(self._fresh)
        if self._evaluated > _WORTH * self._count or _WORTH * len(self._fresh) > self._count:
            self._make_tables()
        return sum(bits for bits, filter in self._fresh.items() if filter.matches(attributes))

    def _confirmed(self, attributes: Mapping[str, Any], mask: int) -> int:
        """Of these clauses, those of filters that accept the event themselves."""
        return sum(bits & mask for bits, filter in self._filters.items() if bits & mask and filter.matches(attributes))

    def _make_tables(self) -> None:
        tested: dict[str, dict[int, list[Any]]] = {}
        topics: dict[str, dict[TopicShape, dict[int, list[Any]]]] = {}
        kept = TopicShapes()
        self._residual = 0
        for bits, filter in self._filters.items():
            for bit, clause in zip(each_bit(bits), kept.settled(filter), strict=True):
                self._residual |= bit if clause.residual is not None else 0
                for test in clause.tests:
                    if isinstance(test, Topic):
                        seen = OneOf(test.attribute, "string", frozenset((test.pattern,)), test.negated)
                        by_shape = topics.setdefault(test.attribute, {}).setdefault(shape_of(test.pattern), {})
                        by_shape.setdefault(bit, []).append(seen)
                    else:
                        tested.setdefault(test.attribute, {}).setdefault(bit, []).append(test)
        # What most clauses test comes first: it is most likely to leave none.
        names = sorted(tested, key=lambda name: (-len(tested[name]), name))
        self._tables = [(name, _Table(tested[name], self._everybody)) for name in names]
        self._topics = {
            name: [(shape, _Table(bits, self._everybody)) for shape, bits in shapes.items()]
            for name, shapes in topics.items()
        }
        self._tabled = self._everybody
        self._fresh.clear()
        self._evaluated = 0
        self._free += self._stale
        self._stale.clear()


def _named(tested: Iterable[list[Any]], kind: str) -> list[Any]:
    return [
        value
        for tests in tested
        for test in tests
        if isinstance(test, OneOf) and test.kind == kind
        for value in test.values
    ]


def _ends(test: Within) -> tuple[float, float]:
    return test.low, test.high


def _accepts_missing(test: Any) -> bool:
    return isinstance(test, Presence) and test.missing


def _accept_boolean(tests: list[Any], value: bool) -> bool:
    for test in tests:
        if isinstance(test, Presence):
            if test.missing:
                return False
        elif not isinstance(test, OneOf) or test.kind != "boolean" or (value in test.values) is test.negated:
            return False
    return True


def _strings_of(tests: list[Any]) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The strings that pass tests of one attribute: these only unless None, and none of those."""
    wanted: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    for test in tests:
        if isinstance(test, Presence) and not test.missing:
            continue
        if not isinstance(test, OneOf) or test.kind != "string":
            return frozenset(), excluded
        values = cast("frozenset[str]", test.values)
        if test.negated:
            excluded |= values
        else:
            wanted = values if wanted is None else wanted & values
    return wanted, excluded


def _extent(tests: list[Any], place: Mapping[float, int], cells: int) -> tuple[int, int, list[int] | None]:
    """The cells that tests of one attribute accept: a range, and of it these points only unless None."""
    begin, end = 0, cells
    points: set[int] | None = None
    for test in tests:
        if isinstance(test, Within):
            begin, end = max(begin, place[test.low]), min(end, place[test.high] + 1)
        elif isinstance(test, Presence):
            end = 0 if test.missing else end
        elif test.kind != "number":
            end = 0
        elif not test.negated:
            those = {place[float(value)] for value in test.values}
            points = those if points is None else points & those
    return (begin, max(begin, end), None if points is None else sorted(points))


def _excluded(tests: list[Any]) -> list[Any]:
    return [
        value
        for test in tests
        if isinstance(test, OneOf) and test.negated and test.kind == "number"
        for value in test.values
    ]
