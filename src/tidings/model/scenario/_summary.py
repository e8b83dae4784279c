"""A summary of a network: the size and shape of the overlay, its publishers and subscribers, the load.

Interest, the share of (event, subscription) pairs that match, is estimated from events sampled by the network's seed;
at most `PAIRS_MAX` pairs are checked, so it is an estimate.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tidings.model.scenario._network import Network, Publisher
from tidings.model.scenario._streams import Streams
from tidings.model.subscription import Subscription
from tidings.model.topology import Topology

__all__ = ["PublisherSummary", "SubscriberSummary", "Summary", "summarise"]

T = TypeVar("T")

PAIRS_MAX = 100_000
EVENTS_MAX = 1_000
DIAMETER_BROKERS_MAX = 2_000


class PublisherSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group of publishers; rates and volumes are those of the whole group."""

    group: str
    count: int
    brokers: int
    rate_per_s: float
    volume_kb_per_s: float
    lifetime_mean_s: float | None
    attributes: tuple[str, ...]


class SubscriberSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group of subscribers; deadlines from the tightest to the loosest, None if nobody has one."""

    group: str
    count: int
    brokers: int
    max_delay_least_s: float | None
    max_delay_most_s: float | None
    price_least: float
    price_most: float
    filter_of_first: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that `tidings scenario show` prints; `diameter_hops` is None for very large overlays."""

    title: str
    seed: int
    duration_s: float
    warmup_s: float
    brokers: int
    links: int
    mean_degree: float
    diameter_hops: int | None
    link_propagation_mean_s: float
    link_slowness_mean_s_per_kb: float | None
    publishers: tuple[PublisherSummary, ...]
    subscribers: tuple[SubscriberSummary, ...]
    events_per_s: float
    volume_kb_per_s: float
    interest: float | None
    deliveries_per_s: float | None
    scheduling: str
    routing: str
    expired: str


def summarise(network: Network) -> Summary:
    """The figures of a network; the same network gives the same figures."""
    topology = network.topology
    slowness = [link.slowness.mean() for link in topology.links if link.slowness is not None]
    delays = [link.propagation.mean() for link in topology.links]
    publishers = tuple(_publishers(network))
    deliveries_per_s = _deliveries_per_s(network)
    events_per_s = sum(group.rate_per_s for group in publishers)
    pairs_per_s = events_per_s * len(network.subscriptions)
    scheduling = network.policies.scheduling
    return Summary(
        title=network.title,
        seed=network.seed,
        duration_s=network.duration_s,
        warmup_s=network.warmup_s,
        brokers=len(topology.brokers),
        links=len(topology.links),
        mean_degree=_mean_degree(topology),
        diameter_hops=_diameter_hops(topology),
        link_propagation_mean_s=sum(delays) / len(delays) if delays else 0.0,
        link_slowness_mean_s_per_kb=sum(slowness) / len(slowness) if slowness else None,
        publishers=publishers,
        subscribers=tuple(_subscribers(network)),
        events_per_s=events_per_s,
        volume_kb_per_s=sum(group.volume_kb_per_s for group in publishers),
        interest=None if deliveries_per_s is None else deliveries_per_s / pairs_per_s,
        deliveries_per_s=deliveries_per_s,
        scheduling=scheduling.name if scheduling.r is None else f"{scheduling.name} (r = {scheduling.r:g})",
        routing=network.policies.routing,
        expired=network.policies.expired,
    )


def _publishers(network: Network) -> list[PublisherSummary]:
    groups: dict[str, list[Publisher]] = {}
    for publisher in network.publishers:
        groups.setdefault(publisher.group, []).append(publisher)
    summaries = []
    for group, members in groups.items():
        lifetimes = [member.lifetime.mean() for member in members if member.lifetime is not None]
        summaries.append(
            PublisherSummary(
                group=group,
                count=len(members),
                brokers=len({member.broker for member in members}),
                rate_per_s=sum(member.rate_per_s for member in members),
                volume_kb_per_s=sum(member.rate_per_s * member.size_kb.mean() for member in members),
                lifetime_mean_s=sum(lifetimes) / len(lifetimes) if lifetimes else None,
                attributes=tuple(members[0].attributes),
            )
        )
    return summaries


def _subscribers(network: Network) -> list[SubscriberSummary]:
    group_of = {subscriber.name: subscriber.group for subscriber in network.subscribers}
    groups: dict[str, list[Subscription]] = {}
    for subscription in network.subscriptions:
        groups.setdefault(group_of[subscription.subscriber], []).append(subscription)
    summaries = []
    for group, members in groups.items():
        delays_s = [member.max_delay_s for member in members if member.max_delay_s is not None]
        summaries.append(
            SubscriberSummary(
                group=group,
                count=len(members),
                brokers=len({network.homes[member.subscriber] for member in members}),
                max_delay_least_s=min(delays_s, default=None),
                max_delay_most_s=max(delays_s, default=None),
                price_least=min(member.price for member in members),
                price_most=max(member.price for member in members),
                filter_of_first=str(members[0].filter),
            )
        )
    return summaries


def _deliveries_per_s(network: Network) -> float | None:
    """How many (event, subscription) pairs match each second, from sampled events; None without clients."""
    if not network.publishers or not network.subscriptions:
        return None
    # Spread the pairs over all publishers and over evenly spaced subscriptions, at least one event each.
    publishers = _spaced(network.publishers, PAIRS_MAX // 25)
    per_publisher = PAIRS_MAX // len(publishers)
    subscriptions = _spaced(network.subscriptions, max(10, per_publisher // 50))
    events = min(EVENTS_MAX, per_publisher // len(subscriptions))
    generator = Streams(network.seed).stream("interest")
    matched_per_s = total_per_s = 0.0
    for publisher in publishers:
        attributes = publisher.sample_attributes(generator, events)
        matched = sum(subscription.filter.matches(event) for event in attributes for subscription in subscriptions)
        matched_per_s += publisher.rate_per_s * matched / (events * len(subscriptions))
        total_per_s += publisher.rate_per_s
    share = matched_per_s / total_per_s
    return share * sum(publisher.rate_per_s for publisher in network.publishers) * len(network.subscriptions)


def _spaced(items: Sequence[T], most: int) -> Sequence[T]:
    if len(items) <= most:
        return items
    return [items[number * len(items) // most] for number in range(most)]


def _mean_degree(topology: Topology) -> float:
    """Neighbours per broker, either direction counting once."""
    joined = {frozenset((link.source, link.target)) for link in topology.links}
    return 2.0 * len(joined) / len(topology.brokers)


def _diameter_hops(topology: Topology) -> int | None:
    """The longest shortest path between brokers that can reach each other."""
    if len(topology.brokers) > DIAMETER_BROKERS_MAX:
        return None
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    index, count = topology.index, len(topology.brokers)
    ends = np.array([(index[link.source], index[link.target]) for link in topology.links]).reshape(-1, 2)
    links = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    hops = shortest_path(links, unweighted=True)
    return int(hops[np.isfinite(hops)].max())
