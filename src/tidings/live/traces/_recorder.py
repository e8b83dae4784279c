"""What happens to events at a broker, as rows of the window that `tidings profile` asks for (`_window`).

Rows are those of a trace (`_writer`), with one difference: a client's acknowledgement is a delivery. Clients are asked
for nothing. The window chooses its share of the events, and the broker notes at least that.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidings.live.traces._hops import OUTCOMES, Hop, OpenHops
from tidings.live.traces._window import Window
from tidings.protocol import Acknowledged, EventId, HandedOver, Note, wire

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["RecordedSubscription", "Recorder"]

MAX_SINCE: Final = 10_000
"""Subscriptions whose beginning is known; all others count from the beginning of the latest that was forgotten."""


class RecordedSubscription(NamedTuple):
    """A present subscription; `from_ns` is when it was made, or when the recording began."""

    client: str
    name: str
    filter: str
    max_delay_ns: int | None
    price: float
    from_ns: int


class Recorder:
    """The records of one broker."""

    def __init__(self, node: "BrokerNode", window: Window) -> None:
        self.window = window
        self._node = node
        self._hops = OpenHops(node, self._end)
        self._links_up: dict[str, bool] = {}
        self._since_ns: dict[str, int] = {}  # by key in the store: when a subscription was made
        self._since_at_least_ns = 0
        window.on_share = node.machine.record

    # -- events from the driver -----------------------------------------------------------------------------------

    def note(self, note: Note, now_ns: int) -> None:
        """Write down what happened, if the window has the event when it comes."""
        if note.kind == "accepted":
            if self.window.has(note.event):
                self._accepted(note.event, note.publication, note.since_ns, now_ns)
        elif note.kind != "enqueued" or self.window.has(note.event):
            self._hops.note(note, now_ns)

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """The peer has received events."""
        self._hops.acknowledged(report, now_ns)

    def handed_over(self, report: HandedOver) -> None:
        """Acknowledgements are deliveries; what clients report is for files."""

    def stored(self, writes: Mapping[str, bytes | None], now_ns: int) -> None:
        """Subscriptions are identified by their key in the durable store."""
        for key, record in writes.items():
            if key.startswith("subscription/"):
                self._since_ns.pop(key, None)
                if record is not None:
                    self._since_ns[key] = now_ns
                    if len(self._since_ns) > MAX_SINCE:
                        self._since_at_least_ns = self._since_ns.pop(next(iter(self._since_ns)))

    def tick(self) -> None:
        """Check the links; end pieces of the window that are old enough, and forget what is older than it."""
        machine, now_ns = self._node.machine, self._node.driver.clock.now_ns()
        for name, peer in machine.neighbours.items():
            if self._links_up.get(name) != peer.is_up and (peer.is_up or name in self._links_up):
                self._links_up[name] = peer.is_up
                self.window.link(name, now_ns, up=peer.is_up)
        for name in [name for name in self._links_up if name not in machine.neighbours]:
            del self._links_up[name]
        self.window.tick(now_ns)
        self._hops.tick(now_ns)
        while self._since_ns and next(iter(self._since_ns.values())) < self.window.since_ns:
            del self._since_ns[next(iter(self._since_ns))]

    def close(self) -> None:
        """The window ends with its broker."""

    # -- what is asked for ---------------------------------------------------------------------------------------

    def subscriptions(self, first: int, most: int) -> list[RecordedSubscription]:
        """The present subscriptions at this broker, from the first on, in the broker's order."""
        return list(islice(self._subscriptions(), first, first + most))

    def _subscriptions(self) -> Iterator[RecordedSubscription]:
        machine = self._node.machine
        begin_ns = max(self.window.since_ns, self._since_at_least_ns)
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
        self.window.publish(event, departure_ns, now_ns, *facts)

    def _end(self, event: EventId, peer: str, hop: Hop, at_ns: int, outcome: str) -> None:
        now_ns = self._node.driver.clock.now_ns()
        is_received = outcome == "received"
        if peer in self._node.network.links[self._node.name]:
            received_ns = at_ns if is_received else None
            times_ns = (hop.enqueued_ns, hop.sent_ns, received_ns)
            self.window.hop(event, peer, *times_ns, OUTCOMES.get(outcome, outcome), now_ns)
        elif is_received:
            self.window.deliver(event, peer, hop.targets, hop.departure_ns, at_ns - hop.since_ns, now_ns)
