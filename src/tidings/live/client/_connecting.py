"""How a client is made: what an application gives, checked and put together."""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidings.errors import ConfigurationError
from tidings.live.client._client import Tidings
from tidings.live.configuration._schema import Address
from tidings.live.security._tls import client_context
from tidings.protocol import ClientSettings

__all__ = ["connect"]

CONNECT_S: Final = 10.0


def connect(
    address: str | Sequence[str],
    *,
    name: str | None = None,
    token: str | None = None,
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
    """A client of the broker at host:port, to be used with `async with`; of several, whichever answers first.

    When its broker stays away for `failover_s`, the client goes on at another one of the network, with all that it has
    subscribed to and everything that was not confirmed yet; what its broker has kept for it comes when that is back.
    None: it waits for its broker.

    `authority` makes it TLS, `certificate` and `key` mutual; `server_name` is the name that the broker's certificate
    has to have, if it is not the host. `may_be_moved`: whether the network may ask it to make another broker its home.
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
        raise ConfigurationError("a durable client comes back under its name: give name=...")
    settings = ClientSettings(
        name=name or f"client-{uuid.uuid4().hex[:12]}",
        epoch=time.time_ns() // 1000,
        window=window,
        max_unacknowledged=max_in_flight,
        synchronised_clocks=synchronised_clocks,
        may_be_moved=may_be_moved,
        failover_ns=0 if failover_s is None else round(failover_s * 1e9),
    )
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
        token=token,
        tls=context,
        server_name=server_name,
        durable=durable,
        max_in_flight=max_in_flight,
        connect_s=connect_s,
    )
