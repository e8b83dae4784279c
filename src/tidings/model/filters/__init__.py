"""The filter language: one parse, three uses (the matching index, a Python predicate, a Spark SQL column)."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.model.filters._clauses import Clause, OneOf, Presence, Test, Topic, Within
    from tidings.model.filters._covers import covers, intersects
    from tidings.model.filters._evaluate import compile_condition
    from tidings.model.filters._explain import NormalClause, NormalForm
    from tidings.model.filters._filter import Filter
    from tidings.model.filters._topics import check_topic_pattern
    from tidings.model.filters._tree import condition_size, implied_kinds
    from tidings.model.filters._values import PlainValue, check_value
    from tidings.model.filters._warnings import filter_warnings

__all__ = [
    "Clause",
    "Filter",
    "NormalClause",
    "NormalForm",
    "OneOf",
    "PlainValue",
    "Presence",
    "Test",
    "Topic",
    "Within",
    "check_topic_pattern",
    "check_value",
    "compile_condition",
    "condition_size",
    "covers",
    "filter_warnings",
    "implied_kinds",
    "intersects",
]

__getattr__, __dir__ = lazily(__name__)
