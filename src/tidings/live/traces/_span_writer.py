"""The spans of one broker: it notes when events come and leave, and a thread exports what follows (`_spans`)."""

import platform
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tidings import __version__
from tidings.live.traces._exporter import SpanExporter
from tidings.live.traces._hops import Hop, OpenHops
from tidings.live.traces._spans import Leg, Passage, as_export, span_of, topic_in
from tidings.protocol import Acknowledged, EventId, HandedOver, Note, Sampler, TraceContext, context_in

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["SpanWriter"]

MAX_PASSAGES: Final = 50_000
"""Events that spans are made of; at the bound, what the oldest does from then on is not exported."""
MAX_TOGETHER: Final = 100
"""Subscriptions of one client that get a span each for the same event; the others count as dropped spans."""
_AT_ONCE: Final = 16
_PAUSE_S: Final = 50e-6
"""After so many spans the thread pauses: the event loop may be waiting for the interpreter."""
GRACE_NS: Final = 60_000_000_000
"""How long an event is known after its lifetime: until then it is dropped, or acknowledged."""


class SpanWriter:
    """Makes spans of events whose publisher asks for it, and of a share of those that have no context."""

    def __init__(self, node: "BrokerNode") -> None:
        settings = node.network.document.trace
        assert settings is not None
        assert settings.otlp is not None
        self._node = node
        self._name = node.name
        self._is_chosen = Sampler(settings.otlp_sample)
        self._passages: OrderedDict[EventId, Passage] = OrderedDict()
        self._hops = OpenHops(node, self._end)
        resource = {
            "service.name": "tidings",
            "service.instance.id": node.name,
            "service.version": __version__,
            "host.name": platform.node(),
        }

        def encode(found: list[tuple[Passage, Leg]]) -> bytes:
            spans = []
            for number, (passage, leg) in enumerate(found):
                if number % _AT_ONCE == 0:
                    time.sleep(_PAUSE_S)
                spans.append(span_of(node.name, passage, leg))
            return as_export(resource, __version__, spans)

        self.exporter = SpanExporter(settings.otlp, encode, node.log)

    def note(self, note: Note, now_ns: int) -> None:
        """Something happened to an event."""
        if note.arrival is not None:
            self._arrived(note, now_ns)
        elif note.event in self._passages:
            self._hops.note(note, now_ns)

    def _arrived(self, note: Note, now_ns: int) -> None:
        assert note.arrival is not None
        event = note.event
        context = context_in(note.arrival.content)
        if event in self._passages or not self._is_wanted(event, context):
            return
        arrival = msgspec.structs.replace(note.arrival, content=b"")  # payloads may be large
        topic, is_restored = topic_in(note.arrival.content), note.kind == "restored"
        passage = Passage(event, context, note.peer, arrival, now_ns, topic, is_restored)
        self._passages[event] = passage
        if len(self._passages) > MAX_PASSAGES:
            self._passages.popitem(last=False)
        if note.kind == "accepted":
            self.exporter.put((passage, Leg(self._name, None, now_ns)))

    def _is_wanted(self, event: EventId, context: TraceContext | None) -> bool:
        return self._is_chosen(event) if context is None else context.is_sampled

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """A peer has received events."""
        self._hops.acknowledged(report, now_ns)

    def _end(self, event: EventId, peer: str, hop: Hop, at_ns: int, outcome: str) -> None:
        passage = self._passages.get(event)
        if passage is None or outcome == "lost":
            self.exporter.leave_out()  # what became of it is unknown
            return
        if peer in self._node.network.links[self._name]:
            self.exporter.put((passage, Leg(peer, hop.sent_ns, at_ns, outcome)))
            return
        entries = self._node.machine.gossip.local.of(peer)
        names = hop.targets or ("",)
        self.exporter.leave_out(max(len(names) - MAX_TOGETHER, 0))
        for name in names[:MAX_TOGETHER]:
            max_delay_ns = entries[name].max_delay_ns if name in entries else None
            self.exporter.put((passage, Leg(peer, hop.sent_ns, at_ns, outcome, True, name, max_delay_ns)))

    def handed_over(self, report: HandedOver) -> None:
        """Spans end when the client has received an event; the application's own ones show what follows."""

    def stored(self, writes: Mapping[str, bytes | None], now_ns: int) -> None:
        """Spans are about events alone."""

    def tick(self) -> None:
        """Forget the events that expired a while ago, the oldest first."""
        now_ns = self._node.driver.clock.now_ns()
        self._hops.tick(now_ns)
        while self._passages:
            event, passage = next(iter(self._passages.items()))
            if passage.arrival.since_ns + passage.arrival.lifetime_ns + GRACE_NS > now_ns:
                return
            del self._passages[event]

    def close(self) -> None:
        """Export the remaining spans."""
        self.exporter.close()
