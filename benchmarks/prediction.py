"""What a prediction costs, and how much more it costs to simulate until the answer is as sharp.

Random trees of 10, 100 and 1,000 brokers, 100 subscribers for each, and 8, 26 and 80 publishers on a third as many
topics; an event has 3 attributes of 10 values, with Zipf popularity, a filter a topic and 1 to 3 ranges. Service
times put the busiest broker at a load of .7; links take a log-normal time of median 40 ms; an event lives as long as
the path to a broker takes on average. Publishing is Poisson, and once more uniform, which needs the spectrum of
burstiness. Times are processor seconds of one core, so that a busy machine does not count.

- `index`: reading all filters into a matching index; `knowledge`: trees and content, every cell of it matched;
  `predict`: from there to R' of everybody;
- `simulate`: the time that a run needs until its sampling noise is `SHARP`, from two shorter runs whose difference
  gives their noise, which falls with the root of the simulated time;
- the ratio of the two, and the memory at its highest so far.

Then the same networks on Spark (`predict_on_spark`, subscriptions in blocks, R' written as Parquet), in one session
that a small prediction has warmed up: elapsed and processor seconds of the driver, the JVM and the Python workers, the
ratio to one process, and the largest difference of any R'. ``BENCH_MASTER=local[2]`` says where.
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from tidings.model.distributions import Deterministic, Exponential, LogNormal, Uniform
from tidings.model.filters import Filter
from tidings.model.generators import random_tree
from tidings.model.scenario import Choice, Constant, Network, Policies, Publisher, Scheduling, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link
from tidings.pipeline import open_session
from tidings.pipeline.prediction import predict_on_spark
from tidings.prediction import ContentMatcher, from_network, predict
from tidings.simulation import Options, simulate

SIZES = ((10, 8), (100, 26), (1_000, 80))
PER_BROKER = 100
VALUES = 10
ATTRIBUTES = 3
LOAD = 0.7
SHARP = 0.004  # about what the prediction is off by with Poisson publishing; with uniform it is three times that
EVENTS = 3_000  # of each of the two runs that the noise is read from
SEED = 5


def make_network(brokers: int, publishers: int, *, is_uniform: bool, lifetime_s: float = 1.0) -> Network:
    generator = np.random.default_rng([SEED, brokers])
    served = Exponential(scale=LOAD / publishers)
    hop = LogNormal(median=0.040, sigma=0.6, low=0.005, high=0.200)
    topology = random_tree(brokers=brokers, max_degree=6, generator=generator).map(
        brokers=lambda broker: Broker(name=broker.name, service=served),
        links=lambda link: Link(source=link.source, target=link.target, propagation=hop),
    )
    names = [broker.name for broker in topology.brokers]
    topics = max(2, publishers // 3)
    weights = np.arange(1, VALUES + 1) ** -1.0
    popular = Choice(values=tuple(range(1, VALUES + 1)), probabilities=tuple((weights / weights.sum()).tolist()))
    content = {f"a{number}": popular for number in range(ATTRIBUTES)}
    interval = Uniform(low=0.0, high=2.0) if is_uniform else Exponential(scale=1.0)
    homes = generator.integers(brokers, size=brokers * PER_BROKER)
    return Network(
        title=f"{brokers} brokers",
        seed=SEED,
        duration_s=EVENTS / publishers + 20.0,
        warmup_s=20.0,
        topology=topology,
        publishers=tuple(
            Publisher(
                name=f"p{number}",
                group="p",
                broker=names[int(generator.integers(brokers))],
                interval=interval,
                lifetime=Deterministic(value=lifetime_s),
                size_kb=Deterministic(value=0.1),
                advertisement=None,
                attributes={"topic": Constant(value=number % topics), **content},
            )
            for number in range(publishers)
        ),
        subscribers=tuple(
            Subscriber(name=f"s{number}", group="s", broker=names[home]) for number, home in enumerate(homes.tolist())
        ),
        subscriptions=tuple(
            Subscription(id=f"s{number}", subscriber=f"s{number}", filter=make_filter(generator, topics))
            for number in range(len(homes))
        ),
        policies=Policies(scheduling=Scheduling(name="fifo"), routing="single-path", expired="forward"),
    )


def make_filter(generator: np.random.Generator, topics: int) -> Filter:
    tests: list[tuple[str, str, int]] = [("topic", "=", int(generator.integers(topics)))]
    for number in generator.choice(ATTRIBUTES, size=int(generator.integers(1, ATTRIBUTES + 1)), replace=False).tolist():
        low = int(generator.integers(1, VALUES + 1))
        tests += [(f"a{number}", ">=", low), (f"a{number}", "<=", low + int(generator.integers(4)))]
    return Filter.all_of(tests)


def reliabilities(network: Network, seed: int) -> tuple[np.ndarray, float]:
    began_s = time.process_time()
    result = simulate(msgspec.structs.replace(network, seed=seed), Options(drain_s=30.0))
    taken_s = time.process_time() - began_s
    found = [row.on_time_reliability for row in result.subscribers.values()]
    return np.array([np.nan if each is None else each for each in found]), taken_s


def measure(brokers: int, publishers: int, *, is_uniform: bool) -> None:
    first = predict(from_network(make_network(brokers, publishers, is_uniform=is_uniform)))  # compiles, too
    lifetime_s = float(np.mean([first.mean_delays(p)[0].mean() for p in range(publishers)]))
    network = make_network(brokers, publishers, is_uniform=is_uniform, lifetime_s=lifetime_s)
    began_s = time.process_time()
    matcher = ContentMatcher([subscription.filter for subscription in network.subscriptions])
    index_s = time.process_time() - began_s
    began_s = time.process_time()
    knowledge = from_network(network, matcher=matcher)
    known_s = time.process_time() - began_s
    began_s = time.process_time()
    answer = predict(knowledge)
    predicted_s = time.process_time() - began_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (one, one_s), (other, other_s) = reliabilities(network, 1), reliabilities(network, 2)
    noise = float(np.nanmean(np.abs(one - other)) / np.sqrt(2.0))
    needed_s = 0.5 * (one_s + other_s) * (noise / SHARP) ** 2
    total_s = index_s + known_s + predicted_s
    print(
        f"{brokers:>7,} {brokers * PER_BROKER:>8,} {publishers:>5} {'uniform' if is_uniform else 'poisson':>8} "
        f"{np.nanmean(answer.reliability):>6.3f} {index_s:>6.2f} {known_s:>10.2f} {predicted_s:>8.3f} "
        f"{needed_s:>12,.0f} {needed_s / total_s:>9,.0f} {needed_s / predicted_s:>11,.0f} {peak_mb:>8,.0f}"
    )


def processor_s() -> float:
    """Processor seconds of this process and all that descend from it, those included that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    parents, spent = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(place.parent.name)] = int(fields[1])
        spent[int(place.parent.name)] = sum(int(each) for each in fields[11:15]) / tick
    total = 0.0
    for process in spent:
        ancestor = process
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        total += spent[process] if ancestor == os.getpid() else 0.0
    return total


def measure_on_spark() -> None:
    with (
        open_session(master=os.environ.get("BENCH_MASTER"), app_name="tidings benchmark") as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        predict_on_spark(spark, make_network(*SIZES[0], is_uniform=False), out=Path(folder) / "warm")
        print("\non Spark\nbrokers    subs  pubs  one process s   elapsed s  processor s     ratio  differs by")
        for brokers, publishers in SIZES:
            network = make_network(brokers, publishers, is_uniform=False)
            began_s = time.process_time()
            answer = predict(from_network(network))
            alone_s = time.process_time() - began_s
            fresh = make_network(brokers, publishers, is_uniform=False)  # filters keep what was worked out of them
            began_s, used_s = time.perf_counter(), processor_s()
            found = predict_on_spark(spark, fresh, out=Path(folder) / str(brokers))
            elapsed_s, used_s = time.perf_counter() - began_s, processor_s() - used_s
            table = found.subscribers.select("subscription", "on_time_reliability").toArrow().to_pydict()
            shares = dict(zip(table["subscription"], table["on_time_reliability"], strict=True))
            known = zip(answer.knowledge.subscriptions, answer.reliability.tolist(), strict=True)
            apart = max(abs(shares[name] - share) for name, share in known if share == share)
            print(
                f"{brokers:>7,} {brokers * PER_BROKER:>8,} {publishers:>5} {alone_s:>14.2f} {elapsed_s:>11.1f} "
                f"{used_s:>12.1f} {used_s / alone_s:>9.1f} {apart:>11.1e}"
            )


def main() -> None:
    network = make_network(*SIZES[0], is_uniform=False)
    reliabilities(network, 3)  # compiles
    print(f"prediction: seconds; simulating until the noise is {SHARP:g}")
    print("brokers    subs  pubs  publish  meanR  index  knowledge  predict   simulate     ratio  to predict  peak MB")
    for brokers, publishers in SIZES:
        for is_uniform in (False, True):
            measure(brokers, publishers, is_uniform=is_uniform)
    measure_on_spark()


if __name__ == "__main__":
    main()
