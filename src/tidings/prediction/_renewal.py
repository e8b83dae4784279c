"""Exact GI/G/1 waits, for queues that only one publisher's events reach, undisturbed since their publication.

Nothing random lies before such a queue, so its arrivals are the publisher's own renewal process. Only a share of its
events comes here; the others are treated as arrivals that take no service, and wait like all.

- With exponential service the wait is Pollaczek and Khinchine's with sigma the root of sigma = A(mu (1 - sigma)), A the
  transform of the intervals (GI/M/1).
- Otherwise the wait is the maximum of all partial sums of services minus intervals. On a lattice, with phi the
  transform of one such difference, 1 - phi(z) = (1 - up(z)) (1 - down(z)), where up belongs to the ascending ladder
  heights, and E[z^W] = (1 - up(1)) / (1 - up(z)) (Wiener and Hopf). So the logarithm of 1 - phi is split into its
  positive and negative powers by two Fourier transforms. Its zero at z = 1 belongs to 1 - down, and is divided out as
  1 - 1/z.
- If no interval is shorter than any service, nothing ever waits (D/D/1).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from tidings.model.distributions import DelayDistribution, Exponential
from tidings.prediction._flows import Layout, Stations
from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._stages import Atoms, Stage, stage_of
from tidings.prediction._steps import HALF_NS

__all__ = ["NO_WAIT", "ExactWait", "renewal_waits", "root_of", "wait_of"]

LOAD_MAX = 0.9999
FINEST = 256  # cells of the lattice to the shorter of interval and service
CELLS_MAX = 2**18
TAILS = 40.0  # how far it reaches, in mean waits of heavy traffic
KEPT, SINGLE = 700, 128  # values that a wait keeps: the first ones all, then groups as wide as 1 % of the wait
_TAIL, _TINY = 1e-10, 1e-300

NO_WAIT: Atoms = (np.zeros(1), np.ones(1))

ExactWait = tuple[float, Atoms | float]
"""The mean wait, and sigma where service is exponential, or the values of the wait with their chances."""


def renewal_waits(knowledge: Knowledge, layout: Layout, stations: Stations) -> dict[tuple[int, int], ExactWait]:
    """By (publisher, station), where it has the queue to itself and nothing random lies before it."""
    found: dict[tuple[int, int], ExactWait] = {}
    n = len(knowledge.brokers)
    for p, publisher in enumerate(knowledge.publishers):
        if isinstance(publisher.interval, Exponential):
            continue
        is_pure = np.zeros(n, np.bool_)
        members = layout.order[p]
        for place, broker in enumerate(members[members >= 0].tolist()):
            # What was a renewal process before a station is one behind it, if that changes nothing but the time.
            is_renewal = place == 0 or bool(is_pure[layout.parent[p, broker]])
            for station in (broker,) if place == 0 else (n + int(layout.link[p, broker]), broker):
                if not is_renewal:
                    break
                if layout.service[p, station] > 0 and stations.rate_per_s[p, station] > 0.0:
                    wait = _wait_at(publisher.interval, layout, stations, p, station)
                    if wait is not None:
                        found[p, station] = wait
                    is_constant = layout.stages[layout.service[p, station]].variance_s2 == 0.0
                    is_renewal = wait is not None and wait[0] == 0.0 and is_constant
                is_renewal = is_renewal and layout.stages[layout.delay[station]].variance_s2 == 0.0
            is_pure[broker] = is_renewal
    return found


def _wait_at(
    interval: DelayDistribution, layout: Layout, stations: Stations, publisher: int, station: int
) -> ExactWait | None:
    """The wait of a renewal process at a station; None if others come there, too, or it cannot keep up."""
    rate = stations.rate_per_s[publisher, station]
    if rate < stations.total_per_s[station] or stations.utilisation[station] > LOAD_MAX:
        return None
    service = layout.stages[layout.service[publisher, station]]
    return _wait(interval, service, float(rate / layout.rate_per_s[publisher]))


@lru_cache(maxsize=4096)
def _wait(interval: DelayDistribution, service: Stage, share: float) -> ExactWait:
    if service.is_exponential:
        sigma = root_of(stage_of(interval), service.mean_s, share)
        return service.mean_s * sigma / (1.0 - sigma), sigma
    values = wait_of(stage_of(interval).nodes(), service.nodes(), share)
    return float(values[0] @ values[1]), values


def root_of(interval: Stage, mean_s: float, share: float = 1.0) -> float:
    """The chance to wait for an exponential service of this mean, when a share of the renewals comes."""

    def excess(sigma: float) -> float:
        s = np.array([(1.0 - sigma) / mean_s + 0.0j])
        renewal = float((np.exp(-s * interval.shift_s) * interval.transform(s))[0].real)
        return share * renewal / (1.0 - (1.0 - share) * renewal) - sigma

    return float(brentq(excess, 0.0, 1.0 - 1e-7)) if excess(0.0) > 0.0 else 0.0


def wait_of(interval: Atoms, service: Atoms, share: float = 1.0) -> Atoms:
    """The wait by its values, from 0 on, when services take `service` with a chance `share`, and nothing otherwise."""
    if service[0].max() <= interval[0].min() + HALF_NS:
        return NO_WAIT
    served = np.append(service[0], 0.0), np.append(share * service[1], 1.0 - share)
    (mean_a, variance_a), (mean_s, variance_s) = _moments(interval), _moments(served)
    free_s, spread_s2 = mean_a - mean_s, variance_a + variance_s
    # Regular intervals keep the sums near their multiples, until these have scattered over one of them.
    reach_s = TAILS * spread_s2 / (2.0 * free_s) + 4.0 * max(mean_a, service[0].max()) + free_s**3 / spread_s2
    step_s, cells = _lattice(interval, service, reach_s)
    up = np.fft.rfft(_on_lattice(served, step_s, cells))
    down = np.conj(np.fft.rfft(_on_lattice((np.minimum(interval[0], reach_s), interval[1]), step_s, cells)))
    angle = 2.0 * np.pi * np.arange(1, cells // 2 + 1) / cells
    rest = 1.0 - up[1:] * down[1:]
    # Both have a positive real part, so their angles are between a quarter turn back and one ahead: no turn is missed.
    turn = np.angle(rest) - 0.5 * (angle - np.pi)
    size = np.log(np.maximum(np.abs(rest), _TINY)) - np.log(2.0 * np.sin(0.5 * angle))
    logarithm = np.concatenate([[np.log(free_s / step_s)], size + 1j * turn])
    powers = np.fft.irfft(logarithm, cells)
    powers[0], powers[cells // 2 :] = 0.0, 0.0
    chances = np.maximum(np.fft.irfft(np.exp(powers.sum() - np.fft.rfft(powers)), cells), 0.0)
    return _grouped(chances / chances.sum(), step_s)


def _moments(atoms: Atoms) -> tuple[float, float]:
    mean = float(atoms[0] @ atoms[1])
    return mean, float((atoms[0] - mean) ** 2 @ atoms[1])


def _lattice(interval: Atoms, service: Atoms, reach_s: float) -> tuple[float, int]:
    """Step and number of cells. If all values are multiples of one, that is the step; if not, they are split."""
    positive_s = service[0][service[0] > 0.0]
    whole_ns = np.rint(np.concatenate([interval[0], positive_s]) * 1e9).astype(np.int64)
    common_s = float(np.gcd.reduce(whole_ns)) * 1e-9
    finest_s = min(float(interval[0] @ interval[1]), float(service[0] @ service[1])) / FINEST
    is_common = len(whole_ns) <= SINGLE and 2.0 * reach_s / max(common_s, 1e-9) <= CELLS_MAX
    step_s = common_s if is_common else finest_s
    cells = min(CELLS_MAX, 2 ** int(np.ceil(np.log2(2.0 * reach_s / step_s))))
    return (step_s if is_common else max(step_s, 2.0 * reach_s / cells)), cells


def _on_lattice(atoms: Atoms, step_s: float, cells: int) -> FloatArray:
    """Each value between its two neighbours on the lattice, so that the mean stays."""
    place = atoms[0] / step_s
    place = np.where(np.abs(place - np.rint(place)) < 1e-6, np.rint(place), place)
    low = np.floor(place).astype(np.int64)
    out = np.zeros(cells + 1)
    np.add.at(out, low, atoms[1] * (1.0 - (place - low)))
    np.add.at(out, low + 1, atoms[1] * (place - low))
    return out[:cells]


def _grouped(chances: FloatArray, step_s: float) -> Atoms:
    """The values that make a difference, far ones in groups."""
    last = int(np.argmax(np.cumsum(chances) > 1.0 - _TAIL)) + 1
    wide: Sequence[int] = np.geomspace(SINGLE, max(last, SINGLE + 1), KEPT).astype(np.int64).tolist()
    starts = np.unique([*range(min(SINGLE, last)), *(edge for edge in wide if edge < last)])
    mass = np.add.reduceat(chances[:last], starts)
    first = np.add.reduceat(chances[:last] * np.arange(last), starts)
    kept = mass > 0.0
    kept[0] = True
    points = np.where(mass > 0.0, first / np.maximum(mass, 1e-300), 0.0) * step_s
    return points[kept], mass[kept] / mass.sum()
