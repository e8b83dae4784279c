"""What fails: brokers and links as components that are up and down, again and again.

Components start in the long run: each began an up time some twenty cycles before the run, at a random place in a cycle,
so that at time 0 it is up or down, and for how long still, as if one looked at any time, for any two distributions.
The tables of the brokers that are up are then complete, and everybody knows who is up.

Two streams of random numbers for each component, of its up and of its down times, apart from those of everything else:
all schemes under one seed see the same failures and the same publications.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidings.compiled import lend
from tidings.model.distributions import DelayDistribution, Uniform
from tidings.model.failures import Failures
from tidings.model.scenario import Network
from tidings.simulation._draws import Distributions, draw, encode_all, uniform, whole_ns
from tidings.simulation._layout import (
    COMPONENT,
    KIND_BITS,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    REFRESH,
    TRANSITION,
    Array,
)

__all__ = ["Components", "plan_components"]

CYCLES_BEFORE = 20.0
_FIRST_PART = 10  # apart from the distributions of links and brokers (0 to 4) and from the publishers (100)


@dataclass(frozen=True, kw_only=True, eq=False)
class Components:
    """The components at time 0, with their first transitions and all distributions; no records if nothing fails.

    One more at the end stands for what never fails. `answering` says link by link whether its ends find each other.
    """

    records: Array
    starts: list[tuple[int, int]]
    answering: Array
    distributions: Distributions
    refresh_ns: int | None

    def first_refreshes(self, brokers: Array) -> list[tuple[int, int]]:
        """The first refresh of each home broker, at a random place in the interval."""
        if self.refresh_ns is None:
            return []
        first_distribution = len(self.distributions.records) - len(brokers)
        distributions = lend(self.distributions)
        return [
            (int(self.refresh_ns * uniform(distributions, first_distribution + home)), home << KIND_BITS | REFRESH)
            for home in np.flatnonzero(brokers["root"] >= 0).tolist()
        ]


def plan_components(network: Network, links: Array, distributions: Distributions) -> Components:
    """The components of a network; the links learn which is theirs."""
    if not network.has_failures:
        nothing = np.zeros(0, COMPONENT)
        return Components(
            records=nothing,
            starts=[],
            answering=np.zeros(0, np.int64),
            distributions=distributions,
            refresh_ns=None,
        )
    brokers, faults = len(network.topology.brokers), network.policies.faults
    failures = [*network.broker_failures, *_by_component(network)]
    all_distributions = _with_failures(distributions, failures, brokers, network.seed)
    records, starts = _records(failures, all_distributions, first_distribution=len(distributions.records))
    links["component"] = len(records) - 1
    links["component"][: len(network.link_components)] = np.array(network.link_components, np.int64) + brokers
    return Components(
        records=records,
        starts=starts,
        answering=_answering(links[: len(network.topology.links)], records),
        distributions=all_distributions,
        refresh_ns=min(round(faults.refresh_s * NANOSECONDS), NEVER_NS // 4) if faults.is_refreshing else None,
    )


def _by_component(network: Network) -> list[Failures | None]:
    found = dict(zip(network.link_components, network.link_failures, strict=True))
    count = max(found, default=-1) + 1
    return [found.get(component) for component in range(count)]


def _with_failures(
    distributions: Distributions, failures: Sequence[Failures | None], brokers: int, seed: int
) -> Distributions:
    """The distributions of every run, then those of components (up, down, start) and of the phases of refreshes."""
    unit = Uniform(low=0.0, high=1.0)
    kinds: list[list[DelayDistribution | None]] = [
        [None if each is None else each.up for each in failures],
        [None if each is None else each.down for each in failures],
        [unit] * len(failures),
        [unit] * brokers,
    ]
    return distributions.with_more(encode_all(kinds, seed, first_part=_FIRST_PART))


def _records(
    failures: Sequence[Failures | None], distributions: Distributions, *, first_distribution: int
) -> tuple[Array, list[tuple[int, int]]]:
    count, lent = len(failures), lend(distributions)
    components = np.zeros(count + 1, COMPONENT)
    components["up"] = 1
    components["up_distribution"] = components["down_distribution"] = NOBODY
    starts = []
    for number, each in enumerate(failures):
        if each is None:
            continue
        up_distribution, down_distribution, start = (first_distribution + kind * count + number for kind in range(3))
        # Half of the longest time that is ever drawn: what hardly ever fails is then up at the start.
        now = -min(whole_ns((CYCLES_BEFORE + uniform(lent, start)) * each.period_s), NEVER_NS // 8)
        is_up = False
        while now <= 0:
            is_up = not is_up
            now += max(1, whole_ns(draw(lent, up_distribution if is_up else down_distribution)))
        for name, value in (
            ("up", int(is_up)),
            ("up_distribution", up_distribution),
            ("down_distribution", down_distribution),
        ):
            components[name][number] = value
        starts.append((int(now), number << KIND_BITS | TRANSITION))
    return components, starts


def _answering(links: Array, components: Array) -> Array:
    """Link by link whether both ends find each other at first: a conversation needs both directions."""
    back = links["reverse"]
    up = components["up"]
    both = up[links["component"]] * np.where(back >= 0, up[links["component"][back]], 0)
    return np.asarray(both * up[links["source"]] * up[links["target"]], np.int64)
