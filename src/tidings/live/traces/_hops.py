"""What becomes of the events that one broker sends: each leaves for a peer, and the peer has it, or it is dropped.

The receipt is on this broker's own clock: the acknowledgement, less the time the receiver held it, less half a round
trip.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidings.protocol import Acknowledged, EventId, Note

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["OUTCOMES", "Hop", "OpenHops"]

MAX_OPEN: Final = 200_000
"""Hops that have begun and not ended; at the bound the oldest ends as lost."""
MAX_NUMBERS: Final = 65_536
"""Numbers under way to one peer; at the bound the oldest is forgotten."""
TIDY_NS: Final = 10_000_000_000
"""How often peers that are gone are forgotten."""
_TYPICAL_BYTES: Final = 1_000
_DROPPED: Final = frozenset({"expired", "hopeless", "full", "replaced"})
OUTCOMES: Final = {"full": "hopeless", "replaced": "hopeless"}
"""What the trace contract calls them, where it has other words."""


class Hop:
    """An event on its way to a peer; `number` is that of the transfer, `targets` are subscriptions if it is a client.

    `since_ns` is its departure by this broker's clock, `departure_ns` by that of the publisher's home broker.
    """

    __slots__ = ("departure_ns", "enqueued_ns", "number", "sent_ns", "since_ns", "targets")

    def __init__(self, enqueued_ns: int, note: Note) -> None:
        self.enqueued_ns = enqueued_ns
        self.since_ns = note.since_ns
        self.departure_ns = note.departure_ns
        self.sent_ns: int | None = None
        self.number = -1
        self.targets = note.targets


class OpenHops:
    """The hops of one broker; `ended` gets the event, the peer, the hop, when it ended, and its outcome: `received`,
    `lost`, or why it was dropped."""

    def __init__(self, node: "BrokerNode", ended: Callable[[EventId, str, Hop, int, str], None]) -> None:
        self._node = node
        self._ended = ended
        self._hops: OrderedDict[tuple[EventId, str], Hop] = OrderedDict()
        self._numbers: dict[str, dict[int, EventId]] = {}  # by peer: the event of each number under way
        self._free_ns: dict[str, int] = {}  # by peer: when the last event sent to it arrived
        self._tidied_ns = 0

    def note(self, note: Note, now_ns: int) -> None:
        """Enter what happened to an event."""
        event, kind = note.event, note.kind
        if kind == "enqueued":
            self._hops[event, note.peer] = Hop(now_ns, note)
            if len(self._hops) > MAX_OPEN:
                (event, peer), hop = self._hops.popitem(last=False)
                self._end(event, peer, hop, now_ns, "lost")
        elif kind == "sent":
            under_way = self._hops.get((event, note.peer))
            if under_way is not None:
                numbers = self._numbers.setdefault(note.peer, {})
                numbers.pop(under_way.number, None)
                under_way.sent_ns, under_way.number, under_way.targets = now_ns, note.number, note.targets
                numbers[note.number] = event
                if len(numbers) > MAX_NUMBERS:
                    del numbers[next(iter(numbers))]
        elif kind in _DROPPED:
            given_up = self._hops.pop((event, note.peer), None)
            if given_up is not None:
                self._end(event, note.peer, given_up, now_ns, kind)
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
                    self._end(event, peer, hop, self._free_ns[peer], "received")

    def tick(self, now_ns: int) -> None:
        """Forget peers that are gone, now and then."""
        if now_ns - self._tidied_ns < TIDY_NS:
            return
        self._tidied_ns = now_ns
        machine = self._node.machine
        for records in (self._numbers, self._free_ns):
            for name in [name for name in records if name not in machine.clients and name not in machine.neighbours]:
                del records[name]

    def _end(self, event: EventId, peer: str, hop: Hop, at_ns: int, outcome: str) -> None:
        self._numbers.get(peer, {}).pop(hop.number, None)
        self._ended(event, peer, hop, at_ns, outcome)
