"""Second copies of events (`copies = 2`): an event is on the disks of two brokers before it is acknowledged.

- *The owner* sends every event that it takes on to a neighbour, its *keeper*, and acknowledges the event when the
  keeper has confirmed that its copy is durable. When the owner releases events, it releases their copies too; if that
  message is lost, copies end when they expire.
- The keeper is a neighbour that hears the owner and speaks version 3. If it falls silent, or does not confirm for
  PATIENCE_NS while there is another candidate, the owner turns to the next one, and sends it what was not confirmed.
  While there is none, nothing is acknowledged.
- A keeper that has started again may have lost its disk: it gets its copies again. A keeper that is away for
  `timeout_ns` is replaced in the same manner.
- *Recovery.* A broker that starts without its store asks its neighbours for its copies (`Recover`). Each takes them on
  as if the broker had handed these events over, for all their receivers; so they travel like any others, and receivers
  that have them already recognise them. The same happens when a broker has left the network.

If a copy is taken on although its event was delivered, the last broker on its path recognises it. If that is the broker
that has lost its store, its clients do.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._courses import latest_ns, merged
from tidings.protocol.broker._held import Held, event_key
from tidings.protocol.broker._journal import Journal
from tidings.protocol.links._outbox import FRAME_BYTES, batches
from tidings.protocol.links._peers import Peer, Ports
from tidings.protocol.links._window import within
from tidings.protocol.wire import (
    COPIES_FROM,
    MAX_BATCH,
    Copied,
    Copy,
    Event,
    Release,
    Term,
    encode_plain,
    encode_transfer,
)

__all__ = ["COPY", "Copies", "KeptCopy"]

COPY: Final = "copy"
"""The kind of the keys of copies in the durable store."""
PATIENCE_NS: Final = 3_000_000_000
_TOGETHER: Final = 64
"""So many releases are sent at once; fewer with other frames to the keeper, or after _RELEASE_NS."""
_RELEASE_NS: Final = 100_000_000
_LOOK_NS: Final = 500_000_000


class KeptCopy(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A copy as its keeper stores it; times are of the keeper's clock."""

    owner: str
    life: int
    since_ns: int
    ends_ns: int
    lifetime_ns: int
    error_ns: int | None
    targets: dict[str, tuple[Term, ...]]
    event: Event

    @property
    def id(self) -> EventId:
        """The event of this copy."""
        return self.event.publisher, self.event.epoch, self.event.sequence


_COPY: Final = msgspec.msgpack.Decoder(KeptCopy)


class _Stored(NamedTuple):
    record: bytes
    ends_ns: int


class Copies:
    """The copies of one broker: those that others keep for it, and those that it keeps for others.

    `held` are the events that it holds; `adopt` takes on an event of another broker; `when_durable` performs an action
    once everything is durable.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        held: Mapping[EventId, Held],
        neighbours: Mapping[str, Peer],
        ports: Ports,
        journal: Journal,
        when_durable: Callable[..., None],
        adopt: Callable[[str, KeptCopy], None],
        wake_in: Callable[[int], None],
    ) -> None:
        self.is_on = settings.copies > 1
        self.keeper: Peer | None = None
        """The present keeper of this broker's copies."""
        self.epoch = 0
        self._settings = settings
        self._held = held
        self._neighbours = neighbours
        self._send = ports.send
        self._send_events = ports.send_events
        self._store = journal.store
        self._erase = journal.erase
        self._when_durable = when_durable
        self._adopt = adopt
        self._count = ports.count
        self._wake_in = wake_in
        self._number = 0
        self._unconfirmed: dict[int, Held] = {}  # by number, in order
        self._unsent: list[tuple[int, Held]] = []  # those of them that were not sent to the keeper yet
        self._confirmed_ns = 0  # when the keeper last confirmed something, or was chosen
        self._waiting: deque[tuple[int, tuple[Any, ...]]] = deque()  # actions that wait for all copies up to a number
        self._kept_by: dict[EventId, str] = {}  # copies that were confirmed
        self._away: dict[str, int] = {}  # keepers that were lost, and when
        self._epochs_seen: dict[str, int] = {}  # by neighbour, at the last greeting
        self._released: dict[str, list[EventId]] = {}
        self._stored: dict[str, dict[EventId, _Stored]] = {}  # by owner: the copies kept for it
        self._ends: list[tuple[int, str, EventId]] = []

    @property
    def kept(self) -> int:
        """How many copies are kept for others."""
        return sum(map(len, self._stored.values()))

    @property
    def unconfirmed(self) -> int:
        """How many events wait for their second copy."""
        return len(self._unconfirmed)

    @property
    def is_stirred(self) -> bool:
        """Whether there is something to send."""
        return bool(self._unsent)

    # -- the owner -----------------------------------------------------------------------------------------------

    def put(self, held: Held) -> None:
        """Have a copy made of an event that is held from now on, or for more receivers than before."""
        if self.is_on:
            self._number += 1
            self._unconfirmed[self._number] = held
            self._unsent.append((self._number, held))

    def release(self, id: EventId) -> None:
        """Release the copy of an event that is no longer held."""
        keeper = self._kept_by.pop(id, None)
        if keeper is not None:
            self._let_go(keeper, id)

    def after(self, what: tuple[Any, ...]) -> None:
        """Perform this when all events so far have their second copy and are durable here."""
        if self._unconfirmed:
            self._waiting.append((self._number, what))
        else:
            self._when_durable(*what)

    def flush(self, now_ns: int) -> None:
        """Send copies that were not sent yet."""
        if not self._unsent:
            return
        self._choose(now_ns)
        keeper = self.keeper
        if keeper is None or keeper.outbox.is_congested:
            self._wake_in(_LOOK_NS)
            return
        unsent, self._unsent = self._unsent, []
        new = []
        for number, held in unsent:
            if self._held.get(held.id) is not held:  # it was delivered meanwhile
                self._unconfirmed.pop(number, None)
            elif number in self._unconfirmed:
                new.append((number, held))
        self._perform()
        self._send_copies(keeper, new, now_ns)
        self._send_released(keeper)
        self._wake_in(_LOOK_NS)

    def look(self, now_ns: int) -> None:
        """Replace a keeper that does not confirm, or send it everything again; release and expire copies."""
        self._expire(now_ns)
        for name, since_ns in list(self._away.items()):
            if now_ns - since_ns >= self._settings.timeout_ns:
                del self._away[name]
                self._put_again(name)
        if self._unconfirmed and now_ns - self._confirmed_ns >= PATIENCE_NS:
            self._turn(now_ns)
        self.flush(now_ns)
        for name in list(self._released):
            peer = self._neighbours.get(name)
            if peer is None or not peer.is_up:
                del self._released[name]  # their copies will expire
            else:
                self._send_released(peer)
        if self._unconfirmed or self._away:
            self._wake_in(_LOOK_NS)

    def greeted(self, peer: Peer, now_ns: int) -> None:
        """A neighbour is up."""
        if self.is_on:
            self._away.pop(peer.name, None)
            if self._epochs_seen.get(peer.name, peer.epoch) != peer.epoch:
                self._put_again(peer.name)
            self._epochs_seen[peer.name] = peer.epoch
            if peer is self.keeper:
                self._unsent = list(self._unconfirmed.items())
            self.flush(now_ns)

    def lost(self, peer: Peer, now_ns: int) -> None:
        """A neighbour is no longer up."""
        if peer.name in self._kept_by.values():
            self._away[peer.name] = now_ns
            self._wake_in(self._settings.timeout_ns)
        if peer is self.keeper:
            self.keeper = None
            self.flush(now_ns)

    def confirmed(self, peer: Peer, message: Copied, now_ns: int) -> None:
        """Copies are durable at the keeper."""
        if peer is not self.keeper or message.session != self.epoch:
            return
        self._confirmed_ns = now_ns
        for number in within(self._unconfirmed, message.first, message.last):
            held = self._unconfirmed.pop(number)
            if held.id in self._held:
                self._kept_by[held.id] = peer.name
            else:
                self._let_go(peer.name, held.id)
        self._perform()

    def _perform(self) -> None:
        first = next(iter(self._unconfirmed), self._number + 1)
        while self._waiting and self._waiting[0][0] < first:
            self._when_durable(*self._waiting.popleft()[1])

    def _put_again(self, keeper: str) -> None:
        """Have the copies of a neighbour made again."""
        for id in [id for id, name in self._kept_by.items() if name == keeper]:
            del self._kept_by[id]
            held = self._held.get(id)
            if held is not None:
                self.put(held)

    def _choose(self, now_ns: int) -> None:
        """Choose a keeper if there is none, or the present one cannot keep copies any more."""
        if (
            self.keeper is None
            or not _is_able(self.keeper)
            or self._neighbours.get(self.keeper.name) is not self.keeper
        ):
            self.keeper = None
            self._turn(now_ns)

    def _turn(self, now_ns: int) -> None:
        """Choose the next able neighbour as keeper, or the present one again."""
        able = sorted(name for name, peer in self._neighbours.items() if _is_able(peer))
        before = "" if self.keeper is None else self.keeper.name
        later = [name for name in able if name > before]
        self.keeper = self._neighbours[(later or able)[0]] if able else None
        self._unsent, self._confirmed_ns = list(self._unconfirmed.items()), now_ns

    def _send_copies(self, keeper: Peer, new: list[tuple[int, Held]], now_ns: int) -> None:
        begin = 0
        while begin < len(new):  # numbers of one frame follow each other
            end = begin + 1
            while end < len(new) and new[end][0] == new[end - 1][0] + 1:
                end += 1
            run = new[begin:end]
            targets = [encode_plain(self._targets_of(held)) for _, held in run]
            events = [held.encode_once(now_ns) for _, held in run]
            sizes = [len(one) + len(other) for one, other in zip(targets, events, strict=True)]
            for first, last in batches(sizes, min(FRAME_BYTES, self._settings.max_frame_bytes // 2)):
                head = (self.epoch, run[first][0], 0)
                frame = encode_transfer(*head, targets[first:last], events[first:last], now_ns, is_copy=True)
                self._send_events(keeper, "Copy", frame)
            begin = end

    def _targets_of(self, held: Held) -> dict[str, tuple[Term, ...]]:
        """All receivers of an event: other brokers, moved clients, and this broker itself for its clients."""
        if not held.is_alone:
            course = held.course
            return (
                course.targets
                if self._settings.name in course.targets
                else self._with_own(course.targets, course.local)
            )
        return self._with_own(*held.owed())

    def _with_own(
        self, targets: Mapping[str, tuple[Term, ...]], local: Mapping[str, Mapping[str, tuple[Term, ...]]]
    ) -> dict[str, tuple[Term, ...]]:
        worth: dict[int, float] = {}
        for wanted in local.values():
            for terms in wanted.values():
                for age_ns, price in terms:
                    worth[age_ns] = worth.get(age_ns, 0.0) + price
        return {**targets, **({self._settings.name: merged(worth)} if worth else {})}

    def _let_go(self, keeper: str, id: EventId) -> None:
        released = self._released.setdefault(keeper, [])
        released.append(id)
        peer = self._neighbours.get(keeper)
        if len(released) >= _TOGETHER and peer is not None and peer.is_up:
            self._send_released(peer)
        elif len(released) == 1:
            self._wake_in(_RELEASE_NS)

    def _send_released(self, peer: Peer) -> None:
        released = self._released.pop(peer.name, [])
        for begin in range(0, len(released), MAX_BATCH):
            self._send(peer, Release(tuple(released[begin : begin + MAX_BATCH])))

    # -- the keeper ----------------------------------------------------------------------------------------------

    def keep(self, source: Peer, message: Copy, left_ns: int, error_ns: int | None, now_ns: int) -> None:
        """Keep copies for a neighbour, and confirm them when they are durable; at most `max_stored` in all."""
        if message.session != source.epoch:
            return
        mine = self._stored.setdefault(source.name, {})
        room, most_ns = self._settings.max_stored - self.kept, self._settings.max_lifetime_ns
        last = message.number - 1
        for event, targets in zip(message.events, message.targets, strict=True):
            id = (event.publisher, event.epoch, event.sequence)
            if id not in mine:
                if room <= 0:
                    self._count("no room")
                    break
                room -= 1
            since_ns = left_ns - event.age_ns
            ends_ns = since_ns + max(map(latest_ns, targets.values()))
            error = None if error_ns is None or event.error_ns is None else error_ns + event.error_ns
            lifetime_ns = min(event.lifetime_ns or most_ns, most_ns)
            facts = (since_ns, ends_ns, lifetime_ns, error, targets, event)
            record = encode_plain(KeptCopy(source.name, source.epoch, *facts))
            mine[id] = _Stored(record, ends_ns)
            heapq.heappush(self._ends, (ends_ns, source.name, id))
            self._store(_key(source.name, id), record)
            last += 1
        if last >= message.number:
            self._when_durable("copied", source, source.epoch, message.number, last)
        if self._ends:
            self._wake_in(max(self._ends[0][0] - now_ns, _LOOK_NS))

    def restore(self, value: bytes) -> None:
        """Restore a copy from the durable store."""
        copy = _COPY.decode(value)
        self._stored.setdefault(copy.owner, {})[copy.id] = _Stored(value, copy.ends_ns)
        heapq.heappush(self._ends, (copy.ends_ns, copy.owner, copy.id))

    def begin(self, epoch: int, now_ns: int) -> None:
        """Begin a new epoch."""
        self.epoch = epoch
        if self._ends:
            self._wake_in(max(self._ends[0][0] - now_ns, 0))

    def drop(self, owner: str, ids: Iterable[EventId]) -> None:
        """Drop copies that are no longer needed."""
        mine = self._stored.get(owner, {})
        for id in ids:
            if mine.pop(id, None) is not None:
                self._erase(_key(owner, id))

    def recover(self, owner: str, now_ns: int, *, before: int | None = None) -> None:
        """Take on the events that a neighbour held before this epoch and has lost, or (None) all, if it has left for
        good."""
        for id, stored in list(self._stored.get(owner, {}).items()):
            copy = _COPY.decode(stored.record)
            if before is not None and copy.life >= before:
                continue
            if copy.ends_ns > now_ns:
                self._count("recovered")
                self._adopt(owner, copy)
            self.drop(owner, (id,))

    def owners(self) -> dict[str, int]:
        """By owner: how many copies are kept for it."""
        return {owner: len(copies) for owner, copies in sorted(self._stored.items()) if copies}

    def _expire(self, now_ns: int) -> None:
        while self._ends and self._ends[0][0] <= now_ns:
            _, owner, id = heapq.heappop(self._ends)
            stored = self._stored.get(owner, {}).get(id)
            if stored is not None and stored.ends_ns <= now_ns:
                self.drop(owner, (id,))
        if self._ends:
            self._wake_in(max(self._ends[0][0] - now_ns, _LOOK_NS))


def _is_able(peer: Peer) -> bool:
    return peer.is_up and peer.version >= COPIES_FROM


def _key(owner: str, id: EventId) -> str:
    """One key for each copy. Names may contain anything, so the length shows where the owner's name ends."""
    return f"{COPY}/{len(owner)}/{owner}/{event_key(id)}"
