"""The kinds of faults, by name: what they affect, and how often they are drawn."""

from typing import Final, Literal, get_args

__all__ = ["HARMLESS", "KINDS", "PLACES", "SHARES", "WEIGHTS", "FaultKind"]

FaultKind = Literal[
    "bit-flip",
    "blackout",
    "client-away",
    "client-restart",
    "client-slow",
    "clock-jump",
    "crash",
    "cut",
    "disk-error",
    "disk-full",
    "disk-slow",
    "garbage",
    "half-cut",
    "impostor",
    "isolate",
    "large-state",
    "long-outage",
    "mqtt-away",
    "mqtt-garbage",
    "mute-listener",
    "noise",
    "overload",
    "pause",
    "reset",
    "rewire",
    "store-lost",
    "torn-write",
    "upgrade",
]

KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

PLACES: Final[dict[FaultKind, Literal["all", "broker", "client", "publisher", "link", "anybody"]]] = {
    "bit-flip": "broker",
    "blackout": "all",
    "client-away": "client",
    "client-restart": "client",
    "client-slow": "client",
    "clock-jump": "broker",
    "crash": "broker",
    "cut": "link",
    "disk-error": "broker",
    "disk-full": "broker",
    "disk-slow": "broker",
    "garbage": "broker",
    "half-cut": "link",
    "impostor": "broker",
    "isolate": "broker",
    "large-state": "client",
    "long-outage": "anybody",
    "mqtt-away": "client",
    "mqtt-garbage": "broker",
    "mute-listener": "broker",
    "noise": "link",
    "overload": "publisher",
    "pause": "anybody",
    "reset": "link",
    "rewire": "all",
    "store-lost": "broker",
    "torn-write": "broker",
    "upgrade": "broker",
}
"""Where it happens: a link is between two brokers; the power fails everywhere."""

WEIGHTS: Final[dict[FaultKind, int]] = dict.fromkeys(KINDS, 2) | {
    "crash": 5,
    "blackout": 0,  # drawn by itself: one burst in two has one
    "clock-jump": 1,
    "store-lost": 1,
    "large-state": 0,  # these by SHARES
    "long-outage": 0,
    "mqtt-away": 0,  # in storms with MQTT clients
    "mqtt-garbage": 0,
    "noise": 0,
    "rewire": 0,
    "upgrade": 0,
}

SHARES: Final[dict[FaultKind, float]] = {
    "large-state": 0.1,
    "long-outage": 0.2,
    "noise": 0.3,
    "rewire": 0.4,
    "upgrade": 0.3,
}
"""The share of storms that have these; all storms, if they are requested by name. They last long, cost much, or affect
the network as a whole."""

HARMLESS: Final[frozenset[FaultKind]] = frozenset(("garbage", "impostor", "mqtt-garbage"))
"""These do not interrupt a calm: peers that follow the rules must not notice them."""
