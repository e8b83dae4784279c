"""Filters as they arrive over the wire: parsed once per text, refused with the reason if they are invalid.

Parsed filters are cached up to PARSED_BYTES in total; the least recently used one is dropped first. The size of a
filter is estimated from its text: slightly more than the largest filters need.
"""

from collections import OrderedDict
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from tidings.errors import FilterError
from tidings.protocol._errors import PeerError

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["LONG_FILTER", "PARSED_BYTES", "SLICE_TOKENS", "is_known", "parsed", "read_filter", "read_in_slices"]

PARSED_BYTES: Final = 64_000_000
"""The approximate limit of the cache; a filter that needs more is not cached."""
LONG_FILTER: Final = 512
"""A filter of more characters from a peer is read in slices (`node._filter_reader`)."""
SLICE_TOKENS: Final = 64
"""The tokens of one slice, which take about a millisecond."""
_BYTES_EACH: Final = 1_000
_BYTES_PER_CHARACTER: Final = 80


class _Parsed:
    """The filters of texts, as far as there is room."""

    def __init__(self, most_bytes: int) -> None:
        self.taken_bytes = 0
        self._most_bytes = most_bytes
        self._found: OrderedDict[str, Filter | FilterError] = OrderedDict()
        self._pauses: dict[str, int] = {}  # of those that were read in slices

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def get(self, text: str) -> "Filter | FilterError":
        """The filter of a text, or why it is invalid."""
        known = self._found.get(text)
        if known is not None:
            self._found.move_to_end(text)
            return known
        from tidings.model.filters import Filter  # with the parser, which a client without a filter never needs

        try:
            return self._keep(text, Filter.parse(text))
        except FilterError as error:
            return self._keep(text, error)

    def read(self, text: str) -> Generator[None, None, None]:
        """Parse a text in slices; one that was read before takes as many pauses again, without the work."""
        pauses = self._pauses.get(text)
        if pauses is not None:
            for _ in range(pauses):
                yield
            self.get(text)
            return
        from tidings.model.filters import Filter

        pauses, slices = 0, Filter.parse_in_slices(text, SLICE_TOKENS)
        found: Filter | FilterError
        while True:
            try:
                next(slices)
            except StopIteration as end:
                found = end.value
                break
            except FilterError as error:
                found = error
                break
            pauses += 1
            yield
        self._keep(text, found)
        if text in self._found:
            self._pauses[text] = pauses

    def _keep(self, text: str, found: "Filter | FilterError") -> "Filter | FilterError":
        if self._found.pop(text, None) is None:
            self.taken_bytes += _bytes_of(text)
        self._found[text] = found
        while self.taken_bytes > self._most_bytes:
            forgotten = self._found.popitem(last=False)[0]
            self.taken_bytes -= _bytes_of(forgotten)
            self._pauses.pop(forgotten, None)
        return found


def _bytes_of(text: str) -> int:
    return _BYTES_EACH + _BYTES_PER_CHARACTER * len(text)


_parsed: Final = _Parsed(PARSED_BYTES)


def parsed(text: str) -> "Filter":
    """The filter of a peer's text; PeerError if it is invalid."""
    found = _parsed.get(text)
    if isinstance(found, FilterError):
        raise PeerError("filter", str(found))
    return found


def read_filter(text: str) -> "Filter":
    """The filter of an application's text; FilterError if it is invalid."""
    found = _parsed.get(text)
    if isinstance(found, FilterError):
        raise FilterError(str(found), text=found.text, position=found.position)
    return found


def is_known(text: str) -> bool:
    """Whether this process has parsed this filter, and still has it cached."""
    return text in _parsed


def read_in_slices(text: str) -> Generator[None, None, None]:
    """Parse a filter with pauses, cached or not; afterwards `parsed` has it."""
    yield from _parsed.read(text)
