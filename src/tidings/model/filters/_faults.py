"""How a malformed filter is reported: what was found, what was expected, the text with a caret, the remedy.

The text is shown on one line, cut to a window around the fault when it is long, so that the message stays readable
for a filter of a million characters.
"""

from typing import Final
from unicodedata import combining, east_asian_width

from tidings.errors import FilterError

WINDOW: Final = 96
"""How many characters of the filter a message shows at most."""


def fault(problem: str, *, text: str, position: int, remedy: str = "", what: str = "filter") -> FilterError:
    """The error to raise: `problem` at `position` of `text`, and what to write instead."""
    words = message(problem, text=text, position=position, remedy=remedy, what=what)
    return FilterError(words, text=text, position=position)


def message(problem: str, *, text: str, position: int, remedy: str = "", what: str = "filter") -> str:
    """A complaint about a place of a filter, in words."""
    line, caret = _window(text, position)
    lines = [f"{problem} (character {position + 1} of the {what})", f"  {line}", f"  {' ' * caret}^"]
    return "\n".join([*lines, remedy] if remedy else lines)


def shorten(found: str, limit: int = 32) -> str:
    """A piece of the text, short enough to be named in a message."""
    return found if len(found) <= limit else found[: limit - 3] + "..."


def _window(text: str, position: int) -> tuple[str, int]:
    """The part of the text to show, on one line, and the column of the caret in it."""
    start = max(0, min(position - WINDOW // 2, len(text) - WINDOW))
    head = "..." if start else ""
    tail = "..." if start + WINDOW < len(text) else ""
    before = _one_line(text[start:position])
    after = _one_line(text[position : start + WINDOW])
    return head + before + after + tail, len(head) + sum(map(_columns, before))


def _one_line(piece: str) -> str:
    """Control characters and lone surrogates cannot be shown: a blank keeps their place."""
    return "".join(c if c.isprintable() else " " for c in piece)


def _columns(character: str) -> int:
    """How wide a terminal draws a character, so that the caret stands under the right one."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
