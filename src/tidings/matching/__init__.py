"""Matching: which subscriptions does this event satisfy? Exact for the whole filter language.

Three indexes for three sizes. `PlainIndex` asks compiled filters, for a few dozen of them; `MaskIndex` looks masks up,
for as many as one broker's clients usually have; `MatchingIndex` has compiled kernels over arrays, for up to millions,
and for batches of events.

Names load on first use: who has few subscriptions must not load the compiler.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.matching._cost import matching_us
    from tidings.matching._index import MatchingIndex
    from tidings.matching._masks import MOST_MASKED, MaskIndex, each_bit
    from tidings.matching._plain import PlainIndex

__all__ = ["MOST_MASKED", "MaskIndex", "MatchingIndex", "PlainIndex", "each_bit", "matching_us"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "MOST_MASKED": "_masks",
        "MaskIndex": "_masks",
        "MatchingIndex": "_index",
        "PlainIndex": "_plain",
        "each_bit": "_masks",
        "matching_us": "_cost",
    },
)
