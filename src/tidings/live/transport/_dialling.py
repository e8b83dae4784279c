"""How a connection is opened, and opened again: reach the address, say who dials, be admitted, belong to a driver.

A keeper (`keep_connected`) dials again whenever its connection is lost. It ends when it is cancelled or told that
nobody wants the connection any more, and for no other reason: an error that nobody expected is reported to the event
loop's exception handler, and dialling goes on. It waits longer after each failure, and a connection that was lost
again within STEADY_S counts as one.
"""

import asyncio
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec

from tidings.errors import TidingsError
from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.broker._admission import GRACE_S, Answer, Preamble, read_answer
from tidings.live.configuration._config import Address
from tidings.live.transport._connection import Connection

__all__ = ["CLIENT_SEND_BUFFER_BYTES", "MAX_UNSENT_BYTES", "backoff_s", "dial", "keep_connected"]

BACKOFF_LEAST_S: Final = 0.05
BACKOFF_MOST_S: Final = 5.0
STEADY_S: Final = 5.0
"""A connection that lasted so long was a good one: when it is lost, the next is dialled soon."""
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
    grace_s: float = GRACE_S,
) -> Answer:
    """Open a connection; `ready` gives it its host. DeniedError or ConnectionLostError if it cannot be opened."""
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
        async with asyncio.timeout(grace_s):
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
        raise ConnectionLostError(f"{address} did not answer within {grace_s:.2g} s") from None
    except ssl.SSLError as error:
        raise DeniedError("certificate", f"{address}: {error.reason or error}") from None
    except OSError as error:
        # The number of an error in looking up a host is none of the system's.
        number = None if isinstance(error, socket.gaierror) else error.errno
        why = os.strerror(number) if number else error.strerror or str(error)
        raise ConnectionLostError(f"{address} cannot be reached: {why}; is the broker running?") from None
    finally:
        # A time-out has cancelled it: asking a cancelled future for its exception would raise CancelledError here.
        if not opening.outcome.cancel() and not opening.outcome.cancelled():
            opening.outcome.exception()  # seen, so that nobody warns of it


async def keep_connected(
    dial_once: Callable[[], Awaitable[asyncio.Event | None]],
    *,
    what: str,
    failed: Callable[[TidingsError], bool],
    loss: asyncio.Event | None = None,
) -> None:
    """Have a connection, and another whenever it is lost, until cancelled or until `failed` says to stop.

    `dial_once` opens one and returns what will tell its loss, None if it is lost already; `loss` is that of a
    connection that there is. `failed` is told why one could not be opened, and returns whether to go on.
    """
    loop = asyncio.get_running_loop()
    waits_s = backoff_s()
    while True:
        try:
            if loss is None:
                loss = await dial_once()
            began_s = loop.time()
            if loss is not None:
                await loss.wait()
            if loop.time() - began_s >= STEADY_S:
                waits_s = backoff_s()
        except TidingsError as error:
            if not failed(error):
                return
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            _report(f"dialling {what}: something in it was cancelled, dialling again", error)
        except Exception as error:
            _report(f"dialling {what} failed unexpectedly, dialling again", error)
        loss = None
        await asyncio.sleep(next(waits_s))


def _is_cancelled() -> bool:
    """Whether somebody has asked this task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _report(message: str, error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
