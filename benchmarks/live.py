"""One live broker process: events and deliveries per second, and how long deliveries take at half of that.

One publisher, 100 subscribers with selectors such as `symbol = 'S3' AND price > 50 AND volume < 500000`, events of 1
kB, each of which matches about 4.5 of them. The broker is a process of its own with the whole protocol at work:
admission, credit, deadlines, scheduled queues, acknowledgements, traces of one event in a hundred. The clients are as
light as they can be (events prepared beforehand, up to 60 in a frame as our own client sends them; of a transfer only
the head is read; acknowledgements as seldom as our own client sends them), all in this process, so that the broker is
what is measured.

- `memory`: scheme `bypass`, an event is acknowledged when its next hop is known, nothing is stored;
- `durable`: scheme `bypass+buffer`, an event is acknowledged when it is on disk (LMDB, one fsync for all events of a
  commit).

Events per second are those acknowledged to the publisher, as fast as the broker's credit lets it send. `us/event` and
`us/delivery` are what the broker's processor spent in total, by event and by delivery: on a machine that others use
too, that is the figure that can be compared. Latency is from the publisher's write to the subscriber's read, at half
the rate.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

from tidings.protocol import ClientSettings, wire
from tidings.protocol.node import Preamble, Splitter, checked, joined
from tidings.rehearsal._ports import free_ports

SUBSCRIBERS = 100
SYMBOLS = 6
EVENTS = 4_096
WINDOW = 4_096
TOGETHER = 60
SECONDS = float(os.environ.get("TIDINGS_SECONDS", "5"))
PAYLOAD_BYTES = 900
SAMPLE = 0.01
LIFETIME_NS = 20 * 10**9
SEED = 3
ACKS = ClientSettings(name="as our own client does")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PUBLISH, _TRANSFER, _ACK, _HELLO, _DONE = 9, 10, 11, 1, 4
_STAMP = struct.Struct(">d")
_MARK = b"sent at:"


def _tag_of(frame: bytes) -> int:
    """The tag of a message, from where our own encoder puts it."""
    return frame[1] if frame[0] <= 0x9F else frame[3]


class _Head(msgspec.Struct, array_like=True):
    """A Transfer of which only the numbers are read."""

    tag: int
    session: int
    number: int
    floor: int
    targets: msgspec.Raw

    @property
    def last(self) -> int:
        """The number of its last event."""
        begin = bytes(memoryview(self.targets)[:3])
        return self.number + (begin[0] & 0x0F if begin[0] < 0xA0 else int.from_bytes(begin[1:], "big")) - 1


_HEAD = msgspec.msgpack.Decoder(_Head)
_EASY = 0x98
"""The first byte of a transfer that says how far apart acknowledgements may be: in its last four bytes."""


def ease_s(frame: bytes) -> float:
    """How far apart the acknowledgements may be that include the events of this transfer."""
    return int.from_bytes(frame[-4:], "big") * 1e-9 if frame[0] == _EASY else 0.0


class Rate(NamedTuple):
    """What one run at full speed, and one at half of it, showed."""

    events_per_s: float
    deliveries_per_s: float
    us_per_event: float
    us_per_delivery: float
    busy: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    print(
        f"live: one broker process, 1 publisher, {SUBSCRIBERS} subscribers with selectors, 1 kB events, {SECONDS:g} s"
    )
    headings = f"{'':10}{'events/s':>10}{'deliveries/s':>14}{'us/event':>10}{'us/delivery':>13}"
    print(f"{headings}{'busy':>7}{'p50 ms':>9}{'p99 ms':>9}")
    for name, scheme in (("memory", "bypass"), ("durable", "bypass+buffer")):
        with _broker(scheme) as (port, pid), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rate = runner.run(_measure(port, pid))
        print(
            f"{name:10}{rate.events_per_s:>10,.0f}{rate.deliveries_per_s:>14,.0f}{rate.us_per_event:>10.1f}"
            f"{rate.us_per_delivery:>13.1f}{rate.busy:>7.0%}{rate.p50_ms:>9.2f}{rate.p99_ms:>9.2f}"
        )


@contextlib.contextmanager
def _broker(scheme: str) -> Iterator[tuple[int, int]]:
    """A broker process on a free port, with a store of its own."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "network.toml"
        path.write_text(
            f'[network]\nscheme = "{scheme}"\n[limits]\nwindow = {WINDOW}\n'
            f'[trace]\ndirectory = "trace"\nsample = {SAMPLE}\n'
            f'[[broker]]\nname = "b"\nlisten = "127.0.0.1:{port}"\n',
            "utf-8",
        )
        profile = os.environ.get("TIDINGS_PROFILE")
        wrapper = ["-m", "cProfile", "-o", f"{profile}.{scheme}"] if profile else []
        code = "import sys; sys.argv[0] = 'tidings'; from tidings.cli import main; main()"
        script = Path(directory) / "broker.py"
        script.write_text(code, "utf-8")
        process = subprocess.Popen(
            [sys.executable, *wrapper, str(script), "broker", str(path)], stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(port, process)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until_s = time.monotonic() + 120.0
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise RuntimeError("the broker does not come up")


class _Subscriber(asyncio.Protocol):
    """Acknowledges what it gets, and notes how long that took."""

    def __init__(self, name: str, filter: str) -> None:
        self.name = name
        self.received = 0
        self.latencies_s: list[float] | None = None
        self.is_ready = asyncio.get_running_loop().create_future()
        self._filter = filter
        self._splitter = Splitter(1 << 20, waits=True)
        self._is_admitted = False
        self._session = 0
        self._taken: list[tuple[int, int]] = []  # numbers to be acknowledged
        self._count = 0  # how many these are
        self._last_s = self._answered_s = 0.0
        self._ease_s = 1.0
        self._waiting: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        speaks = (wire.VERSION, wire.VERSION)
        self._transport.write(joined([msgspec.msgpack.encode(Preamble("client", self.name, speaks=speaks))]))

    def data_received(self, data: bytes) -> None:
        answers: list[bytes] = []
        frames = self._splitter.feed(data)
        if not self._is_admitted and frames:
            self._is_admitted = True
            frames = self._splitter.go_on(is_checked=True)
            answers.append(wire.encode(wire.Hello(wire.VERSION, self.name, "client", 1, WINDOW)))
        now_s = time.perf_counter()
        for frame in frames:
            self._on_frame(frame, answers, now_s)
        if self._taken:
            self._last_s = now_s
            wait_s = self._answered_s + max(ACKS.ack_wait_ns * 1e-9, self._ease_s) - now_s
            if wait_s <= 0.0 or self._count >= ACKS.ack_many:
                answers.append(self._acknowledgement(now_s))
            elif self._waiting is None:
                self._waiting = asyncio.get_running_loop().call_later(wait_s, self._acknowledge)
        if answers:
            self._transport.write(_checked(answers))

    def _acknowledgement(self, now_s: float) -> bytes:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        taken, self._taken = tuple(self._taken), []
        self._answered_s, self._count, self._ease_s = now_s, 0, 1.0
        return wire.encode(wire.Ack(self._session, taken, int((now_s - self._last_s) * 1e9), WINDOW))

    def _acknowledge(self) -> None:
        self._transport.write(_checked([self._acknowledgement(time.perf_counter())]))

    def _on_frame(self, frame: bytes, answers: list[bytes], now_s: float) -> None:
        tag = _tag_of(frame)
        if tag == _TRANSFER:
            head = _HEAD.decode(frame)
            last = head.last
            self._session = head.session
            self._ease_s = min(self._ease_s, ease_s(frame))
            if self._taken and self._taken[-1][1] + 1 == head.number:
                self._taken[-1] = (self._taken[-1][0], last)
            else:
                self._taken.append((head.number, last))
            self._count += last - head.number + 1
            self.received += last - head.number + 1
            if self.latencies_s is not None:
                place = frame.find(_MARK)
                while place >= 0:
                    self.latencies_s.append(now_s - _STAMP.unpack_from(frame, place + len(_MARK))[0])
                    place = frame.find(_MARK, place + len(_MARK))
            return
        message = wire.decode(frame)
        if isinstance(message, wire.Hello):
            answers.append(wire.encode(wire.Welcome(wire.VERSION, self.name, "client", 1, WINDOW)))
            self._greeted(message.epoch, answers)
        elif isinstance(message, wire.Done) and not self.is_ready.done():
            self.is_ready.set_result(None)
        elif isinstance(message, wire.Ping):
            answers.append(wire.encode(wire.Pong(message.sent_ns)))

    def _greeted(self, epoch: int, answers: list[bytes]) -> None:
        entry = wire.Entry("s", self._filter, 10 * 10**9, 1.0, 0)
        answers.append(wire.encode(wire.Subscribe(epoch, 0, entry)))


class _Publisher(_Subscriber):
    """Publishes prepared events, as many as the window allows, or at a rate."""

    def __init__(self) -> None:
        super().__init__("publisher", "TRUE")
        self.acknowledged = self.sent = 0
        self.is_free = True
        self._contents = _contents()

    def _greeted(self, epoch: int, answers: list[bytes]) -> None:
        answers.append(wire.encode(wire.Advertise(epoch, 0, "all", self._filter)))

    def _on_frame(self, frame: bytes, answers: list[bytes], now_s: float) -> None:
        if _tag_of(frame) == _ACK:
            message = wire.decode(frame)
            assert isinstance(message, wire.Ack)
            self.acknowledged += sum(last - first + 1 for first, last in message.numbers)
        else:
            super()._on_frame(frame, answers, now_s)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_free and self.is_ready.done():
            self.publish(WINDOW - (self.sent - self.acknowledged))

    def publish(self, count: int) -> None:
        """Send so many events in one write; a window that is not half empty waits for more acknowledgements."""
        if count < (WINDOW // 8 if self.is_free else 1):
            return
        stamp = _MARK + _STAMP.pack(time.perf_counter())
        events = []
        for number in range(self.sent, self.sent + count):
            content = self._contents[number % EVENTS]
            content = content[: -len(stamp)] + stamp
            check = wire.check_of(content)
            events.append(wire.Publication(number, 0, 0, LIFETIME_NS, len(content), content, check=check))
        frames = [
            wire.encode(wire.Publish(1, self.sent + begin, self.acknowledged, tuple(events[begin : begin + TOGETHER])))
            for begin in range(0, count, TOGETHER)
        ]
        self.sent += count
        self._transport.write(_checked(frames))


def _checked(frames: list[bytes]) -> bytes:
    return b"".join(part for frame in frames for part in (checked(frame), frame))


def _contents() -> list[bytes]:
    dice = random.Random(SEED)
    found = []
    for _ in range(EVENTS):
        attributes: dict[str, int | float | str | bool] = {
            "symbol": f"S{dice.randrange(SYMBOLS)}",
            "price": round(dice.uniform(0.0, 100.0), 2),
            "volume": dice.randrange(935_000),
        }
        found.append(wire.encode_content(wire.Content(attributes, b"", bytes(PAYLOAD_BYTES))))
    return found


async def _measure(port: int, pid: int) -> Rate:
    loop = asyncio.get_running_loop()
    subscribers = [
        _Subscriber(f"s{number}", f"symbol = 'S{number % SYMBOLS}' AND price > 50 AND volume < 500000")
        for number in range(SUBSCRIBERS)
    ]
    publisher = _Publisher()
    for client in (*subscribers, publisher):
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
        await client.is_ready
    publisher.publish(WINDOW)
    await asyncio.sleep(1.0)  # what is done once
    events, deliveries = publisher.acknowledged, sum(each.received for each in subscribers)
    used_s, began_s = _processor_s(pid), time.perf_counter()
    await asyncio.sleep(SECONDS)
    took_s, used_s = time.perf_counter() - began_s, _processor_s(pid) - used_s
    events = publisher.acknowledged - events
    deliveries = sum(each.received for each in subscribers) - deliveries
    publisher.is_free = False
    while publisher.sent > publisher.acknowledged:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    latencies_s = sorted(await _at_rate(publisher, subscribers, events / took_s / 2))
    return Rate(
        events_per_s=events / took_s,
        deliveries_per_s=deliveries / took_s,
        us_per_event=used_s / events * 1e6,
        us_per_delivery=used_s / max(deliveries, 1) * 1e6,
        busy=used_s / took_s,
        p50_ms=latencies_s[len(latencies_s) // 2] * 1e3,
        p99_ms=latencies_s[len(latencies_s) * 99 // 100] * 1e3,
    )


async def _at_rate(publisher: _Publisher, subscribers: list[_Subscriber], rate_per_s: float) -> list[float]:
    for each in subscribers:
        each.latencies_s = []
    began_s, first = time.perf_counter(), publisher.sent
    while (passed_s := time.perf_counter() - began_s) < SECONDS:
        due = int(passed_s * rate_per_s) - (publisher.sent - first)
        publisher.publish(min(due, WINDOW - (publisher.sent - publisher.acknowledged)))
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.5)
    return [latency for each in subscribers for latency in each.latencies_s or ()]


def _processor_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


if __name__ == "__main__":
    main()
