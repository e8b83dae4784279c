"""What a profile is: a measure that the job computes of the facts, piece by piece, and puts together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tidings.pipeline._facts import Facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LEVEL", "Profile"]

LEVEL: Final = 0.95
"""The level of confidence of intervals unless another is asked for."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One table.

    `partial(facts)` gives rows with the columns `publisher` and `chunk` (with `by` "slice": `slice`) that are a pure
    function of the facts of that chunk or slice; `merge(partials)` makes the table of the rows of all of them.
    """

    name: str
    by: Literal["chunk", "slice"]
    partial: "Callable[[Facts], DataFrame]"
    merge: "Callable[[DataFrame], DataFrame]"
