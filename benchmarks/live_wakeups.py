"""What a live broker pays for a wake-up: one event at a time, and processor time for each at 1,000 to 10,000 events/s.

One broker process, 1 publisher, 100 subscribers, events of about 1 kB, as in `live`, with the default window. At these
rates an event comes alone and finds the broker asleep. On a machine that others use too it does not: the broker gets
its turn late, and then several events at once, so the figure falls the busier the machine is. Here the next event
leaves PAUSE_S after the last has reached all who want it and is acknowledged, so there is one wake-up for each event
on any machine. Only acknowledgements of subscribers depend on the rate: they leave when they would have if the events
had come at that rate (`client/_acks`); with `durable`, also before the broker would send the events again, which on a
busy machine is sooner.

Printed for each rate: the processor time of the broker for an event, in user mode and in the kernel, and how many
acknowledgements of subscribers there were for each. `memory` and `durable` are those of `live`.

TIDINGS_SOURCES="before=/some/src,after=src" measures other sources too, in turns.
"""

import contextlib
import math
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks import live
from benchmarks.live_peers_load import events
from tidings.protocol import wire
from tidings.protocol.node import Preamble, Splitter, joined
from tidings.rehearsal._ports import free_ports

RATES_PER_S = (1_000, 3_000, 10_000)
EVENTS = 1_500
WARMUP = 1_000
ROUNDS = int(os.environ.get("TIDINGS_ROUNDS", "3"))
PAUSE_S = 0.0007
WINDOW = 64
ACK_MANY = 16
PATIENCE_S = 0.15
"""A broker that buffers waits for .2 s at least before it sends an event again."""
_START_S = 2.0
_STUCK_S = 20.0


class Spent(NamedTuple):
    """Processor time of a process, in seconds."""

    user: float
    kernel: float


class _Client:
    """A client on a blocking socket, which acknowledges by the clock that it is given."""

    def __init__(
        self, port: int, name: str, request: Callable[[int], wire.Message], patience_s: float = PATIENCE_S
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = name
        self.is_ready = False
        self.received = self.acknowledged = self.acks = 0
        self._request = request
        self._patience_s = patience_s
        self._splitter = Splitter(1 << 20, waits=True)
        self._is_admitted = False
        self._taken: list[tuple[int, int]] = []
        self._session = 0
        self._answered_s = -1.0
        self._since_s = 0.0  # by the real clock
        self._ease_s = 1.0
        preamble = Preamble("client", name, speaks=(wire.VERSION, wire.VERSION))
        self.socket.sendall(joined([msgspec.msgpack.encode(preamble)]))

    def send(self, *messages: wire.Message) -> None:
        self.socket.sendall(live._checked([wire.encode(message) for message in messages]))

    def read(self) -> None:
        frames = self._splitter.feed(self.socket.recv(1 << 18))
        if not self._is_admitted and frames:
            self._is_admitted = True
            frames = self._splitter.go_on(is_checked=True)
            self.send(wire.Hello(wire.VERSION, self.name, "client", 1, WINDOW))
        for frame in frames:
            message = wire.decode(frame)
            if isinstance(message, wire.Transfer):
                self._take(message, live.ease_s(frame))
            elif isinstance(message, wire.Hello):
                welcome = wire.Welcome(wire.VERSION, self.name, "client", 1, WINDOW)
                self.send(welcome, self._request(message.epoch))
            elif isinstance(message, wire.Ping):
                self.send(wire.Pong(message.sent_ns))
            elif isinstance(message, wire.Ack):
                self.acknowledged += sum(last - first + 1 for first, last in message.numbers)
            self.is_ready |= isinstance(message, wire.Done)

    def _take(self, message: wire.Transfer, ease_s: float) -> None:
        self._session, self._ease_s = message.session, min(self._ease_s, ease_s)
        if not self._taken:
            self._since_s = time.monotonic()
        self._taken += [(message.number + place,) * 2 for place in range(len(message.events))]
        self.received += len(message.events)

    def acknowledge(self, now_s: float) -> None:
        """Acknowledge what was taken, if it is time."""
        if not self._taken:
            return
        is_due = now_s >= self._answered_s + max(live.ACKS.ack_wait_ns * 1e-9, self._ease_s)
        if is_due or len(self._taken) >= ACK_MANY or time.monotonic() >= self._since_s + self._patience_s:
            span = (self._taken[0][0], self._taken[-1][1])
            self.send(wire.Ack(self._session, (span,), 0, WINDOW))
            self._taken, self._answered_s, self._ease_s = [], now_s, 1.0
            self.acks += 1


class _Load:
    """The clients of one broker."""

    def __init__(self, port: int, patience_s: float) -> None:
        self.subscribers = [_Client(port, f"s{n}", _subscription(n), patience_s) for n in range(live.SUBSCRIBERS)]
        self._publisher = _Client(port, "publisher", lambda epoch: wire.Advertise(epoch, 0, "all", "TRUE"))
        self._selector = selectors.DefaultSelector()
        for client in (*self.subscribers, self._publisher):
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        while not all(client.is_ready for client in (*self.subscribers, self._publisher)):
            for key, _ in self._selector.select():
                key.data.read()
        self._contents = live._contents()
        self._wanted_by = [
            [n for n in range(live.SUBSCRIBERS) if n % live.SYMBOLS == each.symbol]
            if each.price > 50 and each.volume < 500_000
            else []
            for each in events()
        ]
        self._owed = [0] * live.SUBSCRIBERS
        self._sent = 0
        self._now_s = 0.0  # as if the events had come at their rate

    def play(self, many: int, rate_per_s: float) -> None:
        """Publish so many events, one after the other."""
        for _ in range(many):
            place = self._sent % live.EVENTS
            content = self._contents[place]
            facts = (self._sent, 0, 0, live.LIFETIME_NS, len(content), content)
            event = wire.Publication(*facts, check=wire.check_of(content))
            for number in self._wanted_by[place]:
                self._owed[number] += 1
            self._publisher.send(wire.Publish(1, self._sent, self._publisher.acknowledged, (event,)))
            self._sent += 1
            self._now_s += 1.0 / rate_per_s
            self._wait(self._wanted_by[place])
            time.sleep(PAUSE_S)
            for subscriber in self.subscribers:
                subscriber.acknowledge(self._now_s)

    def _wait(self, receivers: list[int]) -> None:
        """Until an event has arrived everywhere, and is acknowledged."""
        until_s = time.monotonic() + _STUCK_S
        while self._publisher.acknowledged < self._sent or any(
            self.subscribers[number].received < self._owed[number] for number in receivers
        ):
            for key, _ in self._selector.select(1.0):
                key.data.read()
                if key.data is not self._publisher:
                    key.data.acknowledge(self._now_s)
            if time.monotonic() > until_s:
                raise RuntimeError(f"event {self._sent} does not arrive")


def _subscription(number: int) -> Callable[[int], wire.Message]:
    filter = f"symbol = 'S{number % live.SYMBOLS}' AND price > 50 AND volume < 500000"
    return lambda epoch: wire.Subscribe(epoch, 0, wire.Entry("s", filter, 10 * 10**9, 1.0, 0))


@contextlib.contextmanager
def _broker(scheme: str, sources: str) -> Iterator[tuple[int, int]]:
    """A broker process with these sources, on a free port, with the default settings."""
    (port,) = free_ports(1)
    code = "import sys; sys.argv[0] = 'tidings'; from tidings.cli import main; main()"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "network.toml")
        path.write_text(
            f'[network]\nscheme = "{scheme}"\n[[broker]]\nname = "b"\nlisten = "127.0.0.1:{port}"\n', "utf-8"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, "broker", str(path)],
            env={**os.environ, **({"PYTHONPATH": sources} if sources else {})},
            stderr=subprocess.DEVNULL,
        )
        try:
            live._wait_for(port, process)
            time.sleep(_START_S)  # it loads kernels after its start
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _spent(pid: int) -> Spent:
    """What the scheduler has counted, divided as the ticks were: the sum is exact."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    user, kernel = int(fields[11]), int(fields[12])
    tasks = Path(f"/proc/{pid}/task").iterdir()
    total_s = sum(int((task / "schedstat").read_text("ascii").split()[0]) for task in tasks) * 1e-9
    return Spent(total_s * user / max(user + kernel, 1), total_s * kernel / max(user + kernel, 1))


def _measured(scheme: str, sources: str) -> dict[int, tuple[float, float, float]]:
    """By rate: processor time in user mode and in the kernel for an event in us, and acknowledgements for each."""
    found = {}
    with _broker(scheme, sources) as (port, pid):
        load = _Load(port, PATIENCE_S if "buffer" in scheme else math.inf)
        load.play(WARMUP, RATES_PER_S[0])
        for rate_per_s in RATES_PER_S:
            before, acks = _spent(pid), sum(each.acks for each in load.subscribers)
            load.play(EVENTS, rate_per_s)
            after, acks = _spent(pid), sum(each.acks for each in load.subscribers) - acks
            spent = Spent(*(now - then for now, then in zip(after, before, strict=True)))
            found[rate_per_s] = (spent.user / EVENTS * 1e6, spent.kernel / EVENTS * 1e6, acks / EVENTS)
    return found


def main() -> None:
    sources = dict(each.split("=", 1) for each in os.environ.get("TIDINGS_SOURCES", "now=").split(","))
    print(f"wake-ups: one event at a time, {live.SUBSCRIBERS} subscribers, 1 kB; median of {ROUNDS} rounds")
    print(f"{'':20}{'as at':>12}{'us/event':>10}{'user':>8}{'kernel':>8}{'acks/event':>12}")
    for promise, scheme in (("memory", "bypass"), ("durable", "bypass+buffer")):
        rounds: dict[str, list[Any]] = {name: [] for name in sources}
        for _ in range(ROUNDS):
            for name, path in sources.items():
                rounds[name].append(_measured(scheme, path))
        for rate_per_s in RATES_PER_S:
            for name, found in rounds.items():
                rows = [each[rate_per_s] for each in found]
                user, kernel, acks = (statistics.median(column) for column in zip(*rows, strict=True))
                head = f"{f'{promise}, {name}':20}{f'{rate_per_s:,}/s':>12}"
                print(f"{head}{user + kernel:>10.1f}{user:>8.1f}{kernel:>8.1f}{acks:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
