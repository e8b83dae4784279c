"""The syntax tree of a filter: what one parse produces and every use reads.

Rules of the language (docs/reference/filters.md has them for users):

- Three-valued logic as in SQL: a condition is true, false or unknown (None). A missing attribute is NULL.
- A comparison with NULL is unknown, and so is one between values of different kinds (a number and a string):
  to that comparison the attribute is missing. This keeps negation exact: NOT can always be pushed down
  to the leaves, ``NOT a < 5`` is ``a >= 5``.
- Kinds are number, string, boolean. Whole numbers (64 bits) and doubles compare exactly, never by rounding.
- Strings compare by code point, which is also the order of their UTF-8 bytes.
- Arithmetic is done in doubles; division by zero, its remainder and a result that is not a number are NULL. ``%`` has
  the sign of its left operand. ``+`` joins two strings; of a string and anything else it is NULL.
- Booleans are equal or not; ordering two of them is unknown.
- BETWEEN, IN with other members than literals, a bare boolean attribute and signs are rewritten while parsing; they
  have no node of their own. A sign on a literal is part of it, any other is arithmetic: ``-a`` is ``0 - a``, ``+a`` is
  ``0 + a``.
- AND and OR are flat: no And is an operand of an And, no Or of an Or. Everything else nests at most 200 levels deep.
"""

from typing import Literal as OneOf

import msgspec


class Constant(msgspec.Struct, frozen=True, tag=True):
    """TRUE or FALSE as a whole condition."""

    value: bool


class Value(msgspec.Struct, frozen=True, tag=True):
    """A literal: a finite number, a string or a boolean."""

    value: int | float | str | bool


class Attribute(msgspec.Struct, frozen=True, tag=True):
    name: str


class Arithmetic(msgspec.Struct, frozen=True, tag=True):
    op: OneOf["+", "-", "*", "/", "%"]
    left: "Operand"
    right: "Operand"


Operand = Value | Attribute | Arithmetic


class Comparison(msgspec.Struct, frozen=True, tag=True):
    op: OneOf["=", "<>", "<", "<=", ">", ">="]
    left: Operand
    right: Operand


class Membership(msgspec.Struct, frozen=True, tag=True):
    """``attribute [NOT] IN (values)``; the values are all of one kind."""

    attribute: Attribute
    values: tuple[int | float | str | bool, ...]
    negated: bool = False


class Like(msgspec.Struct, frozen=True, tag=True):
    """``attribute [NOT] LIKE pattern [ESCAPE c]``, case-sensitive; without ESCAPE no character escapes."""

    attribute: Attribute
    pattern: str
    escape: str | None = None
    negated: bool = False


class Matches(msgspec.Struct, frozen=True, tag=True):
    """``attribute [NOT] MATCHES 'plant/+/temp/#'``: the attribute is a topic that fits an MQTT pattern."""

    attribute: Attribute
    pattern: str
    negated: bool = False


class IsNull(msgspec.Struct, frozen=True, tag=True):
    attribute: Attribute
    negated: bool = False


class Not(msgspec.Struct, frozen=True, tag=True):
    operand: "Condition"


class And(msgspec.Struct, frozen=True, tag=True):
    operands: tuple["Condition", ...]


class Or(msgspec.Struct, frozen=True, tag=True):
    operands: tuple["Condition", ...]


Condition = Constant | Comparison | Membership | Like | Matches | IsNull | Not | And | Or
