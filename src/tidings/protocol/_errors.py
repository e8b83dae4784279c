"""Errors of the protocol, split by who is at fault: the peer that sent something, or the application that requested too
much.

The rules that can be broken are a fixed set. Any other rule that a peer names counts as OTHER, so that no peer can make
counters, metrics or logs grow by inventing names.
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
    "content": "the client sends invalid events: check its program",
    "damaged": "it is sent again; check the network and the memory of both machines",
    "denied": _ASK,
    "filter": "correct the filter",
    "full": "wait until what was published is accepted",
    "home": "check the client's program",
    "identity": "give the client its former secret, or another name",
    "leaving": "wait until the last move has ended",
    "lifetime": "give events a shorter lifetime, or allow them a longer one",
    "malformed": "the sender does not speak the protocol: check what runs there",
    "mistrust": "check what runs at that address",
    "moving": "wait until the last move has ended",
    "name": "take another name",
    "not-advertised": "have the client advertise what it publishes",
    "not-allowed": "check what runs there: the protocol does not allow it",
    "nowhere": "wait until the client is connected",
    "order": "check what runs there: the protocol does not allow it",
    "parked": "bring back the broker that is out of reach, or raise [limits] parked",
    "price": "have the client offer less, or let its rules allow more",
    "range": "check what runs there: the protocol does not allow it",
    "timeout": "the broker was not ready in time: check its status",
    "token": "give it the token of its name",
    "too-long": "raise [limits] frame, or have it send less at once",
    "too-many": _FEWER,
    "unknown": "check the neighbours in the network file",
    "unreachable": "bring back the broker that is out of reach",
    "version": _UPGRADE,
    OTHER: "see the message of the other end",
}
"""By rule that can be broken: the remedy."""


def known_code(code: str) -> str:
    """The rule of this name, or OTHER."""
    return code if code in REMEDIES else OTHER


class PeerError(TidingsError):
    """Raised when a peer sends what the protocol does not allow; `code` names the broken rule."""

    def __init__(self, code: str, message: str) -> None:
        assert code in REMEDIES, f"{code!r} is no rule of the protocol"
        super().__init__(message)
        self.code = code


class FormatError(InputError):
    """Raised when a durable store is of a later version than this one."""
