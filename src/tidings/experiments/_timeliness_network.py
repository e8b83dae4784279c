"""Paper B, Table 3 as a network: 20 brokers, 8 publishers on 4 topics, 100 subscribers, an event lives one second.

Our reading of what the table leaves open: a random recursive tree in which a broker has at most 4 neighbours; each
topic has 5 attributes of its own with 10 values each, with Zipf popularity of exponent 1, so that an event has 21
attributes with its topic; a filter names a topic and bounds 1 to 3 of its attributes; every hop takes a log-normal time
of median 40 ms and sigma .6, clipped to 5 to 200 ms; a broker takes 1 ms for each of the 100 subscriptions, since it
stores all of them. A second setting takes a quarter of that, and so shows the paper's method where waiting hardly
matters.

Rates and distributions: `publish` and `service` are exponential, deterministic or uniform on (0, 2 means). Expired
events are forwarded. The seed decides the tree, the home brokers, the filters, and the traffic of a simulation.
"""

from typing import Final, Literal

import numpy as np

from tidings.model.distributions import DelayDistribution, Deterministic, Exponential, LogNormal, Uniform
from tidings.model.filters import Filter
from tidings.model.generators import random_tree
from tidings.model.scenario import Choice, Constant, Content, Network, Policies, Publisher, Scheduling, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link

__all__ = ["COMBINATIONS", "Shape", "table_3"]

Shape = Literal["exp", "det", "uni"]

COMBINATIONS: Final[tuple[tuple[Shape, Shape], ...]] = (
    ("exp", "exp"),
    ("det", "exp"),
    ("uni", "exp"),
    ("exp", "uni"),
    ("det", "uni"),
    ("uni", "uni"),
)
"""The six pairs of a publishing and a service distribution that Figures 4 and 5 show."""

BROKERS: Final = 20
MAX_DEGREE: Final = 4
TOPICS: Final = 4
PUBLISHERS: Final = 8
SUBSCRIBERS: Final = 100
ATTRIBUTES: Final = 5
VALUES: Final = 10
RATE_PER_S: Final = 1.0
LIFETIME_S: Final = 1.0
SIZE_KB: Final = 0.064
PER_SUBSCRIPTION_S: Final = 0.001
WARMUP_S: Final = 200.0
LINK: Final = LogNormal(median=0.040, sigma=0.6, low=0.005, high=0.200)
ZIPF: Final = 1.0


def table_3(
    *, publish: Shape, service: Shape, seed: int, duration_s: float, per_subscription_s: float = PER_SUBSCRIPTION_S
) -> Network:
    """The network of Table 3 for one topology; the run starts with 200 s of warm-up, which come on top."""
    generator = np.random.default_rng([seed, 3])
    served = _distribution(service, per_subscription_s * SUBSCRIBERS)
    topology = random_tree(brokers=BROKERS, max_degree=MAX_DEGREE, generator=generator).map(
        brokers=lambda broker: Broker(name=broker.name, service=served),
        links=lambda link: Link(source=link.source, target=link.target, propagation=LINK),
    )
    names = [broker.name for broker in topology.brokers]
    publishers = tuple(
        Publisher(
            name=f"publisher-{number + 1}",
            group="publisher",
            broker=names[int(generator.integers(BROKERS))],
            interval=_distribution(publish, 1.0 / RATE_PER_S),
            lifetime=Deterministic(value=LIFETIME_S),
            size_kb=Deterministic(value=SIZE_KB),
            advertisement=None,
            attributes=_content(1 + number % TOPICS),
        )
        for number in range(PUBLISHERS)
    )
    subscribers = tuple(
        Subscriber(name=f"subscriber-{number + 1}", group="subscriber", broker=names[int(generator.integers(BROKERS))])
        for number in range(SUBSCRIBERS)
    )
    subscriptions = tuple(
        Subscription(id=subscriber.name, subscriber=subscriber.name, filter=_filter(generator))
        for subscriber in subscribers
    )
    return Network(
        title=f"paper B, Table 3: {publish} publishing, {service} service",
        seed=seed,
        duration_s=duration_s + WARMUP_S,
        warmup_s=WARMUP_S,
        topology=topology,
        publishers=publishers,
        subscribers=subscribers,
        subscriptions=subscriptions,
        policies=Policies(scheduling=Scheduling(name="fifo"), routing="single-path", expired="forward"),
    )


def _distribution(shape: Shape, mean_s: float) -> DelayDistribution:
    if shape == "exp":
        return Exponential(scale=mean_s)
    return Deterministic(value=mean_s) if shape == "det" else Uniform(low=0.0, high=2.0 * mean_s)


def _content(topic: int) -> dict[str, Content]:
    weights = np.arange(1, VALUES + 1, dtype=np.float64) ** -ZIPF
    chances = tuple((weights / weights.sum()).tolist())
    values = Choice(values=tuple(range(1, VALUES + 1)), probabilities=chances)
    content: dict[str, Content] = {"topic": Constant(value=topic)}
    content |= {f"t{topic}a{number}": values for number in range(1, ATTRIBUTES + 1)}
    return content


def _filter(generator: np.random.Generator) -> Filter:
    """A topic and 1 to 3 ranges on different attributes of it, 3 to 7 values long; where one begins is Zipf too."""
    topic = int(generator.integers(1, TOPICS + 1))
    bounded = generator.choice(ATTRIBUTES, size=int(generator.integers(1, 4)), replace=False) + 1
    weights = np.arange(1, VALUES + 1, dtype=np.float64) ** -ZIPF
    tests: list[tuple[str, str, int]] = [("topic", "=", topic)]
    for attribute in bounded.tolist():
        low = 1 + int(generator.choice(VALUES, p=weights / weights.sum()))
        high = min(VALUES, low + int(generator.integers(2, 2 + VALUES // 2)))
        tests += [(f"t{topic}a{attribute}", ">=", low), (f"t{topic}a{attribute}", "<=", high)]
    return Filter.all_of(tests)
