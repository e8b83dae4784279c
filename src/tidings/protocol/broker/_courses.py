"""Whom events are for, found out once for all events that satisfy the same filters and live equally long.

Most events of a busy broker differ in what they say and not in who wants them. So what follows from the answer of the
filters alone, which home brokers and clients want the event, what on-time deliveries are worth to them, who is next on
the way, and how a transfer names its targets, is kept as a `Course` and found by that answer. Everything is found anew
when a subscription, a route or a client comes or goes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from tidings.errors import EventError
from tidings.protocol._addresses import broker_of, is_address, split_address
from tidings.protocol._errors import PeerError
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._interests import Token
from tidings.protocol.broker._told_names import told_name
from tidings.protocol.links._outbox import Outbox, named
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import IN_ORDER, LONGEST_NS, MAX_TERMS, Entry, Term, decode_content, encode_plain

__all__ = ["NO_COURSE", "Course", "Courses", "Way", "latest_ns", "merged", "read_course", "terms_of"]

_MOST: Final = 4_096
_MOST_RECEIVERS: Final = 500_000
"""So many home brokers and subscriptions are named by all courses together: whoever publishes to very many could have a
course for each of its lifetimes."""
_TARGETS: Final = msgspec.msgpack.Decoder(dict[str, tuple[Term, ...]])
_LOCAL: Final = msgspec.msgpack.Decoder(dict[str, dict[str, tuple[Term, ...]]])
Way = tuple[Peer, Outbox, bytes]
"""Who is next, with its outbox, and for whom the event goes there, as a transfer says it."""


def latest_ns(terms: tuple[Term, ...]) -> int:
    """The age from which on nobody wants the event."""
    return max(terms)[0] if terms else 0


def terms_of(entries: Sequence[Entry], lifetime_ns: int) -> tuple[Term, ...]:
    """What on-time deliveries to these subscriptions are worth, by how old the event may be.

    A subscription that takes late events as well adds a term that pays nothing: it keeps the event alive. If one of
    them wants order, IN_ORDER comes first. Terms beyond MAX_TERMS are merged into the next tighter one, so nothing is
    promised that a deadline would not allow.
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
    """The terms of so much worth by age, at most MAX_TERMS of them."""
    terms = sorted(worth.items())
    while len(terms) > MAX_TERMS:
        (tight_ns, tight), (_, loose) = terms[-3], terms[-2]
        terms[-3:-1] = [(tight_ns, tight + loose)]
    return tuple(terms)


class Course(NamedTuple):
    """By home broker (this one included, and clients that have moved) what an event is worth there, by client what it
    is worth here; when the first of them wants it no more, and the last; whom it can go to straight, None if it is not
    so simple, and by home broker the neighbour on the way; targets elsewhere and here as a record says them. By home
    broker elsewhere the names of the subscriptions that match; and, not counted into their accounts yet, by broker and
    period of acceptance how many such events there were (`_accounts`). How long a publication record those who want
    order ask for, None if nobody does."""

    targets: dict[str, tuple[Term, ...]]
    local: dict[str, dict[str, tuple[Term, ...]]]
    moved: dict[str, tuple[Term, ...]]
    soonest_ns: int
    latest_ns: int
    ways: tuple[Way, ...] | None
    hops: dict[str, str]
    encoded: tuple[Raw, Raw]
    outboxes: frozenset[int]
    is_nobodys: bool
    names: dict[str, tuple[str, ...]]
    ledger: dict[tuple[str, int], int]
    record: int | None = None


NO_COURSE: Final = Course({}, {}, {}, LONGEST_NS, 0, None, {}, (Raw(b"\x80"), Raw(b"\x80")), frozenset(), True, {}, {})
"""Of an event that goes its own way: nobody's."""


def read_course(targets: bytes, local: bytes) -> Course:
    """The course of events that the durable store kept, as records say it: they do not go straight."""
    elsewhere, here = _TARGETS.decode(targets), _LOCAL.decode(local)
    terms = [*elsewhere.values(), *(terms for wanted in here.values() for terms in wanted.values())]
    last_ns = max(map(latest_ns, terms), default=0)
    return Course(elsewhere, here, {}, 0, last_ns, None, {}, (Raw(targets), Raw(local)), frozenset(), False, {}, {})


def _untold(told: Iterable[Entry], client: str, entries: Iterable[Entry]) -> list[Entry]:
    """Those of a client's subscriptions that its broker has not told of, as far as that is known."""
    names = {entry.name for entry in told}
    return [entry for entry in entries if told_name(client, entry.name) not in names]


def _receivers(course: Course) -> int:
    return len(course.targets) + sum(map(len, course.local.values())) + sum(map(len, course.names.values()))


class Courses:
    """The courses of the events that are published at one broker."""

    def __init__(
        self, name: str, gossip: Gossip, *, neighbours: Mapping[str, Peer], clients: Mapping[str, Peer]
    ) -> None:
        self._name = name
        self._gossip = gossip
        self._neighbours = neighbours
        self._clients = clients
        self._known: dict[tuple[Token, Token, int], Course] = {}
        self._ends: dict[tuple[Token, int], Course] = {}  # of events from elsewhere: routes do not matter any more
        self._ends_version = -1
        self._names: dict[tuple[str, ...], bytes] = {}
        self._versions = (-1, -1, -1)
        self._receivers = self._end_receivers = 0  # those that the courses of both kinds name

    def finder(self) -> "Callable[[Mapping[str, Any], int], Course]":
        """What finds the course of an event that is published here, until something changes.

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
        """The end of the course of an event from elsewhere: who wants it here; PeerError if it cannot be matched."""
        attributes = decode_content(content).attributes
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
        """Somebody has come or gone."""
        self._receivers = self._end_receivers = 0
        self._known.clear()
        self._ends.clear()

    def targets_of(self, targets: Mapping[str, Any], *, is_client: bool) -> bytes:
        """The targets of an event as a transfer says them: a client is not told what it pays."""
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
                if there is None:  # the client's new home is told of, but not yet known here
                    matched[client] = entries
                else:  # the event goes there for somebody else, who may not want it for as long
                    matched[broker_of(client)] = [*there, *_untold(there, split_address(client)[1], entries)]
        if own:
            matched[self._name] = own
        targets = {home: terms_of(entries, lifetime_ns) for home, entries in matched.items()}
        records = [entry.record for entries in matched.values() for entry in entries if entry.record is not None]
        ends = [latest_ns(terms) for terms in targets.values()]
        ends += [latest_ns(terms) for wanted in local.values() for terms in wanted.values()]
        hops = {} if moved else self._hops(targets)
        ways = None if moved or hops is None else self._ways(targets, hops, local)
        outboxes = frozenset(id(outbox) for _, outbox, _ in ways or ())
        soonest_ns, last_ns = min(ends, default=LONGEST_NS), max(ends, default=0)
        elsewhere_only = {home: terms for home, terms in targets.items() if home != self._name}
        encoded = (Raw(encode_plain(elsewhere_only)), Raw(encode_plain(local)))
        facts = (targets, local, moved, soonest_ns, last_ns, ways, hops or {}, encoded, outboxes, not targets)
        return Course(*facts, names, {}, max(records, default=None))

    def _hops(self, targets: Iterable[str]) -> dict[str, str] | None:
        """By home broker the neighbour on the way, for events that are published here; None if somebody is away."""
        hops: dict[str, str] = {}
        for target in targets:
            if target != self._name:
                path = None if is_address(target) else self._gossip.links.path(self._name, target)
                if path is None or path.next_hop not in self._neighbours:
                    return None
                hops[target] = path.next_hop
        return hops

    def _ways(
        self,
        targets: Mapping[str, tuple[Term, ...]],
        hops: Mapping[str, str],
        local: Mapping[str, Mapping[str, Any]],
    ) -> tuple[Way, ...] | None:
        if any(client not in self._clients for client in local):
            return None
        ways = [
            (self._neighbours[hop], encode_plain({home: targets[home] for home, next in hops.items() if next == hop}))
            for hop in sorted(set(hops.values()))
        ]
        ways += [(self._clients[client], self.targets_of(local[client], is_client=True)) for client in local]
        return tuple((peer, peer.outbox, targets) for peer, targets in ways)
