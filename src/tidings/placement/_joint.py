"""Ours: places for all publishers together, so that they do not all move to the same broker.

Each publisher alone would go where its readers are; if many have theirs in one place, the broker there is overloaded
and everybody waits. Placed together, a publisher also pays for the waiting that it causes to others.

Theory of operation. A broker that handles λ events a second with service mean s and squared variation c² makes each
wait W(λ) = λ s² (1 + c²) / (2 (1 - λ s)), the queue with Poisson arrivals. The sum to be made small is over all
deliveries a second, of the time along their paths: time without waiting, plus W at each broker on the path. Per event
that a publisher sends through broker b, that sum rises by

    what its own deliveries behind b wait there  +  (deliveries of everybody that pass b) · dW/dλ.

At the present loads the second term is a price on handling an event, so that the cost of all candidates of one
publisher follows by rerooting in O(N). The few cheapest of them are then computed exactly (loads and waits as they
would be), and the best is taken if it lowers the sum. Publishers take turns, largest flow first, until nobody moves:
the sum falls with every move, so it ends.

Overload: beyond `_BUSY` the wait is continued along its tangent, so that even an overloaded network has a slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidings.errors import ConfigurationError, InputError
from tidings.placement._evaluation import delays_of, handled_from, priced_messages
from tidings.placement._sessions import TraceSession

__all__ = ["JointPlan", "Service", "Stream", "place_jointly"]

_BUSY: Final = 0.95
_SHORTLIST: Final = 8
_ROUNDS_MAX: Final = 50
_NS: Final = 1e9

Figures = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """How long each broker works on an event: the mean and the squared coefficient of variation (1: exponential)."""

    mean_s: Figures
    scv: Figures

    def __post_init__(self) -> None:
        for name in ("mean_s", "scv"):
            array = np.ascontiguousarray(getattr(self, name), np.float64)
            if array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all():
                raise InputError(f"{name} must be one finite number of at least 0 for each broker")
            object.__setattr__(self, name, array)

    def wait_s(self, rate_per_s: Figures) -> Figures:
        """Mean wait of an event at each broker, with these arrival rates."""
        busy = np.minimum(rate_per_s * self.mean_s, _BUSY)
        within = busy * self.mean_s * (1.0 + self.scv) / (2.0 * (1.0 - busy))
        return within + self.slope_s2(rate_per_s) * np.maximum(0.0, rate_per_s - self._busy_rate)

    def slope_s2(self, rate_per_s: Figures) -> Figures:
        """How much that wait rises with each event per second."""
        busy = np.minimum(rate_per_s * self.mean_s, _BUSY)
        return self.mean_s**2 * (1.0 + self.scv) / (2.0 * (1.0 - busy) ** 2)

    @property
    def _busy_rate(self) -> Figures:
        return np.divide(_BUSY, self.mean_s, out=np.full_like(self.mean_s, np.inf), where=self.mean_s > 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """One publisher: a session of it, with times that leave out waiting for brokers, and how fast it publishes."""

    session: TraceSession
    rate_per_s: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate_per_s < float("inf"):
            raise InputError(f"a publisher's rate is {self.rate_per_s!r}: it must be finite and 0 or more")

    @property
    def per_event(self) -> float:
        """What turns counts of the session into figures per second."""
        return self.rate_per_s / self.session.traced_events


@dataclass(frozen=True, kw_only=True, eq=False)
class JointPlan:
    """Where each publisher should be, and what that changes; streams in the order given."""

    homes: tuple[int, ...]
    targets: tuple[int, ...]
    mean_delay_s: float
    mean_delay_s_now: float
    utilisation: Figures
    utilisation_now: Figures
    rounds: int


def place_jointly(
    streams: Sequence[Stream], service: Service, *, other_rate_per_s: ArrayLike = 0.0, hysteresis: float = 0.0
) -> JointPlan:
    """Homes for all publishers that make the mean delay of all deliveries small, waiting included.

    `other_rate_per_s` is what brokers handle besides; a move must lower the sum by more than `hysteresis`, as a share
    of what the publisher's own deliveries take.
    """
    if not 0.0 <= hysteresis < 1.0:
        raise ConfigurationError(f"a hysteresis of {hysteresis!r}: it must be a share, 0 or more and below 1")
    state = _State(streams, service, np.asarray(other_rate_per_s, np.float64))
    homes = tuple(stream.session.tree.root for stream in streams)
    before, busy_before = state.total(), state.utilisation()
    turns = sorted(range(len(streams)), key=lambda number: (-streams[number].rate_per_s, number))
    rounds = 0
    while rounds < _ROUNDS_MAX:
        rounds += 1
        moved = [number for number in turns if state.improve(number, hysteresis)]
        if not moved:
            break
    deliveries = sum(stream.per_event * stream.session.total_deliveries for stream in streams)
    return JointPlan(
        homes=homes,
        targets=tuple(state.homes),
        mean_delay_s=state.total() / deliveries if deliveries else 0.0,
        mean_delay_s_now=before / deliveries if deliveries else 0.0,
        utilisation=state.utilisation(),
        utilisation_now=busy_before,
        rounds=rounds,
    )


class _State:
    """Homes as they are now, with every broker's rate of events handled and of deliveries that pass."""

    def __init__(self, streams: Sequence[Stream], service: Service, other_rate_per_s: Figures) -> None:
        brokers = len(service.mean_s)
        for number, stream in enumerate(streams):
            if stream.session.overlay.broker_count != brokers:
                raise InputError(
                    f"stream {number} is of an overlay with {stream.session.overlay.broker_count} brokers, "
                    f"and there are service times of {brokers}"
                )
        self.streams, self.service = streams, service
        self.homes = [stream.session.tree.root for stream in streams]
        self.rate = np.broadcast_to(other_rate_per_s, brokers).astype(np.float64)
        self.passing = np.zeros(brokers)
        self.known: dict[tuple[int, int], tuple[Figures, Figures]] = {}
        self.still = [delays_of(stream.session) / _NS * stream.per_event for stream in streams]
        self.places = [
            {int(broker): place for place, broker in enumerate(stream.session.tree.order)} for stream in streams
        ]
        for number, home in enumerate(self.homes):
            self._add(number, home, 1.0)

    def utilisation(self) -> Figures:
        return self.rate * self.service.mean_s

    def total(self) -> float:
        """Delay of all deliveries, in seconds a second."""
        still = sum(
            float(still[places[home]]) for still, places, home in zip(self.still, self.places, self.homes, strict=True)
        )
        return still + float(self.service.wait_s(self.rate) @ self.passing)

    def improve(self, number: int, hysteresis: float) -> bool:
        """Move one publisher to the best of its cheapest candidates, if that lowers the sum by enough."""
        home, places = self.homes[number], self.places[number]
        now = self.total()
        own = float(self.still[number][places[home]])
        self._add(number, home, -1.0)
        best, least = home, now - hysteresis * own
        for candidate in self._cheapest(number):
            if candidate == home:
                continue
            self._settle(number, candidate)
            then = self.total()
            self._add(number, candidate, -1.0)
            if then < least - 1e-12 * abs(now):
                best, least = candidate, then
        self._settle(number, best)
        return best != home

    def _cheapest(self, number: int) -> list[int]:
        stream = self.streams[number]
        waits = self.service.wait_s(self.rate)
        price = self.passing * self.service.slope_s2(self.rate) * stream.per_event
        waiting = waiting_of(stream.session, waits) * stream.per_event
        cost = self.still[number] + waiting + priced_messages(stream.session, price)
        order = stream.session.tree.order
        return [int(order[place]) for place in np.argsort(cost, kind="stable")[:_SHORTLIST]]

    def _settle(self, number: int, home: int) -> None:
        self.homes[number] = home
        self._add(number, home, 1.0)

    def _add(self, number: int, home: int, sign: float) -> None:
        if (number, home) not in self.known:
            stream = self.streams[number]
            handled, passing = handled_from(stream.session, home)
            per_event = np.float64(stream.per_event)
            self.known[number, home] = (handled * per_event, passing * per_event)
        handled_per_s, passing_per_s = self.known[number, home]
        self.rate = self.rate + sign * handled_per_s
        self.passing = self.passing + sign * passing_per_s


def waiting_of(session: TraceSession, wait_s: Figures) -> Figures:
    """For each candidate the waits of all the session's deliveries, when an event waits `wait_s[b]` at broker b."""
    whole = np.rint(wait_s * _NS).astype(np.int64)
    waits = TraceSession(
        overlay=session.overlay,
        tree=session.tree,
        events=session.events,
        bits=session.bits,
        deliveries=session.deliveries,
        to_client_ns=whole,
        onward_ns=whole[session.overlay.source],
        ping_ns=np.zeros_like(whole),
    )
    return delays_of(waits) / _NS
