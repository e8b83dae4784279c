"""Warnings about filters that are well-formed but rarely mean what was intended, found before nothing arrives.

- In SQL double quotes make a name: ``country = "UK"`` compares two attributes, and accepts nothing if no event has an
  attribute UK. A name gets a warning if it is always in double quotes and always what an attribute is compared with.
- A number with leading zeros is decimal, as in SQL. To JMS, which takes Java's literals, ``010`` is 8.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidings.errors import FilterWarning
from tidings.model.filters import _ast
from tidings.model.filters._faults import message
from tidings.model.filters._parse import names_written, numbers_written
from tidings.model.filters._sql import value_sql
from tidings.model.filters._tree import nodes

if TYPE_CHECKING:
    from tidings.model.filters._filter import Filter

_LEADING_ZERO: Final = re.compile(r"0[0-9]*[1-9][0-9]*")
_MAY_LEAD_WITH_ZERO: Final = re.compile(r"(?<![\w.])0[0-9]")


def filter_warnings(subject: "Filter", *, attributes: Collection[str] = ()) -> tuple[FilterWarning, ...]:
    """The places where a filter rarely means what was intended; `attributes` are names known to be attributes."""
    text = subject.text
    found = [*_names(subject, text, attributes), *_numbers(text)]
    found.sort(key=lambda warning: warning.position)
    return tuple(found)


def _names(subject: "Filter", text: str, attributes: Collection[str]) -> Iterator[FilterWarning]:
    pairs = _compared(subject) if '"' in text else []
    if not pairs:
        return
    places: dict[str, list[int]] = {}
    for name, position in names_written(text):
        places.setdefault(name, []).append(position)
    quoted = {name: len(where) for name, where in places.items() if all(text[each] == '"' for each in where)}
    for name in _doubted(pairs, quoted):
        if name not in attributes:
            problem = f"{_quoted(name)} is compared as an attribute, not as a string, and is named nowhere else"
            remedy = f"Double quotes name an attribute; write a string in single quotes: {value_sql(name)}."
            yield from (_warning(problem, text, place, remedy) for place in places[name])


def _numbers(text: str) -> Iterator[FilterWarning]:
    if _MAY_LEAD_WITH_ZERO.search(text) is None:  # nearly always
        return
    for written, position in numbers_written(text):
        if _LEADING_ZERO.fullmatch(written) and int(written) > 7:
            problem = f"{written} is read as {int(written)}, where JMS brokers read a number in octal"
            remedy = "Write the number without leading zeros, or in hexadecimal: 0x1F."
            yield _warning(problem, text, position, remedy)


def _compared(subject: "Filter") -> list[tuple[str, str]]:
    """The attributes that are compared with each other, left and right."""
    pairs = []
    for node in nodes(subject.condition):
        match node:
            case _ast.Comparison(_, _ast.Attribute(left), _ast.Attribute(right)):
                pairs.append((left, right))
    return pairs


def _doubted(pairs: list[tuple[str, str]], quoted: Mapping[str, int]) -> set[str]:
    """Which of the quoted names, each written so many times, are used like strings; of a pair it is one, the right."""
    rights = Counter(right for _, right in pairs)
    found = {name for name, times in quoted.items() if rights[name] >= times}
    lefts = Counter(left for left, right in pairs if right not in found)
    return found | {name for name, times in quoted.items() if lefts[name] >= times}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _warning(problem: str, text: str, position: int, remedy: str) -> FilterWarning:
    words = message(problem, text=text, position=position, remedy=remedy)
    return FilterWarning(words, text=text, position=position)
