"""What brokers tell each other about themselves: link state and interests, flooded and refreshed.

Both follow one pattern: an origin numbers what it says within its epoch, everybody passes on what is news and drops
what is not. On a new connection both ends tell all they know: link states whole, interests by their version, so that
only what differs has to be asked for.

They differ in how they end. A link state that is not repeated within `timeout_ns` is forgotten: it says who answers
now. Interests are kept while their broker is away, for `forget_ns`; those of a broker that is not in the planned
overlay (if there is a plan), because it has left or has just come, for `timeout_ns`. Ages travel along, so that nobody
brings back what others have forgotten.

What has changed in the subscriptions in one step travels alone, in a message of at most `interest_bytes`, or in several
if it is longer. A whole table is sent to who asks for it, part by part (`_interest_tables`), and to a new neighbour if
it fits into one message. It leaves no faster than the link takes it (`answer`). Who has learnt from a table what it had
missed passes on the difference.

Frames may be lost, and a flood over several lossy links often misses somebody. So pings carry a digest of what their
sender knows; neighbours whose digests differ in MAX_DIFFERENT pings in a row tell each other everything, as on a new
connection. While nothing changes, digests agree and cost nothing.

The durable store has a key for every subscription elsewhere, and one for the version of every origin's table, with a
checksum of that table. A table that does not have this checksum was left between two versions, by a disk that wrote a
part of a commit: it is used, and has no version, so that it is asked for.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tidings.protocol._errors import PeerError
from tidings.protocol._settings import PART_HEAD_BYTES, BrokerSettings
from tidings.protocol.broker._interest_tables import TOGETHER, Assembly, Table, Told, portions
from tidings.protocol.broker._interests import OLD, Interests, Learnt, LocalInterests
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.broker._told_names import as_told
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
    """The last message of an exchange: the receiver has been told of everything."""
    return Done("exchange", name)


class Gossip:
    """The part of a broker that knows the others."""

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
        self.told = Told(covering=settings.covering)
        self.asked: dict[str, Assembly] = {}
        """By origin: the table that is lacking, and who was asked for it."""
        self.unanswered: dict[str, dict[str, Ask]] = {}
        """By neighbour and origin: the tables that it lacks, and was not told yet."""
        self._checksums: dict[str, int] = {}  # of the tables that were restored, as they should be
        self._given_up: set[str] = set()  # origins that nobody is asked for before the next refresh
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
        """Whether this broker has lost its store: others tell it what its own clients want, and it tells nobody."""
        self._digest = 0
        self._digest_of = (-1, -1, -1)

    def begin(self, epoch: int, now_ns: int) -> None:
        """A new life: what is said from now on counts within this epoch."""
        self._epoch = epoch
        for origin, checksum in self._checksums.items():
            if self.interests.checksum(origin) != checksum:
                self.interests.withdraw(origin)
        self.tell_links(now_ns)
        self.tell_anew()

    def tell_anew(self) -> None:
        """What clients here want now is a version of its own, that others are told as a whole when they ask.

        Its number was never used in this life: who has heard of another version under it would take it for known.
        """
        self._update()
        self._version += 1

    def tell_links(self, now_ns: int) -> bool:
        """Tell everybody whom this broker hears; whether the map has changed."""
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

    def tell_interests(self) -> None:
        """Tell everybody what has changed in what this broker's clients want."""
        added, removed = self._update()
        for some, gone in portions(added, removed, self._settings.part_bytes):
            self._interest_number += 1
            self._version += 1
            own = (self._settings.name, self._epoch, self._interest_number)
            self._flood(Interest(*own, self._version, self._version - 1, 0, some, gone))

    def require_room(self, client: str, entry: Entry) -> None:
        """PeerError unless the others can be told of a client's subscription."""
        size_bytes, most_bytes = len(encode_plain(as_told(client, entry))), self._settings.max_entry_bytes
        if size_bytes > most_bytes:
            raise PeerError(
                "too-long",
                f"subscription {entry.name!r} takes {size_bytes} bytes in a frame between brokers, which holds "
                f"{most_bytes}: shorten its filter, or have the limit `frame` of the network raised",
            )
        count, most = len(self.interests) + len(self.local), self._settings.max_entries
        if count >= most and entry.name not in self.local.of(client):
            raise PeerError(
                "too-many", f"the network has {count} subscriptions, {most} are the most there may be: end some others"
            )

    def _update(self) -> tuple[list[Entry], list[str]]:
        """What the others have to be told: added and removed."""
        changes = self.local.news()
        for place, (name, entry) in enumerate(changes):
            if entry is not None and len(encode_plain(entry)) > self._settings.max_entry_bytes:
                self._refused["too-long"] += 1  # frames were longer when it was accepted
                changes[place] = (name, None)
        return self.told.update(changes)

    def refresh(self, now_ns: int) -> None:
        """Say that this broker is alive and what it said still holds."""
        self._given_up.clear()
        if self._settings.refreshes and not self.is_recovering:
            self._interest_number += 1
            self._flood(self._head(self._settings.name, now_ns))
        self.tell_links(now_ns)

    def exchange(self, peer: Peer, now_ns: int) -> None:
        """Tell a neighbour who has just come all that there is to know."""
        for state in self.links.told(now_ns):
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
            self._digest = zlib.crc32(encode_plain((self.links.said(), known)))
        return self._digest

    def compare(self, peer: Peer, digest: int, now_ns: int) -> None:
        """A neighbour's digest: if it stays different, tell the neighbour everything."""
        peer.different = 0 if digest == self.digest() else peer.different + 1
        if peer.different >= MAX_DIFFERENT:
            peer.different = 0
            self.exchange(peer, now_ns)

    def on_link_state(self, state: LinkState, source: Peer, now_ns: int) -> bool:
        """Another broker says whom it hears; whether the map has changed."""
        if state.origin == self._settings.name or not self.links.is_news(state):
            return False
        has_changed = self.links.learn(state, now_ns)
        self._flood(state, source)
        return has_changed

    def on_interest(self, said: Interest, source: Peer, now_ns: int) -> None:
        """Another broker says what its clients want."""
        if self._is_own(said.origin) or said.age_ns >= self._patience_ns(said.origin):
            return
        learnt = self._learn(said, now_ns)
        if learnt.verdict == "behind":
            self._catch_up(said, source, now_ns)
        elif learnt.verdict != "old":
            self._flood(said if said.base else self._news(said, learnt), source)

    def _is_own(self, origin: str) -> bool:
        """Whether nobody else can tell this broker what is wanted there."""
        return origin == self._settings.name and not self.is_recovering

    def recovered(self) -> list[Entry]:
        """What this broker's clients want, as others know it; from now on it tells them itself."""
        own = self._settings.name
        found = list(self.interests.entries(own).values()) if own in self.interests else []
        if own in self.interests:
            self._forget(own)
        self.is_recovering = False
        return found

    def on_part(self, said: InterestPart, source: Peer, now_ns: int) -> None:
        """A part of what another broker's clients want; the last one completes it."""
        self._put_off(source, now_ns)
        origin, lacking = said.origin, self.asked.get(said.origin)
        if lacking is None:
            return
        if not self.interests.is_behind(origin, said.epoch, said.version):
            if said.after == lacking.after:
                del self.asked[origin]
            return
        try:
            step = lacking.take(said)
            if self.under_way > self._settings.max_entries_elsewhere:
                raise PeerError("too-many", f"the subscriptions of {origin!r} are more than there may be")
        except PeerError as error:
            self._give_up(origin, error)
            return
        if step == "taken" and said.is_last:
            entries = tuple(lacking.entries.values())
            whole = Interest(origin, said.epoch, said.number, said.version, 0, said.age_ns, entries)
            learnt = self._learn(whole, now_ns)
            if learnt.verdict == "changed":
                self._flood(self._news(whole, learnt), source)
        elif step == "behind" and lacking.teller is not source:  # else it is a copy that comes late
            if lacking.teller.is_up:
                lacking.source = lacking.teller
                self._ask(origin, lacking, now_ns)
            else:
                del self.asked[origin]  # whoever knows more tells so with its next ping
        elif step == "anew" or (step == "taken" and not lacking.expected) or (step == "gap" and not lacking.has_gap):
            lacking.source, lacking.has_gap = source, step == "gap"
            self._ask(origin, lacking, now_ns)

    def _put_off(self, source: Peer, now_ns: int) -> None:
        """A neighbour is answering: what else it was asked for comes after that, over the same connection."""
        for lacking in self.asked.values():
            if lacking.source is source:
                lacking.tries, lacking.due_ns = 1, now_ns + self._settings.retry_most_ns // 2

    def _learn(self, said: Interest, now_ns: int) -> Learnt:
        """Enter what an origin says, and keep what has changed."""
        try:
            learnt = self.interests.learn(said, now_ns)
        except PeerError as error:
            self._give_up(said.origin, error)
            return OLD
        if learnt.verdict == "changed":
            lacking = self.asked.get(said.origin)
            if lacking is not None and not self.interests.is_behind(said.origin, lacking.epoch, lacking.version):
                del self.asked[said.origin]
            self._keep(said.origin, learnt, now_ns)
        return learnt

    def _news(self, said: Interest, learnt: Learnt) -> Interest:
        """What to pass on after a whole table: the difference, the table, or its version if both are too long."""
        head = (said.origin, said.epoch, said.number, said.version)
        change = Interest(*head, learnt.base, said.age_ns, learnt.added, learnt.removed) if learnt.base else said
        is_short = len(encode(change)) <= self._settings.part_bytes + PART_HEAD_BYTES
        return change if learnt.verdict == "changed" and is_short else Interest(*head, said.version, said.age_ns)

    def _catch_up(self, said: Interest, source: Peer, now_ns: int) -> None:
        """Ask who told of a version that cannot be understood for everything; if that is under way, follow it."""
        lacking = self.asked.get(said.origin)
        if lacking is None:
            if said.origin not in self._given_up:
                lacking = self.asked[said.origin] = Assembly(source)
                self._ask(said.origin, lacking, now_ns)
            return
        try:
            lacking.follow(said, source)
        except PeerError as error:
            self._give_up(said.origin, error)
            return
        if not lacking.source.is_up:
            lacking.source = source
            self._ask(said.origin, lacking, now_ns)

    def _give_up(self, origin: str, error: PeerError) -> None:
        """A table cannot be taken. That there are too many is no fault of the neighbour that says so."""
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
        """Ask once more for what did not come; after MAX_ASKED times the next refresh has to tell."""
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
        """How many subscriptions have come in tables that are not complete."""
        return sum(len(lacking.entries) for lacking in self.asked.values())

    @property
    def next_ask_ns(self) -> int | None:
        """When something has to be asked for again."""
        return min((lacking.due_ns for lacking in self.asked.values()), default=None)

    def on_ask(self, ask: Ask, source: Peer, now_ns: int) -> None:
        """A neighbour lacks what a broker's clients want. What it asks for again is on its way, or next in turn."""
        asks = self.unanswered.setdefault(source.name, {})
        if ask.origin not in asks or asks[ask.origin].after < ask.after:
            asks[ask.origin] = ask
        self.answer(source, now_ns)

    def answer(self, peer: Peer, now_ns: int) -> None:
        """Answer what a neighbour has asked for, as far as the link takes it: at most ANSWER_BYTES in one step, and
        nothing while it is congested. What is asked for again because it takes long would pile up there."""
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
        """Whether nobody can be told what is wanted there."""
        return self.is_recovering if origin == self._settings.name else not self.interests.is_known(origin)

    def restore(self, kind: str, value: bytes, now_ns: int) -> None:
        """What the durable store kept of others: versions first, then what they stand for."""
        if kind == "interest":
            said = _STORED.decode(value)
            self.interests.restore(said, now_ns)
            if said.checksum is not None:
                self._checksums[said.origin] = said.checksum
            if said.added:  # an older store has whole tables
                self._keep(said.origin, Learnt("changed", said.added), now_ns)
        else:
            origin, entry = _STORED_ENTRY.decode(value)
            if not self.interests.restore_entry(origin, entry):
                self._erase(_entry_key(origin, entry.name))

    @staticmethod
    def origin_of(key: str) -> str | None:
        """The broker that a record of the durable store is about, if it is about what others want."""
        kind, _, rest = key.partition("/")
        if kind == "wanted":
            length, _, rest = rest.partition("/")
            rest = rest[: int(length)] if length.isdecimal() else ""
        return rest if kind in ("interest", "wanted") and 0 < len(rest) <= MAX_NAME else None

    @staticmethod
    def withdrawn(origin: str, stored: bytes | None) -> bytes:
        """The version of a table of which something is missing: none, so that it is asked for again."""
        if stored is None:
            return encode(Interest(origin, 0, 0, 0, 0, 0))
        return encode(msgspec.structs.replace(_STORED.decode(stored), version=0, base=0))

    def forget_old(self, now_ns: int) -> bool:
        """Forget who was not heard of for too long; whether the map has changed."""
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
        """The overlay is planned anew."""
        self._members = graph.keys()
        self.links.replan(graph)

    def _patience_ns(self, origin: str) -> int:
        """How long what a broker wants is kept after its last word."""
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
        """What a broker wants, whole if it fits into one message, or else what follows a name."""
        is_own = origin == self._settings.name
        table: Table = self.told.table if is_own else self.interests.table(origin)
        head = self._head(origin, now_ns)
        entries, is_last = table.part(after, self._settings.part_bytes)
        version = (origin, head.epoch, head.number, head.version)
        if is_last and not after:
            return Interest(*version, 0, head.age_ns, entries)
        return InterestPart(*version, head.age_ns, after, entries, is_last)

    def _flood(self, message: Message, source: Peer | None = None) -> None:
        self._send_all([peer for peer in self._neighbours() if peer is not source], message)


def _entry_key(origin: str, name: str) -> str:
    """One key for each subscription elsewhere: names may hold anything, so the length tells where the first ends."""
    return f"wanted/{len(origin)}/{origin}/{name}"
