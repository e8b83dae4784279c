"""The filter language: one parse, three uses (the matching index, a Python predicate, a Spark SQL column)."""

from tidings.model.filters._clauses import Clause, OneOf, Presence, Test, Within
from tidings.model.filters._covers import covers, intersects
from tidings.model.filters._doubts import filter_warnings
from tidings.model.filters._evaluate import compile_condition
from tidings.model.filters._explain import NormalClause, NormalForm
from tidings.model.filters._filter import Filter
from tidings.model.filters._kinds import implied_kinds
from tidings.model.filters._values import PlainValue, check_value

__all__ = [
    "Clause",
    "Filter",
    "NormalClause",
    "NormalForm",
    "OneOf",
    "PlainValue",
    "Presence",
    "Test",
    "Within",
    "check_value",
    "compile_condition",
    "covers",
    "filter_warnings",
    "implied_kinds",
    "intersects",
]
