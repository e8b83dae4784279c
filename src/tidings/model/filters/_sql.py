"""A condition as text: canonical, with no more parentheses than needed, and parsing back to an equal condition."""

import re
from collections.abc import Iterable
from typing import Final

from tidings.model.filters import _ast
from tidings.model.filters._parse import KEYWORDS
from tidings.model.filters._values import PlainValue

_PLAIN_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*")


def to_sql(condition: _ast.Condition) -> str:
    """The canonical text of a condition."""
    match condition:
        case _ast.And(operands):
            return " AND ".join(list(map(_in_conjunction, operands)))
        case _ast.Or(operands):
            return " OR ".join(list(map(to_sql, operands)))
        case _ast.Not(operand):
            inner = to_sql(operand)
            return f"NOT ({inner})" if isinstance(operand, (_ast.And, _ast.Or)) else f"NOT {inner}"
        case _ast.Comparison(op, left, right):
            return f"{operand_sql(left)} {op} {operand_sql(right)}"
        case _ast.Membership(attribute, values, negated):
            return f"{name_sql(attribute.name)} {'NOT ' if negated else ''}IN ({values_sql(values)})"
        case _ast.Like(attribute, pattern, escape, negated):
            suffix = "" if escape is None else f" ESCAPE {value_sql(escape)}"
            return f"{name_sql(attribute.name)} {'NOT ' if negated else ''}LIKE {value_sql(pattern)}{suffix}"
        case _ast.Matches(attribute, pattern, negated):
            return f"{name_sql(attribute.name)} {'NOT ' if negated else ''}MATCHES {value_sql(pattern)}"
        case _ast.IsNull(attribute, negated):
            return f"{name_sql(attribute.name)} IS {'NOT ' if negated else ''}NULL"
        case _ast.Constant(value):
            return value_sql(value)


def _in_conjunction(condition: _ast.Condition) -> str:
    return f"({to_sql(condition)})" if isinstance(condition, _ast.Or) else to_sql(condition)


def operand_sql(operand: _ast.Operand) -> str:
    match operand:
        case _ast.Attribute(name):
            return name_sql(name)
        case _ast.Value(value):
            return value_sql(value)
        case _ast.Arithmetic(op, left, right):
            scale = op in "*/%"
            a, b = operand_sql(left), operand_sql(right)
            if scale and isinstance(left, _ast.Arithmetic) and left.op in "+-":
                a = f"({a})"
            if isinstance(right, _ast.Arithmetic) and (scale or right.op in "+-"):
                b = f"({b})"
            return f"{a} {op} {b}"


def name_sql(name: str) -> str:
    """An attribute name, quoted if it has to be."""
    if _PLAIN_NAME.fullmatch(name) and not (name.isascii() and name.upper() in KEYWORDS):
        return name
    return '"' + name.replace('"', '""') + '"'


def value_sql(value: PlainValue) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def values_sql(values: Iterable[PlainValue]) -> str:
    return ", ".join(map(value_sql, values))
