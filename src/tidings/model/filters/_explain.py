"""The normal form in words: which tests an index can work with, and what is left to evaluate on the event."""

from collections.abc import Iterable
from math import inf, nextafter
from typing import TYPE_CHECKING, Final

import msgspec

from tidings.model.filters._clauses import Clause, OneOf, Presence, Test, Topic, Within
from tidings.model.filters._sql import name_sql, to_sql, value_sql
from tidings.model.filters._values import PlainValue

if TYPE_CHECKING:
    from tidings.model.filters._filter import Filter

MAX_VALUES_SHOWN: Final = 12
"""How many values of a long IN list are spelt out."""


class NormalClause(msgspec.Struct, frozen=True, kw_only=True):
    """One clause: all its tests must hold, and the residual, if any, must be true."""

    tests: tuple[str, ...]
    residual: str | None = None


class NormalForm(msgspec.Struct, frozen=True, kw_only=True):
    """A filter as a disjunction of clauses; `canonical` is its text, `attributes` the names it reads, sorted."""

    canonical: str
    attributes: tuple[str, ...]
    clauses: tuple[NormalClause, ...]

    def lines(self) -> tuple[str, ...]:
        """The normal form for people to read, a line per test."""
        if not self.clauses:
            return ("never true: no event can satisfy this filter",)
        lines: list[str] = []
        for number, clause in enumerate(self.clauses, start=1):
            lines.append(f"clause {number} of {len(self.clauses)}" if len(self.clauses) > 1 else "one clause")
            lines += [f"  test      {test}" for test in clause.tests]
            if clause.residual is not None:
                lines.append(f"  residual  {clause.residual}")
            if not clause.tests and clause.residual is None:
                lines.append("  always true")
        return tuple(lines)


def explain(subject: "Filter") -> NormalForm:
    """The normal form of a filter."""
    return NormalForm(
        canonical=subject.to_sql(),
        attributes=tuple(sorted(subject.attributes)),
        clauses=tuple(_clause(clause) for clause in subject.clauses),
    )


def _clause(clause: Clause) -> NormalClause:
    residual = None if clause.residual is None else to_sql(clause.residual)
    return NormalClause(tests=tuple(_test(test) for test in clause.tests), residual=residual)


def _test(test: Test) -> str:
    match test:
        case Within(attribute, low, high):
            return _within(name_sql(attribute), low, high)
        case OneOf(attribute, kind, values, negated):
            verb = "is a {} not in" if negated else "in"
            return f"{name_sql(attribute)} {verb.format(kind)} ({_values(values)})"
        case Topic(attribute, pattern, negated):
            verb = "is a string that does not match" if negated else "matches"
            return f"{name_sql(attribute)} {verb} {value_sql(pattern)}"
        case Presence(attribute, missing):
            return f"{name_sql(attribute)} is {'missing' if missing else 'present'}"


def _within(name: str, low: float, high: float) -> str:
    if low == high:
        return f"{name} = {_number(low)}"
    if (low, high) == (-inf, inf):
        return f"{name} is a number"
    if low == -inf:
        return f"{name} {_bound('<', high, inf)}"
    if high == inf:
        return f"{name} {_bound('>', low, -inf)}"
    return f"{name} {_bound('>', low, -inf)} and {_bound('<', high, inf)}"


def _bound(op: str, bound: float, outwards: float) -> str:
    """A closed bound that stands for an open one (the next double) is shown as the open one."""
    beyond = nextafter(bound, outwards)
    if len(_number(beyond)) < len(_number(bound)):
        return f"{op} {_number(beyond)}"
    return f"{op}= {_number(bound)}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _values(values: Iterable[PlainValue]) -> str:
    ordered: list[PlainValue] = sorted(values)
    shown = [_number(v) if isinstance(v, float) else value_sql(v) for v in ordered[:MAX_VALUES_SHOWN]]
    if len(ordered) > MAX_VALUES_SHOWN:
        shown.append(f"... {len(ordered) - MAX_VALUES_SHOWN} more")
    return ", ".join(shown)
