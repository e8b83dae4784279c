"""The names by which other brokers know what a client has at its home broker: its subscriptions, and its key.

The key that a client's name is bound to is told as a subscription that matches nothing and whose name holds the key.
"""

from base64 import b64decode, b64encode
from typing import Final

import msgspec

from tidings.protocol.wire import Entry

__all__ = ["as_told", "client_of", "identity_name", "is_identity", "is_reserved", "key_in", "split_told", "told_name"]

_IDENTITY: Final = "\0is\0"


def is_reserved(name: str) -> bool:
    """Whether this is no name for a subscription: it tells a client's key."""
    return name.startswith(_IDENTITY)


def identity_name(key: bytes) -> str:
    """The name that tells a key."""
    return _IDENTITY + b64encode(key).decode()


def is_identity(told: str) -> bool:
    """Whether what others know by this name is no subscription, but the key of a client."""
    return _IDENTITY in told and is_reserved(split_told(told)[1])


def key_in(told: str) -> bytes:
    """The key that an identity tells; one that nobody has if it cannot be read."""
    try:
        return b64decode(split_told(told)[1].removeprefix(_IDENTITY), validate=True)
    except ValueError:
        return b"?"


def as_told(client: str, entry: Entry) -> Entry:
    """A client's subscription as other brokers know it."""
    return msgspec.structs.replace(entry, name=told_name(client, entry.name))


def client_of(told: str) -> str:
    """Whose subscription it is that other brokers know by this name."""
    return split_told(told)[0]


def split_told(told: str) -> tuple[str, str]:
    """The client and its own name for a subscription that other brokers know by this one."""
    if not told.startswith("/"):
        client, _, name = told.partition("/")
        return client, name
    length, _, rest = told[1:].partition("/")
    end = int(length) if length.isdecimal() else 0
    return rest[:end], rest[end + 1 :]


def told_name(client: str, name: str) -> str:
    """No two subscriptions have the same one."""
    return f"{client}/{name}" if "/" not in client else f"/{len(client)}/{client}/{name}"
