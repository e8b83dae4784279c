"""What a second copy costs: three brokers in a ring, an event is accepted when it is on one disk, or on two.

One publisher and a subscriber at the same broker, events of 1 kB that are all wanted: one at a time (how long `publish`
takes), then with 16, 64 and 256 under way (throughput). Printed for one copy and for two: events accepted per second,
the processor time of all brokers for each event, the median and p99 of `publish`; and the ratios. The limit beside them
is what the disk does: a write of 1 kB with `fdatasync`, one after the other, in the same run.
"""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.live import connect

NAMES = ("a", "b", "c")
SIZES = (16, 64, 256)
"""How many events are under way at a time."""
SECONDS = float(os.environ.get("TIDINGS_SECONDS", "4"))
ALONE = 300
PAYLOAD = bytes(900)


class Run(NamedTuple):
    """What one network showed."""

    per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


async def _measure(port: int, pids: list[int], in_flight: int) -> Run:
    address = f"127.0.0.1:{port}"
    got = 0

    def count(_: object) -> None:
        nonlocal got
        got += 1

    async with (
        connect(address, name="s") as subscriber,
        connect(address, name="p", max_in_flight=in_flight) as publisher,
    ):
        await subscriber.subscribe("n >= 0", callback=count)
        waits_s = []
        for n in range(ALONE):
            began_s = time.perf_counter()
            await publisher.publish({"n": n}, payload=PAYLOAD)
            waits_s.append(time.perf_counter() - began_s)
        sent, began_s, cpu_s = 0, time.perf_counter(), processor_s(*pids)
        while time.perf_counter() - began_s < SECONDS:
            await publisher.offer({"n": sent}, payload=PAYLOAD)
            sent += 1
        await publisher.flush()
        took_s, cpu_s = time.perf_counter() - began_s, processor_s(*pids) - cpu_s
        while got < ALONE + sent:
            await asyncio.sleep(0.01)
    waits_s = sorted(waits_s[ALONE // 10 :])
    p99_s = waits_s[int(0.99 * len(waits_s))]
    return Run(sent / took_s, 1e6 * cpu_s / sent, 1e3 * statistics.median(waits_s), 1e3 * p99_s)


def _network(ports: dict[str, int], copies: int) -> str:
    text = f"[network]\ncopies = {copies}\n"
    for place, (name, port) in enumerate(ports.items()):
        others = ", ".join(f'"{other}"' for other in NAMES[place + 1 :])
        text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = [{others}]\n'
    return text


def _disk_ms(directory: Path) -> float:
    """What a durable write of an event's size takes, at the median."""
    waits_s = []
    with (directory / "probe").open("wb", buffering=0) as file:
        for _ in range(ALONE):
            began_s = time.perf_counter()
            file.write(PAYLOAD)
            os.fdatasync(file.fileno())
            waits_s.append(time.perf_counter() - began_s)
    return 1e3 * statistics.median(waits_s)


def main() -> None:
    print("live copies: three brokers in a ring, publisher and subscriber at one of them, 1 kB events")
    with tempfile.TemporaryDirectory() as directory:
        print(f"limit: a write of 1 kB with fdatasync takes {_disk_ms(Path(directory)):.2f} ms here")
    headings = f"{'under way':>10}{'copies':>8}{'events/s':>10}{'us/event':>10}{'p50 ms':>8}{'p99 ms':>8}"
    print(f"{headings}   of one copy: events/s, us/event, p50")
    for in_flight in SIZES:
        runs = {}
        for copies in (1, 2):
            ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
            with brokers(_network(ports, copies), ports) as processes:
                pids = [process.pid for process in processes.values()]
                run = runs[copies] = asyncio.run(_measure(ports["a"], pids, in_flight))
            ratios = ""
            if copies == 2:
                one = runs[1]
                ratios = f"   {run.per_s / one.per_s:.2f}, {run.cpu_us / one.cpu_us:.2f}, {run.p50_ms / one.p50_ms:.2f}"
            figures = f"{run.per_s:>10,.0f}{run.cpu_us:>10.0f}{run.p50_ms:>8.2f}{run.p99_ms:>8.2f}"
            print(f"{in_flight:>10}{copies:>8}{figures}{ratios}")


if __name__ == "__main__":
    main()
