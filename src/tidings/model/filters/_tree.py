"""Walks over the syntax tree: which attributes does it read, and what is it without NOT?"""

from collections.abc import Iterator
from typing import Final, Literal

from tidings.model.filters import _ast

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/"]

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
            case _ast.Membership(attribute) | _ast.Like(attribute) | _ast.IsNull(attribute):
                stack.append(attribute)
            case _:
                pass


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
