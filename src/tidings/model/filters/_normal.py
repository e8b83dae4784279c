"""From a condition to its clauses (the disjunctive normal form that the matching index works on).

1. Push NOT down to the leaves. What remains is AND and OR of leaves; such a condition is true exactly when the leaves
   make it true, so unknown needs no special case from here on.
2. Merge equalities on one attribute inside an OR: ``a = 1 OR a = 2 OR a IN (3, 4)`` is one leaf.
3. Distribute AND over OR while the clauses stay few (`MAX_CLAUSES`); a disjunction that would exceed the bound stays
   whole, in the residual of its conjunction, so the tests on the other conjuncts are kept.
4. Translate each conjunction to tests (`_conjunction`); contradictory ones vanish.
"""

from collections.abc import Iterable
from itertools import product
from typing import Final

from tidings.model.filters import _ast
from tidings.model.filters._clauses import Clause
from tidings.model.filters._conjunction import clause_of
from tidings.model.filters._topics import has_wildcard
from tidings.model.filters._tree import flat, without_not
from tidings.model.filters._values import PlainValue, kind_of

MAX_CLAUSES: Final = 64
"""How many clauses a filter is spread over at most."""

MAX_WORK: Final = 20_000
"""How many leaves all clauses together may repeat; a very long conjunction is not copied for every clause."""

Conjunction = tuple[_ast.Condition, ...]
"""Leaves, and disjunctions that are not to be distributed."""


def clauses_of(condition: _ast.Condition) -> tuple[Clause, ...]:
    """The clauses of a condition: it is true exactly when one of them is. No clause: it never is."""
    if type(condition) is _ast.And and all(type(operand) is _ast.Comparison for operand in condition.operands):
        clause = clause_of(condition.operands)  # Most filters are this, and are done here.
        return () if clause is None else (clause,)
    clauses: dict[object, Clause] = {}
    for conjunction in _conjunctions(merge_equalities(without_not(condition))):
        clause = clause_of(conjunction)
        if clause is None:
            continue
        if not clause.tests and clause.residual is None:
            return (clause,)
        # Only clauses without a residual are compared: in a tree, the literals TRUE and 1 are equal to Python.
        clauses[clause.tests if clause.residual is None else len(clauses)] = clause
    return tuple(clauses.values())


def merge_equalities(condition: _ast.Condition) -> _ast.Condition:
    """Step 2, all over the tree; exact in three-valued logic, so also below NOT."""
    match condition:
        case _ast.Not(operand):
            return _ast.Not(merge_equalities(operand))
        case _ast.And(operands):
            return flat(_ast.And, [merge_equalities(operand) for operand in operands])
        case _ast.Or(operands):
            return flat(_ast.Or, _with_equalities_merged(merge_equalities(operand) for operand in operands))
    return condition


def _with_equalities_merged(operands: Iterable[_ast.Condition]) -> list[_ast.Condition]:
    others: list[_ast.Condition] = []
    values: dict[tuple[str, str], dict[PlainValue, None]] = {}
    for operand in operands:
        equality = _equality(operand)
        if equality is None:
            others.append(operand)
        else:
            name, some = equality
            values.setdefault((name, kind_of(some[0])), {}).update(dict.fromkeys(some))
    merged = [_ast.Membership(_ast.Attribute(name), tuple(some)) for (name, _), some in values.items()]
    return [*merged, *others]


def _equality(condition: _ast.Condition) -> tuple[str, tuple[PlainValue, ...]] | None:
    """The attribute and the values of `attribute = value`, `attribute IN (values)` and a pattern without wildcards."""
    match condition:
        case _ast.Comparison("=", _ast.Attribute(name), _ast.Value(value)):
            return name, (value,)
        case _ast.Comparison("=", _ast.Value(value), _ast.Attribute(name)):
            return name, (value,)
        case _ast.Membership(_ast.Attribute(name), values, False):
            return name, values
        case _ast.Matches(_ast.Attribute(name), pattern, False) if not has_wildcard(pattern):
            return name, (pattern,)
    return None


def _conjunctions(condition: _ast.Condition) -> list[Conjunction]:
    """Step 3: at most MAX_CLAUSES conjunctions whose disjunction is the condition."""
    match condition:
        case _ast.Or(operands):
            return _of_disjunction(condition, operands)
        case _ast.And(operands):
            return _of_conjunction(operands)
    return [(condition,)]


def _of_disjunction(condition: _ast.Or, operands: tuple[_ast.Condition, ...]) -> list[Conjunction]:
    if len(operands) > MAX_CLAUSES:
        return [(condition,)]
    spread: list[Conjunction] = []
    for operand in operands:  # Plain loops where this recurses: a comprehension would double the frames per level.
        spread += _conjunctions(operand)
    if len(spread) <= MAX_CLAUSES:
        return spread
    return [operand.operands if isinstance(operand, _ast.And) else (operand,) for operand in operands]


def _of_conjunction(operands: tuple[_ast.Condition, ...]) -> list[Conjunction]:
    shared: list[_ast.Condition] = []
    choices: list[tuple[_ast.Or, list[Conjunction]]] = []
    for operand in operands:
        if isinstance(operand, _ast.Or):
            choices.append((operand, _conjunctions(operand)))
        else:
            shared.append(operand)
    room = max(1, min(MAX_CLAUSES, MAX_WORK // len(operands)))
    chosen: list[list[Conjunction]] = []
    for disjunction, choice in sorted(choices, key=lambda pair: len(pair[1])):
        if len(choice) <= room:
            room //= len(choice)
            chosen.append(choice)
        else:
            shared.append(disjunction)
    common = tuple(shared)
    return [common + tuple(leaf for part in parts for leaf in part) for parts in product(*chosen)]
