"""One TCP connection: bytes in, frames out; frames in, one write per turn of the event loop.

Backlog belongs in the machine's queues, where the deadline decides what leaves first, and not in buffers where nobody
can reorder it. So the kernel keeps little that is not yet sent (`TCP_NOTSENT_LOWAT`, a bounded send buffer), the
transport keeps at most HIGH_BYTES before it says that it is congested, and the driver then lets the machine send no
events (`_driver`). So the events that wait to be sent are bounded by the window. What machines say besides events is
short, but a peer that sends and never reads could make it pile up: at `max_unsent_bytes` of that the connection is
given up.
"""

import asyncio
import contextlib
import socket
from typing import Final, Protocol, cast

from tidings.live.transport._framing import FramingError, Splitter, prefixed, tag_of

__all__ = ["Connection", "Host"]

HIGH_BYTES: Final = 64 * 1024
LOW_BYTES: Final = 16 * 1024
NOT_SENT_BYTES: Final = 16 * 1024
TURN_BYTES: Final = 448 * 1024
"""So much is read from one connection in one turn of the event loop: then it is the turn of the others, and of what is
to be sent. (A loop that is given more goes on reading for megabytes.)"""
LINGER_S: Final = 5.0
"""How long a closed connection may take to send what it still has."""
UNHEARD_MS: Final = 15_000
"""A peer whose system has acknowledged nothing for so long is gone; without this it would take a quarter of an hour."""
_EVENTS: Final = frozenset((9, 10))
"""The tags of Publish and Transfer."""
_TCP_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
_TCP_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", 18)


class Host(Protocol):
    """Whoever a connection belongs to now: first who admits it, then the driver."""

    def opened(self, connection: "Connection") -> None:
        """There is a connection."""

    def received(self, connection: "Connection", frames: list[bytes]) -> None:
        """Frames have come in."""

    def lost(self, connection: "Connection", reason: str) -> None:
        """The connection is gone."""

    def congested(self, connection: "Connection", *, is_congested: bool) -> None:
        """The socket takes no more for now, or takes more again."""


class Connection(asyncio.Protocol):
    """A connection of a host; `name` is what the machine knows it by."""

    def __init__(
        self, host: Host, *, name: str, max_frame_bytes: int, max_unsent_bytes: int, send_buffer_bytes: int
    ) -> None:
        self.host = host
        self.name = name
        self.address = ""
        self.peer = ""  # who it was admitted as
        self.is_congested = False
        self.last_credit = b""  # the last frame that told the peer's credit
        self.received_bytes = self.sent_bytes = 0
        self._turn_bytes = 0  # read in this turn of the event loop
        self._is_waiting = False  # nothing is read for a while
        self._splitter = Splitter(max_frame_bytes)
        self._max_unsent_bytes = max_unsent_bytes
        self._send_buffer_bytes = send_buffer_bytes
        self._unsent: list[bytes] = []
        self._unread_bytes = 0  # sent besides events since the peer last had everything
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reason = "the other end closed it"

    # -- what asyncio calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        transport = cast(asyncio.Transport, transport)  # uvloop's is one, without saying so
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
        self.host.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come in; all frames that they complete go to the host at once."""
        self.received_bytes += len(data)
        self._turn_bytes += len(data)
        if self._turn_bytes == len(data):
            self._loop.call_soon(self._end_turn)
        if self._turn_bytes >= TURN_BYTES:
            self._pause()
        try:
            frames = self._splitter.feed(data)
        except FramingError as error:
            self.abort(str(error))
            return
        if frames:
            self.host.received(self, frames)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self.is_congested = True
        self.host.congested(self, is_congested=True)

    def resume_writing(self) -> None:
        """The socket takes more."""
        self.is_congested = False
        self.host.congested(self, is_congested=False)

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        self._unsent.clear()
        self.host.lost(self, self._reason if error is None else str(error) or type(error).__name__)

    # -- what hosts do -------------------------------------------------------------------------------------------

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Whose certificate the peer has shown: its common name, or if it has none its DNS names; none without one."""
        certificate = self._transport.get_extra_info("peercert") if self._transport is not None else None
        if not certificate:
            return ()
        common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        # Not both: a certificate for "desk-1" at "localhost" is not one of a client called "localhost".
        return tuple(common) or tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")

    def send(self, frame: bytes) -> None:
        """Send a frame with the others of this turn."""
        if self.put(frame):
            self._loop.call_soon(self.flush)

    def put(self, frame: bytes) -> bool:
        """Send a frame with the next flush; whether it is the first, so that somebody has to see to that."""
        self._unsent.append(frame)
        return len(self._unsent) == 1

    def pause_reading(self, seconds: float) -> None:
        """Read nothing for so long: the peer has to wait."""
        if not self._is_waiting:
            self._is_waiting = True
            self._pause()
            self._loop.call_later(seconds, self._resume_reading)

    def close(self, reason: str) -> None:
        """Send what there is to send, and close; a peer that does not read is not waited for."""
        self._reason = reason
        if self._transport is not None:
            self.flush()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(LINGER_S, self.abort, reason)

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _end_turn(self) -> None:
        self._turn_bytes = 0
        if not self._is_waiting:
            self._resume()

    def _resume_reading(self) -> None:
        self._is_waiting = False
        self._resume()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write what there is to send."""
        if not self._unsent or self._transport is None:
            return
        frames, self._unsent = self._unsent, []
        parts = prefixed(frames)
        self.sent_bytes += sum(map(len, parts))
        if self._transport.is_closing():
            return
        self._transport.writelines(parts)
        if not self._transport.get_write_buffer_size():
            self._unread_bytes = 0
            return
        self._unread_bytes += sum(len(frame) for frame in frames if tag_of(frame) not in _EVENTS)
        if self._unread_bytes > self._max_unsent_bytes:
            self.abort(f"more than {self._max_unsent_bytes} bytes of answers wait to be read by it")
