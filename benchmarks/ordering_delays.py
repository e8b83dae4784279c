"""Delays that no policy was tuned to: how much is put in order, by how late in a pair's life, and for what hold.

Each set is some receivers with several publishers each; a *pair* is one receiver's publisher. Real sets read
`../shared/data`, or BENCH_DATA, and are left out where that is not:

- `umts`: phones on public UMTS; a session is a publisher whose phones send by turns; `umts-70`: 70 % of it match;
- `planetlab`: each event takes half of one of its pair's 18 measured round trips, drawn at random;
- `aws`, `gcp`: gamma delays with the minimum, mean and deviation that `ping` found between two regions;
- `lte`, `tmobile`: each event takes one of two mobile links at random and waits for its next slot; outages are real.

Made ones: independent `gamma`; `pareto` (tail 1.8); `stalls`, where one of two paths stands still for .5 to 6 s about
every 20 s; `regime`, whose mean jumps between 5 and 40 ms; `ar1`, log-normal with a correlation of .9 from event to
event; `detour`, where 5 % take 50 to 400 ms more. Scales of a receiver's pairs differ by up to ten times (but for
`stalls`). 70 % of the events match (all of `umts`, 90 % on mobile links), 1 % of these are lost (none of `umts`), and
summaries mistake .1 % of the others for matches.

`tmobile`, `gcp`, `detour` and the seeds from 101 on were not looked at while the policies were made.

Of each set and policy: the share of out-of-order receptions put right, of those that some latch could (what was sent
before the first event to arrive is none), by their number in the pair: 1 to 10, 11 to 19, from the 20th on. Then the
mean hold, and how many times that of the best static latch it is: the least, chosen afterwards, that repairs 99 %. It
reads records if the policy does. `ratio` is to one latch for the whole set, `own` to one for each pair.

`foreseen` is the share from the 20th on that the longest overtaking so far at the same receiver would have covered,
and one of 1.5 times that: what is beyond cannot be known from the past, but only be guessed.
"""

import csv
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidings.ordering import Policy, Streams, overtaken_ns, replay

DATA = Path(os.environ.get("BENCH_DATA", Path(__file__).parents[2] / "shared" / "data"))
POLICIES = ("ours-quantile", "ours-record")
INTEREST = 0.7
LOSS = 0.01
FALSE_MATCHES = 0.001
RECEIVERS = 4
PAIRS = 10
EVENTS = 3000
TARGET = 0.99
FIRST, EARLY = 10, 19
UNREPAIRABLE = 2**62
Array = Any


class Pair(NamedTuple):
    """One publisher of one receiver: when each event left and came, whether it matches, and whether it came."""

    receiver: int
    departure_ns: Array
    arrival_ns: Array
    wanted: Array
    came: Array


class Outcome(NamedTuple):
    """Shares repaired by number in the pair (None: no such), mean hold, and the best static latch and its hold."""

    repaired: tuple[float | None, float | None, float | None]
    late: int
    hold_ms: float
    static_ms: float
    static_hold_ms: float
    own_hold_ms: float  # of a static latch for each pair
    foreseen: tuple[float, float]


def pair_of(rng: Any, receiver: int, departure_s: Array, delay_s: Array, interest: float, loss: float) -> Pair:
    wanted = rng.random(departure_s.size) < interest
    came = wanted & (rng.random(departure_s.size) >= loss)
    left, took = (np.rint(some * 1e9).astype(np.int64) for some in (departure_s, delay_s))
    return Pair(receiver, left, left + took, wanted, came)


def streams_of(pairs: list[Pair], seed: int) -> Streams:
    """The pairs as streams, those of a receiver sharing what they learn."""
    rng = np.random.default_rng([seed, 7])
    columns, tables, wanted = [], [], []
    for pair in pairs:
        sequence = np.flatnonzero(pair.came)
        sequence = sequence[np.argsort(pair.arrival_ns[sequence], kind="stable")]
        left = pair.departure_ns
        columns.append((sequence, left[sequence], left[np.maximum(sequence - 1, 0)], pair.arrival_ns[sequence]))
        tables.append(left)
        wanted.append(np.flatnonzero(pair.wanted | (rng.random(left.size) < FALSE_MATCHES)))
    starts, table_starts, wanted_starts = (
        np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64)
        for parts in ([column[0] for column in columns], tables, wanted)
    )
    sequence, left, before, came = (
        np.concatenate([column[k] for column in columns]).astype(np.int64) for k in range(4)
    )
    return Streams(
        starts=starts,
        sequence=sequence,
        departure_ns=left,
        previous_departure_ns=before,
        arrival_ns=came,
        table_starts=table_starts[:-1],
        table_departure_ns=np.concatenate(tables),
        wanted_starts=wanted_starts,
        wanted=np.concatenate(wanted).astype(np.int64),
        receiver=np.array([pair.receiver for pair in pairs], np.int64),
    )


def made(seed: int, rate_per_s: float, delays_s: Callable[[Any, Array], Array]) -> list[Pair]:
    """Receivers whose pairs differ in scale by up to ten times."""
    rng = np.random.default_rng(seed)
    pairs = []
    for receiver in range(RECEIVERS):
        for _ in range(PAIRS):
            scale = 10.0 ** rng.uniform(-0.5, 0.5)
            departure_s = rng.uniform(0.0, 5.0) + np.cumsum(rng.exponential(scale / rate_per_s, EVENTS))
            delay_s = 0.02 + scale * delays_s(rng, departure_s)
            pairs.append(pair_of(rng, receiver, departure_s, delay_s, INTEREST, LOSS))
    return pairs


def gamma(rng: Any, departure_s: Array) -> Array:
    return rng.gamma(2.0, 0.005, departure_s.size)


def pareto(rng: Any, departure_s: Array) -> Array:
    return 0.002 * (1.0 + rng.pareto(1.8, departure_s.size))


def regime(rng: Any, departure_s: Array) -> Array:
    high = (np.arange(departure_s.size) + rng.integers(1000)) // 500 % 2 == 1
    return rng.gamma(2.0, np.where(high, 0.02, 0.0025))


def ar1(rng: Any, departure_s: Array) -> Array:
    noise, level = rng.normal(0.0, 0.8 * np.sqrt(1.0 - 0.9**2), departure_s.size), np.empty(departure_s.size)
    last = rng.normal(0.0, 0.8)
    for n, step in enumerate(noise):
        last = 0.9 * last + step
        level[n] = last
    return 0.01 * np.exp(level)


def detour(rng: Any, departure_s: Array) -> Array:
    return rng.gamma(2.0, 0.0025, departure_s.size) + (rng.random(departure_s.size) < 0.05) * rng.uniform(
        0.05, 0.4, departure_s.size
    )


def stalls(seed: int) -> list[Pair]:
    """One of two paths stands still now and then; what took it comes when it goes on."""
    rng = np.random.default_rng(seed)
    pairs = []
    for receiver in range(RECEIVERS):
        for _ in range(PAIRS):
            departure_s = rng.uniform(0.0, 5.0) + np.cumsum(rng.exponential(0.05, EVENTS))
            leaves_s = departure_s + rng.exponential(0.005, EVENTS)
            by_a, at_s = rng.random(EVENTS) < 0.5, 0.0
            while at_s < departure_s[-1]:
                at_s += rng.exponential(20.0)
                over_s = at_s + rng.uniform(0.5, 6.0)
                stuck = by_a & (leaves_s >= at_s) & (leaves_s < over_s)
                leaves_s[stuck] = over_s + rng.exponential(0.002, int(stuck.sum()))
                at_s = over_s
            pairs.append(pair_of(rng, receiver, departure_s, 0.02 + leaves_s - departure_s, INTEREST, LOSS))
    return pairs


def umts(seed: int, interest: float = 1.0) -> list[Pair]:
    rng = np.random.default_rng(seed)
    with gzip.open(DATA / "ooo_umts_events" / "ooo_umts_events.csv.gz", "rt", encoding="utf-8") as file:
        rows = [(row["session"], int(row["send_ms"]), int(row["server_recv_ms"])) for row in csv.DictReader(file)]
    pairs: list[Pair] = []
    for session in sorted({row[0] for row in rows}):
        times_s = np.array(sorted(row[1:] for row in rows if row[0] == session)) / 1e3
        sent_s, came_s = (times_s - times_s[0, 0]).T
        # The clocks of the phones are a few ms off, which would send an event after it came.
        sent_s = sent_s + 1e6 * len(pairs)
        pairs.append(pair_of(rng, 0, sent_s, came_s + 1e6 * len(pairs) - sent_s, interest, 0.0))
    return pairs


def umts_70(seed: int) -> list[Pair]:
    return umts(seed, INTEREST)


def planetlab(seed: int) -> list[Pair]:
    rng = np.random.default_rng(seed)
    with gzip.open(DATA / "planetlab_rtt" / "rtt_300nodes_18slices.csv.gz", "rt", encoding="utf-8") as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1)
    pairs = []
    for receiver in rng.choice(np.unique(rows[:, 1]), 3 * RECEIVERS, replace=False):
        own = rows[rows[:, 1] == receiver]
        for row in own[rng.permutation(len(own))[:PAIRS]]:
            departure_s = np.cumsum(rng.exponential(0.01, EVENTS))
            delay_s = rng.choice(row[2:], EVENTS) / 2e3 + rng.exponential(0.0005, EVENTS)
            pairs.append(pair_of(rng, int(receiver), departure_s, delay_s, INTEREST, LOSS))
    return pairs


def cloud(seed: int, name: str) -> list[Pair]:
    rng = np.random.default_rng(seed)
    with gzip.open(DATA / "cloud_region_ping" / "cloud_region_ping.csv.gz", "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["cloud"] == name and row["src_region"] != row["dst_region"]]
    pairs = []
    regions = sorted({row["dst_region"] for row in rows})
    for receiver in rng.choice(len(regions), 2 * RECEIVERS, replace=False).tolist():
        for row in [row for row in rows if row["dst_region"] == regions[receiver]][:PAIRS]:
            least, mean, sd = (float(row[column]) / 2e3 for column in ("min_ms", "avg_ms", "mdev_ms"))
            extra, sd = max(mean - least, 1e-6), max(sd, 1e-6)
            departure_s = np.cumsum(rng.exponential(0.001, EVENTS))
            delay_s = least + rng.gamma((extra / sd) ** 2, sd * sd / extra, EVENTS)
            pairs.append(pair_of(rng, receiver, departure_s, delay_s, INTEREST, LOSS))
    return pairs


def two_links(seed: int, links: tuple[tuple[str, str], ...]) -> list[Pair]:
    """Each event takes one of two links at random; a link passes on in order, at its recorded slots."""
    rng = np.random.default_rng(seed)
    pairs = []
    for names in links:
        slots_s = []
        for name in names:
            with gzip.open(DATA / "lte_capacity" / f"{name}.gz", "rt", encoding="utf-8") as file:
                once = np.array([int(line) for line in file]) / 1e3
            slots_s.append(np.concatenate([once, once + once[-1] + 0.001]))
        for _ in range(4):
            departure_s = np.cumsum(rng.exponential(0.02, EVENTS))
            link = rng.integers(2, size=EVENTS)
            arrival_s = np.empty(EVENTS)
            for which, slots in enumerate(slots_s):
                taken, begin_s = np.flatnonzero(link == which), rng.uniform(0.0, slots[-1] / 2.0)
                slot = np.searchsorted(slots, departure_s[taken] + begin_s)
                step = np.arange(taken.size)
                slot = np.minimum(np.maximum.accumulate(slot - step) + step, slots.size - 1)  # one event in a slot
                arrival_s[taken] = np.maximum(slots[slot] - begin_s, departure_s[taken])
            pairs.append(pair_of(rng, 0, departure_s, 0.02 + arrival_s - departure_s, 0.9, LOSS))
    return pairs


def lte(seed: int) -> list[Pair]:
    att, verizon = "ATT-LTE-driving-2016", "Verizon-LTE-short"
    return two_links(seed, ((f"{att}.down", f"{verizon}.down"), (f"{att}.up", f"{verizon}.up")))


def tmobile(seed: int) -> list[Pair]:
    tmobile, verizon = "TMobile-UMTS-driving", "Verizon-LTE-short"
    return two_links(seed, ((f"{tmobile}.down", f"{verizon}.down"), (f"{tmobile}.up", f"{verizon}.up")))


SETS: dict[str, Callable[[int], list[Pair]]] = {
    "umts": umts,
    "umts-70": umts_70,
    "planetlab": planetlab,
    "aws": lambda seed: cloud(seed, "aws"),
    "lte": lte,
    "gamma": lambda seed: made(seed, 200.0, gamma),
    "pareto": lambda seed: made(seed, 400.0, pareto),
    "stalls": stalls,
    "regime": lambda seed: made(seed, 200.0, regime),
    "ar1": lambda seed: made(seed, 400.0, ar1),
}
UNSEEN_SETS: dict[str, Callable[[int], list[Pair]]] = {
    "gcp": lambda seed: cloud(seed, "gcp"),
    "tmobile": tmobile,
    "detour": lambda seed: made(seed, 200.0, detour),
}
REAL = {"umts", "umts-70", "planetlab", "aws", "lte", "gcp", "tmobile"}


def assess(streams: Streams, name: str) -> Outcome:
    """One policy over a set, and the best static latch for it."""
    policy = Policy.parse(name, late="drop")  # what is dropped is what was not put right
    lasted = overtaken_ns(streams)
    late = (lasted >= 0) & (lasted < UNREPAIRABLE)
    stream = np.repeat(np.arange(len(streams)), np.diff(streams.starts))
    seen = np.cumsum(late)
    before = np.concatenate([[0], seen])[streams.starts[:-1]]
    number = seen - before[stream]
    found = replay(streams, [policy])[name]
    wrong = found.delivered_ns < 0
    parts = (late & (number <= FIRST), late & (number > FIRST) & (number <= EARLY), late & (number > EARLY))
    repaired = tuple(1.0 - float(wrong[part].mean()) if part.any() else None for part in parts)
    latch_ns = best_latch_ns(lasted[late])
    static_ms = hold_ms(streams, latch_ns, policy.record)
    own_ms = 0.0
    for one in range(len(streams)):
        own = streams_part(streams, one)
        mine = lasted[streams.starts[one] : streams.starts[one + 1]]
        mine = mine[(mine >= 0) & (mine < UNREPAIRABLE)]
        if mine.size:
            own_ms += hold_ms(own, best_latch_ns(mine), policy.record) * own.sequence.size / streams.sequence.size
    held_ms = float(found.total("hold_ns").sum()) / streams.sequence.size / 1e6
    assert len(repaired) == 3
    foreseen = foreseen_shares(streams, lasted, late, late & (number > EARLY))
    return Outcome(repaired, int(late.sum()), held_ms, latch_ns / 1e6, static_ms, own_ms, foreseen)


def foreseen_shares(streams: Streams, lasted: Array, late: Array, wanted: Array) -> tuple[float, float]:
    """How many of the wanted needed no more than the longest, or 1.5 times that, of which their receiver knew."""
    receiver = np.repeat(streams.receiver, np.diff(streams.starts))
    covered, times = np.zeros(2), (1.0, 1.5)
    for one in np.unique(receiver):
        rows = np.flatnonzero(late & (receiver == one))
        rows = rows[np.argsort(streams.arrival_ns[rows], kind="stable")]
        came, needed = streams.arrival_ns[rows], lasted[rows]
        longest = np.concatenate([[0], np.maximum.accumulate(needed)])[np.searchsorted(came, came - needed)]
        covered += [float((needed <= factor * longest)[wanted[rows]].sum()) for factor in times]
    shares = covered / max(int(wanted.sum()), 1)
    return float(shares[0]), float(shares[1])


def best_latch_ns(needed_ns: Array) -> int:
    """The least static latch that repairs 99 %."""
    return int(np.sort(needed_ns)[needed_ns.size - 1 - int((1.0 - TARGET) * needed_ns.size)]) + 1


def hold_ms(streams: Streams, latch_ns: int, record: int) -> float:
    """The mean hold under a static latch."""
    static = Policy(
        name="static",
        kind="static",
        latch_ns=latch_ns,
        record=record,
        max_latch_ns=max(latch_ns, 2 * 10**9),
        clock_step_ns=max(2 * latch_ns, 10**10),
    )
    return float(replay(streams, [static])["static"].total("hold_ns").sum()) / max(streams.sequence.size, 1) / 1e6


def streams_part(streams: Streams, one: int) -> Streams:
    """One of them alone."""
    rows = slice(int(streams.starts[one]), int(streams.starts[one + 1]))
    wanted = streams.wanted[streams.wanted_starts[one] : streams.wanted_starts[one + 1]]
    return Streams(
        starts=np.array([0, rows.stop - rows.start]),
        sequence=streams.sequence[rows],
        departure_ns=streams.departure_ns[rows],
        previous_departure_ns=streams.previous_departure_ns[rows],
        arrival_ns=streams.arrival_ns[rows],
        table_starts=streams.table_starts[one : one + 1],
        table_departure_ns=streams.table_departure_ns,
        wanted_starts=np.array([0, wanted.size]),
        wanted=wanted,
    )


def sets(seeds: list[int], names: list[str] | None) -> Iterator[tuple[str, list[Streams]]]:
    """Each set that can be made here, with the streams of every seed."""
    everything = SETS | UNSEEN_SETS
    for name in names or everything:
        if name in REAL and not DATA.exists():
            continue
        yield name, [streams_of(everything[name](seed), seed) for seed in seeds]


def percent(shares: list[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return f"{100.0 * float(np.mean(known)):6.1f}" if known else f"{'-':>6}"


def print_outcomes(seeds: list[int], names: list[str] | None) -> None:
    """A row for each set and policy."""
    print(f"seeds {', '.join(map(str, seeds))}: share repaired by number of the out-of-order reception in its pair, %")
    print(
        f"{'set':10} {'policy':14} {'late':>8} {'1-10':>6} {'11-19':>6} {'20-':>6} {'hold ms':>9} {'static':>9} "
        f"{'its hold':>9} {'ratio':>6} {'own':>6} {'foreseen':>13}"
    )
    for name, seeded in sets(seeds, names):
        for policy in POLICIES:
            found = [assess(streams, policy) for streams in seeded]
            shares = [percent([one.repaired[part] for one in found]) for part in range(3)]
            hold, static, its_hold, own_hold = (
                float(np.mean([getattr(one, column) for one in found]))
                for column in ("hold_ms", "static_ms", "static_hold_ms", "own_hold_ms")
            )
            foreseen = " ".join(percent([one.foreseen[part] for one in found]) for part in range(2))
            print(
                f"{name:10} {policy:14} {sum(one.late for one in found):8,} {' '.join(shares)} {hold:9.2f} "
                f"{static:9.1f} {its_hold:9.2f} {hold / its_hold:6.2f} {hold / own_hold:6.2f} {foreseen}",
                flush=True,
            )
