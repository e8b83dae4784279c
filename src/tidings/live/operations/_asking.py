"""How a network is: every broker of the file is asked, at once, and whoever does not answer is down."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.errors import TidingsError
from tidings.live.broker._admission import GRACE_S, Answer, Preamble
from tidings.live.configuration._config import Network
from tidings.live.security._tls import dialling_context
from tidings.live.transport._connection import Connection
from tidings.live.transport._dialling import dial

__all__ = ["ask_network", "put_question"]

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


async def ask_network(
    network: Network, *, patience_s: float = GRACE_S, known: Mapping[str, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """What each broker says of itself, in the order of the file: its status, or `down` with the reason.

    Who does not answer within `patience_s` is down; whose status is `known` is not asked.
    """
    told = known or {}
    token = network.broker_token or next((token.secret for token in network.tokens), None)

    async def ask(name: str) -> dict[str, Any]:
        if name in told:
            return {"up": True, **told[name]}
        try:
            async with asyncio.timeout(patience_s):
                return await _ask(network, name, token)
        except TimeoutError:
            return _down(network, name, f"it did not answer within {patience_s:g} s")

    return list(await asyncio.gather(*(ask(name) for name in network.brokers)))


async def _ask(network: Network, name: str, token: str | None) -> dict[str, Any]:
    try:
        answer = await put_question(network, name, Preamble("status", "status", token))
        status: dict[str, Any] = msgspec.json.decode(answer.detail)
        return {"up": True, **status}
    except TidingsError as error:
        return _down(network, name, str(error))


def _down(network: Network, name: str, why: str) -> dict[str, Any]:
    """Of a broker that does not answer: why, and whom it has links with by the file."""
    return {"up": False, "name": name, "why": why, "absent": sorted(network.links[name])}


async def put_question(network: Network, name: str, question: Preamble) -> Answer:
    """What a broker answers to the first and only frame of a connection; a TidingsError if it does not."""
    tls = network.tls_of(name)
    return await dial(
        network.broker(name).reached_at,
        question,
        name="status",
        max_frame_bytes=_MAX_ANSWER_BYTES,
        ready=_be_heard,
        tls=None if tls is None else dialling_context(tls),
        server_name=name,
    )


def _be_heard(connection: Connection, answer: Answer) -> None:  # noqa: ARG001
    connection.host = _Listener()
    connection.close("answered")
