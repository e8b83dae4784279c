"""Matching by bit masks: for as many filters as one broker's clients usually have, a fraction of a microsecond each.

Every clause of every filter (`Filter.clauses`) has a bit. For each attribute that filters test, the values that they
name cut the numbers into points and gaps, and the strings into those that are named and all others; for each of these
cells a mask says which clauses a value in it satisfies, clauses that do not test the attribute among them. An event
satisfies the clauses whose bit is in the masks of all attributes: one look-up and one AND for each. What tests cannot
say (the residual of a clause) is asked of the filter itself, and so is everything if an event has whole numbers that
doubles cannot hold. So the answer is exact for the whole language.

Tables are made when they are next needed after a change, in a time that grows with filters times named values; beyond
MOST clauses `MatchingIndex` is the better choice.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import xor
from typing import Any, Final

from tidings.model.filters import Clause, Filter, OneOf, Presence, Within

__all__ = ["MOST", "MaskIndex"]

MOST: Final = 2_048
"""So many clauses one index should hold at most."""
_EXACT: Final = 1 << 53


class _Table:
    """The masks of one attribute."""

    __slots__ = ("booleans", "bounds", "missing", "numbers", "other", "strings")

    def __init__(self, attribute: str, clauses: Mapping[int, Clause], everybody: int) -> None:
        tests = {bit: [test for test in clause.tests if test.attribute == attribute] for bit, clause in clauses.items()}
        tested = {bit: those for bit, those in tests.items() if those}
        free = everybody & ~sum(tested)
        self.missing = free | sum(bit for bit, those in tested.items() if all(map(_accepts_missing, those)))
        self.booleans = {
            value: free | sum(bit for bit, those in tested.items() if _all_accept(those, "boolean", value))
            for value in (False, True)
        }
        named = sorted(set(_named(tested.values(), "string")))
        self.strings = {
            value: free | sum(bit for bit, those in tested.items() if _all_accept(those, "string", value))
            for value in named
        }
        self.other = free | sum(bit for bit, those in tested.items() if _all_accept(those, "string", None))
        self.bounds: list[float] = sorted(
            {float(value) for value in _named(tested.values(), "number")}
            | {end for those in tested.values() for test in those if isinstance(test, Within) for end in _ends(test)}
        )
        self.numbers = self._numbers(tested, free)

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
        self._clauses: dict[int, Clause] = {}
        self._residual = 0
        self._everybody = 0
        self._free: list[int] = []
        self._next = 0
        self._tables: list[tuple[str, _Table]] | None = []

    def __len__(self) -> int:
        return len(self._clauses)

    def add(self, filter: Filter) -> int:
        """Enter a filter; the mask of its clauses, of which an event that it accepts has at least one."""
        bits = 0
        for clause in filter.clauses:
            place = self._free.pop() if self._free else self._next
            self._next = max(self._next, place + 1)
            bit = 1 << place
            self._clauses[bit] = clause
            if clause.residual is not None:
                self._residual |= bit
            bits |= bit
        if not bits:
            return 0  # a filter that nothing satisfies
        self._filters[bits] = filter
        self._everybody |= bits
        self._tables = None
        return bits

    def remove(self, bits: int) -> None:
        """Forget a filter."""
        if not bits:
            return
        for bit in [bit for bit in self._clauses if bit & bits]:
            del self._clauses[bit]
            self._free.append(bit.bit_length() - 1)
        del self._filters[bits]
        self._everybody &= ~bits
        self._residual &= ~bits
        self._tables = None

    def match(self, attributes: Mapping[str, Any]) -> int:
        """The clauses that an event satisfies; EventError if an attribute that filters read has no usable value."""
        tables = self._tables
        if tables is None:
            tables = self._make_tables()
        mask = self._everybody
        get = attributes.get
        for name, table in tables:
            value = get(name)
            kind = type(value)
            if kind is str:
                mask &= table.strings.get(value, table.other)
            elif kind is float or kind is int:
                if kind is int and not -_EXACT <= value <= _EXACT:  # type: ignore[operator]
                    return self._asked(attributes, self._everybody)
                bounds = table.bounds
                i = bisect_left(bounds, value)  # type: ignore[type-var]
                mask &= table.numbers[2 * i + (i < len(bounds) and bounds[i] == value)]
            elif value is None:
                mask &= table.missing
            else:
                mask &= table.booleans[value]
            if not mask:
                return 0
        return self._asked(attributes, mask) if mask & self._residual else mask

    def _asked(self, attributes: Mapping[str, Any], mask: int) -> int:
        """Of these clauses, those of filters that accept the event themselves."""
        return sum(bits & mask for bits, filter in self._filters.items() if bits & mask and filter.matches(attributes))

    def _make_tables(self) -> list[tuple[str, _Table]]:
        # What most clauses test comes first: it is most likely to leave none.
        asked: dict[str, int] = {}
        for clause in self._clauses.values():
            for name in {test.attribute for test in clause.tests}:
                asked[name] = asked.get(name, 0) + 1
        names = sorted(asked, key=lambda name: (-asked[name], name))
        self._tables = [(name, _Table(name, self._clauses, self._everybody)) for name in names]
        return self._tables


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


def _all_accept(tests: list[Any], kind: str, value: Any) -> bool:
    """Whether a string or a boolean passes; None stands for a string that no filter names."""
    for test in tests:
        if isinstance(test, Presence):
            if test.missing:
                return False
        elif not isinstance(test, OneOf) or test.kind != kind or (value in test.values) is test.negated:
            return False
    return True


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
