"""Who wants what, at which broker: what every broker keeps of every other (after paper D, section 2.4.1).

- A home broker numbers the changes of its clients' subscriptions (`version`, within its epoch) and tells all brokers of
  each; brokers who missed one see the gap and ask the neighbour who told them for everything.
- The periodic refresh carries the version only, so its cost does not grow with the subscriptions.
- Interests are hard state: whether a broker answers is the business of link state, and what its clients want is kept
  while it does not. How long nobody has heard of a broker is known here (`silence_ns`); `_gossip` knows how long is too
  long.
- Filters are read when they come in; an `Interest` with one that cannot be read is refused whole.
- Beside what a client wants stands which key its name is bound to: as a subscription that matches nothing, and whose
  name holds the key. So it is told, kept, recovered and withdrawn as they are, also by brokers that do not know of it.
- What a change costs does not depend on how many subscriptions there are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast
from zlib import crc32

from tidings.matching import MOST_MASKED, MaskIndex, each_bit
from tidings.model.filters import Filter
from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol.broker._interest_tables import Table
from tidings.protocol.broker._told_names import (
    as_told,
    client_of,
    identity_name,
    is_identity,
    is_reserved,
    key_in,
    told_name,
)
from tidings.protocol.wire import LONGEST_NS, Entry, Interest, encode_plain

if TYPE_CHECKING:
    from tidings.matching import MatchingIndex

__all__ = [
    "OLD",
    "Interests",
    "Learnt",
    "LocalInterests",
    "Token",
    "Verdict",
]

Verdict = Literal["old", "refreshed", "changed", "behind"]

_ANSWERS: Final = 4_096
"""Of so many combinations of filters it is remembered whose they are."""
_LARGE: Final = 100
"""Clients with so many subscriptions are known apart."""
_MOST_ADDED: Final = 4_096
"""So many filters at most are kept as they are, until an event comes."""
_NONE: Final[Mapping[str, Entry]] = {}
_NOBODY: Final[Mapping[str, bytes]] = {}
_NOTHING: Final = "FALSE"
_Key = tuple[str, str]
Token = int | tuple[int, ...]
"""Which filters an event satisfies: equal tokens of one matcher, between two changes, stand for equal answers."""


class _Matcher:
    """Filters by key. Equal filters are asked once; up to MOST_MASKED clauses by masks, more of them in an index."""

    def __init__(self) -> None:
        self.changes = 0
        self._masks: MaskIndex | None = MaskIndex()
        self._index: MatchingIndex | None = None
        self._texts: dict[_Key, str] = {}
        # By the text of the filter: who has it. Nearly all texts are one subscription's, so that is all that is kept.
        self._alike: dict[str, _Key | dict[_Key, None]] = {}
        self._tokens: dict[str, int] = {}  # by the text: its bits, or its number in the index
        self._text_of: dict[int, str] = {}  # by each of the bits, or by the number
        self._added: dict[int, Filter] = {}
        self._next = 0
        self._answers: dict[Token, list[_Key]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, text: str) -> bool:
        return text in self._alike

    def put(self, key: _Key, text: str) -> None:
        """Enter a filter, or another one in its place."""
        if key in self._texts:
            self.drop(key)
        self._change()
        self._texts[key] = text
        alike = self._alike.get(text)
        if alike is None:
            self._alike[text] = key
            self._enter(text)
        elif isinstance(alike, dict):
            alike[key] = None
        else:
            self._alike[text] = {alike: None, key: None}

    def drop(self, key: _Key) -> None:
        """Forget a filter, if it was there."""
        text = self._texts.pop(key, None)
        if text is None:
            return
        self._change()
        alike = self._alike[text]
        if isinstance(alike, dict):
            del alike[key]
        if not alike or not isinstance(alike, dict):
            del self._alike[text]
            token = self._tokens.pop(text)
            for each in (token,) if self._masks is None else each_bit(token):
                del self._text_of[each]
            if self._masks is not None:
                self._masks.remove(token)
            elif self._added.pop(token, None) is None and self._index is not None:
                self._index.remove(token)

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which filters accept the event."""
        if self._masks is not None:
            return self._masks.match(attributes)
        index = self._filled()
        return tuple(sorted(cast(list[int], index.match(attributes))))

    def _filled(self) -> "MatchingIndex":
        """The index of all filters."""
        if self._index is None:
            from tidings.matching import MatchingIndex  # few brokers need it, and it takes long to load

            self._index = MatchingIndex()
        if self._added:
            self._index.add_many(self._added.items())
            self._added.clear()
        return self._index

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """`token`, without asking again what cannot change while nothing does."""
        if not self._texts:
            return _nothing
        return self.token if self._masks is None else self._masks.match

    def keys(self, token: Token) -> list[_Key]:
        """The keys of these filters, in order."""
        known = self._answers.get(token)
        if known is None:
            found = each_bit(token) if isinstance(token, int) else token
            texts = dict.fromkeys(self._text_of[each] for each in found)
            known = sorted(key for text in texts for key in self._who(text))
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            self._answers[token] = known
        return known

    def _who(self, text: str) -> Iterable[_Key]:
        alike = self._alike[text]
        return alike if isinstance(alike, dict) else (alike,)

    def _change(self) -> None:
        self.changes += 1
        self._answers.clear()

    def _enter(self, text: str) -> None:
        if self._masks is not None:
            token = self._tokens[text] = self._masks.add(parsed(text))
            self._text_of.update(dict.fromkeys(each_bit(token), text))
            if len(self._masks) > MOST_MASKED:
                self._masks = None
                self._text_of.clear()
                for each in self._tokens:
                    self._number(each)
        else:
            self._number(text)

    def _number(self, text: str) -> None:
        """Enter a filter into the index, under a whole number."""
        self._tokens[text] = self._next
        self._text_of[self._next] = text
        self._added[self._next] = parsed(text)
        if len(self._added) >= _MOST_ADDED:
            self._filled()  # in the index they take less room
        self._next += 1


def _nothing(attributes: Mapping[str, Any]) -> Token:  # noqa: ARG001
    return 0


class _Origin:
    """The subscriptions at one other broker."""

    __slots__ = ("checksum", "epoch", "heard_ns", "number", "table", "version")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.number = self.version = -1
        self.table = Table()
        self.checksum = 0  # of the table: equal tables have equal ones, however they came to be
        self.heard_ns = 0  # when the broker itself last said so


class Learnt(NamedTuple):
    """What a message was worth; if it changed something, what, and of which version in its epoch (0: of none)."""

    verdict: Verdict
    added: tuple[Entry, ...] = ()
    removed: tuple[str, ...] = ()
    base: int = 0


OLD: Final = Learnt("old")
_REFRESHED: Final = Learnt("refreshed")
_BEHIND: Final = Learnt("behind")


class Interests:
    """What the other brokers want."""

    def __init__(self, *, max_origins: int, max_entries: int) -> None:
        self._max_origins = max_origins
        self._max_entries = max_entries
        self._origins: dict[str, _Origin] = {}
        self._matcher = _Matcher()
        self._count = 0
        self.changes = 0
        self.ended: list[tuple[str, str]] = []
        """Subscriptions that have ended, by broker and name, until somebody takes note of it."""
        self.begun: list[tuple[str, str]] = []
        """The same of those that are new."""
        self.lives = 0
        """How often one of the others was heard of in a life of which nobody had been."""
        self.records: Counter[int] = Counter()
        """Of subscriptions that want order: how many ask for publication records of which length."""
        self._keys: dict[str, dict[str, bytes]] = {}  # by client and broker
        self._identities = 0  # of all that is told, so many are no subscriptions

    def __len__(self) -> int:
        return self._count - self._identities

    def keys_of(self, client: str) -> Mapping[str, bytes]:
        """By broker where a client is at home: the key that its name is bound to there."""
        return self._keys.get(client, _NOBODY)

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def entries(self, origin: str) -> Mapping[str, Entry]:
        """What one broker wants, by name."""
        return self._origins[origin].table.entries

    def homes_of(self, told: str) -> list[str]:
        """The brokers that want something of this name."""
        return [origin for origin, known in self._origins.items() if told in known.table.entries]

    def table(self, origin: str) -> Table:
        """The same, to be told in parts."""
        return self._origins[origin].table

    def epochs(self) -> dict[str, int]:
        """By broker: its life, as far as it is known what is wanted there."""
        return {origin: known.epoch for origin, known in self._origins.items()}

    def epoch_of(self, origin: str) -> int:
        """The life of a broker that is known of; -1: of none."""
        known = self._origins.get(origin)
        return -1 if known is None else known.epoch

    def is_known(self, origin: str) -> bool:
        """Whether others can be told what a broker wants: not if a crash has left it between two versions."""
        known = self._origins.get(origin)
        return known is not None and known.version > 0

    def checksum(self, origin: str) -> int:
        """A number for what one broker wants; what a change of it costs does not depend on how much there is."""
        return self._origins[origin].checksum

    def withdraw(self, origin: str) -> None:
        """What is known of a broker is of no version: others cannot be told of it, and it has to be asked for."""
        self._origins[origin].version = 0
        self.changes += 1

    @property
    def lacks_any(self) -> bool:
        """Whether something that some broker wants may be missing: whoever told everything did not know it either."""
        return any(known.version <= 0 for known in self._origins.values())

    def versions(self) -> dict[str, tuple[int, int]]:
        """The epoch and the version of what is known of every broker."""
        return {origin: (known.epoch, known.version) for origin, known in self._origins.items()}

    def is_behind(self, origin: str, epoch: int, version: int) -> bool:
        """Whether less is known of an origin than this."""
        known = self._origins.get(origin)
        return known is None or (epoch, version) > (known.epoch, known.version)

    def learn(self, said: Interest, now_ns: int) -> Learnt:
        """Enter what a broker says; whether it was news, and whether it can be understood without what came before."""
        known = self._origins.get(said.origin)
        before = (-1, -1, -1) if known is None else (known.epoch, known.number, known.version)
        is_heard_first = (said.epoch, said.number) > before[:2]
        is_behind = (said.epoch, said.version) > (before[0], before[2])
        if not is_heard_first and not is_behind:
            return OLD
        learnt = _REFRESHED
        if is_behind:
            if said.base != 0 and (said.epoch, said.base) != (before[0], before[2]):
                return _BEHIND
            known, learnt = self._apply(said, known)
        assert known is not None
        known.number = max(known.number, said.number)
        known.heard_ns = max(known.heard_ns, now_ns - said.age_ns)
        return learnt

    def restore(self, said: Interest, now_ns: int) -> None:
        """Enter what the durable store kept; it has to be refreshed like anything else."""
        known, _ = self._apply(said, None)
        known.number = said.number
        known.heard_ns = now_ns

    def restore_entry(self, origin: str, entry: Entry) -> bool:
        """Enter a subscription that the durable store kept; whether its broker is known."""
        known = self._origins.get(origin)
        if known is not None:
            parsed(entry.filter)
            self._change(origin, known, (entry,), ())
        return known is not None

    def silence_ns(self, origin: str, now_ns: int) -> int:
        """For how long nobody has heard of a broker."""
        return max(now_ns - self._origins[origin].heard_ns, 0)

    def forget(self, origin: str) -> list[str]:
        """Drop an origin; the names of what it wanted."""
        known = self._origins.pop(origin)
        names = list(known.table.entries)
        self._change(origin, known, (), names)
        return names

    def head(self, origin: str, now_ns: int) -> Interest:
        """What is known of one broker by its version only, as another should be told."""
        known = self._origins[origin]
        age_ns = min(self.silence_ns(origin, now_ns), LONGEST_NS)
        return Interest(origin, known.epoch, known.number, known.version, known.version, age_ns)

    def match(self, attributes: Mapping[str, Any]) -> dict[str, list[Entry]]:
        """By home broker: the subscriptions there that the event satisfies."""
        return self.matched(self.token(attributes))

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which subscriptions the event satisfies; 0 if none."""
        return self._matcher.token(attributes) if len(self._matcher) else 0

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """`token` itself, as quick as can be, until something changes."""
        return self._matcher.tokens()

    def matched(self, token: Token) -> dict[str, list[Entry]]:
        """By home broker: these subscriptions."""
        found: dict[str, list[Entry]] = {}
        for origin, name in self._matcher.keys(token):
            found.setdefault(origin, []).append(self._origins[origin].table.entries[name])
        return found

    def _apply(self, said: Interest, known: _Origin | None) -> tuple[_Origin, Learnt]:
        """Enter a change or a whole table; PeerError, and nothing has changed, if that cannot be."""
        entries: Mapping[str, Entry] = {} if known is None else known.table.entries
        wanted = {entry.name: entry for entry in said.added}
        gone = entries if said.base == 0 else said.removed
        removed = tuple(dict.fromkeys([name for name in gone if name in entries and name not in wanted]))
        added = tuple([entry for name, entry in wanted.items() if entries.get(name) != entry])
        for entry in added:
            if entry.filter not in self._matcher:  # what is in there was read
                parsed(entry.filter)
        if known is None and len(self._origins) >= self._max_origins:
            raise PeerError("too-many", f"broker {said.origin!r} is one more than {self._max_origins}, the most here")
        if len(self) + len(added) > self._max_entries:
            self._require_room(said.origin, [entry.name for entry in added if entry.name not in entries], removed)
        base = 0 if known is None or known.epoch != said.epoch else known.version
        if known is None or known.epoch != said.epoch:
            self.lives += 1
        if known is None:
            known = self._origins[said.origin] = _Origin(said.epoch)
        self._change(said.origin, known, added, removed)
        if said.epoch != known.epoch:
            known.epoch, known.number = said.epoch, -1
        known.version = said.version
        return known, Learnt("changed", added, removed, base)

    def _require_room(self, origin: str, begun: Iterable[str], removed: Iterable[str]) -> None:
        """PeerError if there would be more subscriptions than there may be; identities are none."""
        more = sum(not is_identity(name) for name in begun) - sum(not is_identity(name) for name in removed)
        if more > 0 and len(self) + more > self._max_entries:
            raise PeerError("too-many", f"the subscriptions of {origin!r} make more than {self._max_entries} here")

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

    def _bind(self, origin: str, told: str, key: bytes | None) -> None:
        """The name of a client is bound to this key at a broker; None: to the one in `told` no more."""
        client = client_of(told)
        theirs = self._keys.setdefault(client, {})
        if key is not None:
            theirs[origin] = key
        elif theirs.get(origin) == key_in(told):
            del theirs[origin]
        if not theirs:
            del self._keys[client]


def _checksum(entry: Entry) -> int:
    return crc32(encode_plain(entry))


class LocalInterests:
    """What this broker's own clients want."""

    def __init__(self) -> None:
        self.untold: dict[str, int] = {}  # clients of whom the others are told no more, and since when
        self._of: dict[str, dict[str, Entry]] = {}
        self.large: dict[str, None] = {}
        """The clients with very many subscriptions."""
        self._count = 0
        self.touched: dict[tuple[str, str], None] = {}
        """What the others may have to be told of, by client and name."""
        self.records: Counter[int] = Counter()
        self._matcher = _Matcher()
        self._keys: dict[str, bytes] = {}

    def __len__(self) -> int:
        return self._count

    def bind(self, client: str, key: bytes) -> bool:
        """The others are told that a client's name is bound to this key (empty: to none); whether that is new."""
        before = self._keys.get(client, b"")
        if before == key:
            return False
        self.touched.update(dict.fromkeys((client, identity_name(each)) for each in (before, key) if each))
        if key:
            self._keys[client] = key
        else:
            del self._keys[client]
        return True

    @property
    def changes(self) -> int:
        """How often subscriptions have come, gone or changed."""
        return self._matcher.changes

    def of(self, client: str) -> Mapping[str, Entry]:
        """One client's subscriptions."""
        return self._of.get(client, _NONE)

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
        self._count += before is None
        self.touched[client, entry.name] = None
        return True

    def drop(self, client: str, name: str) -> bool:
        """Forget a subscription; whether it was there."""
        theirs = self._of.get(client)
        before = None if theirs is None else theirs.pop(name, None)
        if theirs is None or before is None:
            return False
        _recount(self.records, before, None)
        if len(theirs) == _LARGE - 1:
            self.large.pop(client, None)
        if not theirs:
            del self._of[client]
        self._matcher.drop((client, name))
        self._count -= 1
        self.touched[client, name] = None
        return True

    def stop_telling(self, client: str, since_ns: int) -> None:
        """The others are told no more of this client."""
        if client not in self.untold:
            self.untold[client] = since_ns
            self.touched.update(dict.fromkeys((client, name) for name in self.of(client)))

    def match(self, attributes: Mapping[str, Any]) -> dict[str, list[Entry]]:
        """By client: its subscriptions that the event satisfies."""
        return self.matched(self.token(attributes))

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which subscriptions the event satisfies; 0 if none."""
        return self._matcher.token(attributes) if len(self._matcher) else 0

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """`token` itself, as quick as can be, until something changes."""
        return self._matcher.tokens()

    def matched(self, token: Token) -> dict[str, list[Entry]]:
        """By client: these subscriptions."""
        found: dict[str, list[Entry]] = {}
        for client, name in self._matcher.keys(token):
            found.setdefault(client, []).append(self._of[client][name])
        return found

    def news(self) -> list[tuple[str, Entry | None]]:
        """What has changed since this was asked last, by the names that others know it by; None: it is told no more."""
        touched, self.touched = self.touched, {}
        found: list[tuple[str, Entry | None]] = []
        for client, name in touched:
            if is_reserved(name):
                is_bound = client in self._keys and identity_name(self._keys[client]) == name
                entry = Entry(name, _NOTHING, None, 0.0, 0) if is_bound else None
            else:
                entry = None if client in self.untold else self.of(client).get(name)
            found.append((told_name(client, name), None if entry is None else as_told(client, entry)))
        return found


def _recount(records: Counter[int], before: Entry | None, after: Entry | None) -> None:
    """A subscription has come, gone or changed: so may have who wants records of its length."""
    was, becomes = None if before is None else before.record, None if after is None else after.record
    if was == becomes:
        return
    if becomes is not None:
        records[becomes] += 1
    if was is not None:
        records[was] -= 1
        if not records[was]:
            del records[was]
