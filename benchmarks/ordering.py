"""What putting one event in order costs, compiled and live, against the least that any way of ordering must do.

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
"""

import heapq
import time
from collections.abc import Callable

import numpy as np

from tidings.model.filters import Filter
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
    stamps = [
        stamper.stamp({"kind": "wanted" if wanted else "other", "price": 1.0 + n % 7}, int(left))
        for n, (left, wanted) in enumerate(zip(streams.table_departure_ns, streams.wanted, strict=True))
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
        told: list[int] = []
        receiver = OrderedReceiver(told.append, policy, wants, call_later=clock.call_later, clock_ns=clock.read_ns)
        began = time.process_time()
        for now_ns, stamp in arrivals:
            clock.now_ns = now_ns
            receiver.on_message("publisher", stamp.sequence, stamp)
        best.append(time.process_time() - began)
        receiver.close()
        if len(told) != len(arrivals):
            raise AssertionError(f"{policy.name}: {len(told)} of {len(arrivals)} events were delivered")
        heap: list[int] = []
        began = time.process_time()
        for _, stamp in arrivals:
            heapq.heappush(heap, stamp.sequence)
            if len(heap) > WINDOW:
                heapq.heappop(heap)
        limit.append(time.process_time() - began)
    return min(best) / len(arrivals) * 1e6, min(limit) / len(arrivals) * 1e6


def main() -> None:
    print("Ordering: microseconds per event, and how many times the limit that is")
    print(
        f"{'policy':14} {'events':>9} {'compiled':>9} {'lexsort':>9} {'ratio':>7}   (target {COMPILED_TARGET_US:g} us)"
    )
    for name in POLICIES:
        for size in SIZES:
            cost, limit = compiled_us(make_streams(size), Policy.parse(name))
            print(f"{name:14} {size:9,} {cost:9.3f} {limit:9.3f} {cost / limit:7.1f}", flush=True)
    print(f"{'policy':14} {'events':>9} {'live':>9} {'heapq':>9} {'ratio':>7}   (target {LIVE_TARGET_US:g} us)")
    for name in POLICIES:
        for size in LIVE_SIZES:
            policy = Policy.parse(name)
            cost, limit = live_us(make_live(make_streams(size), policy.record), policy)
            print(f"{name:14} {size:9,} {cost:9.3f} {limit:9.3f} {cost / limit:7.1f}", flush=True)


if __name__ == "__main__":
    main()
