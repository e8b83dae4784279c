"""The scenario document: what may be written in the TOML file, section by section (docs/reference/scenarios.md).

Keys are the names in TOML; attributes that hold a quantity carry its base unit (`duration` is `duration_s`). `checks`
yields errors that types cannot express: (key, message) pairs of values that contradict each other. `EXAMPLES` are shown
by the error about a missing key.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, field

from tidings.model.documents import Place, Quantity
from tidings.model.policies import (
    DEFAULT_RELOCATION,
    DEFAULT_ROUTING,
    DEFAULT_STRATEGY,
    NO_ORDERING,
    RELOCATION_EVENTS,
    RELOCATION_HYSTERESIS,
    RELOCATION_STAY_S,
    Relocation,
    Routing,
    StrategyName,
    listed,
)
from tidings.model.scenario._by_content import ByContentTemplate, WrittenByContent
from tidings.model.scenario._content import (
    Choice,
    Constant,
    NumericTemplate,
    ParameterReference,
    WrittenContent,
)
from tidings.model.scenario._distributions import DistributionTemplate, WrittenDistribution
from tidings.model.scenario._faults import Faults, FaultsShorthand, LinkFailuresWritten, NodeFailuresWritten
from tidings.model.scenario._templates import BUILT_IN

__all__ = [
    "AnyTopology",
    "BalancedTree",
    "BrokerDefaults",
    "BrokerOverride",
    "DelayChoice",
    "Document",
    "ExplicitTopology",
    "LayeredMesh",
    "LinkDefaults",
    "LinkOverride",
    "Policies",
    "PublisherGroup",
    "RandomGraph",
    "RandomTree",
    "Relocating",
    "Scheduling",
    "SubscriberGroup",
    "TopohubNetwork",
]

CLIENTS_MAX = 10_000_000

Problems = Iterator[tuple[str, str]]
Seconds = Annotated[float, Quantity("time")]
Kilometres = Annotated[float, Quantity("length")]
KilobytesPerSecond = Annotated[float, Quantity("bandwidth")]
TimeDistribution = Annotated[DistributionTemplate, WrittenDistribution("time", replays=True)]
PositiveTimeDistribution = Annotated[DistributionTemplate, WrittenDistribution("time", above_zero=True)]
RateDistribution = Annotated[DistributionTemplate, WrittenDistribution("rate", above_zero=True)]
SlownessDistribution = Annotated[DistributionTemplate, WrittenDistribution("slowness", replays=True)]
NumberDistribution = Annotated[DistributionTemplate, WrittenDistribution("number")]
Count = Annotated[int, Meta(ge=1, le=CLIENTS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
AttributeContent = Annotated[Constant | Choice | NumericTemplate | ParameterReference, WrittenContent()]
Selection = str | tuple[str, ...]


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def checks(self) -> Problems:
        yield from ()


class _Topology(_Written, frozen=True, kw_only=True, tag_field="kind"):
    pass


class ExplicitTopology(_Topology, frozen=True, kw_only=True, tag="explicit"):
    """Brokers and pairs of brokers, as listed; `direction` "forward" makes each pair one link instead of two."""

    brokers: Annotated[tuple[Name, ...], Meta(min_length=1)]
    links: tuple[Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2)], ...] = ()
    direction: Literal["both", "forward"] = "both"
    EXAMPLES: ClassVar = {"brokers": 'brokers = ["a", "b"]'}


class BalancedTree(_Topology, frozen=True, kw_only=True, tag="balanced-tree"):
    branching: Annotated[int, Meta(ge=1)]
    depth: Annotated[int, Meta(ge=0)]
    EXAMPLES: ClassVar = {"branching": "branching = 2", "depth": "depth = 5"}


class RandomTree(_Topology, frozen=True, kw_only=True, tag="random-tree"):
    brokers: Annotated[int, Meta(ge=1)]
    max_degree: Annotated[int, Meta(ge=2)] | None = None
    EXAMPLES: ClassVar = {"brokers": "brokers = 20"}


class RandomGraph(_Topology, frozen=True, kw_only=True, tag="random-graph"):
    brokers: Annotated[int, Meta(ge=1)]
    mean_degree: Annotated[float, Meta(ge=0)]
    EXAMPLES: ClassVar = {"brokers": "brokers = 20", "mean_degree": "mean_degree = 3"}


class LayeredMesh(_Topology, frozen=True, kw_only=True, tag="layered-mesh"):
    layers: tuple[Annotated[int, Meta(ge=1)], ...] = (4, 4, 8, 16)
    fan_in: tuple[Annotated[int, Meta(ge=1)] | Literal["all"], ...] = ("all", 2, 2)
    direction: Literal["downstream", "both"] = "downstream"


class TopohubNetwork(_Topology, frozen=True, kw_only=True, tag="topohub"):
    name: Name
    refractive_index: Annotated[float, Meta(ge=1)] | None = None
    EXAMPLES: ClassVar = {"name": 'name = "sndlib/germany50"'}


class _TopologyShorthand:
    """`topology = "topohub:sndlib/germany50"` is short for the table with that kind and name."""

    def prepare(self, raw: Any, place: Place) -> Any:
        if not isinstance(raw, str):
            return raw
        kind, colon, name = raw.partition(":")
        if kind != "topohub" or not colon:
            place.fail(f'{raw!r} is not a topology; write "topohub:sndlib/germany50", or a table with a `kind`')
        return {"kind": kind, "name": name}


AnyTopology = ExplicitTopology | BalancedTree | RandomTree | RandomGraph | LayeredMesh | TopohubNetwork


class LinkDefaults(_Written, frozen=True, kw_only=True):
    """The behaviour of every link; parameters and a `loss` that are distributions are drawn once for each link."""

    propagation: TimeDistribution | None = None
    slowness: SlownessDistribution | None = None
    bandwidth_kb_per_s: KilobytesPerSecond | None = field(default=None, name="bandwidth")
    loss: NumberDistribution | None = None
    failures: LinkFailuresWritten | Literal["never"] | None = None

    def checks(self) -> Problems:
        if self.slowness is not None and self.bandwidth_kb_per_s is not None:
            yield "bandwidth", "both `slowness` and `bandwidth` are given; keep one of them"
        if self.loss is not None and not 0 <= self.loss.fixed.get("value", 0) < 1:
            yield (
                "loss",
                f"{self.loss.fixed['value']!r} is not possible: it must be a probability, 0 or more and below 1",
            )


class LinkOverride(LinkDefaults, frozen=True, kw_only=True):
    """The exceptions of one link; by default in both directions, where both exist."""

    source: Name
    target: Name
    direction: Literal["both", "forward"] = "both"
    length_km: Kilometres | None = field(default=None, name="length")
    EXAMPLES: ClassVar = {"source": 'source = "a"', "target": 'target = "b"'}

    def checks(self) -> Problems:
        yield from super().checks()
        if self.length_km is not None and self.propagation is not None:
            yield "length", "both `propagation` and `length` are given; keep one of them"


class BrokerDefaults(_Written, frozen=True, kw_only=True):
    """The behaviour of every broker: a server with a queue (`service`) and a delay without one (`processing`)."""

    service: TimeDistribution | None = None
    service_per: Literal["event", "subscription"] | None = None
    processing: TimeDistribution | None = None
    failures: NodeFailuresWritten | Literal["never"] | None = None


class BrokerOverride(BrokerDefaults, frozen=True, kw_only=True):
    name: Name
    position: Annotated[tuple[float, ...], Meta(min_length=2, max_length=2)] | None = None
    EXAMPLES: ClassVar = {"name": 'name = "a"'}


class _Group(_Written, frozen=True, kw_only=True):
    """Clients of one kind: `count` of them in all, or `per_broker` at each broker that `at` selects."""

    name: Name
    at: Selection
    count: Count | None = None
    per_broker: Count | None = None
    parameters: dict[str, AttributeContent] = {}
    EXAMPLES: ClassVar = {"name": 'name = "traders"', "at": 'at = "random"', "filter": 'filter = "price > 20"'}

    def checks(self) -> Problems:
        if self.count is not None and self.per_broker is not None:
            yield "per_broker", "both `count` and `per_broker` are given; keep one of them"
        for name, content in self.parameters.items():
            if name in BUILT_IN:
                yield f"parameters.{name}", f"`{name}` is predefined; give your own parameter another name"
            if isinstance(content, ParameterReference):
                yield (
                    f"parameters.{name}",
                    "a parameter cannot refer to a parameter; write `values`, `range` or `distribution`",
                )


class DayWritten(_Written, frozen=True, kw_only=True):
    """How the rate changes over a period: factors of its equal parts."""

    factors: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=2, max_length=10_000)]
    period_s: Seconds = field(default=86_400.0, name="period")
    EXAMPLES: ClassVar = {"factors": "factors = [0.2, 1.0, 2.0, 0.8]"}

    def checks(self) -> Problems:
        if sum(self.factors) <= 0:
            yield "factors", "all factors are 0: nothing would ever be published; give at least one above 0"


class AccessWritten(_Written, frozen=True, kw_only=True):
    """The link between a client and its broker; without slowness it has no queue."""

    propagation: TimeDistribution | None = None
    slowness: SlownessDistribution | None = None
    bandwidth_kb_per_s: KilobytesPerSecond | None = field(default=None, name="bandwidth")
    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    def checks(self) -> Problems:
        if self.slowness is not None and self.bandwidth_kb_per_s is not None:
            yield "bandwidth", "both `slowness` and `bandwidth` are given; keep one of them"


def _inner_checks(name: str, written: DayWritten | AccessWritten | None) -> Problems:
    """What is wrong with a table within a group."""
    if written is not None:
        yield from ((f"{name}.{key}", message) for key, message in written.checks())


class PublisherGroup(_Group, frozen=True, kw_only=True):
    rate_per_s: RateDistribution | None = field(default=None, name="rate")
    interval: PositiveTimeDistribution | None = None
    lifetime: Annotated[DistributionTemplate | ByContentTemplate, WrittenByContent("time", above_zero=True)] | None = (
        None
    )
    size_kb: Annotated[DistributionTemplate | ByContentTemplate, WrittenByContent("size")] | None = field(
        default=None, name="size"
    )
    day: DayWritten | None = None
    access: AccessWritten | None = None
    advertisement: str | None = None
    attributes: dict[str, AttributeContent] = {}

    def checks(self) -> Problems:
        yield from super().checks()
        if self.rate_per_s is None and self.interval is None:
            yield "", '`rate` or `interval` is missing; write rate = "15 /min" for Poisson publishing'
        if self.rate_per_s is not None and self.interval is not None:
            yield "interval", "both `rate` and `interval` are given; keep one of them"
        for name in ("day", "access"):
            yield from _inner_checks(name, getattr(self, name))


class DelayChoice(_Written, frozen=True, kw_only=True):
    """One possible deadline and its price; chosen in proportion to `weight`."""

    delay_s: Seconds = field(name="delay")
    price: Annotated[float, Meta(ge=0)] = 1.0
    weight: Annotated[float, Meta(ge=0)] = 1.0
    EXAMPLES: ClassVar = {"delay": 'delay = "10 s"'}


class _MaxDelay:
    def prepare(self, raw: Any, place: Place) -> Any:
        if isinstance(raw, list):
            if not raw:
                place.fail('give at least one choice, such as [{ delay = "10 s", price = 3 }]')
            return raw
        return WrittenDistribution("time", above_zero=True).prepare(raw, place)


class ChurnWritten(_Written, frozen=True, kw_only=True):
    """The times that subscribers are present and away, in turn."""

    stay: PositiveTimeDistribution
    away: PositiveTimeDistribution
    EXAMPLES: ClassVar = {"stay": 'stay = "2 h"', "away": 'away = { distribution = "exponential", mean = "30 min" }'}


class SubscriberGroup(_Group, frozen=True, kw_only=True):
    filter: str
    churn: ChurnWritten | None = None
    access: AccessWritten | None = None
    max_delay: Annotated[DistributionTemplate | tuple[DelayChoice, ...], _MaxDelay()] | None = None
    price: NumberDistribution | None = None
    late: Literal["drop", "later"] = "drop"

    def checks(self) -> Problems:
        yield from super().checks()
        yield from _inner_checks("access", self.access)
        if self.late != "drop":
            yield "late", "in scenarios what is late is dropped; leave this out, or give a longer `max_delay`"
        if isinstance(self.max_delay, tuple):
            if self.price is not None:
                yield "price", "the choices of `max_delay` have their own prices; leave this one out"
            if sum(choice.weight for choice in self.max_delay) <= 0:
                yield "max_delay", "all weights are 0; give at least one choice a weight"


class Scheduling(_Written, frozen=True, kw_only=True):
    """The strategy of links; `r` is the weight of EB, only for "ebpc" (docs/reference/policies.md)."""

    name: StrategyName = DEFAULT_STRATEGY
    r: Annotated[float, Meta(ge=0, le=1)] | None = None

    def checks(self) -> Problems:
        if self.name == "ebpc" and self.r is None:
            yield "", 'scheduling by "ebpc" needs `r`, the weight of EB from 0 to 1, such as r = 0.6'
        if self.name != "ebpc" and self.r is not None:
            yield "r", f'`r` belongs to "ebpc"; leave it out with "{self.name}"'


class _NameShorthand:
    def prepare(self, raw: Any, place: Place) -> Any:  # noqa: ARG002
        return {"name": raw} if isinstance(raw, str) else raw


class Relocating(_Written, frozen=True, kw_only=True):
    """Whether and when publishers move: after a number of events, for a least gain, and after a least stay.

    Written as a name, or as a table with the keys of `[relocation]` in a network file.
    """

    name: Relocation = DEFAULT_RELOCATION
    events: Annotated[int, Meta(ge=1, le=4_096)] = RELOCATION_EVENTS
    hysteresis: Annotated[float, Meta(ge=0, lt=1)] = RELOCATION_HYSTERESIS
    stay_s: Annotated[float, Quantity("time", above_zero=False)] = field(name="stay", default=RELOCATION_STAY_S)


class Policies(_Written, frozen=True, kw_only=True):
    scheduling: Annotated[Scheduling, _NameShorthand()] = Scheduling()
    routing: Routing = DEFAULT_ROUTING
    expired: Literal["drop", "forward"] = "drop"
    faults: Annotated[Faults, FaultsShorthand()] = Faults()
    ordering: str | None = None
    relocation: Annotated[Relocating, _NameShorthand()] = Relocating()
    ORDERINGS: ClassVar = re.compile(r"P-0?\.\d+-\d+|CST-\d+(\.\d+)?|Q-0?\.\d+|ours-record|ours-quantile")

    def __post_init__(self) -> None:
        if self.ordering == NO_ORDERING:
            msgspec.structs.force_setattr(self, "ordering", None)

    def checks(self) -> Problems:
        if self.ordering is not None and not self.ORDERINGS.fullmatch(self.ordering):
            yield (
                "ordering",
                f'{self.ordering!r} is not an ordering policy; write {listed("ordering")}, such as "P-0.05-25"',
            )
        if self.relocation.name != DEFAULT_RELOCATION and self.routing != DEFAULT_ROUTING:
            yield (
                "relocation",
                f'publishers move by "{self.relocation.name}", but "{self.routing}" routes are computed for fixed '
                f'publishers; write routing = "{DEFAULT_ROUTING}", or relocation = "off"',
            )


class Document(_Written, frozen=True, kw_only=True):
    title: str = ""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    duration_s: Seconds = field(name="duration")
    warmup_s: Annotated[float, Quantity("time", above_zero=False)] = field(default=0.0, name="warmup")
    topology: Annotated[AnyTopology, _TopologyShorthand()]
    links: LinkDefaults = LinkDefaults()
    link: tuple[LinkOverride, ...] = ()
    brokers: BrokerDefaults = BrokerDefaults()
    broker: tuple[BrokerOverride, ...] = ()
    publishers: tuple[PublisherGroup, ...] = ()
    subscribers: tuple[SubscriberGroup, ...] = ()
    policies: Policies = Policies()
    EXAMPLES: ClassVar = {"duration": 'duration = "10 min"', "topology": 'topology = "topohub:sndlib/germany50"'}

    def checks(self) -> Problems:
        if self.warmup_s >= self.duration_s:
            yield "warmup", "the warm-up must end before the run does: write a shorter warmup or a longer duration"
