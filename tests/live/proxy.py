"""A port that leads to another, over a path that is slow, narrow or noisy: a wide-area link on one machine."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

__all__ = ["Direction", "proxy"]

PIECE_BYTES = 2_048


class Direction(NamedTuple):
    """One direction of a path: how long bytes take at least, and how many pass in a second (None: all that come).

    On a noisy one a bit is flipped once a connection has carried so many bytes.
    """

    delay_s: float = 0.0
    bytes_per_s: int | None = None
    flip_after_bytes: int | None = None


FREE = Direction()


@contextlib.asynccontextmanager
async def proxy(port: int, there: Direction = FREE, back: Direction = FREE, *, listen: int = 0) -> AsyncIterator[int]:
    """A port (`listen`, or any that is free) that leads to another; whatever goes through it is gone afterwards."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * PIECE_BYTES)
        writers.extend((writer, far_writer))
        tasks.add(asyncio.create_task(_carry(reader, far_writer, there)))
        tasks.add(asyncio.create_task(_carry(far_reader, writer, back)))

    server = await asyncio.start_server(accept, "127.0.0.1", listen, limit=2 * PIECE_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:  # a uvloop that is closed while a transport is open may wait for it for ever
            writer.transport.abort()
        await server.wait_closed()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Direction) -> None:
    """Carry bytes as the path does; what is under way is bounded only by the path's delay."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        carried = 0
        while data := await reader.read(PIECE_BYTES):
            at = None if path.flip_after_bytes is None else path.flip_after_bytes - carried
            carried += len(data)
            if at is not None and 0 <= at < len(data):
                data = data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]
            pieces.put_nowait((time.monotonic() + path.delay_s, data))
            if path.bytes_per_s is not None:
                await asyncio.sleep(len(data) / path.bytes_per_s)
        pieces.put_nowait((0.0, b""))

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        while (piece := await pieces.get())[1]:
            while (wait_s := piece[0] - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            writer.write(piece[1])
            await writer.drain()
        writer.close()
