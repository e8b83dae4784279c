"""Matching without arrays: for a few dozen subscriptions, one event at a time.

A kernel over arrays matches a million subscriptions, but one call of it costs as much as evaluating some dozens of
compiled filters. Here each filter is filed under values of which an event must have one (an equality, a short IN list
or a topic pattern in each of its clauses, see `Filter.clauses`); an event is tested on the filters filed under its own
values, and on those that have no such value. Filing only selects candidates; the compiled condition decides, so the
answer is exact for the whole language, like that of `MatchingIndex`.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

from tidings.errors import InputError
from tidings.matching._topics import TopicShape, shape_of
from tidings.model.filters import Clause, Filter, OneOf, PlainValue, Topic, Within, check_value, compile_condition

__all__ = ["PlainIndex"]

Key = TypeVar("Key", bound=Hashable)
Predicate = Callable[[Mapping[str, PlainValue | None]], bool | None]
View = tuple[str, TopicShape | None]
"""An attribute, or what a shape of topic patterns shows of it."""
Places = tuple[View, frozenset[PlainValue]]
"""A view, and values of which it has to have one; numbers as doubles."""

_MAX_PLACES: Final = 16
"""A filter that would be under more values than this is evaluated for every event."""


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
        self._unfiled: dict[Key, Predicate] = {}
        self._filed: dict[View, dict[PlainValue, dict[Key, Predicate]]] = {}
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
        found = [key for key, predicate in self._unfiled.items() if predicate(values) is True]
        for (name, shape), by_value in self._filed.items():
            value = values.get(name)
            if shape is not None:
                value = shape.key(value.split("/")) if isinstance(value, str) else None
            if value is None:
                continue
            # As in the clauses: numbers are compared as doubles here, and exactly by the predicate.
            candidates = by_value.get(float(value) if type(value) is int else value)
            if candidates is not None:
                found += [key for key, predicate in candidates.items() if predicate(values) is True]
        return found

    def _tables(self, filter: Filter) -> list[dict[Key, Predicate]]:
        """Where a filter is filed."""
        places = _places(filter)
        if places is None:
            return [self._unfiled]
        by_value = self._filed.setdefault(places[0], {})
        return [by_value.setdefault(value, {}) for value in places[1]]


def _places(filter: Filter) -> Places | None:
    """A view that each clause of the filter wants to have one of few values, and those; None if there is none."""
    wanted = [_necessary(clause) for clause in filter.clauses]
    views = frozenset.intersection(*map(frozenset, wanted)) if wanted else frozenset[View]()
    for view in sorted(views, key=lambda view: (view[0], view[1] is not None, view[1] or ())):
        values = frozenset(value for values in wanted for value in values[view])
        if len(values) <= _MAX_PLACES:
            return view, values
    return None


def _necessary(clause: Clause) -> dict[View, frozenset[PlainValue]]:
    """By view: the values of which the clause needs one."""
    found: dict[View, frozenset[PlainValue]] = {}
    for test in clause.tests:
        if isinstance(test, OneOf) and not test.negated:
            found[test.attribute, None] = frozenset(test.values)
        elif isinstance(test, Topic) and not test.negated:
            found[test.attribute, shape_of(test.pattern)] = frozenset((test.pattern,))
        elif isinstance(test, Within) and test.low == test.high:
            found[test.attribute, None] = frozenset((test.low,))
    return found
