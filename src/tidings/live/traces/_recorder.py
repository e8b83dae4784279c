"""What happens to events at a broker, as rows: for the files of `[trace]`, and for the window that is kept in memory.

The driver reports what the protocol notes. A hop is complete when the acknowledgement arrives, and has the receipt on
this broker's own clock (the acknowledgement, less the time the receiver held it, less half a round trip), so a row
never mixes two clocks. A client's acknowledgement is a delivery for the window; for files, clients report what their
applications got, and when (`HandedOver`).

Times are nanoseconds since 1970 by this broker's clock. With a share of s, the events whose identity hashes below s are
recorded, the same at all brokers. Files have a fixed share; without them, the window chooses the broker's share.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidings.live.traces._window import Window
from tidings.protocol import Acknowledged, EventId, HandedOver, Note, wire
from tidings.protocol.node import value_of

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.live.traces._writer import TraceWriter

__all__ = ["RecordedSubscription", "Recorder"]

MAX_OPEN: Final = 200_000
"""Hops that have begun and not ended; at the bound the oldest is recorded as lost."""
MAX_NUMBERS: Final = 65_536
"""Numbers under way to one peer; at the bound the oldest is forgotten."""
MAX_SINCE: Final = 10_000
"""Subscriptions whose beginning is known; all others count from the beginning of the latest that was forgotten."""
_TYPICAL_BYTES: Final = 1_000
_OUTCOMES: Final = {"expired": "expired", "hopeless": "hopeless", "full": "hopeless"}
_TIDY_NS: Final = 10_000_000_000


class RecordedSubscription(NamedTuple):
    """A present subscription; `from_ns` is when it was made, or when the recording began."""

    client: str
    name: str
    filter: str
    max_delay_ns: int | None
    price: float
    from_ns: int


class _Hop:
    __slots__ = ("departure_ns", "enqueued_ns", "number", "sent_ns", "since_ns", "targets")

    def __init__(self, enqueued_ns: int, since_ns: int, departure_ns: int) -> None:
        self.enqueued_ns = enqueued_ns
        self.since_ns = since_ns
        self.departure_ns = departure_ns
        self.sent_ns: int | None = None
        self.number = -1
        self.targets: tuple[str, ...] = ()


class Recorder:
    """The records of one broker."""

    def __init__(self, node: "BrokerNode", *, files: "TraceWriter | None", window: Window | None) -> None:
        self.window = window
        self._files = files
        self._node = node
        self._hops: OrderedDict[tuple[EventId, str], _Hop] = OrderedDict()
        self._numbers: dict[str, dict[int, EventId]] = {}  # by peer: the event of each number under way
        self._free_ns: dict[str, int] = {}  # by peer: when the last event sent to it arrived
        self._links_up: dict[str, bool] = {}
        self._since_ns: dict[str, int] = {}  # by key in the store: when a subscription was made
        self._since_at_least_ns = 0
        self._tidied_ns = 0
        if window is not None and files is None:
            window.on_share = node.machine.trace

    # -- events from the driver -----------------------------------------------------------------------------------

    def note(self, note: Note, now_ns: int) -> None:
        """Write down what happened."""
        event, kind = note.event, note.kind
        if kind == "enqueued":
            self._hops[event, note.peer] = _Hop(now_ns, note.since_ns, note.departure_ns)
            if len(self._hops) > MAX_OPEN:
                (event, peer), hop = self._hops.popitem(last=False)
                self._end(event, peer, hop, None, "lost", now_ns)
        elif kind == "sent":
            under_way = self._hops.get((event, note.peer))
            if under_way is not None:
                numbers = self._numbers.setdefault(note.peer, {})
                numbers.pop(under_way.number, None)
                under_way.sent_ns, under_way.number, under_way.targets = now_ns, note.number, note.targets
                numbers[note.number] = event
                if len(numbers) > MAX_NUMBERS:
                    del numbers[next(iter(numbers))]
        elif kind == "accepted":
            self._accepted(event, note.publication, note.since_ns, now_ns)
        elif kind in _OUTCOMES:
            given_up = self._hops.pop((event, note.peer), None)
            if given_up is not None:
                self._end(event, note.peer, given_up, None, _OUTCOMES[kind], now_ns)
        elif kind == "withdrawn":
            taken_back = self._hops.pop((event, note.peer), None)
            if taken_back is not None:
                self._numbers.get(note.peer, {}).pop(taken_back.number, None)

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """The peer has received events."""
        peer = report.peer
        numbers = self._numbers.get(peer)
        if not numbers:
            return
        known = self._node.machine.neighbours.get(peer) or self._node.machine.clients.get(peer)
        half_ns, transit_ns = 0, 0
        if known is not None:
            half_ns, transit_ns = int(known.meter.least_ns / 2), known.meter.transit_ns(_TYPICAL_BYTES)
        last_ns, newest = now_ns - report.held_ns - half_ns, report.numbers[-1][1]
        for first, last in report.numbers:
            for number in [number for number in numbers if first <= number <= last]:
                event = numbers.pop(number, None)
                # An event that was sent again under another number has two, and ends with the first.
                hop = None if event is None else self._hops.pop((event, peer), None)
                if event is not None and hop is not None and hop.sent_ns is not None:
                    # A link carries one event after the other: each had to wait for those under way before it.
                    hop.sent_ns = max(hop.sent_ns, self._free_ns.get(peer, 0))
                    # How long it was held is known of the last one; the others were acknowledged with it, and came when
                    # such an event comes.
                    received_ns = last_ns if number == newest else min(last_ns, hop.sent_ns + transit_ns)
                    self._free_ns[peer] = max(received_ns, hop.sent_ns)
                    self._end(event, peer, hop, self._free_ns[peer], "received", now_ns)

    def handed_over(self, report: HandedOver) -> None:
        """A client has handed events to its application."""
        if self._files is not None:
            self._files.hand_over(report)

    def stored(self, writes: Mapping[str, bytes | None], now_ns: int) -> None:
        """Subscriptions are identified by their key in the durable store."""
        for key, record in writes.items():
            if key.startswith("subscription/"):
                if self._files is not None:
                    self._files.subscribe(key, None if record is None else value_of(record), now_ns)
                self._since_ns.pop(key, None)
                if record is not None:
                    self._since_ns[key] = now_ns
                    if len(self._since_ns) > MAX_SINCE:
                        self._since_at_least_ns = self._since_ns.pop(next(iter(self._since_ns)))

    def tick(self) -> None:
        """Check the links; end pieces of the window, and files, that are old enough."""
        machine, now_ns = self._node.machine, self._node.driver.clock.now_ns()
        for name, peer in machine.neighbours.items():
            if self._links_up.get(name) != peer.is_up and (peer.is_up or name in self._links_up):
                self._links_up[name] = peer.is_up
                if self._files is not None:
                    self._files.transition("link", name, now_ns, up=peer.is_up)
                if self.window is not None:
                    self.window.link(name, now_ns, up=peer.is_up)
        if self.window is not None:
            self.window.tick(now_ns)
        if self._files is not None:
            self._files.tick()
        if now_ns - self._tidied_ns >= _TIDY_NS:
            self._tidy(now_ns)

    def close(self) -> None:
        """Write the remaining rows."""
        self.tick()
        if self._files is not None:
            self._files.close()

    def _tidy(self, now_ns: int) -> None:
        """Forget peers that are gone, and beginnings before the window."""
        self._tidied_ns = now_ns
        machine = self._node.machine
        for records in (self._numbers, self._free_ns, self._links_up):
            for name in [name for name in records if name not in machine.clients and name not in machine.neighbours]:
                del records[name]
        since_ns = 0 if self.window is None else self.window.since_ns
        while self._since_ns and next(iter(self._since_ns.values())) < since_ns:
            del self._since_ns[next(iter(self._since_ns))]

    # -- what is asked for ---------------------------------------------------------------------------------------

    def subscriptions(self, first: int, most: int) -> list[RecordedSubscription]:
        """The present subscriptions at this broker, from the first on, in the broker's order."""
        return list(islice(self._subscriptions(), first, first + most))

    def _subscriptions(self) -> Iterator[RecordedSubscription]:
        machine = self._node.machine
        begin_ns = max(0 if self.window is None else self.window.since_ns, self._since_at_least_ns)
        for client in machine.clients:
            for name, entry in machine.gossip.local.of(client).items():
                key = f"subscription/{len(client)}/{client}/{name}"
                since_ns = self._since_ns.get(key, begin_ns)
                yield RecordedSubscription(client, name, entry.filter, entry.max_delay_ns, entry.price, since_ns)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _accepted(self, event: EventId, publication: wire.Publication | None, departure_ns: int, now_ns: int) -> None:
        assert publication is not None
        attributes = wire.decode_attributes(publication.content)
        facts = (publication.size_bytes, publication.lifetime_ns, attributes)
        if self._files is not None:
            self._files.accept(event, departure_ns, now_ns, *facts)
        if self._is_in_window(event):
            assert self.window is not None
            self.window.publish(event, departure_ns, now_ns, *facts)

    def _is_in_window(self, event: EventId) -> bool:
        """Whether the window has this event; without files, no other events are noted."""
        return self.window is not None and (self._files is None or self.window.has(event))

    def _end(self, event: EventId, peer: str, hop: _Hop, received_ns: int | None, outcome: str, now_ns: int) -> None:
        self._numbers.get(peer, {}).pop(hop.number, None)
        is_link = peer in self._node.network.links[self._node.name]
        times_ns = (hop.enqueued_ns, hop.sent_ns, received_ns)
        if is_link and self._files is not None:
            self._files.hop(event, peer, *times_ns, outcome)
        if not self._is_in_window(event):
            return
        assert self.window is not None
        if is_link:
            self.window.hop(event, peer, *times_ns, outcome, now_ns)
        elif received_ns is not None:
            age_ns = received_ns - hop.since_ns
            self.window.deliver(event, peer, hop.targets, hop.departure_ns, age_ns, now_ns)
