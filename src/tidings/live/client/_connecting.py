"""How a client is made: what an application gives, checked and put together."""

import time
import uuid
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
    address: str,
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
    connect_s: float = CONNECT_S,
) -> Tidings:
    """A client of the broker at host:port, to be used with `async with`.

    `authority` makes it TLS, `certificate` and `key` mutual; `server_name` is the name that the broker's certificate
    has to have, if it is not the host. `may_be_moved`: whether the network may ask it to make another broker its home.
    """
    try:
        where = Address.parse(address)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
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
    )
    context = None
    if authority is not None:
        context = client_context(
            Path(authority),
            None if certificate is None else Path(certificate),
            None if key is None else Path(key),
        )
    return Tidings(
        where,
        settings,
        token=token,
        tls=context,
        server_name=server_name,
        durable=durable,
        max_in_flight=max_in_flight,
        connect_s=connect_s,
    )
