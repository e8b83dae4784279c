"""From measured profiles to a network that can be simulated and changed (docs/reference/profiles.md).

Knowledge from profiles says what events match, not what they say. So the network's events carry one attribute, the
number of their match signature, drawn with the shares that were measured, and a subscription's filter lists the
signatures that it is in. Flows, loads and R are those of the knowledge; the content is not.

Profiles do not tell which strategy links send by, or which scheme brokers live with failures by: that has to be said.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

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
from tidings.model.tables import has_table
from tidings.model.topology import Broker, Link, Topology
from tidings.prediction import (
    Failing,
    Knowledge,
    Signatures,
    failing_profiles,
    from_profiles,
    read_components,
    read_profiles,
)

__all__ = ["SIGNATURES_MAX", "network_of", "network_of_profiles"]

SIGNATURES_MAX: Final = 500_000
"""Pairs of a signature and a subscription: beyond that, filters that list them are too long to be matched."""

ATTRIBUTE: Final = "signature"
USUAL_DURATION_S: Final = 3600.0
_NONE: Final = 0  # the number of the signature that matches nobody


def network_of_profiles(
    directory: Path, *, strategy: StrategyName = DEFAULT_STRATEGY, scheme: Scheme = DEFAULT_SCHEME, seed: int = 0
) -> Network:
    """The network that a pipeline run has measured, with the policies that were in force."""
    tables = read_profiles(directory)
    failing = None
    if has_table(directory, "components"):
        tables = tables | read_components(directory)
        if any(row["failures"] for row in tables["components"].to_pylist()):
            failing = failing_profiles(tables)
    knowledge = from_profiles(tables)
    return network_of(knowledge, failing, strategy=strategy, scheme=scheme, seed=seed, title=str(directory))


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
    entries = sum(len(publisher.content.subscriptions) for publisher in knowledge.publishers)
    if entries > SIGNATURES_MAX:
        raise ConfigurationError(
            f"the profiles hold {entries:,} matches of different events, more than {SIGNATURES_MAX:,}: give the "
            "scenario instead, or profile a shorter trace"
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
            Subscription(id=name, subscriber=name, filter=each, max_delay_s=limit_s if np.isfinite(limit_s) else None)
            for name, each, limit_s in zip(
                knowledge.subscriptions, filters, knowledge.max_delays_s.tolist(), strict=True
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


def _or_none(given: tuple[Failures | None, ...] | None) -> tuple[Failures | None, ...]:
    return () if given is None else given


def _duration_s(knowledge: Knowledge) -> float:
    """As long as was measured, as far as that is known."""
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


def _stretched(law: DelayDistribution | None, factor: float) -> DelayDistribution | None:
    return None if law is None else scaled(law, factor)


def _content(signatures: Sequence[Signatures], subscriptions: int) -> tuple[list[Content], list[Filter]]:
    """What each publisher's events say, and what each subscription asks for."""
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
