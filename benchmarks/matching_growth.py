"""How matching grows with subscriptions when the number of matches does not.

`matching` has the same share of subscriptions match at every size, so an event that meets ten times as many has ten
times as many matches to report, and no index can be sub-linear. Here an event has about MATCHES at every size:

- 70 % `symbol = S AND price > p`, 20 % `symbol IN (S, T) AND price < p`: there are as many more symbols as
  subscriptions;
- 8 % `price >= a AND price <= b`, without a symbol: ranges become narrower as there are more;
- 2 % `symbol = S AND note LIKE '...%'`: a part that has to be asked.

Printed for each size: matches, processor time of one event alone and in a batch, what a bare dictionary from symbols to
lists of (price, number) takes for the first kind alone (the limit of any index in Python), the ratio to it; then by
which power of the size the time grows from row to row (1 is linear).

Then the same for topic patterns (`topic MATCHES ...`), 40 % `site/S/+/temp`, 30 % `site/S/#`, 20 % `+/S/line/+`, 10 %
without wildcards: the time of one event alone and in a batch, and of a linear scan, which asks every pattern.

Options: ``BENCH_SIZES=10000,100000``.
"""

import math
import os
import random
import time
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tidings.matching import MatchingIndex
from tidings.model.filters import Filter, compile_condition

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "10000,100000,1000000").split(","))
MATCHES = 10
EVENTS = 2_000
SEED = 1
LINEAR_ASKED = 1_000_000  # patterns asked by the linear scan, about


def _filter(number: int, size: int, rng: random.Random) -> Filter:
    symbols, kind = max(size // (2 * MATCHES), 1), number % 50
    symbol, price = f"S{rng.randrange(symbols)}", rng.random()
    if kind < 35:
        return Filter.all_of([("symbol", "=", symbol), ("price", ">", price)])
    if kind < 45:
        return Filter.parse(f"symbol IN ('{symbol}', 'S{rng.randrange(symbols)}') AND price < {price}")
    if kind < 49:
        return Filter.all_of([("price", ">=", price), ("price", "<=", price + 2.0 * MATCHES / size)])
    return Filter.parse(f"symbol = '{symbol}' AND note LIKE 'n{number % 7}%'")


def _events(size: int, rng: random.Random) -> list[dict[str, Any]]:
    symbols = max(size // (2 * MATCHES), 1)
    return [
        {"symbol": f"S{rng.randrange(symbols)}", "price": rng.random(), "note": f"n{rng.randrange(9)}x"}
        for _ in range(EVENTS)
    ]


def _limit_us(size: int, events: list[dict[str, Any]]) -> float:
    """A dictionary of the first kind alone."""
    rng, symbols = random.Random(SEED), max(size // (2 * MATCHES), 1)
    known: dict[str, list[tuple[float, int]]] = {}
    for number in range(size * 7 // 10):
        known.setdefault(f"S{rng.randrange(symbols)}", []).append((rng.random(), number))
    began_s = time.process_time()
    for event in events:
        price = event["price"]
        [number for least, number in known.get(event["symbol"], ()) if price > least]
    return (time.process_time() - began_s) / len(events) * 1e6


def measure(size: int) -> tuple[float, float, float, float]:
    """Matches of an event, and µs for one alone, in a batch, and for the limit."""
    rng = random.Random(SEED)
    index: MatchingIndex = MatchingIndex()
    index.add_many((number, _filter(number, size, rng)) for number in range(size))
    events = _events(size, rng)
    table = pa.Table.from_pylist(events).combine_chunks().to_batches()[0]
    index.match_batch(table)
    found = sum(len(index.match(event)) for event in events)
    began_s = time.process_time()
    for event in events:
        index.match(event)
    alone_us = (time.process_time() - began_s) / EVENTS * 1e6
    began_s = time.process_time()
    index.match_batch(table)
    batch_us = (time.process_time() - began_s) / EVENTS * 1e6
    return found / EVENTS, alone_us, batch_us, _limit_us(size, events)


def _pattern(number: int, size: int, rng: random.Random) -> str:
    site, kind = f"S{rng.randrange(max(size // MATCHES, 1))}", number % 10
    if kind < 4:
        return f"site/{site}/+/temp"
    if kind < 7:
        return f"site/{site}/#"
    return f"+/{site}/line/+" if kind < 9 else f"site/{site}/line/temp"


def measure_topics(size: int) -> tuple[float, float, float, float]:
    """Matches of an event, and µs for one alone, in a batch, and in a linear scan."""
    rng = random.Random(SEED)
    filters = [Filter.parse(f"topic MATCHES '{_pattern(number, size, rng)}'") for number in range(size)]
    index: MatchingIndex = MatchingIndex(enumerate(filters))
    topics = [
        f"site/S{rng.randrange(max(size // MATCHES, 1))}/{rng.choice(('line', 'press'))}/temp" for _ in range(EVENTS)
    ]
    batch = pa.record_batch({"topic": topics})
    index.match_batch(batch)
    found = [len(index.match({"topic": topic})) for topic in topics]
    began_s = time.process_time()
    for topic in topics:
        index.match({"topic": topic})
    alone_us = (time.process_time() - began_s) / EVENTS * 1e6
    began_s = time.process_time()
    index.match_batch(batch)
    batch_us = (time.process_time() - began_s) / EVENTS * 1e6
    few = topics[: max(2, LINEAR_ASKED // size)]
    asked = [compile_condition(filter.condition) for filter in filters]
    began_s = time.process_time()
    linear = [sum(predicate({"topic": topic}) is True for predicate in asked) for topic in few]
    linear_us = (time.process_time() - began_s) / len(few) * 1e6
    assert linear == found[: len(few)]
    return sum(found) / EVENTS, alone_us, batch_us, linear_us


def main() -> None:
    _print("matching_growth", ("dict us", "alone/dict"), [(size, measure(size)) for size in SIZES], inverse=False)
    rows = [(size, measure_topics(size)) for size in SIZES]
    _print("topic patterns", ("linear us", "linear/alone"), rows, inverse=True)


def _print(
    title: str, other: tuple[str, str], rows: list[tuple[int, tuple[float, float, float, float]]], *, inverse: bool
) -> None:
    print(f"{title}: about {MATCHES} matches for each event at every size")
    heads = ("matches", "alone us", "batch us", *other, "power alone", "power batch")
    print(f"{'stored':>10}" + "".join(f"{head:>13}" for head in heads))
    powers = [("", "")] + [
        tuple(f"{math.log(more[n] / less[n]) / math.log(large / small):.2f}" for n in (1, 2))
        for (small, less), (large, more) in pairwise(rows)
    ]
    for (size, (matches, alone_us, batch_us, other_us)), (alone, batch) in zip(rows, powers, strict=True):
        cells = (matches, alone_us, batch_us, other_us, other_us / alone_us if inverse else alone_us / other_us)
        print(f"{size:>10,}" + "".join(f"{cell:>13.2f}" for cell in cells) + f"{alone:>13}{batch:>13}", flush=True)


if __name__ == "__main__":
    main()
