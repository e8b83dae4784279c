"""Does one filter cover another: is every event that `g` accepts accepted by `f` too?

Never a guess. The answer is True if it is proven: each clause of `g` implies some clause of `f`. It is False if there
is a witness: an event, built from the corner points of both filters, that `g` accepts and `f` does not, checked by
evaluating both. Otherwise it is None, "unknown"; a router then keeps both subscriptions.

A clause implies another when its tests imply each test there (an interval inside an interval, a set inside a set, any
value test where presence is asked), and each part of the other's residual is among its own, or follows from a
comparison with the same attribute, or holds for each of the few values that the attribute can have.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Final, cast

from tidings.model.filters import _ast
from tidings.model.filters._clauses import Clause, OneOf, Presence, Test, Topic, Within
from tidings.model.filters._evaluate import COMPARE, MIRRORED, compile_condition
from tidings.model.filters._like import ANY_CHARACTER, Segment, parse_pattern
from tidings.model.filters._sql import to_sql
from tidings.model.filters._topics import common_pattern, compile_topic, literal_start, topic_covers
from tidings.model.filters._tree import attribute_names
from tidings.model.filters._values import EXACT_WHOLE, PlainValue, kind_of
from tidings.model.filters._witness import witness

if TYPE_CHECKING:
    from tidings.model.filters._filter import Filter

MAX_VALUES_TRIED: Final = 1_000
"""How many values of an IN list are tried one by one against a residual; with more, the answer may be unknown."""


def covers(f: "Filter", g: "Filter") -> bool | None:
    """Whether `f` accepts every event that `g` accepts: True, False, or None if that is unknown."""
    if surely_covers(f, g):
        return True
    return None if witness(f, g) is None else False


def surely_covers(f: "Filter", g: "Filter") -> bool:
    """Whether `covers` is True; faster, because no witness of the opposite is searched for."""
    known = [_Clause(clause) for clause in g.clauses]
    return all(any(clause.implies(wanted) for wanted in f.clauses) for clause in known)


def intersects(f: "Filter", g: "Filter") -> bool | None:
    """Whether some event is accepted by both: True with a witness, False if proven impossible, None if unknown."""
    return f.intersects(g)


class _Clause:
    """A clause of the covered filter, prepared for proofs from it."""

    def __init__(self, clause: Clause) -> None:
        self.tests: dict[str, list[Test]] = {}
        for test in clause.tests:
            self.tests.setdefault(test.attribute, []).append(test)
        self.residuals = _parts(clause.residual)
        self.residual_texts = {to_sql(part) for part in self.residuals}

    def implies(self, wanted: Clause) -> bool:
        return all(self._implies_test(test) for test in wanted.tests) and all(
            self._implies_condition(part) for part in _parts(wanted.residual)
        )

    def _implies_test(self, wanted: Test) -> bool:
        own = self.tests.get(wanted.attribute, [])
        match wanted:
            case Presence(attribute, missing):
                if missing:
                    return Presence(attribute, missing=True) in own
                return (bool(own) and not any(isinstance(test, Presence) and test.missing for test in own)) or any(
                    not isinstance(part, _ast.Or) and attribute in attribute_names(part) for part in self.residuals
                )
            case Within(_, low, high):
                return any(_inside(test, low, high) for test in own)
            case OneOf(attribute, kind, values, negated):
                if negated and kind == "string":
                    return self._never(attribute, cast("frozenset[str]", values), own)
                return _keeps_to(own, kind, cast("frozenset[PlainValue]", values), negated)
            case Topic(_, pattern, negated):
                return any(_keeps_off(test, pattern) if negated else _keeps_in(test, pattern) for test in own)

    def _never(self, name: str, texts: frozenset[str], own: list[Test]) -> bool:
        """Whether the attribute is a string but none of these, by the tests or by residuals such as LIKE."""
        about = [part for part in self.residuals if _demands_string(part, name)]
        topics = [test for test in own if isinstance(test, Topic)]
        about += [_ast.Matches(_ast.Attribute(name), test.pattern, test.negated) for test in topics]
        predicates = [compile_condition(part) for part in about]
        left = frozenset(t for t in texts if all(predicate({name: t}) is True for predicate in predicates))
        return _keeps_to(own, "string", left, True) or (bool(about) and not left)

    def _implies_condition(self, wanted: _ast.Condition) -> bool:
        """Whether a part of a residual follows."""
        if to_sql(wanted) in self.residual_texts:
            return True
        if isinstance(wanted, _ast.Or):
            return self._by_values(wanted) or any(
                all(self._implies_condition(part) for part in _parts(operand)) for operand in wanted.operands
            )
        if isinstance(wanted, _ast.Matches):
            test = Topic(wanted.attribute.name, wanted.pattern, wanted.negated)
            return self._implies_test(test) or self._by_values(wanted)
        return self._by_comparison(wanted) or self._by_prefix(wanted) or self._by_values(wanted)

    def _by_comparison(self, wanted: _ast.Condition) -> bool:
        """``s > 'c'`` implies ``s > 'b'``; bounds beyond 2**53 are compared exactly here."""
        bound = _attribute_bound(wanted)
        if bound is None:
            return False
        name, op, value = bound
        for part in self.residuals:
            own = _attribute_bound(part)
            if own and own[0] == name and kind_of(own[2]) == kind_of(value) and _bound_implies(own[1:], (op, value)):
                return True
        if isinstance(value, (str, bool)):
            return False
        # Doubles that differ have rounded from values in the same order.
        ends = [(test.low, test.high) for test in self.tests.get(name, []) if isinstance(test, Within)]
        below = op in ("<", "<=", "<>") and any(high < float(value) for _, high in ends)
        return below or (op in (">", ">=", "<>") and any(low > float(value) for low, _ in ends))

    def _by_prefix(self, wanted: _ast.Condition) -> bool:
        """``s LIKE 'abc%'`` implies ``s LIKE 'ab%'``, and so does ``s MATCHES 'abc/#'``."""
        prefix = _prefix(wanted)
        if prefix is None:
            return False
        for test in self.tests.get(prefix[0], ()):
            if isinstance(test, Topic) and not test.negated:
                return tuple(literal_start(test.pattern))[: len(prefix[1])] == prefix[1]
        return any(
            isinstance(part, _ast.Like)
            and not part.negated
            and part.attribute.name == prefix[0]
            and parse_pattern(part.pattern, part.escape)[0][: len(prefix[1])] == prefix[1]
            for part in self.residuals
        )

    def _by_values(self, wanted: _ast.Condition) -> bool:
        """Whether the condition reads one attribute, which has few possible values, and holds for each."""
        names = attribute_names(wanted)
        if len(names) != 1:
            return False
        (name,) = names
        for test in self.tests.get(name, []):
            values = _exact_values(test)
            if values is not None and len(values) <= MAX_VALUES_TRIED:
                predicate = compile_condition(wanted)
                return all(predicate({name: value}) is True for value in values)
        return False


def _parts(residual: _ast.Condition | None) -> tuple[_ast.Condition, ...]:
    if residual is None:
        return ()
    return residual.operands if isinstance(residual, _ast.And) else (residual,)


def _inside(test: Test, low: float, high: float) -> bool:
    match test:
        case Within(_, own_low, own_high):
            return low <= own_low and own_high <= high
        case OneOf(_, "number", values, negated):
            numbers = cast("frozenset[float]", values)
            return (low, high) == (-inf, inf) if negated else all(low <= value <= high for value in numbers)
    return False


def _keeps_in(test: Test, pattern: str) -> bool:
    """Whether the test keeps the attribute among the topics of a pattern."""
    match test:
        case Topic(_, own, False):
            return topic_covers(pattern, own)
        case OneOf(_, "string", values, False):
            return all(map(compile_topic(pattern), cast("frozenset[str]", values)))
    return False


def _keeps_off(test: Test, pattern: str) -> bool:
    """Whether the test keeps the attribute a string, and off the topics of a pattern."""
    match test:
        case Topic(_, own, negated):
            return topic_covers(own, pattern) if negated else common_pattern(own, pattern) is None
        case OneOf(_, "string", values, False):
            return not any(map(compile_topic(pattern), cast("frozenset[str]", values)))
    return False


def _keeps_to(own: Iterable[Test], kind: str, values: frozenset[PlainValue], negated: bool) -> bool:
    """Whether one of the tests keeps the attribute among the values, or (negated) all of them together off them."""
    if not negated:
        number = kind == "number"  # To Python, 1.0 is in {True}.
        return any(
            (isinstance(test, OneOf) and test.kind == kind and not test.negated and test.values <= values)
            or (number and isinstance(test, Within) and test.low == test.high and test.low in values)
            for test in own
        )
    left = set(values)
    of_kind = False
    for test in own:
        if isinstance(test, Within) and kind == "number":
            of_kind = True
            left = {value for value in left if test.low <= cast(float, value) <= test.high}
        elif isinstance(test, OneOf) and test.kind == kind:
            of_kind = True
            left = left - test.values if test.negated else left & test.values
    return of_kind and not left


def _exact_values(test: Test) -> frozenset[PlainValue] | None:
    """The values that a test leaves, if they are few and each double stands for one value only."""
    match test:
        case Within(_, low, high) if low == high and abs(low) < EXACT_WHOLE:
            return frozenset((low,))
        case OneOf(_, "number", values, False):
            numbers = cast("frozenset[float]", values)
            return cast("frozenset[PlainValue]", numbers) if all(abs(v) < EXACT_WHOLE for v in numbers) else None
        case OneOf(_, _, values, False):
            return cast("frozenset[PlainValue]", values)
    return None


def _demands_string(condition: _ast.Condition, name: str) -> bool:
    """Whether the condition can only be true if the attribute, the only one it reads, is a string."""
    match condition:
        case _ast.Like(_ast.Attribute(attribute)) | _ast.Matches(_ast.Attribute(attribute)):
            return attribute == name
        case _ast.Comparison():
            bound = _attribute_bound(condition)
            return bound is not None and bound[0] == name and isinstance(bound[2], str)
    return False


def _prefix(condition: _ast.Condition) -> tuple[str, Segment] | None:
    """The attribute and the beginning that a pattern such as ``'ab%'`` asks for."""
    if isinstance(condition, _ast.Like) and not condition.negated:
        segments = parse_pattern(condition.pattern, condition.escape)
        if len(segments) == 2 and not segments[1] and ANY_CHARACTER not in segments[0]:
            return condition.attribute.name, segments[0]
    return None


def _attribute_bound(condition: _ast.Condition) -> tuple[str, str, PlainValue] | None:
    match condition:
        case _ast.Comparison(op, _ast.Attribute(name), _ast.Value(value)):
            return name, op, value
        case _ast.Comparison(op, _ast.Value(value), _ast.Attribute(name)):
            return name, MIRRORED[op], value
    return None


def _bound_implies(own: tuple[str, PlainValue], wanted: tuple[str, PlainValue]) -> bool:
    """Whether ``x own`` implies ``x wanted``, both comparisons of x with values of one kind."""
    (op, value), (wanted_op, bound) = own, wanted
    compare: Callable[[object, object], bool] = COMPARE[wanted_op]
    if op == "=":
        return compare(value, bound)
    if wanted_op == "<>":
        return (op in ("<", ">") and COMPARE["<=" if op == "<" else ">="](value, bound)) or (
            op in ("<=", ">=") and COMPARE[op[0]](value, bound)
        )
    if op[0] != wanted_op[0] or op == "<>" or wanted_op == "=":
        return False
    if value == bound:
        return op == wanted_op or len(wanted_op) == 2
    return COMPARE[op[0]](value, bound)
