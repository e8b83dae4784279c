"""What asking one filter of one event costs, by estimate: a figure of the filter alone, for budgets.

A filter whose clauses are all tests is a matter of tables. One with a residual (LIKE, arithmetic, a disjunction that
would have too many clauses) is asked itself, node by node, if its tests leave it in; the estimate is that they do.
"""

from typing import Final

from tidings.model.filters import Filter
from tidings.model.filters import _ast as ast
from tidings.model.filters._tree import nodes

__all__ = ["matching_us"]

_CLAUSE_US: Final = 0.1
_NODE_US: Final = 0.25
_LIKE_US: Final = 0.5
"""In addition, for a pattern; a long text costs more."""


def matching_us(filter: Filter) -> float:
    """The processor time that a filter adds to the matching of an event, about."""
    if all(clause.residual is None for clause in filter.clauses):
        return _CLAUSE_US * len(filter.clauses)
    return sum(_NODE_US + (_LIKE_US if isinstance(node, ast.Like) else 0.0) for node in nodes(filter.condition))
