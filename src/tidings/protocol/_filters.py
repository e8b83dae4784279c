"""Filters as they come over the wire: read once per text, refused with the reason if they say nothing.

What was read is kept for the next who says the same, the last used the longest, up to PARSED_BYTES in all. How much a
filter takes is estimated from its text: a bit more than what those take that take most.
"""

from collections import OrderedDict
from collections.abc import Generator
from typing import Final

from tidings.errors import FilterError
from tidings.model.filters import Filter
from tidings.protocol._errors import PeerError

__all__ = ["LONG_FILTER", "PARSED_BYTES", "SLICE_TOKENS", "is_known", "parsed", "read_filter", "read_in_slices"]

PARSED_BYTES: Final = 64_000_000
"""What is kept takes at most about so much; one filter that takes more is not kept."""
LONG_FILTER: Final = 512
"""A filter of more characters is read in slices where it comes from somebody else (`node._reading`)."""
SLICE_TOKENS: Final = 64
"""So many words at a time, which takes about a millisecond."""
_BYTES_EACH: Final = 1_000
_BYTES_PER_CHARACTER: Final = 80


class _Parsed:
    """What texts say, as far as there is room."""

    def __init__(self, most_bytes: int) -> None:
        self.taken_bytes = 0
        self._most_bytes = most_bytes
        self._found: OrderedDict[str, Filter | FilterError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def get(self, text: str) -> Filter | FilterError:
        """The filter that a text says, or why it says none."""
        known = self._found.get(text)
        if known is not None:
            self._found.move_to_end(text)
            return known
        try:
            return self._keep(text, Filter.parse(text))
        except FilterError as error:
            return self._keep(text, error)

    def read(self, text: str) -> Generator[None, None, None]:
        """Come to know a text, in slices."""
        try:
            self._keep(text, (yield from Filter.parse_in_slices(text, SLICE_TOKENS)))
        except FilterError as error:
            self._keep(text, error)

    def _keep(self, text: str, found: Filter | FilterError) -> Filter | FilterError:
        if self._found.pop(text, None) is None:
            self.taken_bytes += _bytes_of(text)
        self._found[text] = found
        while self.taken_bytes > self._most_bytes:
            self.taken_bytes -= _bytes_of(self._found.popitem(last=False)[0])
        return found


def _bytes_of(text: str) -> int:
    return _BYTES_EACH + _BYTES_PER_CHARACTER * len(text)


_parsed: Final = _Parsed(PARSED_BYTES)


def parsed(text: str) -> Filter:
    """The filter that a peer's text says; PeerError if it says none."""
    found = _parsed.get(text)
    if isinstance(found, FilterError):
        raise PeerError("filter", str(found))
    return found


def read_filter(text: str) -> Filter:
    """The filter that an application's text says; FilterError if it says none."""
    found = _parsed.get(text)
    if isinstance(found, FilterError):
        raise FilterError(str(found), text=found.text, position=found.position)
    return found


def is_known(text: str) -> bool:
    """Whether this process has read this filter, and still keeps it."""
    return text in _parsed


def read_in_slices(text: str) -> Generator[None, None, None]:
    """Read a filter with pauses, known or not; afterwards `parsed` knows it."""
    yield from _parsed.read(text)
