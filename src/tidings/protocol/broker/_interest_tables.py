"""The subscriptions at one home broker as a table that is sent in parts, each below the limit of a frame.

- A table is sent in the order of names. A part states the name it begins after, and holds every subscription from there
  to its own last name, at one version. So a part is right from any sender, however often it arrives, whatever was lost
  before it. A broker that lacks a table asks for TOGETHER parts at once: no more than these accumulate anywhere, and a
  long table does not take a round trip for each part.
- A change that arrives in between is applied, so a table may change while it is sent.
- The size is bounded: every part continues the one before, and names never repeat.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, Literal

from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol._names import is_identity
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Entry, Interest, InterestPart, encode_plain

__all__ = ["COMPARED", "TOGETHER", "Announcements", "Assembly", "Table", "portions"]

Step = Literal["taken", "gap", "anew", "behind", "old"]

TOGETHER: Final = 4
"""So many parts are requested at once."""

COMPARED: Final = 16
"""With covering, a subscription is compared with so many others: the last ones announced, and those that cover
others."""
_NAME_BYTES: Final = 5
"""The most that MessagePack adds to a name."""


class Table:
    """Subscriptions by name."""

    __slots__ = ("_names", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._names: list[str] | None = None  # sorted, once a part was asked for

    def put(self, entry: Entry) -> None:
        """Enter a subscription, or new terms of a known one."""
        if self._names is not None and entry.name not in self.entries:
            insort(self._names, entry.name)
        self.entries[entry.name] = entry

    def drop(self, name: str) -> None:
        """Forget a known subscription."""
        del self.entries[name]
        if self._names is not None:
            del self._names[bisect_right(self._names, name) - 1]

    def part(self, after: str, most_bytes: int) -> tuple[tuple[Entry, ...], bool]:
        """The next entries whose names follow this one, at least one if there is one; whether they are the last."""
        if self._names is None:
            self._names = sorted(self.entries)
        names, found, size_bytes = self._names, list[Entry](), 0
        begin = bisect_right(names, after)
        for name in islice(names, begin, None):
            entry = self.entries[name]
            size_bytes += len(encode_plain(entry))
            if found and size_bytes > most_bytes:
                break
            found.append(entry)
        return tuple(found), begin + len(found) == len(names)


def portions(
    added: Sequence[Entry], removed: Sequence[str], most_bytes: int
) -> Iterator[tuple[tuple[Entry, ...], tuple[str, ...]]]:
    """Changes in portions of at most so many bytes, or of one longer entry."""
    some: list[Entry] = []
    names: list[str] = []
    left_bytes = most_bytes
    changes: list[Entry | str] = [*removed, *added]
    for change in changes:
        size_bytes = len(change.encode()) + _NAME_BYTES if isinstance(change, str) else len(encode_plain(change))
        if size_bytes > left_bytes and (some or names):
            yield tuple(some), tuple(names)
            some, names, left_bytes = [], [], most_bytes
        left_bytes -= size_bytes
        if isinstance(change, str):
            names.append(change)
        else:
            some.append(change)
    if some or names:
        yield tuple(some), tuple(names)


class Assembly:
    """The table of an origin that arrives in parts: the parts so far, the neighbour that is asked, and when to ask
    again."""

    def __init__(self, source: Peer) -> None:
        self.source = source
        self.informant = source  # the sender of the last change that was applied
        self.due_ns = self.tries = 0
        self.expected = 0  # so many parts are under way
        self.has_gap = False  # a later part has arrived, and the next one was asked for again
        self.after = ""
        self.epoch = self.version = -1
        self.entries: dict[str, Entry] = {}

    def take(self, part: InterestPart) -> Step:
        """Add a part, if it is the next one; otherwise report what it is.

        "gap": a later part; "anew": the table has to be received from its beginning; "behind": of a version before the
        applied changes, so its sender knows less than this broker. PeerError if it cannot be a part.
        """
        names = [part.after, *(entry.name for entry in part.entries)]
        if any(name <= before for before, name in pairwise(names)) or not (part.entries or part.is_last):
            raise PeerError("order", f"a part of the subscriptions at {part.origin!r} does not continue the last one")
        if part.after != self.after:
            is_later = part.after > self.after and (part.epoch, part.version) == (self.epoch, self.version)
            return "gap" if is_later else "old"
        if self.after and (part.epoch, part.version) != (self.epoch, self.version):
            if (part.epoch, part.version) < (self.epoch, self.version):
                return "behind"
            self.after = ""  # a change in between was lost
            self.entries.clear()
            return "anew"
        for entry in part.entries:
            parsed(entry.filter)
        self.epoch, self.version, self.after = part.epoch, part.version, names[-1]
        self.entries.update((entry.name, entry) for entry in part.entries)
        self.expected, self.has_gap = max(self.expected - 1, 0), False
        return "taken"

    def follow(self, change: Interest, source: Peer) -> None:
        """Apply a change to the part of the table that has arrived."""
        if self.after and (change.epoch, change.base) == (self.epoch, self.version):
            for name in change.removed:
                self.entries.pop(name, None)
            for entry in change.added:
                if entry.name <= self.after:
                    parsed(entry.filter)
                    self.entries[entry.name] = entry
            self.version, self.informant = change.version, source


class Announcements:
    """The subscriptions at this broker that are announced to the others.

    With covering, a subscription that another one contains (filter, deadline, price and order) is not announced. Each
    is compared with COMPARED others only. A missed containment makes the table longer, and nothing else.
    """

    def __init__(self, *, covering: bool) -> None:
        self.table = Table()
        self._covering = covering
        self._recent: dict[str, None] = {}  # those announced; new ones, and those that covered another last, at the end
        self._covered: dict[str, tuple[Entry, str]] = {}  # by name: what is not announced, and what contains it
        self._covers: dict[str, dict[str, None]] = {}
        self._before: dict[str, Entry | None] = {}  # by name: what was announced before this update

    def update(self, changes: Iterable[tuple[str, Entry | None]]) -> tuple[list[Entry], list[str]]:
        """Subscriptions by name, None if they have ended; the changes to be announced, added and removed."""
        for name, entry in changes:
            if self._covering and not is_identity(name):  # no other one covers a key
                self._drop(name)
                if entry is not None:
                    self._compare(entry)
            elif entry is not None:
                self._announce(entry)
            elif name in self.table.entries:
                self._withdraw(name)
        before, self._before, announced = self._before, {}, self.table.entries
        added = [announced[name] for name, entry in before.items() if name in announced and announced[name] != entry]
        return added, [name for name, entry in before.items() if entry is not None and name not in announced]

    def _announce(self, entry: Entry) -> None:
        self._before.setdefault(entry.name, self.table.entries.get(entry.name))
        self.table.put(entry)

    def _withdraw(self, name: str) -> None:
        self._before.setdefault(name, self.table.entries[name])
        self.table.drop(name)

    def _drop(self, name: str) -> None:
        covered = self._covered.pop(name, None)
        if covered is not None:
            del self._covers[covered[1]][name]
        elif name in self.table.entries:
            self._withdraw(name)
            del self._recent[name]
            for other in self._covers.pop(name, {}):
                self._compare(self._covered.pop(other)[0])

    def _compare(self, entry: Entry) -> None:
        others = [self.table.entries[name] for name in islice(reversed(self._recent), COMPARED)]
        wide = next((other.name for other in others if _contains(other, entry)), None)
        if wide is not None:
            self._cover(entry, wide)
            del self._recent[wide]
            self._recent[wide] = None
            return
        for other in others:
            if _contains(entry, other):
                self._withdraw(other.name)
                del self._recent[other.name]
                self._cover(other, entry.name)
                for name in self._covers.pop(other.name, {}):
                    self._cover(self._covered[name][0], entry.name)
        self._announce(entry)
        self._recent[entry.name] = None

    def _cover(self, narrow: Entry, wide: str) -> None:
        self._covered[narrow.name] = (narrow, wide)
        self._covers.setdefault(wide, {})[narrow.name] = None


def _contains(wide: Entry, narrow: Entry) -> bool:
    if wide.max_delay_ns is not None and (narrow.max_delay_ns is None or narrow.max_delay_ns > wide.max_delay_ns):
        return False
    if wide.price < narrow.price or wide.late_ns < narrow.late_ns:
        return False
    if narrow.record is not None and (wide.record is None or wide.record < narrow.record):
        return False
    return parsed(wide.filter).surely_covers(parsed(narrow.filter))
