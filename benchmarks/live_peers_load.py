"""The load that `live_peers` puts on every peer: light clients whose publishers and subscribers know only bytes.

A subscriber counts the marks in what it reads, so it needs no parser of the peer's protocol; a publisher has all its
events prepared as bytes, with room for a stamp, and asks the peer for an answer after every few events.
"""

import asyncio
import collections
import contextlib
import os
import random
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks import live

__all__ = ["Facts", "Figures", "Publisher", "Subscriber", "events", "play", "started"]

STEADY_PER_S = 3_000.0
START_S = 30.0
WARM_S = 2.0
MARK = b"sent at:"
_STAMP = struct.Struct(">d")


class Facts(NamedTuple):
    """One event, as a peer's publisher describes it."""

    symbol: int
    price: float
    volume: int

    @property
    def bands(self) -> tuple[str, str, str]:
        return f"S{self.symbol}", "dear" if self.price > 50 else "cheap", "small" if self.volume < 500_000 else "large"


class Figures(NamedTuple):
    """What a peer did."""

    events_per_s: float
    deliveries_per_s: float
    us_per_event: float
    half_ms: tuple[float, float]
    steady_ms: tuple[float, float]


def events() -> list[Facts]:
    """The events of the load, in order."""
    dice = random.Random(live.SEED)
    return [
        Facts(dice.randrange(live.SYMBOLS), round(dice.uniform(0.0, 100.0), 2), dice.randrange(935_000))
        for _ in range(live.EVENTS)
    ]


class Subscriber(asyncio.Protocol):
    """Counts the events in what it reads by their marks, and notes how long they took."""

    def __init__(self, greeting: bytes, ready: bytes) -> None:
        self.received = 0
        self.latencies_s: list[float] | None = None
        self.is_ready = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        self._ready = ready
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.is_ready.done() and self._ready in data:
            self.is_ready.set_result(None)
        now_s, done = time.perf_counter(), 0
        if self.latencies_s is None:
            self.received += data.count(MARK)
            done = data.rfind(MARK) + len(MARK) if MARK in data else 0
            self._rest = data[max(done, len(data) - len(MARK) + 1) :]
            return
        while (place := data.find(MARK, done)) >= 0 and place + len(MARK) + _STAMP.size <= len(data):
            done = place + len(MARK) + _STAMP.size
            self.received += 1
            self.latencies_s.append(now_s - _STAMP.unpack_from(data, place + len(MARK))[0])
        self._rest = data[place if place >= 0 else max(done, len(data) - len(MARK) + 1) :]


def _parts(message: Callable[[Facts, bytes, bool], bytes], is_asked: bool) -> list[tuple[bytes, bytes]]:
    """All events as they are sent, before and after the stamp."""
    stamp = MARK + bytes(_STAMP.size)
    found = [message(facts, bytes(live.PAYLOAD_BYTES) + stamp, is_asked).split(stamp) for facts in events()]
    return [(before, after) for before, after in found]


class Publisher(asyncio.Protocol):
    """Publishes as many events as the window allows, or at a rate; `answer` is what one answer of the peer holds."""

    def __init__(
        self,
        greeting: bytes,
        *,
        ready: bytes,
        message: Callable[[Facts, bytes, bool], bytes],  # the event, its payload, whether to ask for an answer
        fence: bytes,
        answer: bytes,
        is_each: bool = False,
    ) -> None:
        self.sent = self.acknowledged = 0
        self.is_free = True
        self.is_ready = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        self._ready = ready
        self._fence = fence
        self._answer = answer
        self._is_each = is_each
        self._parts = {is_asked: _parts(message, is_asked) for is_asked in (False, True)}
        self._fenced: collections.deque[int] = collections.deque()
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.is_ready.done():
            self._rest = data
            if self._ready in data:
                self._rest = b""
                self.is_ready.set_result(None)
            return
        answers, done = self._answers(data)
        for _ in range(answers):
            self.acknowledged += self._fenced.popleft()
        self._rest = data[done:]
        if self.is_free:
            self.publish(live.WINDOW - (self.sent - self.acknowledged))

    def _answers(self, data: bytes) -> tuple[int, int]:
        """How many answers there are in these bytes, and how many bytes they take."""
        last = data.rfind(self._answer)
        done = last + len(self._answer) if last >= 0 else max(len(data) - len(self._answer) + 1, 0)
        return data.count(self._answer), done

    def publish(self, count: int) -> None:
        """Send so many events in one write; a window that is not half empty waits for more answers."""
        if count < (live.WINDOW // 8 if self.is_free and not self._is_each else 1):
            return
        stamp = MARK + _STAMP.pack(time.perf_counter())
        parts: list[bytes] = []
        together = 1 if self._is_each else live.TOGETHER
        for begin in range(0, count, together):
            size = min(together, count - begin)
            for number in range(self.sent, self.sent + size):
                before, after = self._parts[number == self.sent + size - 1][number % live.EVENTS]
                parts += (before, stamp, after)
            parts.append(self._fence)
            self._fenced.append(size)
            self.sent += size
        self._transport.write(b"".join(parts))


async def _measured(port: int, session: int, publisher: Any, subscribers: list[Any]) -> Figures:
    """Full speed, half of it, and 3,000 events/s; without subscribers full speed alone."""
    loop = asyncio.get_running_loop()
    for client in (*subscribers, publisher):
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
        await asyncio.wait_for(client.is_ready, START_S)
    publisher.publish(live.WINDOW)
    await asyncio.sleep(WARM_S)
    events, deliveries = publisher.acknowledged, sum(each.received for each in subscribers)
    used_s, began_s = _processors_s(session), time.perf_counter()
    await asyncio.sleep(live.SECONDS)
    took_s, used_s = time.perf_counter() - began_s, _processors_s(session) - used_s
    events = max(publisher.acknowledged - events, 1)
    deliveries = sum(each.received for each in subscribers) - deliveries
    publisher.is_free = False
    until_s = time.monotonic() + START_S
    while publisher.sent > publisher.acknowledged and time.monotonic() < until_s:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    found = [
        _percentiles_ms(await live._at_rate(publisher, subscribers, rate) if subscribers else [])
        for rate in (events / took_s / 2, STEADY_PER_S)
    ]
    return Figures(events / took_s, deliveries / took_s, used_s / events * 1e6, *found)


def _percentiles_ms(latencies_s: list[float]) -> tuple[float, float]:
    ordered = sorted(latencies_s)
    if not ordered:
        return 0.0, 0.0
    return ordered[len(ordered) // 2] * 1e3, ordered[len(ordered) * 99 // 100] * 1e3


def _processors_s(session: int) -> float:
    """User and system time of all processes of a session."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text("ascii", "replace").rsplit(")", 1)[1].split()
            if int(fields[3]) == session:
                total += int(fields[11]) + int(fields[12])
    return total / live.TICKS_PER_S


@contextlib.contextmanager
def started(arguments: list[str], port: int, directory: str, **environment: str) -> Iterator[int]:
    """A peer's process, with whatever it starts in a session of its own; all of them end with the context."""
    process = subprocess.Popen(
        arguments,
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        live._wait_for(port, process)
        yield process.pid
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


def play(port: int, session: int, make: Callable[[], tuple[Any, list[Any]]]) -> Figures:
    async def played() -> Figures:
        publisher, subscribers = make()
        return await _measured(port, session, publisher, subscribers)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(played())
