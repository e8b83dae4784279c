"""The sender's side: what an event carries so that its receivers can put it in order (paper A, sections 2.1 and 3.6).

A stamp holds the sequence number, the departure, the departure of the event before it, and the publication record: of
each of the last k events a summary of its content (16 bytes, `_summaries`) and its departure. On the wire a stamp is
26 bytes and 24 for each entry of the record, big-endian:

    version u8 | sequence u64 | departure i64 | previous departure i64 | entries u8
    then for each entry: summary, 16 bytes | departure i64

The departures are the publisher's clock; no receiver compares them with its own, only with each other.
"""

import struct
from collections import deque
from collections.abc import Mapping
from itertools import islice, starmap
from typing import Final

import msgspec

from tidings.errors import ConfigurationError, InputError
from tidings.ordering._summaries import SUMMARY_BYTES, summarise

__all__ = ["MAX_RECORD", "RECORD_ENTRY_BYTES", "RecordEntry", "Stamp", "Stamper"]

MAX_RECORD: Final = 255
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BQqqB")
_ENTRY: Final = struct.Struct(f">{SUMMARY_BYTES}sq")
RECORD_ENTRY_BYTES: Final = _ENTRY.size
"""What each event that a record names takes on the wire."""


class RecordEntry(msgspec.Struct, frozen=True, gc=False):
    """One of the events before: what it was about, and when it left."""

    summary: bytes
    departure_ns: int


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an event carries; `record` starts with the event just before it and goes back one at a time."""

    sequence: int
    departure_ns: int
    previous_departure_ns: int
    record: tuple[RecordEntry, ...] = ()

    def encode(self) -> bytes:
        """The stamp as bytes."""
        head = _HEAD.pack(_VERSION, self.sequence, self.departure_ns, self.previous_departure_ns, len(self.record))
        if not self.record:
            return head
        return head + b"".join(_ENTRY.pack(entry.summary, entry.departure_ns) for entry in self.record)

    @classmethod
    def decode(cls, data: bytes) -> "Stamp":
        """The stamp that the bytes say; InputError if they say none."""
        if len(data) < _HEAD.size or data[0] != _VERSION:
            raise InputError(f"{len(data)} bytes, not a stamp: a stamp has {_HEAD.size} or more and starts with 1")
        _, sequence, departure_ns, previous_ns, entries = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + entries * _ENTRY.size:
            raise InputError(
                f"a stamp with {entries} entries has {_HEAD.size + entries * _ENTRY.size} bytes, not {len(data)}"
            )
        record = tuple(starmap(RecordEntry, _ENTRY.iter_unpack(data[_HEAD.size :]))) if entries else ()
        return cls(sequence=sequence, departure_ns=departure_ns, previous_departure_ns=previous_ns, record=record)


class Stamper:
    """Stamps the events of one publisher, in the order in which they leave."""

    def __init__(self, *, record: int = 25, first_sequence: int = 0) -> None:
        self._next = first_sequence
        self._previous_ns: int | None = None
        self._record: deque[RecordEntry] | tuple[()] = ()
        self.record = record

    @property
    def record(self) -> int:
        """How many of the last events each event describes; a longer record fills as events leave."""
        return 0 if isinstance(self._record, tuple) else self._record.maxlen or 0

    @record.setter
    def record(self, record: int) -> None:
        if not 0 <= record <= MAX_RECORD:
            raise ConfigurationError(f"a record holds 0 to {MAX_RECORD} events, not {record}")
        if record != self.record:
            self._record = deque(islice(self._record, record), maxlen=record) if record else ()

    def stamp(self, attributes: Mapping[str, object], now_ns: int) -> Stamp:
        """The stamp of the event with these attributes, that leaves now; the next one counts on."""
        previous_ns = now_ns if self._previous_ns is None else self._previous_ns
        stamp = Stamp(
            sequence=self._next,
            departure_ns=now_ns,
            previous_departure_ns=previous_ns,
            record=tuple(self._record),
        )
        if not isinstance(self._record, tuple):
            self._record.appendleft(RecordEntry(summarise(attributes), now_ns))
        self._next += 1
        self._previous_ns = now_ns
        return stamp
