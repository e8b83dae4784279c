"""The records of a durable store: sealed by the node that commits them, checked by the next life that reads them.

- A record is a checksum over its key and its value, then the value. A store keeps these bytes and hands them back; it
  needs no checks of its own, and a live and a simulated one are read by the same function.
- What does not check out (half of a write, a flipped bit) is not used: it is dropped, reported and erased. What that
  means for the rest is the machine's (`Machine.mend`).
- Each commit notes the time, under two keys in turn, so that no single damaged record loses it.
- `format` is the number of this layout. A store without it, or with a lower one, is of an earlier version and is
  brought up to date by the first commit; one with a higher number is refused.

The checksum begins as that of format 1 did, in which the live store made it. So records of format 1 are sound as they
are.
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
    """What a store held when a life began."""

    kept: dict[str, bytes]
    """What the machine has stored."""
    damaged: tuple[str, ...] = ()
    """The keys of records that do not check out."""
    noted_ns: int = 0
    """The last time that a life before is known to have seen."""
    format: int | None = None


def sealed(key: str, value: bytes) -> bytes:
    """A value as the store keeps it."""
    return _CRC(crc32(value, crc32(key.encode(), _BEGIN))) + value


def value_of(record: bytes) -> bytes:
    """The value in a record that this life has sealed."""
    return record[_CRC_BYTES:]


def opened(stored: Mapping[str, bytes]) -> Opened:
    """What a store holds, checked; FormatError if it is of a later version."""
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
        raise FormatError(f"it is of format {format}, and this version knows formats up to {FORMAT}")
    return Opened(kept=kept, damaged=tuple(sorted(damaged)), noted_ns=noted_ns, format=format)


def kinds_of(keys: Iterable[str]) -> dict[str, int]:
    """How many keys there are of each kind: what stands before the first slash."""
    found: dict[str, int] = {}
    for key in keys:
        kind = key.partition("/")[0]
        found[kind] = found.get(kind, 0) + 1
    return found
