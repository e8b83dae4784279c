"""What a broker tells of itself: whoever asks with `tidings status`, and Prometheus."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Broker, Peer

__all__ = ["Load", "snapshot"]

_EVERY_S: Final = 1.0
_TOO_LATE: Final = ("expired", "hopeless", "full")
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


def snapshot(node: "BrokerNode") -> dict[str, Any]:
    """Everything that is known now; times in seconds."""
    machine = node.machine
    sent, counts = machine.carrier.events_out, machine.counts
    too_late = sum(counts[reason] for reason in _TOO_LATE)
    clients = machine.clients.values()
    subscribers = _subscribers(machine)
    return {
        "name": node.name,
        "epoch": machine.epoch,
        "up_s": node.up_s,
        "ready": machine.is_ready,
        "draining": bool(node.driver.ignored),
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
        "too_late": too_late,
        "on_time": None if sent + too_late == 0 else round(sent / (sent + too_late), 6),
        "subscribers": subscribers[:SUBSCRIBERS_MAX],
        "subscribers_left_off": max(len(subscribers) - SUBSCRIBERS_MAX, 0),
        "counts": dict(counts),
        "refused": dict(machine.refused),
        "store": {
            "bytes": node.store.used_bytes,
            "commits": node.committer.commits,
            "commit_s": round(node.committer.commit_s, 6),
            "full": node.committer.is_full,
        },
    }


def _peer(peer: "Peer") -> dict[str, Any]:
    return {
        "up": peer.is_up,
        "queued": peer.outbox.queued,
        "under_way": peer.outbox.under_way,
        "rtt_s": round(peer.meter.rtt_ns * 1e-9, 6),
        "mean_s_per_kb": peer.meter.mean_s_per_kb,
    }


def _subscribers(machine: "Broker") -> list[dict[str, Any]]:
    """The clients here that want something, in the order of their shares on time; those who were sent nothing last."""
    found = []
    for name, peer in machine.clients.items():
        subscriptions = len(machine.gossip.local.of(name))
        if subscriptions:
            sent, too_late = peer.outbox.next_number, peer.outbox.too_late
            found.append(
                {
                    "client": name,
                    "connected": peer.is_up,
                    "subscriptions": subscriptions,
                    "queued": peer.outbox.queued,
                    "under_way": peer.outbox.under_way,
                    "sent": sent,
                    "too_late": too_late,
                    "on_time": None if sent + too_late == 0 else round(sent / (sent + too_late), 6),
                }
            )
    return sorted(found, key=lambda each: (each["on_time"] is None, each["on_time"] or 0.0, each["client"]))
