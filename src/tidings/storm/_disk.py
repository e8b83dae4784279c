"""A disk in virtual time: one commit at a time, durable as a whole or not at all.

- A commit takes effect when its time is up. A crash before that loses it or keeps it; of erasures that may go ahead of
  other writes it keeps a first part, for they may be several transactions.
- With a `limit_bytes`, a commit that does not fit is refused. Erasures always fit.
- Each commit notes the clock, as a live store does: the next life's clock does not begin before it.
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

    __slots__ = ("_dice", "clock_ns", "fails", "is_slow", "kept", "limit_bytes", "size_bytes", "under_way")

    def __init__(self, dice: Dice) -> None:
        self.kept: dict[str, bytes] = {}
        self.size_bytes = 0
        self.clock_ns = 0
        self.limit_bytes: int | None = None
        self.is_slow = self.fails = False
        self.under_way: Commit | None = None
        self._dice = dice

    def begin(self, commit: Commit, clock_ns: int) -> float:
        """Start a commit; how long it takes."""
        assert self.under_way is None
        self.under_way = commit
        self.clock_ns = max(self.clock_ns, clock_ns)
        return self._dice.between(*(_SLOW_NS if self.is_slow else _COMMIT_NS))

    def finish(self) -> bool:
        """The time of the commit is up; False if there is no room for it."""
        commit, self.under_way = self.under_way, None
        assert commit is not None
        if not commit.is_ahead and self.limit_bytes is not None and self._grown(commit.writes) > self.limit_bytes:
            return False
        self.write(commit.writes)
        return True

    def crash(self) -> None:
        """Whoever wrote is gone."""
        commit, self.under_way = self.under_way, None
        if commit is None:
            return
        if commit.is_ahead:
            self.write(dict(list(commit.writes.items())[: self._dice.whole(len(commit.writes) + 1)]))
        elif self._dice.happens(_KEPT) and (self.limit_bytes is None or self._grown(commit.writes) <= self.limit_bytes):
            self.write(commit.writes)

    def lose(self) -> None:
        """Everything on it is gone."""
        self.kept.clear()
        self.size_bytes = 0
        self.clock_ns = 0
        self.under_way = None

    def write(self, writes: Mapping[str, bytes | None]) -> None:
        """Store values, or erase them (None), durably."""
        self.size_bytes = self._grown(writes)
        kept = self.kept
        for key, value in writes.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value

    def _grown(self, writes: Mapping[str, bytes | None]) -> int:
        """How much there would be with these writes."""
        size_bytes, kept = self.size_bytes, self.kept
        for key, value in writes.items():
            before = kept.get(key)
            if before is not None:
                size_bytes -= len(key) + len(before)
            if value is not None:
                size_bytes += len(key) + len(value)
        return size_bytes
