"""Errors of the protocol, split by who is at fault: the peer who sent, or the application that asks for too much.

The rules that can be broken are a fixed set. What a peer says may name any other: it counts as OTHER, so that nobody
can make counters, metrics or logs grow by thinking up names.
"""

from collections.abc import Mapping
from typing import Final

from tidings.errors import DeniedError, InputError, RequestError, TidingsError

__all__ = ["OTHER", "REMEDIES", "DeniedError", "FormatError", "PeerError", "RequestError", "known_code"]

OTHER: Final = "other"
_UPGRADE: Final = "upgrade the older of the two"
_ASK: Final = "if it should be allowed, change the rules of the network"
_FEWER: Final = "raise the limit of the network, or have the client ask for less"
REMEDIES: Final[Mapping[str, str]] = {
    "budget": "raise [limits] matching, matching_all or its [[budget]], or have the client write simpler filters",
    "certificate": "give it a certificate for its name, by the authority of the network",
    "content": "the client sends what is no event: look at its program",
    "damaged": "it is sent again; check the network and the memory of both machines",
    "denied": _ASK,
    "filter": "correct the filter",
    "full": "wait until what was published is accepted",
    "home": "look at the client's program",
    "identity": "give the client the secret that it had before, or another name",
    "leaving": "wait until the last move is over",
    "lifetime": "give events a shorter lifetime, or allow them a longer one",
    "malformed": "whoever sends this does not speak the protocol: look at what runs there",
    "mistrust": "look at what runs at that address",
    "moving": "wait until the last move is over",
    "name": "take another name",
    "not-advertised": "have the client advertise what it publishes",
    "not-allowed": "look at what runs there: the protocol does not allow it",
    "nowhere": "wait until the client is connected",
    "order": "look at what runs there: the protocol does not allow it",
    "parked": "bring back the broker that is out of reach, or raise [limits] parked",
    "price": "have the client offer less, or let its rules allow more",
    "range": "look at what runs there: the protocol does not allow it",
    "timeout": "the broker was not ready in time: look at its status",
    "token": "give it the token of its name",
    "too-long": "raise [limits] frame, or have it send less at once",
    "too-many": _FEWER,
    "unknown": "look at the neighbours in the network file",
    "unreachable": "bring back the broker that is out of reach",
    "version": _UPGRADE,
    OTHER: "see what the other end says",
}
"""By rule that can be broken: what helps."""


def known_code(code: str) -> str:
    """The rule of this name, or OTHER."""
    return code if code in REMEDIES else OTHER


class PeerError(TidingsError):
    """Raised when a peer sends what the protocol does not allow; `code` names the rule that it broke."""

    def __init__(self, code: str, message: str) -> None:
        assert code in REMEDIES, f"{code!r} is no rule of the protocol"
        super().__init__(message)
        self.code = code


class FormatError(InputError):
    """Raised when a durable store is of a later version than this one."""
