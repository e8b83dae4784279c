"""How a connection is opened: reach the address, say who it is, be admitted, and then be somebody's."""

import asyncio
import os
import random
import ssl
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.broker._admission import GRACE_S, Answer, Preamble, read_answer
from tidings.live.configuration._config import Address
from tidings.live.transport._connection import Connection

__all__ = ["CLIENT_SEND_BUFFER_BYTES", "MAX_UNSENT_BYTES", "backoff_s", "dial"]

BACKOFF_LEAST_S: Final = 0.05
BACKOFF_MOST_S: Final = 5.0
MAX_UNSENT_BYTES: Final = 64_000_000
CLIENT_SEND_BUFFER_BYTES: Final = 256_000


def backoff_s() -> Iterator[float]:
    """How long to wait before each further try: twice as long each time, up to a bound, never in step with others."""
    wait_s = BACKOFF_LEAST_S
    while True:
        yield wait_s * random.uniform(0.5, 1.0)
        wait_s = min(2 * wait_s, BACKOFF_MOST_S)


class _Opening:
    """The host of a connection until it is admitted."""

    def __init__(self, preamble: Preamble, ready: Callable[[Connection, Answer], None]) -> None:
        self.outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._preamble = preamble
        self._ready = ready

    def opened(self, connection: Connection) -> None:
        """Say who connects."""
        connection.send(msgspec.msgpack.encode(self._preamble))

    def received(self, connection: Connection, frames: list[bytes]) -> None:
        """The answer comes first; frames that came with it are for the next host."""
        if self.outcome.done():
            return
        try:
            answer = read_answer(frames[0])
            self._ready(connection, answer)
        except DeniedError as error:
            self._fail(error)
            connection.abort("not admitted")
            return
        self.outcome.set_result(answer)
        if len(frames) > 1:
            connection.host.received(connection, frames[1:])

    def lost(self, connection: Connection, reason: str) -> None:
        """It never came to an answer."""
        self._fail(
            ConnectionLostError(f"the connection to {connection.address} was lost before it was answered: {reason}")
        )

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """A preamble is short."""

    def _fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


async def dial(
    address: Address,
    preamble: Preamble,
    *,
    name: str,
    max_frame_bytes: int,
    ready: Callable[[Connection, Answer], None],
    max_unsent_bytes: int = MAX_UNSENT_BYTES,
    send_buffer_bytes: int = CLIENT_SEND_BUFFER_BYTES,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> Answer:
    """Open a connection; `ready` gives it its host. DeniedError or ConnectionLostError if it is not to be."""
    opening = _Opening(preamble, ready)
    connection = Connection(
        opening,
        name=name,
        max_frame_bytes=max_frame_bytes,
        max_unsent_bytes=max_unsent_bytes,
        send_buffer_bytes=send_buffer_bytes,
    )
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(GRACE_S):
            await loop.create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=tls,
                server_hostname=(server_name or address.host) if tls is not None else None,
            )
            return await opening.outcome
    except TimeoutError:
        connection.abort("no answer")
        raise ConnectionLostError(f"{address} did not answer within {GRACE_S:g} s") from None
    except ssl.SSLError as error:
        raise DeniedError("certificate", f"{address}: {error.reason or error}") from None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ConnectionLostError(f"{address} cannot be reached: {why}; is the broker running?") from None
    finally:
        if opening.outcome.done():
            opening.outcome.exception()  # seen, so that nobody warns of it
        else:
            opening.outcome.cancel()
