"""Long filters are read in slices, so that nobody waits for somebody else's filter to be read.

To read a filter of 16 kB takes some 80 ms. A frame that has a long filter which was not read yet waits, and with it all
that comes after it over its connection, while the filter is read: one slice (`SLICE_TOKENS`) every PAUSE_NS, for one
connection after the other. When all filters of the frame are read, the machine is given it, and they are in the cache.

A neighbour cannot be kept waiting as a client can: after PATIENCE_NS all that it has sent is looked at, and what is
left to read is read at once.
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
"""For so long the frames of a neighbour may wait."""
KNOWN_MOST: Final = 16_384
"""Of so many filters a node remembers that it has read them; beyond that, the first are forgotten."""
_OVER: Final = object()


class Readings:
    """What a node is reading, by connection; and what it has read, whatever others in its process have."""

    def __init__(self) -> None:
        self.begun = 0
        """How often a connection had to wait."""
        self._slices: dict[str, tuple[Iterator[None], int | None]] = {}  # with when it has to be done
        self._known: dict[int, None] = {}  # hashes of texts, the oldest first

    def __bool__(self) -> bool:
        return bool(self._slices)

    def long_filters(self, frame: bytes) -> list[str]:
        """The long filters of a frame that are not read yet."""
        texts = filters_in(frame, LONG_FILTER)
        return [text for text in texts if hash(text) not in self._known or not is_known(text)]

    def begin(self, connection: str, texts: list[str], until_ns: int | None) -> None:
        """Read these filters for a connection, until this time in slices."""
        self.begun += 1
        self._slices[connection] = (chain.from_iterable(map(self._read, texts)), until_ns)

    def _read(self, text: str) -> Iterator[None]:
        yield from read_in_slices(text)
        self._known[hash(text)] = None
        if len(self._known) > KNOWN_MOST:
            del self._known[next(iter(self._known))]

    def drop(self, connection: str) -> None:
        """Nobody waits for it any more."""
        self._slices.pop(connection, None)

    def step(self, now_ns: int) -> tuple[str, bool, bool]:
        """Read a slice for the connection whose turn it is: which, whether that was the last, and whether it took too
        long."""
        connection = next(iter(self._slices))
        slices, until_ns = self._slices.pop(connection)
        if until_ns is not None and now_ns >= until_ns:
            return connection, True, True
        is_over = next(slices, _OVER) is _OVER
        if not is_over:
            self._slices[connection] = (slices, until_ns)  # at the end of the row
        return connection, is_over, False
