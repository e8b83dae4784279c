"""One connection over a real socket: whoever is disconnected reads why, whatever it was writing."""

import asyncio
import contextlib
import socket

from tests.live.conftest import run, until

from tidings.live.transport._connection import Connection


class Door:
    """Accepts connections, and notes what becomes of them."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.bytes = 0
        self.lost_for: list[str] = []

    def accept(self) -> Connection:
        return Connection(self, "c", is_accepted=True)

    def opened(self, connection: Connection) -> None:
        self.connections.append(connection)

    def received(self, connection: Connection, data: bytes) -> None:  # noqa: ARG002
        self.bytes += len(data)

    def lost(self, connection: Connection, reason: str) -> None:  # noqa: ARG002
        self.lost_for.append(reason)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """Nothing to note."""


def test_a_peer_that_is_writing_reads_why_it_was_closed() -> None:
    async def work() -> None:
        door, loop = Door(), asyncio.get_running_loop()
        server = await loop.create_server(door.accept, "127.0.0.1", 0)
        with contextlib.closing(server), socket.create_connection(server.sockets[0].getsockname()) as peer:
            peer.setblocking(False)
            await until(lambda: bool(door.connections))
            (connection,) = door.connections
            connection.read(is_on=False)
            await loop.sock_sendall(peer, b"never read")
            connection.write([b"why"])
            connection.close("it had to go")
            assert connection.write([b"too late"]) == 0
            connection.close("twice")
            assert await loop.sock_recv(peer, 100) == b"why"
            assert await loop.sock_recv(peer, 100) == b"", "the end, and no reset"
            for _ in range(3):
                await loop.sock_sendall(peer, b"still writing")
            assert not door.lost_for
        await until(lambda: bool(door.lost_for))
        assert door.lost_for == ["it had to go"]
        assert door.bytes == 0, "what comes after is dropped"

    run(work())


def test_a_peer_that_does_not_close_is_not_waited_for_without_end(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("tidings.live.transport._connection.LINGER_S", 0.05)

    async def work() -> None:
        door, loop = Door(), asyncio.get_running_loop()
        server = await loop.create_server(door.accept, "127.0.0.1", 0)
        with contextlib.closing(server), socket.create_connection(server.sockets[0].getsockname()):
            await until(lambda: bool(door.connections))
            door.connections[0].close("it had to go")
            await until(lambda: bool(door.lost_for))
        assert door.lost_for == ["it had to go"]

    run(work())
