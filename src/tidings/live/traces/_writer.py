"""Traces of a live broker in the format of the contract (model/trace.py), rolled to Parquet by size and age.

Each broker writes what it saw (`_recorder`), in files of its own, so that the files of all brokers together are the
trace:

- publications that it accepted, and their hop from the publisher (source NULL);
- hops that it sent;
- deliveries to its clients, as they report them (`Given`): departure and age, so these rows do not mix clocks either,
  and an event is on time in the trace exactly if its application got it on time;
- its clients' subscriptions, in one file that is replaced when they change; its links, once; when it and its links were
  up.

A publisher is named `name/epoch`, since sequence numbers start again with every epoch of a client. A thread writes the
files. A broker that is killed loses the rows of its last `roll_age`.
"""

import concurrent.futures
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.live.traces._subscription_rows import SubscriptionRows
from tidings.live.traces._trace_files import write_rows
from tidings.protocol import EventId, HandedOver

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["TraceWriter"]


class TraceWriter:
    """The files of one broker's trace."""

    def __init__(self, node: "BrokerNode", since_ns: int) -> None:
        settings = node.network.document.trace
        assert settings is not None
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
            self.transition("broker", None, since_ns, up=False)
        self.transition("broker", None, now_ns, up=True)

    # -- what happens ----------------------------------------------------------------------------------------------

    def accept(
        self,
        event: EventId,
        departure_ns: int,
        accepted_ns: int,
        size_bytes: int,
        lifetime_ns: int | None,
        attributes: Mapping[str, Any],
    ) -> None:
        """A client's event was accepted here."""
        self._add(
            "publications",
            {
                "publisher": _publisher(event),
                "sequence": event[2],
                "departure_ns": departure_ns,
                "broker": self._name,
                "size_bytes": size_bytes,
                "lifetime_ns": lifetime_ns,
                "attributes": attributes,
            },
        )
        self._add("hops", _hop_row(event, None, self._name, departure_ns, departure_ns, accepted_ns, "received"))

    def hop(
        self,
        event: EventId,
        peer: str,
        enqueued_ns: int,
        sent_ns: int | None,
        received_ns: int | None,
        outcome: str,
    ) -> None:
        """An event's way to a neighbour has ended."""
        self._add("hops", _hop_row(event, self._name, peer, enqueued_ns, sent_ns, received_ns, outcome))

    def hand_over(self, report: HandedOver) -> None:
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

    def subscribe(self, key: str, value: bytes | None, now_ns: int) -> None:
        """A subscription was stored under this key, or erased."""
        self._subscriptions.note(key, value, now_ns)

    def transition(self, kind: str, target: str | None, at_ns: int, *, up: bool) -> None:
        """This broker, or its link to another one, works from now on, or no longer."""
        self._add("transitions", {"kind": kind, "source": self._name, "target": target, "at_ns": at_ns, "up": up})

    def tick(self) -> None:
        """Roll the files that are old enough."""
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
