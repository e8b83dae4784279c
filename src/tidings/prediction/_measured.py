"""From measured profiles to a network that can be simulated and changed (docs/reference/profiles.md).

Profiles record which subscriptions an event matches, not its attributes. So the network's events carry one attribute,
the number of their match signature, drawn with the measured shares, and a subscription's filter lists its signatures.
Flows, loads and R are those of the knowledge; the content is not.

Profiles do not record the strategy of links or the scheme of brokers: the caller has to state them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution, scaled
from tidings.model.failures import Failures
from tidings.model.filters import Filter
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY, Scheme, StrategyName
from tidings.model.scenario import (
    Choice,
    Constant,
    Content,
    Faults,
    Network,
    Policies,
    Publisher,
    Scheduling,
    Subscriber,
)
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link, Topology
from tidings.prediction._failures import Failing
from tidings.prediction._knowledge import Knowledge, Signatures
from tidings.prediction._outages import failing_profiles, read_components
from tidings.prediction._profiles import from_profiles, read_profiles

__all__ = ["SIGNATURES_MAX", "failing_of", "is_within_limits", "network_of", "network_of_profiles"]

SIGNATURES_MAX: Final = 500_000
"""Pairs of a signature and a subscription; beyond it the filters are too long to match."""

ATTRIBUTE: Final = "signature"
USUAL_DURATION_S: Final = 3600.0
_NONE: Final = 0  # the signature that matches nobody


def network_of_profiles(
    directory: Path, *, strategy: StrategyName = DEFAULT_STRATEGY, scheme: Scheme = DEFAULT_SCHEME, seed: int = 0
) -> Network:
    """The network that a pipeline run measured, with the given policies."""
    tables = read_profiles(directory)
    knowledge, failing = from_profiles(tables), failing_of(directory, tables)
    return network_of(knowledge, failing, strategy=strategy, scheme=scheme, seed=seed, title=str(directory))


def failing_of(directory: Path, tables: Mapping[str, pa.Table]) -> Failing | None:
    """The failures during a trace; None if there were none."""
    if "components" not in tables or not any(tables["components"].column("failures").to_pylist()):
        return None
    return failing_profiles({**tables, **read_components(directory)})


def is_within_limits(knowledge: Knowledge) -> bool:
    """Whether there are few enough signatures for a network."""
    return _entries(knowledge) <= SIGNATURES_MAX


def _entries(knowledge: Knowledge) -> int:
    return sum(len(publisher.content.subscriptions) for publisher in knowledge.publishers)


def network_of(
    knowledge: Knowledge,
    failing: Failing | None = None,
    *,
    strategy: StrategyName,
    scheme: Scheme = DEFAULT_SCHEME,
    seed: int = 0,
    title: str = "",
) -> Network:
    """A network with the same flows, loads and R as the knowledge."""
    if not is_within_limits(knowledge):
        raise ConfigurationError(
            f"the profiles hold {_entries(knowledge):,} matches of different events, more than {SIGNATURES_MAX:,}: "
            "give the scenario instead, or profile a shorter trace"
        )
    names = [broker.name for broker in knowledge.brokers]
    contents, filters = _content(
        [publisher.content for publisher in knowledge.publishers], len(knowledge.subscriptions)
    )
    return Network(
        title=title,
        seed=seed,
        duration_s=_duration_s(knowledge),
        warmup_s=0.0,
        topology=_topology(knowledge, names),
        publishers=tuple(
            Publisher(
                name=publisher.name,
                group=publisher.name,
                broker=names[publisher.tree.root],
                interval=publisher.interval,
                lifetime=publisher.lifetime,
                size_kb=publisher.size_kb,
                advertisement=None,
                attributes={ATTRIBUTE: content},
            )
            for publisher, content in zip(knowledge.publishers, contents, strict=True)
        ),
        subscribers=tuple(
            Subscriber(name=name, group=name, broker=names[home])
            for name, home in zip(knowledge.subscriptions, knowledge.homes.tolist(), strict=True)
        ),
        subscriptions=tuple(
            Subscription(
                id=name,
                subscriber=name,
                filter=each,
                max_delay_s=limit_s if np.isfinite(limit_s) else None,
                price=price,
            )
            for name, each, limit_s, price in zip(
                knowledge.subscriptions, filters, knowledge.max_delays_s.tolist(), _prices(knowledge), strict=True
            )
        ),
        policies=Policies(
            scheduling=Scheduling(name=strategy),
            expired="drop" if knowledge.drops_expired else "forward",
            faults=Faults(scheme=scheme),
        ),
        broker_failures=_or_none(None if failing is None else failing.brokers),
        link_failures=_or_none(None if failing is None else failing.links),
        link_components=() if failing is None else failing.components,
    )


def _prices(knowledge: Knowledge) -> list[float]:
    return [1.0] * len(knowledge.subscriptions) if knowledge.prices is None else knowledge.prices.tolist()


def _or_none(given: tuple[Failures | None, ...] | None) -> tuple[Failures | None, ...]:
    return () if given is None else given


def _duration_s(knowledge: Knowledge) -> float:
    """The measured duration, if it is known."""
    seen = [publisher.observed * publisher.interval.mean() for publisher in knowledge.publishers if publisher.observed]
    return max(seen, default=USUAL_DURATION_S)


def _topology(knowledge: Knowledge, names: Sequence[str]) -> Topology:
    return Topology(
        brokers=tuple(
            Broker(
                name=broker.name,
                service=_stretched(broker.service, broker.service_factor),
                processing=broker.processing,
            )
            for broker in knowledge.brokers
        ),
        links=tuple(
            Link(
                source=names[link.source],
                target=names[link.target],
                propagation=scaled(link.propagation, link.propagation_factor),
                slowness=_stretched(link.slowness, link.slowness_factor),
                loss=link.loss,
            )
            for link in knowledge.links
        ),
    )


def _stretched(distribution: DelayDistribution | None, factor: float) -> DelayDistribution | None:
    return None if distribution is None else scaled(distribution, factor)


def _content(signatures: Sequence[Signatures], subscriptions: int) -> tuple[list[Content], list[Filter]]:
    """The content of each publisher, and the filter of each subscription."""
    wanted: list[list[int]] = [[] for _ in range(subscriptions)]
    contents: list[Content] = []
    number = _NONE
    for each in signatures:
        values, shares = [], []
        for kind, weight in enumerate(each.weights.tolist()):
            number += 1
            values.append(number)
            shares.append(weight)
            for subscription in each.subscriptions[each.offsets[kind] : each.offsets[kind + 1]].tolist():
                wanted[subscription].append(number)
        rest = 1.0 - sum(shares)
        if rest > 1e-12 or not values:
            values.append(_NONE)
            shares.append(max(rest, 0.0) if len(shares) else 1.0)
        contents.append(
            Constant(value=values[0]) if len(values) == 1 else Choice(values=tuple(values), probabilities=tuple(shares))
        )
    return contents, [_filter(numbers) for numbers in wanted]


def _filter(numbers: Sequence[int]) -> Filter:
    if not numbers:
        return Filter.parse(f"{ATTRIBUTE} = -1")
    return Filter.parse(f"{ATTRIBUTE} IN ({', '.join(map(str, numbers))})")
