"""One conjunction of leaves as a clause: what an index can test, and the residual that it cannot.

Why doubles are enough for the tests. An index holds event values as doubles, so a 64-bit whole number v arrives as
d, the double nearest to v. Rounding never reorders: v <= w implies d(v) <= d(w).

- A bound b with abs(b) < 2**53 is a double exactly (it is one, or a whole number small enough to be one). If abs(v) <=
  2**53 then d = v. Otherwise abs(d) >= 2**53 > abs(b) and d has the sign of v, so d and v lie on the same side of b. In
  both cases every comparison of v with b comes out as that of d with b, and since d is a double, ``d < b`` is ``d <=
  the next double below b``. The test is exact.
- From 2**53 on, several whole numbers share a double. ``v <= b`` still implies ``d(v) <= d(b)``, so the closed test is
  necessary, and the exact comparison joins the residual.
"""

from collections.abc import Iterable, Sequence, Set
from math import inf, nextafter
from typing import Final, cast

from tidings.model.filters import _ast
from tidings.model.filters._clauses import Clause, Kind, OneOf, Presence, Test, Topic, Within
from tidings.model.filters._evaluate import MIRRORED, compile_condition
from tidings.model.filters._like import literal_pattern
from tidings.model.filters._topics import common_pattern, compile_topic, has_wildcard, topic_covers
from tidings.model.filters._tree import attribute_names, flat
from tidings.model.filters._values import EXACT_WHOLE, PlainValue, kind_of

MAX_OTHER_TOPICS: Final = 16
"""How many NOT MATCHES on one attribute become tests; they are compared with every value of an IN list."""

ANY_NUMBER: Final = (-inf, inf)
BOOLEANS: Final[frozenset[PlainValue]] = frozenset((True, False))


class ContradictionError(Exception):
    """Raised inside this module when a conjunction contradicts itself."""


class _Facts:
    """What a conjunction demands of one attribute."""

    __slots__ = ("excluded", "high", "kind", "low", "missing", "other_topics", "present", "topic", "values")

    def __init__(self) -> None:
        self.kind: str | None = None
        self.low, self.high = ANY_NUMBER
        self.values: Set[PlainValue] | None = None
        self.excluded: set[PlainValue] | None = None
        self.topic: str | None = None
        self.other_topics: dict[str, None] = {}
        self.missing = self.present = False

    def be(self, kind: str) -> None:
        if self.kind is None:
            self.kind = kind
        elif self.kind != kind:
            raise ContradictionError

    def one_of(self, values: Set[PlainValue]) -> None:
        self.values = values if self.values is None else self.values & values

    def exclude(self, values: Iterable[PlainValue]) -> None:
        if self.kind == "boolean":
            self.one_of(BOOLEANS - set(values))
        else:
            self.excluded = {*(self.excluded or ()), *values}

    def match_topic(self, pattern: str, negated: bool) -> bool:
        """Note a pattern; False if it is one of too many."""
        if negated:
            if len(self.other_topics) < MAX_OTHER_TOPICS:
                self.other_topics[pattern] = None
            return pattern in self.other_topics
        topic = pattern if self.topic is None else common_pattern(self.topic, pattern)
        if topic is None:
            raise ContradictionError
        if has_wildcard(topic):
            self.topic = topic
        else:
            self.one_of({topic})
        return True

    def tests(self, name: str) -> list[Test]:
        """The fewest tests that express all this."""
        if self.kind is None:
            if self.missing and self.present:
                raise ContradictionError
            return [Presence(name, self.missing)] if self.missing or self.present else []
        if self.missing or self.low > self.high:
            raise ContradictionError
        if self.values is not None:
            return [self._positive(name)]
        if self.kind == "string":
            return self._of_strings(name)
        if self.excluded is None:
            return [Within(name, self.low, self.high)]
        excluded = {value for value in self.excluded if self.low <= cast(float, value) <= self.high}
        if self.low == self.high and excluded:
            raise ContradictionError
        within: list[Test] = [Within(name, self.low, self.high)]
        if not excluded:
            return within
        others = OneOf(name, "number", _frozen(excluded), True)
        return [others] if (self.low, self.high) == ANY_NUMBER else [*within, others]

    def _of_strings(self, name: str) -> list[Test]:
        """The tests of a string that may be any but a few."""
        topic, others = self.topic, list(self.other_topics)
        excluded = self._fitting(self.excluded or set())
        if topic is not None:
            if any(topic_covers(other, topic) for other in others):
                raise ContradictionError
            others = [other for other in others if common_pattern(other, topic) is not None]
        tests: list[Test] = [] if topic is None else [Topic(name, topic)]
        if excluded:
            tests.append(OneOf(name, "string", _frozen(excluded), True))
        return tests + [Topic(name, other, True) for other in others]

    def _fitting(self, values: Set[PlainValue]) -> Set[PlainValue]:
        """Of these strings, those that agree with what is demanded of the topic."""
        texts = cast("Set[str]", values)
        if self.topic is not None:
            texts = set(filter(compile_topic(self.topic), texts))
        for other in self.other_topics:
            texts = texts - set(filter(compile_topic(other), texts))
        return cast("Set[PlainValue]", texts)

    def _positive(self, name: str) -> Test:
        values = cast("Set[PlainValue]", self.values) - (self.excluded or set())
        if self.kind == "number":
            values = {value for value in values if self.low <= cast(float, value) <= self.high}
            if len(values) == 1:
                (value,) = values
                return Within(name, cast(float, value), cast(float, value))
        elif self.kind == "string":
            values = self._fitting(values)
        if not values:
            raise ContradictionError
        return OneOf(name, cast("Kind", self.kind), _frozen(values))


def clause_of(conjunction: Sequence[_ast.Condition]) -> Clause | None:
    """The clause that is true exactly when all the conditions are, or None if they contradict each other."""
    facts: dict[str, _Facts] = {}
    try:
        residual = [condition for condition in conjunction if not _note(condition, facts)]
        tests: list[Test] = []
        for name, fact in facts.items():
            tests += fact.tests(name)
    except ContradictionError:
        return None
    if residual:
        # A comparison with a missing attribute is unknown, never true. (A disjunction may be true by another operand.)
        missing = {name for name, fact in facts.items() if fact.missing}
        if missing and any(not isinstance(c, _ast.Or) and missing & attribute_names(c) for c in residual):
            return None
    return Clause(tuple(tests), flat(_ast.And, residual) if residual else None)


def _note(condition: _ast.Condition, facts: dict[str, _Facts]) -> bool:
    """Add what a condition demands to the facts; False if they do not express all of it."""
    if type(condition) is _ast.Comparison:  # First, and without pattern matching: a million filters pass here.
        left, right, op = condition.left, condition.right, condition.op
        if type(left) is _ast.Attribute and type(right) is _ast.Value:
            return _note_comparison(_facts_of(left.name, facts), op, right.value)
        if type(left) is _ast.Value and type(right) is _ast.Attribute:
            return _note_comparison(_facts_of(right.name, facts), MIRRORED[op], left.value)
        return _note_constant(condition)
    match condition:
        case _ast.Membership(_ast.Attribute(name), values, negated):
            return _note_membership(_facts_of(name, facts), values, negated)
        case _ast.Like(_ast.Attribute(name), pattern, escape, negated):
            text = literal_pattern(pattern, escape)
            return text is not None and _note_membership(_facts_of(name, facts), (text,), negated)
        case _ast.Matches(_ast.Attribute(name), pattern, negated):
            if not has_wildcard(pattern):
                return _note_membership(_facts_of(name, facts), (pattern,), negated)
            fact = _facts_of(name, facts)
            fact.be("string")
            return fact.match_topic(pattern, negated)
        case _ast.IsNull(_ast.Attribute(name), negated):
            fact = _facts_of(name, facts)
            fact.present |= negated
            fact.missing |= not negated
            return True
        case _ast.Or():
            return False
    return _note_constant(condition)


def _facts_of(name: str, facts: dict[str, _Facts]) -> _Facts:
    fact = facts.get(name)
    if fact is None:
        fact = facts[name] = _Facts()
    return fact


def _note_constant(condition: _ast.Condition) -> bool:
    """A condition that reads no attribute is decided here; any other is left to the residual."""
    if attribute_names(condition):
        return False
    if compile_condition(condition)({}) is not True:
        raise ContradictionError
    return True


def _note_comparison(fact: _Facts, op: str, value: PlainValue) -> bool:
    if type(value) is str or type(value) is bool:  # Strings are indexed by equality only; booleans have no order.
        return op in ("=", "<>") and _note_membership(fact, (value,), op == "<>")
    number = cast(float, value)
    bound = float(number) + 0.0  # Turns -0.0 into 0.0.
    exact = -EXACT_WHOLE < number < EXACT_WHOLE
    fact.be("number")
    if op in (">", ">="):
        fact.low = max(fact.low, nextafter(bound, inf) if exact and op == ">" else bound)
    elif op in ("<", "<="):
        fact.high = min(fact.high, nextafter(bound, -inf) if exact and op == "<" else bound)
    elif op == "=":
        fact.low, fact.high = max(fact.low, bound), min(fact.high, bound)
    elif exact:
        fact.exclude((bound,))
    return exact


def _note_membership(fact: _Facts, values: Sequence[PlainValue], negated: bool) -> bool:
    kind = kind_of(values[0])
    fact.be(kind)
    if kind != "number":
        if negated:
            fact.exclude(values)
        else:
            fact.one_of(set(values))
        return True
    numbers = cast(Sequence[float], values)
    exact: set[PlainValue] = {float(value) + 0.0 for value in numbers if abs(value) < EXACT_WHOLE}
    if negated:  # What cannot be excluded exactly must not be excluded at all: its neighbours share the double.
        fact.exclude(exact)
    else:
        fact.one_of({float(value) + 0.0 for value in numbers})
    return all(abs(value) < EXACT_WHOLE for value in numbers)


def _frozen(values: Set[PlainValue]) -> frozenset[float] | frozenset[str] | frozenset[bool]:
    return cast("frozenset[str]", frozenset(values))
