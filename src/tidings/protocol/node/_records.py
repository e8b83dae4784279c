"""The records of a durable store: sealed by the node that commits them, checked by the next incarnation that reads
them.

- A record is a checksum over its key and its value, then the value. A store keeps these bytes and returns them; it
  needs no checks of its own, and a live and a simulated one are read by the same function.
- A record that fails the check (half of a write, a flipped bit) is not used: it is dropped, reported and erased. The
  machine decides what that means for the rest (`Machine.mend`).
- Each commit notes the time, under two keys in turn, so that no single damaged record loses it.
- `format` is the number of this layout. A store without it, or with a lower one, is of an earlier version and is
  upgraded by the first commit; one with a higher number is refused.

The checksum begins as in format 1, in which the live store computed it. So records of format 1 are valid.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

import msgspec

from tidings.protocol._errors import FormatError

__all__ = ["CLOCKS", "FORMAT", "FORMAT_KEY", "Opened", "kinds_of", "opened", "sealed", "value_of"]

FORMAT: Final = 2
FORMAT_KEY: Final = "format"
CLOCKS: Final = ("clock/0", "clock/1")
_CRC_BYTES: Final = 4
_BEGIN: Final = crc32(b"=")
_CRC: Final = struct.Struct(">I").pack


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a store at the start of an incarnation."""

    kept: dict[str, bytes]
    """The records of the machine."""
    damaged: tuple[str, ...] = ()
    """The keys of records that fail the check."""
    noted_ns: int = 0
    """The latest time that an earlier incarnation has noted."""
    format: int | None = None


def sealed(key: str, value: bytes) -> bytes:
    """A value as the store keeps it."""
    return _CRC(crc32(value, crc32(key.encode(), _BEGIN))) + value


def value_of(record: bytes) -> bytes:
    """The value in a record that this incarnation has sealed."""
    return record[_CRC_BYTES:]


def opened(stored: Mapping[str, bytes]) -> Opened:
    """The content of a store, checked; FormatError if it is of a later version."""
    kept: dict[str, bytes] = {}
    damaged = []
    for key, record in stored.items():
        value = value_of(record)
        if crc32(value, crc32(key.encode(), _BEGIN)).to_bytes(_CRC_BYTES, "big") == record[:_CRC_BYTES]:
            kept[key] = value
        else:
            damaged.append(key)
    noted_ns = max(int(kept.pop(key, b"0")) for key in CLOCKS)
    written = kept.pop(FORMAT_KEY, None)
    format = None if written is None else int(written)
    if format is not None and format > FORMAT:
        raise FormatError(f"it has format {format}, and this version knows formats up to {FORMAT}: upgrade")
    return Opened(kept=kept, damaged=tuple(sorted(damaged)), noted_ns=noted_ns, format=format)


def kinds_of(keys: Iterable[str]) -> dict[str, int]:
    """The number of keys of each kind: the part before the first slash."""
    found: dict[str, int] = {}
    for key in keys:
        kind = key.partition("/")[0]
        found[kind] = found.get(kind, 0) + 1
    return found
