"""Long filters are read in slices, so that no peer waits for another one's filter.

Reading a filter of 16 kB takes some 80 ms. A frame with a new long filter waits, with all later frames of its
connection, while the filter is read: one slice (`SLICE_TOKENS`) every PAUSE_NS, for one connection after the other.
When all filters of the frame are read, the machine gets the frame, and the filters are in the cache.

A neighbour cannot wait as long as a client: after PATIENCE_NS all its frames are handled, and the rest is read at once.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from tidings.protocol._filters import LONG_FILTER, is_known, read_in_slices
from tidings.protocol.wire import filters_in

__all__ = ["KNOWN_MOST", "PATIENCE_NS", "PAUSE_NS", "Readings"]

PAUSE_NS: Final = 1_000_000
"""Between two slices; a slice takes about as long."""
PATIENCE_NS: Final = 1_000_000_000
"""The most that frames of a neighbour may wait."""
KNOWN_MOST: Final = 16_384
"""A node remembers so many filters that it has read; beyond that, the first are forgotten."""
_OVER: Final = object()


class Readings:
    """The filters that a node is reading, by connection, and those it has read, whatever others in its process have
    read."""

    def __init__(self) -> None:
        self.begun = 0
        """How often a connection had to wait."""
        self._slices: dict[str, tuple[Iterator[None], int | None]] = {}  # with the time by which it has to be done
        self._known: dict[int, None] = {}  # hashes of texts, the oldest first

    def __bool__(self) -> bool:
        return bool(self._slices)

    def long_filters(self, frame: bytes) -> list[str]:
        """The long filters of a frame that are not read yet."""
        texts = filters_in(frame, LONG_FILTER)
        return [text for text in texts if hash(text) not in self._known or not is_known(text)]

    def begin(self, connection: str, texts: list[str], until_ns: int | None) -> None:
        """Read these filters for a connection, in slices until this time."""
        self.begun += 1
        self._slices[connection] = (chain.from_iterable(map(self._read, texts)), until_ns)

    def _read(self, text: str) -> Iterator[None]:
        yield from read_in_slices(text)
        self._known[hash(text)] = None
        if len(self._known) > KNOWN_MOST:
            del self._known[next(iter(self._known))]

    def drop(self, connection: str) -> None:
        """Stop reading for a connection."""
        self._slices.pop(connection, None)

    def step(self, now_ns: int) -> tuple[str, bool, bool]:
        """Read a slice for the next connection: which one, whether it is finished, and whether it took too long."""
        connection = next(iter(self._slices))
        slices, until_ns = self._slices.pop(connection)
        if until_ns is not None and now_ns >= until_ns:
            return connection, True, True
        is_over = next(slices, _OVER) is _OVER
        if not is_over:
            self._slices[connection] = (slices, until_ns)  # at the end of the line
        return connection, is_over, False
