"""How often 95 % intervals hold the truth: those of on-time shares at loads .3 to .9, and those of failure rates.

**Shares.** 200 runs of a queue with Poisson arrivals and exponential service (M/M/1, which has a truth in closed form),
with a deadline that 90 % of the events meet; three lengths of run. `wilson` counts events as independent, as all
intervals did once; `simulate` cuts a run into 10 batches, `pipeline` by 2**k ns of departure, `status` into slots
that double as a broker's account does. Each is the share of runs whose interval holds the truth, with `rough` ones in
it; the last columns are the share of the runs that are rough, by `pipeline`, and the median of effective events.

**Rates.** 200 components watched for 10, 30 and 100 failures on average, from long after their start on; up times by
distributions and by real outages (TIDINGS_DATA/upptime_availability, if it is there: the hosts with the most, up and
down times, drawn with replacement). `poisson` takes up times as exponential, as all intervals did once; `cycles` is
what profiles show; `rough` the share that they mark.

93 to 97 % is asked for; with 200 runs the standard error of a share is 1.5 %.
"""

import csv
import gzip
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.pipeline.rows import BATCHES_MOST
from tidings.protocol.broker._account import Batches
from tidings.statistics import BATCHES, censored_rates, periods, poisson_interval, shares_of_batches, wilson_interval

RUNS: Final = 200
LEVEL: Final = 0.95
RELIABILITY: Final = 0.9
LOADS: Final = (0.3, 0.5, 0.8, 0.9)
EVENTS: Final = (8_000, 32_000, 128_000)
FAILURES: Final = (10, 30, 100)
HOSTS: Final = 5
START: Final = 100.0  # mean up times before the watch begins
_SLOTS: Final = 100

Floats = NDArray[np.float64]


def main() -> None:
    began = time.process_time()
    for events in EVENTS:
        print(f"{events:,} events      wilson  simulate  pipeline  status   rough  effective")
        for load in LOADS:
            print(f"  load {load:<10g}" + _shares(load, events))
    print("failures           poisson  cycles  rough")
    for name, draw in distributions():
        for failures in FAILURES:
            poisson, cycles, rough = _rates(draw, failures)
            print(f"  {name:<12} {failures:>4} {poisson:>7.3f} {cycles:>7.3f} {rough:>6.2f}")
    print(f"{time.process_time() - began:.1f} CPU s")


def queue(load: float, events: int, runs: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """[event, run]: when events arrive at queues that have been running for ever, and how long they stay there."""
    service = generator.exponential(1.0, (events, runs))
    interval = generator.exponential(1.0 / load, (events, runs))
    wait = np.where(generator.random(runs) < load, generator.exponential(1.0 / (1.0 - load), runs), 0.0)
    stay = np.empty((events, runs))
    for number in range(events):
        stay[number] = wait + service[number]
        wait = np.maximum(0.0, stay[number] - interval[number])
    return np.cumsum(interval, axis=0), stay


def _shares(load: float, events: int) -> str:
    arrived, stay = queue(load, events, RUNS, np.random.default_rng(round(1000 * load) + events))
    on_time = stay < -math.log(1.0 - RELIABILITY) / (1.0 - load)
    low, high = wilson_interval(on_time.sum(axis=0), np.full(RUNS, events), level=LEVEL)
    shown = [float(((low <= RELIABILITY) & (high >= RELIABILITY)).mean())]
    rough, effective = 0.0, 0.0
    for cut in (_by_count, _by_time, _by_slot):
        found = [shares_of_batches(*_counts(cut(arrived[:, run]), on_time[:, run]), level=LEVEL) for run in range(RUNS)]
        shown.append(float(np.mean([each.interval.low[0] <= RELIABILITY <= each.interval.high[0] for each in found])))
        if cut is _by_time:
            rough = float(np.mean([each.is_rough[0] for each in found]))
            effective = float(np.median([each.effective[0] for each in found]))
    return " ".join(f"{share:>8.3f}" for share in shown) + f" {rough:>8.2f} {effective:>9,.0f}"


def _counts(batch: NDArray[np.int64], on_time: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """On time and all, by [batch, 1]."""
    hits, trials = np.bincount(batch, weights=on_time), np.bincount(batch)
    return hits.astype(np.float64)[:, None], trials.astype(np.float64)[:, None]


def _by_count(arrived: Floats) -> NDArray[np.int64]:
    return np.arange(len(arrived)) * BATCHES // len(arrived)


def _by_time(arrived: Floats) -> NDArray[np.int64]:
    """As the pipeline cuts (pipeline/rows/_batches.py), with a service of 10 ms."""
    at_ns = (arrived * 1e7).astype(np.int64)
    bits = next(k for k in range(63) if (at_ns[-1] >> k) - (at_ns[0] >> k) < BATCHES_MOST)
    return np.asarray((at_ns >> bits) - (at_ns[0] >> bits))


def _by_slot(arrived: Floats) -> NDArray[np.int64]:
    """As a broker's account does, after 100 slots: its batches hold the sums, and their ends separate the events."""
    slot = (arrived / arrived[-1] * (_SLOTS - 1e-9)).astype(np.int64)
    batches = Batches()
    for number, many in enumerate(np.bincount(slot, minlength=_SLOTS).tolist()):
        batches.add(number, many, 0)
    ends = np.cumsum([settled for settled, _ in batches])
    return np.searchsorted(ends, np.arange(len(arrived)), side="right")


def distributions() -> Iterator[tuple[str, Callable[[tuple[int, int], np.random.Generator], Floats]]]:
    """Up times of mean 1, by name."""
    yield "exponential", lambda shape, g: g.exponential(1.0, shape)
    yield "gamma 4", lambda shape, g: g.gamma(4.0, 0.25, shape)
    yield "weibull .7", lambda shape, g: g.weibull(0.7, shape) / math.gamma(1.0 + 1.0 / 0.7)
    yield "weibull .5", lambda shape, g: g.weibull(0.5, shape) / math.gamma(3.0)
    yield "log-norm 1.2", lambda shape, g: g.lognormal(-0.72, 1.2, shape)
    for name, seen in outages():
        yield name, lambda shape, g, seen=seen: g.choice(seen / seen.mean(), shape)  # type: ignore[misc]


def outages() -> Iterator[tuple[str, Floats]]:
    """Up and down times of the hosts with the most outages of their server; none if the data is not there."""
    data = os.environ.get("TIDINGS_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    place = Path(data) / "upptime_availability" / "outages.csv.gz"
    if not place.exists():
        return
    hosts: dict[str, tuple[list[float], list[float]]] = {}
    with gzip.open(place, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            up, down = hosts.setdefault(row["host"], ([], []))
            if row["server_side"] == "1" and row["prior_left_truncated"] == "0":
                up.append(float(row["prior_uptime_s"]))
            if row["server_side"] == "1" and row["right_censored"] == "0":
                down.append(float(row["duration_s"]))
    for number, (up, down) in enumerate(sorted(hosts.values(), key=lambda each: -len(each[0]))[:HOSTS]):
        yield f"host {number} up", np.array(up)
        yield f"host {number} down", np.array(down)


def _rates(draw: Callable[[tuple[int, int], np.random.Generator], Floats], failures: int) -> tuple[float, float, float]:
    """How often the interval of a rate of 1 holds it, as of a Poisson process and by cycles; how many are rough."""
    up_s = draw((RUNS, 8 * failures + 8 * round(START)), np.random.default_rng(failures))
    failed_s = np.cumsum(up_s, axis=1)
    offsets, at_s, up = [0], [], []
    for row in failed_s:
        seen = row[(row > START) & (row < START + failures)] - START
        instants = seen + 1e-6 * np.arange(len(seen))  # down for a microsecond each
        at_s.append(np.stack([instants, instants + 1e-6], axis=1).ravel())
        up.append(np.tile([False, True], len(seen)))
        offsets.append(offsets[-1] + 2 * len(seen))
    found = periods(
        np.array(offsets),
        (np.concatenate(at_s) * 1e9).astype(np.int64),
        np.concatenate(up),
        np.zeros(RUNS, np.int64),
        np.full(RUNS, round(1e9 * (failures + 1e-3)), np.int64),
    )
    rates = censored_rates(found, RUNS, up=True, level=LEVEL)
    low, high = poisson_interval(rates.events, rates.exposure_s, level=LEVEL)
    return (
        float(((low <= 1.0) & (high >= 1.0)).mean()),
        float(((rates.low_per_s <= 1.0) & (rates.high_per_s >= 1.0)).mean()),
        float(rates.is_rough.mean()),
    )


if __name__ == "__main__":
    main()
