"""How a network is: every broker of the file is asked, at once, and whoever does not answer is down."""

import asyncio
import ssl
from typing import Any

import msgspec

from tidings.errors import TidingsError
from tidings.live.broker._admission import Answer, Preamble
from tidings.live.configuration._config import Network
from tidings.live.security._tls import dialling_context
from tidings.live.transport._connection import Connection
from tidings.live.transport._dialling import dial

__all__ = ["ask_network"]

_MAX_ANSWER_BYTES = 1 << 24


class _Listener:
    """The host of a connection that has been answered."""

    def opened(self, connection: Connection) -> None:
        """Not before it is answered."""

    def received(self, connection: Connection, frames: list[bytes]) -> None:
        """Nothing more is expected."""

    def lost(self, connection: Connection, reason: str) -> None:
        """The broker closes it."""

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """Nothing is sent."""


async def ask_network(network: Network) -> list[dict[str, Any]]:
    """What each broker says of itself, in the order of the file: its status, or `down` with the reason."""
    token = network.broker_token or next((token.secret for token in network.tokens), None)
    return list(await asyncio.gather(*(_ask(network, name, token) for name in network.brokers)))


async def _ask(network: Network, name: str, token: str | None) -> dict[str, Any]:
    tls = network.tls_of(name)
    try:
        context: ssl.SSLContext | None = None if tls is None else dialling_context(tls)
        answer = await dial(
            network.broker(name).reached_at,
            Preamble("status", "status", token),
            name="status",
            max_frame_bytes=_MAX_ANSWER_BYTES,
            ready=_be_heard,
            tls=context,
            server_name=name,
        )
        status: dict[str, Any] = msgspec.json.decode(answer.detail)
        return {"up": True, **status}
    except TidingsError as error:
        return {"up": False, "name": name, "why": str(error)}


def _be_heard(connection: Connection, answer: Answer) -> None:  # noqa: ARG001
    connection.host = _Listener()
    connection.close("answered")
