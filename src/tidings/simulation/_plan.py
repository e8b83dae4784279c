"""From a network to the arrays of a run: links, brokers, subscriptions, laws, and the routes through them.

Dense numbers follow the order of the network; names play no part, so renaming changes nothing. Seconds become whole
nanoseconds here, once.
"""

from dataclasses import dataclass

import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution, Uniform
from tidings.model.scenario import Network
from tidings.scheduling import strategy
from tidings.scheduling._strategies import FIFO
from tidings.simulation._laws import encode_all
from tidings.simulation._layout import (
    BROKER,
    LINK,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    SUBSCRIPTION,
    Array,
)
from tidings.simulation._options import Options
from tidings.simulation._routes import Routes, plan_routes

__all__ = ["Plan", "plan"]

_LINK_LAWS, _BROKER_LAWS = 3, 2  # slowness, propagation, loss; service, processing
_DRAIN_MIN_S = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A run before it begins. The arrays of records hold its beginning; whoever runs it takes copies."""

    network: Network
    links: Array
    brokers: Array
    subscriptions: Array
    laws: Array
    law_rows: Array
    routes: Routes
    access_link: Array
    is_dropping: bool
    warmup_ns: int
    end_ns: int
    drained_ns: int


def plan(network: Network, options: Options) -> Plan:
    """Everything that a run needs to know; a ConfigurationError says what cannot be."""
    topology = network.topology
    link_count, broker_count, publisher_count = len(topology.links), len(topology.brokers), len(network.publishers)
    access = _access(network, options)
    homes = np.array([topology.index[network.homes[s.subscriber]] for s in network.subscriptions], np.int64)
    routes = plan_routes(network, options, access, homes)
    laws, rows = _laws(network, access)
    links = np.zeros(link_count + publisher_count, LINK)
    wanted = network.policies.scheduling
    chosen = strategy(wanted.name, r=wanted.r)
    for name in ("head", "tail", "sending"):
        links[name] = NOBODY
    links["source"][:link_count] = [topology.index[link.source] for link in topology.links]
    links["target"][:link_count] = [topology.index[link.target] for link in topology.links]
    links["source"][link_count:] = NOBODY
    links["target"][link_count:] = [topology.index[publisher.broker] for publisher in network.publishers]
    links["strategy"] = chosen.code
    links["weight"] = chosen.r
    links["quantile"] = chosen.quantile
    if options.access_scheduling == "fifo":
        links["strategy"][link_count:] = FIFO
    slowness = [link.slowness for link in topology.links] + list(access)
    links["is_free"] = [law is None or law.mean() == 0.0 for law in slowness]
    size_kb = _mean_size_kb(network)
    links["postponed_s"] = [0.0 if law is None else chosen.postponed_s(size_kb * law.mean()) for law in slowness]
    total = len(links)
    links["slowness"], links["propagation"] = np.arange(total), total + np.arange(total)
    links["loss"] = 2 * total + np.arange(total)
    links["loss_chance"][:link_count] = [link.loss for link in topology.links]
    brokers = np.zeros(broker_count, BROKER)
    for name in ("head", "tail", "serving"):
        brokers[name] = NOBODY
    brokers["has_service"] = [broker.service is not None for broker in topology.brokers]
    brokers["has_processing"] = [broker.processing is not None for broker in topology.brokers]
    is_per_subscription = [broker.service_per == "subscription" for broker in topology.brokers]
    brokers["table"] = np.where(is_per_subscription, routes.table, 1.0)
    brokers["service"] = _LINK_LAWS * total + np.arange(broker_count)
    brokers["processing"] = _LINK_LAWS * total + broker_count + np.arange(broker_count)
    subscriptions = np.zeros(len(network.subscriptions), SUBSCRIPTION)
    subscriptions["home"] = homes
    subscriptions["price"] = [subscription.price for subscription in network.subscriptions]
    subscriptions["allowed"] = [_deadline_ns(subscription.max_delay_s) for subscription in network.subscriptions]
    end_ns = _ns(network.duration_s)
    return Plan(
        network=network,
        links=links,
        brokers=brokers,
        subscriptions=subscriptions,
        laws=laws,
        law_rows=rows,
        routes=routes,
        access_link=np.arange(link_count, total, dtype=np.int64),
        is_dropping=network.policies.expired == "drop",
        warmup_ns=_ns(network.warmup_s),
        end_ns=end_ns,
        drained_ns=end_ns + _ns(_drain_s(network, options)),
    )


def _access(network: Network, options: Options) -> list[DelayDistribution | None]:
    if options.access_slowness is None:
        return [None] * len(network.publishers)
    if len(options.access_slowness) != len(network.publishers):
        raise ConfigurationError(
            f"access_slowness has {len(options.access_slowness)} laws for {len(network.publishers)} publishers: "
            "give one for each, in their order"
        )
    return list(options.access_slowness)


def _laws(network: Network, access: list[DelayDistribution | None]) -> tuple[Array, Array]:
    """All laws one after the other, in the order in which links and brokers number them; each has its own stream."""
    links, brokers = network.topology.links, network.topology.brokers
    free: list[DelayDistribution | None] = [None] * len(access)
    unit = Uniform(low=0.0, high=1.0)
    kinds: list[list[DelayDistribution | None]] = [
        [*(link.slowness for link in links), *access],
        [*(link.propagation for link in links), *free],
        [unit] * (len(links) + len(access)),
        [broker.service for broker in brokers],
        [broker.processing for broker in brokers],
    ]
    assert len(kinds) == _LINK_LAWS + _BROKER_LAWS
    return encode_all(kinds, network.seed)


def _mean_size_kb(network: Network) -> float:
    """Of all events: what paper C's FT is made of."""
    rates = [publisher.rate_per_s for publisher in network.publishers]
    sizes = [publisher.rate_per_s * publisher.size_kb.mean() for publisher in network.publishers]
    return sum(sizes) / sum(rates) if rates else 0.0


def _drain_s(network: Network, options: Options) -> float:
    if options.drain_s is not None:
        return options.drain_s
    longest_s = max((s.max_delay_s for s in network.subscriptions if s.max_delay_s is not None), default=0.0)
    lifetimes = [p.lifetime.quantile(0.999999) for p in network.publishers if p.lifetime is not None]
    return max(network.duration_s, longest_s, _DRAIN_MIN_S, *lifetimes)


def _ns(seconds: float) -> int:
    whole = round(seconds * NANOSECONDS)
    if whole >= NEVER_NS // 4:
        raise ConfigurationError(f"{seconds:g} s is longer than a run can be; write at most 30 years")
    return whole


def _deadline_ns(seconds: float | None) -> int:
    return NEVER_NS if seconds is None or seconds > 1e9 else max(1, round(seconds * NANOSECONDS))
