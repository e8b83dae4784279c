"""The effects that a prediction leaves out, listed so that its figures are read correctly.

The model has first-in-first-out queues, one path from a publisher to a subscriber, and delivery on arrival. Everything
else in a scenario is listed here, with the components it concerns and what the figures assume instead.
`from_network` and `from_profiles` put the list into the knowledge; every prediction passes it on.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tidings.model.distributions import DelayDistribution, Replay
from tidings.model.policies import DEFAULT_RELOCATION, ONE_TREE
from tidings.model.scenario import Network

if TYPE_CHECKING:
    from tidings.faults import Scheme
    from tidings.prediction._knowledge import BrokerKnowledge, LinkKnowledge

__all__ = [
    "BURSTY_SCV",
    "RETRY_SHARE",
    "Unmodelled",
    "UnmodelledKind",
    "has_detours",
    "has_queue",
    "unmodelled",
    "unmodelled_policies",
    "unmodelled_profiles",
    "unmodelled_scheme",
]

BURSTY_SCV: Final = 2.0
"""The scv of a publisher's intervals from which the error of R' behind two queues is .03 or more; at 3 up to .1."""

RETRY_SHARE: Final = 0.1
"""The share of the tightest deadline up to which the retry interval of brokers does not matter."""

SIMULATE: Final = "`tidings simulate` models it"

UnmodelledKind = Literal[
    "scheduling",
    "ordering",
    "relocation",
    "routing",
    "failures",
    "bursts",
    "regularity",
    "content",
    "day",
    "churn",
    "access",
    "replay",
    "policies",
    "fit",
    "dropping",
    "convergence",
    "overload",
    "backlogs",
    "retries",
    "acknowledgements",
    "storage",
    "detection",
    "detours",
]


class Unmodelled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One effect that a prediction leaves out.

    `what` names it, `effect` completes "R is predicted ...", `remedy` names a command that models it. It concerns
    subscriptions with events that pass one of the `links` or `brokers` or come from one of the `publishers`; if none
    is named, all subscriptions.
    """

    kind: UnmodelledKind
    what: str
    effect: str
    remedy: str
    links: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()

    @property
    def is_everywhere(self) -> bool:
        return not (self.links or self.brokers or self.publishers)


def has_queue(slowness: DelayDistribution | None) -> bool:
    """Whether events wait for a link of this slowness."""
    return slowness is not None and slowness.mean() > 0.0


def unmodelled(network: Network, *, scheme: "Scheme | None" = None) -> tuple[Unmodelled, ...]:
    """The parts of a scenario that `predict` leaves out; with a scheme, those that `predict_schemes` leaves out."""
    topology = network.topology
    waits = any(broker.service for broker in topology.brokers) or any(
        has_queue(link.slowness) for link in topology.links
    )
    intervals = {publisher.name: publisher.interval for publisher in network.publishers}
    left_out = (
        *_policies(network),
        *(_publishers(intervals) if waits else ()),
        *_changing(network),
        *_replayed(network),
    )
    if scheme is None or not network.has_failures:
        return (*left_out, *_failures(network))
    faults = network.policies.faults
    limits_s = [each.lifetime.mean() for each in network.publishers if each.lifetime is not None]
    limits_s += [each.max_delay_s for each in network.subscriptions if each.max_delay_s is not None]
    own = unmodelled_scheme(
        scheme,
        retry_s=faults.retry_s,
        detection_s=faults.detection_s,
        acks_early=faults.ack == "early",
        is_volatile=faults.queues == "volatile",
        tightest_s=min(limits_s, default=math.inf),
        waits=waits,
        has_detours=has_detours([(link.source, link.target) for link in topology.links], len(topology.brokers)),
    )
    return (*left_out, *own)


def has_detours(ends: "Sequence[tuple[object, object]]", brokers: int) -> bool:
    """Whether a connected network has more than one path between some brokers, by the ends of its links."""
    return len({frozenset(pair) for pair in ends}) >= brokers


def unmodelled_scheme(
    scheme: "Scheme",
    *,
    retry_s: float,
    detection_s: float,
    acks_early: bool,
    is_volatile: bool,
    tightest_s: float,
    waits: bool,
    has_detours: bool,
) -> list[Unmodelled]:
    """The parts of the fault tolerance of brokers that a scheme's prediction leaves out.

    `tightest_s` is the tightest deadline, `waits` is whether events queue anywhere, `has_detours` whether there are
    detours.
    """
    buffers, bypasses = "buffer" in scheme, "bypass" in scheme
    left_out: list[tuple[bool, UnmodelledKind, str, str]] = [
        (
            buffers and waits,
            "backlogs",
            "events delayed by a failure, which then arrive in a burst and queue",
            "as if they arrived one by one",
        ),
        (
            buffers and retry_s > RETRY_SHARE * tightest_s,
            "retries",
            f"retries to a failed neighbour every {retry_s:g} s",
            "as if events continued as soon as the neighbour is back",
        ),
        (
            buffers and acks_early,
            "acknowledgements",
            "brokers that acknowledge an event before they know where it has to go",
            "as if they acknowledged it afterwards",
        ),
        (
            buffers and is_volatile,
            "storage",
            "brokers that lose their stored events when they fail",
            "as if they kept them",
        ),
        (
            bypasses and detection_s > 0.0,
            "detection",
            f"failures that are detected after {detection_s:g} s",
            "as if they were detected at once",
        ),
        (
            bypasses and has_detours,
            "detours",
            "detours, which take longer than the usual path",
            "as if detours were as fast",
        ),
    ]
    return [
        Unmodelled(kind=kind, what=what, effect=effect, remedy=SIMULATE)
        for holds, kind, what, effect in left_out
        if holds
    ]


def _policies(network: Network) -> list[Unmodelled]:
    policies, found = network.policies, []
    links = tuple(f"{link.source} -> {link.target}" for link in network.topology.links if has_queue(link.slowness))
    if policies.scheduling.name != "fifo" and links:
        found.append(
            Unmodelled(
                kind="scheduling",
                what=f'links with the strategy "{policies.scheduling.name}"',
                effect="as if links sent first in, first out",
                remedy=SIMULATE,
                links=links,
            )
        )
    if policies.ordering is not None:
        found.append(
            Unmodelled(
                kind="ordering",
                what=f'receivers that order events by "{policies.ordering}"',
                effect="as if events were delivered on arrival",
                remedy=SIMULATE,
            )
        )
    if policies.relocation.name != DEFAULT_RELOCATION:
        found.append(
            Unmodelled(
                kind="relocation",
                what=f'publishers that move by "{policies.relocation.name}"',
                effect="as if publishers stayed at their first brokers",
                remedy=SIMULATE,
            )
        )
    if policies.routing not in ONE_TREE:
        why = "every event chooses its tree" if policies.routing == "spread" else "the first of several copies counts"
        found.append(
            Unmodelled(
                kind="routing",
                what=f'"{policies.routing}" routing, where {why}',
                effect="as if events took one path",
                remedy=SIMULATE,
            )
        )
    return found


def _failures(network: Network) -> list[Unmodelled]:
    topology = network.topology
    brokers = [
        broker.name
        for broker, fails in zip(topology.brokers, network.broker_failures, strict=True)
        if fails is not None
    ]
    links = [
        f"{link.source} -> {link.target}"
        for link, fails in zip(topology.links, network.link_failures, strict=True)
        if fails is not None
    ]
    return [failures_left_out(brokers, links, network.policies.faults.scheme)] if brokers or links else []


def failures_left_out(brokers: Sequence[str], links: Sequence[str], scheme: str) -> Unmodelled:
    """The components that fail, for a prediction without a scheme."""
    return Unmodelled(
        kind="failures",
        what="brokers and links that fail" if brokers and links else f"{'brokers' if brokers else 'links'} that fail",
        effect="as if nothing ever failed",
        remedy=f"`tidings predict --scheme {scheme}` models them",
        brokers=tuple(brokers),
        links=tuple(links),
    )


def _publishers(intervals: Mapping[str, DelayDistribution]) -> list[Unmodelled]:
    bursty, constant = list[str](), dict[float, list[str]]()
    for name, interval in intervals.items():
        scv = interval.scv()
        if scv >= BURSTY_SCV:
            bursty.append(name)
        elif scv == 0.0:
            constant.setdefault(interval.mean(), []).append(name)
    found = []
    if bursty:
        found.append(
            Unmodelled(
                kind="bursts",
                what=f"bursts that persist from queue to queue (intervals with an scv of {BURSTY_SCV:g} or more)",
                effect="too high behind several queues",
                remedy=SIMULATE,
                publishers=tuple(bursty),
            )
        )
    if constant:
        too_low = "too low behind several queues"
        is_in_step = any(len(names) > 1 for names in constant.values())
        found.append(
            Unmodelled(
                kind="regularity",
                what="publishers with a constant interval, some of them with equal intervals and fixed phases"
                if is_in_step
                else "publishers with a constant interval",
                effect=f"for the mean over all phases, and {too_low}" if is_in_step else too_low,
                remedy="simulate it under several seeds" if is_in_step else SIMULATE,
                publishers=tuple(name for names in constant.values() for name in names),
            )
        )
    return found


def _changing(network: Network) -> list[Unmodelled]:
    """Publishers with events that differ in kind, or over time."""
    by_content = [p.name for p in network.publishers if p.lifetime_by is not None or p.size_by is not None]
    by_day = [p.name for p in network.publishers if p.day is not None]
    found = []
    if by_content:
        found.append(
            Unmodelled(
                kind="content",
                what="lifetimes and sizes that depend on the content of an event",
                effect="as if every event drew them from the mixture of all values",
                remedy=SIMULATE,
                publishers=tuple(by_content),
            )
        )
    if by_day:
        found.append(
            Unmodelled(
                kind="day",
                what="a rate that changes over the day",
                effect="for the mean rate",
                remedy=SIMULATE,
                publishers=tuple(by_day),
            )
        )
    access = [each.access for each in network.publishers] + [each.access for each in network.subscribers]
    if any(each is not None for each in access):
        found.append(
            Unmodelled(
                kind="access",
                what="clients with access links of their own",
                effect="as if events crossed them at once",
                remedy=SIMULATE,
            )
        )
    if any(subscriber.churn is not None for subscriber in network.subscribers):
        what, effect = "subscribers that come and go", "as if all of them were always present"
        found.append(Unmodelled(kind="churn", what=what, effect=effect, remedy=SIMULATE))
    return found


def unmodelled_policies(network: Network) -> Unmodelled:
    """The policies that profiles do not record, assumed to be those of this network."""
    strategy, scheme = network.policies.scheduling.name, network.policies.faults.scheme
    supposed = f'links used "{strategy}"'
    if network.has_failures:
        supposed += f' and brokers handled failures by "{scheme}"'
    return _unstated(supposed, "give --strategy if another one was used, or predict the scenario if you have it")


def _unstated(supposed: str, remedy: str) -> Unmodelled:
    return Unmodelled(
        kind="policies",
        what="the strategy of links, the routes and the ordering at receivers, which profiles do not record",
        effect=f"as if {supposed}, along shortest paths, and events were delivered on arrival",
        remedy=remedy,
    )


def _replayed(network: Network) -> list[Unmodelled]:
    """Links and brokers that replay a recording: the model has its values, but not their order."""
    topology = network.topology
    links = [
        f"{link.source} -> {link.target}"
        for link in topology.links
        if isinstance(link.slowness, Replay) or isinstance(link.propagation, Replay)
    ]
    brokers = [
        broker.name
        for broker in topology.brokers
        if isinstance(broker.service, Replay) or isinstance(broker.processing, Replay)
    ]
    if not links and not brokers:
        return []
    return [
        Unmodelled(
            kind="replay",
            what="recorded values that are replayed in order",
            effect="as if their order were random",
            remedy=SIMULATE,
            links=tuple(links),
            brokers=tuple(brokers),
        )
    ]


def unmodelled_profiles(
    brokers: "Sequence[BrokerKnowledge]",
    links: "Sequence[LinkKnowledge]",
    intervals: Mapping[str, DelayDistribution],
    components: Sequence[Mapping[str, Any]] = (),
) -> tuple[Unmodelled, ...]:
    """The effects in a trace that `predict` leaves out or that a trace does not record; `components` are the profiles
    of components that may fail, `intervals` are by publisher."""
    found = [_unstated("links sent first in, first out", "predict the scenario if you have it")]
    failed = [row for row in components if row["failures"]]
    if failed:
        found.append(
            failures_left_out(
                [row["source"] for row in failed if row["target"] is None],
                [f"{row['source']} -> {row['target']}" for row in failed if row["target"] is not None],
                "SCHEME",
            )
        )
    if any(broker.service for broker in brokers) or any(has_queue(link.slowness) for link in links):
        found += _publishers(intervals)
    return tuple(found)
