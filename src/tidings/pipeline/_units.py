"""Units: the pieces of a trace that are computed alone.

What becomes of an event depends only on rows with its own publisher and sequence number. So a trace is cut into
*chunks* of CHUNK_EVENTS sequence numbers of a publisher; the rows of a chunk meet in one partition, and whatever is
computed of it is a pure function of its rows. That makes a re-run incremental: new files touch some chunks, those
are computed again, all others are taken as they are.
"""

from typing import Final

__all__ = ["CHUNK_EVENTS", "WITHOUT_EVENT"]

CHUNK_EVENTS: Final = 1 << 11
"""Sequence numbers of one publisher in a chunk: chunk = sequence div CHUNK_EVENTS."""

WITHOUT_EVENT: Final = -1
"""The chunk (of no publisher) of rows that belong to no event, and of the small tables; it is always computed."""
