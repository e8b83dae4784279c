"""What putting one event in order costs, compiled and live, against the least that any ordering must do.

The load is one subscriber of paper A's intense flow: 1,200 events/s over three brokers of 1 ms each, of which 85 %
match, so that every seventh number is a gap and two of five events come out of order. Each row is measured in the
same run:

- `compiled`: the receiver over arrays, as the replay and the experiments call it; its limit is NumPy's `lexsort` of
  the same rows by stream and sequence, which orders everything, but only when all of it is there;
- `live`: `OrderedReceiver.on_message` with stamps, records, summaries of real filters and the callback, but for the
  system's timer; its limit is a `heapq` push and pop for each event, which orders within a fixed window, and knows
  neither gaps nor timers.

Processor time, so that others on the machine do not count. The ratio says how many times the limit an event costs;
the targets are 2 microseconds compiled and 20 live.

- `spark`: `replay_orders` over a whole trace under twelve policies, with records: files in, a row for each policy out.
  Its limit is a plain read by Spark of the columns that it needs, all rows of both tables, into nothing. That is wall
  time, the better of two. Fifty publishers send what twenty of 250 subscriptions want, 2 % of it lost.

- `delays`: what ours put in order on delays that they were not tuned to, and for what hold (`ordering_delays`).

Options: ``BENCH_SIZES=100000`` for other numbers of deliveries on Spark, ``BENCH_MASTER=local[2]``,
``BENCH_PARTS=spark`` for some of the parts (compiled, live, delays, spark), ``BENCH_SEEDS=1,2,3`` and
``BENCH_SETS=umts,lte`` for some of the delays, ``BENCH_DATA`` for where the measured ones are.
"""

import heapq
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ordering_delays import print_outcomes
from tidings.model.filters import Filter
from tidings.model.trace import TABLES, publications
from tidings.ordering import OrderedReceiver, Policy, Stamp, Stamper, Streams, SummaryMatcher, replay

POLICIES = ("P-0.05-0", "P-0.05-25", "CST-30", "ours-record", "ours-quantile")
SIZES = (10_000, 100_000, 1_000_000)
LIVE_SIZES = (1_000, 4_000, 16_000)
RATE_PER_S = 1200.0
INTEREST = 0.85
BROKERS = 3
REPEATS = 3
SEED = 11
WINDOW = 64
COMPILED_TARGET_US = 2.0
LIVE_TARGET_US = 20.0
PARTS = os.environ.get("BENCH_PARTS", "compiled,live,delays,spark").split(",")
SPARK_SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "100000,1000000,10000000").split(","))
SPARK_MASTER = os.environ.get("BENCH_MASTER")
SPARK_POLICIES = (
    *("P-0.05-0", "P-0.05-5", "P-0.05-25", "P-0.2-0", "P-0.001-0", "P-0.001-25"),
    *("CST-3", "CST-30", "CST-300", "ours-record", "ours-quantile", "Q-0.995"),
)
PUBLISHERS = 50
SUBSCRIPTIONS = 250
FAN_OUT = 20
KINDS = 1000
LOSS = 0.02
ROWS_PER_FILE = 2_000_000


def make_streams(deliveries: int) -> Streams:
    generator = np.random.default_rng(SEED)
    events = int(deliveries / INTEREST)
    departure_s = np.cumsum(generator.exponential(1.0 / RATE_PER_S, events))
    delay_s = generator.exponential(0.001, (BROKERS, events)).sum(axis=0)
    matched = generator.random(events) < INTEREST
    sequence = np.flatnonzero(matched)
    arrival_ns = np.rint((departure_s + delay_s)[sequence] * 1e9).astype(np.int64)
    order = np.argsort(arrival_ns, kind="stable")
    return Streams.of_one_publisher(
        departure_ns=np.rint(departure_s * 1e9).astype(np.int64),
        stream=np.zeros(sequence.size, np.int64),
        sequence=sequence[order],
        arrival_ns=arrival_ns[order],
        wanted=matched[None, :],
    )


def compiled_us(streams: Streams, policy: Policy) -> tuple[float, float]:
    """Microseconds per event, and those of the limit."""
    replay(streams, [policy])  # compiles
    stream = np.zeros(streams.sequence.size, np.int64)
    best, limit = [], []
    for _ in range(REPEATS):
        began = time.process_time()
        replay(streams, [policy])
        best.append(time.process_time() - began)
        began = time.process_time()
        np.lexsort((streams.sequence, stream))
        limit.append(time.process_time() - began)
    return min(best) / streams.sequence.size * 1e6, min(limit) / streams.sequence.size * 1e6


def make_live(streams: Streams, record: int) -> list[tuple[int, Stamp]]:
    """The arrivals with the stamps that their sender would have made, what matches being in the content."""
    stamper = Stamper(record=record)
    wanted = set(streams.wanted.tolist())
    stamps = [
        stamper.stamp({"kind": "wanted" if n in wanted else "other", "price": 1.0 + n % 7}, int(left))
        for n, left in enumerate(streams.table_departure_ns)
    ]
    return [(int(came), stamps[n]) for came, n in zip(streams.arrival_ns, streams.sequence, strict=True)]


class VirtualClock:
    """Stands still between arrivals; timers that have ended are noticed at the next one."""

    def __init__(self) -> None:
        self.now_ns = 0

    def read_ns(self) -> int:
        return self.now_ns

    def call_later(self, _delay_s: float, _callback: Callable[[], object]) -> "VirtualClock":
        return self

    def cancel(self) -> None:
        pass


def live_us(arrivals: list[tuple[int, Stamp]], policy: Policy) -> tuple[float, float]:
    """Microseconds per event, and those of the limit."""
    best, limit = [], []
    for _ in range(REPEATS):
        wants = SummaryMatcher([Filter.parse("kind = 'wanted' AND price < 100")])
        clock = VirtualClock()
        delivered: list[int] = []
        receiver = OrderedReceiver(delivered.append, policy, wants, call_later=clock.call_later, clock_ns=clock.read_ns)
        began = time.process_time()
        for now_ns, stamp in arrivals:
            clock.now_ns = now_ns
            receiver.on_message("publisher", stamp.sequence, stamp)
        best.append(time.process_time() - began)
        receiver.close()
        if len(delivered) != len(arrivals):
            raise AssertionError(f"{policy.name}: {len(delivered)} of {len(arrivals)} events were delivered")
        heap: list[int] = []
        began = time.process_time()
        for _, stamp in arrivals:
            heapq.heappush(heap, stamp.sequence)
            if len(heap) > WINDOW:
                heapq.heappop(heap)
        limit.append(time.process_time() - began)
    return min(best) / len(arrivals) * 1e6, min(limit) / len(arrivals) * 1e6


def write_table(trace: Path, table: str, schema: pa.Schema, columns: dict[str, Any]) -> None:
    folder = trace / table
    folder.mkdir(parents=True)
    rows = pa.table(columns, schema=schema)
    for number, start in enumerate(range(0, len(rows), ROWS_PER_FILE)):
        pq.write_table(rows.slice(start, ROWS_PER_FILE), folder / f"part-{number}.parquet")


def make_trace(place: Path, deliveries: int) -> Path:
    """A trace whose events are out of order as in `make_streams`; a subscription wants a range of kinds."""
    generator = np.random.default_rng(SEED)
    trace, each = place / f"deliveries-{deliveries}", deliveries // (FAN_OUT * PUBLISHERS)
    span = KINDS * FAN_OUT // SUBSCRIPTIONS
    lowest = generator.integers(0, KINDS - span, SUBSCRIPTIONS)
    names = np.array([f"publisher-{n}" for n in range(PUBLISHERS)])
    readers = np.array([f"subscription-{n}" for n in range(SUBSCRIPTIONS)])
    publisher = np.repeat(np.arange(PUBLISHERS), each)
    sequence = np.tile(np.arange(each), PUBLISHERS)
    departure_s = np.cumsum(generator.exponential(1.0 / RATE_PER_S, (PUBLISHERS, each)), axis=1).ravel()
    departure_ns = np.rint(departure_s * 1e9).astype(np.int64)
    kind = generator.integers(0, KINDS, publisher.size)
    home = np.full(publisher.size, "broker")
    write_table(
        trace,
        "publications",
        publications({"kind": "whole"}),
        {
            "publisher": names[publisher],
            "sequence": sequence,
            "departure_ns": departure_ns,
            "broker": home,
            "size_bytes": np.full(publisher.size, 500),
            "lifetime_ns": pa.nulls(publisher.size, pa.int64()),
            "attributes": pa.StructArray.from_arrays([pa.array(kind)], ["kind"]),
        },
    )
    got = [np.flatnonzero((kind >= low) & (kind < low + span)) for low in lowest]
    event = np.concatenate(got)
    reader = np.repeat(np.arange(SUBSCRIPTIONS), [some.size for some in got])
    came = generator.random(event.size) >= LOSS
    event, reader = event[came], reader[came]
    delay_ns = (generator.exponential(0.001, (BROKERS, event.size)).sum(axis=0) * 1e9).astype(np.int64)
    arrived_ns = departure_ns[event] + delay_ns
    order = np.argsort(arrived_ns, kind="stable")
    event, reader, arrived_ns = event[order], reader[order], arrived_ns[order]
    write_table(
        trace,
        "deliveries",
        TABLES["deliveries"],
        {
            "publisher": names[publisher[event]],
            "sequence": sequence[event],
            "subscription": readers[reader],
            "broker": np.full(event.size, "broker"),
            "arrived_ns": arrived_ns,
            "delivered_ns": arrived_ns,
        },
    )
    write_table(
        trace,
        "subscriptions",
        TABLES["subscriptions"],
        {
            "subscription": readers,
            "subscriber": readers,
            "broker": np.full(SUBSCRIPTIONS, "broker"),
            "filter": [f"kind >= {low} AND kind < {low + span}" for low in lowest],
            "max_delay_ns": pa.nulls(SUBSCRIPTIONS, pa.int64()),
            "price": np.ones(SUBSCRIPTIONS),
            "from_ns": np.zeros(SUBSCRIPTIONS, np.int64),
            "until_ns": pa.nulls(SUBSCRIPTIONS, pa.int64()),
        },
    )
    return trace


def read_s(spark: Any, trace: Path) -> float:
    """Seconds of a plain read."""
    began_s = time.perf_counter()
    for table, columns in (
        ("publications", ("publisher", "sequence", "departure_ns", "attributes")),
        ("deliveries", ("publisher", "sequence", "subscription", "arrived_ns")),
    ):
        spark.read.parquet(str(trace / table)).select(*columns).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began_s


def spark_part() -> None:
    from tidings.pipeline import open_session
    from tidings.pipeline.ordering import replay_orders

    policies = [Policy.parse(name) for name in SPARK_POLICIES]
    print(f"{'spark':14} {'rows':>10} {'replay s':>9} {'read s':>9} {'ratio':>7} {'us/row':>8} {'out of order':>13}")
    with tempfile.TemporaryDirectory(prefix="tidings-ordering-") as scratch, open_session(master=SPARK_MASTER) as spark:
        warm = make_trace(Path(scratch), 20_000)
        replay_orders(spark, [warm], policies)
        read_s(spark, warm)
        for size in SPARK_SIZES:
            trace = make_trace(Path(scratch) / "traces", size)
            limit_s = min(read_s(spark, trace) for _ in range(2))
            took = []
            for _ in range(2):
                began_s = time.perf_counter()
                result = replay_orders(spark, [trace], policies)
                took.append(time.perf_counter() - began_s)
            cost_s = min(took)
            shown = f"{len(policies)} policies"
            print(
                f"{shown:14} {result.received:10,} {cost_s:9.2f} {limit_s:9.2f} {cost_s / limit_s:7.1f} "
                f"{cost_s / result.received * 1e6:8.2f} {result.out_of_order / result.received:13.1%}",
                flush=True,
            )


def main() -> None:
    parts = (("compiled", compiled_part), ("live", live_part), ("delays", delays_part), ("spark", spark_part))
    for part, run in parts:
        if part in PARTS:
            run()


def delays_part() -> None:
    seeds = [int(seed) for seed in os.environ.get("BENCH_SEEDS", "101,102,103").split(",")]
    names = os.environ.get("BENCH_SETS")
    print_outcomes(seeds, names.split(",") if names else None)


def compiled_part() -> None:
    print("Ordering: microseconds per event, and how many times the limit that is")
    print(
        f"{'policy':14} {'events':>9} {'compiled':>9} {'lexsort':>9} {'ratio':>7}   (target {COMPILED_TARGET_US:g} us)"
    )
    for name in POLICIES:
        for size in SIZES:
            cost, limit = compiled_us(make_streams(size), Policy.parse(name))
            print(f"{name:14} {size:9,} {cost:9.3f} {limit:9.3f} {cost / limit:7.1f}", flush=True)


def live_part() -> None:
    print(f"{'policy':14} {'events':>9} {'live':>9} {'heapq':>9} {'ratio':>7}   (target {LIVE_TARGET_US:g} us)")
    for name in POLICIES:
        for size in LIVE_SIZES:
            policy = Policy.parse(name)
            cost, limit = live_us(make_live(make_streams(size), policy.record), policy)
            print(f"{name:14} {size:9,} {cost:9.3f} {limit:9.3f} {cost / limit:7.1f}", flush=True)


if __name__ == "__main__":
    main()
