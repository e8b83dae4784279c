"""Matching without arrays: for as few subscriptions as most brokers have clients, and one event at a time.

A kernel over arrays answers for a million subscriptions, but to call it at all costs as much as to ask some dozens of
compiled filters. Here each filter is filed under the values of which one is necessary for it (an equality or a short
IN list in each of its clauses, see `Filter.clauses`); an event asks those filed under its own values, and those that
have no such value. Being filed only says who is asked: what a filter answers is its own compiled condition, so the
answer is exact for the whole language, as that of `MatchingIndex` is.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

from tidings.errors import InputError
from tidings.model.filters import Clause, Filter, OneOf, PlainValue, Within, check_value, compile_condition

__all__ = ["PlainIndex"]

Key = TypeVar("Key", bound=Hashable)
Predicate = Callable[[Mapping[str, PlainValue | None]], bool | None]
Places = tuple[str, frozenset[PlainValue]]
"""An attribute, and values of which it has to have one; numbers as doubles."""

_MAX_PLACES: Final = 16
"""A filter that could be under more values than this is asked always."""


class PlainIndex(Generic[Key]):
    """Subscriptions by key, matched against single events.

    >>> index = PlainIndex()
    >>> index.put("s1", Filter.parse("symbol = 'YHOO' AND volume > 1000000"))
    >>> index.put("s2", Filter.parse("volume BETWEEN 0 AND 500 OR symbol LIKE 'Y%'"))
    >>> sorted(index.match({"symbol": "YHOO", "volume": 2_000_000}))
    ['s1', 's2']
    """

    def __init__(self) -> None:
        self.filters: dict[Key, Filter] = {}
        self._asked_always: dict[Key, Predicate] = {}
        self._filed: dict[str, dict[PlainValue, dict[Key, Predicate]]] = {}
        self._reads: dict[str, int] = {}  # by attribute: how many filters read it

    def __len__(self) -> int:
        return len(self.filters)

    def __contains__(self, key: object) -> bool:
        return key in self.filters

    def put(self, key: Key, filter: Filter) -> None:
        """Add a subscription; its key must be new."""
        if key in self.filters:
            raise InputError(f"subscription {key!r} is in the index already; remove it first")
        self.filters[key] = filter
        predicate = compile_condition(filter.condition)
        for table in self._tables(filter):
            table[key] = predicate
        for name in filter.attributes:
            self._reads[name] = self._reads.get(name, 0) + 1

    def remove(self, key: Key) -> None:
        """Forget a subscription."""
        filter = self.filters.pop(key, None)
        if filter is None:
            raise InputError(f"there is no subscription {key!r} in the index")
        for table in self._tables(filter):
            del table[key]
        places = _places(filter)
        if places is not None:
            self._filed[places[0]] = {value: table for value, table in self._filed[places[0]].items() if table}
        for name in filter.attributes:
            self._reads[name] -= 1
            if not self._reads[name]:
                del self._reads[name]

    def match(self, attributes: Mapping[str, object]) -> list[Key]:
        """The keys of the subscriptions that one event satisfies, each once, in no particular order."""
        reads = self._reads
        values = {name: check_value(name, value) for name, value in attributes.items() if name in reads}
        found = [key for key, predicate in self._asked_always.items() if predicate(values) is True]
        for name, by_value in self._filed.items():
            value = values.get(name)
            if value is None:
                continue
            # As in the clauses: numbers are told apart as doubles here, and exactly by the predicate.
            candidates = by_value.get(float(value) if type(value) is int else value)
            if candidates is not None:
                found += [key for key, predicate in candidates.items() if predicate(values) is True]
        return found

    def _tables(self, filter: Filter) -> list[dict[Key, Predicate]]:
        """Where a filter is filed."""
        places = _places(filter)
        if places is None:
            return [self._asked_always]
        by_value = self._filed.setdefault(places[0], {})
        return [by_value.setdefault(value, {}) for value in places[1]]


def _places(filter: Filter) -> Places | None:
    """An attribute that each clause of the filter wants to have one of few values, and those; None if there is none."""
    wanted = [_necessary(clause) for clause in filter.clauses]
    for name in sorted(frozenset.intersection(*map(frozenset, wanted))) if wanted else ():
        values = frozenset(value for values in wanted for value in values[name])
        if len(values) <= _MAX_PLACES:
            return name, values
    return None


def _necessary(clause: Clause) -> dict[str, frozenset[PlainValue]]:
    """By attribute: the values of which the clause needs one."""
    found: dict[str, frozenset[PlainValue]] = {}
    for test in clause.tests:
        if isinstance(test, OneOf) and not test.negated:
            found[test.attribute] = frozenset(test.values)
        elif isinstance(test, Within) and test.low == test.high:
            found[test.attribute] = frozenset((test.low,))
    return found
