"""One TCP connection: bytes in, bytes out, and whether the socket is congested.

Backlog belongs in the machine's queues, where the deadline decides what is sent first, not in buffers that nobody can
reorder. So the kernel keeps little that is not yet sent (`TCP_NOTSENT_LOWAT`, a bounded send buffer), and the transport
keeps at most HIGH_BYTES before it reports congestion; the node then sends no events.

An accepted connection is closed in two steps: this end states that it sends no more, and drops what it reads until the
other end has closed as well. A socket that is closed with unread bytes resets the connection, and a client that is just
writing would never read why it was closed.
"""

import asyncio
import contextlib
import socket
from typing import Final, Protocol, cast

__all__ = ["SEND_BUFFER_BYTES", "Connection", "Host"]

HIGH_BYTES: Final = 64 * 1024
LOW_BYTES: Final = 16 * 1024
NOT_SENT_BYTES: Final = 16 * 1024
SEND_BUFFER_BYTES: Final = 256_000
TURN_BYTES: Final = 448 * 1024
"""The most that is read from one connection in one turn of the event loop, before the others and pending writes get
theirs. (Without it the loop would read megabytes at once.)"""
PIECE_BYTES: Final = 32 * 1024
"""Pieces shorter than this are the last of their turn, and are not counted: event loops read on only while what they
get fills their buffers."""
LINGER_S: Final = 5.0
"""How long a closed connection may take to send what it still has, and its peer to close."""
UNHEARD_MS: Final = 15_000
"""A peer whose system has acknowledged nothing for this long is gone; by default that takes a quarter of an hour."""
_TCP_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
_TCP_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", 18)


class Host(Protocol):
    """Receives the events of a connection."""

    def opened(self, connection: "Connection") -> None:
        """A connection is open."""

    def received(self, connection: "Connection", data: bytes) -> None:
        """Bytes have arrived."""

    def lost(self, connection: "Connection", reason: str) -> None:
        """The connection is gone."""

    def congested(self, connection: "Connection", *, is_congested: bool) -> None:
        """The socket is congested, or no longer is."""


class Connection(asyncio.Protocol):
    """A connection of a host, which identifies it by `name`."""

    def __init__(
        self, host: Host, name: str, *, is_accepted: bool = False, send_buffer_bytes: int = SEND_BUFFER_BYTES
    ) -> None:
        self.name = name
        self._is_accepted = is_accepted
        self.address = ""
        self._host = host
        self._turn_bytes = 0  # read in this turn of the event loop
        self._is_paused = False  # nothing is to be read
        self._is_closing = False  # nothing is sent any more, and what is read is dropped
        self._send_buffer_bytes = send_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reason = "the other end closed it"

    # -- what asyncio calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is open."""
        transport = cast(asyncio.Transport, transport)  # uvloop's is one, but does not declare it
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        bare = transport.get_extra_info("socket")
        if bare is not None:
            with contextlib.suppress(OSError):  # not every socket has every option
                bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
                bare.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
                bare.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, UNHEARD_MS)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._host.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._is_closing:
            return
        if len(data) >= PIECE_BYTES:
            self._count(len(data))
        self._host.received(self, data)

    def pause_writing(self) -> None:
        """The socket is congested."""
        self._host.congested(self, is_congested=True)

    def resume_writing(self) -> None:
        """The socket is no longer congested."""
        self._host.congested(self, is_congested=False)

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        self._host.lost(self, self._reason if error is None else str(error) or type(error).__name__)

    # -- what hosts do -------------------------------------------------------------------------------------------

    @property
    def certified(self) -> tuple[str, ...]:
        """The names in the peer's certificate: its common name, or its DNS names if it has none; empty without one."""
        certificate = self._transport.get_extra_info("peercert") if self._transport is not None else None
        if not certificate:
            return ()
        common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        # Not both: a certificate for "desk-1" at "localhost" is not one of a client called "localhost".
        return tuple(common) or tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate (DER)."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    @property
    def is_open(self) -> bool:
        """Whether the socket is open, at either end."""
        return self._transport is not None

    @property
    def is_encrypted(self) -> bool:
        """Whether it has TLS."""
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is not None

    @property
    def is_local(self) -> bool:
        """Whether the other end is in this process, and frames are handed over to it."""
        return False

    def write(self, parts: list[bytes]) -> int:
        """Write bytes; returns how many are still unsent."""
        if self._transport is None or self._is_closing or self._transport.is_closing():
            return 0
        self._transport.writelines(parts)
        return self._transport.get_write_buffer_size()

    def read(self, *, is_on: bool) -> None:
        """Stop reading, so that the peer has to wait, or continue."""
        self._is_paused = not is_on
        if is_on:
            self._resume()
        else:
            self._pause()

    def close(self, reason: str) -> None:
        """Send what is pending and close; a peer that does not read is not waited for."""
        transport = self._transport
        if transport is None or self._is_closing or transport.is_closing():
            return
        self._reason = reason
        self._loop.call_later(LINGER_S, self.abort, reason)
        if self._is_accepted and transport.can_write_eof():  # TLS cannot
            transport.write_eof()
            self.read(is_on=True)
            self._is_closing = True
        else:
            transport.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _count(self, size_bytes: int) -> None:
        if not self._turn_bytes:
            self._loop.call_soon(self._end_turn)
        self._turn_bytes += size_bytes
        if self._turn_bytes >= TURN_BYTES:
            self._pause()

    def _end_turn(self) -> None:
        self._turn_bytes = 0
        self._resume()

    def _resume(self) -> None:
        transport = self._transport
        if transport is not None and not (self._is_paused or transport.is_closing() or transport.is_reading()):
            transport.resume_reading()
