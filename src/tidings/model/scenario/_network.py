"""A scenario with every choice made: the topology, the clients and what they do, the policies."""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.failures import Failures
from tidings.model.scenario._by_content import ByContent
from tidings.model.scenario._components import joint_components
from tidings.model.scenario._content import AttributeValue, Content
from tidings.model.scenario._day import Day
from tidings.model.scenario._schema import Policies
from tidings.model.subscription import Subscription
from tidings.model.topology import Topology

if TYPE_CHECKING:
    import numpy as np

    from tidings.model.distributions import DelayDistribution
    from tidings.model.filters import Filter

__all__ = ["Churn", "Network", "Publisher", "Subscriber"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The link from a publisher to its broker: slowness in s/kB (None: it has no queue), propagation in s, loss."""

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
    """A subscriber at its home broker, always unless it has a `churn`; its subscriptions name it."""

    name: str
    group: str
    broker: str
    churn: Churn | None = None


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

    def to_bytes(self) -> bytes:
        """The whole network as one JSON document, the same bytes for the same scenario and seed."""
        return msgspec.json.encode(self, enc_hook=_encode)


def _encode(value: Any) -> Any:
    from tidings.model.filters import Filter

    if isinstance(value, Filter):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
