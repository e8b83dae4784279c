"""A disk in virtual time: one commit at a time, durable as a whole or not at all.

- A commit takes effect when its time is up. A crash before that loses it or keeps it; of erasures, which may be several
  transactions ahead of other writes, it keeps a first part.
- With a `limit_bytes`, a commit that does not fit is refused. Erasures always fit.
- A torn write leaves a first part of the commit in progress, and of the next record half, or zeroes.
- A stored bit may flip (`flip`). Only the disk knows which records are damaged.
- The disk keeps the bytes that a node commits, and returns them.
"""

from collections.abc import Mapping
from typing import Final

from tidings.protocol.node import Commit
from tidings.storm._dice import Dice

__all__ = ["Disk"]

_COMMIT_NS: Final = (2e6, 40e6)
_SLOW_NS: Final = (0.3e9, 2.5e9)
_KEPT: Final = 0.4
"""How often a commit that a crash interrupts turns out to be durable."""


class Disk:
    """The durable store of one process; `kept` is what it holds."""

    __slots__ = ("_dice", "damaged", "fails", "is_slow", "kept", "limit_bytes", "size_bytes", "tears", "under_way")

    def __init__(self, dice: Dice) -> None:
        self.kept: dict[str, bytes] = {}
        self.size_bytes = 0
        self.damaged: dict[str, bool] = {}
        """The keys of damaged records, and whether the record was sound before."""
        self.limit_bytes: int | None = None
        self.is_slow = self.fails = self.tears = False
        self.under_way: Commit | None = None
        self._dice = dice

    def begin(self, commit: Commit) -> float:
        """Start a commit; returns how long it takes."""
        assert self.under_way is None
        self.under_way = commit
        return self._dice.between(*(_SLOW_NS if self.is_slow else _COMMIT_NS))

    def finish(self) -> bool:
        """End the commit in progress; False if there is no room for it."""
        commit, self.under_way = self.under_way, None
        assert commit is not None
        if not commit.is_ahead and self.limit_bytes is not None and self._grown(commit.writes) > self.limit_bytes:
            return False
        self.write(commit.writes)
        return True

    def crash(self) -> None:
        """The writing process is gone."""
        commit, self.under_way = self.under_way, None
        if commit is None:
            return
        if self.tears and not commit.is_ahead:
            self._tear(commit)
        elif commit.is_ahead:
            self.write(dict(list(commit.writes.items())[: self._dice.whole(len(commit.writes) + 1)]))
        elif self._dice.happens(_KEPT) and (self.limit_bytes is None or self._grown(commit.writes) <= self.limit_bytes):
            self.write(commit.writes)

    def lose(self) -> None:
        """Lose everything."""
        self.kept.clear()
        self.size_bytes = 0
        self.damaged.clear()
        self.under_way = None

    def _tear(self, commit: Commit) -> None:
        """Keep some of the writes, half of one, and none of the others."""
        writes = list(commit.writes.items())
        whole = self._dice.whole(len(writes) + 1)
        self.write(dict(writes[:whole]))
        if whole < len(writes) and (record := writes[whole][1]) is not None:
            key = writes[whole][0]
            was_sound = key in self.kept and key not in self.damaged
            cut = 1 + self._dice.whole(len(record) - 1)
            torn = record[:cut] + (bytes(len(record) - cut) if self._dice.happens(0.5) else b"")
            if torn != record:  # a record that ends with zeroes may still be intact
                self.write({key: torn})
                self.damaged[key] = was_sound

    def flip(self) -> str | None:
        """Flip one stored bit; returns its record, if there is any."""
        keys = [key for key in sorted(self.kept) if key not in self.damaged]
        if not keys:
            return None
        key = self._dice.one_of(keys)
        record = bytearray(self.kept[key])
        record[self._dice.whole(len(record))] ^= 1 << self._dice.whole(8)
        self.write({key: bytes(record)})
        self.damaged[key] = True
        return key

    def write(self, writes: Mapping[str, bytes | None]) -> None:
        """Store values, or erase them (None), durably."""
        self.size_bytes = self._grown(writes)
        kept, damaged = self.kept, self.damaged
        for key, value in writes.items():
            if damaged:
                damaged.pop(key, None)
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value

    def _grown(self, writes: Mapping[str, bytes | None]) -> int:
        """How many bytes would be stored after these writes."""
        size_bytes, kept = self.size_bytes, self.kept
        for key, value in writes.items():
            before = kept.get(key)
            if before is not None:
                size_bytes -= len(key) + len(before)
            if value is not None:
                size_bytes += len(key) + len(value)
        return size_bytes
