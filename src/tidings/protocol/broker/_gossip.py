"""What brokers announce to each other: link states and subscriptions, flooded and refreshed.

Both follow one pattern: an origin numbers its messages within its epoch; every broker forwards new ones and drops the
rest. On a new connection both ends send all they know: link states whole, subscriptions by their version, so that only
differences have to be requested.

They differ in how they end. A link state that is not repeated within `timeout_ns` is forgotten: it states who is
connected now. Subscriptions are kept while their broker is away, for `forget_ns`; those of a broker outside the planned
overlay (if there is a plan), because it has left or has just come, for `timeout_ns`. Messages carry their age, so that
no broker revives what others have forgotten.

The changes of one step travel in a message of at most `interest_bytes`, or in several if they are longer. A whole table
is sent on request, part by part (`_interest_tables`), and to a new neighbour if it fits into one message. It is sent no
faster than the link takes it (`answer`). A broker that finds missed changes in a table forwards the difference.

Frames may be lost, and a flood over several lossy links often misses a broker. So pings carry a digest of the sender's
knowledge. Neighbours whose digests differ in MAX_DIFFERENT pings in a row exchange everything, as on a new connection.
While nothing changes, digests are equal and cost nothing.

The durable store has a key for every subscription elsewhere, and one for the version of every origin's table, with a
checksum of that table. A table with another checksum was left between two versions, by a disk that wrote part of a
commit. It is used but has no version, so that it is requested again.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tidings.protocol._errors import PeerError
from tidings.protocol._names import qualify
from tidings.protocol._settings import PART_HEAD_BYTES, BrokerSettings
from tidings.protocol.broker._interest_tables import TOGETHER, Announcements, Assembly, Table, portions
from tidings.protocol.broker._interests import OLD, Interests, Learnt, LocalInterests
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import (
    LONGEST_NS,
    MAX_NAME,
    Ask,
    Done,
    Entry,
    Interest,
    InterestPart,
    LinkState,
    Message,
    encode,
    encode_plain,
)

__all__ = ["ANSWER_BYTES", "MAX_ASKED", "MAX_DIFFERENT", "Gossip", "exchange_done"]

ANSWER_BYTES: Final = 131_072
MAX_ASKED: Final = 5
MAX_DIFFERENT: Final = 2


class _Stored(Interest, frozen=True):
    """The version of a table as the durable store keeps it; an older store has no checksum."""

    checksum: int | None = None


_STORED: Final = msgspec.msgpack.Decoder(_Stored)
_STORED_ENTRY: Final = msgspec.msgpack.Decoder(tuple[str, Entry])


def exchange_done(name: str) -> Done:
    """The last message of an exchange: the sender has sent everything it knows."""
    return Done("exchange", name)


class Gossip:
    """What one broker knows of the others, and announces to them."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        send: Callable[[Peer, Message], None],
        send_all: Callable[[Iterable[Peer], Message], None],
        neighbours: Callable[[], Iterable[Peer]],
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        refused: Counter[str],
    ) -> None:
        self.links = LinkStateMap(
            settings.name,
            timeout_ns=settings.timeout_ns,
            max_origins=settings.max_origins,
            graph=None if settings.bypasses else settings.graph,
            members=settings.graph.keys(),
        )
        self.interests = Interests(
            max_origins=settings.max_origins,
            max_entries=settings.max_entries_elsewhere,
        )
        self.local = LocalInterests()
        self.announcements = Announcements(covering=settings.covering)
        self.asked: dict[str, Assembly] = {}
        """By origin: the table that is lacking, and the neighbour that was asked for it."""
        self.unanswered: dict[str, dict[str, Ask]] = {}
        """By neighbour and origin: the questions that are not answered yet."""
        self._checksums: dict[str, int] = {}  # of restored tables, as they were stored
        self._given_up: set[str] = set()  # origins that are not asked for before the next refresh
        self._settings = settings
        self._members = settings.graph.keys()
        self._send = send
        self._send_all = send_all
        self._neighbours = neighbours
        self._store = store
        self._erase = erase
        self._refused = refused
        self._epoch = 0
        self._link_number = self._interest_number = self._version = 0
        self.is_recovering = False
        """Whether this broker has lost its store: others report its own clients' subscriptions, and it announces
        none."""
        self._digest = 0
        self._digest_of = (-1, -1, -1)

    def begin(self, epoch: int, now_ns: int) -> None:
        """Begin a new epoch: messages are numbered within it."""
        self._epoch = epoch
        for origin, checksum in self._checksums.items():
            if self.interests.checksum(origin) != checksum:
                self.interests.withdraw(origin)
        self.announce_links(now_ns)
        self.renew_version()

    def renew_version(self) -> None:
        """Begin a new version of this broker's own table, which others receive as a whole when they ask.

        Its number was never used in this epoch: a broker that knows another version by the same number would take it
        for known.
        """
        self._update()
        self._version += 1

    def announce_links(self, now_ns: int) -> bool:
        """Announce the neighbours that this broker hears; whether the map has changed."""
        self._link_number += 1
        heard = {
            peer.name: (min(peer.meter.mean_s_per_kb, 1e12), min(peer.meter.variance_s2_per_kb2, 1e12))
            for peer in self._neighbours()
        }
        least_ns = {peer.name: min(int(peer.meter.least_ns / 2), LONGEST_NS) for peer in self._neighbours()}
        state = LinkState(self._settings.name, self._epoch, self._link_number, 0, heard, least_ns)
        has_changed = self.links.learn(state, now_ns)
        self._flood(state)
        return has_changed

    def announce_interests(self) -> None:
        """Announce the changes of the subscriptions at this broker."""
        added, removed = self._update()
        for some, gone in portions(added, removed, self._settings.part_bytes):
            self._interest_number += 1
            self._version += 1
            own = (self._settings.name, self._epoch, self._interest_number)
            self._flood(Interest(*own, self._version, self._version - 1, 0, some, gone))

    def require_room(self, client: str, entry: Entry) -> None:
        """PeerError unless a client's subscription can be announced to the other brokers."""
        size_bytes, most_bytes = len(encode_plain(qualify(client, entry))), self._settings.max_entry_bytes
        if size_bytes > most_bytes:
            raise PeerError(
                "too-long",
                f"subscription {entry.name!r} takes {size_bytes} bytes in a frame between brokers, which holds "
                f"{most_bytes}: shorten its filter, or have the limit `frame` of the network raised",
            )
        count, most = len(self.interests) + len(self.local), self._settings.max_entries
        if count >= most and entry.name not in self.local.of(client):
            raise PeerError("too-many", f"the network has {count} subscriptions, {most} is the limit: end some others")

    def _update(self) -> tuple[list[Entry], list[str]]:
        """The changes to be announced: added and removed."""
        changes = self.local.news()
        for place, (name, entry) in enumerate(changes):
            if entry is not None and len(encode_plain(entry)) > self._settings.max_entry_bytes:
                self._refused["too-long"] += 1  # frames were longer when it was accepted
                changes[place] = (name, None)
        return self.announcements.update(changes)

    def refresh(self, now_ns: int) -> None:
        """Announce that this broker is alive and its table has not changed."""
        self._given_up.clear()
        if self._settings.refreshes and not self.is_recovering:
            self._interest_number += 1
            self._flood(self._head(self._settings.name, now_ns))
        self.announce_links(now_ns)

    def exchange(self, peer: Peer, now_ns: int) -> None:
        """Send a new neighbour everything this broker knows."""
        for state in self.links.messages(now_ns):
            self._send(peer, state)
        if not self.is_recovering:
            own = self._part(self._settings.name, "", now_ns)
            self._send(peer, own if isinstance(own, Interest) else self._head(self._settings.name, now_ns))
        for origin in sorted(filter(self.interests.is_known, self.interests)):
            self._send(peer, self._head(origin, now_ns))
        self._send(peer, exchange_done(self._settings.name))

    def digest(self) -> int:
        """One number for all that this broker knows; equal knowledge gives equal numbers."""
        versions = (self.links.version, self.interests.changes, self._version)
        if versions != self._digest_of:
            self._digest_of = versions
            known = sorted({**self.interests.versions(), self._settings.name: (self._epoch, self._version)}.items())
            self._digest = zlib.crc32(encode_plain((self.links.reported(), known)))
        return self._digest

    def compare(self, peer: Peer, digest: int, now_ns: int) -> None:
        """Compare a neighbour's digest; if it stays different, send the neighbour everything."""
        peer.different = 0 if digest == self.digest() else peer.different + 1
        if peer.different >= MAX_DIFFERENT:
            peer.different = 0
            self.exchange(peer, now_ns)

    def on_link_state(self, state: LinkState, source: Peer, now_ns: int) -> bool:
        """Enter the link state of another broker; whether the map has changed."""
        if state.origin == self._settings.name or not self.links.is_news(state):
            return False
        has_changed = self.links.learn(state, now_ns)
        self._flood(state, source)
        return has_changed

    def on_interest(self, interest: Interest, source: Peer, now_ns: int) -> None:
        """Enter a message about the subscriptions at another broker."""
        if self._is_own(interest.origin) or interest.age_ns >= self._patience_ns(interest.origin):
            return
        learnt = self._learn(interest, now_ns)
        if learnt.verdict == "behind":
            self._catch_up(interest, source, now_ns)
        elif learnt.verdict != "old":
            self._flood(interest if interest.base else self._news(interest, learnt), source)

    def _is_own(self, origin: str) -> bool:
        """Whether no other broker can report the subscriptions there."""
        return origin == self._settings.name and not self.is_recovering

    def recovered(self) -> list[Entry]:
        """The subscriptions of this broker's clients as others know them; from now on it announces them itself."""
        own = self._settings.name
        found = list(self.interests.entries(own).values()) if own in self.interests else []
        if own in self.interests:
            self._forget(own)
        self.is_recovering = False
        return found

    def on_part(self, part: InterestPart, source: Peer, now_ns: int) -> None:
        """Enter a part of another broker's table; the last part completes it."""
        self._postpone(source, now_ns)
        origin, lacking = part.origin, self.asked.get(part.origin)
        if lacking is None:
            return
        if not self.interests.is_behind(origin, part.epoch, part.version):
            if part.after == lacking.after:
                del self.asked[origin]
            return
        try:
            step = lacking.take(part)
            if self.under_way > self._settings.max_entries_elsewhere:
                raise PeerError("too-many", f"the subscriptions of {origin!r} exceed the limit")
        except PeerError as error:
            self._give_up(origin, error)
            return
        if step == "taken" and part.is_last:
            entries = tuple(lacking.entries.values())
            whole = Interest(origin, part.epoch, part.number, part.version, 0, part.age_ns, entries)
            learnt = self._learn(whole, now_ns)
            if learnt.verdict == "changed":
                self._flood(self._news(whole, learnt), source)
        elif step == "behind" and lacking.informant is not source:  # otherwise it is a late copy
            if lacking.informant.is_up:
                lacking.source = lacking.informant
                self._ask(origin, lacking, now_ns)
            else:
                del self.asked[origin]  # a neighbour that knows more shows it in its next ping
        elif step == "anew" or (step == "taken" and not lacking.expected) or (step == "gap" and not lacking.has_gap):
            lacking.source, lacking.has_gap = source, step == "gap"
            self._ask(origin, lacking, now_ns)

    def _postpone(self, source: Peer, now_ns: int) -> None:
        """A neighbour is answering: its other answers follow over the same connection."""
        for lacking in self.asked.values():
            if lacking.source is source:
                lacking.tries, lacking.due_ns = 1, now_ns + self._settings.retry_most_ns // 2

    def _learn(self, interest: Interest, now_ns: int) -> Learnt:
        """Enter a message of an origin, and store what has changed."""
        try:
            learnt = self.interests.learn(interest, now_ns)
        except PeerError as error:
            self._give_up(interest.origin, error)
            return OLD
        if learnt.verdict == "changed":
            lacking = self.asked.get(interest.origin)
            if lacking is not None and not self.interests.is_behind(interest.origin, lacking.epoch, lacking.version):
                del self.asked[interest.origin]
            self._keep(interest.origin, learnt, now_ns)
        return learnt

    def _news(self, interest: Interest, learnt: Learnt) -> Interest:
        """What to pass on after a whole table: the difference, the table, or its version if both are too long."""
        head = (interest.origin, interest.epoch, interest.number, interest.version)
        change = (
            Interest(*head, learnt.base, interest.age_ns, learnt.added, learnt.removed) if learnt.base else interest
        )
        is_short = len(encode(change)) <= self._settings.part_bytes + PART_HEAD_BYTES
        return (
            change if learnt.verdict == "changed" and is_short else Interest(*head, interest.version, interest.age_ns)
        )

    def _catch_up(self, interest: Interest, source: Peer, now_ns: int) -> None:
        """Ask the sender of an unknown version for the whole table; if that is under way, apply the change to it."""
        lacking = self.asked.get(interest.origin)
        if lacking is None:
            if interest.origin not in self._given_up:
                lacking = self.asked[interest.origin] = Assembly(source)
                self._ask(interest.origin, lacking, now_ns)
            return
        try:
            lacking.follow(interest, source)
        except PeerError as error:
            self._give_up(interest.origin, error)
            return
        if not lacking.source.is_up:
            lacking.source = source
            self._ask(interest.origin, lacking, now_ns)

    def _give_up(self, origin: str, error: PeerError) -> None:
        """A table cannot be entered. Too many subscriptions are no fault of the neighbour that reports them."""
        self.asked.pop(origin, None)
        self._given_up.add(origin)
        if error.code != "too-many":
            raise error
        self._refused[error.code] += 1

    def _ask(self, origin: str, lacking: Assembly, now_ns: int, *, tries: int = 1) -> None:
        lacking.tries, lacking.due_ns = tries, now_ns + self._settings.retry_most_ns // 2
        lacking.expected = TOGETHER
        self._send(lacking.source, Ask(origin, lacking.after, TOGETHER))

    def ask_again(self, now_ns: int) -> None:
        """Repeat questions that were not answered; after MAX_ASKED times, wait for the next refresh."""
        for origin, lacking in list(self.asked.items()):
            if not lacking.source.is_up or (lacking.tries >= MAX_ASKED and lacking.due_ns <= now_ns):
                del self.asked[origin]
            elif lacking.due_ns <= now_ns:
                self._ask(origin, lacking, now_ns, tries=lacking.tries + 1)

    @property
    def longest_record(self) -> int:
        """The longest publication record that any subscription in the network asks for."""
        return max((*self.interests.records, *self.local.records), default=0)

    @property
    def under_way(self) -> int:
        """How many subscriptions have arrived in incomplete tables."""
        return sum(len(lacking.entries) for lacking in self.asked.values())

    @property
    def next_ask_ns(self) -> int | None:
        """When the next question has to be repeated."""
        return None if not self.asked else min((lacking.due_ns for lacking in self.asked.values()), default=None)

    def on_ask(self, ask: Ask, source: Peer, now_ns: int) -> None:
        """A neighbour lacks a table. Parts that it requests again are under way already, or next in turn."""
        asks = self.unanswered.setdefault(source.name, {})
        if ask.origin not in asks or asks[ask.origin].after < ask.after:
            asks[ask.origin] = ask
        self.answer(source, now_ns)

    def answer(self, peer: Peer, now_ns: int) -> None:
        """Answer a neighbour's questions as far as the link takes it.

        At most ANSWER_BYTES are sent in one step, and nothing while the link is congested: repeated questions would
        make answers accumulate there.
        """
        asks, sent_bytes = self.unanswered.get(peer.name, {}), 0
        while asks and peer.is_up and not peer.outbox.is_congested and sent_bytes < ANSWER_BYTES:
            origin = next(iter(asks))
            ask = asks.pop(origin)
            if self._is_unknown(origin):
                continue
            part = self._part(origin, ask.after, now_ns)
            self._send(peer, part)
            sent_bytes += len(encode(part))
            if isinstance(part, InterestPart) and not part.is_last and ask.parts > 1:
                asks[origin] = Ask(origin, part.entries[-1].name, ask.parts - 1)  # after those for others
        if not asks or not peer.is_up:
            self.unanswered.pop(peer.name, None)

    def _is_unknown(self, origin: str) -> bool:
        """Whether this broker cannot report the subscriptions there."""
        return self.is_recovering if origin == self._settings.name else not self.interests.is_known(origin)

    def restore(self, kind: str, value: bytes, now_ns: int) -> None:
        """Restore what the durable store has of other brokers: versions first, then subscriptions."""
        if kind == "interest":
            stored = _STORED.decode(value)
            self.interests.restore(stored, now_ns)
            if stored.checksum is not None:
                self._checksums[stored.origin] = stored.checksum
            if stored.added:  # an older store has whole tables
                self._keep(stored.origin, Learnt("changed", stored.added), now_ns)
        else:
            origin, entry = _STORED_ENTRY.decode(value)
            if not self.interests.restore_entry(origin, entry):
                self._erase(_entry_key(origin, entry.name))

    @staticmethod
    def origin_of(key: str) -> str | None:
        """The broker that a record of the durable store is about, if it is about subscriptions elsewhere."""
        kind, _, rest = key.partition("/")
        if kind == "wanted":
            length, _, rest = rest.partition("/")
            rest = rest[: int(length)] if length.isdecimal() else ""
        return rest if kind in ("interest", "wanted") and 0 < len(rest) <= MAX_NAME else None

    @staticmethod
    def withdrawn(origin: str, stored: bytes | None) -> bytes:
        """The stored version of an incomplete table: none, so that it is requested again."""
        if stored is None:
            return encode(Interest(origin, 0, 0, 0, 0, 0))
        return encode(msgspec.structs.replace(_STORED.decode(stored), version=0, base=0))

    def forget_old(self, now_ns: int) -> bool:
        """Forget brokers that were silent for too long; whether the map has changed."""
        interests = self.interests
        for origin in [o for o in interests if interests.silence_ns(o, now_ns) >= self._patience_ns(o)]:
            self._forget(origin)
        return self.links.forget_old(now_ns)

    def _forget(self, origin: str) -> None:
        self.asked.pop(origin, None)
        self._erase(f"interest/{origin}")
        for name in self.interests.forget(origin):
            self._erase(_entry_key(origin, name))

    def replan(self, graph: Mapping[str, frozenset[str]]) -> None:
        """Use another planned overlay."""
        self._members = graph.keys()
        self.links.replan(graph)

    def _patience_ns(self, origin: str) -> int:
        """How long the subscriptions of a broker are kept after its last message."""
        if not self._settings.refreshes:
            return LONGEST_NS + 1
        is_member = origin in self._members or not self._members
        return self._settings.forget_ns if is_member else self._settings.timeout_ns

    def _keep(self, origin: str, learnt: Learnt, now_ns: int) -> None:
        for entry in learnt.added:
            self._store(_entry_key(origin, entry.name), encode_plain((origin, entry)))
        for name in learnt.removed:
            self._erase(_entry_key(origin, name))
        head = self._head(origin, now_ns)
        version = (origin, head.epoch, head.number, head.version, head.base, head.age_ns)
        self._store(f"interest/{origin}", encode(_Stored(*version, checksum=self.interests.checksum(origin))))

    def _head(self, origin: str, now_ns: int) -> Interest:
        """The version of what is known of a broker, this one or another: the refresh."""
        if origin == self._settings.name:
            return Interest(origin, self._epoch, self._interest_number, self._version, self._version, 0)
        return self.interests.head(origin, now_ns)

    def _part(self, origin: str, after: str, now_ns: int) -> Interest | InterestPart:
        """The table of a broker, whole if it fits into one message, or else the part after a name."""
        is_own = origin == self._settings.name
        table: Table = self.announcements.table if is_own else self.interests.table(origin)
        head = self._head(origin, now_ns)
        entries, is_last = table.part(after, self._settings.part_bytes)
        version = (origin, head.epoch, head.number, head.version)
        if is_last and not after:
            return Interest(*version, 0, head.age_ns, entries)
        return InterestPart(*version, head.age_ns, after, entries, is_last)

    def _flood(self, message: Message, source: Peer | None = None) -> None:
        self._send_all([peer for peer in self._neighbours() if peer is not source], message)


def _entry_key(origin: str, name: str) -> str:
    """One key for each subscription elsewhere. Names may contain anything, so the length shows where the first one
    ends."""
    return f"wanted/{len(origin)}/{origin}/{name}"
