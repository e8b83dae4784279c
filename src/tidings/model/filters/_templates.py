"""Filters that differ in their literals alone are parsed once.

Many subscriptions differ only in values: ``symbol = 'A' AND price > 17``, ``symbol = 'B' AND price > 9``. The
*template* of a filter is its text without the literals. The second time a template occurs, it is parsed with marks in
the place of literals (twice, with different marks), and the tree is kept as a function of them. From then on a filter
of the template takes a small part of the time.

The grammar decides everything. A template has a function only if every mark is found in the tree as the value that an
attribute is compared with, or as its topic pattern: there nothing depends on which number or string it is (a malformed
pattern is left to the parser). Everything else (lists, LIKE, arithmetic, comparisons of literals, malformed texts) is
parsed each time, and so are long texts and numbers that are more than plain digits with at most one point.
"""

import re
from collections.abc import Callable
from typing import Final

from lark.exceptions import UnexpectedInput

from tidings.model.filters import _ast
from tidings.model.filters._build import MalformedError, number_of, string_of
from tidings.model.filters._topics import pattern_problem

__all__ = ["MAX_TEMPLATES", "Templates"]

MAX_TEMPLATES: Final = 4_096
"""How many templates are kept; at one more, all are forgotten."""
MAX_LENGTH: Final = 1_000
"""A longer text has no template."""

Literal = int | float | str
Make = Callable[[list[Literal]], _ast.Condition]
Template = tuple[str, ...]

_LITERAL: Final = re.compile(
    r"""('(?:[^']|'')*+'|"(?:[^"]|"")*+"|(?<![\w$.])[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w$.]))"""
)
_MARKS: Final = (400_000_000_000_000, 700_000_000_000_000)
_NOWHERE: Final = -1
"""A place that is never found."""


class Templates:
    """The templates of the filters parsed so far; `parse` parses a text that has none."""

    def __init__(self, parse: Callable[[str], _ast.Condition]) -> None:
        self._read = parse
        self._known: dict[Template, Make | None] = {}
        """By template that occurred twice: the function of its literals, if there is one."""
        self._once: set[Template] = set()

    def __len__(self) -> int:
        return len(self._known) + len(self._once)

    def parse(self, text: str) -> _ast.Condition:
        """The condition of a text, as the parser reads it."""
        if len(text) > MAX_LENGTH or not text.isascii():
            return self._read(text)
        pieces = _LITERAL.split(text)
        literals: list[Literal] = []
        for place in range(1, len(pieces), 2):
            written = pieces[place]
            if written[0] != '"':  # that is a name, and part of the template
                literals.append(_literal(written))
                pieces[place] = "'" if written[0] == "'" else "." if "." in written else "0"
        template = tuple(pieces)
        make = self._known.get(template)
        if make is not None:
            try:
                return make(literals)
            except MalformedError:
                pass  # the parser refuses it with the place
        condition = self._read(text)
        if literals and template not in self._known:
            self._note(template)
        return condition

    def _note(self, template: Template) -> None:
        """Count a filter of this template. The second is worth a function."""
        if len(self) >= MAX_TEMPLATES:
            self._once.clear()
            self._known.clear()
        if template not in self._once:
            self._once.add(template)
            return
        self._once.discard(template)
        # A number of the template itself may look like a mark, but not like two.
        one, other = (self._function(template, mark) for mark in _MARKS)
        is_sure = (
            one is not None and other is not None and repr(one(_others(template))) == repr(other(_others(template)))
        )
        self._known[template] = one if is_sure else None

    def _function(self, template: Template, first_mark: int) -> Make | None:
        """The tree of a template as a function of its literals; None if it depends on them elsewhere."""
        marked, marks = list(template), dict[Literal, int]()
        for place in range(1, len(template), 2):
            if template[place][0] != '"':
                mark = f"{first_mark + place}.5" if template[place] == "." else str(first_mark + place)
                marked[place] = f"'{mark}'" if template[place] == "'" else mark
                marks[_literal(marked[place])] = len(marks)
        left = set(marks.values())
        try:
            make = _function(self._read("".join(marked)), marks, left)
        except (MalformedError, UnexpectedInput):
            return None
        return None if left else make


def _others(template: Template) -> list[Literal]:
    """Literals for this template that are all different."""
    kinds = [kind for kind in template[1::2] if kind[0] != '"']
    return [str(number) if kind == "'" else number for number, kind in enumerate(kinds, 1)]


def _literal(written: str) -> Literal:
    return string_of(written) if written[0] == "'" else number_of(written)


def _function(node: _ast.Condition, marks: dict[Literal, int], left: set[int]) -> Make:
    """The tree as a function of literals in the place of marks; `left` are the marks that have not been found.

    A mark that does not stand beside an attribute stays among them.
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
    if isinstance(node, _ast.Matches):
        pattern = _hole(_ast.Value(node.pattern), marks, left)
        if pattern is not None:
            return lambda literals: _ast.Matches(node.attribute, _checked(pattern(literals)), node.negated)
    return lambda _: node


def _checked(pattern: _ast.Value) -> str:
    text = str(pattern.value)
    if pattern_problem(text) is not None:
        raise MalformedError("a malformed pattern", 0)
    return text


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
