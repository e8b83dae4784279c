"""Times in a network as a trace shows them: at brokers, on links, to clients; and what they would be under other loads.

Theory of operation. From the arrival of an event at a broker until it is matched it waits and is worked on; from then
until it is at the next broker it waits for the link and is carried over it; hops are taken as independent, so means and
variances add up along a path. A broker's wait follows its load as that of the queue with Poisson arrivals does
(`Service`): under another load, the measured wait changes in the same proportion.

Nobody has measured what no event has done: a link that was not used takes the times of its other direction, or else the
mean over all links; a broker that no event came to the mean over all brokers.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.placement._joint import Service
from tidings.routing import NO_LINK, Overlay

__all__ = ["Scatter", "Sums", "Times", "times_of", "times_of_links"]

_NS: Final = 1e9

Floats = NDArray[np.float64]


class Scatter(NamedTuple):
    """A time, by broker or by link: its mean, its least value, its variance."""

    mean_ns: Floats
    least_ns: Floats
    variance_ns2: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Times:
    """How long events take. `residence`: from arrival at a broker until it is matched, of which `wait_ns` is waiting;
    `transfer`: from then until it is at the other end of a link; `to_client`: from arrival until a subscriber has it.
    """

    residence: Scatter
    wait_ns: Floats
    service: Service
    transfer: Scatter
    to_client: Scatter

    def under(self, now_per_s: Floats, then_per_s: Floats) -> "Times":
        """The same when brokers handle other rates of events: waits follow the load."""
        before, after = self.service.wait_s(now_per_s), self.service.wait_s(then_per_s)
        known = (before > 0.0) & (self.wait_ns > 0.0)
        ratio = np.divide(after, before, out=np.ones_like(before), where=known)
        wait = np.where(known, self.wait_ns * ratio, np.where(before > 0.0, 0.0, after * _NS))
        more = wait - self.wait_ns
        service_variance = self.service.scv * (self.service.mean_s * _NS) ** 2
        waiting_variance = np.maximum(0.0, self.residence.variance_ns2 - service_variance)
        grown = np.where(known, waiting_variance * (ratio**2 - 1.0), wait**2)
        return replace(
            self,
            residence=_moved(self.residence, more, grown),
            wait_ns=wait,
            to_client=_moved(self.to_client, more, grown),
        )

    def without_waits(self) -> "Times":
        """The same in a network where nobody waits for brokers, as `place_jointly` takes it."""
        nothing = np.zeros_like(self.wait_ns)
        return replace(
            self,
            residence=_moved(self.residence, -self.wait_ns, nothing),
            wait_ns=nothing,
            to_client=_moved(self.to_client, -self.wait_ns, nothing),
        )

    def onward(self, overlay: Overlay) -> Scatter:
        """By link: from arrival at its source to arrival at its target."""
        at = overlay.source
        return Scatter(*(here[at] + there for here, there in zip(self.residence, self.transfer, strict=True)))


def _moved(scatter: Scatter, more_ns: Floats, variance_ns2: Floats) -> Scatter:
    mean = np.maximum(0.0, scatter.mean_ns + more_ns)
    return Scatter(mean, np.minimum(scatter.least_ns, mean), np.maximum(0.0, scatter.variance_ns2 + variance_ns2))


class Sums(NamedTuple):
    """What was added up of a time, by broker or by link: how many, their sum, the sum of squares, the least."""

    samples: Floats
    total_ns: Floats
    squares_ns2: Floats
    least_ns: Floats


def times_of(overlay: Overlay, *, residence: Sums, wait: Sums, service: Sums, transfer: Sums, to_client: Sums) -> Times:
    """The times of a network from sums over its events; all but `transfer` are by broker."""
    counts = (overlay.broker_count,) * 3 + (overlay.link_count, overlay.broker_count)
    for sums, expected in zip((residence, wait, service, transfer, to_client), counts, strict=True):
        if any(array.shape != (expected,) for array in sums):
            raise InputError(f"sums of times must have one entry for each of {expected} brokers or links")
    stay, served = _filled(residence), _filled(service)
    back = overlay.links_between(overlay.target, overlay.source)
    opposite = Sums(*(np.where(back == NO_LINK, 0.0, array[back]) for array in transfer))
    used = transfer.samples > 0
    either = Sums(*(np.where(used, own, other) for own, other in zip(transfer, opposite, strict=True)))
    delivered = to_client.samples > 0
    last = _scatter(to_client)
    mean_s = served.mean_ns / _NS
    variation = np.divide(served.variance_ns2, served.mean_ns**2, out=np.zeros_like(mean_s), where=served.mean_ns > 0)
    return Times(
        residence=stay,
        wait_ns=_filled(wait).mean_ns,
        service=Service(mean_s=mean_s, scv=variation),
        transfer=_filled(either),
        # where nobody was served, a client would have its event as soon as it is matched
        to_client=Scatter(*(np.where(delivered, own, here) for own, here in zip(last, stay, strict=True))),
    )


def times_of_links(overlay: Overlay, *, size_kb: float, longest_ns: float, to_client_ns: float = 0.0) -> Times:
    """The times of a network whose links are known and whose brokers take no time of their own."""
    nothing = np.zeros(overlay.broker_count)
    least = np.minimum(overlay.propagation_mean_s * _NS, longest_ns)
    mean = np.minimum(least + overlay.slowness_mean_s_per_kb * size_kb * _NS, longest_ns)
    to_client = np.full(overlay.broker_count, float(to_client_ns))
    return Times(
        residence=Scatter(nothing, nothing, nothing),
        wait_ns=nothing,
        service=Service(mean_s=nothing, scv=nothing),
        transfer=Scatter(mean, least, overlay.slowness_variance_s2_per_kb2 * (size_kb * _NS) ** 2),
        to_client=Scatter(to_client, to_client, nothing),
    )


def _filled(sums: Sums) -> Scatter:
    """The figures, with the mean over all where there is nothing."""
    measured = sums.samples > 0
    if not measured.any():
        nothing = np.zeros(len(sums.samples))
        return Scatter(nothing, nothing, nothing)
    found = _scatter(sums)
    return Scatter(*(np.where(measured, figures, figures[measured].mean()) for figures in found))


def _scatter(sums: Sums) -> Scatter:
    count = np.maximum(1.0, sums.samples)
    mean = sums.total_ns / count
    variance = np.maximum(0.0, sums.squares_ns2 / count - mean**2)
    return Scatter(mean, np.minimum(sums.least_ns, mean), variance)
