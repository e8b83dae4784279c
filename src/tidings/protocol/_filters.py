"""Filters as they come over the wire: read once per text, refused with the reason if they say nothing."""

from functools import lru_cache
from typing import Final

from tidings.errors import FilterError
from tidings.model.filters import Filter
from tidings.protocol._errors import PeerError

__all__ = ["parsed"]

_PARSED: Final = 65_536


@lru_cache(maxsize=_PARSED)
def _parsed(text: str) -> Filter | FilterError:
    try:
        return Filter.parse(text)
    except FilterError as error:
        return error


def parsed(text: str) -> Filter:
    """The filter that a text says; PeerError if it says none."""
    found = _parsed(text)
    if isinstance(found, FilterError):
        raise PeerError("filter", str(found))
    return found
