"""Frames on a byte stream: a prefix with the length of the frame, then the frame.

There are two kinds of prefixes. The *plain* one is the length in four bytes, most significant first. The *checked* one
is the length in three bytes, their inverted exclusive or as a fourth, and four bytes of the frame's checksum. So a
flipped bit is found, in the length before waiting for the frame and in the frame before it is decoded. A stream begins
with plain frames; the first ones agree on the kind of the others (`_admission`).

A stream that announces a frame over the limit, or an empty one, or whose checksums are wrong, cannot be continued: the
beginning of the next frame is unknown, so the connection has to be closed. Pieces of an incomplete frame are kept and
joined once, so a peer that sends byte by byte costs no more than the bytes it sends.
"""

from struct import Struct
from typing import Final

from tidings.errors import TidingsError
from tidings.protocol.wire import check_of, is_sound

__all__ = ["CHECKED_BYTES", "DamageError", "FramingError", "Splitter", "checked", "joined", "plain", "prefixed"]

_PLAIN: Final = Struct(">I")
_CHECKED: Final = Struct(">II")
CHECKED_BYTES: Final = _CHECKED.size
"""The length of a checked prefix."""


class FramingError(TidingsError):
    """Raised when a stream of bytes is no stream of frames; the connection cannot continue."""


class DamageError(FramingError):
    """Raised when received bytes are not those that were sent; another connection may transmit them correctly."""


def plain(frame: bytes) -> bytes:
    """The plain prefix of a frame."""
    return _PLAIN.pack(len(frame))


def checked(frame: bytes) -> bytes:
    """The checked prefix of a frame."""
    size = len(frame)
    return _CHECKED.pack(size << 8 | (size ^ size >> 8 ^ size >> 16) & 0xFF ^ 0xFF, check_of(frame))


class Splitter:
    """The frames of one stream, as its bytes arrive: the first alone, until `go_on` states the prefix of the others."""

    __slots__ = ("_at_least", "_max_frame_bytes", "_pieces", "_prefix", "_size", "_waits")

    def __init__(self, max_frame_bytes: int, *, waits: bool = False) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._prefix = _PLAIN
        self._at_least = _PLAIN.size  # the least bytes that can complete a frame
        self._waits: bool | None = waits or None  # for the first frame (True); for `go_on` (False); for nothing

    def once_more(self) -> list[bytes]:
        """Another frame with the prefix of the first, if it has arrived already."""
        self._waits = True
        return self.feed(b"")

    def go_on(self, *, is_checked: bool) -> list[bytes]:
        """Set the prefix of the frames after the first; those that have arrived already."""
        self._waits = None
        self._prefix = _CHECKED if is_checked else _PLAIN
        self._at_least = self._prefix.size
        return self.feed(b"")

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete, in order."""
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._at_least or self._waits is False:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        frames: list[bytes] = []
        prefix = self._prefix
        head, unpack, is_plain = prefix.size, prefix.unpack_from, prefix is _PLAIN
        at, end = 0, len(data)
        self._at_least = head
        while end - at >= head and self._waits is not False:
            if is_plain:
                (size,), check = unpack(data, at), None
            else:
                size, check = unpack(data, at)
                fold, size = size & 0xFF, size >> 8
                if fold != (size ^ size >> 8 ^ size >> 16) & 0xFF ^ 0xFF:
                    raise DamageError("the length of a frame is damaged")
            if not 0 < size <= self._max_frame_bytes:
                raise FramingError(
                    f"a frame of {size} bytes is announced: from 1 to {self._max_frame_bytes} are allowed"
                )
            begin = at + head
            if begin + size > end:
                self._at_least = head + size
                break
            at = begin + size
            frame = data[begin:at]
            if not is_sound(frame, check):
                raise DamageError(f"a frame of {size} bytes is damaged")
            frames.append(frame)
            if self._waits:
                self._waits = False
        if at < end:
            self._pieces.append(data[at:] if at else data)
        self._size = end - at
        return frames


def prefixed(frames: list[bytes]) -> list[bytes]:
    """These frames on a plain stream, piece by piece."""
    return [part for frame in frames for part in (plain(frame), frame)]


def joined(frames: list[bytes]) -> bytes:
    """The bytes of these frames on a plain stream."""
    return b"".join(prefixed(frames))
