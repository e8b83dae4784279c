"""The status of a broker, for `tidings status` and Prometheus.

A broker keeps the accounts of its own clients' subscriptions (`protocol/broker/_accounts`). It also knows the
subscriptions of clients at other brokers, whether or not those brokers answer.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.live.operations._history import network_history
from tidings.live.operations._verdict import trees_of, verdict_of
from tidings.protocol import NOTHING, qualified_name, quantile_ns

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Balance, Broker, Histogram, MoveSeen, Peer, Purse

__all__ = ["Load", "Snapshots", "answer_status", "network_status", "overview", "snapshot", "subscribers_of"]

_EVERY_S: Final = 1.0
_DROPPED: Final = ("expired", "hopeless", "full")
SUBSCRIBERS_MAX: Final = 1_000
"""How many subscriptions of a broker are listed, those with the lowest on-time share first."""
RANKED_MAX: Final = 4_000
"""They are the worst of this many subscriptions that missed something, most recent first."""
MOVES_MAX: Final = 100
"""How many moves under way from a broker are listed, the oldest first."""
ELSEWHERE_MAX: Final = 4_000
"""How many subscriptions at brokers that are down one answer lists."""
COST_SHARE: Final = 0.05
"""The largest share of its time that a broker spends on its status, however often it is asked."""


BUDGETS_MAX: Final = 20
"""How many clients are listed with their use of resources."""
CLIENTS_MAX: Final = 1_000
"""They are chosen from this many candidates of each kind."""


class Load:
    """The load of the process: the share of a core that it used in the last second."""

    def __init__(self) -> None:
        self.utilisation = 0.0

    async def measure(self, then: Callable[[], None]) -> None:
        """Measure every second, and call `then` after each."""
        used_s, at_s = time.process_time(), time.monotonic()
        while True:
            await asyncio.sleep(_EVERY_S)
            now_used_s, now_s = time.process_time(), time.monotonic()
            self.utilisation = (now_used_s - used_s) / (now_s - at_s)
            used_s, at_s = now_used_s, now_s
            then()


def answer_status(node: "BrokerNode", detail: bytes) -> bytes:
    """The status as JSON; or, if `detail` names other brokers, their subscriptions as far as they are known here."""
    if not detail:
        return node.snapshots.encoded()
    try:
        asked = msgspec.msgpack.decode(detail, type=list[str])
    except msgspec.MsgspecError:
        asked = []
    known = [name for name in dict.fromkeys(asked) if name in node.machine.gossip.interests]
    most = ELSEWHERE_MAX // max(len(known), 1)
    return msgspec.json.encode({"elsewhere": {name: _elsewhere(node.machine, name, most) for name in known}})


class Snapshots:
    """The status of one broker for any number of readers; computing it takes at most COST_SHARE of the time.

    The figures of a subscription are computed when its account has changed, or when a minute ago it was another.
    """

    def __init__(self, node: "BrokerNode") -> None:
        self.rows: dict[str, _Row] = {}
        """By subscription: the last figures of those that were looked at for the last status."""
        self._node = node
        self._found: dict[str, Any] = {}
        self._encoded = b""
        self._until_s = 0.0

    def encoded(self) -> bytes:
        """The status as JSON, at most a little old."""
        self.latest()
        return self._encoded

    def latest(self) -> dict[str, Any]:
        """The complete status, at most a little old."""
        began_s = time.monotonic()
        if began_s >= self._until_s:
            self._found = snapshot(self._node)
            self._encoded = msgspec.json.encode(self._found)
            now_s = time.monotonic()
            self._until_s = now_s + (now_s - began_s) / COST_SHARE
        return self._found


class _Row:
    """The figures of one subscription, now and a minute ago."""

    __slots__ = ("before", "figures", "last_minute", "share", "under_way", "whole")

    def __init__(self, whole: "Balance", before: "Balance") -> None:
        self.whole = whole
        self.before = before
        recent = whole.share_since(before)
        self.share = whole.on_time_share if recent is None else recent
        self.under_way = whole.under_way
        self.figures: dict[str, Any] | None = None  # of those that are listed
        self.last_minute: dict[str, Any] | None = None

    def listed(self) -> "dict[str, Any]":
        """The figures since the start."""
        if self.figures is None:
            self.figures = _figures(self.whole)
            self.last_minute = _figures(self.whole.since(self.before))
        return self.figures


def snapshot(node: "BrokerNode") -> dict[str, Any]:
    """The complete status; times in seconds."""
    return {**overview(node), **_subscribers(node.machine, node.snapshots), **node.history.facts()}


def overview(node: "BrokerNode") -> dict[str, Any]:
    """The broker as a whole; times in seconds."""
    machine = node.machine
    machine.accounts.look()
    sent, counts = machine.carrier.dispatch.events_out, machine.counts
    dropped = sum(counts[reason] for reason in _DROPPED)
    laden = [*machine.laden_clients(), *machine.neighbours.values()]
    return {
        "name": node.name,
        "epoch": machine.epoch,
        "up_s": node.up_s,
        "ready": machine.is_ready,
        "draining": node.is_draining,
        "strategy": machine.settings.strategy.name,
        "utilisation": round(node.load.utilisation, 4),
        "neighbours": {name: _peer(peer) for name, peer in sorted(machine.neighbours.items())},
        "absent": sorted(machine.settings.neighbours - machine.neighbours.keys()),
        "clients": len(machine.clients),
        "clients_connected": len(machine.clients_up),
        "queued": sum(peer.outbox.queued for peer in laden),
        "under_way": sum(peer.outbox.under_way for peer in laden),
        "subscriptions": len(machine.gossip.local),
        "subscriptions_elsewhere": len(machine.gossip.interests),
        "stored": len(machine.carrier.holdings),
        "parked": {
            home: {"events": each.events, "bytes": each.size_bytes, "oldest_s": round(each.oldest_ns * 1e-9, 3)}
            for home, each in machine.parked().items()
        },
        "copies": _copies(machine),
        "moves": _moves(machine),
        "budgets": _budgets(node),
        "seen": len(machine.carrier.memory),
        "sent": dict(machine.sent),
        "transfers": sent,
        "dropped": dropped,
        "left_in_time": _share(sent, dropped),
        "deliveries": {
            **_figures(machine.accounts.total),
            "interval": _intervals([machine.accounts.batches()])[0],
            "last_minute": _figures(machine.accounts.last_minute()),
        },
        "counts": dict(counts),
        "refused": dict(machine.refused),
        "store": {
            "bytes": node.store.used_bytes,
            "commits": node.committer.commits,
            "commit_s": round(node.committer.commit_s, 6),
            "full": node.driver.node.is_full,
            "damaged": sum(node.driver.node.damaged.values()),
        },
        "spans": None
        if node.spans is None
        else {"exported": node.spans.exported, "dropped": node.spans.dropped, "queued": node.spans.queued},
    }


def _budgets(node: "BrokerNode") -> dict[str, Any]:
    """What all clients use together, and the clients that use the largest share of their budget."""
    machine, purse_of = node.machine, node.driver.node.purse_of
    most = heapq.nlargest(
        BUDGETS_MAX,
        _taking(node),
        key=lambda peer: (_share_taken(machine, peer), _held_back(purse_of(peer.connection))),
    )
    rows = [_budget(machine, peer, purse_of(peer.connection)) for peer in most]
    return {
        "stored_bytes": machine.carrier.holdings.size_bytes,
        "stored_bytes_most": machine.settings.max_stored_bytes,
        "requests_share_most": node.driver.node.requests.share,
        "requests_waiting": len(node.driver.node.requests),
        "held_back": machine.counts["held back"],
        "refused": machine.refused["budget"],
        "clients": [row for row in rows if row["share"] or row["held_back"]],
    }


def _taking(node: "BrokerNode") -> "list[Peer]":
    """The clients that may use most: all if they are few; otherwise some of those that have events waiting, have costly
    or many filters, or were held back."""
    machine = node.machine
    if len(machine.clients) <= CLIENTS_MAX:
        return list(machine.clients.values())
    laden = (peer.name for peer in machine.laden_clients())
    kinds = (laden, machine.registry.costliest(), reversed(node.driver.node.held_back.values()))
    names = dict.fromkeys(name for kind in kinds for name in islice(kind, CLIENTS_MAX))
    return [machine.clients[name] for name in names if name in machine.clients]


def _share_taken(machine: "Broker", peer: "Peer") -> float:
    """The larger of the shares that a client uses of its budgets for bytes and for filters."""
    budget = peer.budget
    queued_bytes, matching_us = peer.outbox.queue.size_bytes, machine.registry.matching_us(peer.name)
    return round(max(queued_bytes / budget.queued_bytes, matching_us / budget.matching_us), 4)


def _held_back(purse: "Purse | None") -> int:
    return 0 if purse is None else purse.was_held_back


def _budget(machine: "Broker", peer: "Peer", purse: "Purse | None") -> dict[str, Any]:
    """What one client uses, and its budget."""
    matching_us, budget = machine.registry.matching_us(peer.name), peer.budget
    return {
        "client": peer.name,
        "share": _share_taken(machine, peer),
        "queued_bytes": peer.outbox.queue.size_bytes,
        "queued_bytes_most": budget.queued_bytes,
        "under_way_bytes": peer.outbox.window.size_bytes,
        "under_way_bytes_most": machine.settings.max_under_way_bytes,
        "matching_us": round(matching_us, 1),
        "matching_us_most": budget.matching_us,
        "rate_per_s_most": budget.rate_per_s,
        "bytes_per_s_most": budget.bytes_per_s,
        "reading_share_most": budget.reading_share,
        "held_back": _held_back(purse),
        "held_back_s": 0.0 if purse is None else round(purse.held_back_ns * 1e-9, 3),
    }


def _copies(machine: "Broker") -> dict[str, Any] | None:
    """Who keeps the second copies of a broker's events, how many wait for one, and how many it keeps for others."""
    copies = machine.copies
    if not copies.is_on:
        return None
    keeper = None if copies.keeper is None else copies.keeper.name
    return {"keeper": keeper, "waiting": copies.unconfirmed, "kept_for": copies.owners()}


def _peer(peer: "Peer") -> dict[str, Any]:
    return {
        "up": peer.is_up,
        "queued": peer.outbox.queued,
        "under_way": peer.outbox.under_way,
        "rtt_s": None if peer.meter.rtt_ns is None else round(peer.meter.rtt_ns * 1e-9, 6),
        "mean_s_per_kb": peer.meter.mean_s_per_kb,
    }


def _moves(machine: "Broker") -> dict[str, Any]:
    """Moves of clients away from here: those under way and the last completed ones; counts are since the start."""
    seen = machine.moves()
    return {
        "asked": seen.asked,
        "done": seen.done,
        "called_off": seen.called_off,
        "moving": len(seen.under_way),
        "under_way": [
            _move(move, machine.name) | {"phase_s": _seconds(seen.now_ns - move.phase_ns)}
            for move in seen.under_way[:MOVES_MAX]
        ],
        "recent": [
            _move(move, machine.name)
            | {"why": move.why, "took_s": _seconds(move.phase_ns - move.since_ns)}
            | {"ago_s": _seconds(seen.now_ns - move.phase_ns)}
            for move in seen.recent
        ],
    }


def _move(move: "MoveSeen", home: str) -> dict[str, Any]:
    return {"client": move.client, "from": home, "to": move.target, "by": move.by, "phase": move.phase}


def _seconds(duration_ns: int) -> float:
    return round(duration_ns * 1e-9, 3)


def _subscribers(machine: "Broker", snapshots: Snapshots) -> dict[str, Any]:
    """The subscriptions here with their accounts, worst first."""
    accounts, total = machine.accounts.balances(), len(machine.gossip.local)
    found, known, rows = [], snapshots.rows, {}
    nothing = _Row(NOTHING, NOTHING)
    for client, label in _shown(machine, total):
        account, row, since_s = accounts.get(label), nothing, None
        if account is not None:
            whole, before = account.known, machine.accounts.minute_ago(account)
            last = known.get(label)
            is_same = last is not None and last.whole is whole and last.before is before
            row = rows[label] = last if last is not None and is_same else _Row(whole, before)
            since_s = round(machine.accounts.age_ns(account) * 1e-9, 1)
        found.append((_rank(row.share, row.under_way, label), client, machine.clients[client], since_s, row))
    snapshots.rows = rows
    found = nsmallest(SUBSCRIBERS_MAX, found, key=lambda each: each[0])
    shown = [accounts.get(rank[-1]) for rank, *_ in found]
    intervals = _intervals([[] if account is None else machine.accounts.batches(account) for account in shown])
    return {
        "subscribers": [
            {
                "subscription": rank[-1],
                "client": client,
                "connected": peer.is_up,
                "queued": peer.outbox.queued,
                "max_delay_s": _deadline_s(machine, client, rank[-1]),
                "since_s": since_s,
                **row.listed(),
                "interval": interval,
                "last_minute": row.last_minute,
            }
            for (rank, client, peer, since_s, row), interval in zip(found, intervals, strict=True)
        ],
        "subscribers_left_off": max(total - SUBSCRIBERS_MAX, 0),
    }


def _deadline_s(machine: "Broker", client: str, label: str) -> float | None:
    entry = machine.gossip.local.of(client).get(label.removeprefix(qualified_name(client, "")))
    return None if entry is None or entry.max_delay_ns is None else entry.max_delay_ns * 1e-9


def _shown(machine: "Broker", total: int) -> Iterator[tuple[str, str]]:
    """The client and name of each subscription to list. If there are too many: those that missed something (RANKED_MAX,
    the most recent), and as many others as there is room for."""
    lacking = machine.accounts.lacking if total > SUBSCRIBERS_MAX else {}
    last = ((lacking[label].client, label) for label in islice(reversed(lacking), RANKED_MAX))
    yield from (each for each in last if each[0] in machine.clients)
    every = (
        (client, qualified_name(client, name)) for client in machine.clients for name in machine.gossip.local.of(client)
    )
    others = (each for each in every if each[1] not in lacking)
    yield from others if total <= SUBSCRIBERS_MAX else islice(others, max(SUBSCRIBERS_MAX - len(lacking), 0))


def _rank(share: float | None, under_way: int | None, label: str) -> tuple[bool, float, int, str]:
    """Worst first: by the on-time share of the last minute or, if nothing was settled in it, since the start; where
    neither is known, those with waiting events come first."""
    return share is None, share or 0.0, -(under_way or 0), label


def _intervals(rows: "list[list[tuple[int, int]]]") -> list[dict[str, Any] | None]:
    """The interval of each share since the start, from what was settled and on time in batches of time; None where
    there are too few. Rows with few events are taken to be as clustered as the others."""
    found: list[dict[str, Any] | None] = [None] * len(rows)
    if max(map(len, rows), default=0) < 2:  # a broker that has just started does not load SciPy for this
        return found
    import numpy as np

    from tidings.statistics import BATCHES_LEAST, reliability_intervals

    known = [number for number, row in enumerate(rows) if len(row) >= BATCHES_LEAST]
    settled, on_time = (np.zeros((max(map(len, rows)), len(known))) for _ in range(2))
    for place, number in enumerate(known):
        for batch, (many, good) in enumerate(rows[number]):
            settled[batch, place], on_time[batch, place] = many, min(max(good, 0), many)
    for number, interval in zip(known, reliability_intervals(on_time, settled), strict=True):
        if interval is not None:
            found[number] = {
                "low": round(interval.low, 6),
                "high": round(interval.high, 6),
                "effective_events": round(interval.effective_events, 1),
                "is_rough": interval.is_rough,
            }
    return found


def _figures(balance: "Balance") -> dict[str, Any]:
    """An account for display; times in milliseconds."""
    share = balance.on_time_share
    return {
        "matched": balance.matched,
        "on_time": balance.on_time,
        "late": balance.late,
        "dropped": balance.dropped,
        "dropped_by": dict(sorted(balance.dropped_by.items())),
        "replaced": balance.replaced,
        "lost": balance.lost,
        "under_way": balance.under_way,
        "out_of_order": balance.out_of_order,
        "on_time_reliability": None if share is None else round(share, 6),
        "delay_ms_p50": _ms(balance.delays, 0.5),
        "delay_ms_p99": _ms(balance.delays, 0.99),
        "hold_ms_p99": _ms(balance.holds, 0.99),
    }


def _ms(histogram: "Histogram", share: float) -> float | None:
    found_ns = quantile_ns(histogram, share)
    return None if found_ns is None else round(found_ns * 1e-6, 3)


def _elsewhere(machine: "Broker", broker: str, most: int) -> dict[str, Any]:
    """The subscriptions at another broker, as last known; their accounts are unknown."""
    known = machine.subscribers_at(broker)
    unknown = dict.fromkeys(("queued", "max_delay_s", "since_s", *_figures(NOTHING), "interval", "last_minute"))
    found = [
        {"subscription": label, "client": client, "connected": False, **unknown}
        for label, client in islice(known.subscriptions.items(), most)
    ]
    left_off = known.left_off + len(known.subscriptions) - len(found)
    return {"subscribers": found, "subscribers_left_off": left_off}


def network_status(brokers: "list[dict[str, Any]]", *, file: str = "network.toml") -> dict[str, Any]:
    """The status of the network as `tidings status --json` prints it: the verdict, the last 15 minutes, the paths of
    events, its brokers and all subscribers. Commands in the verdict name the network's file."""
    rows = [{key: value for key, value in broker.items() if key != "subscribers"} for broker in brokers]
    status = {"brokers": rows, "subscribers": subscribers_of(brokers)}
    return {
        "verdict": verdict_of(status, file=file),
        "history": network_history(rows),
        "trees": trees_of(rows),
        **status,
    }


def subscribers_of(brokers: "list[dict[str, Any]]") -> dict[str, dict[str, Any]]:
    """By subscription, `client/name`: its account, its home broker, and whether it is reachable there; worst first.

    The subscriptions at a broker that is down are affected, and their figures are unknown.
    """
    rows = [
        {"broker": broker["name"], "affected": not broker["up"], **each}
        for broker in brokers
        for each in broker["subscribers"]
    ]
    # A client that has moved may be listed twice: the broker it is connected to counts.
    rows.sort(key=lambda row: (not row["affected"], row["connected"]))
    last = {row["subscription"]: row for row in rows}
    return {row.pop("subscription"): row for row in sorted(last.values(), key=_rank_of)}


def _rank_of(row: dict[str, Any]) -> tuple[Any, ...]:
    recent = None if row["last_minute"] is None else row["last_minute"]["on_time_reliability"]
    share = row["on_time_reliability"] if recent is None else recent
    return not row["affected"], _rank(share, row["under_way"], row["subscription"])


def _share(good: int, bad: int) -> float | None:
    return None if good + bad == 0 else round(good / (good + bad), 6)
