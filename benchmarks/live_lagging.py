"""One reader that lags beside a healthy one: what the broker costs, and how long the healthy one waits.

A broker process with default settings, a publisher of RATE events a second, two readers of all of them. Three cases, in
turn, ROUNDS times over, each with a new broker:

- `none`: both readers keep up. This is what the others are compared with: the broker sends every event twice.
- `full`: one reader has a link of LINK_BYTES_PER_S, and events may wait for long: its queue stands at the limit
  (10,000), so that for each event another is dropped.
- `expired`: the same, with a lifetime of LIFETIME_S: what its queue holds expires all the time.

Printed: the median over the rounds of the broker's processor time for each event, and of the healthy reader's median
and p99 delay, each also as a ratio to `none`; and how many events the other got. The aim: at most 1.10.
"""

import asyncio
import contextlib
import statistics
import time
from typing import NamedTuple

import numpy as np

from benchmarks.live_load import brokers, free_ports, processor_s, shaped
from tidings.live import Delivery, connect

ROUNDS = 3
RATE = 2_000.0
WARMUP_S = 7.0
MEASURED_S = 6.0
PERIOD_S = 0.002
LINK_BYTES_PER_S = 40_000.0
LIFETIME_S = 1.0
LONG_S = 600.0
PAYLOAD = bytes(200)
CASES = ("none", "full", "expired")


class Run(NamedTuple):
    """One run."""

    cpu_us: float
    median_ms: float
    p99_ms: float
    others: int
    """Deliveries to the other reader."""


async def _run(case: str, port: int, other_port: int, pid: int) -> Run:
    delays_s: list[float] = []
    others = 0
    sent_s: dict[int, float] = {}

    def take(event: Delivery) -> None:
        delays_s.append(time.perf_counter() - sent_s[int(event.attributes["n"])])

    def count(_: Delivery) -> None:
        nonlocal others
        others += 1

    async with contextlib.AsyncExitStack() as stack:
        healthy = await stack.enter_async_context(connect(f"127.0.0.1:{port}", name="healthy"))
        source = await stack.enter_async_context(connect(f"127.0.0.1:{port}", name="source"))
        other = await stack.enter_async_context(connect(f"127.0.0.1:{other_port}", name="other"))
        await source.advertise("TRUE")
        await healthy.subscribe("n >= 0", callback=take)
        await other.subscribe("n >= 0", callback=count)
        lifetime_s = LIFETIME_S if case == "expired" else LONG_S
        n = measured_from = 0
        began_s, cpu_s = time.perf_counter(), 0.0
        while (passed_s := time.perf_counter() - began_s) < WARMUP_S + MEASURED_S:
            if passed_s >= WARMUP_S and not measured_from:
                measured_from, cpu_s = n, processor_s(pid)
                delays_s.clear()
            while n < RATE * passed_s:
                sent_s[n] = time.perf_counter()
                await source.offer({"n": n}, payload=PAYLOAD, lifetime_s=lifetime_s)
                n += 1
            await asyncio.sleep(PERIOD_S)
        cpu_us = (processor_s(pid) - cpu_s) / (n - measured_from) * 1e6
        delays = np.array(delays_s) * 1e3
        assert len(delays) > 0.9 * (n - measured_from), f"the healthy reader got {len(delays)} of {n - measured_from}"
        return Run(cpu_us, float(np.median(delays)), float(np.percentile(delays, 99)), others)


def run(case: str) -> Run:
    """One run with a broker of its own."""
    (port,) = free_ports(1)
    text = f'[network]\nstore = "store"\n[[broker]]\nname = "a"\nlisten = "127.0.0.1:{port}"\n'
    with brokers(text, {"a": port}) as processes, contextlib.ExitStack() as stack:
        other_port = port
        if case != "none":
            other_port = stack.enter_context(shaped(port, bytes_per_s=LINK_BYTES_PER_S)).port
        return asyncio.run(_run(case, port, other_port, processes["a"].pid))


def main() -> None:
    rounds = [{case: run(case) for case in CASES} for _ in range(ROUNDS)]
    link = f"{LINK_BYTES_PER_S / 1e3:g} kB/s"
    print(f"live_lagging: {RATE:,.0f} events/s, one of two readers behind {link}; {ROUNDS} rounds")
    heads = ("CPU us/event", "ratio", "median ms", "ratio", "p99 ms", "ratio", "others")
    print(f"{'lagging':>10}" + "".join(f"{head:>13}" for head in heads))
    middle = {case: [statistics.median(each[case][figure] for each in rounds) for figure in range(4)] for case in CASES}
    for case, (cpu_us, median_ms, p99_ms, others) in middle.items():
        ratios = [one / other for one, other in zip(middle[case], middle["none"], strict=True)]
        cells = (cpu_us, ratios[0], median_ms, ratios[1], p99_ms, ratios[2])
        print(f"{case:>10}" + "".join(f"{cell:>13.2f}" for cell in cells) + f"{others:>13.0f}", flush=True)


if __name__ == "__main__":
    main()
