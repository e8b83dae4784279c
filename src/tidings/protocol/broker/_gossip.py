"""What brokers tell each other about themselves: link state and interests, flooded and refreshed.

Both follow one pattern: an origin numbers what it says within its epoch, everybody passes on what is news and drops
what is not, and what is not repeated in time is forgotten. On a new connection both ends tell all they know: link
states whole, interests by their version, so that only what differs has to be asked for.

Frames may be lost, and a flood over several lossy links often misses somebody. So pings carry a digest of what their
sender knows; neighbours whose digests differ in MAX_DIFFERENT pings in a row tell each other everything, as on a new
connection. While nothing changes, digests agree and cost nothing.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._interests import Interests, LocalInterests, differences
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Ask, Done, Entry, Interest, LinkState, Message, encode, encode_plain

__all__ = ["MAX_ASKED", "MAX_DIFFERENT", "Gossip", "exchange_done"]

MAX_ASKED: Final = 5
MAX_DIFFERENT: Final = 2


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
        neighbours: Callable[[], Iterable[Peer]],
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
    ) -> None:
        self.links = LinkStateMap(
            settings.name,
            timeout_ns=settings.timeout_ns,
            max_origins=settings.max_origins,
            graph=None if settings.bypasses else settings.graph,
        )
        self.interests = Interests(
            timeout_ns=settings.timeout_ns if settings.refreshes else None,
            max_origins=settings.max_origins,
            max_entries=settings.max_entries,
        )
        self.local = LocalInterests()
        self.asked: dict[str, tuple[Peer, int]] = {}  # by origin: who was asked for everything, and how often
        self._settings = settings
        self._send = send
        self._neighbours = neighbours
        self._store = store
        self._erase = erase
        self._epoch = 0
        self._link_number = self._interest_number = self._version = 0
        self._told: Mapping[str, Entry] = {}
        self._digest = 0
        self._digest_of = (-1, -1, -1)

    def begin(self, epoch: int, now_ns: int) -> None:
        """A new life: what is said from now on counts within this epoch."""
        self._epoch = epoch
        self.tell_links(now_ns)
        self._told = self.local.told(covering=self._settings.covering)
        self._version = 1

    def tell_links(self, now_ns: int) -> bool:
        """Tell everybody whom this broker hears; whether the map has changed."""
        self._link_number += 1
        heard = {
            peer.name: (min(peer.meter.mean_s_per_kb, 1e12), min(peer.meter.variance_s2_per_kb2, 1e12))
            for peer in self._neighbours()
        }
        state = LinkState(self._settings.name, self._epoch, self._link_number, 0, heard)
        has_changed = self.links.learn(state, now_ns)
        self._flood(state)
        return has_changed

    def tell_interests(self) -> None:
        """Tell everybody what has changed in what this broker's clients want."""
        told = self.local.told(covering=self._settings.covering)
        added, removed = differences(self._told, told)
        if added or removed:
            self._told = told
            self._interest_number += 1
            self._version += 1
            own = (self._settings.name, self._epoch, self._interest_number)
            self._flood(Interest(*own, self._version, self._version - 1, 0, added, removed))

    def refresh(self, now_ns: int) -> None:
        """Say that this broker is alive and what it said still holds."""
        if self._settings.refreshes:
            self._interest_number += 1
            self._flood(self._own(whole=False))
        self.tell_links(now_ns)

    def exchange(self, peer: Peer, now_ns: int) -> None:
        """Tell a neighbour who has just come all that there is to know."""
        for state in self.links.told(now_ns):
            self._send(peer, state)
        self._send(peer, self._own(whole=True))
        for origin in sorted(self.interests):
            self._send(peer, self.interests.message(origin, now_ns, whole=False))
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
        if said.origin == self._settings.name:
            return
        verdict = self.interests.learn(said, now_ns)
        if verdict == "behind":
            self.asked[said.origin] = (source, 1)
            self._send(source, Ask(said.origin))
        elif verdict != "old":
            self._flood(said, source)
        if verdict == "changed":
            self.asked.pop(said.origin, None)
            whole = self.interests.message(said.origin, now_ns, whole=True)
            self._store(f"interest/{said.origin}", encode(whole))

    def ask_again(self) -> None:
        """Ask once more for what did not come; after MAX_ASKED times the next refresh has to tell."""
        for origin, (source, times) in list(self.asked.items()):
            if times >= MAX_ASKED or not source.is_up:
                del self.asked[origin]
            else:
                self.asked[origin] = (source, times + 1)
                self._send(source, Ask(origin))

    def on_ask(self, ask: Ask, source: Peer, now_ns: int) -> None:
        """A neighbour lacks what a broker's clients want."""
        if ask.origin == self._settings.name:
            self._send(source, self._own(whole=True))
        elif ask.origin in self.interests:
            self._send(source, self.interests.message(ask.origin, now_ns, whole=True))

    def forget_old(self, now_ns: int) -> bool:
        """Forget who was not heard of for too long; whether the map has changed."""
        for origin in self.interests.forget_old(now_ns):
            self._erase(f"interest/{origin}")
        return self.links.forget_old(now_ns)

    def next_expiry_ns(self) -> int | None:
        """When somebody may have to be forgotten."""
        times = [at for at in (self.interests.next_expiry_ns, self.links.next_expiry_ns) if at is not None]
        return min(times, default=None)

    def _own(self, *, whole: bool) -> Interest:
        own = (self._settings.name, self._epoch, self._interest_number, self._version)
        return Interest(*own, 0, 0, tuple(self._told.values())) if whole else Interest(*own, self._version, 0)

    def _flood(self, message: Message, source: Peer | None = None) -> None:
        for peer in self._neighbours():
            if peer is not source:
                self._send(peer, message)
