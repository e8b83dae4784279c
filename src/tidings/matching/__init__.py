"""Matching: which subscriptions does this event satisfy? Exact for the whole filter language."""

from tidings.matching._index import MatchingIndex
from tidings.matching._plain import PlainIndex

__all__ = ["MatchingIndex", "PlainIndex"]
