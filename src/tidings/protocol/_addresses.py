"""The address of a client that is at home elsewhere: its broker and its name, as one target of an event.

Events usually go to brokers, who match them once more and give them to all their clients. What is meant for one client
that has moved cannot go that way: its new home may have given the same event to its other clients already, and would
take it for a copy. So it goes to the client by name. No name of a broker or a client holds the separator.
"""

from typing import Final

from tidings.protocol._errors import PeerError

__all__ = ["address", "broker_of", "is_address", "require_plain", "split_address"]

_SEPARATOR: Final = "\0"


def address(broker: str, client: str) -> str:
    """The target that stands for a client at that broker."""
    return f"{broker}{_SEPARATOR}{client}"


def is_address(target: str) -> bool:
    """Whether the target is one client, not a broker."""
    return _SEPARATOR in target


def broker_of(target: str) -> str:
    """The broker that a target lives at, or is."""
    return target.partition(_SEPARATOR)[0]


def split_address(target: str) -> tuple[str, str]:
    """The broker and the client."""
    broker, _, client = target.partition(_SEPARATOR)
    return broker, client


def require_plain(name: str) -> None:
    """PeerError if a name looks like an address."""
    if _SEPARATOR in name:
        raise PeerError("name", f"{name!r} holds the character 0, which separates broker and client in addresses")
