"""What a broker tells of itself: whoever asks with `tidings status`, and Prometheus.

A broker keeps the accounts of its clients' subscriptions (`protocol/broker/_accounts`). Of clients at other brokers it
knows that they subscribe there, whether or not those brokers answer.
"""

import asyncio
import heapq
import time
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.protocol import NOTHING, quantile_ns, told_name

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Balance, Broker, Histogram, MoveSeen, Peer, Purse

__all__ = ["Load", "Snapshots", "answer_status", "network_status", "overview", "snapshot", "subscribers_of"]

_EVERY_S: Final = 1.0
_DROPPED: Final = ("expired", "hopeless", "full")
SUBSCRIBERS_MAX: Final = 1_000
"""So many subscriptions of a broker are shown one by one, those with the least share on time first."""
RANKED_MAX: Final = 4_000
"""They are the worst of so many that did not get everything on time, those that something happened to last."""
MOVES_MAX: Final = 100
"""So many moves under way from a broker are shown one by one, the oldest first."""
ELSEWHERE_MAX: Final = 4_000
"""So many subscriptions at brokers that are down are told of in one answer."""
COST_SHARE: Final = 0.05
"""So much of its time a broker spends on its status at most, whoever asks for it how often."""


BUDGETS_MAX: Final = 20
"""So many clients are shown with what they take."""
CLIENTS_MAX: Final = 1_000
"""They are found among so many of each kind that may take much."""


class Load:
    """How busy the process is: the share of a processor that it used in the last second."""

    def __init__(self) -> None:
        self.utilisation = 0.0

    async def measure(self) -> None:
        """Measure, second after second."""
        used_s, at_s = time.process_time(), time.monotonic()
        while True:
            await asyncio.sleep(_EVERY_S)
            now_used_s, now_s = time.process_time(), time.monotonic()
            self.utilisation = (now_used_s - used_s) / (now_s - at_s)
            used_s, at_s = now_used_s, now_s


def answer_status(node: "BrokerNode", detail: bytes) -> bytes:
    """The status as JSON; or, if `detail` names other brokers, who subscribes there as far as it is known here."""
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
    """The status of one broker, however many ask for it: it is made anew when that takes COST_SHARE of the time."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._encoded = b""
        self._until_s = 0.0

    def encoded(self) -> bytes:
        """The status as JSON, of now or a little before."""
        began_s = time.monotonic()
        if began_s >= self._until_s:
            self._encoded = msgspec.json.encode(snapshot(self._node))
            now_s = time.monotonic()
            self._until_s = now_s + (now_s - began_s) / COST_SHARE
        return self._encoded


def snapshot(node: "BrokerNode") -> dict[str, Any]:
    """Everything that is known now; times in seconds."""
    return {**overview(node), **_subscribers(node.machine)}


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
    }


def _budgets(node: "BrokerNode") -> dict[str, Any]:
    """What all clients take together, and those that take the largest share of what they may."""
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
    """The clients that may take most: all if they are few, else some of those that something waits for, whose filters
    cost much or are many, or who were held back."""
    machine = node.machine
    if len(machine.clients) <= CLIENTS_MAX:
        return list(machine.clients.values())
    laden = (peer.name for peer in machine.laden_clients())
    kinds = (laden, machine.registry.dearest(), reversed(node.driver.node.held_back.values()))
    names = dict.fromkeys(name for kind in kinds for name in islice(kind, CLIENTS_MAX))
    return [machine.clients[name] for name in names if name in machine.clients]


def _share_taken(machine: "Broker", peer: "Peer") -> float:
    """The larger share of what the bytes and the filters of a client may take."""
    budget = peer.budget
    queued_bytes, matching_us = peer.outbox.queue.size_bytes, machine.registry.matching_us(peer.name)
    return round(max(queued_bytes / budget.queued_bytes, matching_us / budget.matching_us), 4)


def _held_back(purse: "Purse | None") -> int:
    return 0 if purse is None else purse.was_held_back


def _budget(machine: "Broker", peer: "Peer", purse: "Purse | None") -> dict[str, Any]:
    """What one client takes, and may take."""
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
    """Who keeps the second copies of a broker's events, how many wait for theirs, and for whom it keeps how many."""
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
    """The moves of clients from here, those under way and the last that are over; counts are since the start."""
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


def _subscribers(machine: "Broker") -> dict[str, Any]:
    """The subscriptions here with their accounts, worst first."""
    accounts, total = machine.accounts.balances(), len(machine.gossip.local)
    found = []
    for client, told in _shown(machine, total):
        account, peer = accounts.get(told), machine.clients[client]
        whole = NOTHING if account is None else account.known
        before = NOTHING if account is None else machine.accounts.minute_ago(account)
        rank = _rank(whole.share_since(before), whole.on_time_share, whole.under_way, told)
        since_s = None if account is None else round(machine.accounts.age_ns(account) * 1e-9, 1)
        found.append((rank, client, peer, since_s, whole, before))
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
                "since_s": since_s,
                **_figures(whole),
                "interval": interval,
                "last_minute": _figures(whole.since(before)),
            }
            for (rank, client, peer, since_s, whole, before), interval in zip(found, intervals, strict=True)
        ],
        "subscribers_left_off": max(total - SUBSCRIBERS_MAX, 0),
    }


def _shown(machine: "Broker", total: int) -> Iterator[tuple[str, str]]:
    """The client and the name of each subscription that may have to be shown: where there are more than can be, those
    that lack something (RANKED_MAX, the last that something happened to), and so many others as there is room for."""
    lacking = machine.accounts.lacking if total > SUBSCRIBERS_MAX else {}
    last = ((lacking[told].client, told) for told in islice(reversed(lacking), RANKED_MAX))
    yield from (each for each in last if each[0] in machine.clients)
    every = (
        (client, told_name(client, name)) for client in machine.clients for name in machine.gossip.local.of(client)
    )
    others = (each for each in every if each[1] not in lacking)
    yield from others if total <= SUBSCRIBERS_MAX else islice(others, max(SUBSCRIBERS_MAX - len(lacking), 0))


def _rank(recent: float | None, whole: float | None, under_way: int | None, told: str) -> tuple[bool, float, int, str]:
    """Worst first: by the share on time of the last minute, or if nothing was settled in it since the start; where that
    is not known either, those that wait come first."""
    share = whole if recent is None else recent
    return share is None, share or 0.0, -(under_way or 0), told


def _intervals(rows: "list[list[tuple[int, int]]]") -> list[dict[str, Any] | None]:
    """How sure each share since the start is, from what was settled and on time in batches of time; None where
    these are too few. Rows that have seen little are taken to be as clustered as the others."""
    found: list[dict[str, Any] | None] = [None] * len(rows)
    if max(map(len, rows), default=0) < 2:  # a young broker does without what takes long to load
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
    """An account as people read it; times in milliseconds."""
    share = balance.on_time_share
    return {
        "matched": balance.matched,
        "on_time": balance.on_time,
        "late": balance.late,
        "dropped": balance.dropped,
        "dropped_by": dict(sorted(balance.dropped_by.items())),
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
    """The subscriptions at another broker, by its last word; what becomes of their events is not known."""
    known = machine.subscribers_at(broker)
    unknown = dict.fromkeys(("queued", "since_s", *_figures(NOTHING), "interval", "last_minute"))
    found = [
        {"subscription": told, "client": client, "connected": False, **unknown}
        for told, client in islice(known.subscriptions.items(), most)
    ]
    left_off = known.left_off + len(known.subscriptions) - len(found)
    return {"subscribers": found, "subscribers_left_off": left_off}


def network_status(brokers: "list[dict[str, Any]]") -> dict[str, Any]:
    """What all brokers say, as `tidings status --json` prints it: the brokers, and the subscribers of all together."""
    rows = [{key: value for key, value in broker.items() if key != "subscribers"} for broker in brokers]
    return {"brokers": rows, "subscribers": subscribers_of(brokers)}


def subscribers_of(brokers: "list[dict[str, Any]]") -> dict[str, dict[str, Any]]:
    """By subscription, `client/name`: its account, where it is at home, and whether it is reached there; worst first.

    The subscriptions at a broker that is down are affected, and their figures are not known.
    """
    rows = [
        {"broker": broker["name"], "affected": not broker["up"], **each}
        for broker in brokers
        for each in broker["subscribers"]
    ]
    # A client that has moved may be listed twice: what is known of it where it is connected counts.
    rows.sort(key=lambda row: (not row["affected"], row["connected"]))
    last = {row["subscription"]: row for row in rows}
    return {row.pop("subscription"): row for row in sorted(last.values(), key=_rank_of)}


def _rank_of(row: dict[str, Any]) -> tuple[Any, ...]:
    recent = None if row["last_minute"] is None else row["last_minute"]["on_time_reliability"]
    return not row["affected"], _rank(recent, row["on_time_reliability"], row["under_way"], row["subscription"])


def _share(good: int, bad: int) -> float | None:
    return None if good + bad == 0 else round(good / (good + bad), 6)
