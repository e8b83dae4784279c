"""Changes to a network as values, and their application.

Each change fills one slot (the strategy of all links, the place of one publisher, the speed of one broker). A set has
at most one change per slot, so their order does not matter. A link becomes faster in both directions, as lines are
sold; its propagation delay stays the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from tidings.errors import ConfigurationError
from tidings.model.distributions import scaled
from tidings.model.policies import Scheme, StrategyName, policy
from tidings.model.scenario import Network, Publisher, Scheduling
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link, Topology

__all__ = [
    "CHANGES_WRITTEN",
    "KINDS",
    "AllowLonger",
    "Change",
    "Kind",
    "LiveLonger",
    "MovePublisher",
    "SpeedUpBroker",
    "SpeedUpLink",
    "UseOrdering",
    "UseScheme",
    "UseStrategy",
    "apply",
    "parse_change",
]

Kind = Literal["scheduling", "scheme", "ordering", "move", "capacity", "lifetime"]
KINDS: tuple[Kind, ...] = ("scheduling", "scheme", "move", "capacity", "lifetime")
"""The kinds of change in a plan. Ordering is not among them: it is for receivers that need it, and speeds up
nothing."""

Slot = tuple[str, ...]


class _Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="change"):
    pass


class UseStrategy(_Change, frozen=True, kw_only=True, tag="scheduling"):
    """All links use this strategy; `r` is the weight of EB, only for "ebpc"."""

    strategy: StrategyName
    r: float | None = None

    kind = "scheduling"

    @property
    def slot(self) -> Slot:
        return ("scheduling",)

    @property
    def words(self) -> str:
        return f'use the strategy "{self.strategy}" on all links' + ("" if self.r is None else f" with r = {self.r:g}")


class UseScheme(_Change, frozen=True, kw_only=True, tag="scheme"):
    """Brokers handle failures by this scheme."""

    scheme: Scheme

    kind = "scheme"

    @property
    def slot(self) -> Slot:
        return ("scheme",)

    @property
    def words(self) -> str:
        return f'handle failures by "{self.scheme}"'


class UseOrdering(_Change, frozen=True, kw_only=True, tag="ordering"):
    """Receivers order events by this policy."""

    policy: str

    kind = "ordering"

    @property
    def slot(self) -> Slot:
        return ("ordering",)

    @property
    def words(self) -> str:
        return f'order events at the receivers by "{self.policy}"'


class MovePublisher(_Change, frozen=True, kw_only=True, tag="move"):
    """The publisher becomes a client of another broker."""

    publisher: str
    broker: str

    kind = "move"

    @property
    def slot(self) -> Slot:
        return ("publisher", self.publisher)

    @property
    def words(self) -> str:
        return f"move publisher {self.publisher} to {self.broker}"


class SpeedUpBroker(_Change, frozen=True, kw_only=True, tag="broker-capacity"):
    """The broker serves `factor` times as many events in the same time."""

    broker: str
    factor: float

    kind = "capacity"

    @property
    def slot(self) -> Slot:
        return ("broker", self.broker)

    @property
    def words(self) -> str:
        return f"make broker {self.broker} {self.factor:g} times as fast"


class SpeedUpLink(_Change, frozen=True, kw_only=True, tag="link-capacity"):
    """The line between two brokers has `factor` times the bandwidth in both directions."""

    source: str
    target: str
    factor: float

    kind = "capacity"

    @property
    def slot(self) -> Slot:
        return ("link", *sorted((self.source, self.target)))

    @property
    def words(self) -> str:
        return f"give {self.source} - {self.target} {self.factor:g} times the bandwidth"


class AllowLonger(_Change, frozen=True, kw_only=True, tag="deadline"):
    """The subscriber accepts `factor` times the delay."""

    subscription: str
    factor: float

    kind = "lifetime"

    @property
    def slot(self) -> Slot:
        return ("subscription", self.subscription)

    @property
    def words(self) -> str:
        return f"extend the deadline of subscriber {self.subscription} to {self.factor:g} times"


class LiveLonger(_Change, frozen=True, kw_only=True, tag="lifetime"):
    """The publisher's events stay useful for `factor` times as long."""

    publisher: str
    factor: float

    kind = "lifetime"

    @property
    def slot(self) -> Slot:
        return ("lifetime", self.publisher)

    @property
    def words(self) -> str:
        return f"extend the lifetime of events of publisher {self.publisher} to {self.factor:g} times"


Change = UseStrategy | UseScheme | UseOrdering | MovePublisher | SpeedUpBroker | SpeedUpLink | AllowLonger | LiveLonger


CHANGES_WRITTEN: tuple[tuple[str, str], ...] = (
    ("strategy=NAME", "all links use this strategy"),
    ("scheme=NAME", "brokers handle failures by this scheme"),
    ("ordering=POLICY", "receivers order events by this policy"),
    ("move:PUBLISHER=BROKER", "the publisher becomes a client of this broker"),
    ("broker:NAME=2", "the broker is twice as fast"),
    ("link:ONE,OTHER=1.5", "the line has 1.5 times the bandwidth in both directions"),
    ("deadline:SUBSCRIBER=2", "the subscriber's deadline is twice as long"),
    ("lifetime:PUBLISHER=2", "the lifetime of the publisher's events is twice as long"),
)
"""How a change is written in one word, and its effect."""


def parse_change(text: str) -> Change:
    """The change from its written form (CHANGES_WRITTEN); a ConfigurationError lists the valid forms."""
    key, equals, value = (part.strip() for part in text.partition("="))
    kind, _, place = (part.strip() for part in key.partition(":"))
    try:
        match kind if equals and value else None:
            case "strategy" if not place:
                return UseStrategy(strategy=policy("strategy", value).name)  # type: ignore[arg-type]
            case "scheme" if not place:
                return UseScheme(scheme=policy("scheme", value).name)  # type: ignore[arg-type]
            case "ordering" if not place:
                return UseOrdering(policy=value)
            case "move" if place:
                return MovePublisher(publisher=place, broker=value)
            case "broker" if place:
                return SpeedUpBroker(broker=place, factor=float(value))
            case "link" if place.count(",") == 1:
                source, target = (end.strip() for end in place.split(","))
                return SpeedUpLink(source=source, target=target, factor=float(value))
            case "deadline" if place:
                return AllowLonger(subscription=place, factor=float(value))
            case "lifetime" if place:
                return LiveLonger(publisher=place, factor=float(value))
            case _:
                forms = ", ".join(form for form, _ in CHANGES_WRITTEN)
                raise ConfigurationError(f"change {text!r}: write one of {forms}")
    except KeyError as error:
        raise ConfigurationError(f"change {text!r}: {error.args[0]}") from None
    except ValueError:
        raise ConfigurationError(f"change {text!r}: {value!r} is not a number; write a factor, such as 2") from None


def apply(network: Network, changes: Iterable[Change]) -> Network:
    """The network with all of the changes; a ConfigurationError names a part it does not have or a duplicate change."""
    taken: set[Slot] = set()
    for change in changes:
        if change.slot in taken:
            raise ConfigurationError(f"two changes of {' '.join(change.slot)}: keep one of them")
        taken.add(change.slot)
        network = _applied(network, change)
    return network


def _applied(network: Network, change: Change) -> Network:
    replace, policies = msgspec.structs.replace, network.policies
    match change:
        case UseStrategy():
            wanted = Scheduling(name=change.strategy, r=change.r)
            return replace(network, policies=replace(policies, scheduling=wanted))
        case UseScheme():
            faults = replace(policies.faults, scheme=change.scheme)
            if not faults.is_buffering:
                faults = replace(faults, ack="late", queues="durable")
            return replace(network, policies=replace(policies, faults=faults))
        case UseOrdering():
            return replace(network, policies=replace(policies, ordering=change.policy))
        case MovePublisher():
            _known(change.broker, network.topology.index, "broker")
            return _with_publisher(network, change.publisher, lambda one: replace(one, broker=change.broker))
        case LiveLonger():
            return _with_publisher(network, change.publisher, lambda one: _longer_lived(one, change.factor))
        case AllowLonger():
            return _with_longer_deadline(network, change)
        case SpeedUpBroker() | SpeedUpLink():
            return replace(network, topology=_faster(network.topology, change))


def _faster(topology: Topology, change: SpeedUpBroker | SpeedUpLink) -> Topology:
    _check_factor(change.factor, change.words)
    if isinstance(change, SpeedUpBroker):
        _known(change.broker, topology.index, "broker")

        def serve(broker: Broker) -> Broker:
            if broker.name != change.broker or broker.service is None:
                return broker
            return msgspec.structs.replace(broker, service=scaled(broker.service, 1.0 / change.factor))

        return topology.map(brokers=serve)
    ends = {change.source, change.target}
    if not (topology.has_link(change.source, change.target) or topology.has_link(change.target, change.source)):
        raise ConfigurationError(
            f"there is no link between {change.source!r} and {change.target!r}; name two linked brokers"
        )

    def carry(link: Link) -> Link:
        if {link.source, link.target} != ends or link.slowness is None:
            return link
        return msgspec.structs.replace(link, slowness=scaled(link.slowness, 1.0 / change.factor))

    return topology.map(links=carry)


def _with_publisher(network: Network, name: str, change: Callable[[Publisher], Publisher]) -> Network:
    _known(name, [publisher.name for publisher in network.publishers], "publisher")
    publishers = tuple(change(one) if one.name == name else one for one in network.publishers)
    return msgspec.structs.replace(network, publishers=publishers)


def _longer_lived(publisher: Publisher, factor: float) -> Publisher:
    _check_factor(factor, f"lifetime of publisher {publisher.name!r}")
    if publisher.lifetime is None:
        raise ConfigurationError(
            f"events of publisher {publisher.name!r} have no lifetime to extend; remove this change"
        )
    return msgspec.structs.replace(publisher, lifetime=scaled(publisher.lifetime, factor))


def _with_longer_deadline(network: Network, change: AllowLonger) -> Network:
    _check_factor(change.factor, change.words)
    _known(change.subscription, [each.id for each in network.subscriptions], "subscription")

    def relaxed(each: Subscription) -> Subscription:
        if each.id != change.subscription:
            return each
        if each.max_delay_s is None:
            raise ConfigurationError(f"subscription {each.id!r} has no deadline to extend; remove this change")
        return msgspec.structs.replace(each, max_delay_s=each.max_delay_s * change.factor)

    return msgspec.structs.replace(network, subscriptions=tuple(relaxed(each) for each in network.subscriptions))


def _check_factor(factor: float, what: str) -> None:
    if not 1.0 <= factor < 1e9:
        raise ConfigurationError(f"{what}: the factor must be 1 or more, not {factor!r}")


def _known(name: str, names: Iterable[str], what: str) -> None:
    held: Sequence[str] = list(names)
    if name not in held:
        import difflib

        close = difflib.get_close_matches(name, held, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {len(held)} others"
        raise ConfigurationError(f"there is no {what} {name!r}; {hint}")
