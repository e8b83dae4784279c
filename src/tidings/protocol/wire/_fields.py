"""The limits of the wire, and the types of fields that observe them."""

import sys
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tidings.protocol._histogram import MAX_BUCKET

__all__ = [
    "COPIES_FROM",
    "IN_ORDER",
    "LATEST_NS",
    "LONGEST_NS",
    "MAX_ATTRIBUTES",
    "MAX_BATCH",
    "MAX_CONFLATED",
    "MAX_CREDIT",
    "MAX_ENTRIES",
    "MAX_FILTER",
    "MAX_FRAME_BYTES",
    "MAX_NAME",
    "MAX_NEIGHBOURS",
    "MAX_OUTCOMES",
    "MAX_PARTS",
    "MAX_PATH",
    "MAX_RECORD",
    "MAX_ROWS",
    "MAX_TARGETS",
    "MAX_TERMS",
    "MAX_TRACED",
    "OLDEST_VERSION",
    "VERSION",
    "Check",
    "ClockReading",
    "Conflated",
    "Count",
    "Counts",
    "Duration",
    "Figure",
    "FilterText",
    "Finite",
    "Name",
    "Price",
    "Record",
    "Share",
    "Start",
    "Target",
    "Term",
    "Window",
    "WireMessage",
]

VERSION: Final = 3
"""Version 3 has checksums of frames and contents (`node/_frames`)."""
OLDEST_VERSION: Final = 2
"""All versions from this one on are spoken, so that brokers and clients can be upgraded one by one."""
COPIES_FROM: Final = 3
"""From this version on brokers keep copies of each other's events."""
MAX_FRAME_BYTES: Final = 1 << 20
MAX_NAME: Final = 255
MAX_FILTER: Final = 16_384
MAX_ATTRIBUTES: Final = 256
MAX_BATCH: Final = 4_096
MAX_TARGETS: Final = 4_096
MAX_TERMS: Final = 16
MAX_ENTRIES: Final = 65_536
MAX_PARTS: Final = 16
MAX_NEIGHBOURS: Final = 1_024
MAX_CREDIT: Final = 65_536
MAX_PATH: Final = 255
MAX_RECORD: Final = 255
MAX_TRACED: Final = 4_096
MAX_CONFLATED: Final = 8
"""The most attributes that the key of a subscription has."""
MAX_OUTCOMES: Final = 256
MAX_ROWS: Final = 1_024
LONGEST_NS: Final = 366 * 86_400 * 10**9
LATEST_NS: Final = 2**62

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Target = Annotated[str, Meta(min_length=1, max_length=2 * MAX_NAME + 1)]
Start = Annotated[str, Meta(max_length=2 * MAX_NAME + 1)]
FilterText = Annotated[str, Meta(min_length=1, max_length=MAX_FILTER)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Counts = Annotated[dict[Annotated[int, Meta(ge=0, le=MAX_BUCKET)], Count], Meta(max_length=MAX_BUCKET + 1)]
Duration = Annotated[int, Meta(ge=0, le=LONGEST_NS)]
ClockReading = Annotated[int, Meta(ge=0, le=LATEST_NS)]
Price = Annotated[float, Meta(ge=0.0, le=1e300)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Figure = Annotated[float, Meta(ge=0.0, le=1e12)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Window = Annotated[int, Meta(ge=0, le=MAX_CREDIT)]
Check = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Record = Annotated[int, Meta(ge=0, le=MAX_RECORD)]

Conflated = Annotated[tuple[Name, ...], Meta(max_length=MAX_CONFLATED)]
"""The attributes whose values are the key of an event; none: it has no key."""

Term = tuple[Duration, Price]
"""An on-time delivery within this time of departure is worth this much."""

IN_ORDER: Final[Term] = (0, 0)
"""The first of the terms of a target where a subscriber wants the event in order. As a term it has no effect (no event
has an age below 0), so a broker that does not know it passes it on and does nothing else."""


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True):
    """The base of all messages: an array of the tag and the fields in order."""
