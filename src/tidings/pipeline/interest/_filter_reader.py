"""Reading filters by the hundred thousand.

The grammar reads everything and takes half a millisecond for a filter of ten comparisons; that would be a minute for a
hundred thousand. Nearly all filters are plain conjunctions of comparisons of a name with a literal, and those a scanner
can take apart ten times as quickly. The scanner accepts only what it is sure of (a strict part of the language, in
ASCII) and leaves the rest, faults included, to the grammar; so the language is defined in one place, and tests compare
the two.
"""

import re
from typing import Final

from tidings.errors import FilterError
from tidings.model.filters import Filter

__all__ = ["read_filter"]

_TEST: Final = re.compile(
    r"""\s*+
    (?P<name>[A-Za-z_$][\w$]*+(?:\.[\w$]++)*+) \s*+
    (?P<operator><>|!=|<=|>=|=|<|>) \s*+
    (?: (?P<whole>-?[0-9]{1,18}+)(?![\w.])
      | (?P<number>-?(?:[0-9]++(?:\.[0-9]*+|(?=[eE]))|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?![\w.])
      | '(?P<string>(?:[^']|'')*+)'(?!') )
    (?: \s*+\Z | \s++ (?P<and>[Aa][Nn][Dd]) (?=\s) )""",
    re.ASCII | re.VERBOSE,
)
_RESERVED: Final = frozenset(("AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NOT", "NULL", "TRUE", "FALSE"))


def read_filter(text: str) -> Filter:
    """What `Filter.parse` returns or raises, sooner."""
    tests = _plain_tests(text) if text.isascii() else None
    if tests is not None:
        try:
            return Filter.all_of(tests)
        except FilterError:  # the grammar's message shows the place
            pass
    return Filter.parse(text)


def _plain_tests(text: str) -> list[tuple[str, str, int | float | str]] | None:
    """The comparisons of a plain conjunction; None if the text may be anything else."""
    tests: list[tuple[str, str, int | float | str]] = []
    position = 0
    while True:
        match = _TEST.match(text, position)
        if match is None:
            return None
        name, operator, whole, number, string, more = match.groups()
        if name.upper() in _RESERVED:
            return None
        value = int(whole) if whole else float(number) if number else string.replace("''", "'")
        tests.append((name, operator, value))
        if more is None:
            return tests
        position = match.end()
