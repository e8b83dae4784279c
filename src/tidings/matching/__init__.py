"""Matching: which subscriptions does this event satisfy? Exact for the whole filter language.

Three indexes for three sizes. `PlainIndex` evaluates compiled filters, a few dozen of them; `MaskIndex` looks up masks,
for as many filters as one broker's clients usually have; `MatchingIndex` runs compiled kernels over arrays, for up to
millions of filters and for batches of events.

Names load on first use, so that a process with few subscriptions does not load the compiler.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.matching._index import MatchingIndex
    from tidings.matching._masks import MOST_MASKED, MaskIndex, each_bit, matching_us
    from tidings.matching._plain import PlainIndex

__all__ = ["MOST_MASKED", "MaskIndex", "MatchingIndex", "PlainIndex", "each_bit", "matching_us"]

__getattr__, __dir__ = lazily(__name__)
