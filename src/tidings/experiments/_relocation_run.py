"""Eighteen minutes of paper E's network under one policy: events, what they cost, and the messages that decide.

Time is divided into sessions of as many events as a decision takes. In each, every publisher's events are carried from
its broker and counted at every broker that handles them; then the policy decides where the publisher goes. Brokers are
lightly loaded (a few per cent), so events do not wait for each other; the overloaded case is simulated with queues
(`_relocation_overload`).

Control messages are counted as the brokers would receive them, hop by hop:

- POP: a trace result from every broker that handled a traced event but the home; the request on its walk, and the
  answer back along it.
- GRAPE and ours: a request to every broker that handled something in the session but the home, and its answer.
- Migration: MUM and MCM along the path, and each reader's subscription that has to be forwarded along it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.experiments._relocation_network import (
    DEADLINE_NS,
    JITTER,
    MATCHING_MEDIAN_NS,
    MATCHING_SIGMA,
    Place,
    Publisher,
)
from tidings.placement import (
    DEFAULT_TRACED,
    Metric,
    Service,
    Spread,
    Stream,
    TagWindow,
    TraceSession,
    Wanted,
    bit_words,
    evaluate,
    on_time_shares,
    place_jointly,
    running_average,
    select,
    select_on_time,
    walk,
)

__all__ = ["MATCHING_MEAN_S", "MATCHING_SCV", "Outcome", "Policy", "decided_by", "run", "served_by"]

Decide = Callable[[TraceSession], int]
Policy = Literal["baseline", "pop", "grape-load100", "grape-delay100", "ours-ontime", "ours-joint"]

SECOND_NS: Final = 1e9
HYSTERESIS: Final = 0.01
MONITORED: Final = 200
MATCHING_MEAN_S: Final = MATCHING_MEDIAN_NS * np.exp(MATCHING_SIGMA**2 / 2) / 1e9
MATCHING_SCV: Final = float(np.exp(MATCHING_SIGMA**2) - 1)


class Outcome(NamedTuple):
    """Means over the sessions that reach into the last third of the run, when publishers have found their places."""

    messages_per_s: float  # by all brokers, control messages included
    delay_ms: float
    hops: float
    utilisation: float  # mean over brokers, of matching events
    utilisation_max: float
    overhead: float  # control messages as a share of what brokers receive
    on_time: float
    moves: int


@dataclass
class _Tally:
    events: int = 0
    handled: float = 0.0
    control: float = 0.0
    deliveries: float = 0.0
    delay_ns: float = 0.0
    hops: float = 0.0
    on_time: float = 0.0


class _Carried(NamedTuple):
    """A session's events from one home: which brokers handled which, and how many readers each served."""

    handled: NDArray[np.bool_]  # by broker and event
    served: NDArray[np.int64]


class _Monitor(NamedTuple):
    """What brokers measure of themselves and their links, from a few hundred events: mean, least value, variance."""

    matching: NDArray[np.float64]
    onward: NDArray[np.float64]


def decided_by(metric: Metric, weight: float = 100.0) -> Decide:
    """GRAPE with this priority and weight."""
    return lambda session: select(evaluate(session), metric=metric, weight=weight, hysteresis=HYSTERESIS).target


def run(
    place: Place,
    publishers: Sequence[Publisher],
    policy: Policy | Decide,
    *,
    session: int = DEFAULT_TRACED,
    seed: int,
    rate_per_s: float = 1.0,
) -> tuple[Outcome, list[int]]:
    """One policy for all publishers, and where they end; a function stands for GRAPE with other settings."""
    running = _Run(place, publishers, policy, rate_per_s, np.random.default_rng([seed, 77]))
    events = publishers[0].readers.wants.shape[1]
    for begin in range(0, events, session):
        end = min(events, begin + session)
        running.carry(begin, end, counted=end > events * 2 // 3)
        if end - begin == session:
            running.decide(end)
    return running.outcome(), running.homes


class _Run:
    def __init__(
        self,
        place: Place,
        publishers: Sequence[Publisher],
        policy: Policy | Decide,
        rate_per_s: float,
        generator: np.random.Generator,
    ) -> None:
        self.place, self.publishers, self.policy = place, publishers, policy
        self.rate_per_s, self.generator = rate_per_s, generator
        events = publishers[0].readers.wants.shape[1]
        self.homes = [publisher.home for publisher in publishers]
        self.tagged = [_tagged(events, generator) if policy == "pop" else np.zeros(0, bool) for _ in publishers]
        self.tables_since = [0] * len(publishers)
        self.tally, self.handled, self.moves = _Tally(), np.zeros(place.brokers), 0
        self.counted = False
        self.sessions: list[TraceSession] = []

    def carry(self, begin: int, end: int, *, counted: bool) -> None:
        """Carry everybody's events from where they are; what brokers note becomes the sessions."""
        self.counted = counted
        self.monitor = _monitor(self.place, self.generator)
        self.sessions = []
        for number, publisher in enumerate(self.publishers):
            carried = _carry(self.place, publisher, self.homes[number], slice(begin, end))
            if counted:
                self.handled += carried.handled.sum(axis=1)
                self.tally.control += self._tracing_messages(carried, self.tagged[number][begin:end])
                _add(self.tally, self.place, publisher, self.homes[number], carried, slice(begin, end), self.generator)
            self.sessions.append(_session_of(self.place, publisher, self.homes[number], carried, self.monitor))

    def decide(self, end: int) -> None:
        """Move the publishers whose best broker is another one."""
        for number, path in enumerate(self._paths(end)):
            if len(path) > 1:
                self.moves += 1
                self.homes[number] = path[-1]
                self.tables_since[number] = end  # a move clears what was learnt along its path
                if self.counted:
                    self.tally.control += self._migration_messages(self.publishers[number], path)

    def _paths(self, end: int) -> list[tuple[int, ...]]:
        """For each publisher the path from its home to its new home."""
        if self.policy == "pop":
            return [
                _pop_path(self.place, publisher, home, np.flatnonzero(tagged[since:end]) + since)
                for publisher, home, tagged, since in zip(
                    self.publishers, self.homes, self.tagged, self.tables_since, strict=True
                )
            ]
        return [self.place.trees[home].path(target) for home, target in zip(self.homes, self._targets(), strict=True)]

    def _targets(self) -> Sequence[int]:
        if self.policy == "baseline":
            return self.homes
        if self.policy == "ours-joint":
            streams = [Stream(session=session, rate_per_s=self.rate_per_s) for session in self.sessions]
            each = np.ones(self.place.brokers)
            service = Service(mean_s=each * MATCHING_MEAN_S, scv=each * MATCHING_SCV)
            return place_jointly(streams, service, hysteresis=HYSTERESIS).targets
        if self.policy == "ours-ontime":
            return [
                _on_time_target(session, publisher, self.monitor)
                for session, publisher in zip(self.sessions, self.publishers, strict=True)
            ]
        decide = decided_by(_GRAPE[self.policy]) if isinstance(self.policy, str) else self.policy
        return [decide(session) for session in self.sessions]

    def _tracing_messages(self, carried: _Carried, tagged: NDArray[np.bool_]) -> float:
        if self.policy == "baseline":
            return 0.0
        if self.policy == "pop":
            return float((carried.handled.sum(axis=0) - 1)[tagged].sum())
        return 2.0 * (int(carried.handled.any(axis=1).sum()) - 1)

    def _migration_messages(self, publisher: Publisher, path: tuple[int, ...]) -> float:
        """MUM and MCM along the path, and the subscriptions of readers behind each step of it, seen from the target."""
        tree = self.place.trees[path[0]]
        forwarded = 0
        for broker in path[1:]:
            beyond = tree.order[tree.position[broker] : tree.position[broker] + tree.size[broker]]
            forwarded += int((~np.isin(publisher.readers.broker, beyond)).sum())
        asked_and_answered = 2 if self.policy == "pop" else 0
        return float((2 + asked_and_answered) * (len(path) - 1) + forwarded)

    def outcome(self) -> Outcome:
        tally, publishers = self.tally, len(self.publishers)
        seconds = tally.events / publishers / self.rate_per_s
        utilisation = self.handled / seconds * MATCHING_MEAN_S
        deliveries = max(1.0, tally.deliveries)
        return Outcome(
            messages_per_s=(tally.handled + tally.control) / seconds,
            delay_ms=tally.delay_ns / deliveries / 1e6,
            hops=tally.hops / deliveries,
            utilisation=float(utilisation.mean()),
            utilisation_max=float(utilisation.max()),
            overhead=tally.control / (tally.handled + tally.control),
            on_time=tally.on_time / deliveries,
            moves=self.moves,
        )


_GRAPE: Final[dict[str, Metric]] = {"grape-load100": "load", "grape-delay100": "delay"}


def _tagged(events: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    window = TagWindow()
    return np.array([window.tag(int(second * SECOND_NS), generator.random()) for second in range(events)])


def served_by(place: Place, publisher: Publisher, events: slice | NDArray[np.int64]) -> NDArray[np.int64]:
    """How many readers each broker serves with each of these events."""
    readers = publisher.readers
    at = np.zeros((place.brokers, len(readers.broker)), np.float32)
    at[readers.broker, np.arange(len(readers.broker))] = 1.0
    return np.rint(at @ readers.wants[:, events].astype(np.float32)).astype(np.int64)


def _carry(place: Place, publisher: Publisher, home: int, events: slice) -> _Carried:
    tree = place.trees[home]
    served = served_by(place, publisher, events)
    handled = served > 0
    for broker in tree.order[:0:-1].tolist():
        handled[tree.parent[broker]] |= handled[broker]
    handled[home] = True  # the home gets everything that is published, wanted or not
    return _Carried(handled=handled, served=served)


def _add(
    tally: _Tally,
    place: Place,
    publisher: Publisher,
    home: int,
    carried: _Carried,
    events: slice,
    generator: np.random.Generator,
) -> None:
    """Carry the events in time, and count who got them when."""
    tree, readers = place.trees[home], publisher.readers
    shape = carried.handled.shape
    matching = generator.lognormal(np.log(MATCHING_MEDIAN_NS), MATCHING_SIGMA, size=shape)
    left_ns = np.zeros(shape)
    left_ns[home] = publisher.access_ns[home] + matching[home]
    for broker in tree.order[1:].tolist():
        base = place.link_ns[tree.parent_link[broker]]
        on_link = base * (1 - JITTER) + generator.exponential(base * JITTER, size=shape[1])
        left_ns[broker] = left_ns[tree.parent[broker]] + on_link + matching[broker]
    delay = left_ns[readers.broker] + readers.own_access_ns[:, None]
    wanted = readers.wants[:, events]
    tally.events += shape[1]
    tally.handled += float(carried.handled.sum())
    tally.deliveries += float(wanted.sum())
    tally.delay_ns += float(delay[wanted].sum())
    tally.hops += float((wanted.sum(axis=1) * tree.depth[readers.broker]).sum())
    tally.on_time += float((wanted & (delay < DEADLINE_NS)).sum())


def _monitor(place: Place, generator: np.random.Generator) -> _Monitor:
    matching = generator.lognormal(np.log(MATCHING_MEDIAN_NS), MATCHING_SIGMA, size=(place.brokers, MONITORED))
    base = place.link_ns[:, None]
    on_link = base * (1 - JITTER) + generator.exponential(1.0, size=(len(place.link_ns), MONITORED)) * base * JITTER
    onward = matching[place.overlay.source] + on_link
    return _Monitor(
        matching=np.stack((matching.mean(axis=1), matching.min(axis=1), matching.var(axis=1))),
        onward=np.stack((onward.mean(axis=1), onward.min(axis=1), onward.var(axis=1))),
    )


def _session_of(place: Place, publisher: Publisher, home: int, carried: _Carried, monitor: _Monitor) -> TraceSession:
    events = carried.handled.shape[1]
    delivered = np.zeros((place.brokers, bit_words(events) * 64), bool)
    delivered[:, :events] = carried.served > 0
    return TraceSession(
        overlay=place.overlay,
        tree=place.trees[home],
        events=events,
        bits=np.packbits(delivered, axis=1, bitorder="little").view("<u8").astype(np.uint64),
        deliveries=carried.served.sum(axis=1),
        to_client_ns=np.rint(monitor.matching[0]).astype(np.int64),
        onward_ns=np.rint(monitor.onward[0]).astype(np.int64),
        ping_ns=np.rint(publisher.access_ns).astype(np.int64),
    )


def _on_time_target(session: TraceSession, publisher: Publisher, monitor: _Monitor) -> int:
    readers = publisher.readers
    counts = readers.wants.mean(axis=1) * session.events
    left = DEADLINE_NS - readers.own_access_ns
    wanted = Wanted(broker=readers.broker, deadline_s=left / SECOND_NS, deliveries=counts)
    spread = Spread(
        onward_least_ns=np.floor(monitor.onward[1]).astype(np.int64),
        onward_variance_ns2=monitor.onward[2],
        to_client_variance_ns2=monitor.matching[2],
    )
    shares = on_time_shares(session, wanted, spread)
    return select_on_time(evaluate(session), shares, hysteresis=HYSTERESIS)


class _Averages(NamedTuple):
    local: float
    behind: dict[int, float]


def _pop_path(place: Place, publisher: Publisher, home: int, traced: NDArray[np.int64]) -> tuple[int, ...]:
    """The walk by the running averages that the traced events leave at each broker that handled them."""
    if not len(traced):
        return (home,)
    tree = place.trees[home]
    served = served_by(place, publisher, traced)
    behind = served.copy()
    for broker in tree.order[:0:-1].tolist():
        behind[tree.parent[broker]] += behind[broker]

    def profile(broker: int) -> _Averages:
        seen = np.ones(len(traced), bool) if broker == home else behind[broker] > 0
        return _Averages(
            local=running_average(served[broker, seen]),
            behind={child: running_average(behind[child, seen]) for child in tree.children(broker)},
        )

    return walk(home, profile)
