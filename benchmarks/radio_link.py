"""A radio link that replays a recorded capacity, in user space: the last hop between a broker and a subscribers' site.

A recording has a line for each moment, in milliseconds, at which one packet of 1,500 bytes could cross the link. The
replay gives each of these moments away once, to up to PACKET_BYTES of what waits then; a moment at which nothing waits
is lost, as on the air. What crosses arrives DELAY_S later.

What waits is one line, first come, first served, for all connections of the link, of at most BUFFER_BYTES. TCP fills a
buffer of that size and then waits; so does what is in front of it here: a full buffer reads no more, and the rest stays
in the kernel of the sender, as behind a modem. Nothing has to be sent twice, so the link wastes none of its capacity on
repeats; what a full buffer costs is waiting, as it is where packets are dropped.

`Direction` is the rule without sockets and without a clock. `RadioLink` moves the bytes of real connections by it.
"""

import asyncio
import bisect
import contextlib
import gzip
import itertools
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path

__all__ = [
    "BUFFER_BYTES",
    "DELAY_S",
    "PACKET_BYTES",
    "Direction",
    "RadioLink",
    "TraceError",
    "radio_link",
    "read_trace",
]

PACKET_BYTES = 1_448
"""Of the stream, in a packet of 1,500 bytes; the rest are the heads of IP and TCP."""
BUFFER_BYTES = 48 * 1_024
"""What waits in the link's buffer; the kernel adds RECEIVE_BYTES in front of it."""
RECEIVE_BYTES = 16 * 1_024
DELAY_S = 0.02
_EARLY_S = 0.0005
"""Timers of the event loop are good to a millisecond: half of that less is right on average."""


class TraceError(Exception):
    """Raised when a recording cannot be read; says where it was looked for."""


def read_trace(name: str, *, begin_s: float, length_s: float) -> list[float]:
    """The moments of a part of a recording, in seconds after its begin; `name` is a file of the data, or a path."""
    # The recordings lie beside the repository; TIDINGS_DATA says where else.
    directory = Path(os.environ.get("TIDINGS_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    recordings = directory / "lte_capacity"
    places = [Path(name), recordings / name, recordings / f"{name}.gz"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise TraceError(
            f"no recording {name!r}: there is no file {places[0]}, nor {places[2]}. "
            "Set TIDINGS_DATA to the directory that has lte_capacity/, or give the path of a recording"
        )
    try:
        data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
        moments_s = [float(line) / 1e3 for line in data.split()]
    except (OSError, ValueError) as error:
        raise TraceError(f"{found} is not a recording: {error}") from None
    if any(later < earlier for earlier, later in itertools.pairwise(moments_s)):
        raise TraceError(f"{found} is not a recording: its times do not ascend")
    if not moments_s or moments_s[-1] < begin_s + length_s - 1.0:
        raise TraceError(f"{found} ends before second {begin_s + length_s:g}; choose a shorter run or an earlier begin")
    first, last = (bisect.bisect_left(moments_s, each) for each in (begin_s, begin_s + length_s))
    return [each - begin_s for each in moments_s[first:last]]


class Direction:
    """One direction of the link: what waits, and when which bytes leave.

    It is free before the replay begins and after its end, and all the time if nothing was recorded.
    """

    def __init__(self, moments_s: Sequence[float] | None, *, length_s: float, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._moments_s = moments_s or ()
        self._is_recorded = moments_s is not None
        self._length_s = length_s
        self._buffer_bytes = buffer_bytes
        self._begin_s: float | None = None
        self._next = 0
        self._waiting: deque[tuple[float, int, bytes]] = deque()
        self._waiting_bytes = 0
        self.used = 0
        """How many moments carried something."""
        self.carried_bytes = 0
        """How much left, before and after the replay too."""

    def begin(self, at_s: float) -> None:
        """The replay begins at this time."""
        self._begin_s = at_s if self._is_recorded else None

    @property
    def room_bytes(self) -> int:
        """How much more may wait."""
        return self._buffer_bytes - self._waiting_bytes

    def put(self, connection: int, data: bytes, now_s: float) -> None:
        """Bytes of a connection come to the link."""
        self._waiting.append((now_s, connection, data))
        self._waiting_bytes += len(data)

    def next_s(self) -> float | None:
        """When something leaves next; None if nothing waits."""
        return self._chance(self._waiting[0][0])[0] if self._waiting else None

    def leave(self, now_s: float) -> list[tuple[float, int, bytes]]:
        """What has left by now: when, of which connection, which bytes."""
        left: list[tuple[float, int, bytes]] = []
        while self._waiting:
            at_s, is_recorded = self._chance(self._waiting[0][0])
            if at_s > now_s:
                break
            space_bytes = self._waiting_bytes
            if is_recorded:
                space_bytes = PACKET_BYTES
                self._next += 1
                self.used += 1
            while space_bytes and self._waiting and self._waiting[0][0] <= at_s:
                connection, data = self._take(space_bytes)
                space_bytes -= len(data)
                left.append((at_s, connection, data))
        return left

    def _chance(self, came_s: float) -> tuple[float, bool]:
        """When what came then can leave, and whether that is a recorded moment; the moments before it are lost."""
        if self._begin_s is None or came_s < self._begin_s:
            return came_s, False
        self._next = bisect.bisect_left(self._moments_s, came_s - self._begin_s, self._next)
        if self._next < len(self._moments_s):
            return self._begin_s + self._moments_s[self._next], True
        return max(came_s, self._begin_s + self._length_s), False

    def _take(self, most_bytes: int) -> tuple[int, bytes]:
        """Up to so many bytes of the first that waits."""
        came_s, connection, data = self._waiting.popleft()
        if len(data) > most_bytes:
            self._waiting.appendleft((came_s, connection, data[most_bytes:]))
            data = data[:most_bytes]
        self._waiting_bytes -= len(data)
        self.carried_bytes += len(data)
        return connection, data


class RadioLink:
    """A port of this machine that leads to another one over the link; `down` is the direction from that port."""

    def __init__(self, target: int, up: Direction, down: Direction, *, delay_s: float = DELAY_S) -> None:
        self.down = down
        self.port = 0
        self.lateness_s: list[float] = []
        """By how much later than it should each packet arrived at the subscribers: what the machine adds."""
        self._target = target
        self._delay_s = delay_s
        self._lanes = {"up": _Lane(up), "down": _Lane(down)}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket()

    async def open(self) -> None:
        """Listen at a free port."""
        _make_small(self._listener)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self._sockets.append(self._listener)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept())
        for lane in self._lanes.values():
            self._start(self._serve(lane))

    def begin(self, at_s: float) -> None:
        """The replay begins at this time."""
        for lane in self._lanes.values():
            lane.direction.begin(at_s)

    async def close(self) -> None:
        """End it, with the connections through it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._sockets:
            each.close()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listener)
            far = socket.socket()
            _make_small(far)
            self._sockets += (near, far)
            for each in (near, far):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(far, ("127.0.0.1", self._target))
            for name, source, sink in (("up", near, far), ("down", far, near)):
                number, lane = next(self._numbers), self._lanes[name]
                lane.arriving[number] = asyncio.Queue()
                self._start(self._read(lane, number, source))
                self._start(self._write(lane, number, sink))

    async def _read(self, lane: "_Lane", number: int, source: socket.socket) -> None:
        """Bytes of a connection come to the link as soon as there is room; connections take turns."""
        loop = asyncio.get_running_loop()
        while True:
            while lane.direction.room_bytes < PACKET_BYTES:
                await lane.wait()
            try:
                data = await loop.sock_recv(source, PACKET_BYTES)
            except OSError:
                data = b""
            if not data:
                lane.arriving[number].put_nowait((0.0, b""))
                return
            lane.direction.put(number, data, time.monotonic())
            lane.filled.set()

    async def _serve(self, lane: "_Lane") -> None:
        """What leaves the link is handed to its connection, to arrive DELAY_S later."""
        while True:
            lane.filled.clear()
            next_s = lane.direction.next_s()
            if next_s is None:
                await lane.filled.wait()
                continue
            if (left_s := next_s - time.monotonic()) > _EARLY_S:
                await asyncio.sleep(left_s - _EARLY_S)
                if next_s > time.monotonic():
                    await asyncio.sleep(0)
            for at_s, number, data in lane.direction.leave(time.monotonic() + _EARLY_S):
                lane.arriving[number].put_nowait((at_s + self._delay_s, data))
            lane.wake()

    async def _write(self, lane: "_Lane", number: int, sink: socket.socket) -> None:
        loop, arriving = asyncio.get_running_loop(), lane.arriving[number]
        while (piece := await arriving.get())[1]:
            due_s, data = piece
            while (left_s := due_s - time.monotonic()) > _EARLY_S:
                await asyncio.sleep(left_s)
            if lane is self._lanes["down"]:
                self.lateness_s.append(time.monotonic() - due_s)
            with contextlib.suppress(OSError):
                await loop.sock_sendall(sink, data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class _Lane:
    """A direction with its sockets."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self.filled = asyncio.Event()
        self.arriving: dict[int, asyncio.Queue[tuple[float, bytes]]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for a turn to read."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def wake(self) -> None:
        """There may be room: as many read as there is room for, those first that waited first."""
        for _ in range(self.direction.room_bytes // PACKET_BYTES):
            if not self._waiting:
                return
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


def _make_small(end: socket.socket) -> None:
    """Before it is connected, so that the other end learns of a small window and of packets as on a real network."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES // 2)  # the kernel doubles it
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, PACKET_BYTES)


@contextlib.asynccontextmanager
async def radio_link(target: int, up: Direction, down: Direction) -> AsyncIterator[RadioLink]:
    """A link to a port, for as long as the context lasts."""
    link = RadioLink(target, up, down)
    await link.open()
    try:
        yield link
    finally:
        await link.close()
