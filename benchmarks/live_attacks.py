"""Attacks on one broker by clients that speak raw bytes: what the others feel of it, and how much memory it takes.

Two broker processes with default settings, a and b, linked. A publisher of RATE events a second at b, a reader at b and
one at a; whoever attacks does so at a (`live_attacks_raw` has the attacks). ROUNDS times over for each attack: SPAN_S
without it, SPAN_S without it once more (the control), and SPAN_S with it. Printed for both readers: median and p99
delay without, in the control and with the attack, the medians over the rounds; the ratio of the p99 to that without,
as least, median and most of the rounds, for the control and for the attack; the share of a processor that the reader's
broker takes without and with the attack; then the most anonymous memory that a and b had beyond what they had before
any attack, and the budget: what may wait for one client and be under way to it (64 and 16 MB), and the store's cache of
filters (64 MB). The aim: p99 at most doubled, memory within the budget.

The control says how far two spans differ by themselves: on a busy machine that may be more than any attack does.
Options: ``BENCH_ROUNDS=5``; ``BENCH_REQUESTS=1.0`` sets `[limits] requests`.
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.live_attacks_raw import KINDS
from benchmarks.live_load import brokers, free_ports, processor_s
from tidings.live import Delivery, connect

RATE = 200.0
PERIOD_S = 0.005
SPAN_S = 2.0
WARMUP_S = 8.0
SETTLED_MS = 250.0
LONGEST_WARMUP_S = 60.0
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
REQUESTS = os.environ.get("BENCH_REQUESTS", "")
SPANS = ("without", "control", "attacked")
PAYLOAD = bytes(200)
BUDGET_MB = 64.0 + 16.0 + 64.0


class Felt(NamedTuple):
    """What the readers felt in each round, by reader and kind of span: median, p99, and the share of a processor that
    their broker took; and the most memory of a broker."""

    spans: list[list[dict[str, tuple[float, float, float]]]]
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
                await self._settle()
                return await self._felt(kind, ports[0], pids)
            finally:
                publishing.cancel()

    async def _settle(self) -> None:
        """Wait until what brokers load at first is loaded."""
        began_s = time.perf_counter()
        while (passed_s := time.perf_counter() - began_s) < LONGEST_WARMUP_S:
            self.delays_ms = [[], []]
            await asyncio.sleep(1.0)
            if passed_s >= WARMUP_S and max(max(each, default=np.inf) for each in self.delays_ms) < SETTLED_MS:
                return

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
        rounds: list[list[dict[str, tuple[float, float, float]]]] = []
        before_mb = [_anonymous_mb(pid) for pid in pids]
        most_mb = 0.0
        for _ in range(ROUNDS):
            found: list[dict[str, tuple[float, float, float]]] = [{}, {}]
            for span in SPANS:
                attacker = await asyncio.to_thread(_attack, kind, port) if span == "attacked" else None
                try:
                    for reader, each in enumerate(await self._span(pids)):
                        found[reader][span] = each
                finally:
                    if attacker is not None:
                        attacker.kill()
                        attacker.wait()
            rounds.append(found)
            most_mb = max(most_mb, *(_anonymous_mb(pid) - mb for pid, mb in zip(pids, before_mb, strict=True)))
            await asyncio.sleep(1.0)
        return Felt(rounds, most_mb)

    async def _span(self, pids: list[int]) -> list[tuple[float, float, float]]:
        self.delays_ms = [[], []]
        homes = pids[::-1]  # the first reader is at b
        before_s = [processor_s(pid) for pid in homes]
        await asyncio.sleep(SPAN_S)
        shares = [(processor_s(pid) - cpu_s) / SPAN_S for pid, cpu_s in zip(homes, before_s, strict=True)]
        # Whoever got nothing at all has waited for the whole span.
        delays = [np.percentile(each or [SPAN_S * 1e3], [50, 99]) for each in self.delays_ms]
        return [(float(p50), float(p99), share) for (p50, p99), share in zip(delays, shares, strict=True)]


def _attack(kind: str, port: int) -> "subprocess.Popen[bytes]":
    """A process that attacks, once it has begun."""
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


def _row(rounds: list[dict[str, tuple[float, float, float]]]) -> str:
    """The figures of one reader."""
    middle = {span: [statistics.median(each[span][n] for each in rounds) for n in range(3)] for span in SPANS}
    cells = "".join(f"{middle[span][n]:>9.2f}" for n in range(2) for span in SPANS)
    for span in SPANS[1:]:
        ratios = sorted(each[span][1] / each["without"][1] for each in rounds)
        cells += f"{f'{ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}':>20}"
    return cells + "".join(f"{middle[span][2]:>8.0%}" for span in (SPANS[0], SPANS[-1]))


def main(kinds: tuple[str, ...] = tuple(KINDS)) -> None:
    ports = free_ports(2)
    text = '[network]\nstore = "store"\n' + (f"[limits]\nrequests = {REQUESTS}\n" if REQUESTS else "")
    text += "".join(
        f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nneighbours = ["{other}"]\n'
        for name, port, other in zip("ab", ports, "ba", strict=True)
    )
    print(
        f"live_attacks: {RATE:,.0f} events/s from b to readers at b and a, attacks at a; {ROUNDS} x {SPAN_S:g} s each"
    )
    heads = ("p50 ms", "control", "attacked", "p99 ms", "control", "attacked")
    more = f"{'p99 ratio, control':>20}{'p99 ratio, attacked':>20}{'CPU':>8}{'then':>8}{'MB more':>10}{'budget':>8}"
    print(f"{'attack':>13}{'reader':>8}" + "".join(f"{head:>9}" for head in heads) + more)
    for kind in kinds:  # with brokers of its own each: what one leaves behind is not the next one's
        with brokers(text, dict(zip("ab", ports, strict=True))) as processes:
            felt = asyncio.run(Victims().run(ports, kind, [processes[name].pid for name in "ab"]))
        for place, reader in enumerate(("b", "a")):
            row = f"{kind:>13}{reader:>8}" + _row([each[place] for each in felt.spans])
            print(row + (f"{felt.memory_mb:>10.0f}{BUDGET_MB:>8.0f}" if place else ""), flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or tuple(KINDS))
