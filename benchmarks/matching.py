"""Matching: events per second over 10,000, 100,000 and 900,000 subscriptions, against three compiled baselines.

Workloads, all attributes uniform on [0, 1):

- W8:  8 attributes, every subscription has 3 ranges of random width up to .2
- W20: 20 attributes, every subscription has 5 ranges of width .2 (about .03 % of subscriptions match an event)

Baselines, measured in the same run on the same filters and events, all exact, all on one core:

- linear:   test every subscription until one of its ranges fails
- counting: for each attribute the ranges sorted by lower end; count per subscription the ranges that hold (Siena)
- bitset:   64 buckets per attribute, a bitset of subscriptions per bucket, AND in chunks that stay in the cache, then
            exact verification

Then what adding costs: subscriptions come one by one, as from clients, to W8, to W20, and to `equal` (a symbol of 1,000
and a price) and `unique` (each names another symbol). µs of processor time each until all of them can be matched,
without parsing; the longest that one addition took; the bytes that each takes, the dictionary of ids among them; and
beside it, in the same run, what `PlainIndex` takes, which only puts filters into dictionaries.

Options: ``BENCH_SIZES=10000,100000`` for other sizes, ``BENCH_WORKLOADS=W20`` for one of the two, ``BENCH_SEED=2``.
"""

import os
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tidings.compiled import compiled
from tidings.matching import MatchingIndex, PlainIndex
from tidings.matching._kernels import lowest_bit
from tidings.model.filters import Filter

Array = npt.NDArray[Any]
SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "10000,100000,900000").split(","))
ADDED = tuple(size for size in (10_000, 30_000, 100_000) if size <= max(SIZES))
SEED = int(os.environ.get("BENCH_SEED", "1"))
CHECKED = 256  # events on which all engines must agree
BATCH = 32_768  # events per Arrow batch
LEAST_SECONDS = 1.0  # a measurement goes on until it has taken this long
WORKLOADS: dict[str, tuple[int, int, bool]] = {"W8": (8, 3, True), "W20": (20, 5, False)}
CHOSEN = os.environ.get("BENCH_WORKLOADS", ",".join(WORKLOADS)).split(",")


def workload(name: str, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Lower and upper ends per subscription and attribute; unconstrained attributes span everything."""
    attributes, ranges, is_random = WORKLOADS[name]
    chosen = np.argsort(rng.random((count, attributes)), axis=1)[:, :ranges]
    width = rng.random((count, ranges)) * 0.2 if is_random else np.full((count, ranges), 0.2)
    start = rng.random((count, ranges)) * (1 - width)
    low, high = np.full((count, attributes), -np.inf), np.full((count, attributes), np.inf)
    np.put_along_axis(low, chosen, start, axis=1)
    np.put_along_axis(high, chosen, start + width, axis=1)
    return low, high


def filters(low: Array, high: Array) -> list[Filter]:
    names = [f"a{c}" for c in range(low.shape[1])]
    out = []
    for lows, highs in zip(low.tolist(), high.tolist(), strict=True):
        tests = []
        for name, a, b in zip(names, lows, highs, strict=True):
            if a != -np.inf:
                tests += [(name, ">=", a), (name, "<=", b)]
        out.append(Filter.all_of(tests))
    return out


@compiled
def linear(low: Array, high: Array, events: Array) -> int:
    found = 0
    for e in range(len(events)):
        for s in range(len(low)):
            holds = True
            for c in range(low.shape[1]):
                if not (low[s, c] <= events[e, c] <= high[s, c]):
                    holds = False
                    break
            found += holds
    return found


@compiled
def counting(lows: Array, highs: Array, owners: Array, starts: Array, wanted: Array, events: Array) -> int:
    """Ranges of attribute c are starts[c]:starts[c + 1], sorted by lower end."""
    found = 0
    counts = np.zeros(len(wanted), np.uint8)
    for e in range(len(events)):
        counts[:] = 0
        for c in range(len(starts) - 1):
            value = events[e, c]
            last = starts[c] + np.searchsorted(lows[starts[c] : starts[c + 1]], value, side="right")
            for i in range(starts[c], last):
                counts[owners[i]] += value <= highs[i]
        for s in range(len(wanted)):
            found += counts[s] == wanted[s]
    return found


@compiled
def bitset(bits: Array, low: Array, high: Array, events: Array) -> int:
    found = 0
    chunk = 512
    words = np.empty(chunk, np.uint64)
    for e in range(len(events)):
        for start in range(0, bits.shape[2], chunk):
            size = min(chunk, bits.shape[2] - start)
            words[:size] = bits[0, int(events[e, 0] * 64), start : start + size]
            for c in range(1, bits.shape[0]):
                row = bits[c, int(events[e, c] * 64)]
                for w in range(size):
                    words[w] &= row[start + w]
            for w in range(size):
                word = words[w]
                while word != np.uint64(0):
                    s = (start + w) * 64 + lowest_bit(word)
                    word &= word - np.uint64(1)
                    holds = True
                    for c in range(low.shape[1]):
                        if not (low[s, c] <= events[e, c] <= high[s, c]):
                            holds = False
                            break
                    found += holds
    return found


def counting_arrays(low: Array, high: Array) -> tuple[Array, Array, Array, Array, Array]:
    lows, highs, owners, starts = [], [], [], [0]
    for c in range(low.shape[1]):
        who = np.flatnonzero(np.isfinite(low[:, c]))
        who = who[np.argsort(low[who, c], kind="stable")]
        lows.append(low[who, c])
        highs.append(high[who, c])
        owners.append(who)
        starts.append(starts[-1] + len(who))
    wanted = np.isfinite(low).sum(axis=1).astype(np.uint8)
    return np.concatenate(lows), np.concatenate(highs), np.concatenate(owners), np.array(starts), wanted


def bitset_arrays(low: Array, high: Array) -> Array:
    count, attributes = low.shape
    words = -(-count // 64)
    bits = np.zeros((attributes, 64, words), np.uint64)
    first = np.clip(np.nan_to_num(low * 64, neginf=0), 0, 63).astype(np.int64)
    last = np.clip(np.nan_to_num(high * 64, posinf=63), 0, 63).astype(np.int64)
    for c in range(attributes):
        for bucket in range(64):
            accepted = np.zeros(words * 64, np.uint8)
            accepted[:count] = (first[:, c] <= bucket) & (bucket <= last[:, c])
            bits[c, bucket] = np.packbits(accepted, bitorder="little").view(np.uint64)
    return bits


def rate(run: Callable[[int], object], events: int, *, least: int = 16) -> float:
    """Events per second: run(n) handles n events; the best of repeated runs, each with as many as make it worth it."""
    run(min(events, 2))
    n, best, spent = min(events, least), 0.0, 0.0
    while spent < LEAST_SECONDS:
        began = time.perf_counter()
        run(n)
        took = time.perf_counter() - began
        spent += took
        best = max(best, n / took)
        if took < LEAST_SECONDS / 8:
            n = min(events, n * 4)
    return best


def baselines(low: Array, high: Array, values: Array) -> tuple[dict[str, float], list[int]]:
    """The rate of each baseline, and how many matches each finds among the first events."""
    bits, counted = bitset_arrays(low, high), counting_arrays(low, high)
    engines: dict[str, Callable[[Array], int]] = {
        "linear": lambda events: linear(low, high, events),
        "counting": lambda events: counting(*counted, events),
        "bitset": lambda events: bitset(bits, low, high, events),
    }
    rates = {}
    for name, engine in engines.items():
        rates[name] = rate(lambda n, engine=engine: engine(values[:n]), BATCH)  # type: ignore[misc]
    return rates, [engine(values[:CHECKED]) for engine in engines.values()]


def measure(name: str, size: int, rng: np.random.Generator, say: Callable[[str], None]) -> dict[str, float]:
    low, high = workload(name, size, rng)
    values = rng.random((BATCH, low.shape[1]))
    names = [f"a{c}" for c in range(low.shape[1])]
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in values.T], names)
    say(f"{name} {size:,}: baselines")
    result, expected = baselines(low, high, values)
    say(f"{name} {size:,}: building the index")
    made = filters(low, high)
    began = time.perf_counter()
    index = MatchingIndex(enumerate(made))
    result["build_us"] = (time.perf_counter() - began) / size * 1e6
    result["bytes"] = index.nbytes / size
    expected.append(len(index.match_batch(batch.slice(0, CHECKED))[1]))
    events = [dict(zip(names, row, strict=True)) for row in values[:4096].tolist()]
    expected.append(sum(len(index.match(event)) for event in events[:CHECKED]))
    assert len(set(expected)) == 1, f"the engines disagree: {expected}"
    say(f"{name} {size:,}: matching")
    result["batch"] = rate(lambda n: index.match_batch(batch.slice(0, n)), BATCH, least=BATCH)
    result["share"] = expected[-1] / CHECKED / size
    result["single"] = rate(lambda n: [index.match(event) for event in events[:n]], len(events))
    changes = 2000
    began = time.perf_counter()
    for n in range(changes):
        index.remove(n)
    result["remove_us"] = (time.perf_counter() - began) / changes * 1e6
    began = time.perf_counter()
    for n in range(changes):
        index.add(n, made[n])
    result["add_us"] = (time.perf_counter() - began) / changes * 1e6
    return result


def additions(name: str, size: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """µs for each, the longest in ms, bytes for each, and µs for each in a `PlainIndex`."""
    if name in WORKLOADS:
        made = filters(*workload(name, size, rng))
        event: dict[str, Any] = {"a1": 0.5}
    else:
        symbols = rng.integers(1000 if name == "equal" else size, size=size).tolist()
        prices = rng.random(size).tolist()
        made = [
            Filter.all_of([("symbol", "=", f"S{s}"), ("price", ">", p)]) for s, p in zip(symbols, prices, strict=True)
        ]
        event = {"symbol": "S1", "price": 0.5}
    for filter in made:
        assert filter.clauses  # made when first asked for, and kept by the filter
    longest_s = 0.0

    def add_all() -> MatchingIndex:
        nonlocal longest_s
        index = MatchingIndex()
        for number, filter in enumerate(made):
            began = time.perf_counter()
            index.add(number, filter)
            longest_s = max(longest_s, time.perf_counter() - began)
        index.match(event)
        return index

    add_all()  # compiles
    longest_s, began = 0.0, time.process_time()
    add_all()
    cost_us, longest_ms = (time.process_time() - began) / size * 1e6, longest_s * 1e3
    tracemalloc.start()
    kept = add_all()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == size
    plain: PlainIndex[int] = PlainIndex()
    began = time.process_time()
    for number, filter in enumerate(made):
        plain.put(number, filter)
    return cost_us, longest_ms, taken / size, (time.process_time() - began) / size * 1e6


def print_additions(console: Console, rng: np.random.Generator) -> None:
    table = Table(title="One by one: µs of processor time for each subscription (at most 20), bytes (at most 800)")
    for column in ("workload", "stored", "µs each", "longest ms", "bytes each", "PlainIndex µs", "ratio"):
        table.add_column(column, justify="right")
    for name in (*CHOSEN, "equal", "unique"):
        for size in ADDED:
            cost_us, longest_ms, size_bytes, plain_us = additions(name, size, rng)
            cells = (f"{cost_us:.1f}", f"{longest_ms:.0f}", f"{size_bytes:.0f}", f"{plain_us:.1f}")
            table.add_row(name, f"{size:,}", *cells, f"{cost_us / plain_us:.2f}")
    console.print(table)


def main() -> None:
    console, progress = Console(width=130), Console(stderr=True)
    rng = np.random.default_rng(SEED)
    for name in CHOSEN:
        rows = {size: measure(name, size, rng, lambda text: progress.print(text, style="dim")) for size in SIZES}
        table = Table(title=f"{name}: events matched per second, one core, all exact")
        for column in ("stored", "match", "linear", "counting", "bitset", "Tidings batch", "x counting", "x bitset",
                       "Tidings dict", "add µs", "remove µs", "bytes each"):  # fmt: skip
            table.add_column(column, justify="right")
        for size, r in rows.items():
            table.add_row(
                f"{size:,}", f"{r['share']:.3%}", f"{r['linear']:,.0f}", f"{r['counting']:,.0f}", f"{r['bitset']:,.0f}",
                f"{r['batch']:,.0f}", f"{r['batch'] / r['counting']:.0f}", f"{r['batch'] / r['bitset']:.1f}",
                f"{r['single']:,.0f}", f"{r['add_us']:.0f}", f"{r['remove_us']:.0f}", f"{r['bytes']:.0f}",
            )  # fmt: skip
        console.print(table)
        for a, b in pairwise(SIZES):
            batch, alone = (rows[a][mode] / rows[b][mode] for mode in ("batch", "single"))
            console.print(f"  {b / a:.0f} times as many: an event costs x {batch:.1f} in a batch, x {alone:.1f} alone")
        console.print()
    print_additions(console, rng)


if __name__ == "__main__":
    main()
