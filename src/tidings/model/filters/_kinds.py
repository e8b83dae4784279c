"""What kind of value each attribute of a filter is compared with: the kind that it needs for the filter to accept."""

from tidings.model.filters import _ast
from tidings.model.filters._filter import Filter
from tidings.model.filters._tree import attribute_names, nodes
from tidings.model.filters._values import kind_of


def implied_kinds(subject: Filter) -> dict[str, frozenset[str]]:
    """The attributes in the order in which the filter names them, each with the kinds that it is compared with.

    Kinds are number, string and boolean. Arithmetic is done with numbers; attributes that are compared with each other
    are of the same kinds. `IS NULL` says nothing, so an attribute may have none; one of two is compared with both.
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
                    _note(found, one, other)
            case _ast.Membership(_ast.Attribute(name), values):
                found[name].update(map(kind_of, values))
            case _ast.Like(_ast.Attribute(name)):
                found[name].add("string")
    for _ in pairs:  # each time at least one kind goes one comparison further
        for left, right in pairs:
            found[left] |= found[right]
            found[right] |= found[left]
    return {name: frozenset(kinds) for name, kinds in found.items()}


def _note(found: dict[str, set[str]], operand: _ast.Operand, other: _ast.Operand) -> None:
    """What an operand of a comparison says about the attributes in it and about the other one."""
    if isinstance(operand, _ast.Arithmetic):
        for name in attribute_names(operand):
            found[name].add("number")
    if isinstance(other, _ast.Attribute):
        kind = kind_of(operand.value) if isinstance(operand, _ast.Value) else "number"
        found[other.name].add(kind)
