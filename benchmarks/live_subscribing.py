"""What a subscription costs a live broker, with gossip to two neighbours, and how that grows.

Three broker processes, `b` the neighbour of `a` and `c`. Clients of `b` subscribe with `subscribe_many`, PER_CLIENT
each, to a symbol and a price of their own; the run ends when both neighbours know all of them. For each size, with
brokers of their own:

- CPU of `b`, and of a neighbour, in µs for each subscription; the aim for `b` is at most 100;
- memory: by how much the resident size of `b` grew, in bytes for each, and for each more than in the row above, which
  leaves out what a broker loads once (the compiler, from 2,048 subscriptions on); the aim is at most 1,500;
- in the same run, what parsing such a filter takes this process (`Filter.parse`), which every broker has to do, and the
  ratio of `b` to it;
- the wall time until all are known everywhere.

Options: ``BENCH_SIZES=2000,10000``.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.live import connect, read_network
from tidings.live.operations._query import ask_network
from tidings.model.filters import Filter

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "10000,30000,100000").split(","))
PER_CLIENT = 10_000
PARSED = 2_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def text(number: int) -> str:
    return f"symbol = 'S{number % 4_096}' AND price > {number}"


def parse_us() -> float:
    """µs of processor time to parse one such filter."""
    began = time.process_time()
    for number in range(PARSED):
        assert Filter.parse(text(-number)).clauses
    return (time.process_time() - began) / PARSED * 1e6


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


async def _subscribe(path: Path, port: int, size: int, pids: dict[str, int]) -> tuple[dict[str, float], int, float]:
    """Processor seconds by broker, by how much `b` has grown, and the seconds until all is known."""
    network = read_network(path)
    while not all(broker["up"] and broker["ready"] and not broker["absent"] for broker in await ask_network(network)):
        await asyncio.sleep(0.1)
    await asyncio.sleep(3.0)  # what brokers load meanwhile is not the subscriptions'
    before = {name: processor_s(pid) for name, pid in pids.items()}
    resident_bytes = _resident_bytes(pids["b"])
    began = time.perf_counter()
    for first in range(0, size, PER_CLIENT):
        async with connect(f"127.0.0.1:{port}", name=f"c{first}", durable=True, connect_s=60.0) as client:
            await client.subscribe_many(text(number) for number in range(first, min(first + PER_CLIENT, size)))
    while any(
        broker["subscriptions_elsewhere"] < size for broker in await ask_network(network) if broker["name"] != "b"
    ):
        await asyncio.sleep(0.05)
    took_s = time.perf_counter() - began
    cpu_s = {name: processor_s(pid) - before[name] for name, pid in pids.items()}
    return cpu_s, _resident_bytes(pids["b"]) - resident_bytes, took_s


def measure(size: int, directory: Path) -> tuple[dict[str, float], int, float]:
    ports = dict(zip("abc", free_ports(3), strict=True))
    beside = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    content = '[network]\nstore = "store"\n'
    for name, port in ports.items():
        content += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = {beside[name]}\n'
    directory.mkdir()
    with brokers(content, ports, directory) as processes:
        pids = {name: process.pid for name, process in processes.items()}
        return asyncio.run(_subscribe(directory / "network.toml", ports["b"], size, pids))


def main() -> None:
    floor_us = parse_us()
    print(f"live_subscribing: a broker with two neighbours; to parse a filter takes {floor_us:.1f} us")
    heads = ("home us", "/parse", "neighbour us", "bytes each", "bytes more", "wall s")
    print(f"{'subscriptions':>14}" + "".join(f"{head:>14}" for head in heads))
    before, before_bytes = 0, 0
    with tempfile.TemporaryDirectory(prefix="tidings-") as top:
        for size in SIZES:
            cpu_s, grown_bytes, took_s = measure(size, Path(top) / str(size))
            home_us, other_us = cpu_s["b"] / size * 1e6, (cpu_s["a"] + cpu_s["c"]) / 2 / size * 1e6
            more_bytes = (grown_bytes - before_bytes) / max(size - before, 1)
            before, before_bytes = size, grown_bytes
            cells = (home_us, home_us / floor_us, other_us, grown_bytes / size, more_bytes, took_s)
            print(f"{size:>14,}" + "".join(f"{cell:>14.1f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
