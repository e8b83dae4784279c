"""What a filter says, as SQL has it, and hardly anybody means: found when it is written, not when nothing arrives.

In SQL double quotes make a name: ``country = "UK"`` compares two attributes, and accepts nothing where no event has an
attribute UK. So a name is doubted that is always in double quotes and always what an attribute is compared with.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from tidings.errors import FilterWarning
from tidings.model.filters import _ast
from tidings.model.filters._faults import message
from tidings.model.filters._filter import Filter
from tidings.model.filters._parse import names_written
from tidings.model.filters._sql import value_sql
from tidings.model.filters._tree import nodes


def filter_warnings(subject: Filter, *, attributes: Collection[str] = ()) -> tuple[FilterWarning, ...]:
    """The places where a filter probably does not say what was meant; `attributes` are names known to be attributes."""
    text = subject.text
    pairs = _compared(subject) if '"' in text else []
    if not pairs:
        return ()
    places: dict[str, list[int]] = {}
    for name, position in names_written(text):
        places.setdefault(name, []).append(position)
    quoted = {name: len(where) for name, where in places.items() if all(text[each] == '"' for each in where)}
    doubted = {place: name for name in _doubted(pairs, quoted) if name not in attributes for place in places[name]}
    return tuple(_warning(text, name, place) for place, name in sorted(doubted.items()))


def _compared(subject: Filter) -> list[tuple[str, str]]:
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


def _warning(text: str, name: str, position: int) -> FilterWarning:
    quoted = '"' + name.replace('"', '""') + '"'
    problem = f"{quoted} is compared as an attribute, not as a string, and is named nowhere else"
    remedy = f"Double quotes name an attribute; write a string in single quotes: {value_sql(name)}."
    said = message(problem, text=text, position=position, remedy=remedy)
    return FilterWarning(said, text=text, position=position)
