"""Matching: which subscriptions does this event satisfy? Exact for the whole filter language."""

from tidings.matching._index import MatchingIndex

__all__ = ["MatchingIndex"]
