"""Attacks on one broker by clients that speak raw bytes: what the others feel of it, and how much memory it takes.

Two broker processes with default settings, a and b, linked. A publisher of RATE events a second at b, a reader at b and
one at a; whoever attacks does so at a (`live_attacks_raw` has the attacks). ROUNDS times over for each attack: SPAN_S
without it, then SPAN_S with it. Printed for both readers: median and p99 delay without and with the attack, over all
rounds, and the ratio of the p99; then the most anonymous memory that a and b had beyond what they had before any
attack, and the budget: what may wait for one client and be under way to it (64 and 16 MB), and the store's cache of
filters (64 MB). The aim: p99 at most doubled, memory within the budget.

`nobody` is an attack by nobody: how far two spans differ by themselves.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.live_attacks_raw import KINDS
from benchmarks.live_load import brokers, free_ports
from tidings.live import Delivery, connect

RATE = 200.0
PERIOD_S = 0.005
SPAN_S = 3.0
WARMUP_S = 12.0
ROUNDS = 2
PAYLOAD = bytes(200)
BUDGET_MB = 64.0 + 16.0 + 64.0
NOBODY = "nobody"


class Felt(NamedTuple):
    """What the readers felt, and the most memory of each broker."""

    without_ms: list[list[float]]
    during_ms: list[list[float]]
    memory_mb: float


class Victims:
    """The publisher and the readers; `delays_ms` are those of the present span, by reader."""

    def __init__(self) -> None:
        self.delays_ms: list[list[float]] = [[], []]
        self._sent_s: dict[int, float] = {}

    def _taker(self, reader: int):  # type: ignore[no-untyped-def]
        def take(event: Delivery) -> None:
            sent_s = self._sent_s.get(int(event.attributes["n"]))
            if sent_s is not None:
                self.delays_ms[reader].append((time.perf_counter() - sent_s) * 1e3)

        return take

    async def run(self, ports: list[int], kind: str, pids: list[int]) -> Felt:
        """One attack, and none, in turn."""
        async with contextlib.AsyncExitStack() as stack:
            homes = (ports[1], ports[1], ports[0])
            names = ("source", "near", "far")
            source, *readers = [
                await stack.enter_async_context(connect(f"127.0.0.1:{port}", name=name))
                for port, name in zip(homes, names, strict=True)
            ]
            await source.advertise("TRUE")
            for place, reader in enumerate(readers):
                await reader.subscribe("n >= 0", callback=self._taker(place))
            publishing = asyncio.create_task(self._publish(source))
            try:
                await asyncio.sleep(WARMUP_S)
                return await self._felt(kind, ports[0], pids)
            finally:
                publishing.cancel()

    async def _publish(self, source) -> None:  # type: ignore[no-untyped-def]
        began_s, n = time.perf_counter(), 0
        while True:
            while n < RATE * (time.perf_counter() - began_s):
                self._sent_s[n] = time.perf_counter()
                self._sent_s.pop(n - 50_000, None)
                await source.offer({"n": n}, payload=PAYLOAD, lifetime_s=60.0)
                n += 1
            await asyncio.sleep(PERIOD_S)

    async def _felt(self, kind: str, port: int, pids: list[int]) -> Felt:
        without: list[list[float]] = [[], []]
        during: list[list[float]] = [[], []]
        before_mb = [_anonymous_mb(pid) for pid in pids]
        most_mb = 0.0
        for _ in range(ROUNDS):
            await self._span(without)
            attacker = await asyncio.to_thread(_attack, kind, port)
            try:
                await self._span(during)
            finally:
                if attacker is not None:
                    attacker.kill()
                    attacker.wait()
            most_mb = max(most_mb, *(_anonymous_mb(pid) - mb for pid, mb in zip(pids, before_mb, strict=True)))
            await asyncio.sleep(1.0)
        return Felt(without, during, most_mb)

    async def _span(self, found: list[list[float]]) -> None:
        self.delays_ms = [[], []]
        await asyncio.sleep(SPAN_S)
        for all_ms, some_ms in zip(found, self.delays_ms, strict=True):
            all_ms += some_ms


def _attack(kind: str, port: int) -> "subprocess.Popen[bytes] | None":
    """A process that attacks, once it has begun."""
    if kind == NOBODY:
        return None
    root = Path(__file__).resolve().parent.parent
    arguments = ["nice", sys.executable, "-m", "benchmarks.live_attacks_raw", kind, str(port)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=root)
    assert process.stdout is not None
    if process.stdout.readline().strip() != b"ready":
        raise RuntimeError(f"the attack {kind!r} does not begin")
    return process


def _anonymous_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon:"))


def main(kinds: tuple[str, ...] = (NOBODY, *KINDS)) -> None:
    ports = free_ports(2)
    text = '[network]\nstore = "store"\n' + "".join(
        f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = ["{other}"]\n'
        for name, port, other in zip("ab", ports, "ba", strict=True)
    )
    print(
        f"live_attacks: {RATE:,.0f} events/s from b to readers at b and a, attacks at a; {ROUNDS} x {SPAN_S:g} s each"
    )
    heads = ("p50 ms", "attacked", "p99 ms", "attacked", "ratio")
    print(f"{'attack':>13}{'reader':>8}" + "".join(f"{head:>10}" for head in heads) + f"{'MB more':>10}{'budget':>8}")
    for kind in kinds:  # with brokers of its own each: what one leaves behind is not the next one's
        with brokers(text, dict(zip("ab", ports, strict=True))) as processes:
            felt = asyncio.run(Victims().run(ports, kind, [processes[name].pid for name in "ab"]))
        for place, reader in enumerate(("b", "a")):
            without, during = (np.array([*spans[place], 0.0]) for spans in (felt.without_ms, felt.during_ms))
            (p50, p99), (p50_then, p99_then) = (np.percentile(each, [50, 99]) for each in (without, during))
            cells = (p50, p50_then, p99, p99_then, p99_then / p99)
            row = f"{kind:>13}{reader:>8}" + "".join(f"{cell:>10.2f}" for cell in cells)
            print(row + (f"{felt.memory_mb:>10.0f}{BUDGET_MB:>8.0f}" if place else ""), flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or (NOBODY, *KINDS))
