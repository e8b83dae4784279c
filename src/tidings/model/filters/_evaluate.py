"""The filter as a Python predicate: the syntax tree compiled once into closures, then called per event.

A compiled condition takes the plain values of the attributes it reads (`check_value` made them; a missing attribute
is None) and returns True, False or None. Each closure is made for the shape it was compiled from (attribute against
literal of a known kind is by far the most common), so that nothing about the filter is decided per event.
"""

from collections.abc import Callable, Mapping
from math import fmod, isinf, isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from tidings.model.filters import _ast
from tidings.model.filters._like import compile_pattern
from tidings.model.filters._topics import compile_topic
from tidings.model.filters._tree import may_be_text
from tidings.model.filters._values import PlainValue

Values = Mapping[str, PlainValue | None]
Predicate = Callable[[Values], bool | None]
Compute = Callable[[Values], float | None]

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compile_condition(condition: _ast.Condition) -> Predicate:
    """A function from the plain values of the attributes to True, False or None (unknown)."""
    match condition:
        case _ast.Comparison():
            return _comparison(condition)
        case _ast.And(operands):
            return _connective(operands, decisive=False)
        case _ast.Or(operands):
            return _connective(operands, decisive=True)
        case _ast.Not(operand):
            return _negation(operand)
        case _ast.Membership():
            return _membership(condition)
        case _ast.Like(_ast.Attribute(name), pattern, escape, negated):
            return _text_test(name, compile_pattern(pattern, escape), negated)
        case _ast.Matches(_ast.Attribute(name), pattern, negated):
            return _text_test(name, compile_topic(pattern), negated)
        case _ast.IsNull(_ast.Attribute(name), negated):
            return lambda values: (values.get(name) is None) is not negated
        case _ast.Constant(value):
            return lambda _: value


def _connective(operands: tuple[_ast.Condition, ...], *, decisive: bool) -> Predicate:
    """AND is decided by the first False, OR by the first True; otherwise an unknown makes the whole unknown."""
    parts = [compile_condition(operand) for operand in operands]

    def connective(values: Values) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            truth = part(values)
            if truth is decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return connective


def _negation(operand: _ast.Condition) -> Predicate:
    part = compile_condition(operand)

    def negation(values: Values) -> bool | None:
        truth = part(values)
        return None if truth is None else not truth

    return negation


def _comparison(comparison: _ast.Comparison) -> Predicate:
    left, right, op = comparison.left, comparison.right, comparison.op
    if isinstance(left, _ast.Attribute) and isinstance(right, _ast.Value):
        return _attribute_against(left.name, COMPARE[op], right.value)
    if isinstance(left, _ast.Value) and isinstance(right, _ast.Attribute):
        return _attribute_against(right.name, COMPARE[MIRRORED[op]], left.value)
    first, second, compare = _operand(left), _operand(right), COMPARE[op]
    ordered = op not in ("=", "<>")

    def comparison_of_two(values: Values) -> bool | None:
        a, b = first(values), second(values)
        if a is None or b is None:
            return None
        kind, other = type(a), type(b)
        if kind is other:
            return None if ordered and kind is bool else compare(a, b)
        if kind in (int, float) and other in (int, float):
            return compare(a, b)
        return None

    return comparison_of_two


def _attribute_against(name: str, compare: Callable[[Any, Any], bool], literal: PlainValue) -> Predicate:
    if isinstance(literal, (str, bool)):
        kind = type(literal)

        def against_kind(values: Values) -> bool | None:
            value = values.get(name)
            return compare(value, literal) if type(value) is kind else None

        return against_kind

    def against_number(values: Values) -> bool | None:
        value = values.get(name)
        kind = type(value)
        return compare(value, literal) if kind is int or kind is float else None

    return against_number


def _membership(membership: _ast.Membership) -> Predicate:
    name, negated = membership.attribute.name, membership.negated
    members = frozenset(
        membership.values
    )  # All of one kind, so 1 and TRUE cannot meet; 1 and 1.0 are equal and hash so.
    first = membership.values[0]
    kinds = (type(first),) if isinstance(first, (str, bool)) else (int, float)

    def membership_test(values: Values) -> bool | None:
        value = values.get(name)
        return (value in members) is not negated if type(value) in kinds else None

    return membership_test


def _text_test(name: str, matches: Callable[[str], bool], negated: bool) -> Predicate:
    def text_test(values: Values) -> bool | None:
        value = values.get(name)
        return matches(value) is not negated if isinstance(value, str) else None

    return text_test


def _operand(operand: _ast.Operand) -> Callable[[Values], PlainValue | None]:
    match operand:
        case _ast.Attribute(name):
            return lambda values: values.get(name)
        case _ast.Value(value):
            return lambda _: value
        case _ast.Arithmetic():
            return _sum_or_text(operand) if may_be_text(operand) else _arithmetic(operand)


def _sum_or_text(node: _ast.Arithmetic) -> Callable[[Values], PlainValue | None]:
    """``left + right`` where the event decides whether numbers are added or strings joined."""
    left, right = _operand(node.left), _operand(node.right)

    def sum_or_text(values: Values) -> PlainValue | None:
        a, b = left(values), right(values)
        if type(a) is str and type(b) is str:
            return a + b
        if type(a) in (int, float) and type(b) in (int, float):
            result = float(a) + float(b)  # type: ignore[arg-type]
            return None if isnan(result) else result
        return None

    return sum_or_text


def _double(operand: _ast.Operand) -> Compute:
    """An operand of arithmetic: a double, or None where it is missing or no number."""
    match operand:
        case _ast.Attribute(name):

            def attribute(values: Values) -> float | None:
                value = values.get(name)
                return float(value) if type(value) is float or type(value) is int else None

            return attribute
        case _ast.Value(value):
            literal = float(value)
            return lambda _: literal
        case _ast.Arithmetic():
            return _arithmetic(operand)


def _arithmetic(node: _ast.Arithmetic) -> Compute:
    left, right, op = _double(node.left), _double(node.right), node.op

    def arithmetic(values: Values) -> float | None:
        a, b = left(values), right(values)
        if a is None or b is None:
            return None
        if op == "+":
            result = a + b
        elif op == "-":
            result = a - b
        elif op == "*":
            result = a * b
        else:
            if b == 0.0 or (op == "%" and isinf(a)):
                return None
            result = a / b if op == "/" else fmod(a, b)
        return None if isnan(result) else result

    return arithmetic
