"""How partials of a value are put together; what they hold and why it is exact: rows/_groups.py.

Whole numbers are added as decimals: 64 bits hold one partial's sum, not that of all. A sketch that merges more than
SKETCH_K values throws coins: quantiles may differ from run to run within its 1.33 % in rank.
"""

from typing import Literal, NamedTuple

from tidings.pipeline.rows._groups import HALVES
from tidings.statistics import PROBABILITIES

__all__ = [
    "PROBABILITIES",
    "Total",
    "merged_products",
    "merged_value",
]


class Total(NamedTuple):
    """How a column of partials is put together: added, added beyond 64 bits, the least, the greatest, or merged."""

    name: str
    how: Literal["sum", "exact", "least", "greatest", "sketch"]


def merged_products(name: str) -> list[Total]:
    return [Total(f"{name}_{half}", "exact") for half in HALVES]


def merged_value(name: str, *, sketch: bool = True) -> list[Total]:
    """What a partial holds of a value (`partial_columns`)."""
    return [
        Total(f"{name}_count", "sum"),
        Total(f"{name}_sum", "exact"),
        *merged_products(f"{name}_squares"),
        Total(f"{name}_min", "least"),
        Total(f"{name}_max", "greatest"),
        *([Total(f"{name}_sketch", "sketch")] if sketch else []),
    ]
