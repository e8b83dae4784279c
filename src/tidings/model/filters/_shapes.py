"""Filters that differ in their literals alone are parsed once.

Many subscriptions say the same about other values: ``symbol = 'A' AND price > 17``, ``symbol = 'B' AND price > 9``.
Their *shape* is the text without its literals. When a shape comes for the second time, it is parsed with marks in the
place of literals (twice, with other marks), and the tree is kept as a function of them. What comes after that takes a
small part of the time.

The grammar stays the only judge. A shape has a function only if every mark is found in the tree as the value that an
attribute is compared with: there nothing depends on which number, or which string, it is. Everything else (lists,
patterns, arithmetic, comparisons of literals, whatever is no filter) is parsed each time, and so are long texts and
numbers that are more than plain digits with at most one point.
"""

import re
from collections.abc import Callable
from typing import Final

from lark.exceptions import UnexpectedInput

from tidings.model.filters import _ast
from tidings.model.filters._build import MalformedError, number_of, string_of

__all__ = ["MAX_SHAPES", "Shapes"]

MAX_SHAPES: Final = 4_096
"""So many shapes are kept; then all are forgotten."""
MAX_LENGTH: Final = 1_000
"""A longer text is of no shape."""

Literal = int | float | str
Make = Callable[[list[Literal]], _ast.Condition]
Shape = tuple[str, ...]

_LITERAL: Final = re.compile(
    r"""('(?:[^']|'')*+'|"(?:[^"]|"")*+"|(?<![\w$.])[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w$.]))"""
)
_MARKS: Final = (400_000_000_000_000, 700_000_000_000_000)
_NOWHERE: Final = -1
"""A place that is always left."""


class Shapes:
    """The shapes of the filters that came; `parse` is what reads a filter."""

    def __init__(self, parse: Callable[[str], _ast.Condition]) -> None:
        self._read = parse
        self._known: dict[Shape, Make | None] = {}
        """By shape that came twice: the function of its literals, if there is one."""
        self._once: set[Shape] = set()

    def __len__(self) -> int:
        return len(self._known) + len(self._once)

    def parse(self, text: str) -> _ast.Condition:
        """The condition that a text says, as `parse` reads it."""
        if len(text) > MAX_LENGTH or not text.isascii():
            return self._read(text)
        pieces = _LITERAL.split(text)
        literals: list[Literal] = []
        for place in range(1, len(pieces), 2):
            written = pieces[place]
            if written[0] != '"':  # that is a name, and part of the shape
                literals.append(_literal(written))
                pieces[place] = "'" if written[0] == "'" else "." if "." in written else "0"
        shape = tuple(pieces)
        make = self._known.get(shape)
        if make is not None:
            return make(literals)
        condition = self._read(text)
        if literals and shape not in self._known:
            self._note(shape)
        return condition

    def _note(self, shape: Shape) -> None:
        """There is a filter of this shape. If it is the second, the shape is worth a function."""
        if len(self) >= MAX_SHAPES:
            self._once.clear()
            self._known.clear()
        if shape not in self._once:
            self._once.add(shape)
            return
        self._once.discard(shape)
        # A number of the shape itself may look like a mark, but not like two.
        one, other = (self._function(shape, mark) for mark in _MARKS)
        is_sure = one is not None and other is not None and repr(one(_others(shape))) == repr(other(_others(shape)))
        self._known[shape] = one if is_sure else None

    def _function(self, shape: Shape, first_mark: int) -> Make | None:
        """The tree of a shape as a function of its literals; None if somewhere it matters which literal it is."""
        marked, marks = list(shape), dict[Literal, int]()
        for place in range(1, len(shape), 2):
            if shape[place][0] != '"':
                mark = f"{first_mark + place}.5" if shape[place] == "." else str(first_mark + place)
                marked[place] = f"'{mark}'" if shape[place] == "'" else mark
                marks[_literal(marked[place])] = len(marks)
        left = set(marks.values())
        try:
            make = _function(self._read("".join(marked)), marks, left)
        except (MalformedError, UnexpectedInput):
            return None
        return None if left else make


def _others(shape: Shape) -> list[Literal]:
    """Literals for this shape that are all different."""
    kinds = [kind for kind in shape[1::2] if kind[0] != '"']
    return [str(number) if kind == "'" else number for number, kind in enumerate(kinds, 1)]


def _literal(written: str) -> Literal:
    return string_of(written) if written[0] == "'" else number_of(written)


def _function(node: _ast.Condition, marks: dict[Literal, int], left: set[int]) -> Make:
    """The tree as a function of literals in the place of marks; `left` are the marks that have not been found.

    A mark in any other place than beside an attribute stays among those that are left.
    """
    if isinstance(node, _ast.And | _ast.Or):
        kind, parts = type(node), [_function(operand, marks, left) for operand in node.operands]
        return lambda literals: kind(tuple([part(literals) for part in parts]))
    if isinstance(node, _ast.Not):
        inner = _function(node.operand, marks, left)
        return lambda literals: _ast.Not(inner(literals))
    if isinstance(node, _ast.Comparison):
        a, b = node.left, node.right
        if isinstance(a, _ast.Attribute) and isinstance(b, _ast.Value):
            value = _hole(b, marks, left)
            if value is not None:
                return lambda literals: _ast.Comparison(node.op, a, value(literals))
        if isinstance(b, _ast.Attribute) and isinstance(a, _ast.Value):
            first = _hole(a, marks, left)
            if first is not None:
                return lambda literals: _ast.Comparison(node.op, first(literals), b)
    return lambda _: node


def _hole(
    found: _ast.Value, marks: dict[Literal, int], left: set[int]
) -> "Callable[[list[Literal]], _ast.Value] | None":
    """What a literal becomes, if this is a mark, or one with a minus sign."""
    value = found.value
    if isinstance(value, bool):
        return None
    place = marks.get(value)
    is_negated = place is None and not isinstance(value, str)
    if is_negated:
        place = marks.get(-value)  # type: ignore[operator]
    if place is None:
        return None
    if place not in left:
        left.add(_NOWHERE)  # something else looks like this mark
    left.discard(place)
    if is_negated:
        return lambda literals: _ast.Value(-literals[place])  # type: ignore[operator]
    return lambda literals: _ast.Value(literals[place])
