"""The indexable face of a filter: a disjunction of clauses, each a conjunction of simple tests.

A filter is true exactly when at least one of its clauses is; a clause is true exactly when all its tests are and its
residual (if any) evaluates to true. Tests are *necessary* conditions that an index can work with; what no test can
express (LIKE, arithmetic, one attribute against another, bounds beyond 2**53 that doubles cannot hold exactly) is the
residual, evaluated on the event itself.
"""

from typing import Literal

import msgspec

from tidings.model.filters import _ast

Kind = Literal["number", "string", "boolean"]


class Within(msgspec.Struct, frozen=True):
    """The attribute is a number in the closed interval [low, high]; open ends are moved to the next double."""

    attribute: str
    low: float
    high: float


class OneOf(msgspec.Struct, frozen=True):
    """The attribute is of this kind and one of the values, or (negated) of this kind and none of them.

    Numbers come as floats here: an index compares doubles.
    """

    attribute: str
    kind: Kind
    values: frozenset[float] | frozenset[str] | frozenset[bool]
    negated: bool = False


class Presence(msgspec.Struct, frozen=True):
    """The attribute is present (or, if `missing`, is NULL)."""

    attribute: str
    missing: bool


class Topic(msgspec.Struct, frozen=True):
    """The attribute is a string that matches a topic pattern with wildcards, or (negated) one that does not."""

    attribute: str
    pattern: str
    negated: bool = False


Test = Within | OneOf | Topic | Presence


class Clause(msgspec.Struct, frozen=True):
    """At most one `Within` and one positive `Topic` per attribute. Clauses that contradict themselves are left out."""

    tests: tuple[Test, ...]
    residual: "_ast.Condition | None" = None
