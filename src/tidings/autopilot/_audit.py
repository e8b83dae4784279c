"""The audit log: every decision of an autopilot as one JSON object in a line, and what follows from all of them.

The log is the memory. `Memory` is a fold over its records: changes that are not yet judged, when changes were made,
which slots are left alone until when, and what predictions were worth. So an autopilot that was killed continues from
its log, and one that runs knows nothing that the log does not say.

**What predictions were worth.** For each kind of change, the measured gain of judged changes divided by the predicted
one, each from 0 to 1, in the mean with TRUST changes assumed to have been exactly as predicted. A change whose
prediction is worth w counts as if it gained w times as much, and costs 1 / w times as much in the search.

A record is on disk before the change that it announces is made. A last line that was cut off is ignored.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidings.autopilot._measure import Measure
from tidings.errors import InputError
from tidings.planning import MovePublisher, UseStrategy

__all__ = ["AuditLog", "Change", "Forecast", "Memory", "Pending", "Record", "Slot", "read_records"]

TRUST: Final = 2.0
WORTH_LEAST: Final = 0.1
BAN_S: Final = 600.0
"""How long the slot of a change that did not help is left alone; twice as long each further time."""
BAN_MOST_S: Final = 6 * 3600.0
STAY_S: Final = 300.0
"""How long the slot of a change that helped is left alone."""
REMEMBERED_S: Final = 24 * 3600.0
"""Failures of a slot that are older than this no longer count."""

Change = MovePublisher | UseStrategy
"""What an autopilot may change."""
Slot = tuple[str, ...]
Kind = Literal[
    "started",
    "short",
    "met",
    "planned",
    "would apply",
    "applying",
    "applied",
    "refused",
    "kept",
    "rolling back",
    "rolled back",
    "not rolled back",
    "not in effect",
    "holding",
    "stopped",
]


class Forecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shortfall predicted without and with a change (and those before it), their difference, the difference when
    both were simulated, and what predictions of this kind were worth."""

    now: float
    then: float
    gain: float
    rehearsed_gain: float | None = None
    worth: float = 1.0


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision: when (seconds since 1970), what, in words, and the figures it rests on.

    `measured` is before a change, `after` since then; `inverse` is what takes `change` back; `changes` are those that a
    plan consists of, or a verdict is about; `advice` is what the autopilot may not do itself.
    """

    at_s: float
    kind: Kind
    words: str
    change: Change | None = None
    inverse: Change | None = None
    changes: tuple[Change, ...] = ()
    measured: Measure | None = None
    predicted: Forecast | None = None
    after: Measure | None = None
    is_clear: bool = True
    advice: tuple[str, ...] = ()


class Pending(NamedTuple):
    """A change that was ordered and is not judged."""

    change: Change
    inverse: Change
    measured: Measure
    predicted: Forecast
    is_applied: bool


class Memory:
    """What follows from the records of a log."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.pending: list[Pending] = []
        self.ordered_s: list[float] = []
        """When changes were made, of the last day."""
        self._left_alone: dict[Slot, float] = {}
        self._failed: dict[Slot, list[float]] = {}
        self._worths: dict[str, list[float]] = {}
        for record in records:
            self.note(record)

    def note(self, record: Record) -> None:
        """Take a further record into account."""
        change = record.change
        match record.kind:
            case "applying":
                assert change is not None
                assert record.inverse is not None
                assert record.measured is not None
                assert record.predicted is not None
                self.pending.append(Pending(change, record.inverse, record.measured, record.predicted, False))
                self.ordered_s = [at_s for at_s in self.ordered_s if at_s > record.at_s - REMEMBERED_S]
                self.ordered_s.append(record.at_s)
            case "applied":
                self.pending = [
                    each._replace(is_applied=True) if each.change == change else each for each in self.pending
                ]
            case "refused" | "not rolled back":
                self._settle(change)
                self._fail(change, record.at_s)
            case "not in effect":
                self._settle(change)
            case "rolled back":
                self._settle(change)
                self._fail(change, record.at_s)
            case "kept":
                self._learn(record)
                for each in record.changes:
                    self._settle(each)
                    self._failed.pop(each.slot, None)
                    self._leave(each.slot, record.at_s + STAY_S)
            case "rolling back":
                self._learn(record)
            case _:
                pass

    def worth(self, kind: str) -> float:
        """What predictions for this kind of change were worth, from WORTH_LEAST to 1."""
        seen = self._worths.get(kind, [])
        return max((TRUST + sum(seen)) / (TRUST + len(seen)), WORTH_LEAST)

    def judged(self, kind: str) -> int:
        """How many changes of a kind that is based on."""
        return len(self._worths.get(kind, ()))

    def left_alone(self, at_s: float) -> frozenset[Slot]:
        """The slots that may not be changed at this time."""
        return frozenset(slot for slot, until_s in self._left_alone.items() if until_s > at_s)

    def _settle(self, change: Change | None) -> None:
        self.pending = [each for each in self.pending if each.change != change]

    def _fail(self, change: Change | None, at_s: float) -> None:
        assert change is not None
        failed = [each for each in self._failed.get(change.slot, ()) if each > at_s - REMEMBERED_S]
        self._failed[change.slot] = [*failed, at_s]
        self._leave(change.slot, at_s + min(BAN_S * 2.0 ** len(failed), BAN_MOST_S))

    def _leave(self, slot: Slot, until_s: float) -> None:
        self._left_alone[slot] = max(self._left_alone.get(slot, 0.0), until_s)

    def _learn(self, record: Record) -> None:
        """Compare the prediction with the accounts; a verdict that is not clear teaches nothing."""
        before, after, forecast = record.measured, record.after, record.predicted
        if not record.is_clear or before is None or after is None or forecast is None or forecast.gain <= 0.0:
            return
        worth = min(max((before.shortfall - after.shortfall) / forecast.gain, 0.0), 1.0)
        for kind in {change.kind for change in record.changes}:
            self._worths.setdefault(kind, []).append(worth)


class AuditLog:
    """The file, opened to append; each record is on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.records = read_records(path) if path.exists() else []
            self._file = path.open("ab")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")  # the last record was cut off

    def fileno(self) -> int:
        """For a lock."""
        return self._file.fileno()

    def write(self, record: Record) -> None:
        """Append a record, and wait until it is on disk."""
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_records(path: Path) -> list[Record]:
    """The records of a log, oldest first; an InputError names a line that is none."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    found: list[Record] = []
    decoder: Any = msgspec.json.Decoder(Record)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(decoder.decode(line))
        except msgspec.ValidationError as error:
            raise InputError(
                f"{path}: line {number} is no record of an autopilot ({error}); give another file with --log"
            ) from None
        except msgspec.DecodeError:
            continue  # cut off when the machine stopped
    return found
