"""A TLS listener whose connections belong to the node from the start, not only after the handshake.

So the node counts them, and closes those whose handshake takes too long. (The event loop's own listener reports a
connection only after its handshake.)
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from tidings.live.transport._connection import Connection

__all__ = ["BACKLOG", "Handshake", "TlsListener"]

BACKLOG: Final = 1_024
HANDSHAKE_S: Final = 60.0
"""The node ends a handshake long before that; this is for a node that is too busy to."""
_PAUSE_S: Final = 0.1
"""How long to accept nothing when the process has no descriptors left."""


class Handshake:
    """An incoming connection that has not completed TLS yet."""

    def __init__(self, bare: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self._bare = bare
        self._reason = ""

    def abort(self, reason: str) -> None:
        """Give it up."""
        self._reason = reason
        with contextlib.suppress(OSError):  # it may be gone already
            self._bare.shutdown(socket.SHUT_RDWR)

    async def shake_hands(self, tls: ssl.SSLContext) -> str | None:
        """Why the handshake failed; None if it succeeded."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.connection, self._bare, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:
            self._bare.close()
            why = getattr(error, "reason", None) or str(error) or "the other end closed it"
            return self._reason or f"TLS: {why}"
        return None


class TlsListener:
    """Accepts connections and calls `accept` with each socket and its peer's address."""

    def __init__(self, listening: socket.socket, accept: Callable[[socket.socket, str], None]) -> None:
        self._listening = listening
        self._accept = accept
        self._task = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, host: str, port: int, accept: Callable[[socket.socket, str], None]) -> "TlsListener":
        """Start to listen; OSError if that fails."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.create_server(found[0][4][:2], family=found[0][0], backlog=BACKLOG)
        listening.setblocking(False)
        return cls(listening, accept)

    def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        self._listening.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                bare, peer = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            bare.setblocking(False)
            self._accept(bare, f"{peer[0]}:{peer[1]}")
