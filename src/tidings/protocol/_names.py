"""The names that brokers use among themselves: addresses of clients, and qualified names of subscriptions.

- An *address* is a broker and a client in one string: a target of an event like a broker. Events usually travel to
  brokers, which match them again for all their clients. An event for one client that has moved cannot travel in this
  form: the new home may have given the same event to its other clients already, and would take it for a duplicate. So
  the event is addressed to the client. No name of a broker or a client contains the separator.
- A *qualified name* is a client and its own name for a subscription: other brokers know the subscription by it.
- The key that a client's name is bound to is announced as a subscription that matches nothing and whose name contains
  the key.
"""

from base64 import b64decode, b64encode
from typing import Final

import msgspec

from tidings.protocol._errors import PeerError
from tidings.protocol.wire import Entry

__all__ = [
    "address",
    "broker_of",
    "client_of",
    "identity_name",
    "is_address",
    "is_identity",
    "is_reserved",
    "key_in",
    "qualified_name",
    "qualify",
    "require_plain",
    "split_address",
    "split_qualified",
]

_SEPARATOR: Final = "\0"
_IDENTITY: Final = "\0is\0"


def address(broker: str, client: str) -> str:
    """The target that stands for a client at that broker."""
    return f"{broker}{_SEPARATOR}{client}"


def is_address(target: str) -> bool:
    """Whether the target is one client, not a broker."""
    return _SEPARATOR in target


def broker_of(target: str) -> str:
    """The broker of a target, or the target itself."""
    return target.partition(_SEPARATOR)[0]


def split_address(target: str) -> tuple[str, str]:
    """The broker and the client."""
    broker, _, client = target.partition(_SEPARATOR)
    return broker, client


def require_plain(name: str) -> None:
    """PeerError if a name looks like an address."""
    if _SEPARATOR in name:
        raise PeerError("name", f"{name!r} contains the character 0, which separates broker and client in addresses")


def is_reserved(name: str) -> bool:
    """Whether this name announces a client's key, and cannot be a subscription's."""
    return name.startswith(_IDENTITY)


def identity_name(key: bytes) -> str:
    """The name that announces a key."""
    return _IDENTITY + b64encode(key).decode()


def is_identity(qualified: str) -> bool:
    """Whether a qualified name stands for the key of a client, not for a subscription."""
    return _IDENTITY in qualified and is_reserved(split_qualified(qualified)[1])


def key_in(qualified: str) -> bytes:
    """The key in a qualified name; one that nobody has if it cannot be decoded."""
    try:
        return b64decode(split_qualified(qualified)[1].removeprefix(_IDENTITY), validate=True)
    except ValueError:
        return b"?"


def qualify(client: str, entry: Entry) -> Entry:
    """A client's subscription as other brokers know it."""
    return msgspec.structs.replace(entry, name=qualified_name(client, entry.name))


def client_of(qualified: str) -> str:
    """The client of a qualified name."""
    return split_qualified(qualified)[0]


def split_qualified(qualified: str) -> tuple[str, str]:
    """The client, and its own name for the subscription."""
    if not qualified.startswith("/"):
        client, _, name = qualified.partition("/")
        return client, name
    length, _, rest = qualified[1:].partition("/")
    end = int(length) if length.isdecimal() else 0
    return rest[:end], rest[end + 1 :]


def qualified_name(client: str, name: str) -> str:
    """The name of a client's subscription among brokers; no two subscriptions have the same one."""
    return f"{client}/{name}" if "/" not in client else f"/{len(client)}/{client}/{name}"
