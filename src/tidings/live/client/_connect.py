"""`connect`: makes a client from checked arguments."""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidings.errors import ConfigurationError
from tidings.live.client._client import Tidings
from tidings.live.configuration._address import Address
from tidings.live.security._secrets import client_secret_file, kept_secret, new_secret
from tidings.live.security._tls import client_context
from tidings.protocol import ClientSettings
from tidings.protocol.node import Credentials

__all__ = ["connect"]

CONNECT_S: Final = 10.0


def connect(
    address: str | Sequence[str],
    *,
    name: str | None = None,
    token: str | None = None,
    secret: str | None = None,
    secret_file: str | Path | None = None,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    server_name: str | None = None,
    durable: bool = False,
    max_in_flight: int = 1_024,
    window: int = 256,
    synchronised_clocks: bool = False,
    may_be_moved: bool = True,
    failover_s: float | None = 5.0,
    connect_s: float = CONNECT_S,
) -> Tidings:
    """A client of the broker at host:port, to be used with `async with`; of several brokers, the first that answers.

    If its broker stays away for `failover_s`, the client continues at another broker of the network, with all its
    subscriptions and everything that was not confirmed yet. Events that its broker has kept for it are delivered when
    that broker is back. With None it waits for its broker.

    `token` is the client's token in a network that uses tokens. In one that does not, a name belongs to the first
    client that uses it, which proves itself by a secret: `secret`, or the one in `secret_file`, which is created if it
    does not exist. Without either, a durable client keeps its secret in the user's state directory, and any other
    client makes one for this connection.

    `authority` turns on TLS, and `certificate` and `key` make it mutual; `server_name` is the name in the broker's
    certificate if it is not the host. `may_be_moved`: whether the network may ask the client to move to another home
    broker.
    """
    try:
        places = [Address.parse(each) for each in ([address] if isinstance(address, str) else address)]
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if not places:
        raise ConfigurationError("no address to connect to: give the host:port of at least one broker")
    if failover_s is not None and failover_s <= 0:
        raise ConfigurationError(f"failover_s is {failover_s:g}, but must be positive; None switches it off")
    if authority is None and certificate is not None:
        raise ConfigurationError("a certificate needs the authority that signed the broker's: give authority=... too")
    if durable and name is None:
        raise ConfigurationError("a durable client needs a name to come back under: give name=...")
    settings = ClientSettings(
        name=name or f"client-{uuid.uuid4().hex[:12]}",
        epoch=time.time_ns() // 1000,
        window=window,
        max_unacknowledged=max_in_flight,
        synchronised_clocks=synchronised_clocks,
        may_be_moved=may_be_moved,
        failover_ns=0 if failover_s is None else round(failover_s * 1e9),
    )
    own = _secret(name, token, secret, secret_file, durable=durable)
    context = None
    if authority is not None:
        context = client_context(
            Path(authority),
            None if certificate is None else Path(certificate),
            None if key is None else Path(key),
        )
    return Tidings(
        places,
        settings,
        credentials=Credentials(token=token, secret=own),
        tls=context,
        server_name=server_name,
        durable=durable,
        max_in_flight=max_in_flight,
        connect_s=connect_s,
    )


def _secret(
    name: str | None, token: str | None, secret: str | None, secret_file: str | Path | None, *, durable: bool
) -> str | None:
    """The key that proves a client's name in a network without tokens."""
    if secret is not None and secret_file is not None:
        raise ConfigurationError("give the client's secret either as secret=... or as secret_file=...")
    if secret is not None:
        return secret
    if secret_file is not None:
        return kept_secret(Path(secret_file))
    if token is not None:
        return None
    try:
        file = None if name is None else client_secret_file(name)
        if file is None or not (durable or file.exists()):
            return new_secret()
        return kept_secret(file)
    except (ConfigurationError, OSError, RuntimeError) as error:
        if not durable:
            return new_secret()
        raise ConfigurationError(
            f"durable client {name!r} needs the same secret again, but cannot keep one: {error}. Give "
            "secret_file=... (or --secret-file), a token, or secret=..."
        ) from None
