"""Connections that nobody uses: how much memory each takes in a broker process.

COUNTS clients connect, are admitted and greeted, and have one subscription each; then they say nothing but answers to
pings. `kB` is the anonymous memory of the broker process that each takes, from an empty broker on; `CPU %` what all of
them take of a processor while they are idle, for IDLE_S. `bare` is the limit measured in the same run: a process that
accepts as many connections on the same event loop (uvloop) and keeps a `bytearray` for each. The aim: at most 15 kB at
10,000 connections. More than the system allows (`ulimit -n`) are left out.
"""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.protocol import wire
from tidings.protocol.node import Preamble, Splitter, joined

COUNTS = (1_000, 3_000, 10_000)
TOGETHER = 200
IDLE_S = 6.0
_SPARE_FILES = 200
_BARE = """
import asyncio, sys, uvloop
kept = []
class Bare(asyncio.Protocol):
    def connection_made(self, transport): kept.append((transport, bytearray()))
    def data_received(self, data): kept[-1][1].extend(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()
uvloop.run(main())
"""


class _Idle(asyncio.Protocol):
    """A client that greets, subscribes, and answers pings; `is_bare` says nothing at all."""

    def __init__(self, name: str, *, is_bare: bool) -> None:
        self.is_done = asyncio.get_running_loop().create_future()
        self._name = name
        self._is_bare = is_bare
        self._splitter = Splitter(1 << 20)
        self._is_admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_bare:
            self.is_done.set_result(None)
            return
        hello = wire.Hello(wire.OLDEST_VERSION, self._name, "client", 1, 16)
        self._transport.write(joined([msgspec.msgpack.encode(Preamble("client", self._name)), wire.encode(hello)]))

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if not self._is_admitted:
                self._is_admitted = True
                continue
            match wire.decode(frame):
                case wire.Welcome(epoch=life):
                    entry = wire.Entry("s", f"name = '{self._name}'", None, 1.0, 0)
                    self._say(wire.Subscribe(life, 0, entry))
                case wire.Done() if not self.is_done.done():
                    self.is_done.set_result(None)
                case wire.Ping(sent_ns=sent_ns):
                    self._say(wire.Pong(sent_ns, time.monotonic_ns()))

    def _say(self, message: wire.Message) -> None:
        self._transport.write(joined([wire.encode(message)]))


async def _measure(pid: int, port: int, *, is_bare: bool) -> list[tuple[int, float, float]]:
    """For each count: kB of memory for each connection, and the share of a processor that all take."""
    loop = asyncio.get_running_loop()
    found: list[tuple[int, float, float]] = []
    there = 0
    await asyncio.sleep(1.0)
    empty_kb = _anonymous_kb(pid)
    for count in COUNTS:
        if count > _most():
            break
        while there < count:
            some = [_Idle(f"idle-{n}", is_bare=is_bare) for n in range(there, min(there + TOGETHER, count))]
            await asyncio.gather(*(_open(loop, one, port) for one in some))
            await asyncio.gather(*(one.is_done for one in some))
            there += len(some)
        began_s, cpu_s = time.monotonic(), processor_s(pid)
        await asyncio.sleep(IDLE_S)
        share = (processor_s(pid) - cpu_s) / (time.monotonic() - began_s)
        found.append((count, (_anonymous_kb(pid) - empty_kb) / count, share))
    return found


async def _open(loop: asyncio.AbstractEventLoop, one: _Idle, port: int) -> None:
    await loop.create_connection(lambda: one, "127.0.0.1", port)


def _most() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES


def _anonymous_kb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1.024 for line in lines if line.startswith("RssAnon:"))


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * max(COUNTS)), hard))
    (port,) = free_ports(1)
    text = f'[network]\nstore = "store"\n[[broker]]\nname = "a"\nlisten = "127.0.0.1:{port}"\n'
    with brokers(text, {"a": port}) as processes:
        ours = uvloop.run(_measure(processes["a"].pid, port, is_bare=False))
    (port,) = free_ports(1)
    with subprocess.Popen([sys.executable, "-c", _BARE, str(port)]) as process:
        try:
            bare = uvloop.run(_measure(process.pid, port, is_bare=True))
        finally:
            process.terminate()
    print("live_idle: memory of connections that are not used, each with a subscription")
    print(f"{'connections':>12}{'kB each':>9}{'bare kB':>9}{'ratio':>7}{'CPU %':>7}")
    for (count, kb, share), (_, bare_kb, _) in zip(ours, bare, strict=True):
        print(f"{count:>12,}{kb:>9.1f}{bare_kb:>9.1f}{kb / bare_kb:>7.1f}{share * 100:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
