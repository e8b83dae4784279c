"""LIKE patterns: ``%`` stands for any text, ``_`` for one character (a code point), an escape makes either literal.

As in ActiveMQ, the escape may be ``%`` or ``_`` itself: before one of the two it escapes, elsewhere it is a wildcard.

A pattern is cut at its ``%`` into segments of fixed length. The first and the last segment are anchored, and those
between are searched for from left to right: taking each at its first place never spoils a later one, so matching
takes no backtracking and no pattern can make it slow.
"""

import re
from collections.abc import Callable
from typing import Final

ANY_CHARACTER: Final = None
"""In a segment: the place of an unescaped ``_``."""

Segment = tuple[str | None, ...]


def parse_pattern(pattern: str, escape: str | None) -> tuple[Segment, ...]:
    """The segments between the ``%`` of a pattern; ValueError if the escape character escapes nothing."""
    segments: list[Segment] = []
    current: list[str | None] = []
    characters = enumerate(pattern)
    for place, c in characters:
        if c == escape:
            following = pattern[place + 1 : place + 2]
            if following and (following in "%_" or following == escape):
                current.append(following)
                next(characters)
                continue
            if c not in "%_":
                raise ValueError(f"the escape character {escape} must come before %, _ or itself")
        if c == "%":
            segments.append(tuple(current))
            current = []
        else:
            current.append(ANY_CHARACTER if c == "_" else c)
    segments.append(tuple(current))
    return tuple(segments)


def literal_pattern(pattern: str, escape: str | None) -> str | None:
    """The one string that a pattern without wildcards matches, or None if it has any."""
    segments = parse_pattern(pattern, escape)
    if len(segments) > 1 or ANY_CHARACTER in segments[0]:
        return None
    return "".join(c or "" for c in segments[0])


def compile_pattern(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """A function that says whether a string matches the pattern."""
    segments = parse_pattern(pattern, escape)
    if len(segments) == 1:
        whole = _fixed(segments[0])
        return lambda text: whole.fullmatch(text) is not None
    first, last = _fixed(segments[0]), _fixed(segments[-1])
    first_length, last_length = len(segments[0]), len(segments[-1])
    middle = [_fixed(segment) for segment in segments[1:-1] if segment]

    def matches(text: str) -> bool:
        end = len(text) - last_length
        if end < first_length or not first.match(text) or not last.match(text, end):
            return False
        start = first_length
        for segment in middle:
            found = segment.search(text, start, end)
            if found is None:
                return False
            start = found.end()
        return True

    return matches


def _fixed(segment: Segment) -> re.Pattern[str]:
    """A segment as a regular expression of fixed length; only ``.`` and literal characters, nothing to backtrack."""
    return re.compile("".join("." if c is ANY_CHARACTER else re.escape(c) for c in segment), re.DOTALL)
