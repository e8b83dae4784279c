"""An event that one filter accepts and another does not, if the corner points of the two show one.

The answer of a filter changes only at its literals: an interval at its ends, a set at its members, a pattern at its
text. So the candidates for an attribute are the literals that either filter compares it with, their neighbours, a value
of each other kind, and its absence. Trying every combination would explode; instead the candidates of an attribute are
narrowed by the tests of the clause that the event has to satisfy, and the combinations that are tried are bounded.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product
from math import inf, isinf, nextafter
from typing import TYPE_CHECKING, Final, cast

from tidings.model.filters import _ast
from tidings.model.filters._clauses import Clause, OneOf, Presence, Test, Topic, Within
from tidings.model.filters._like import parse_pattern
from tidings.model.filters._topics import compile_topic, topic_samples
from tidings.model.filters._tree import attribute_names, nodes
from tidings.model.filters._values import WHOLE_MAX, WHOLE_MIN, PlainValue

if TYPE_CHECKING:
    from tidings.model.filters._filter import Filter

Value = PlainValue | None

MAX_CANDIDATES: Final = 48
"""How many values are tried for an attribute."""

MAX_LITERALS: Final = 500
"""How many literals of the two filters are looked at per attribute."""

MAX_EVENTS: Final = 2_000
"""How many events are built per clause."""

MAX_STEPS: Final = 1_000_000
"""How many nodes are evaluated for a pair of filters, all events together."""

_OTHERS: Final[tuple[Value, ...]] = (None, 0, 0.5, "", "a", True, False)


def witness(f: "Filter", g: "Filter") -> dict[str, Value] | None:
    """An event that `g` accepts and `f` does not, or None if none was found."""
    literals = _literals(f.condition, g.condition)
    names = sorted(f.attributes | g.attributes)
    size = sum(1 for condition in (f.condition, g.condition) for _ in nodes(condition))
    budget = max(1, MAX_STEPS // size // max(1, len(g.clauses)))
    for clause in g.clauses:
        candidates = {name: _candidates(name, clause, literals.get(name, [])) for name in names}
        if not all(candidates.values()):
            continue
        for event in islice(_events(candidates, _pressing(f, candidates), clause), budget):
            if g.evaluate(event) is True and f.evaluate(event) is not True:
                return event
    return None


def _events(
    candidates: Mapping[str, list[Value]], pressing: Mapping[str, Value], clause: Clause
) -> Iterator[dict[str, Value]]:
    """The events to try: the most pressing values, then one attribute varied at a time, then combinations."""
    tied = sorted(attribute_names(clause.residual)) if clause.residual is not None else []
    bases = [dict(pressing)]
    choices = islice(product(*(candidates[name] for name in tied)), MAX_EVENTS // 4 if tied else 0)
    bases += [{**pressing, **dict(zip(tied, chosen, strict=True))} for chosen in choices]
    yield from bases
    for base in bases[: MAX_EVENTS // 100]:
        for name, values in candidates.items():
            for value in values:
                yield {**base, name: value}
    few = [values[: max(2, int(MAX_EVENTS ** (1 / len(candidates))))] for values in candidates.values()]
    for chosen in islice(product(*few), MAX_EVENTS):
        yield dict(zip(candidates, chosen, strict=True))


def _pressing(f: "Filter", candidates: Mapping[str, list[Value]]) -> dict[str, Value]:
    """For each attribute, the candidate that fails the tests of most clauses of `f`."""
    event: dict[str, Value] = {}
    for name, values in candidates.items():
        tests = [test for clause in f.clauses for test in clause.tests if test.attribute == name]
        event[name] = max(values, key=lambda value: sum(not passes(test, value) for test in tests))
    return event


def _candidates(name: str, clause: Clause, literals: list[Value]) -> list[Value]:
    """The values that the tests of the clause leave of an attribute, absent first where it may be."""
    tests = [test for test in clause.tests if test.attribute == name]
    found: dict[tuple[type, Value], Value] = {}
    for value in (*_OTHERS, *_corners(tests), *literals):
        if all(passes(test, value) for test in tests):
            found.setdefault((type(value), value), value)
            if len(found) == MAX_CANDIDATES:
                break
    return list(found.values())


def _corners(tests: list[Test]) -> Iterator[Value]:
    for test in tests:
        match test:
            case Within(_, low, high):
                yield from (end for end in (low, high) if not isinf(end))
                if not isinf(low) and not isinf(high):
                    yield low / 2 + high / 2
            case OneOf(_, _, values, False):
                yield from islice(cast("frozenset[PlainValue]", values), MAX_CANDIDATES)
            case Topic(_, pattern):
                yield from topic_samples(pattern)
            case _:
                pass


def passes(test: Test, value: Value) -> bool:
    """Whether a value passes a test, as an index would judge it (numbers as doubles)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match test:
        case Within(_, low, high):
            return number and low <= float(cast(float, value)) <= high
        case OneOf(_, "number", values, negated):
            return number and (float(cast(float, value)) in values) is not negated
        case OneOf(_, kind, values, negated):
            return isinstance(value, str if kind == "string" else bool) and (value in values) is not negated
        case Topic(_, pattern, negated):
            return isinstance(value, str) and compile_topic(pattern)(value) is not negated
        case Presence(_, missing):
            return (value is None) is missing


def _literals(*conditions: _ast.Condition) -> dict[str, list[Value]]:
    """For each attribute, the literals that it may meet anywhere in the conditions, and their neighbours.

    An attribute that meets another attribute, or arithmetic, may meet any literal of the conditions.
    """
    met: dict[str, list[Value]] = {}
    tangled: set[str] = set()
    everything: list[Value] = []
    for condition in conditions:
        for node in nodes(condition):
            names, values = _meeting(node)
            if len(names) > 1 or (names and not values and isinstance(node, _ast.Comparison)):
                tangled |= names
            for known in (everything, *(met.setdefault(name, []) for name in names)):
                if len(known) < MAX_LITERALS:
                    known.extend(values)
    for name in tangled:
        met[name] += everything
    return met


def _meeting(node: _ast.Condition | _ast.Operand) -> tuple[frozenset[str], list[Value]]:
    match node:
        case _ast.Comparison():
            literals = [part.value for part in nodes(node) if isinstance(part, _ast.Value)]
            return attribute_names(node), [near for value in literals for near in _near(value)]
        case _ast.Membership(_ast.Attribute(name), values):
            return frozenset((name,)), [near for value in values[:MAX_CANDIDATES] for near in _near(value)]
        case _ast.Like(_ast.Attribute(name), pattern, escape):
            return frozenset((name,)), list(_samples(pattern, escape))
        case _ast.Matches(_ast.Attribute(name), pattern):
            return frozenset((name,)), list(topic_samples(pattern))
        case _ast.IsNull(_ast.Attribute(name)):
            return frozenset((name,)), []
    return frozenset(), []


def _near(value: PlainValue) -> Iterator[Value]:
    """A literal and its neighbours on both sides."""
    yield value
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield from (value + "\x01", value[:-1], value + "a")
    else:
        if isinstance(value, int):
            yield from (near for near in (value - 1, value + 1) if WHOLE_MIN <= near <= WHOLE_MAX)
        ends = (nextafter(float(value), inf), nextafter(float(value), -inf), float(value) + 1, float(value) - 1)
        yield from (end for end in ends if not isinf(end))


def _samples(pattern: str, escape: str | None) -> Iterator[str]:
    """Strings that a pattern matches, and some that it barely does not."""
    segments = parse_pattern(pattern, escape)
    for filling in ("", "a"):
        for joint in ("", "z"):
            text = joint.join("".join(c if c is not None else filling or "b" for c in segment) for segment in segments)
            yield from (text, "z" + text, text + "z", text[:-1])
