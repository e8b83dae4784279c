"""Topic patterns as MQTT 5 defines them (section 4.7): ``+`` stands for one level, a final ``#`` for all that follow.

A topic is a string of levels separated by ``/``; a level may be empty, so ``/a`` has two. ``sport/#`` matches ``sport``
too. A pattern that begins with a wildcard matches no topic that begins with ``$``: those belong to the broker. Every
question about patterns has an exact answer level by level: what a pattern matches, whether one covers another, and the
pattern of what two have in common.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tidings.model.filters._faults import fault

LEVEL: Final = "+"
REST: Final = "#"

MAX_PATTERN_BYTES: Final = 65_535
"""How long a topic or a pattern may be in UTF-8, which is what fits into an MQTT packet."""

_FILLERS: Final = ("a", "zz")
"""Levels to put in the place of wildcards. Two are enough: no level of another pattern can equal both."""


class Levels(NamedTuple):
    """A parsed pattern: its levels without the final ``#``, and whether it has one."""

    levels: tuple[str, ...]
    has_rest: bool

    @property
    def begins_with_wildcard(self) -> bool:
        return not self.levels or self.levels[0] == LEVEL


class PatternProblem(NamedTuple):
    """What is wrong with a pattern, at which of its characters, and what to write instead."""

    problem: str
    position: int
    remedy: str


def check_topic_pattern(pattern: str) -> None:
    """Refuse a malformed topic pattern with a FilterError that shows the place and the remedy."""
    problem = pattern_problem(pattern)
    if problem is not None:
        what = "topic pattern"
        raise fault(problem.problem, text=pattern, position=problem.position, remedy=problem.remedy, what=what)


def pattern_problem(pattern: str) -> PatternProblem | None:
    """The first thing that is wrong with a pattern, or None."""
    if not pattern:
        return PatternProblem("a topic pattern has at least one character", 0, "Write '#' to match every topic.")
    nul = pattern.find("\0")
    if nul >= 0:
        return PatternProblem("a topic has no NUL character", nul, "Remove it.")
    if len(pattern) * 4 > MAX_PATTERN_BYTES and (size := len(pattern.encode())) > MAX_PATTERN_BYTES:
        problem = f"the topic pattern has {size:,} bytes, the maximum is {MAX_PATTERN_BYTES:,}"
        return PatternProblem(problem, 0, "Shorten it; # stands for any number of levels.")
    start = 0
    for level in pattern.split("/"):
        end = start + len(level)
        for wildcard in (REST, LEVEL):
            if wildcard in level and level != wildcard:
                problem = f"{wildcard} must be a level of its own"
                remedy = f"Write it between slashes, as in 'a/{wildcard}'; part of a level is matched by LIKE."
                return PatternProblem(problem, start + level.index(wildcard), remedy)
        if level == REST and end < len(pattern):
            return PatternProblem("# must be the last level", start, "Use + for a single level in the middle.")
        start = end + 1
    return None


@lru_cache(maxsize=4096)
def parse_topic(pattern: str) -> Levels:
    """The levels of a pattern that has been checked."""
    levels = tuple(pattern.split("/"))
    return Levels(levels[:-1], True) if levels[-1] == REST else Levels(levels, False)


def has_wildcard(pattern: str) -> bool:
    """Whether the pattern matches more than the one topic that it spells."""
    return LEVEL in pattern or REST in pattern


def literal_start(pattern: str) -> str:
    """What every topic that the pattern matches begins with."""
    parsed = parse_topic(pattern)
    count = parsed.levels.index(LEVEL) if LEVEL in parsed.levels else len(parsed.levels)
    start = "/".join(parsed.levels[:count])
    return start + "/" if 0 < count < len(parsed.levels) else start


def topic_regex(pattern: str) -> str:
    """The pattern as a regular expression that Python and Java read alike, to match from beginning to end.

    Each part can match in one place only, so there is no backtracking.
    """
    parsed = parse_topic(pattern)
    guard = r"(?!\$)" if parsed.begins_with_wildcard else ""
    levels = "/".join("[^/]*" if level == LEVEL else re.escape(level) for level in parsed.levels)
    if not parsed.has_rest:
        return guard + levels
    return guard + (levels + r"(?:/[\s\S]*)?" if parsed.levels else r"[\s\S]*")


def compile_topic(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a topic matches the pattern."""
    if not has_wildcard(pattern):
        return pattern.__eq__
    fullmatch = re.compile(topic_regex(pattern)).fullmatch
    return lambda topic: fullmatch(topic) is not None


def topic_covers(pattern: str, other: str) -> bool:
    """Whether every topic that `other` matches is matched by `pattern`."""
    wide, narrow = parse_topic(pattern), parse_topic(other)
    if not narrow.levels:  # every topic has a level, so `#` is `+/#`
        narrow = Levels((LEVEL,), True)
    if _excludes(wide, narrow) or len(wide.levels) > len(narrow.levels):
        return False
    if any(a not in (LEVEL, b) for a, b in zip(wide.levels, narrow.levels, strict=False)):
        return False
    return wide.has_rest or (len(wide.levels) == len(narrow.levels) and not narrow.has_rest)


def common_pattern(pattern: str, other: str) -> str | None:
    """The pattern of the topics that both match, or None if there are none."""
    short, long = sorted((parse_topic(pattern), parse_topic(other)), key=lambda parsed: len(parsed.levels))
    if _excludes(short, long) or _excludes(long, short):
        return None
    if len(short.levels) < len(long.levels) and not short.has_rest:
        return None
    levels = list(long.levels)
    for i, level in enumerate(short.levels):
        if levels[i] == LEVEL:
            levels[i] = level
        elif level not in (LEVEL, levels[i]):
            return None
    return "/".join([*levels, REST] if short.has_rest and long.has_rest else levels)


def topic_samples(pattern: str) -> Iterator[str]:
    """Topics that the pattern matches, among them one that any pattern that does not cover it misses; and near misses.

    The other pattern asks for more levels, or for another one than the filler, or has no ``#``: it misses the shortest
    topics or the longer ones.
    """
    parsed = parse_topic(pattern)
    for filler in _FILLERS:
        shortest = "/".join(filler if level == LEVEL else level for level in parsed.levels or (LEVEL,))
        yield from (shortest, f"{shortest}/{filler}", f"{filler}/{shortest}", "$" + shortest)
        yield shortest.rpartition("/")[0]


def _excludes(one: Levels, other: Levels) -> bool:
    """Whether `one` begins with a wildcard and `other` matches only topics that begin with ``$``."""
    return one.begins_with_wildcard and not other.begins_with_wildcard and other.levels[0].startswith("$")
