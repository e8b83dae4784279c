"""Networks small enough to have closed forms."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tidings.model.distributions import Deterministic, Exponential
from tidings.model.filters import Filter
from tidings.model.scenario import Choice, Network, Policies, Publisher, Scheduling, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link, Topology

CONTENT = Choice(values=(1, 2, 3, 4), probabilities=(0.4, 0.3, 0.2, 0.1))


def chain(
    brokers: int = 1,
    *,
    interval=None,
    service=None,
    processing=None,
    propagation=None,
    slowness=None,
    loss: float = 0.0,
    lifetime=None,
    max_delay_s: float | None = None,
    filters: Sequence[str] = ("x >= 1",),
    homes: Sequence[int] | None = None,
    publishers_at: Sequence[int] = (0,),
    expired: str = "forward",
    duration_s: float = 2000.0,
    seed: int = 1,
    prefix: str = "b",
) -> Network:
    """Brokers in a row; by default publisher and subscriber at its two ends, 5 events a second, service of 100 ms."""
    names = [f"{prefix}{number}" for number in range(brokers)]
    way = Deterministic(value=0.0) if propagation is None else propagation
    links = [
        Link(source=one, target=other, propagation=way, slowness=slowness, loss=loss)
        for a, b in pairwise(names)
        for one, other in ((a, b), (b, a))
    ]
    at = [brokers - 1] * len(filters) if homes is None else homes
    return Network(
        title="chain",
        seed=seed,
        duration_s=duration_s,
        warmup_s=min(100.0, duration_s / 2),
        topology=Topology(
            brokers=tuple(
                Broker(name=name, service=Exponential(scale=0.1) if service is None else service, processing=processing)
                for name in names
            ),
            links=tuple(links),
        ),
        publishers=tuple(
            Publisher(
                name=f"p{number}",
                group="p",
                broker=names[home],
                interval=Exponential(scale=0.2) if interval is None else interval,
                lifetime=Deterministic(value=1.0) if lifetime is None else lifetime,
                size_kb=Deterministic(value=1.0),
                advertisement=None,
                attributes={"x": CONTENT},
            )
            for number, home in enumerate(publishers_at)
        ),
        subscribers=tuple(
            Subscriber(name=f"s{number}", group="s", broker=names[home]) for number, home in enumerate(at)
        ),
        subscriptions=tuple(
            Subscription(id=f"s{number}", subscriber=f"s{number}", filter=Filter.parse(text), max_delay_s=max_delay_s)
            for number, text in enumerate(filters)
        ),
        policies=Policies(scheduling=Scheduling(name="fifo"), routing="single-path", expired=expired),
    )


@pytest.fixture(name="chain", scope="session")
def chain_fixture():
    return chain
