"""How true ages are, on loopback: what deliveries say of their age against the clock that all processes here share.

Brokers are real processes with default settings: one, and a mesh of three with the publisher at one end and the
subscriber at another. The truth is the time from before `offer` to the subscriber's callback. What an age claims is the
time to the turn in which the client took the event, so `wronger` is judged by that. (A process that the machine stops
just before it publishes looks like one.)

- **Quiet**: ROUNDS times new clients connect and publish EVENTS events at once, PERIOD_S apart, the first as soon as
  there is a subscription. `|age - true|` in ms, of all events and of the first five of each round, and at the turn;
  `stated`: the median of `age_error_s`; `wronger`: how many ages were wrong by more than they state. A second
  subscription wants events of at most 20 ms: `within` is the share that it got of those that truly were (as the first
  one saw them).
- **Limit**: bare TCP on the same machine at the same time. A process echoes, and half of a round trip is what no pair
  of clocks can be compared better than. Its p99 and maximum say how quiet the machine is: `of limit` is the ratio of
  the p99s.
- **Pauses**: events with a lifetime of LIFETIME_S, a process stopped for PAUSE_S. `unmarked`: deliveries older than the
  lifetime by more than 100 ms that are not marked late; `too strict`: those truly younger that are, in brackets by more
  than the error that they state. The subscriber is a process of its own here.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.live_load import brokers, free_ports
from tidings.live import Delivery, Tidings, connect
from tidings.live.transport._clock import Clock

ROUNDS = 10
EVENTS = 300
PERIOD_S = 0.005
TIGHT_S = 0.02
LIFETIME_S = 2.0
PAUSE_S = 6.0
FIRST = 5
_MS = 1e-6
_ECHO = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
near, _ = server.accept()
near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := near.recv(4096):
    near.sendall(data)
"""


class Seen(NamedTuple):
    """One delivery; times in ns."""

    n: int
    true_ns: int
    taken_ns: int
    """How old it was in the turn in which its client took it."""
    age_ns: int
    error_ns: int
    late: bool

    @property
    def is_wronger(self) -> bool:
        """Whether the age is wrong by more than it states."""
        return abs(self.age_ns - self.taken_ns) > self.error_ns


class Watched(Clock):
    """A client's clock that remembers when it was last read, by the clock of the machine: when its turn began."""

    def __init__(self, client: Tidings) -> None:
        self._offset_ns = client._driver.clock._offset_ns
        self.read_ns = 0
        client._driver.clock = self

    def now_ns(self) -> int:
        self.read_ns = time.monotonic_ns()
        return self.read_ns + self._offset_ns


def main() -> None:
    if sys.argv[1:2] == ["reader"]:
        asyncio.run(_read(sys.argv[2]))
        return
    print(f"live_ages: quiet, {ROUNDS} x {EVENTS} events from new clients; |age - true| in ms")
    heads = (
        "p50",
        "p99",
        "max",
        "first 5",
        "max taken",
        "stated",
        "wronger",
        "within",
        "echo/2 p99",
        "max",
        "of limit",
    )
    print(f"{'':>12}" + "".join(f"{head:>11}" for head in heads))
    for names in (("a",), ("a", "b", "c")):
        with _network(names) as (ports, _):
            asyncio.run(_quiet(ports))
    print(f"\nlive_ages: {PAUSE_S:g} s pauses, lifetimes of {LIFETIME_S:g} s")
    figures = ("deliveries", "late", "oldest s", "unmarked", "too strict", "wronger")
    print(f"{'stopped':>24}" + "".join(f"{figure:>12}" for figure in figures))
    with _network(("a", "b", "c")) as (ports, pids):
        for stopped in ("publisher's broker", "subscriber's broker", "subscriber"):
            asyncio.run(_paused(ports, pids, stopped))


@contextlib.contextmanager
def _network(names: tuple[str, ...]) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Broker processes, each the neighbour of all others: their ports and their processes."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    text = '[network]\nstore = "store"\n'
    for place, (name, port) in enumerate(ports.items()):
        text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = {list(names[place + 1 :])}\n'
    with brokers(text, ports) as processes:
        yield ports, {name: process.pid for name, process in processes.items()}


# -- quiet -------------------------------------------------------------------------------------------------------------


async def _quiet(ports: dict[str, int]) -> None:
    first, last = (f"127.0.0.1:{port}" for port in (min(ports.items())[1], max(ports.items())[1]))
    everything: list[list[Seen]] = []
    tight = matched = 0
    halves_ns: list[int] = []
    with _echo() as echo:
        for number in range(ROUNDS):
            seen, within = await _round(first, last, number, echo, halves_ns)
            everything.append(seen)
            in_time = {each.n for each in seen if each.true_ns < TIGHT_S * 1e9}
            matched += len(in_time)
            tight += len(in_time & within)
    of_all = [each for seen in everything for each in seen]
    wrong = np.array([abs(each.age_ns - each.true_ns) for each in of_all]) * _MS
    at_first = [abs(each.age_ns - each.true_ns) for seen in everything for each in sorted(seen)[:FIRST]]
    stated = np.median([each.error_ns for each in of_all]) * _MS
    taken = max(abs(each.age_ns - each.taken_ns) for each in of_all) * _MS
    wronger = sum(each.is_wronger for each in of_all)
    halves = np.array(halves_ns) * _MS
    p99, limit = np.percentile(wrong, 99), np.percentile(halves, 99)
    figures = [np.median(wrong), p99, wrong.max(), max(at_first) * _MS, taken, stated]
    print(
        f"{f'{len(ports)} brokers':>12}" + "".join(f"{figure:>11.2f}" for figure in figures) + f"{wronger:>11}"
        f"{tight / max(matched, 1):>10.2%} {limit:>11.2f}{halves.max():>11.2f}{p99 / limit:>11.1f}",
        flush=True,
    )


async def _round(
    first: str, last: str, number: int, echo: socket.socket, halves_ns: list[int]
) -> tuple[list[Seen], set[int]]:
    """New clients: what came, and what came to the subscription with the tight deadline."""
    seen: list[Seen] = []
    within: set[int] = set()
    left_ns: dict[int, int] = {}

    def take(event: Delivery) -> None:
        seen.append(_seen(event, left_ns[int(event.attributes["n"])], clock))

    async with connect(first, name=f"p{number}") as p, connect(last, name=f"s{number}") as s:
        clock = Watched(s)
        await p.advertise("TRUE")
        await s.subscribe("n >= 0", callback=take)
        await s.subscribe(
            "n >= 0", name="tight", max_delay_s=TIGHT_S, callback=lambda event: within.add(int(event.attributes["n"]))
        )
        begin = 0
        while not seen and begin < EVENTS:  # until the publisher's broker knows of the subscription
            left_ns[begin] = time.monotonic_ns()
            await p.offer({"n": begin})
            begin += 1
            await asyncio.sleep(PERIOD_S)
        for n in range(begin, begin + EVENTS):
            left_ns[n] = time.monotonic_ns()
            await p.offer({"n": n})
            await asyncio.sleep(PERIOD_S)
            if n % 10 == 0:
                halves_ns.append(_half_ns(echo))
        await p.flush()
        await asyncio.sleep(0.5)
    return seen, within


def _seen(event: Delivery, left_ns: int, clock: Watched) -> Seen:
    assert event.age_error_s is not None
    true_ns, taken_ns = time.monotonic_ns() - left_ns, clock.read_ns - left_ns
    times_ns = (true_ns, taken_ns, round(event.age_s * 1e9), round(event.age_error_s * 1e9))
    return Seen(int(event.attributes["n"]), *times_ns, event.late)


@contextlib.contextmanager
def _echo() -> Iterator[socket.socket]:
    """A connection to a process that sends everything back."""
    (port,) = free_ports(1)
    process = subprocess.Popen([sys.executable, "-c", _ECHO, str(port)])
    try:
        for _ in range(500):
            with contextlib.suppress(OSError):
                far = socket.create_connection(("127.0.0.1", port))
                break
            time.sleep(0.02)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with far:
            yield far
    finally:
        process.kill()
        process.wait()


def _half_ns(echo: socket.socket) -> int:
    began_ns = time.monotonic_ns()
    echo.sendall(b"x" * 64)
    echo.recv(4096)
    return (time.monotonic_ns() - began_ns) // 2


# -- pauses ------------------------------------------------------------------------------------------------------------


async def _paused(ports: dict[str, int], pids: dict[str, int], stopped: str) -> None:
    command = [sys.executable, "-m", "benchmarks.live_ages", "reader", f"127.0.0.1:{ports['c']}"]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"ready\n"
    pid = {"publisher's broker": pids["a"], "subscriber's broker": pids["c"], "subscriber": reader.pid}[stopped]
    async with connect(f"127.0.0.1:{ports['a']}", name="p", max_in_flight=10_000) as p:
        for for_s, sign in ((3.0, signal.SIGSTOP), (PAUSE_S, signal.SIGCONT), (3.0, None)):
            end_s = time.monotonic() + for_s
            while time.monotonic() < end_s:
                await p.offer({"n": 0, "at": time.monotonic_ns()}, lifetime_s=LIFETIME_S)
                await asyncio.sleep(0.01)
            if sign is not None:
                os.kill(pid, sign)
        await asyncio.sleep(4.0)
    reader.send_signal(signal.SIGTERM)
    seen = [Seen(*json.loads(line)) for line in reader.communicate()[0].splitlines()]
    lifetime_ns = LIFETIME_S * 1e9
    unmarked = sum(not each.late and each.true_ns > lifetime_ns + 100e6 for each in seen)
    strict = [each for each in seen if each.late and each.true_ns < lifetime_ns]
    surely = sum(each.true_ns < lifetime_ns - each.error_ns for each in strict)
    wronger = sum(each.is_wronger for each in seen)
    oldest_s = max(each.true_ns for each in seen) * 1e-9
    figures: tuple[Any, ...] = (len(seen), sum(each.late for each in seen), f"{oldest_s:.2f}", unmarked)
    text = "".join(f"{figure:>12}" for figure in (*figures, f"{len(strict)} ({surely})", wronger))
    print(f"{stopped:>24}{text}", flush=True)


async def _read(address: str) -> None:
    """Print what comes, with the true age: the time of the machine is in the event."""
    async with connect(address, name="reader") as client:
        clock = Watched(client)

        def put(event: Delivery) -> None:
            print(json.dumps(_seen(event, int(event.attributes["at"]), clock)), flush=True)

        await client.subscribe("n >= 0", late_s=30.0, callback=put)
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        await ended.wait()


if __name__ == "__main__":
    main()
