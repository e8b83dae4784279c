"""Who wants what, at which broker: soft state that every broker keeps of every other (paper D, section 2.4.1).

- A home broker numbers the changes of its clients' subscriptions (`version`, within its epoch) and tells all brokers of
  each; brokers who missed one see the gap and ask the neighbour who told them for everything.
- The periodic refresh carries the version only, so its cost does not grow with the subscriptions. An origin that is not
  heard of within `timeout_ns` (its age included) is forgotten, with all that it wanted.
- Filters are read when they come in; an `Interest` with one that cannot be read is refused whole.
- With covering, a subscription that another of the same home contains (filter, deadline and price) is not told.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from tidings.model.filters import Filter
from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed
from tidings.protocol.broker._masks import MOST, MaskIndex
from tidings.protocol.wire import Entry, Interest

if TYPE_CHECKING:
    from tidings.matching import MatchingIndex

__all__ = ["Interests", "LocalInterests", "Token", "Verdict", "uncovered"]

Verdict = Literal["old", "refreshed", "changed", "behind"]

_ANSWERS: Final = 4_096
"""Of so many combinations of filters it is remembered whose they are."""
_Key = tuple[str, str]
Token = int | tuple[int, ...]
"""Which filters an event satisfies: equal tokens of one matcher, between two changes, stand for equal answers."""


class _Matcher:
    """Filters by key. Equal filters are asked once; up to MOST clauses by masks, more of them in an index."""

    def __init__(self) -> None:
        self.changes = 0
        self._masks: MaskIndex | None = MaskIndex()
        self._index: MatchingIndex | None = None
        self._texts: dict[_Key, str] = {}
        self._alike: dict[str, dict[_Key, None]] = {}  # by the text of the filter: who has it
        self._tokens: dict[str, int] = {}  # by the text: its bits, or its number in the index
        self._added: dict[int, Filter] = {}
        self._next = 0
        self._answers: dict[Token, list[_Key]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, key: _Key, text: str) -> None:
        """Enter a filter, or another one in its place."""
        self.drop(key)
        self._change()
        self._texts[key] = text
        alike = self._alike.setdefault(text, {})
        alike[key] = None
        if len(alike) == 1:
            self._enter(text)

    def drop(self, key: _Key) -> None:
        """Forget a filter, if it was there."""
        text = self._texts.pop(key, None)
        if text is None:
            return
        self._change()
        alike = self._alike[text]
        del alike[key]
        if not alike:
            del self._alike[text]
            token = self._tokens.pop(text)
            if self._masks is not None:
                self._masks.remove(token)
            elif self._added.pop(token, None) is None and self._index is not None:
                self._index.remove(token)

    def token(self, attributes: Mapping[str, Any]) -> Token:
        """Which filters accept the event."""
        if self._masks is not None:
            return self._masks.match(attributes)
        if self._index is None:
            from tidings.matching import MatchingIndex  # few brokers need it, and it takes long to load

            self._index = MatchingIndex()
        if self._added:
            self._index.add_many(self._added.items())
            self._added.clear()
        return tuple(sorted(cast(list[int], self._index.match(attributes))))

    def tokens(self) -> Callable[[Mapping[str, Any]], Token]:
        """`token`, without asking again what cannot change while nothing does."""
        if not self._texts:
            return _nothing
        return self.token if self._masks is None else self._masks.match

    def keys(self, token: Token) -> list[_Key]:
        """The keys of these filters, in order."""
        known = self._answers.get(token)
        if known is None:
            if isinstance(token, int):
                texts = [text for text, bits in self._tokens.items() if bits & token]
            else:
                wanted = frozenset(token)
                texts = [text for text, number in self._tokens.items() if number in wanted]
            known = sorted(key for text in texts for key in self._alike[text])
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            self._answers[token] = known
        return known

    def _change(self) -> None:
        self.changes += 1
        self._answers.clear()

    def _enter(self, text: str) -> None:
        if self._masks is not None:
            self._tokens[text] = self._masks.add(parsed(text))
            if len(self._masks) > MOST:
                self._masks = None
                for each in self._tokens:
                    self._number(each)
        else:
            self._number(text)

    def _number(self, text: str) -> None:
        """Enter a filter into the index, under a whole number."""
        self._tokens[text] = self._next
        self._added[self._next] = parsed(text)
        self._next += 1


def _nothing(attributes: Mapping[str, Any]) -> Token:  # noqa: ARG001
    return 0


class _Origin:
    """The subscriptions at one other broker."""

    __slots__ = ("entries", "epoch", "expires_ns", "number", "version")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.number = self.version = -1
        self.entries: dict[str, Entry] = {}
        self.expires_ns = 0


class Interests:
    """What the other brokers want."""

    def __init__(self, *, timeout_ns: int | None, max_origins: int, max_entries: int) -> None:
        self._timeout_ns = timeout_ns
        self._max_origins = max_origins
        self._max_entries = max_entries
        self._origins: dict[str, _Origin] = {}
        self._matcher = _Matcher()
        self._count = 0
        self.changes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def __contains__(self, origin: str) -> bool:
        return origin in self._origins

    def entries(self, origin: str) -> Mapping[str, Entry]:
        """What one broker wants, by name."""
        return self._origins[origin].entries

    def versions(self) -> dict[str, tuple[int, int]]:
        """The epoch and the version of what is known of every broker."""
        return {origin: (known.epoch, known.version) for origin, known in self._origins.items()}

    def learn(self, said: Interest, now_ns: int) -> Verdict:
        """Enter what a broker says; whether it was news, and whether it can be understood without what came before."""
        known = self._origins.get(said.origin)
        before = (-1, -1, -1) if known is None else (known.epoch, known.number, known.version)
        is_heard_first = (said.epoch, said.number) > before[:2]
        is_behind = (said.epoch, said.version) > (before[0], before[2])
        if not is_heard_first and not is_behind:
            return "old"
        if is_behind:
            if said.base != 0 and (said.epoch, said.base) != (before[0], before[2]):
                return "behind"
            known = self._apply(said, known)
        assert known is not None
        known.number = max(known.number, said.number)
        if self._timeout_ns is not None:
            known.expires_ns = now_ns + max(self._timeout_ns - said.age_ns, 0)
        return "changed" if is_behind else "refreshed"

    def restore(self, said: Interest, now_ns: int) -> None:
        """Enter what the durable store kept; it has to be refreshed like anything else."""
        known = self._apply(said, None)
        known.number = said.number
        known.expires_ns = now_ns + (self._timeout_ns or 0)

    def forget_old(self, now_ns: int) -> list[str]:
        """Drop the origins that were not refreshed in time, and say which."""
        if self._timeout_ns is None:
            return []
        old = [origin for origin, known in self._origins.items() if known.expires_ns <= now_ns]
        for origin in old:
            self._replace(self._origins.pop(origin), origin, {})
        return old

    @property
    def next_expiry_ns(self) -> int | None:
        """When something may have to be forgotten."""
        if self._timeout_ns is None:
            return None
        return min((known.expires_ns for known in self._origins.values()), default=None)

    def message(self, origin: str, now_ns: int, *, whole: bool) -> Interest:
        """What is known of one broker, as another should be told: everything, or the version only."""
        known = self._origins[origin]
        age_ns = 0 if self._timeout_ns is None else self._timeout_ns - (known.expires_ns - now_ns)
        age_ns = max(age_ns, 0)
        if whole:
            entries = tuple(known.entries.values())
            return Interest(origin, known.epoch, known.number, known.version, 0, age_ns, entries)
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
            found.setdefault(origin, []).append(self._origins[origin].entries[name])
        return found

    def _apply(self, said: Interest, known: _Origin | None) -> _Origin:
        entries = {} if known is None or said.base == 0 else dict(known.entries)
        for name in said.removed:
            entries.pop(name, None)
        for entry in said.added:
            parsed(entry.filter)
            entries[entry.name] = entry
        held = 0 if known is None else len(known.entries)
        if known is None and len(self._origins) >= self._max_origins:
            raise PeerError("too-many", f"broker {said.origin!r} is one more than {self._max_origins}, the most here")
        if self._count - held + len(entries) > self._max_entries:
            raise PeerError("too-many", f"the subscriptions of {said.origin!r} make more than {self._max_entries} here")
        if known is None:
            known = self._origins[said.origin] = _Origin(said.epoch)
        self._replace(known, said.origin, entries)
        if said.epoch != known.epoch:
            known.epoch, known.number = said.epoch, -1
        known.version = said.version
        return known

    def _replace(self, known: _Origin, origin: str, entries: dict[str, Entry]) -> None:
        for name in known.entries.keys() - entries.keys():
            self._matcher.drop((origin, name))
        for name, entry in entries.items():
            before = known.entries.get(name)
            if before is None or before.filter != entry.filter:
                self._matcher.put((origin, name), entry.filter)
        self.changes += 1
        self._count += len(entries) - len(known.entries)
        known.entries = entries


class LocalInterests:
    """What this broker's own clients want, and what the others are told of it."""

    def __init__(self) -> None:
        self.untold: dict[str, int] = {}  # clients of whom the others are told no more, and since when
        self._entries: dict[tuple[str, str], Entry] = {}
        self._matcher = _Matcher()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._entries)

    @property
    def changes(self) -> int:
        """How often subscriptions have come, gone or changed."""
        return self._matcher.changes

    def of(self, client: str) -> dict[str, Entry]:
        """One client's subscriptions."""
        return {name: entry for (owner, name), entry in self._entries.items() if owner == client}

    def put(self, client: str, entry: Entry) -> bool:
        """Enter a subscription; whether anything has changed."""
        key = (client, entry.name)
        if self._entries.get(key) == entry:
            return False
        parsed(entry.filter)
        self._matcher.put(key, entry.filter)
        self._entries[key] = entry
        return True

    def drop(self, client: str, name: str) -> bool:
        """Forget a subscription; whether it was there."""
        self._matcher.drop((client, name))
        return self._entries.pop((client, name), None) is not None

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
            found.setdefault(client, []).append(self._entries[client, name])
        return found

    def told(self, *, covering: bool) -> dict[str, Entry]:
        """What the other brokers should know; names are made unique by the client's."""
        entries = {
            f"{client}/{name}": Entry(f"{client}/{name}", *_terms(entry))
            for (client, name), entry in sorted(self._entries.items())
            if client not in self.untold
        }
        return uncovered(entries) if covering else entries


def _terms(entry: Entry) -> tuple[str, int | None, float, int]:
    return entry.filter, entry.max_delay_ns, entry.price, entry.late_ns


def uncovered(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The subscriptions that no other one contains; of two that contain each other, the first stays."""
    kept: dict[str, Entry] = {}
    for name, entry in entries.items():
        if any(_contains(other, entry) for other in kept.values()):
            continue
        kept = {other: told for other, told in kept.items() if not _contains(entry, told)}
        kept[name] = entry
    return kept


def _contains(wide: Entry, narrow: Entry) -> bool:
    if wide.max_delay_ns is not None and (narrow.max_delay_ns is None or narrow.max_delay_ns > wide.max_delay_ns):
        return False
    if wide.price < narrow.price or wide.late_ns < narrow.late_ns:
        return False
    return parsed(wide.filter).covers(parsed(narrow.filter)) is True


def differences(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """What was added or changed, and what was removed."""
    added = tuple(entry for name, entry in after.items() if before.get(name) != entry)
    return added, tuple(_gone(before, after))


def _gone(before: Iterable[str], after: Mapping[str, Entry]) -> Iterator[str]:
    return (name for name in before if name not in after)
