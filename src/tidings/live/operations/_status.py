"""What a broker tells of itself: whoever asks with `tidings status`, and Prometheus.

A broker knows of an event that it left here in time. What became of it then, clients report: what they got on time or
late, and what they discarded. Of clients at other brokers it knows that they subscribe there, whether or not those
brokers answer.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Broker, Peer

__all__ = ["Load", "answer_status", "snapshot"]

_EVERY_S: Final = 1.0
_DROPPED: Final = ("expired", "hopeless", "full")
SUBSCRIBERS_MAX: Final = 1_000
"""So many are told of one by one, those with the least share on time first."""


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
        return msgspec.json.encode(snapshot(node))
    try:
        asked = msgspec.msgpack.decode(detail, type=list[str])
    except msgspec.MsgspecError:
        asked = []
    return msgspec.json.encode({"elsewhere": {name: _elsewhere(node.machine, name) for name in asked}})


def snapshot(node: "BrokerNode") -> dict[str, Any]:
    """Everything that is known now; times in seconds."""
    machine = node.machine
    sent, counts = machine.carrier.dispatch.events_out, machine.counts
    dropped = sum(counts[reason] for reason in _DROPPED)
    clients = machine.clients.values()
    subscribers = _subscribers(machine)
    return {
        "name": node.name,
        "epoch": machine.epoch,
        "up_s": node.up_s,
        "ready": machine.is_ready,
        "draining": node.is_draining,
        "utilisation": round(node.load.utilisation, 4),
        "neighbours": {name: _peer(peer) for name, peer in sorted(machine.neighbours.items())},
        "absent": sorted(machine.settings.neighbours - machine.neighbours.keys()),
        "clients": len(clients),
        "clients_connected": sum(peer.is_up for peer in clients),
        "queued": sum(peer.outbox.queued for peer in [*clients, *machine.neighbours.values()]),
        "under_way": sum(peer.outbox.under_way for peer in [*clients, *machine.neighbours.values()]),
        "subscriptions": sum(len(machine.gossip.local.of(name)) for name in machine.clients),
        "subscriptions_elsewhere": len(machine.gossip.interests),
        "stored": len(machine.carrier.holdings),
        "seen": len(machine.carrier.memory),
        "sent": dict(machine.sent),
        "transfers": sent,
        "dropped": dropped,
        "left_in_time": _share(sent, dropped),
        "reported": msgspec.structs.asdict(machine.outcomes.tally()),
        "subscribers": subscribers[:SUBSCRIBERS_MAX],
        "subscribers_left_off": max(len(subscribers) - SUBSCRIBERS_MAX, 0),
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


def _peer(peer: "Peer") -> dict[str, Any]:
    return {
        "up": peer.is_up,
        "queued": peer.outbox.queued,
        "under_way": peer.outbox.under_way,
        "rtt_s": None if peer.meter.rtt_ns is None else round(peer.meter.rtt_ns * 1e-9, 6),
        "mean_s_per_kb": peer.meter.mean_s_per_kb,
    }


def _subscribers(machine: "Broker") -> list[dict[str, Any]]:
    """The clients here that want something, in the order of their shares on time; those who had nothing yet last."""
    found = []
    for name, peer in machine.clients.items():
        subscriptions = len(machine.gossip.local.of(name))
        if subscriptions:
            said, dropped = peer.outcomes, peer.outbox.dropped
            found.append(
                {
                    "client": name,
                    "connected": peer.is_up,
                    "subscriptions": subscriptions,
                    "queued": peer.outbox.queued,
                    "under_way": peer.outbox.under_way,
                    "sent": peer.outbox.given,
                    "dropped": dropped,
                    "reported": msgspec.structs.asdict(said.tally()),
                    "on_time_share": _share(said.on_time, said.late + said.discarded + dropped),
                }
            )
    return sorted(found, key=lambda each: (each["on_time_share"] is None, each["on_time_share"] or 0.0, each["client"]))


def _elsewhere(machine: "Broker", broker: str) -> dict[str, Any]:
    """The clients that subscribe at another broker, by its last word; what becomes of their events is not known."""
    known = machine.subscribers_at(broker)
    unknown = dict.fromkeys(("queued", "under_way", "sent", "dropped", "reported", "on_time_share"))
    found = [
        {"client": client, "connected": False, "subscriptions": count, **unknown}
        for client, count in known.clients.items()
    ]
    return {"subscribers": found, "subscribers_left_off": known.left_off}


def _share(good: int, bad: int) -> float | None:
    return None if good + bad == 0 else round(good / (good + bad), 6)
