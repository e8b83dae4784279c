"""Whether plans come true: what `tidings place` expects of its moves, beside what happens when they are made.

A network is simulated, a plan is made from its trace for each objective, and the same network is simulated once more
with the publishers (and subscribers) where the plan has them. Each row is one figure of one plan: as it was expected
and as it was measured, before and after; the last column is by how many per cent the expectation was off after the
moves (for shares: in points).

The network is paper E's clustered workload: 63 brokers in a balanced binary tree, 20 publishers at random brokers, each
with readers on four brokers: one office that wants everything, three that want a fifth of it. Deliveries are promised
within 220 ms; late ones are forwarded all the same.

Options: ``BENCH_MASTER=local[2]``, ``BENCH_DURATION=120`` for other seconds than 240, and ``BENCH_PLANS=load,on-time``
for some of the plans.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.model import Scenario
from tidings.model.scenario import Network
from tidings.placement import Aim, PlacementPlan
from tidings.simulation import simulate

MASTER = os.environ.get("BENCH_MASTER")
DURATION_S = int(os.environ.get("BENCH_DURATION", "240"))
BROKERS = 63
PUBLISHERS = 20
SITES = 4
DEADLINE = "220 ms"
SEED = 63

HEAD = f"""
duration = "{DURATION_S} s"
warmup = "10 s"
seed = {SEED}
topology = {{ kind = "balanced-tree", branching = 2, depth = 5 }}
[links]
propagation = {{ law = "shifted-gamma", shift = "15 ms", shape = 1.0, scale = "5 ms" }}
[brokers]
service = {{ law = "exponential", mean = "5 ms" }}
[policies]
scheduling = "fifo"
expired = "forward"
"""
PUBLISHER = """
[[publishers]]
name = "stock-{topic}"
at = "b{home}"
rate = "5 /s"
size = "200 B"
attributes = {{ topic = {topic}, range = {{ law = "uniform", low = 0, high = 10 }} }}
"""
READERS = """
[[subscribers]]
name = "reader-{topic}-{site}"
at = "b{broker}"
count = {count}
filter = "topic = {topic} AND range < {most}"
max_delay = "{deadline}"
"""


def make_network() -> Network:
    generator = np.random.default_rng(SEED)
    text = HEAD
    for topic in range(1, PUBLISHERS + 1):
        text += PUBLISHER.format(topic=topic, home=generator.integers(1, BROKERS + 1))
        for site, broker in enumerate(generator.choice(np.arange(1, BROKERS + 1), SITES, replace=False)):
            most, count = (10, 2) if site == 0 else (2, 6)
            text += READERS.format(topic=topic, site=site, broker=broker, count=count, most=most, deadline=DEADLINE)
    return Scenario.parse(text).expand()


def moved(network: Network, plan: PlacementPlan) -> Network:
    """The network with everybody where the plan has them."""
    homes = plan.homes("publisher"), plan.homes("subscriber")
    return msgspec.structs.replace(
        network,
        publishers=tuple(msgspec.structs.replace(p, broker=homes[0].get(p.name, p.broker)) for p in network.publishers),
        subscribers=tuple(
            msgspec.structs.replace(s, broker=homes[1].get(s.name, s.broker)) for s in network.subscribers
        ),
    )


def measure(network: Network, trace: Path) -> dict[str, float]:
    """The same figures as a plan has, of a simulation."""
    result = simulate(network, out=trace)
    sent = pq.read_table(trace / "publications", columns=["publisher", "sequence", "departure_ns"])
    sent = sent.filter(pc.greater_equal(sent["departure_ns"], int(network.warmup_s * 1e9)))
    got = pq.read_table(trace / "deliveries", columns=["publisher", "sequence", "subscription", "arrived_ns"])
    both: pa.Table = got.join(sent, ["publisher", "sequence"], join_type="inner")
    delay_ns = pc.mean(pc.subtract(both["arrived_ns"], both["departure_ns"])).as_py()
    return {
        "messages_per_s": result.traffic / (network.duration_s - network.warmup_s),
        "delay_ms": delay_ns / 1e6,
        "busiest": max(result.brokers.values()),
        "on_time": result.on_time / result.matched,
    }


def main() -> None:
    from tidings.pipeline import open_session
    from tidings.pipeline.placement import PlaceOptions, place_on_spark

    asked: dict[str, dict[str, Any]] = {
        "load": {"aim": Aim(objective="load")},
        "delay": {"aim": Aim(objective="delay")},
        "on-time": {"aim": Aim(objective="on-time")},
        "delay --joint": {"aim": Aim(objective="delay"), "is_joint": True},
        "load --subscribers": {"aim": Aim(objective="load"), "moves_subscribers": True},
    }
    wanted = os.environ.get("BENCH_PLANS", ",".join(asked)).split(",")
    network = make_network()
    print("| objective | moves | figure | now: expected, measured | then: expected, measured | off |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, open_session(master=MASTER, app_name="benchmark place") as spark:
        before = measure(network, Path(folder) / "before")
        for name, options in ((name, asked[name]) for name in wanted):
            plan = place_on_spark(spark, [Path(folder) / "before"], PlaceOptions(**options)).plan
            after = measure(moved(network, plan), Path(folder) / name.replace(" ", ""))
            for figure, measured in after.items():
                expected = getattr(plan.expected, figure)
                if figure in ("busiest", "on_time"):
                    shown, off = "{:.1%}", f"{100 * (expected.then - measured):+.1f} points"
                else:
                    shown, off = "{:.1f}", f"{expected.then / measured - 1:+.1%}"
                pairs = [(expected.now, before[figure]), (expected.then, measured)]
                columns = [", ".join(shown.format(value) for value in pair) for pair in pairs]
                print(f"| {name} | {len(plan.moves)} | {figure} | {' | '.join(columns)} | {off} |", flush=True)


if __name__ == "__main__":
    main()
