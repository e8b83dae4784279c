"""What makes a row bad by itself: one table of rules, (table, column, check, reason), read by every engine.

A check is a value that says what a good field is; `is_broken` writes it down as an expression, with the comparisons and
logical operators that Spark's columns and PyArrow's expressions share. What they do not share is an `Algebra`, one for
each engine (`_checks.py`, `arrow/_checks.py`). A field that is NULL breaks no rule but `Given`: an expression that is
NULL counts as not broken.

What needs the other rows of an event (unknown publications, duplicates) is judged where these rows meet.

Clocks. Times of different machines are compared only beyond the clock tolerance: an arrival before its departure by
less than that is a clock that is a little off, not a bad row.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple, Protocol

from tidings.model.trace import TABLES
from tidings.pipeline.ingest._reasons import (
    BAD_FILTER,
    BAD_VALUE,
    MISSING_ID,
    NEGATIVE_DELAY,
    UNKNOWN_BROKER,
    UNKNOWN_SUBSCRIPTION,
)

__all__ = [
    "DURATIONS",
    "KEYS",
    "OUTCOMES",
    "RULES",
    "TIME_NS_MAX",
    "Algebra",
    "Rule",
    "broken_by_reason",
    "rules_of",
]

TIME_NS_MAX: Final = 1 << 62
"""Times and durations beyond this (146 years) are bad values: below it, sums and differences of two cannot overflow."""
OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
COMPONENTS: Final = ("broker", "link")
DURATIONS: Final = ("lifetime_ns", "max_delay_ns")
"""The columns of nanoseconds that are no moments."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "publications": ("publisher", "sequence"),
    "hops": ("publisher", "sequence", "source", "target", "enqueued_ns"),
    "deliveries": ("publisher", "sequence", "subscription"),
    "subscriptions": ("subscription",),
    "transitions": ("kind", "source", "target", "at_ns"),
    "topology": ("kind", "source", "target"),
}
"""What makes two rows of a table the same one. An event may pass a link again, but it enters its queue only once."""

Expression = Any
"""A Spark Column or a PyArrow Expression: both have < > <= >= == & | ~."""


class Algebra(Protocol):
    """What a check needs beside operators."""

    clock_tolerance_ns: int

    def column(self, path: Sequence[str]) -> Expression: ...

    def is_null(self, value: Expression) -> Expression: ...

    def is_in(self, value: Expression, words: Sequence[str]) -> Expression: ...

    def greatest(self, values: Sequence[Expression]) -> Expression:
        """The greatest of those that are not NULL."""

    def plus(self, value: Expression, number: int) -> Expression:
        """NULL where the sum leaves 64 bits."""

    def is_known(self, column: str, of: str) -> Expression | None:
        """Whether `of` ("broker", "subscription", "filter") has this column's value; None if that is not asked."""


class Check(Protocol):
    """What a good field is; `text` says it in a few words."""

    @property
    def text(self) -> str: ...

    def is_broken(self, column: "Column", by: Algebra) -> Expression | None:
        """When it is not; None if nobody asks."""


Column = tuple[str, ...]
"""A column, or the path to a field inside one."""


@dataclass(frozen=True)
class Given:
    """The field has a value."""

    text: str = "not NULL"

    def is_broken(self, column: Column, by: Algebra) -> Expression:
        return by.is_null(by.column(column))


@dataclass(frozen=True)
class Within:
    """A number from `least` to `most`; a NaN is not, whatever an engine's order says of it."""

    least: float
    most: float
    text: str

    def is_broken(self, column: Column, by: Algebra) -> Expression:
        value = by.column(column)
        return ~((value >= self.least) & (value <= self.most))


@dataclass(frozen=True)
class OneOf:
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return "one of " + ", ".join(self.words)

    def is_broken(self, column: Column, by: Algebra) -> Expression:
        value = by.column(column)
        return ~by.is_null(value) & ~by.is_in(value, self.words)


@dataclass(frozen=True)
class OfLinksOnly:
    """A value for a link, none for a broker."""

    text: str = "given for a link, NULL for a broker"

    def is_broken(self, column: Column, by: Algebra) -> Expression:
        return (by.column(("kind",)) == "link") == by.is_null(by.column(column))


@dataclass(frozen=True)
class NotBefore:
    """Not before the latest of other times; between machines, beyond the tolerance of clocks."""

    others: tuple[str, ...]
    is_tolerant: bool = True

    @property
    def text(self) -> str:
        return f"not before {', '.join(self.others)}" + (", but for the clock tolerance" if self.is_tolerant else "")

    def is_broken(self, column: Column, by: Algebra) -> Expression:
        value = by.column(column)
        if self.is_tolerant and by.clock_tolerance_ns:
            # A sum that overflows is NULL: such a time is far too late, not too early, and a bad value anyway.
            value = by.plus(value, by.clock_tolerance_ns)
        others = [by.column((name,)) for name in self.others]
        return value < (by.greatest(others) if len(others) > 1 else others[0])


@dataclass(frozen=True)
class Known:
    """The name of a known broker or subscription, or a filter that parses."""

    of: str
    text: str

    def is_broken(self, column: Column, by: Algebra) -> Expression | None:
        is_known = by.is_known(column[0], self.of)
        return None if is_known is None else ~by.is_null(by.column(column)) & ~is_known


class Rule(NamedTuple):
    """A row that breaks the check of this column is bad for this reason."""

    table: str
    column: Column
    check: Check
    reason: str


_WHOLE: Final = Within(0, (1 << 63) - 1, "0 or more")
_LONG: Final = Within(1, (1 << 63) - 1, "above 0")
_AMOUNT: Final = Within(0.0, sys.float_info.max, "0 or more, and finite")
_FINITE: Final = Within(-sys.float_info.max, sys.float_info.max, "neither NaN nor infinite")
_TIME: Final = Within(-TIME_NS_MAX, TIME_NS_MAX, "from -2^62 to 2^62")
_BROKER: Final = Known("broker", "a broker of the topology")
_TIMES_IN_ORDER: Final = {
    "hops": ("enqueued_ns", "sent_ns", "received_ns", "began_ns", "ended_ns"),
    "deliveries": ("arrived_ns", "delivered_ns"),
}

RULES: Final = (
    *(
        Rule(table, (f.name,), Given(), MISSING_ID)
        for table, fields in TABLES.items()
        for f in fields
        if not f.nullable
    ),
    Rule("publications", ("sequence",), _WHOLE, BAD_VALUE),
    Rule("publications", ("size_bytes",), _WHOLE, BAD_VALUE),
    Rule("publications", ("lifetime_ns",), _LONG, BAD_VALUE),
    Rule("hops", ("sequence",), _WHOLE, BAD_VALUE),
    Rule("hops", ("outcome",), OneOf(OUTCOMES), BAD_VALUE),
    Rule("deliveries", ("sequence",), _WHOLE, BAD_VALUE),
    Rule("subscriptions", ("max_delay_ns",), _LONG, BAD_VALUE),
    Rule("subscriptions", ("price",), _AMOUNT, BAD_VALUE),
    Rule("subscriptions", ("until_ns",), NotBefore(("from_ns",), is_tolerant=False), BAD_VALUE),
    Rule("transitions", ("kind",), OneOf(COMPONENTS), BAD_VALUE),
    Rule("transitions", ("target",), OfLinksOnly(), BAD_VALUE),
    Rule("topology", ("kind",), OneOf(COMPONENTS), BAD_VALUE),
    Rule("topology", ("target",), OfLinksOnly(), BAD_VALUE),
    Rule("topology", ("length_km",), _AMOUNT, BAD_VALUE),
    *(
        Rule(table, (field.name,), _TIME, BAD_VALUE)
        for table, fields in TABLES.items()
        for field in fields
        if field.name.endswith("_ns")
    ),
    Rule("subscriptions", ("filter",), Known("filter", "in the filter language"), BAD_FILTER),
    *(
        Rule(table, (name,), NotBefore(names[:place]), NEGATIVE_DELAY)
        for table, names in _TIMES_IN_ORDER.items()
        for place, name in enumerate(names)
        if place
    ),
    Rule("publications", ("broker",), _BROKER, UNKNOWN_BROKER),
    *(
        Rule(table, (end,), _BROKER, UNKNOWN_BROKER)
        for table in ("hops", "transitions", "topology")
        for end in ("source", "target")
    ),
    Rule("deliveries", ("broker",), _BROKER, UNKNOWN_BROKER),
    Rule("subscriptions", ("broker",), _BROKER, UNKNOWN_BROKER),
    Rule("deliveries", ("subscription",), Known("subscription", "a subscription of the trace"), UNKNOWN_SUBSCRIPTION),
)
"""Every rule; reasons in the order in which a row has them."""


def rules_of(table: str, attributes: Mapping[str, Sequence[str]] | None = None) -> list[Rule]:
    """The rules of a table; `attributes` are those of publications with their kinds, of which numbers have a rule."""
    numbers = [
        ("attributes", name) if len(kinds) == 1 else ("attributes", name, "number")
        for name, kinds in (attributes or {}).items()
        if "number" in kinds
    ]
    return [rule for rule in RULES if rule.table == table] + [
        # It would compare with nothing (model/filters).
        Rule(table, path, _FINITE, BAD_VALUE)
        for path in numbers
    ]


def broken_by_reason(rules: Iterable[Rule], by: Algebra) -> dict[str, Expression]:
    """For each reason, in the order of the rules, when a row has it."""
    found: dict[str, list[Expression]] = {}
    for rule in rules:
        is_broken = rule.check.is_broken(rule.column, by)
        if is_broken is not None:
            found.setdefault(rule.reason, []).append(is_broken)
    return {reason: reduce(or_, broken) for reason, broken in found.items()}
