"""Group commit: writes collect while a commit is under way, and become the next one.

The last write to a key counts: a value that was stored and erased in between is not written. Nobody waits for erasures,
so writes without a requested sync are committed after LAZY_NS.

A commit keeps the order of the last writes, and ends with the time. On a disk that breaks its promise and writes only
the first part of a commit, a later write is never present without the earlier ones. Values are sealed (`_records`) when
the commit begins.

If the store has no room for a commit:

- Nothing is confirmed, so nothing is promised. Later writes join the commit, the last write to a key counting as ever,
  and it is tried again every RETRY_NS.
- Room is made first: keys that may be erased ahead of other writes (`Erase.ahead`) are erased in a commit of their own,
  since the rest may need the room of these values. All other writes stay one transaction.
- The store counts as full until no write has lacked room for CALM_NS.
"""

from typing import Final

from tidings.protocol.node._effects import Commit
from tidings.protocol.node._records import CLOCKS, sealed

__all__ = ["CALM_NS", "LAZY_NS", "RETRY_NS", "Commits"]

LAZY_NS: Final = 1_000_000_000
RETRY_NS: Final = 1_000_000_000
CALM_NS: Final = 3_000_000_000


class _Writes:
    """The last write to each key; `ahead` are the keys whose erasure may come first."""

    __slots__ = ("ahead", "values")

    def __init__(self) -> None:
        self.values: dict[str, bytes | None] = {}
        self.ahead: set[str] = set()

    def put(self, key: str, value: bytes | None, *, ahead: bool) -> None:
        values = self.values
        if key in values:
            del values[key]  # the last write comes last
        values[key] = value
        if ahead:
            self.ahead.add(key)
        elif self.ahead:
            self.ahead.discard(key)

    def join(self, later: "_Writes") -> None:
        for key in later.values:
            self.values.pop(key, None)
        self.values |= later.values
        self.ahead = (self.ahead - later.values.keys()) | later.ahead


class Commits:
    """The writes of one node that are not yet durable; one commit at a time is under way."""

    def __init__(self) -> None:
        self.is_full = False
        """Whether there was no room for the last commit."""
        self.due_ns: int | None = None
        """When to check again, if no sync is requested before."""
        self.retried = 0
        """How many commits had to be tried again."""
        self._is_under_way = False
        self._makes_room = self._has_made_room = False  # of the commit under way; of the one before
        self._erasing: frozenset[str] = frozenset()  # what the commit under way erases ahead
        self._calm_ns = 0  # when room was last lacking
        self._waiting = _Writes()
        self._tokens: list[int] = []  # syncs that wait for these writes
        self._committing = _Writes()
        self._covered: list[int] = []  # syncs of the commit under way
        self._begun = 0

    @property
    def waiting(self) -> int:
        """How many writes are in no commit yet."""
        return len(self._waiting.values)

    @property
    def is_idle(self) -> bool:
        """Whether everything is durable, and no sync waits."""
        return not (self._is_under_way or self._waiting.values or self._tokens)

    def is_due(self, now_ns: int, *, hurry: bool = False) -> bool:
        """Whether `next` has something to do: there are writes, none are under way, and it is time, or the time has to
        be set."""
        if self._is_under_way or not (self._waiting.values or self._tokens):
            return False
        if self.due_ns is None or now_ns >= self.due_ns:
            return True
        return not self.is_full and (hurry or bool(self._tokens))

    def write(self, key: str, value: bytes | None, *, ahead: bool = False) -> None:
        """Store a value, or erase it, with the next commit; an erasure may be allowed ahead of other writes."""
        self._waiting.put(key, value, ahead=ahead)

    def is_written(self, key: str) -> bool:
        """Whether a key has a write that is in no commit yet."""
        return key in self._waiting.values

    def sync(self, token: int) -> None:
        """Make everything written so far durable."""
        self._tokens.append(token)

    def next(self, now_ns: int, *, hurry: bool = False) -> Commit | None:
        """The commit to begin now, if there is one; an empty one is done at once."""
        if not self.is_due(now_ns, hurry=hurry):
            return None
        if self.due_ns is None and not self._tokens and (self.is_full or not hurry):
            self.due_ns = now_ns + LAZY_NS
            return None
        self.due_ns = None
        self._is_under_way = True
        if self.is_full and not self._has_made_room:
            self._makes_room = True
            self._erasing = frozenset(self._waiting.ahead)
            return Commit(dict.fromkeys(sorted(self._erasing)), is_ahead=True)
        self._committing, self._waiting = self._waiting, _Writes()
        self._covered, self._tokens = self._tokens, []
        if not self._committing.values:
            return Commit({})
        writes = {key: None if it is None else sealed(key, it) for key, it in self._committing.values.items()}
        clock = CLOCKS[self._begun % len(CLOCKS)]
        self._begun += 1
        writes[clock] = sealed(clock, str(now_ns).encode())
        return Commit(writes)

    def done(self, now_ns: int) -> list[int]:
        """The commit under way is durable; its syncs."""
        self._is_under_way = False
        if self._makes_room:
            for key in self._erasing & self._waiting.ahead:  # except keys that were stored again meanwhile
                del self._waiting.values[key]
            self._waiting.ahead -= self._erasing
            self._makes_room, self._has_made_room = False, True
            self.due_ns = now_ns  # now there may be room for the rest
            return []
        self.is_full = self._has_made_room = False
        self._committing = _Writes()
        covered, self._covered = self._covered, []
        return covered

    def refused(self, now_ns: int) -> None:
        """The store has no room for the commit under way."""
        self._is_under_way = False
        self.is_full = True
        self._calm_ns = now_ns
        self.retried += 1
        if not self._makes_room:
            self._committing.join(self._waiting)
            self._waiting, self._committing = self._committing, _Writes()
            self._tokens = self._covered + self._tokens
            self._covered = []
        # At once if no room has been made yet; otherwise when something may have expired.
        has_tried = self._makes_room or self._has_made_room
        self._makes_room = self._has_made_room = False
        self.due_ns = now_ns + RETRY_NS if has_tried else now_ns

    def is_calm(self, now_ns: int) -> bool:
        """Whether nothing has lacked room for a while."""
        return not self.is_full and now_ns - self._calm_ns >= CALM_NS
