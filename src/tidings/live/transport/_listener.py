"""Where a broker listens with TLS: whoever comes is a connection of the node from then on, and not only when TLS is
through; so the node counts it, and ends it if that takes too long.

(A listener of the event loop says nothing of a connection before its handshake is done.)
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
"""The node ends a handshake long before; this is for one that has no time to."""
_PAUSE_S: Final = 0.1
"""How long nobody is taken on when the process has no descriptors left."""


class Handshake:
    """A connection that has come in, and is not through TLS yet."""

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
        """Why it has not come through; None if it has."""
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
    """Takes on whoever comes; `accept` is called with a socket and the address at its other end."""

    def __init__(self, listening: socket.socket, accept: Callable[[socket.socket, str], None]) -> None:
        self._listening = listening
        self._accept = accept
        self._task = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, host: str, port: int, accept: Callable[[socket.socket, str], None]) -> "TlsListener":
        """Listen; OSError if that cannot be."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.create_server(found[0][4][:2], family=found[0][0], backlog=BACKLOG)
        listening.setblocking(False)
        return cls(listening, accept)

    def close(self) -> None:
        """Listen no more."""
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
