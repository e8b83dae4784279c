"""A scenario with every choice made: the topology, the clients and what they do, the policies."""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.failures import Failures
from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.policies import DEFAULT_RELOCATION
from tidings.model.scenario._by_content import ByContent
from tidings.model.scenario._components import joint_components
from tidings.model.scenario._content import AttributeValue, Content
from tidings.model.scenario._day import Day
from tidings.model.scenario._schema import Policies
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link, Topology
from tidings.model.units import format_quantity

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from tidings.model.distributions import DelayDistribution
    from tidings.model.filters import Filter

__all__ = ["Access", "Churn", "Network", "Publisher", "Subscriber"]

NetworkRows = Literal["subscribers", "publishers", "brokers", "links"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The link between a client and its broker: slowness in s/kB (None: it has no queue), propagation in s, loss."""

    slowness: "DelayDistribution | None" = None
    propagation: "DelayDistribution | None" = None
    loss: float = 0.0


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher at its home broker: `interval` and `lifetime` in seconds, `size_kb` in kB, content by attribute.

    Where lifetime or size depend on content, `lifetime_by` and `size_by` say how, and the other two are the mixtures.
    Without `access` an event is at the broker as soon as it is published.
    """

    name: str
    group: str
    broker: str
    interval: "DelayDistribution"
    lifetime: "DelayDistribution | None"
    size_kb: "DelayDistribution"
    advertisement: "Filter | None"
    attributes: dict[str, Content]
    lifetime_by: ByContent | None = None
    size_by: ByContent | None = None
    day: Day | None = None
    access: Access | None = None

    @property
    def rate_per_s(self) -> float:
        """Events per second in the long run."""
        return 1.0 / self.interval.mean()

    def sample_attributes(self, generator: "np.random.Generator", count: int) -> list[dict[str, AttributeValue]]:
        """The attributes of `count` independent events."""
        columns = {name: content.sample(generator, count) for name, content in self.attributes.items()}
        return [{name: column[number] for name, column in columns.items()} for number in range(count)]


class Churn(msgspec.Struct, frozen=True, kw_only=True):
    """How long a subscriber stays, and how long it is then away, in seconds."""

    stay: "DelayDistribution"
    away: "DelayDistribution"


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """A subscriber at its home broker, always unless it has a `churn`; its subscriptions name it.

    Without `access` it has an event as soon as its broker delivers it.
    """

    name: str
    group: str
    broker: str
    churn: Churn | None = None
    access: Access | None = None


class Network(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a scenario and a seed describe; equal scenarios and seeds give equal networks, byte for byte.

    `broker_failures` and `link_failures` say how each broker and each directed link fails (None: never), in the order
    of the topology; left out, nothing fails. Links with the same number in `link_components` fail together; left out,
    those are the two directions of each pair.
    """

    title: str
    seed: int
    duration_s: float
    warmup_s: float
    topology: Topology
    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]
    subscriptions: tuple[Subscription, ...]
    policies: Policies
    broker_failures: tuple[Failures | None, ...] = ()
    link_failures: tuple[Failures | None, ...] = ()
    link_components: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        brokers, links = len(self.topology.brokers), len(self.topology.links)
        set_field = msgspec.structs.force_setattr
        if not self.broker_failures:
            set_field(self, "broker_failures", (None,) * brokers)
        if not self.link_failures:
            set_field(self, "link_failures", (None,) * links)
        if not self.link_components:
            set_field(self, "link_components", joint_components(self.topology))
        for name, count in (("broker_failures", brokers), ("link_failures", links), ("link_components", links)):
            if len(getattr(self, name)) != count:
                raise ConfigurationError(
                    f"{name} has {len(getattr(self, name))} entries for {count} {name.partition('_')[0]}s: "
                    "give one for each, in the order of the topology, or none at all"
                )
        together: dict[int, Failures | None] = {}
        for component, failures in zip(self.link_components, self.link_failures, strict=True):
            if together.setdefault(component, failures) != failures:
                raise ConfigurationError(
                    f"the links of component {component} fail together, but have different failures: "
                    "give them the same, or different components"
                )

    @property
    def has_failures(self) -> bool:
        """Whether any broker or link ever fails."""
        return any(each is not None for each in (*self.broker_failures, *self.link_failures))

    @cached_property
    def homes(self) -> Mapping[str, str]:
        """The home broker of every client, by the client's name."""
        clients: tuple[Publisher | Subscriber, ...] = (*self.publishers, *self.subscribers)
        return MappingProxyType({client.name: client.broker for client in clients})

    @cached_property
    def with_access_brokers(self) -> "Network":
        """The same network where every subscriber with an access link has a broker of its own at the end of it.

        So whatever holds for links holds for access links: queues, strategies, paths. These brokers come last, are
        named after their subscribers, take no time and never fail. There are links back where acknowledgements or
        publishers need them.
        """
        from tidings.model.distributions import Deterministic

        distant = [subscriber for subscriber in self.subscribers if subscriber.access is not None]
        if not distant:
            return self
        is_two_way = self.has_failures or self.policies.relocation.name != DEFAULT_RELOCATION
        taken = self.topology.index.keys()
        brokers, links, moved = [], [], {}
        for subscriber in distant:
            access = subscriber.access
            assert access is not None
            own = f"{subscriber.name} (subscriber)" if subscriber.name in taken else subscriber.name
            brokers.append(Broker(name=own))
            moved[subscriber.name] = msgspec.structs.replace(subscriber, broker=own, access=None)
            ends = [(subscriber.broker, own), (own, subscriber.broker)]
            links += [
                Link(
                    source=source,
                    target=target,
                    propagation=access.propagation or Deterministic(value=0.0),
                    slowness=access.slowness,
                    loss=access.loss,
                )
                for source, target in (ends if is_two_way else ends[:1])
            ]
        first = max(self.link_components, default=-1) + 1
        return msgspec.structs.replace(
            self,
            topology=Topology(
                brokers=(*self.topology.brokers, *brokers),
                links=(*self.topology.links, *links),
            ),
            subscribers=tuple(moved.get(subscriber.name, subscriber) for subscriber in self.subscribers),
            broker_failures=(*self.broker_failures, *(None for _ in brokers)),
            link_failures=(*self.link_failures, *(None for _ in links)),
            link_components=(*self.link_components, *(first + number for number in range(len(links)))),
        )

    def to_arrow(self, rows: "NetworkRows" = "subscribers") -> "pa.Table":
        """One row per subscription, publisher, broker or link."""
        return arrow_table(self._columns(rows))

    def to_pandas(self, rows: "NetworkRows" = "subscribers") -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns(rows))

    def _repr_html_(self) -> str:
        """The size of the network, its policies, and its subscriptions."""
        topology, policies = self.topology, self.policies
        facts = {
            "duration": f"{self.duration_s:g} s, of which {self.warmup_s:g} s are warm-up",
            "seed": f"{self.seed}",
            "overlay": f"{len(topology.brokers):,} brokers, {len(topology.links):,} links",
            "clients": f"{len(self.publishers):,} publishers, {len(self.subscribers):,} subscribers",
            "policies": f"{policies.scheduling.name}, {policies.routing}, {policies.faults.scheme}",
        }
        columns = self._columns("subscribers")
        deadlines = [_time(value) for value in columns["max_delay_s"].values]
        shown = [columns[name].values for name in ("subscription", "broker", "filter")]
        table = html_table(("subscription", "broker", "filter", "deadline"), zip(*shown, deadlines, strict=True))
        return html_page(self.title or "Network", html_table(("", ""), facts.items()), table)

    def _columns(self, rows: "NetworkRows") -> dict[str, Column]:
        match rows:
            case "subscribers":
                return self._subscriptions()
            case "publishers":
                publishers = self.publishers
                lifetimes = [None if each.lifetime is None else each.lifetime.mean() for each in publishers]
                return {
                    "publisher": Column("text", [each.name for each in publishers]),
                    "group": Column("text", [each.group for each in publishers]),
                    "broker": Column("text", [each.broker for each in publishers]),
                    "rate_per_s": Column("number", [each.rate_per_s for each in publishers]),
                    "mean_size_kb": Column("number", [each.size_kb.mean() for each in publishers]),
                    "mean_lifetime_s": Column("number", lifetimes),
                }
            case "brokers":
                brokers = self.topology.brokers
                services = [None if each.service is None else each.service.mean() for each in brokers]
                return {
                    "broker": Column("text", [each.name for each in brokers]),
                    "mean_service_s": Column("number", services),
                    "availability": Column("number", [_availability(each) for each in self.broker_failures]),
                }
            case "links":
                links = self.topology.links
                slowness = [None if each.slowness is None else each.slowness.mean() for each in links]
                return {
                    "source": Column("text", [each.source for each in links]),
                    "target": Column("text", [each.target for each in links]),
                    "mean_propagation_s": Column("number", [each.propagation.mean() for each in links]),
                    "mean_slowness_s_per_kb": Column("number", slowness),
                    "loss": Column("number", [each.loss for each in links]),
                    "availability": Column("number", [_availability(each) for each in self.link_failures]),
                }
        raise ConfigurationError(f"rows is {rows!r}; write one of {', '.join(get_args(NetworkRows))}")

    def _subscriptions(self) -> dict[str, Column]:
        groups = {subscriber.name: subscriber.group for subscriber in self.subscribers}
        subscriptions = self.subscriptions
        return {
            "subscription": Column("text", [each.id for each in subscriptions]),
            "subscriber": Column("text", [each.subscriber for each in subscriptions]),
            "group": Column("text", [groups.get(each.subscriber) for each in subscriptions]),
            "broker": Column("text", [self.homes[each.subscriber] for each in subscriptions]),
            "filter": Column("text", [str(each.filter) for each in subscriptions]),
            "max_delay_s": Column("number", [each.max_delay_s for each in subscriptions]),
            "price": Column("number", [each.price for each in subscriptions]),
        }

    def to_bytes(self) -> bytes:
        """The whole network as one JSON document, the same bytes for the same scenario and seed."""
        return msgspec.json.encode(self, enc_hook=_encode)


def _availability(failures: Failures | None) -> float:
    return 1.0 if failures is None else failures.availability


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else format_quantity(seconds, "time")


def _encode(value: Any) -> Any:
    from tidings.model.filters import Filter

    if isinstance(value, Filter):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
