"""Frames on a byte stream: four bytes of length, most significant first, then the frame.

A stream that announces a frame over the limit, or an empty one, is wrong from there on: nobody can tell where the next
frame begins, so the connection has to be closed. Pieces of a frame that has not come whole are kept as they came and
joined once, so a peer that sends byte by byte costs no more than the bytes it sends.
"""

from struct import Struct
from typing import Final

from tidings.errors import TidingsError

__all__ = ["PREFIX_BYTES", "FramingError", "Splitter", "joined", "prefixed"]

_PREFIX: Final = Struct(">I")
PREFIX_BYTES: Final = _PREFIX.size


class FramingError(TidingsError):
    """Raised when a stream of bytes is no stream of frames; the connection cannot go on."""


class Splitter:
    """The frames of one stream, as its bytes come in."""

    __slots__ = ("_at_least", "_max_frame_bytes", "_pieces", "_size")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._at_least = PREFIX_BYTES  # bytes that there have to be before looking again is worth it

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete, in order."""
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._at_least:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        frames: list[bytes] = []
        at, end, unpack = 0, len(data), _PREFIX.unpack_from
        self._at_least = PREFIX_BYTES
        while end - at >= PREFIX_BYTES:
            (size,) = unpack(data, at)
            if not 0 < size <= self._max_frame_bytes:
                raise FramingError(
                    f"a frame of {size} bytes is announced: from 1 to {self._max_frame_bytes} are allowed"
                )
            begin = at + PREFIX_BYTES
            if begin + size > end:
                self._at_least = PREFIX_BYTES + size
                break
            at = begin + size
            frames.append(data[begin:at])
        if at < end:
            self._pieces.append(data[at:] if at else data)
        self._size = end - at
        return frames


def prefixed(frames: list[bytes]) -> list[bytes]:
    """These frames on the stream, piece by piece."""
    pack = _PREFIX.pack
    parts: list[bytes] = []
    for frame in frames:
        parts.append(pack(len(frame)))
        parts.append(frame)
    return parts


def joined(frames: list[bytes]) -> bytes:
    """The bytes of these frames on the stream."""
    return b"".join(prefixed(frames))
