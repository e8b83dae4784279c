"""Connections that nobody uses: how much memory each takes in a broker process.

COUNTS clients connect, are admitted and greeted, and have one subscription each; then they say nothing but answers to
pings. `kB` is the anonymous memory of the broker process that each takes, from an empty broker on; `CPU %` what all of
them take of a processor while they are idle, for IDLE_S. `bare` is the limit measured in the same run: a process that
accepts as many connections on the same event loop (uvloop) and keeps a `bytearray` for each. NATS and Mosquitto have as
many connections in the same run, with a subscription each; one that is not installed is named and skipped. The aim: at
most 15 kB at 10,000 connections. More than the system allows (`ulimit -n`) are left out.

Options: ``BENCH_COUNTS=1000,10000``.
"""

import asyncio
import contextlib
import functools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from benchmarks.live_load import brokers, free_ports, processor_s
from benchmarks.live_scale_peers import PEERS, Protocol, server
from tidings.protocol import wire
from tidings.protocol.node import Preamble, Splitter, joined

COUNTS = tuple(int(count) for count in os.environ.get("BENCH_COUNTS", "1000,3000,10000").split(","))
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


class _Client(asyncio.Protocol):
    """`is_done` is set when the server has answered."""

    def __init__(self) -> None:
        self.is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _PeersClient(_Client):
    """A client of another server that greets, subscribes, and waits for an answer to what follows."""

    def __init__(self, name: str, peer: Protocol) -> None:
        super().__init__()
        self._name = name
        self._peer = peer
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = self._peer
        cast(asyncio.Transport, transport).write(peer.hello(self._name) + peer.subscribe([self._name]) + peer.fence)

    def data_received(self, data: bytes) -> None:
        self._heard = (self._heard + data)[-64:]
        if self._heard.endswith(self._peer.answer) and not self.is_done.done():
            self.is_done.set_result(None)


class _Idle(_Client):
    """A client that greets, subscribes, and answers pings; `is_bare` says nothing at all."""

    def __init__(self, name: str, *, is_bare: bool) -> None:
        super().__init__()
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


async def _measure(pid: int, port: int, client: Callable[[str], _Client]) -> list[tuple[int, float, float]]:
    """For each count: kB of memory for each connection, and the share of a processor that all take."""
    loop = asyncio.get_running_loop()
    found: list[tuple[int, float, float]] = []
    there = 0
    for _ in range(600):
        with contextlib.suppress(OSError):
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
            transport.close()
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    empty_kb = _anonymous_kb(pid)
    for count in COUNTS:
        if count > _most():
            break
        while there < count:
            some = [client(f"idle-{n}") for n in range(there, min(there + TOGETHER, count))]
            await asyncio.gather(*(_open(loop, one, port) for one in some))
            await asyncio.gather(*(one.is_done for one in some))
            there += len(some)
        began_s, cpu_s = time.monotonic(), processor_s(pid)
        await asyncio.sleep(IDLE_S)
        share = (processor_s(pid) - cpu_s) / (time.monotonic() - began_s)
        found.append((count, (_anonymous_kb(pid) - empty_kb) / count, share))
    return found


async def _open(loop: asyncio.AbstractEventLoop, one: _Client, port: int) -> None:
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
        ours = uvloop.run(_measure(processes["a"].pid, port, lambda name: _Idle(name, is_bare=False)))
    (port,) = free_ports(1)
    with subprocess.Popen([sys.executable, "-c", _BARE, str(port)]) as process:
        try:
            bare = uvloop.run(_measure(process.pid, port, lambda name: _Idle(name, is_bare=True)))
        finally:
            process.terminate()
    print("live_idle: memory of connections that are not used, each with a subscription")
    print(f"{'':>12}{'connections':>12}{'kB each':>9}{'bare kB':>9}{'ratio':>7}{'CPU %':>7}")
    _print("Tidings", ours, bare)
    for name, peer in PEERS.items():
        with server(peer) as found:
            if found is None:
                print(f"{name:>12} is not installed ({peer.where})")
                continue
            port, pid = found
            _print(name, uvloop.run(_measure(pid, port, functools.partial(_PeersClient, peer=peer))), bare)


def _print(name: str, rows: list[tuple[int, float, float]], bare: list[tuple[int, float, float]]) -> None:
    for (count, kb, share), (_, bare_kb, _) in zip(rows, bare, strict=True):
        print(f"{name:>12}{count:>12,}{kb:>9.1f}{bare_kb:>9.1f}{kb / bare_kb:>7.1f}{share * 100:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
