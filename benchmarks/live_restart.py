"""How long a broker that was killed is away: from the start of its process to the first event that it acknowledges.

A real `tidings broker` process takes events of 1 kB for clients that are away (each event is for one of CLIENTS, all of
them durable), is killed (SIGKILL) with 10,000, 30,000 and then 100,000 of them on its disk, and started again. As soon
as it accepts connections a client joins it and publishes one event for a client that is away; what is timed ends with
its acknowledgement, that is when it is durable. Each restart is done ROUNDS times; the quickest is shown, since others
may use the machine.

- `limit`: a bare Python that opens the same LMDB file, reads every entry, and does nothing else;
- `loading`: from the start of the process until the broker opens its store: the interpreter, imports, configuration;
- `reading`: every entry of the store, checksums included; `restoring`: the protocol's machine comes to life with it;
- `acked`: all of it, to the first acknowledgement, and `of limit` how often that is the limit;
- `cpu`: processor time of the process until then: on a machine that others use too, that is the figure to compare.
"""

import asyncio
import contextlib
import datetime
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.live_load import _BROKER, free_ports, processor_s
from tidings.live import connect

SIZES = (10_000, 30_000, 100_000)
CLIENTS = 20
ROUNDS = 3
PAYLOAD = bytes(range(250)) * 4
BARE = """
import lmdb, sys
with lmdb.open(sys.argv[1], lock=False, readonly=True).begin() as transaction:
    print(sum(len(value) for _, value in transaction.cursor()))
"""


class Restart(NamedTuple):
    """One restart: its parts, and all of it."""

    loading_s: float
    reading_s: float
    restoring_s: float
    acked_s: float
    cpu_s: float


def main() -> None:
    print("live_restart: a broker killed with events on its disk, from its start to its first acknowledgement (ms)")
    heads = ("limit", "cpu", "loading", "reading", "restoring", "acked", "cpu", "of limit")
    print(f"{'events':>8}" + "".join(f"{head:>11}" for head in heads))
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_measure(Path(scratch)))


async def _measure(directory: Path) -> None:
    (port,) = free_ports(1)
    (directory / "network.toml").write_text(
        f'[network]\nstore = "store"\n[[broker]]\nname = "a"\nlisten = "127.0.0.1:{port}"\n', "utf-8"
    )
    stored = 0
    for size in SIZES:
        with _broker(directory):
            await _listening(port)
            if not stored:
                await _subscribe(port)
            await _fill(port, size - stored)
        stored = size
        limits = [_bare(directory / "store" / "a") for _ in range(ROUNDS)]
        restarts = []
        for number in range(ROUNDS):
            restarts.append(await _restart(directory, port, stored, number))
            stored += 1  # the event that was acknowledged
        limit_s, limit_cpu_s = min(limits)
        best = min(restarts, key=lambda restart: restart.acked_s)
        figures = (limit_s, limit_cpu_s, *best)
        text = "".join(f"{figure * 1e3:>11,.0f}" for figure in figures)
        print(f"{size:>8,}{text}{best.acked_s / limit_s:>11.1f}", flush=True)


@contextlib.contextmanager
def _broker(directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The broker's process, until it is killed."""
    command = [sys.executable, "-c", _BROKER, "broker", str(directory / "network.toml")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def _listening(port: int) -> None:
    for _ in range(30_000):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.002)
        else:
            writer.close()
            return
    raise SystemExit("the broker does not listen")


async def _subscribe(port: int) -> None:
    """Clients that subscribe and go away."""
    for number in range(CLIENTS):
        async with connect(f"127.0.0.1:{port}", name=f"reader-{number}", durable=True) as reader:
            await reader.subscribe(f"reader = {number}", name="mine")


async def _fill(port: int, count: int) -> None:
    """So many events more for clients that are away."""
    async with connect(f"127.0.0.1:{port}", name="writer") as writer:
        for number in range(count):
            await writer.offer({"reader": number % CLIENTS, "number": number}, payload=PAYLOAD)
        await writer.flush()


def _bare(store: Path) -> tuple[float, float]:
    """Seconds that a bare Python takes to read the store, and of its processor."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", BARE, str(store)], check=True, stdout=subprocess.DEVNULL)
    took_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _restart(directory: Path, port: int, stored: int, number: int) -> Restart:
    began_s, at_s = time.perf_counter(), time.time()
    with _broker(directory) as process:
        await _listening(port)
        async with connect(f"127.0.0.1:{port}", name=f"first-{number}") as first:
            await first.publish({"reader": number, "number": -1}, payload=PAYLOAD)
            acked_s, cpu_s = time.perf_counter() - began_s, processor_s(process.pid)
        started = _started(directory / "log")
    assert started["held"] == stored, f"{stored} events were acknowledged, {started['held']} are there"
    started_s = datetime.datetime.fromisoformat(started["at"]).timestamp() - at_s
    parts_s = (started["read_s"], started["restored_s"])
    return Restart(started_s - sum(parts_s), *parts_s, acked_s, cpu_s)


def _started(log: Path) -> dict[str, Any]:
    """What the broker says of its start."""
    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    found: dict[str, Any] = next(line for line in lines if line["event"] == "started")
    return found


if __name__ == "__main__":
    main()
