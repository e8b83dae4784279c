"""How a broker starts again: what its store lacks, when it is ready, and how it recovers its clients.

- A broker is *ready* when it knows the subscriptions at the other brokers: from its store, or because a neighbour has
  sent all of them, or because no neighbour has answered for `ready_wait_ns`. Until then it acknowledges no events of
  clients.
- If a record about subscriptions elsewhere was damaged, the broker requests that table again and is not ready before it
  has it, however long that takes: events accepted meanwhile would miss subscribers. This state is durable before the
  damaged record is erased, so that an incarnation that ends early does not hide the damage from the next.
- Other damaged records need nothing. Clients repeat their requests when they meet the new incarnation, the epoch is
  taken from the clock, and a duplicate of a forgotten event is recognised by its receiver.
- With two copies, a broker that has lost its store learns from its neighbours what its own clients have subscribed to,
  and asks them for its events.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidings.protocol._machine import next_epoch
from tidings.protocol._names import client_of, is_address, is_identity, key_in, split_address, split_qualified
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._copies import COPY
from tidings.protocol.broker._departures import Departures
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._journal import Journal
from tidings.protocol.broker._registry import Registry
from tidings.protocol.wire import Entry

__all__ = ["EPOCH", "Readiness", "recover_clients"]

EPOCH: Final = "epoch"
_READY: Final = "ready"
_INCOMPLETE: Final = "untold"
"""In the store while a damaged table of subscriptions has not been received again."""
_LOST: Final = "lost"
"""With two copies: until when neighbours are asked for the events that this broker has lost."""
_COPIED: Final = ("event/", "seen/")
"""The records that neighbours have copies of, or can have delivered again."""
_ANNOUNCED: Final = ("interest/", "wanted/")
"""The records about subscriptions elsewhere."""
_KINDS: Final = frozenset(
    (
        *("advertisement", "came", "clock", COPY, "departed", "epoch", "event", "format", "identity"),
        *("interest", "left", "lost", "ready", "seen", "subscription", "wanted"),
    )
)
"""Of the keys in a store; any other is one of these with a flipped bit."""
_WAITS: Final = 10
"""While it receives tables, a broker that is not ready waits for `ready_wait_ns` at most this many times."""


class Readiness:
    """Whether one broker is ready, and what its store lacks; `kept` is what the store held at the start."""

    def __init__(self, settings: BrokerSettings, kept: dict[str, bytes], *, gossip: Gossip, journal: Journal) -> None:
        self.is_ready = False
        self.alive_ns = 0
        """When the epoch became durable."""
        self._settings = settings
        self._kept = kept
        self._gossip = gossip
        self._journal = journal
        self._exchanged_with: set[str] = set()  # neighbours that have sent everything they know
        self._lost_until_ns = 0
        self._needs_exchange = False  # it is not enough that nobody answers

    def mend(self, damaged: Sequence[str]) -> None:
        """Continue without these records."""
        kept, gossip = self._kept, self._gossip
        announced = [key for key in damaged if key.startswith(_ANNOUNCED)]
        origins = {origin for key in announced if (origin := gossip.origin_of(key)) is not None}
        if len(announced) < len(damaged) and any(map(_is_unknown, damaged)):  # anything may be missing
            origins.update(key.partition("/")[2] for key in kept if key.startswith(_ANNOUNCED[0]))
        if origins:
            kept[_INCOMPLETE] = b""
            self._journal.store(_INCOMPLETE, b"")
            if kept.pop(_READY, None) is not None:
                self._journal.erase(_READY)
        if self._settings.copies > 1 and any(key.startswith("subscription/") or _is_unknown(key) for key in damaged):
            self._note_loss()
        elif self._settings.copies > 1 and any(key.startswith(_COPIED) for key in damaged):
            kept[_LOST] = b""
        for origin in sorted(origins):
            head = f"{_ANNOUNCED[0]}{origin}"
            kept[head] = gossip.withdrawn(origin, kept.get(head))
            self._journal.store(head, kept[head])

    def begin(self, now_ns: int) -> int:
        """Begin an incarnation; its epoch, which is stored first."""
        kept = self._kept
        stored = kept.get(EPOCH)
        epoch = next_epoch(None if stored is None else int(stored), now_ns)
        self._journal.store(EPOCH, str(epoch).encode())
        has_copies = self._settings.copies > 1
        if has_copies:
            if stored is None:
                self._note_loss()
            if kept.get(_LOST) == b"":  # since this incarnation began
                kept[_LOST] = str(now_ns + self._settings.max_lifetime_ns).encode()
                self._journal.store(_LOST, kept[_LOST])
            self._lost_until_ns = int(kept.get(_LOST, b"0"))
        self.is_ready = _READY in kept or not self._settings.neighbours
        self._needs_exchange = _INCOMPLETE in kept and not self.is_ready
        self._gossip.is_recovering = has_copies and _LOST in kept and not self.is_ready
        return epoch

    def _note_loss(self) -> None:
        """The subscriptions of this broker's own clients are lost, too: it is not ready before neighbours sent them."""
        self._kept[_LOST] = b""
        self._journal.store(_LOST, b"")
        if self._kept.pop(_READY, None) is not None:
            self._journal.erase(_READY)

    def lacks_events(self, now_ns: int) -> bool:
        """Whether this broker requests copies of lost events from its neighbours."""
        return now_ns < self._lost_until_ns and self.is_ready

    def note_exchange(self, neighbour: str) -> None:
        """A neighbour has sent everything it knows."""
        self._exchanged_with.add(neighbour)

    def is_complete(self, neighbours: frozenset[str]) -> bool:
        """Whether everything is known, if no table is being requested."""
        return (
            bool(self._exchanged_with)
            and not (self._needs_exchange and self._gossip.interests.lacks_any)
            # One neighbour may know more of this broker's own clients than another.
            and (not self._gossip.is_recovering or self._exchanged_with >= neighbours)
        )

    def must_wait(self, now_ns: int) -> bool:
        """Whether the broker waits for longer: tables are being received, but not for ever.

        With two copies a broker that has lost its store waits until a neighbour answers: it could not have copies of
        what it accepts either.
        """
        is_patient = now_ns < self.alive_ns + _WAITS * self._settings.ready_wait_ns
        is_alone = self._gossip.is_recovering and not self._exchanged_with
        return self._needs_exchange or is_alone or (bool(self._gossip.asked) and is_patient)

    def store(self) -> None:
        """Store that the broker is ready."""
        self._journal.store(_READY, b"")
        if self._needs_exchange:
            self._needs_exchange = False
            self._journal.erase(_INCOMPLETE)


def recover_clients(
    gossip: Gossip,
    registry: Registry,
    departures: Departures,
    recover_client: Callable[[str, bytes], bool],
    now_ns: int,
) -> None:
    """Restore what other brokers know of this broker's clients.

    Clients that have moved, or have their home elsewhere by now, become departures: what still comes for them is sent
    after them. `recover_client` enters a client, with its key; whether there is room for it.
    """
    lost, interests = gossip.recovered(), gossip.interests
    homes = {client_of(name): origin for origin in interests for name in interests.entries(origin)}
    moved: dict[tuple[str, str], dict[str, Entry]] = {}
    for known in lost:
        client, name = split_qualified(known.name)
        if is_identity(known.name):
            if client not in homes:
                recover_client(client, key_in(known.name))
            continue
        entry = msgspec.structs.replace(known, name=name)
        # A client that is still partly known here has not reported another home yet. When it does, all that it wants
        # is sent after it.
        home = None if registry.knows(client) else homes.get(client)
        if is_address(client):
            home, client = split_address(client)
        if home is not None:
            moved.setdefault((client, home), {})[name] = entry
            continue
        if recover_client(client, b""):
            registry.recover(client, entry)
    for (client, home), entries in moved.items():
        if not registry.knows(client):
            departures.recover(client, home, entries, now_ns)


def _is_unknown(key: str) -> bool:
    """Whether a key is none that a broker writes."""
    return key.partition("/")[0] not in _KINDS
