"""Doors: ports of this machine that lead to another port over a link that is slow, narrow, noisy or down.

- Bytes arrive in order, as on any connection. A piece is sent for `sent_s`, one after the other, then travels for
  `travels_s` (`Shape`). While a piece is sent nothing more is read: what does not fit through stays with the sender.
- Nothing passes a door that is shut, and what was in transit is lost. The connections through it break when the outage
  is detected: at once, or somewhat later. A connection that is opened while the door is shut, or while nobody listens
  behind it, waits until it can pass, so nobody has to redial.
- `lateness_s` records by how much each piece was written later than it should have been: what the machine adds.
"""

import asyncio
import contextlib
import socket
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

__all__ = ["FREE", "Door", "Shape", "door", "shape_of"]

PIECE_BYTES: Final = 16_384
NARROW_BYTES: Final = 2_048
"""A narrow link is read in such pieces, and its sockets hold no more than the kernel insists on."""
_KNOCK_S: Final = 0.005
_TICK_S: Final = 0.0005
"""Timers of the event loop are good to a millisecond: waiting for half of that less makes them right on average."""
LATENESS_KEPT: Final = 100_000

Draw = Callable[[int], tuple[float, float]]


class Shape:
    """One direction of a link: `draw` gives the times to send a number of bytes and to carry them, in machine seconds.

    `is_narrow`: sending takes time. `change` may change what passes, after so many bytes of the same connection.
    """

    def __init__(
        self,
        draw: Draw | None = None,
        *,
        is_narrow: bool = False,
        change: Callable[[bytes, int], bytes] | None = None,
    ) -> None:
        self.draw = draw
        self.is_narrow = is_narrow
        self.change = change


FREE: Final = Shape()


def shape_of(*, delay_s: float = 0.0, bytes_per_s: float | None = None, flip_after_bytes: int | None = None) -> Shape:
    """A link with a constant delay and capacity; on a noisy one a bit is flipped after so many bytes."""

    def draw(size_bytes: int) -> tuple[float, float]:
        return 0.0 if bytes_per_s is None else size_bytes / bytes_per_s, delay_s

    def flip(data: bytes, carried: int) -> bytes:
        assert flip_after_bytes is not None
        at = flip_after_bytes - carried
        return data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :] if 0 <= at < len(data) else data

    return Shape(draw, is_narrow=bytes_per_s is not None, change=None if flip_after_bytes is None else flip)


class Door:
    """A port that leads to `target`; `there` is the link to it, `back` the link from it."""

    def __init__(self, target: int, there: Shape = FREE, back: Shape = FREE) -> None:
        self.target = target
        self.there, self.back = there, back
        self.port = 0
        self.lateness_s: deque[float] = deque(maxlen=LATENESS_KEPT)
        self._shut = 0
        self._noticed: asyncio.TimerHandle | None = None
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._server: asyncio.Server | None = None
        self._passages: set[asyncio.Task[None]] = set()
        self._through: set[asyncio.Task[None]] = set()  # those that have got to the other side
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    async def open(self, listen: int = 0) -> None:
        """Listen at this port, or at any that is free."""
        limit = 2 * (NARROW_BYTES if self.there.is_narrow else PIECE_BYTES)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.there.is_narrow:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        listener.bind(("127.0.0.1", listen))
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=limit)
        self.port = listener.getsockname()[1]

    async def close(self) -> None:
        """End it, with everything that goes through it."""
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # a connection that was just accepted counts as a passage
        self._break()
        for passage in self._passages:
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)
        for writer in list(self._writers):  # a uvloop that is closed while one is open may wait for it for ever
            writer.transport.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()

    def shut(self, notice_s: float = 0.0) -> None:
        """One reason more why nothing passes; the ends notice so much later."""
        self._shut += 1
        self._is_open.clear()
        if notice_s <= 0.0:
            self._break()
        elif self._noticed is None:
            self._noticed = asyncio.get_running_loop().call_later(notice_s, self._break)

    def unshut(self) -> None:
        """One reason less; connections that have lost something break, if they have not yet."""
        self._shut -= 1
        if not self._shut:
            self._break()
            self._is_open.set()

    def _break(self) -> None:
        if self._noticed is not None:
            self._noticed.cancel()
            self._noticed = None
        for passage in self._through:
            passage.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = asyncio.current_task()
        assert passage is not None
        self._passages.add(passage)
        writers = [writer]
        self._writers.add(writer)
        try:
            far_reader, far_writer = await self._knock(reader)
            writers.append(far_writer)
            self._writers.add(far_writer)
            self._through.add(passage)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer, self.there))
                group.create_task(self._carry(far_reader, writer, self.back))
        except* (OSError, EOFError, asyncio.CancelledError):
            pass  # one end is gone, or the door was shut
        finally:
            self._passages.discard(passage)
            self._through.discard(passage)
            for each in writers:
                each.transport.abort() if self._shut else each.close()

    async def _knock(self, reader: asyncio.StreamReader) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection with the listener behind the door, once it is open; EOFError if the caller has gone."""
        while True:
            await self._is_open.wait()
            far = socket.socket()
            far.setblocking(False)
            if self.back.is_narrow:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            try:
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self.target))
                limit = 2 * (NARROW_BYTES if self.back.is_narrow else PIECE_BYTES)
                return await asyncio.open_connection(sock=far, limit=limit)
            except OSError:
                far.close()
            if reader.at_eof():
                raise EOFError
            await asyncio.sleep(_KNOCK_S)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, shape: Shape) -> None:
        """Carry bytes in one direction; those in transit are bounded by what can be sent while they travel."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(reader, shape, pieces))
            while (piece := await pieces.get())[1]:
                due_s, data = piece
                while (wait_s := due_s - time.monotonic()) > 0:  # late perhaps, but never early
                    await asyncio.sleep(wait_s)
                if not self._shut:
                    self.lateness_s.append(time.monotonic() - due_s)
                    writer.write(data)
                    await writer.drain()
        while self._shut:  # nobody hears that the other end is gone before that is noticed
            await asyncio.sleep(_KNOCK_S)
        raise EOFError

    @staticmethod
    async def _read(reader: asyncio.StreamReader, shape: Shape, pieces: "asyncio.Queue[tuple[float, bytes]]") -> None:
        carried, free_s, due_s = 0, 0.0, 0.0
        size = NARROW_BYTES if shape.is_narrow else PIECE_BYTES
        while data := await reader.read(size):
            if shape.change is not None:
                data = shape.change(data, carried)
            carried += len(data)
            now_s = time.monotonic()
            sent_s, travels_s = (0.0, 0.0) if shape.draw is None else shape.draw(len(data))
            free_s = max(free_s, now_s) + sent_s
            due_s = max(due_s, free_s + travels_s)
            pieces.put_nowait((due_s, data))
            if (wait_s := free_s - time.monotonic() - _TICK_S) > 0:
                await asyncio.sleep(wait_s)
        pieces.put_nowait((due_s, b""))


@contextlib.asynccontextmanager
async def door(port: int, there: Shape = FREE, back: Shape = FREE, *, listen: int = 0) -> AsyncIterator[Door]:
    """A door to a port, for as long as the context lasts."""
    made = Door(port, there, back)
    await made.open(listen)
    try:
        yield made
    finally:
        await made.close()
