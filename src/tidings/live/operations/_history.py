"""The last 15 minutes of a broker's figures, its publishers, and who has been silent for how long.

A broker takes one row every EVERY_S, at multiples of that by the wall clock, so that the rows of several brokers can
be added up (`network_history`). Counts of a row are those of the `span_s` before it; queues are those at its time; the
utilisation is the mean over the span. At most ROWS_MAX rows are kept, of at most LINKS_MAX links, so the memory is
bounded. A row costs one look at the accounts and one at each client.
"""

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidings.protocol import quantile_ns

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Balance, Broker

__all__ = ["EVERY_S", "ROWS_MAX", "History", "network_history"]

EVERY_S: Final = 5
ROWS_MAX: Final = 180
LINKS_MAX: Final = 100
"""How many links of a broker have a history, the first by name."""
PUBLISHERS_MAX: Final = 1_000
"""Of how many publishers of a broker the rate is known: those that have published most."""
PUBLISHERS_SHOWN: Final = 100
RATE_ROWS: Final = 6
"""The rate of a publisher is that of so many rows."""
AWAY_MAX: Final = 1_000
SILENT_NS: Final = 3_000_000_000
"""A neighbour that was not heard for so long is reported as silent, even before its link counts as down."""

_COUNTS: Final = ("published", "delivered", "on_time", "late", "dropped", "lost")
_COLUMNS: Final = ("at_s", "span_s", *_COUNTS, "queued", "utilisation", "delay_ms_p50", "delay_ms_p99")


class History:
    """The history of one broker; `look` is called about once a second."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=ROWS_MAX)
        self._links: dict[str, deque[int]] = {}
        self._published: deque[tuple[float, dict[str, int]]] = deque(maxlen=RATE_ROWS + 1)
        self._before: tuple[float, int, Balance] | None = None  # when, events published, accounts
        self._used: list[float] = []

    def look(self, at_s: float | None = None) -> None:
        """Take a row if one is due; `at_s` is the wall clock."""
        at_s = time.time() if at_s is None else at_s
        machine = self._node.machine
        self._used.append(self._node.load.utilisation)
        before = self._before
        if before is not None and at_s // EVERY_S == before[0] // EVERY_S:
            return
        machine.accounts.look()
        total, published = machine.accounts.total, machine.published
        self._before = (at_s, published, total)
        self._note_publishers(machine, at_s)
        if before is not None and at_s > before[0]:
            self._rows.append(self._row(machine, at_s, before))
            self._note_links(machine)
        self._used.clear()

    def _row(self, machine: "Broker", at_s: float, before: tuple[float, int, "Balance"]) -> tuple[Any, ...]:
        before_s, published, balance = before
        change = machine.accounts.total.since(balance)
        outboxes = [peer.outbox for peer in (*machine.laden_clients(), *machine.neighbours.values())]
        counts = (
            machine.published - published,
            change.on_time + change.late,
            change.on_time,
            change.late,
            max(change.dropped, 0),  # a drop may be taken back
            change.lost,
        )
        return (
            round(at_s, 1),
            round(at_s - before_s, 1),
            *counts,
            sum(outbox.queued for outbox in outboxes),
            round(sum(self._used) / len(self._used), 3),
            *(_ms(quantile_ns(change.delays, share)) for share in (0.5, 0.99)),
        )

    def _note_links(self, machine: "Broker") -> None:
        """The queue of each link, beside the rows; a link that is new was empty before."""
        for name in [name for name in self._links if name not in machine.neighbours]:
            del self._links[name]
        for name in sorted(machine.neighbours):
            if name not in self._links and len(self._links) < LINKS_MAX:
                self._links[name] = deque([0] * (len(self._rows) - 1), maxlen=ROWS_MAX)
        for name, queued in self._links.items():
            queued.append(machine.neighbours[name].outbox.queued)

    def _note_publishers(self, machine: "Broker", at_s: float) -> None:
        found = [peer for peer in machine.clients.values() if peer.published]
        if len(found) > PUBLISHERS_MAX:
            found = nlargest(PUBLISHERS_MAX, found, key=lambda peer: peer.published)
        self._published.append((at_s, {peer.name: peer.published for peer in found}))

    def facts(self) -> dict[str, Any]:
        """For the status: the history as columns, publishers by rate, and who is away for how long."""
        machine, now_ns = self._node.machine, self._node.driver.clock.now_ns()
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in _COLUMNS)
        silent = {
            name: peer.heard_ns
            for name, peer in machine.neighbours.items()
            if not peer.is_up or now_ns - peer.heard_ns > SILENT_NS
        }
        away = islice((name for name in machine.clients if name not in machine.clients_up), AWAY_MAX)
        rows = self._publishers(machine)
        return {
            "address": str(self._node.entry.reached_at),
            "published": machine.published,
            "publishers": rows[:PUBLISHERS_SHOWN],
            "publishers_left_off": max(len(rows) - PUBLISHERS_SHOWN, 0),
            "silent_s": {name: _ago_s(now_ns, heard_ns) for name, heard_ns in silent.items()},
            "away_s": {name: _ago_s(now_ns, machine.clients[name].heard_ns) for name in away},
            "history": {
                **dict(zip(_COLUMNS, map(list, columns), strict=True)),
                "links": {name: list(queued) for name, queued in self._links.items()},
            },
        }

    def _publishers(self, machine: "Broker") -> list[dict[str, Any]]:
        """Clients that have published, the busiest first; the rate is of the last RATE_ROWS rows."""
        if not self._published:
            return []
        (first_s, first), (last_s, last) = self._published[0], self._published[-1]
        span_s = max(last_s - first_s, EVERY_S)
        found = []
        for name, many in last.items():
            peer = machine.clients.get(name)
            if peer is not None:
                rate = round((many - min(first.get(name, 0), many)) / span_s, 2)
                reached = None if peer.course is None else peer.course.subscriptions
                found.append({"client": name, "connected": peer.is_up, "rate_per_s": rate})
                found[-1] |= {"published": peer.published, "subscriptions": reached}
        return sorted(found, key=lambda row: (-row["rate_per_s"], row["client"]))


def _ms(duration_ns: float | None) -> float | None:
    return None if duration_ns is None else round(duration_ns * 1e-6, 3)


def _ago_s(now_ns: int, then_ns: int) -> float | None:
    """None: it was never heard."""
    return round((now_ns - then_ns) * 1e-9, 1) if then_ns else None


def network_history(brokers: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The histories of all brokers added up, by multiples of EVERY_S.

    Quantiles of delays cannot be added: `delay_ms_p50` is the mean of the brokers' medians, weighted by deliveries, and
    `delay_ms_p99` that of the slowest broker. The last moment is left out until all brokers that have a history report
    it.
    """
    moments: dict[int, list[dict[str, Any]]] = defaultdict(list)
    last = set[int]()
    for broker in brokers:
        history = broker.get("history") or {"at_s": ()}
        for number, at_s in enumerate(history["at_s"]):
            moments[int(at_s // EVERY_S)].append({key: history[key][number] for key in _COLUMNS})
        if history["at_s"]:
            last.add(int(history["at_s"][-1] // EVERY_S))
    newest = max(last, default=0)
    if len(last) > 1 and newest - min(last) == 1:
        del moments[newest]
    found = [(moment * EVERY_S, *_added_up(moments[moment])) for moment in sorted(moments)[-ROWS_MAX:]]
    names = ("at_s", "published_per_s", "delivered_per_s", "on_time_reliability", "queued", "delay_ms_p50")
    columns = zip(*found, strict=True) if found else ([] for _ in range(len(names) + 1))
    return dict(zip((*names, "delay_ms_p99"), map(list, columns), strict=True))


def _added_up(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    settled = sum(row[key] for row in rows for key in ("delivered", "dropped", "lost"))
    known = [row for row in rows if row["delivered"] and row["delay_ms_p50"] is not None]
    weight = sum(row["delivered"] for row in known)
    return (
        *(round(sum(row[key] / row["span_s"] for row in rows), 2) for key in ("published", "delivered")),
        round(sum(row["on_time"] for row in rows) / settled, 6) if settled > 0 else None,
        sum(row["queued"] for row in rows),
        round(sum(row["delay_ms_p50"] * row["delivered"] for row in known) / weight, 3) if known else None,
        max((row["delay_ms_p99"] for row in known), default=None),
    )
