"""TCP in virtual time: connections of two ends, each with a socket.

- Bytes arrive in order, and none is lost while the connection exists. They arrive in pieces: the bytes of one write may
  be split anywhere, and those of several may be read together.
- Between two sockets at most `buffer_bytes` are sent and not yet read; the rest waits at the sender. Above `high_bytes`
  waiting, the sender is congested, until only `low_bytes` wait.
- A cut path holds bytes back, and lets them pass when it is restored. A sender without an acknowledgement for
  `unheard_ns` resets the connection.
- A noisy path flips bits of frames that have checksums; the frames that open a connection have none.
- When one end disappears unnoticed (the power failed, or the path was cut at that moment), the other is half open: it
  is reset when it next sends to a host that has power, or by its own time-out.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappush
from itertools import accumulate, count
from typing import Any, Final, Protocol

import msgspec

from tidings.protocol.node import CHECKED_BYTES
from tidings.storm._dice import Dice

__all__ = ["Host", "Path", "Socket", "SocketFigures", "Timeline", "connect"]

_RETRANSMIT_NS: Final = (1e6, 600e6)
"""How long after a cut the first byte passes."""
SLOW_BYTES: Final = 8_192
_LINGER_NS: Final = 5_000_000_000
"""How long a closed connection may take to send its pending bytes."""
_BY_AND_BY: Final = 0.5
"""How often the kernel of a killed process still sends its pending bytes."""


class SocketFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of all sockets of a network."""

    buffer_bytes: int = 256 * 1024
    high_bytes: int = 64 * 1024
    low_bytes: int = 16 * 1024
    unheard_ns: int = 5_000_000_000
    splitting: float = 0.0
    """How often what is sent arrives in two pieces."""


class Timeline:
    """The agenda, ordered by time and then by insertion, and counters."""

    def __init__(self, dice: Dice) -> None:
        self.now_ns = 0
        self.covered: Counter[str] = Counter()
        self.figures = SocketFigures()
        self.dice = dice
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.serial = count(1).__next__

    def at(self, when_ns: int, do: Callable[..., None], *what: Any) -> None:
        """Put something on the agenda."""
        heappush(self.heap, (when_ns, self.serial(), do, what))


class Host(Protocol):
    """The owner of sockets."""

    @property
    def is_powered(self) -> bool:
        """Whether it has power."""

    def stir(self, socket: "Socket") -> None:
        """There are bytes to read."""

    def ended(self, socket: "Socket", reason: str) -> None:
        """The connection is gone."""

    def congested(self, socket: "Socket", is_congested: bool) -> None:
        """The socket is congested, or no longer is."""


class Path:
    """One direction between two hosts; `draw`, if given, returns the sending and travel times of a number of bytes."""

    __slots__ = (
        "busy_until_ns",
        "cuts",
        "draw",
        "is_slow",
        "jitter_ns",
        "latency_ns",
        "noise",
        "ns_per_byte",
        "senders",
        "source",
        "target",
    )

    def __init__(self, source: str, target: str, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        self.source = source
        self.target = target
        self.latency_ns = latency_ns
        self.jitter_ns = jitter_ns
        self.ns_per_byte = ns_per_byte
        self.draw: Callable[[int], tuple[float, float]] | None = None
        self.busy_until_ns = 0.0
        self.cuts = 0  # the number of faults that cut it
        self.is_slow = False  # temporarily: little is under way on it, or it would stay slow for long afterwards
        self.noise = 0.0  # how often a piece is damaged on it
        self.senders: dict[Socket, None] = {}

    def cut(self, change: int) -> None:
        """Count one fault more or less; held bytes pass when there is none."""
        self.cuts += change
        if not self.cuts:
            for socket in list(self.senders):
                socket.path_is_whole()


_Piece = tuple[bytes | None, int]
"""Bytes in flight, and how many frames they complete; None: the end of the stream."""


class Socket:
    """One end of a connection."""

    __slots__ = (
        "_arrives_ns",
        "_flight",
        "_flight_bytes",
        "_held",
        "_stalled_ns",
        "_time",
        "_unsent",
        "arrived",
        "arrived_bytes",
        "arrived_frames",
        "far",
        "far_host",
        "host",
        "is_closing",
        "is_congested",
        "is_open",
        "is_reading",
        "name",
        "path",
        "unsent_bytes",
    )

    def __init__(self, time: Timeline, host: Host, name: str, path: Path, far_host: Host) -> None:
        self.host = host
        self.name = name
        self.path = path
        self.far: Socket | None = None
        self.far_host = far_host
        self.is_open = self.is_reading = True
        self.is_closing = self.is_congested = False
        self.unsent_bytes = 0
        self.arrived: list[bytes] = []
        self.arrived_bytes = self.arrived_frames = 0
        self._time = time
        # With the ends of the frames in it, and whether they can be checked.
        self._unsent: deque[tuple[bytes, list[int], bool]] = deque()
        self._flight: deque[_Piece] = deque()  # sent, not yet arrived
        self._flight_bytes = 0  # sent, not yet read
        self._held = 0  # arrivals that a cut holds back
        self._arrives_ns = 0.0
        self._stalled_ns: int | None = None
        path.senders[self] = None

    @property
    def unread_bytes(self) -> int:
        """How much was written here and not read by the other end."""
        return self.unsent_bytes + self._flight_bytes

    # -- sending ---------------------------------------------------------------------------------------------------

    def write(self, parts: list[bytes]) -> None:
        """Send these bytes: prefixes and frames in turn."""
        if not self.is_open or self.is_closing:
            return
        data = b"".join(parts)
        size = len(data)
        ends = [size] if len(parts) == 2 else list(accumulate(map(len, parts)))[1::2]
        self._unsent.append((data, ends, len(parts[0]) == CHECKED_BYTES))
        self.unsent_bytes += size
        self.pump()
        if self.unsent_bytes > self._time.figures.high_bytes and not self.is_congested:
            self.is_congested = True
            self._time.covered["congested"] += 1
            self.host.congested(self, True)

    def pump(self) -> None:
        """Send as much as there is room for."""
        figures, path, unsent = self._time.figures, self.path, self._unsent
        while unsent:
            room = figures.buffer_bytes - self._flight_bytes
            if path.is_slow:
                room = min(room, SLOW_BYTES - self._flight_bytes)
            if room <= 0:
                self._probe()
                break
            data, ends, is_checked = unsent.popleft()
            size, frames, dice = len(data), len(ends), self._time.dice
            if figures.splitting and size > 1 and dice.share() < figures.splitting:
                room = min(room, 1 + dice.whole(size - 1))
            if size > room:
                frames = bisect_right(ends, room)
                if not frames or ends[frames - 1] != room:
                    self._time.covered["split_frames"] += 1
                unsent.appendleft((data[room:], [end - room for end in ends[frames:]], is_checked))
                data, size = data[:room], room
            self.unsent_bytes -= size
            self._flight_bytes += size
            if path.noise and is_checked and dice.share() < path.noise:
                data = self._damaged(data)
            self._launch(data, frames)
        if self.is_congested and self.unsent_bytes <= figures.low_bytes:
            self.is_congested = False
            if self.is_open:
                self.host.congested(self, False)
        if self.is_closing and not unsent and self.is_open:
            self.is_open = False
            self._launch(None, 0)
            self._time.at(self._time.now_ns, self.host.ended, self, "closed")

    def _damaged(self, data: bytes) -> bytes:
        """The same with a flipped bit."""
        self._time.covered["noise"] += 1
        bit = self._time.dice.whole(8 * len(data))
        return b"".join((data[: bit // 8], bytes((data[bit // 8] ^ 1 << bit % 8,)), data[bit // 8 + 1 :]))

    def _probe(self) -> None:
        """Ask a full peer whether it has room; one that is gone does not know the connection."""
        if self.far is not None:
            return
        if self.far_host.is_powered and not self.path.cuts:
            self.reset_soon(2 * self.path.latency_ns)
        else:
            self._stall()

    def _launch(self, data: bytes | None, frames: int) -> None:
        path, time = self.path, self._time
        self._flight.append((data, frames))
        if path.cuts or self.far is None:
            self._hold()
            if self.far is None and self.far_host.is_powered and not path.cuts:
                self.reset_soon(2 * path.latency_ns)
            return
        began_ns = path.busy_until_ns
        if began_ns < time.now_ns:
            began_ns = time.now_ns
        size = 0 if data is None else len(data)
        if path.draw is None:
            path.busy_until_ns = began_ns + size * path.ns_per_byte
            arrives_ns = path.busy_until_ns + path.latency_ns + path.jitter_ns * time.dice.share()
        else:
            sent_ns, travels_ns = path.draw(size)
            path.busy_until_ns = began_ns + sent_ns
            arrives_ns = path.busy_until_ns + travels_ns
        if arrives_ns < self._arrives_ns:
            arrives_ns = self._arrives_ns
        self._arrives_ns = arrives_ns
        heappush(time.heap, (int(arrives_ns), time.serial(), self._land, ()))

    def _land(self) -> None:
        """The next piece in flight arrives, unless the path is cut now."""
        far, flight = self.far, self._flight
        if not flight:
            return  # the connection was reset meanwhile
        if self.path.cuts:
            self._hold()
            return
        data, frames = flight.popleft()
        if data is None:
            self.path.senders.pop(self, None)
            if far is not None:
                far.far = None
                far.fail("the other end closed it")
            return
        if far is None or not far.is_open:
            if self.is_open:
                self.reset_soon(2 * self.path.latency_ns)
            return
        if far.path.cuts:
            self._stall()  # the acknowledgement is held back
        far.arrived.append(data)
        far.arrived_bytes += len(data)
        far.arrived_frames += frames
        if far.is_reading:
            far.host.stir(far)

    def _hold(self) -> None:
        self._held += 1
        self._stall()

    def _stall(self) -> None:
        if self._stalled_ns is None:
            self._stalled_ns = self._time.now_ns
            self._time.at(self._time.now_ns + self._time.figures.unheard_ns, self._unheard, self._stalled_ns)

    def _unheard(self, since_ns: int) -> None:
        if self._stalled_ns == since_ns and self in self.path.senders:
            self._time.covered["connections_timed_out"] += 1
            self._give_up_far()
            self.fail("the other end does not acknowledge")

    def path_is_whole(self) -> None:
        """Let held bytes and acknowledgements pass."""
        far = self.far
        if far is None:
            if (self._held or self._unsent) and self.far_host.is_powered:
                self.reset_soon(self._time.dice.between(*_RETRANSMIT_NS))
            return
        if not far.path.cuts:
            self._stalled_ns = None
        if not far._held:
            far._stalled_ns = None
        if self._held:
            arrives_ns = self._time.now_ns + self._time.dice.between(*_RETRANSMIT_NS)
            self._arrives_ns = max(self._arrives_ns, arrives_ns)
            for _ in range(self._held):
                self._time.at(int(self._arrives_ns), self._land)
            self._held = 0

    # -- reading ---------------------------------------------------------------------------------------------------

    def take(self) -> list[bytes]:
        """Take the bytes that have arrived, in pieces; the sender gets room for as much again."""
        pieces, self.arrived = self.arrived, []
        size, self.arrived_bytes, self.arrived_frames = self.arrived_bytes, 0, 0
        far = self.far
        if far is not None:
            far._flight_bytes -= size
            if far._unsent:
                self._time.at(self._time.now_ns + int(self.path.latency_ns), far.pump)
        return pieces

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self, *, at_once: bool) -> None:
        """Close this end: at once, or when pending bytes are sent."""
        if not self.is_open:
            return
        if at_once:
            self._reset_far()
            self.fail("closed")
        elif not self.is_closing:
            self.is_closing = True
            if self._unsent:
                self._time.at(self._time.now_ns + _LINGER_NS, self._linger)
            self.pump()

    def _linger(self) -> None:
        if self.is_open:
            self._reset_far()
            self.fail("closed")

    def vanish(self, *, power: bool) -> None:
        """The process of this end is gone; without power the peer is not informed."""
        was_open, self.is_open = self.is_open, False
        if power:
            self._give_up_far()
            self._forget()
        elif was_open and self._time.dice.happens(_BY_AND_BY):
            self._unsent.clear()
            self._launch(None, 0)
        else:
            self._reset_far()
            self._forget()

    def fail(self, reason: str) -> None:
        """End this socket, and inform its host unless it closed the socket itself."""
        was_open, self.is_open = self.is_open, False
        self._forget()
        if was_open:
            self._time.at(self._time.now_ns, self.host.ended, self, reason)

    def reset_soon(self, after_ns: float) -> None:
        """A host that does not know the connection answers with a reset."""
        self._time.at(self._time.now_ns + round(after_ns), self._reset)

    def _reset(self) -> None:
        if self.is_open:
            self._time.covered["connections_reset"] += 1
            self.fail("reset by the other end")
        self._forget()

    def _reset_far(self) -> None:
        """Inform the other end that this one is gone, unless the path is cut."""
        far = self.far
        if self.path.cuts or far is None:
            self._give_up_far()
        else:
            self.far = far.far = None
            far.reset_soon(self.path.latency_ns)

    def _give_up_far(self) -> None:
        far, self.far = self.far, None
        if far is not None:
            far.far = None
            if far.is_open:
                self._time.covered["half_open"] += 1

    def _forget(self) -> None:
        self.path.senders.pop(self, None)
        self._flight.clear()
        self._unsent.clear()
        self.unsent_bytes = self._held = 0
        self._stalled_ns = None


def connect(time: Timeline, near: tuple[Host, str, Path], far: tuple[Host, str, Path]) -> tuple[Socket, Socket]:
    """A connection: for each end its owner, its name, and the path by which it sends."""
    one = Socket(time, near[0], near[1], near[2], far[0])
    other = Socket(time, far[0], far[1], far[2], near[0])
    one.far, other.far = other, one
    return one, other
