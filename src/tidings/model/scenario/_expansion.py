"""From the document and a seed to the network: every random choice of a scenario is made here."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidings.model.documents import Place, suggestion
from tidings.model.scenario._by_content import ByContent, ByContentTemplate
from tidings.model.scenario._components import build_broker_failures, build_link_failures
from tidings.model.scenario._content import (
    AttributeValue,
    Choice,
    Constant,
    Content,
    NumericTemplate,
    ParameterReference,
)
from tidings.model.scenario._day import Day
from tidings.model.scenario._distributions import DistributionTemplate
from tidings.model.scenario._network import Access, Churn, Network, Publisher, Subscriber
from tidings.model.scenario._paths import unserved
from tidings.model.scenario._placement import place_clients
from tidings.model.scenario._schema import AccessWritten, DayWritten, Document, PublisherGroup, SubscriberGroup
from tidings.model.scenario._shape import build_topology
from tidings.model.scenario._streams import Streams
from tidings.model.scenario._templates import BUILT_IN, FilterTemplate, check_parameters_are_used
from tidings.model.subscription import Subscription
from tidings.model.topology import Topology

if TYPE_CHECKING:
    import numpy as np

    from tidings.model.distributions import DelayDistribution

__all__ = ["expand"]

DEFAULT_SIZE_KB = 1.0

Written = Constant | Choice | NumericTemplate | ParameterReference


def expand(document: Document, place: Place, seed: int) -> Network:
    """The network that the document describes under this seed; a ScenarioError at the key that is wrong."""
    streams = Streams(seed)
    topology = build_topology(document, place, streams)
    publishers: list[Publisher] = []
    subscribers: list[Subscriber] = []
    subscriptions: list[Subscription] = []
    taken: dict[str, str] = {}
    for number, publisher_group in enumerate(document.publishers):
        here = place / "publishers" / number
        group = _Clients(publisher_group, topology, here, streams.stream("publishers", publisher_group.name), taken)
        publishers += _publishers(publisher_group, group, here)
    reached = _reached(topology, publishers)
    for number, subscriber_group in enumerate(document.subscribers):
        here = place / "subscribers" / number
        group = _Clients(subscriber_group, topology, here, streams.stream("subscribers", subscriber_group.name), taken)
        group.check_reached(reached)
        churns = _churns(subscriber_group, group)
        subscriptions += _subscriptions(subscriber_group, group, here)
        columns = (group.names, group.brokers, churns, _access(subscriber_group.access, group))
        subscribers += [
            Subscriber(name=name, group=subscriber_group.name, broker=broker, churn=churn, access=access)
            for name, broker, churn, access in zip(*columns, strict=True)
        ]
    link_failures, link_components = build_link_failures(document, topology, place, streams)
    network = Network(
        title=document.title,
        seed=seed,
        duration_s=document.duration_s,
        warmup_s=document.warmup_s,
        topology=topology,
        publishers=tuple(publishers),
        subscribers=tuple(subscribers),
        subscriptions=tuple(subscriptions),
        policies=document.policies,
        broker_failures=build_broker_failures(document, topology, place, streams),
        link_failures=link_failures,
        link_components=link_components,
    )
    problem = unserved(network)
    if problem is not None:
        (place / "policies" / "routing").fail(problem)
    return network


class _Clients:
    """The clients of one group: their names, their brokers, and what each drew for the parameters."""

    def __init__(
        self,
        written: PublisherGroup | SubscriberGroup,
        topology: Topology,
        place: Place,
        generator: "np.random.Generator",
        taken: dict[str, str],
    ) -> None:
        self.place = place
        self.generator = generator
        self.brokers = place_clients(written, topology, place, generator)
        alone = len(self.brokers) == 1 and written.per_broker is None
        self.names = [written.name] if alone else [f"{written.name}-{n + 1}" for n in range(len(self.brokers))]
        for name in self.names:
            if name in taken:
                (place / "name").fail(f"client {name!r} is already in {taken[name]}; give the group another name")
            taken[name] = place.key
        self._parameters = self._drawn(written.parameters)

    def __len__(self) -> int:
        return len(self.brokers)

    def parameters(self, number: int) -> dict[str, AttributeValue]:
        """The values that a template of this client may refer to."""
        values = {name: column[number] for name, column in self._parameters.items()}
        return values | {"number": number + 1, "name": self.names[number], "broker": self.brokers[number]}

    def made(self, template: DistributionTemplate, key: str) -> "Sequence[DelayDistribution]":
        """The distribution of each client; one shared value where no parameter is drawn."""
        if not template.drawn:
            return [template.make(self.generator, self.place / key)] * len(self)
        return [template.make(self.generator, self.place / key) for _ in range(len(self))]

    def check_reached(self, reached: frozenset[str] | None) -> None:
        """A subscriber that no event can reach is an error in `at` or in the direction of the links."""
        for broker in self.brokers:
            if reached is not None and broker not in reached:
                (self.place / "at").fail(
                    f"no publisher can reach broker {broker!r} along the links; "
                    'move the subscribers, or write direction = "both" in [topology]'
                )

    def _drawn(self, written: Mapping[str, Written]) -> dict[str, list[AttributeValue]]:
        columns: dict[str, list[AttributeValue]] = {}
        for name, content in written.items():
            here = self.place / "parameters" / name
            assert not isinstance(content, ParameterReference), "the document is checked before it is expanded"
            if not isinstance(content, NumericTemplate):
                columns[name] = content.sample(self.generator, len(self))
            elif content.is_same_for_all:
                columns[name] = content.make(self.generator, {}, here).sample(self.generator, len(self))
            else:
                rows = ({key: column[number] for key, column in columns.items()} for number in range(len(self)))
                each = [content.make(self.generator, row, here) for row in rows]
                columns[name] = [one.sample(self.generator, 1)[0] for one in each]
        return columns


def _publishers(written: PublisherGroup, clients: _Clients, place: Place) -> list[Publisher]:
    from tidings.model.distributions import Deterministic

    advertisement = _template(written.advertisement, written, place / "advertisement")
    used = advertisement.used if advertisement else set()
    referred = {c.name for c in written.attributes.values() if isinstance(c, ParameterReference)}
    added = _added(written.attributes) | _added(written.parameters)
    check_parameters_are_used(written.parameters, used | referred | added, place / "parameters")
    intervals = _intervals(written, clients)
    usual = Deterministic(value=DEFAULT_SIZE_KB)
    lifetimes, sizes = (
        _plain_distributions(written.lifetime, clients, "lifetime"),
        _plain_distributions(written.size_kb, clients, "size"),
    )
    access = _access(written.access, clients)
    publishers = []
    for number, name in enumerate(clients.names):
        values = clients.parameters(number)
        contents = _contents(written, values, clients, place / "attributes")
        lifetime_by, lifetime = _by_content(written.lifetime, contents, clients, place / "lifetime")
        size_by, size_kb = _by_content(written.size_kb, contents, clients, place / "size")
        publishers.append(
            Publisher(
                name=name,
                group=written.name,
                broker=clients.brokers[number],
                interval=intervals[number],
                lifetime=lifetime or lifetimes[number],
                size_kb=size_kb or sizes[number] or usual,
                advertisement=advertisement.fill(values) if advertisement else None,
                attributes=contents,
                lifetime_by=lifetime_by,
                size_by=size_by,
                day=_day(written.day),
                access=access[number],
            )
        )
    return publishers


def _access(written: AccessWritten | None, clients: _Clients) -> list[Access | None]:
    """The access link of each client."""
    from tidings.model.distributions import Deterministic

    if written is None:
        return [None] * len(clients)
    distributions: dict[str, Sequence[DelayDistribution | None]] = {
        name: _plain_distributions(getattr(written, name), clients, f"access.{name}")
        for name in ("slowness", "propagation")
    }
    if written.bandwidth_kb_per_s is not None:
        distributions["slowness"] = [Deterministic(value=1.0 / written.bandwidth_kb_per_s)] * len(clients)
    pairs = zip(distributions["slowness"], distributions["propagation"], strict=True)
    return [Access(slowness=slowness, propagation=propagation, loss=written.loss) for slowness, propagation in pairs]


def _plain_distributions(
    written: DistributionTemplate | ByContentTemplate | None, clients: _Clients, key: str
) -> "Sequence[DelayDistribution | None]":
    """The distribution of each client, unless it depends on content or there is none."""
    return clients.made(written, key) if isinstance(written, DistributionTemplate) else [None] * len(clients)


def _by_content(
    written: DistributionTemplate | ByContentTemplate | None,
    contents: Mapping[str, Content],
    clients: _Clients,
    place: Place,
) -> "tuple[ByContent | None, DelayDistribution | None]":
    """The distributions of one client that depend on content, and their mixture."""
    return written.make(clients.generator, contents, place) if isinstance(written, ByContentTemplate) else (None, None)


def _day(written: DayWritten | None) -> Day | None:
    if written is None:
        return None
    mean = sum(written.factors) / len(written.factors)
    return Day(factors=tuple(factor / mean for factor in written.factors), period_s=written.period_s)


def _intervals(written: PublisherGroup, clients: _Clients) -> "Sequence[DelayDistribution]":
    from tidings.model.distributions import Exponential

    if written.rate_per_s is None:
        assert written.interval is not None, "the document is checked before it is expanded"
        distributions = clients.made(written.interval, "interval")
        if not all(distribution.mean() > 0 for distribution in distributions):
            (clients.place / "interval").fail("the mean interval must be above 0")
        return distributions
    rates = written.rate_per_s.draw(clients.generator, len(clients), clients.place / "rate")
    if not all(rate > 0 for rate in rates):
        (clients.place / "rate").fail("a rate of 0 was drawn; choose a distribution that stays above 0")
    return [Exponential(scale=1.0 / rate) for rate in rates]


def _contents(
    written: PublisherGroup, values: Mapping[str, AttributeValue], clients: _Clients, place: Place
) -> dict[str, Content]:
    contents: dict[str, Content] = {}
    for name, content in written.attributes.items():
        if isinstance(content, ParameterReference):
            if content.name not in values:
                known = [*written.parameters, *BUILT_IN]
                hint = suggestion(content.name, known, otherwise="known here are")
                (place / name).fail(f"there is no parameter `{content.name}`; {hint}")
            contents[name] = Constant(value=values[content.name])
        else:
            contents[name] = (
                content.make(clients.generator, values, place / name)
                if isinstance(content, NumericTemplate)
                else content
            )
    return contents


def _churns(written: SubscriberGroup, clients: _Clients) -> list[Churn | None]:
    if written.churn is None:
        return [None] * len(clients)
    stays = clients.made(written.churn.stay, "churn.stay")
    aways = clients.made(written.churn.away, "churn.away")
    if not all(distribution.mean() > 0 for distribution in (*stays, *aways)):
        (clients.place / "churn").fail("a mean of 0; give distributions of `stay` and `away` with a mean above 0")
    return [Churn(stay=stay, away=away) for stay, away in zip(stays, aways, strict=True)]


def _subscriptions(written: SubscriberGroup, clients: _Clients, place: Place) -> list[Subscription]:
    template = _template(written.filter, written, place / "filter")
    assert template is not None
    check_parameters_are_used(written.parameters, template.used | _added(written.parameters), place / "parameters")
    delays_s, prices = _deadlines(written, clients)
    if any(delay_s == 0 for delay_s in delays_s):
        (place / "max_delay").fail("a deadline of 0 was drawn; choose a distribution that stays above 0")
    return [
        Subscription(
            id=name,
            subscriber=name,
            filter=template.fill(clients.parameters(number)),
            max_delay_s=delays_s[number],
            price=prices[number],
        )
        for number, name in enumerate(clients.names)
    ]


def _deadlines(written: SubscriberGroup, clients: _Clients) -> tuple[Sequence[float | None], Sequence[float]]:
    count, generator = len(clients), clients.generator
    if isinstance(written.max_delay, tuple):
        total = sum(choice.weight for choice in written.max_delay)
        offers = Choice(
            values=tuple(range(len(written.max_delay))),
            probabilities=tuple(choice.weight / total for choice in written.max_delay),
        )
        chosen = [written.max_delay[int(number)] for number in offers.sample(generator, count)]
        return [choice.delay_s for choice in chosen], [choice.price for choice in chosen]
    delays_s: Sequence[float | None] = [None] * count
    if written.max_delay is not None:
        delays_s = written.max_delay.draw(generator, count, clients.place / "max_delay")
    if written.price is None:
        return delays_s, [1.0] * count
    return delays_s, written.price.draw(generator, count, clients.place / "price")


def _added(contents: Mapping[str, Written]) -> set[str]:
    return {content.plus for content in contents.values() if isinstance(content, NumericTemplate) and content.plus}


def _template(text: str | None, written: PublisherGroup | SubscriberGroup, place: Place) -> FilterTemplate | None:
    return None if text is None else FilterTemplate(text, written.parameters, place)


def _reached(topology: Topology, publishers: Sequence[Publisher]) -> frozenset[str] | None:
    """The brokers that events of some publisher can reach; None without publishers."""
    if not publishers:
        return None
    reached: set[str] = set()
    for broker in {publisher.broker: None for publisher in publishers}:
        if broker not in reached:
            reached |= topology.reachable(broker)
    return frozenset(reached)
