"""The filter itself: one parse, and every use of it behind one immutable value.

Predicate, clauses and canonical text are computed on first use and kept: a million filters that only go into an index
never pay for a predicate or a text.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tidings.errors import EventError, FilterError
from tidings.model.filters import _ast
from tidings.model.filters._build import OPERATORS
from tidings.model.filters._clauses import Clause
from tidings.model.filters._evaluate import Predicate, compile_condition
from tidings.model.filters._normal import clauses_of
from tidings.model.filters._parse import parse, parse_in_slices
from tidings.model.filters._sql import to_sql
from tidings.model.filters._tree import attribute_names, flat
from tidings.model.filters._values import PlainValue, check_value

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from tidings.model.filters._explain import NormalForm

_ORDERINGS: Final = frozenset(("<", "<=", ">", ">="))


class Filter:
    """A condition on the attributes of an event, with the three-valued logic of SQL.

    Two filters are equal if their canonical texts are; spelling, case and needless parentheses do not matter.
    """

    __slots__ = ("_attributes", "_canonical", "_clauses", "_condition", "_predicate", "_text")

    _attributes: frozenset[str] | None
    _canonical: str | None
    _clauses: tuple[Clause, ...] | None
    _condition: _ast.Condition
    _predicate: Predicate | None
    _text: str | None

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("a filter is made by Filter.parse(text) or Filter.all_of(tests)")

    @classmethod
    def parse(cls, text: str, *, strict: bool = False) -> "Filter":
        """The filter that a text describes; FilterError, with the place, if it is malformed.

        With `strict`, what `filter_warnings` would warn about is an error too.
        """
        filter = _new(parse(text), text)
        if strict:
            from tidings.model.filters._warnings import filter_warnings

            for warning in filter_warnings(filter):
                raise FilterError(str(warning), text=warning.text, position=warning.position)
        return filter

    @classmethod
    def parse_in_slices(cls, text: str, tokens: int) -> "Generator[None, None, Filter]":
        """The same, with pauses: after every so many tokens, and before each value that is derived from it."""
        filter = _new((yield from parse_in_slices(text, tokens)), text)
        yield
        _ = filter.attributes
        yield
        _ = filter.clauses
        yield
        filter.matches({})
        return filter

    @classmethod
    def all_of(cls, tests: Iterable[tuple[str, str, PlainValue]]) -> "Filter":
        """The conjunction of simple tests ``(attribute, operator, value)``; of none, the filter that is always true.

        Operators are ``=``, ``<>``, ``<``, ``<=``, ``>`` and ``>=``.
        """
        comparisons = tuple([_simple(test) for test in tests])
        if len(comparisons) == 1:
            return _new(comparisons[0], None)
        return _new(_ast.And(comparisons) if comparisons else _ast.Constant(True), None)

    @property
    def text(self) -> str:
        """The text as it was given; of a filter made without one, the canonical text."""
        return self.to_sql() if self._text is None else self._text

    @property
    def condition(self) -> _ast.Condition:
        return self._condition

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes that the filter reads."""
        if self._attributes is None:
            self._attributes = attribute_names(self._condition)
        return self._attributes

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The filter as a disjunction of conjunctions of tests, for an index."""
        if self._clauses is None:
            self._clauses = clauses_of(self._condition)
        return self._clauses

    def evaluate(self, attributes: Mapping[str, object]) -> bool | None:
        """True, False or None (unknown); EventError if an attribute that the filter reads has no usable value."""
        values = {name: check_value(name, attributes.get(name)) for name in self.attributes}
        if self._predicate is None:
            self._predicate = compile_condition(self._condition)
        return self._predicate(values)

    def matches(self, attributes: Mapping[str, object]) -> bool:
        """Whether the filter accepts the event: it is true, not false and not unknown."""
        return self.evaluate(attributes) is True

    def to_sql(self) -> str:
        """The canonical text; it parses back to an equal condition."""
        if self._canonical is None:
            self._canonical = to_sql(self._condition)
        return self._canonical

    def to_spark(self, schema: "StructType | None" = None) -> "Column":
        """The filter as a boolean Spark column, NULL where it is unknown.

        With the schema of the DataFrame, kinds are decided at once and columns that are not there count as NULL;
        without it, every column that the filter reads has to be there.
        """
        from tidings.model.filters._spark import to_column

        return to_column(self._condition, schema)

    def normal_form(self) -> "NormalForm":
        """The clauses in words, as ``tidings filter explain`` shows them."""
        from tidings.model.filters._explain import explain

        return explain(self)

    def covers(self, other: "Filter") -> bool | None:
        """Whether every event that `other` accepts is accepted here too: True, False, or None if that is unknown."""
        from tidings.model.filters._covers import covers

        return covers(self, other)

    def surely_covers(self, other: "Filter") -> bool:
        """Whether `covers` is True; faster, for callers to whom False and unknown are the same."""
        from tidings.model.filters._covers import surely_covers

        return surely_covers(self, other)

    def intersects(self, other: "Filter") -> bool | None:
        """Whether some event is accepted by both: True, False, or None if that is unknown."""
        from tidings.model.filters._witness import witness

        both = _new(flat(_ast.And, [self.condition, other.condition]), None)
        if not both.clauses:
            return False
        nothing = _new(_ast.Constant(False), None)
        return None if witness(nothing, both) is None else True

    def __eq__(self, other: object) -> bool:
        # By canonical text, not by tree: to Python the literals TRUE, 1 and 1.0 are one.
        return self.to_sql() == other.to_sql() if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_sql())

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[bytes, str | None], "Filter"], tuple[bytes, str | None]]:
        # The tree travels packed: reparsing costs more, and pickling a deep tree node by node nests too deep.
        return _restore, (_PACK.encode(self._condition), self._text)


_PACK: Final = msgspec.msgpack.Encoder()


def _new(condition: _ast.Condition, text: str | None) -> Filter:
    self = object.__new__(Filter)
    self._condition = condition
    self._text = text
    self._attributes = self._canonical = self._clauses = self._predicate = None
    return self


def _restore(packed: bytes, text: str | None) -> Filter:
    return _new(cast(_ast.Condition, msgspec.msgpack.decode(packed, type=_ast.Condition)), text)


def _simple(test: tuple[str, str, PlainValue]) -> _ast.Comparison:
    """One test of `all_of`, checked as the parser would."""
    try:
        name, op, value = test
    except (TypeError, ValueError):
        raise FilterError(f"{test!r} is not a test: write (attribute, operator, value)") from None
    operator = OPERATORS.get(op)
    if operator is None:
        raise FilterError(f"{op!r} is not an operator for {name!r}: use one of {', '.join(OPERATORS)}")
    if type(name) is not str or not name:
        raise FilterError(f"{name!r} is not an attribute name: write a string that is not empty")
    try:
        if not name.isascii():
            check_value("name", name)
        plain = check_value(name, value)
    except EventError as error:
        raise FilterError(f"in the test {name!r} {op} ...: {error}") from None
    if plain is None:
        raise FilterError(
            f"{name!r} {op} None is never true: Filter.parse('name IS NULL') tests for a missing attribute"
        )
    if type(plain) is bool and operator in _ORDERINGS:
        raise FilterError(f"booleans have no order, so {op} cannot compare {name!r} with {plain}: use = or <>")
    return _ast.Comparison(operator, _ast.Attribute(name), _ast.Value(plain))
