"""Subscriptions by broker: what every broker knows of every other (after paper D, section 2.4.1).

- A home broker numbers the changes of its clients' subscriptions (`version`, within its epoch) and announces each to
  all brokers. A broker that missed one sees the gap and asks the sender for the whole table.
- The periodic refresh carries the version only, so its cost does not grow with the subscriptions.
- Subscriptions are hard state: whether a broker is reachable is a matter of link state, and its subscriptions are kept
  while it is not. This module knows how long a broker has been silent (`silence_ns`); `_gossip` decides how long is too
  long.
- Filters are parsed when they arrive; an `Interest` with an invalid one is refused whole.
- The key that a client's name is bound to is stored beside its subscriptions, as one that matches nothing and whose
  name contains the key. So it is announced, kept, recovered and withdrawn like them, also by brokers that do not know
  of keys.
- The cost of a change does not depend on the number of subscriptions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol._names import (
    client_of,
    identity_name,
    is_identity,
    is_reserved,
    key_in,
    qualified_name,
    qualify,
)
from tidings.protocol.broker._interest_tables import Table
from tidings.protocol.broker._matcher import Matcher, Token
from tidings.protocol.wire import LONGEST_NS, Entry, Interest, encode_plain

__all__ = [
    "OLD",
    "Interests",
    "Learnt",
    "LocalInterests",
    "Verdict",
]

Verdict = Literal["old", "refreshed", "changed", "behind"]

_LARGE: Final = 100
"""Clients with at least so many subscriptions are listed separately."""
_NONE: Final[Mapping[str, Entry]] = {}
_NO_KEYS: Final[Mapping[str, bytes]] = {}
_NOTHING: Final = "FALSE"


class _Origin:
    """The subscriptions at one other broker."""

    __slots__ = ("checksum", "epoch", "heard_ns", "number", "table", "version")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.number = self.version = -1
        self.table = Table()
        self.checksum = 0  # of the table: equal tables have equal checksums, whatever their history
        self.heard_ns = 0  # when the broker itself last announced it


class Learnt(NamedTuple):
    """The effect of a message; if it changed something, what, and from which version of its epoch (0: from none)."""

    verdict: Verdict
    added: tuple[Entry, ...] = ()
    removed: tuple[str, ...] = ()
    base: int = 0


OLD: Final = Learnt("old")
_REFRESHED: Final = Learnt("refreshed")
_BEHIND: Final = Learnt("behind")


class Interests:
    """The subscriptions at the other brokers."""

    def __init__(self, *, max_origins: int, max_entries: int) -> None:
        self._max_origins = max_origins
        self._max_entries = max_entries
        self._origins: dict[str, _Origin] = {}
        self._matcher = Matcher()
        self._count = 0
        self.changes = 0
        self.ended: list[tuple[str, str]] = []
        """Subscriptions that have ended, by broker and name, until they are taken from here."""
        self.begun: list[tuple[str, str]] = []
        """The same for new subscriptions."""
        self.incarnations = 0
        """How often a new incarnation of another broker was heard of."""
        self.records: Counter[int] = Counter()
        """Of subscriptions that want order: how many ask for publication records of which length."""
        self._keys: dict[str, dict[str, bytes]] = {}  # by client and broker
        self._identities = 0  # so many entries are keys, not subscriptions

    def __len__(self) -> int:
        return self._count - self._identities

    def keys_of(self, client: str) -> Mapping[str, bytes]:
        """By home broker of a client: the key that its name is bound to there."""
        return self._keys.get(client, _NO_KEYS)

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def entries(self, origin: str) -> Mapping[str, Entry]:
        """The subscriptions at one broker, by name."""
        return self._origins[origin].table.entries

    def homes_of(self, qualified: str) -> list[str]:
        """The brokers with a subscription of this qualified name."""
        return [origin for origin, known in self._origins.items() if qualified in known.table.entries]

    def table(self, origin: str) -> Table:
        """The subscriptions at one broker as a table that can be sent in parts."""
        return self._origins[origin].table

    def epochs(self) -> dict[str, int]:
        """By broker: the epoch of its known subscriptions."""
        return {origin: known.epoch for origin, known in self._origins.items()}

    def epoch_of(self, origin: str) -> int:
        """The known epoch of a broker; -1 if there is none."""
        known = self._origins.get(origin)
        return -1 if known is None else known.epoch

    def is_known(self, origin: str) -> bool:
        """Whether a broker's table can be reported to others: not if a crash has left it between two versions."""
        known = self._origins.get(origin)
        return known is not None and known.version > 0

    def checksum(self, origin: str) -> int:
        """A checksum of one broker's table; the cost of a change does not depend on its length."""
        return self._origins[origin].checksum

    def withdraw(self, origin: str) -> None:
        """Mark a broker's table as having no version: it cannot be reported to others, and has to be requested."""
        self._origins[origin].version = 0
        self.changes += 1

    @property
    def lacks_any(self) -> bool:
        """Whether subscriptions of a known broker may be missing, because no neighbour had its table either."""
        return any(known.version <= 0 for known in self._origins.values())

    def versions(self) -> dict[str, tuple[int, int]]:
        """The epoch and the version of what is known of every broker."""
        return {origin: (known.epoch, known.version) for origin, known in self._origins.items()}

    def is_behind(self, origin: str, epoch: int, version: int) -> bool:
        """Whether less than this is known of an origin."""
        known = self._origins.get(origin)
        return known is None or (epoch, version) > (known.epoch, known.version)

    def learn(self, interest: Interest, now_ns: int) -> Learnt:
        """Enter a message; whether it was news, and whether it can be applied without earlier ones."""
        known = self._origins.get(interest.origin)
        before = (-1, -1, -1) if known is None else (known.epoch, known.number, known.version)
        is_heard_first = (interest.epoch, interest.number) > before[:2]
        is_behind = (interest.epoch, interest.version) > (before[0], before[2])
        if not is_heard_first and not is_behind:
            return OLD
        learnt = _REFRESHED
        if is_behind:
            if interest.base != 0 and (interest.epoch, interest.base) != (before[0], before[2]):
                return _BEHIND
            known, learnt = self._apply(interest, known)
        assert known is not None
        known.number = max(known.number, interest.number)
        known.heard_ns = max(known.heard_ns, now_ns - interest.age_ns)
        return learnt

    def restore(self, interest: Interest, now_ns: int) -> None:
        """Enter a table from the durable store; it has to be refreshed like any other."""
        known, _ = self._apply(interest, None)
        known.number = interest.number
        known.heard_ns = now_ns

    def restore_entry(self, origin: str, entry: Entry) -> bool:
        """Enter a subscription from the durable store; whether its broker is known."""
        known = self._origins.get(origin)
        if known is not None:
            parsed(entry.filter)
            self._change(origin, known, (entry,), ())
        return known is not None

    def silence_ns(self, origin: str, now_ns: int) -> int:
        """How long nothing was heard of a broker."""
        return max(now_ns - self._origins[origin].heard_ns, 0)

    def forget(self, origin: str) -> list[str]:
        """Forget an origin; the names of its subscriptions."""
        known = self._origins.pop(origin)
        names = list(known.table.entries)
        self._change(origin, known, (), names)
        return names

    def head(self, origin: str, now_ns: int) -> Interest:
        """The version of one broker's table, as a message."""
        known = self._origins[origin]
        age_ns = min(self.silence_ns(origin, now_ns), LONGEST_NS)
        return Interest(origin, known.epoch, known.number, known.version, known.version, age_ns)

    def match(self, attributes: Mapping[str, Any]) -> dict[str, list[Entry]]:
        """By home broker: the subscriptions there that the event matches."""
        return self.matched(self.token(attributes))

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which subscriptions the event matches; 0 if none."""
        return self._matcher.token(attributes) if len(self._matcher) else 0

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """A fast `token`, valid until something changes."""
        return self._matcher.tokens()

    def matched(self, token: Token) -> dict[str, list[Entry]]:
        """By home broker: these subscriptions."""
        found: dict[str, list[Entry]] = {}
        for origin, name in self._matcher.keys(token):
            found.setdefault(origin, []).append(self._origins[origin].table.entries[name])
        return found

    def _apply(self, interest: Interest, known: _Origin | None) -> tuple[_Origin, Learnt]:
        """Enter a change or a whole table; PeerError, and no change, if that is not possible."""
        entries: Mapping[str, Entry] = {} if known is None else known.table.entries
        wanted = {entry.name: entry for entry in interest.added}
        gone = entries if interest.base == 0 else interest.removed
        removed = tuple(dict.fromkeys([name for name in gone if name in entries and name not in wanted]))
        added = tuple([entry for name, entry in wanted.items() if entries.get(name) != entry])
        for entry in added:
            if entry.filter not in self._matcher:  # known texts were parsed before
                parsed(entry.filter)
        if known is None and len(self._origins) >= self._max_origins:
            raise PeerError("too-many", f"broker {interest.origin!r} exceeds the limit of {self._max_origins} brokers")
        if len(self) + len(added) > self._max_entries:
            self._require_room(interest.origin, [entry.name for entry in added if entry.name not in entries], removed)
        base = 0 if known is None or known.epoch != interest.epoch else known.version
        if known is None or known.epoch != interest.epoch:
            self.incarnations += 1
        if known is None:
            known = self._origins[interest.origin] = _Origin(interest.epoch)
        self._change(interest.origin, known, added, removed)
        if interest.epoch != known.epoch:
            known.epoch, known.number = interest.epoch, -1
        known.version = interest.version
        return known, Learnt("changed", added, removed, base)

    def _require_room(self, origin: str, begun: Iterable[str], removed: Iterable[str]) -> None:
        """PeerError if there would be too many subscriptions; keys do not count."""
        more = sum(not is_identity(name) for name in begun) - sum(not is_identity(name) for name in removed)
        if more > 0 and len(self) + more > self._max_entries:
            raise PeerError("too-many", f"with those of {origin!r}, subscriptions exceed {self._max_entries} here")

    def _change(self, origin: str, known: _Origin, added: Iterable[Entry], removed: Iterable[str]) -> None:
        table = known.table
        self._count -= len(table.entries)
        checksum = known.checksum
        for name in removed:
            checksum -= _checksum(table.entries[name])
            if is_identity(name):
                self._identities -= 1
                self._bind(origin, name, None)
                table.drop(name)
                continue
            self._matcher.drop((origin, name))
            _recount(self.records, table.entries[name], None)
            table.drop(name)
            self.ended.append((origin, name))
        for entry in added:
            before = table.entries.get(entry.name)
            if is_identity(entry.name):
                self._identities += before is None
                self._bind(origin, entry.name, key_in(entry.name))
                checksum += _checksum(entry) - (0 if before is None else _checksum(before))
                table.put(entry)
                continue
            _recount(self.records, before, entry)
            if before is None:
                self.begun.append((origin, entry.name))
            if before is None or before.filter != entry.filter:
                self._matcher.put((origin, entry.name), entry.filter)
            checksum += _checksum(entry) - (0 if before is None else _checksum(before))
            table.put(entry)
        known.checksum = checksum % 2**32
        self._count += len(table.entries)
        self.changes += 1

    def _bind(self, origin: str, qualified: str, key: bytes | None) -> None:
        """Bind a client's name to this key at a broker; None: unbind it from the key in `qualified`."""
        client = client_of(qualified)
        theirs = self._keys.setdefault(client, {})
        if key is not None:
            theirs[origin] = key
        elif theirs.get(origin) == key_in(qualified):
            del theirs[origin]
        if not theirs:
            del self._keys[client]


def _checksum(entry: Entry) -> int:
    return crc32(encode_plain(entry))


class LocalInterests:
    """The subscriptions of this broker's own clients."""

    def __init__(self) -> None:
        self.unannounced: dict[str, int] = {}  # clients that are no longer announced, and since when
        self.came_ns: dict[str, int] = {}
        """By client, or address of one that has moved on: since when it has subscriptions here, if that is known."""
        self.last_came_ns = 0
        self._of: dict[str, dict[str, Entry]] = {}
        self.large: dict[str, None] = {}
        """The clients with very many subscriptions."""
        self.conflated: dict[str, dict[str, tuple[str, ...]]] = {}
        """By client: its subscriptions that want the latest events alone, with the attributes of their keys."""
        self._count = 0
        self.touched: dict[tuple[str, str], None] = {}
        """What may have to be announced, by client and name."""
        self.records: Counter[int] = Counter()
        self._matcher = Matcher()
        self._keys: dict[str, bytes] = {}

    def __len__(self) -> int:
        return self._count

    def bind(self, client: str, key: bytes) -> bool:
        """Announce that a client's name is bound to this key (empty: to none); whether that is new."""
        before = self._keys.get(client, b"")
        if before == key:
            return False
        self.touched.update(dict.fromkeys((client, identity_name(each)) for each in (before, key) if each))
        if key:
            self._keys[client] = key
        else:
            del self._keys[client]
        return True

    def key_of(self, client: str) -> bytes:
        """The key that a client's name is bound to here; empty if it is not."""
        return self._keys.get(client, b"")

    @property
    def changes(self) -> int:
        """How often subscriptions have come, gone or changed."""
        return self._matcher.changes

    def of(self, client: str) -> Mapping[str, Entry]:
        """One client's subscriptions."""
        return self._of.get(client, _NONE)

    def came(self, client: str, at_ns: int) -> None:
        """Note since when a client has subscriptions here."""
        self.came_ns[client] = at_ns
        self.last_came_ns = max(self.last_came_ns, at_ns)

    def put(self, client: str, entry: Entry) -> bool:
        """Enter a subscription; whether anything has changed."""
        before = self.of(client).get(entry.name)
        if before == entry:
            return False
        parsed(entry.filter)
        self._matcher.put((client, entry.name), entry.filter)
        theirs = self._of.setdefault(client, {})
        theirs[entry.name] = entry
        if len(theirs) == _LARGE:
            self.large[client] = None
        _recount(self.records, before, entry)
        self._note_key(client, entry.name, entry.conflate)
        self._count += before is None
        self.touched[client, entry.name] = None
        return True

    def _note_key(self, client: str, name: str, attributes: tuple[str, ...]) -> None:
        if attributes:
            self.conflated.setdefault(client, {})[name] = attributes
        elif client in self.conflated:
            self.conflated[client].pop(name, None)
            if not self.conflated[client]:
                del self.conflated[client]

    def drop(self, client: str, name: str) -> bool:
        """Forget a subscription; whether it was there."""
        theirs = self._of.get(client)
        before = None if theirs is None else theirs.pop(name, None)
        if theirs is None or before is None:
            return False
        _recount(self.records, before, None)
        self._note_key(client, name, ())
        if len(theirs) == _LARGE - 1:
            self.large.pop(client, None)
        if not theirs:
            del self._of[client]
            self.came_ns.pop(client, None)
        self._matcher.drop((client, name))
        self._count -= 1
        self.touched[client, name] = None
        return True

    def stop_announcing(self, client: str, since_ns: int) -> None:
        """Announce this client's subscriptions no longer."""
        if client not in self.unannounced:
            self.unannounced[client] = since_ns
            self.touched.update(dict.fromkeys((client, name) for name in self.of(client)))

    def match(self, attributes: Mapping[str, Any]) -> dict[str, list[Entry]]:
        """By client: its subscriptions that the event matches."""
        return self.matched(self.token(attributes))

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which subscriptions the event matches; 0 if none."""
        return self._matcher.token(attributes) if len(self._matcher) else 0

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """A fast `token`, valid until something changes."""
        return self._matcher.tokens()

    def matched(self, token: Token) -> dict[str, list[Entry]]:
        """By client: these subscriptions."""
        found: dict[str, list[Entry]] = {}
        for client, name in self._matcher.keys(token):
            found.setdefault(client, []).append(self._of[client][name])
        return found

    def news(self) -> list[tuple[str, Entry | None]]:
        """The changes since the last call, by qualified name; None: it is withdrawn."""
        touched, self.touched = self.touched, {}
        found: list[tuple[str, Entry | None]] = []
        for client, name in touched:
            if is_reserved(name):
                is_bound = client in self._keys and identity_name(self._keys[client]) == name
                entry = Entry(name, _NOTHING, None, 0.0, 0) if is_bound else None
            else:
                entry = None if client in self.unannounced else self.of(client).get(name)
            found.append((qualified_name(client, name), None if entry is None else qualify(client, entry)))
        return found


def _recount(records: Counter[int], before: Entry | None, after: Entry | None) -> None:
    """Count the record lengths again after a subscription was added, removed or changed."""
    was, becomes = None if before is None else before.record, None if after is None else after.record
    if was == becomes:
        return
    if becomes is not None:
        records[becomes] += 1
    if was is not None:
        records[was] -= 1
        if not records[was]:
            del records[was]
