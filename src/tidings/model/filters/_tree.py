"""Walks over the syntax tree: the attributes that it reads, their kinds, and its form without NOT."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from tidings.model.filters import _ast
from tidings.model.filters._values import kind_of

if TYPE_CHECKING:
    from tidings.model.filters._filter import Filter

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/", "%"]

INVERSE: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def attribute_names(tree: _ast.Condition | _ast.Operand) -> frozenset[str]:
    """The names of the attributes that a condition reads."""
    return frozenset(node.name for node in nodes(tree) if isinstance(node, _ast.Attribute))


def nodes(tree: _ast.Condition | _ast.Operand) -> Iterator[_ast.Condition | _ast.Operand]:
    """Every node of the tree, parents before children."""
    stack: list[_ast.Condition | _ast.Operand] = [tree]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case _ast.And(operands) | _ast.Or(operands):
                stack.extend(reversed(operands))
            case _ast.Not(operand):
                stack.append(operand)
            case _ast.Comparison(_, left, right) | _ast.Arithmetic(_, left, right):
                stack += (right, left)
            case _ast.Membership(attribute) | _ast.Like(attribute) | _ast.Matches(attribute) | _ast.IsNull(attribute):
                stack.append(attribute)
            case _:
                pass


def condition_size(subject: "Filter") -> tuple[int, int]:
    """How many nodes a filter has, and how many of them are patterns: what its evaluation costs depends on both."""
    found = list(nodes(subject.condition))
    return len(found), sum(isinstance(node, _ast.Like | _ast.Matches) for node in found)


def may_be_text(operand: _ast.Operand) -> bool:
    """Whether an operand can be a string: not if arithmetic makes it a number."""
    match operand:
        case _ast.Attribute():
            return True
        case _ast.Value(value):
            return isinstance(value, str)
        case _ast.Arithmetic(op, left, right):
            return op == "+" and may_be_text(left) and may_be_text(right)


def without_not(condition: _ast.Condition, *, negated: bool = False) -> _ast.Condition:
    """The negation normal form: NOT pushed down to the leaves, where each has its exact opposite.

    Exact in three-valued logic, because a comparison of different kinds is unknown: so is its opposite.
    """
    match condition:
        case _ast.Not(operand):
            return without_not(operand, negated=not negated)
        case _ast.And(operands) | _ast.Or(operands):
            node = _ast.And if isinstance(condition, _ast.And) is not negated else _ast.Or
            return flat(node, [without_not(operand, negated=negated) for operand in operands])
        case _ if not negated:
            return condition
        case _ast.Constant(value):
            return _ast.Constant(not value)
        case _ast.Comparison(op, left, right):
            return _ast.Comparison(INVERSE[op], left, right)
        case _ast.Membership(attribute, values, was_negated):
            return _ast.Membership(attribute, values, not was_negated)
        case _ast.Like(attribute, pattern, escape, was_negated):
            return _ast.Like(attribute, pattern, escape, not was_negated)
        case _ast.Matches(attribute, pattern, was_negated):
            return _ast.Matches(attribute, pattern, not was_negated)
        case _ast.IsNull(attribute, was_negated):
            return _ast.IsNull(attribute, not was_negated)
    raise AssertionError(f"no such condition: {condition!r}")


def flat(node: type[_ast.And] | type[_ast.Or], operands: list[_ast.Condition]) -> _ast.Condition:
    """AND or OR of the operands, without nesting a node of the same kind; of one operand, the operand itself."""
    flattened: list[_ast.Condition] = []
    for operand in operands:
        if isinstance(operand, node):
            flattened.extend(operand.operands)
        else:
            flattened.append(operand)
    return flattened[0] if len(flattened) == 1 else node(tuple(flattened))


def implied_kinds(subject: "Filter") -> dict[str, frozenset[str]]:
    """The attributes in the order in which the filter names them, each with the kinds that it is compared with.

    Kinds are number, string and boolean. Arithmetic is done with numbers; only a sum is one of strings if a string is
    part of it or compared with it. Attributes that are compared with each other are of the same kinds. An attribute has
    no kind if it is only in `IS NULL`, and several if it is compared with several.
    """
    found: dict[str, set[str]] = {
        node.name: set() for node in nodes(subject.condition) if isinstance(node, _ast.Attribute)
    }
    pairs: list[tuple[str, str]] = []
    for node in nodes(subject.condition):
        match node:
            case _ast.Comparison(_, _ast.Attribute(left), _ast.Attribute(right)):
                pairs.append((left, right))
            case _ast.Comparison(_, left, right):
                for one, other in ((left, right), (right, left)):
                    _note_kinds(found, one, other)
            case _ast.Membership(_ast.Attribute(name), values):
                found[name].update(map(kind_of, values))
            case _ast.Like(_ast.Attribute(name)) | _ast.Matches(_ast.Attribute(name)):
                found[name].add("string")
    for _ in pairs:  # each time at least one kind goes one comparison further
        for left, right in pairs:
            found[left] |= found[right]
            found[right] |= found[left]
    return {name: frozenset(kinds) for name, kinds in found.items()}


def _note_kinds(found: dict[str, set[str]], operand: _ast.Operand, other: _ast.Operand) -> None:
    """What an operand of a comparison says about the attributes in it and about the other one."""
    if isinstance(operand, _ast.Value):
        kind = kind_of(operand.value)
    else:
        is_text = may_be_text(operand) and may_be_text(other) and (_has_text(operand) or _has_text(other))
        kind = "string" if is_text else "number"
    if isinstance(operand, _ast.Arithmetic):
        for name in attribute_names(operand):
            found[name].add(kind)
    if isinstance(other, _ast.Attribute):
        found[other.name].add(kind)


def _has_text(operand: _ast.Operand) -> bool:
    return any(isinstance(node, _ast.Value) and isinstance(node.value, str) for node in nodes(operand))
