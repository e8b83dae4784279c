"""One question to a broker (its status, all brokers' addresses, an operator's order) on a connection of its own.

A peer that must prove its identity is challenged first, like any other connection (`protocol.node.Opening`).
"""

import asyncio
import os
import ssl
from typing import Final

import msgspec

from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.configuration._address import Address
from tidings.live.transport._driver import why_not_reached
from tidings.protocol.node import (
    NONCE_BYTES,
    Answer,
    Credentials,
    FramingError,
    Opening,
    Preamble,
    Proof,
    Splitter,
    prefixed,
)

__all__ = ["PATIENCE_S", "ask"]

PATIENCE_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 24
_PIECE_BYTES: Final = 1 << 16


async def ask(
    address: Address,
    question: Preamble,
    credentials: Credentials | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> Answer:
    """What a broker answers; DeniedError or ConnectionLostError if it does not."""
    # An impostor at this address learns nothing from a question, and can only give a wrong answer.
    opening = Opening(question, credentials or Credentials(), os.urandom(NONCE_BYTES), is_trusted=tls is not None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=tls,
                server_hostname=(server_name or address.host) if tls is not None else None,
            )
            try:
                writer.writelines(prefixed([opening.first]))
                splitter = Splitter(MAX_ANSWER_BYTES)
                answer = opening.answered(await _next_frame(reader, splitter, address))
                if isinstance(answer, Proof):
                    writer.writelines(prefixed([msgspec.msgpack.encode(answer)]))
                    answer = opening.answered(await _next_frame(reader, splitter, address))
                assert isinstance(answer, Answer), "a second challenge is not trusted"
                return answer
            finally:
                writer.close()
    except TimeoutError:
        raise ConnectionLostError(f"{address} did not answer within {PATIENCE_S:g} s") from None
    except ssl.SSLError as error:
        raise DeniedError("certificate", f"{address}: {error.reason or error}") from None
    except OSError as error:
        raise ConnectionLostError(why_not_reached(address, error)) from None


async def _next_frame(reader: asyncio.StreamReader, splitter: Splitter, address: Address) -> bytes:
    while data := await reader.read(_PIECE_BYTES):
        try:
            frames = splitter.feed(data)
        except FramingError as error:
            raise DeniedError("malformed", f"{address} does not answer like a Tidings broker: {error}") from None
        if frames:
            return frames[0]
    raise ConnectionLostError(f"the connection to {address} was lost before it was answered")
