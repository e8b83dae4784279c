"""Traces of a live broker in the format of the contract (model/trace.py), rolled to Parquet by size and age.

Each broker writes what it saw, in files of its own, so that the files of all brokers together are the trace:

- publications that it accepted, and their hop from the publisher (source NULL);
- hops that it sent: the row is complete when the acknowledgement arrives, and has the receipt on this broker's own
  clock (`_hops`), so a row never mixes two clocks;
- deliveries to its clients, as they report them (`Given`): departure and age, so these rows do not mix clocks either,
  and an event is on time in the trace exactly if its application got it on time;
- its clients' subscriptions, in one file that is replaced when they change; its links, once; when it and its links were
  up.

Times are nanoseconds since 1970 by each broker's clock. A publisher is named `name/epoch`, since sequence numbers start
again with every epoch of a client. With a sample of s, the events whose identity hashes below s are traced, the same at
all brokers. A thread writes the files. A broker that is killed loses the rows of its last `roll_age`.
"""

import concurrent.futures
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.live.traces._hops import OUTCOMES, Hop, OpenHops
from tidings.live.traces._subscription_rows import SubscriptionRows
from tidings.live.traces._trace_files import write_rows
from tidings.protocol import Acknowledged, EventId, HandedOver, Note, Sampler, wire
from tidings.protocol.node import value_of

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["TraceWriter"]


class TraceWriter:
    """The trace of one broker."""

    def __init__(self, node: "BrokerNode", since_ns: int) -> None:
        settings = node.network.document.trace
        assert settings is not None
        assert settings.directory is not None
        self.directory: Path = node.network.path.parent / settings.directory
        self._node = node
        self._name = node.name
        self._sample = settings.sample
        self._roll_rows = settings.roll_rows
        self._roll_age_s = settings.roll_age_s
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._count = 0
        self._files = 0
        self._began_s = time.monotonic()
        self._is_sampled = Sampler(settings.sample)  # for profiles and spans, others are noted too
        self._hops = OpenHops(node, self._end)
        self._links_up: dict[str, bool] = {}
        self._subscriptions = SubscriptionRows(self.directory, self._name)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "tidings-trace")
        self._begin(since_ns)

    def _begin(self, since_ns: int) -> None:
        """The broker is up; if it was up before, it has been down since the last time noted in its store."""
        topology = [{"kind": "broker", "source": self._name}]
        topology += [
            {"kind": "link", "source": self._name, "target": other}
            for other in sorted(self._node.network.links[self._name])
        ]
        write_rows(self.directory, "topology", f"part-{self._name}", topology, self._sample, replace=True)
        now_ns = self._node.driver.clock.now_ns()
        if since_ns:
            self._transition("broker", None, since_ns, up=False)
        self._transition("broker", None, now_ns, up=True)

    # -- events from the driver -----------------------------------------------------------------------------------

    def note(self, note: Note, now_ns: int) -> None:
        """Write down what happened."""
        if not self._is_sampled(note.event):
            return
        if note.kind == "accepted":
            self._accepted(note.event, note.publication, note.since_ns, now_ns)
        else:
            self._hops.note(note, now_ns)

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """The peer has received events."""
        self._hops.acknowledged(report, now_ns)

    def handed_over(self, report: HandedOver) -> None:
        """A client has handed events to its application."""
        for event in report.events:
            self._add(
                "deliveries",
                {
                    "publisher": f"{event.publisher}/{event.epoch}",
                    "sequence": event.sequence,
                    "subscription": self._subscriptions.name_of(report.client, event.subscription),
                    "broker": self._name,
                    "arrived_ns": event.departure_ns + event.arrived_ns,
                    "delivered_ns": event.departure_ns + event.age_ns,
                },
            )

    def stored(self, writes: Mapping[str, bytes | None], now_ns: int) -> None:
        """Subscriptions are identified by their key in the durable store."""
        for key, record in writes.items():
            if key.startswith("subscription/"):
                self._subscriptions.note(key, None if record is None else value_of(record), now_ns)

    def tick(self) -> None:
        """Check the links, and roll the files that are old enough."""
        now_ns = self._node.driver.clock.now_ns()
        for name, peer in self._node.machine.neighbours.items():
            if self._links_up.get(name) != peer.is_up and (peer.is_up or name in self._links_up):
                self._links_up[name] = peer.is_up
                self._transition("link", name, now_ns, up=peer.is_up)
        self._hops.tick(now_ns)
        if self._subscriptions.has_changed:
            self._thread.submit(self._subscriptions.write, self._subscriptions.taken(), self._sample)
        if self._count >= self._roll_rows or time.monotonic() - self._began_s >= self._roll_age_s:
            self._roll()

    def close(self) -> None:
        """Write the remaining rows."""
        self.tick()
        self._roll()
        self._thread.shutdown(wait=True)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _accepted(self, event: EventId, publication: wire.Publication | None, departure_ns: int, now_ns: int) -> None:
        assert publication is not None
        attributes = wire.decode_attributes(publication.content)
        publisher = _publisher(event)
        self._add(
            "publications",
            {
                "publisher": publisher,
                "sequence": event[2],
                "departure_ns": departure_ns,
                "broker": self._name,
                "size_bytes": publication.size_bytes,
                "lifetime_ns": publication.lifetime_ns,
                "attributes": attributes,
            },
        )
        self._add("hops", _hop_row(event, None, self._name, departure_ns, departure_ns, now_ns, "received"))

    def _end(self, event: EventId, peer: str, hop: Hop, at_ns: int, outcome: str) -> None:
        if peer in self._node.network.links[self._name]:
            received_ns = at_ns if outcome == "received" else None
            named = OUTCOMES.get(outcome, outcome)
            self._add("hops", _hop_row(event, self._name, peer, hop.enqueued_ns, hop.sent_ns, received_ns, named))

    def _transition(self, kind: str, target: str | None, at_ns: int, *, up: bool) -> None:
        self._add("transitions", {"kind": kind, "source": self._name, "target": target, "at_ns": at_ns, "up": up})

    def _add(self, table: str, row: dict[str, Any]) -> None:
        self._rows.setdefault(table, []).append(row)
        self._count += 1

    def _roll(self) -> None:
        rows, self._rows = self._rows, {}
        self._count, self._began_s = 0, time.monotonic()
        for table, found in rows.items():
            self._files += 1
            name = f"part-{self._name}-{self._node.machine.epoch}-{self._files:06}"
            self._thread.submit(self._write, table, name, found)

    def _write(self, table: str, name: str, rows: list[dict[str, Any]]) -> None:
        try:
            write_rows(self.directory, table, name, rows, self._sample)
        except OSError as error:
            self._node.log.error("trace not written", table=table, rows=len(rows), why=str(error))


def _publisher(event: EventId) -> str:
    return f"{event[0]}/{event[1]}"


def _hop_row(
    event: EventId,
    source: str | None,
    target: str,
    enqueued_ns: int,
    sent_ns: int | None,
    received_ns: int | None,
    outcome: str,
) -> dict[str, Any]:
    return {
        "publisher": _publisher(event),
        "sequence": event[2],
        "source": source,
        "target": target,
        "enqueued_ns": enqueued_ns,
        "sent_ns": sent_ns,
        "received_ns": received_ns,
        "began_ns": received_ns,
        "ended_ns": received_ns,
        "outcome": outcome,
    }
