"""What a scheme costs: messages for each published event, and events stored (paper D, section 2.4).

By scheme, in the long run and per published event:

- data: an event is sent to a broker of its tree if a subscription at or behind that broker matches it and it has
  reached the previous broker; with buffering it waits for that broker, and is sent if that is in time. Detours are
  longer by some per cent, which is not counted.
- acknowledgements: one for each event that arrives, with buffering.
- retries: with buffering, a broker tries a neighbour that does not answer every `retry_s`, with one event.
- refreshes: with all but `static`, every `refresh_s` a home broker that is up sends all its subscriptions again,
  together, to the publishers that any of them matches.
- link state: with bypass, every neighbour of a broker, and both ends of a connection, announce its failures and repairs
  to all: 2 m - n + 1 messages each, since a broker informs every neighbour except the one it heard from.

Storage, by Little's law: events a second times how long one is stored on its path to a broker, which is the integral
over its lifetime of P[the broker before has it] - P[the broker has it]. The peak is that of the busiest connection if
everything behind it is down for a whole lifetime.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._prediction import Prediction

if TYPE_CHECKING:
    from tidings.faults import Scheme
    from tidings.model.failures import Failures
    from tidings.prediction._failures import Failing

__all__ = ["Overhead", "Waiting", "overhead_of"]


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """Messages per published event by kind, and what is stored: on average in the whole network, at most at one place.

    Storage is None where an event never expires.
    """

    data: float
    acknowledgements: float
    retries: float
    refreshes: float
    link_state: float
    stored_mean_events: float | None
    stored_mean_kb: float | None
    stored_peak_events: float | None
    stored_peak_kb: float | None

    @property
    def messages(self) -> float:
        """All messages per published event."""
        return self.data + self.acknowledgements + self.retries + self.refreshes + self.link_state


@dataclass(frozen=True, eq=False)
class Waiting:
    """For one publisher, by broker: the chance that an event gets there, and the time it is stored before."""

    reached: FloatArray
    stored_s: FloatArray
    lifetime_s: float


def overhead_of(prediction: Prediction, failing: "Failing", scheme: "Scheme", waiting: Sequence[Waiting]) -> Overhead:
    knowledge, layout = prediction.knowledge, prediction.layout
    n, buffers, bypasses = len(knowledge.brokers), "buffer" in scheme, "bypass" in scheme
    total_per_s = float(layout.rate_per_s.sum())
    sent_per_s, stored, stored_kb = 0.0, 0.0, 0.0
    peak = np.zeros((len(knowledge.links), 2))
    used = np.zeros(len(knowledge.links), np.bool_)
    for p, publisher in enumerate(knowledge.publishers):
        tree, wait = publisher.tree, waiting[p]
        members = tree.order[1:]
        over_per_s = publisher.rate_per_s * layout.mass[p, members]
        reached = wait.reached[members if buffers else tree.parent[members]]
        knows = scheme != "static" or failing.has_durable_tables
        sent_per_s += float(over_per_s @ reached) if knows else 0.0
        if buffers and len(members):
            size_kb = publisher.size_kb.mean()
            stored += float(over_per_s @ wait.stored_s[members])
            stored_kb += size_kb * float(over_per_s @ wait.stored_s[members])
            links = tree.parent_link[members]
            used[links[over_per_s > 0.0]] = True
            peak[links] += np.stack((over_per_s, over_per_s * size_kb), axis=1) * wait.lifetime_s
    is_endless = any(math.isinf(wait.lifetime_s) for wait in waiting)
    refreshed_per_s = 0.0
    if scheme != "static" and failing.refresh_s > 0.0:
        refreshed_per_s = _refreshed_links(knowledge, failing) / failing.refresh_s
    blocked = _blocked(knowledge, failing)[used].sum() / failing.retry_s if buffers else 0.0
    connections = len({frozenset((link.source, link.target)) for link in knowledge.links})
    transitions_per_s = _transitions_per_s(knowledge, failing) if bypasses else 0.0

    def each(per_s: float) -> float:
        return per_s / total_per_s if total_per_s > 0.0 else 0.0

    def kept(value: float) -> float | None:
        return None if buffers and is_endless else value

    largest = peak.max(axis=0, initial=0.0) if buffers and not is_endless else np.zeros(2)
    return Overhead(
        data=each(sent_per_s),
        acknowledgements=each(sent_per_s) if buffers else 0.0,
        retries=each(float(blocked)),
        refreshes=each(refreshed_per_s),
        link_state=each(transitions_per_s * max(0, 2 * connections - n + 1)),
        stored_mean_events=kept(stored),
        stored_mean_kb=kept(stored_kb),
        stored_peak_events=kept(float(largest[0])),
        stored_peak_kb=kept(float(largest[1])),
    )


def _refreshed_links(knowledge: Knowledge, failing: "Failing") -> float:
    """Over how many links a refresh of all home brokers goes, those that are down left out."""
    asked: dict[int, set[int]] = {}
    for number, publisher in enumerate(knowledge.publishers):
        for home in np.unique(knowledge.homes[publisher.content.masses[0]]).tolist():
            asked.setdefault(home, set()).add(number)
    total = 0.0
    for home, publishers in asked.items():
        links: set[int] = set()
        for number in publishers:
            tree, broker = knowledge.publishers[number].tree, home
            while broker in tree and broker != tree.root:
                links.add(int(tree.parent_link[broker]))
                broker = int(tree.parent[broker])
        total += len(links) * _availability(failing.brokers[home])
    return total


def _availability(failures: "Failures | None") -> float:
    return 1.0 if failures is None else failures.availability


def _blocked(knowledge: Knowledge, failing: "Failing") -> FloatArray:
    """By link: the share of time that its source is up and what it leads to does not answer."""
    up, over = (list(map(_availability, each)) for each in (failing.brokers, failing.links))
    return np.array(
        [up[link.source] * (1.0 - over[number] * up[link.target]) for number, link in enumerate(knowledge.links)]
    )


def _transitions_per_s(knowledge: Knowledge, failing: "Failing") -> float:
    """How often a second somebody notices a failure or a repair: a broker's by each of its neighbours, a link's by
    the end that sends over it."""
    total = 0.0
    for number, link in enumerate(knowledge.links):
        for failures in (failing.brokers[link.target], failing.links[number]):
            total += 0.0 if failures is None else 2.0 / failures.period_s
    return total
