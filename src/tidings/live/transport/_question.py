"""One question to a broker: its status, where all brokers are, an operator's order. It is answered and gone."""

import asyncio
import ssl
from typing import Final

import msgspec

from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.configuration._schema import Address
from tidings.live.transport._driver import why_not_reached
from tidings.protocol.node import Answer, FramingError, Preamble, Splitter, prefixed, read_answer

__all__ = ["PATIENCE_S", "ask"]

PATIENCE_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 24
_PIECE_BYTES: Final = 1 << 16


async def ask(
    address: Address, question: Preamble, *, tls: ssl.SSLContext | None = None, server_name: str | None = None
) -> Answer:
    """What a broker answers; DeniedError or ConnectionLostError if it does not."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=tls,
                server_hostname=(server_name or address.host) if tls is not None else None,
            )
            try:
                writer.writelines(prefixed([msgspec.msgpack.encode(question)]))
                return read_answer(await _first_frame(reader, address))
            finally:
                writer.close()
    except TimeoutError:
        raise ConnectionLostError(f"{address} did not answer within {PATIENCE_S:g} s") from None
    except ssl.SSLError as error:
        raise DeniedError("certificate", f"{address}: {error.reason or error}") from None
    except OSError as error:
        raise ConnectionLostError(why_not_reached(address, error)) from None


async def _first_frame(reader: asyncio.StreamReader, address: Address) -> bytes:
    splitter = Splitter(MAX_ANSWER_BYTES)
    while data := await reader.read(_PIECE_BYTES):
        try:
            frames = splitter.feed(data)
        except FramingError as error:
            raise DeniedError("malformed", f"{address} does not answer as a Tidings broker does: {error}") from None
        if frames:
            return frames[0]
    raise ConnectionLostError(f"the connection to {address} was lost before it was answered")
