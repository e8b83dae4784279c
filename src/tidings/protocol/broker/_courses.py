"""The receivers of events, found once for all events that match the same filters and live equally long.

Most events of a busy broker differ in their content and not in their receivers. So everything that follows from the
matching filters alone is kept as a `Course` and found by that match: the home brokers and clients that want the event,
the worth of on-time deliveries to them, the next hops, and the encoded targets. All courses are computed again when a
subscription, a route or a client comes or goes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from tidings.errors import EventError
from tidings.protocol._errors import PeerError
from tidings.protocol._names import broker_of, is_address, qualified_name, split_address
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._matcher import Token
from tidings.protocol.links._outbox import Outbox, named
from tidings.protocol.links._peers import Peer, Peers
from tidings.protocol.wire import IN_ORDER, LONGEST_NS, MAX_TERMS, Entry, Term, decode_attributes, encode_plain

__all__ = ["NO_COURSE", "Course", "Courses", "Exit", "latest_ns", "merged", "read_course", "terms_of"]

_MOST: Final = 4_096
_MOST_RECEIVERS: Final = 500_000
"""The most home brokers and subscriptions named by all courses together: a publisher to very many receivers could have
a course for each lifetime."""
_TARGETS: Final = msgspec.msgpack.Decoder(dict[str, tuple[Term, ...]])
_LOCAL: Final = msgspec.msgpack.Decoder(dict[str, dict[str, tuple[Term, ...]]])
Exit = tuple[Peer, Outbox, bytes]
"""The next hop with its outbox, and the encoded targets of the event there."""


def latest_ns(terms: tuple[Term, ...]) -> int:
    """The age at which nobody wants the event any more."""
    return max(terms)[0] if terms else 0


def terms_of(entries: Sequence[Entry], lifetime_ns: int) -> tuple[Term, ...]:
    """The worth of on-time deliveries to these subscriptions, by the age that the event may have.

    A subscription that takes late events adds a term that pays nothing: it keeps the event alive. If one of them wants
    order, IN_ORDER comes first. Terms beyond MAX_TERMS are merged into the next tighter one, so nothing is promised
    that a deadline would not allow.
    """
    if len(entries) == 1 and not entries[0].late_ns and entries[0].record is None:
        (entry,) = entries
        allowed_ns = lifetime_ns if entry.max_delay_ns is None else min(lifetime_ns, entry.max_delay_ns)
        return ((allowed_ns, entry.price),)
    worth: dict[int, float] = dict((IN_ORDER,)) if any(entry.record is not None for entry in entries) else {}
    for entry in entries:
        allowed_ns = lifetime_ns if entry.max_delay_ns is None else min(lifetime_ns, entry.max_delay_ns)
        worth[allowed_ns] = worth.get(allowed_ns, 0.0) + entry.price
        if entry.late_ns:
            worth.setdefault(allowed_ns + entry.late_ns, 0.0)
    return merged(worth)


def merged(worth: Mapping[int, float]) -> tuple[Term, ...]:
    """The terms for the worth by age, at most MAX_TERMS of them."""
    terms = sorted(worth.items())
    while len(terms) > MAX_TERMS:
        (tight_ns, tight), (_, loose) = terms[-3], terms[-2]
        terms[-3:-1] = [(tight_ns, tight + loose)]
    return tuple(terms)


class Course(NamedTuple):
    """The receivers of an event, and what follows from them.

    - `targets`: by home broker (this one included, and clients that have moved), the worth there; `local`: by client,
      the worth here; `moved`: the same for clients that have moved.
    - `soonest_ns`, `latest_ns`: the age at which the first and the last receiver no longer want it.
    - `exits`: where it can be sent straight, None if that is not possible; `hops`: by home broker, the next hop;
      `encoded`: targets elsewhere and here as in a record.
    - `names`: by home broker elsewhere, the matching subscriptions; `ledger`: events not yet counted in accounts, by
      broker and period of acceptance (`_accounts`).
    - `record`: the publication record that receivers who want order ask for, None if there are none.
    """

    targets: dict[str, tuple[Term, ...]]
    local: dict[str, dict[str, tuple[Term, ...]]]
    moved: dict[str, tuple[Term, ...]]
    soonest_ns: int
    latest_ns: int
    exits: tuple[Exit, ...] | None
    hops: dict[str, str]
    encoded: tuple[Raw, Raw]
    outboxes: frozenset[int]
    is_unwanted: bool
    names: dict[str, tuple[str, ...]]
    ledger: dict[tuple[str, int], int]
    record: int | None = None

    @property
    def subscriptions(self) -> int:
        """How many subscriptions an event of this course matches, here and elsewhere."""
        return sum(map(len, self.local.values())) + sum(map(len, self.names.values()))


NO_COURSE: Final = Course({}, {}, {}, LONGEST_NS, 0, None, {}, (Raw(b"\x80"), Raw(b"\x80")), frozenset(), True, {}, {})
"""Of an event that is held by itself."""


def read_course(targets: bytes, local: bytes) -> Course:
    """The course of stored events, from their records: they are not sent straight."""
    elsewhere, here = _TARGETS.decode(targets), _LOCAL.decode(local)
    terms = [*elsewhere.values(), *(terms for wanted in here.values() for terms in wanted.values())]
    last_ns = max(map(latest_ns, terms), default=0)
    return Course(elsewhere, here, {}, 0, last_ns, None, {}, (Raw(targets), Raw(local)), frozenset(), False, {}, {})


def _unannounced(announced: Iterable[Entry], client: str, entries: Iterable[Entry]) -> list[Entry]:
    """Those of a client's subscriptions that its broker has not announced, as far as that is known."""
    names = {entry.name for entry in announced}
    return [entry for entry in entries if qualified_name(client, entry.name) not in names]


def _receivers(course: Course) -> int:
    return len(course.targets) + sum(map(len, course.local.values())) + sum(map(len, course.names.values()))


class Courses:
    """The courses of the events that are published at one broker."""

    def __init__(self, name: str, gossip: Gossip, peers: Peers) -> None:
        self._name = name
        self._gossip = gossip
        self._neighbours = peers.neighbours
        self._clients = peers.clients
        self._known: dict[tuple[Token, Token, int], Course] = {}
        self._ends: dict[tuple[Token, int], Course] = {}  # of events from other brokers: routes do not matter any more
        self._ends_version = -1
        self._names: dict[tuple[str, ...], bytes] = {}
        self._versions = (-1, -1, -1)
        self._receivers = self._end_receivers = 0  # named by the courses of both kinds

    def finder(self) -> "Callable[[Mapping[str, Any], int], Course]":
        """A function that finds the course of an event published here, until something changes.

        It raises EventError if the event cannot be matched.
        """
        self._renew()
        elsewhere = self._gossip.interests.tokens()
        here = self._gossip.local.tokens()
        known, make = self._known, self._made

        def find(attributes: Mapping[str, Any], lifetime_ns: int) -> Course:
            key = (elsewhere(attributes), here(attributes), lifetime_ns)
            course = known.get(key)
            if course is None:
                course = known[key] = make(*key)
                self._receivers += _receivers(course)
                if self._receivers > _MOST_RECEIVERS:
                    known.clear()
                    self._receivers = 0
            return course

        return find

    def end(self, content: bytes, lifetime_ns: int) -> Course:
        """The course of an event from another broker: its receivers here; PeerError if it cannot be matched."""
        attributes = decode_attributes(content)
        try:
            return self._end(attributes, lifetime_ns)
        except EventError as error:
            raise PeerError("content", str(error)) from None

    def _end(self, attributes: Mapping[str, Any], lifetime_ns: int) -> Course:
        local = self._gossip.local
        if local.changes != self._ends_version or len(self._ends) >= _MOST or self._end_receivers > _MOST_RECEIVERS:
            self._ends_version, self._end_receivers = local.changes, 0
            self._ends.clear()
        key = (local.token(attributes), lifetime_ns)
        course = self._ends.get(key)
        if course is None:
            course = self._ends[key] = self._made(0, *key)
            self._end_receivers += _receivers(course)
        return course

    def _renew(self) -> None:
        gossip = self._gossip
        versions = (gossip.links.version, gossip.interests.changes, gossip.local.changes)
        if versions != self._versions or len(self._known) >= _MOST:
            self._versions = versions
            self._receivers = 0
            self._known.clear()

    def forget(self) -> None:
        """Forget all courses: a peer has come or gone."""
        self._receivers = self._end_receivers = 0
        self._known.clear()
        self._ends.clear()

    def targets_of(self, targets: Mapping[str, Any], *, is_client: bool) -> bytes:
        """The encoded targets of a transfer; a client does not get the worth."""
        if not is_client:
            return encode_plain(targets)
        names = tuple(targets)
        known = self._names.get(names)
        if known is None:
            if len(self._names) >= _MOST:
                self._names.clear()
            known = self._names[names] = named(names)
        return known

    def _made(self, elsewhere: Token, here: Token, lifetime_ns: int) -> Course:
        matched = self._gossip.interests.matched(elsewhere)
        names = {home: tuple(entry.name for entry in entries) for home, entries in matched.items()}
        own: list[Entry] = []
        local: dict[str, dict[str, tuple[Term, ...]]] = {}
        moved: dict[str, tuple[Term, ...]] = {}
        for client, entries in self._gossip.local.matched(here).items():
            if not is_address(client):
                own += entries
                local[client] = {entry.name: terms_of((entry,), lifetime_ns) for entry in entries}
            else:
                moved[client] = terms_of(entries, lifetime_ns)
                there = matched.get(broker_of(client))
                if there is None:  # the client's new home is announced, but not yet known here
                    matched[client] = entries
                else:  # the event is sent there for other clients, which may not want it for as long
                    matched[broker_of(client)] = [*there, *_unannounced(there, split_address(client)[1], entries)]
        if own:
            matched[self._name] = own
        targets = {home: terms_of(entries, lifetime_ns) for home, entries in matched.items()}
        records = [entry.record for entries in matched.values() for entry in entries if entry.record is not None]
        ends = [latest_ns(terms) for terms in targets.values()]
        ends += [latest_ns(terms) for wanted in local.values() for terms in wanted.values()]
        hops = {} if moved else self._hops(targets)
        exits = None if moved or hops is None else self._exits(targets, hops, local)
        outboxes = frozenset(id(outbox) for _, outbox, _ in exits or ())
        soonest_ns, last_ns = min(ends, default=LONGEST_NS), max(ends, default=0)
        elsewhere_only = {home: terms for home, terms in targets.items() if home != self._name}
        encoded = (Raw(encode_plain(elsewhere_only)), Raw(encode_plain(local)))
        facts = (targets, local, moved, soonest_ns, last_ns, exits, hops or {}, encoded, outboxes, not targets)
        return Course(*facts, names, {}, max(records, default=None))

    def _hops(self, targets: Iterable[str]) -> dict[str, str] | None:
        """By home broker the next hop, for events published here; None if one is out of reach."""
        hops: dict[str, str] = {}
        for target in targets:
            if target != self._name:
                path = None if is_address(target) else self._gossip.links.path(self._name, target)
                if path is None or path.next_hop not in self._neighbours:
                    return None
                hops[target] = path.next_hop
        return hops

    def _exits(
        self,
        targets: Mapping[str, tuple[Term, ...]],
        hops: Mapping[str, str],
        local: Mapping[str, Mapping[str, Any]],
    ) -> tuple[Exit, ...] | None:
        if any(client not in self._clients for client in local):
            return None
        exits = [
            (self._neighbours[hop], encode_plain({home: targets[home] for home, next in hops.items() if next == hop}))
            for hop in sorted(set(hops.values()))
        ]
        exits += [(self._clients[client], self.targets_of(local[client], is_client=True)) for client in local]
        return tuple((peer, peer.outbox, targets) for peer, targets in exits)
