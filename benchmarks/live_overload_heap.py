"""A broker of some fifty lines that sends the dearest first: the peer of `live_overload` that anybody could write.

It parses what comes, keeps a heap by value (of equals the first that came), leaves out what is late, and waits with the
next event until the socket takes it. The kernel may take little: what it has taken waits there in the order in which
it was sent, however dear.

A client begins with b"P" to publish or b"S" to subscribe. A frame is the moment at which it is late (CLOCK_MONOTONIC,
in seconds), its value and its size, and the payload.
"""

import asyncio
import heapq
import itertools
import socket
import struct
import sys
import time

KERNEL_BYTES = 4_096
HEAD = struct.Struct(">dII")


class Broker:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, float, bytes]] = []
        self._numbers = itertools.count()
        self._filled = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(1) == b"P":
                await self._take(reader)
            else:
                await self._give(writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        while head := await reader.readexactly(HEAD.size):
            late_s, value, size = HEAD.unpack(head)
            payload = await reader.readexactly(size)
            heapq.heappush(self._heap, (-value, next(self._numbers), late_s, payload))
            self._filled.set()

    async def _give(self, writer: asyncio.StreamWriter) -> None:
        end: socket.socket = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        writer.transport.set_write_buffer_limits(0)
        while await self._filled.wait():
            value, _, late_s, payload = heapq.heappop(self._heap)
            if not self._heap:
                self._filled.clear()
            if late_s > time.monotonic():
                writer.write(HEAD.pack(late_s, -value, len(payload)) + payload)
                await writer.drain()


async def main(port: int) -> None:
    server = await asyncio.start_server(Broker().serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
