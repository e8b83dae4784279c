"""Delays along trees: P[delay < t] from a publisher to any broker of its tree (paper B, section 4.4).

The transform of the delay to a broker is that to the broker before it, times the stages between them: wait and
transmission of the link, propagation, wait and service of the broker, processing. So every prefix is worked out once.
A wait is known by its sigma (`_waits`), by its values and their chances, or, as in the paper, as a constant.
Constants add up apart (`shift_s`), and so does the chance that nothing random took any time (`atom`); where stages have
steps, `_steps` has them.

On time means delay < allowed, strictly; times are compared as whole nanoseconds. Behind an overloaded station nothing
is on time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tidings.compiled import compiled
from tidings.prediction._flows import Array, Layout, Stations
from tidings.prediction._inversion import contour, fraction_of, value_at
from tidings.prediction._knowledge import FloatArray, IntArray
from tidings.prediction._renewal import NO_WAIT
from tidings.prediction._stages import Atoms, Stage, discrete_stage
from tidings.prediction._steps import HALF_NS, MOST_STEPS, Steps

__all__ = ["PathDelays", "Place", "Waits", "residual_transforms", "stage_transforms"]

_BAND = 4.0  # one contour serves times within this factor
_ROOT_POINTS, _ROOT_STEPS = 33, 3

Place = Literal["arrived", "sent"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits:
    """How long events wait: sigma and the chance of no wait at all by [publisher, station], a constant by station;
    `is_stuck`: overload.

    `idle` is 1 - sigma, but where expired events are shed: there the transform idle / (1 - sigma Be(s)) is good for
    times up to the deadline only (`_expiry`), and sigma may be 1 or more. `known[p, station]` is the number of one of
    `values`, the whole distribution of the wait (sigma is 0 there, idle 1); 0 is no wait. `is_exact` says where a
    publisher that is not Poisson has a queue to itself.
    """

    sigma: FloatArray
    idle: FloatArray
    constant_s: FloatArray
    is_stuck: Array
    known: IntArray
    is_exact: Array
    values: Sequence[Atoms] = (NO_WAIT,)


def stage_transforms(stages: Sequence[Stage], s: Array) -> Array:
    """[stage, point]: the transform of each stage's random part."""
    return np.array([np.asarray(stage.transform(s), np.complex128) for stage in stages])


def residual_transforms(layout: Layout, stations: Stations, transforms: Array, s: Array) -> Array:
    """[station, point]: the transform of the residual of a service, over all events that the station serves."""
    shifts = np.array([stage.shift_s for stage in layout.stages])
    whole = transforms * np.exp(-np.multiply.outer(shifts, s))
    means = stations.mean_s
    out = np.ones((len(means), len(s)), np.complex128)
    busy = np.flatnonzero((means > 0.0) & (stations.total_per_s > 0.0))
    mixed = np.zeros((len(busy), len(s)), np.complex128)
    service = layout.service[:, busy]
    if len(layout.service) and (service == service[0]).all():
        mixed = whole[service[0]]
    else:
        share = stations.rate_per_s[:, busy] / stations.total_per_s[busy]
        for p in range(len(service)):
            mixed += share[p][:, None] * whole[service[p]]
    out[busy] = (1.0 - mixed) / (s[None, :] * means[busy][:, None])
    return out


class PathDelays:
    """Distribution functions of delays, for one state of the stations.

    `is_whole` says that they are: where expired events are shed, distributions hold up to the deadline only.
    """

    def __init__(self, layout: Layout, stations: Stations, waits: Waits) -> None:
        self._layout, self._stations, self._waits = layout, stations, waits
        self._tables: dict[int, tuple[Array, Array, Array]] = {}
        self._waited = [_wait_stage(*values) for values in waits.values]
        self._shift_of = np.array([stage.shift_s for stage in layout.stages])
        self._atom_of = np.array([stage.at_shift for stage in layout.stages])
        self._steps_at = np.array([stage.has_steps for stage in layout.stages])
        self._discrete = np.flatnonzero([stage.is_discrete for stage in layout.stages])
        self._waits_atom = np.array([stage.at_shift for stage in self._waited])[waits.known] * waits.idle
        self._growth_per_s = self._growth()
        self.is_whole = bool(np.array_equal(waits.idle, 1.0 - waits.sigma))

    def chances(self, publisher: int, brokers: IntArray, t_s: FloatArray, place: Place = "arrived") -> FloatArray:
        """P[delay < t] from the publisher to each broker: until it is through with the event, or (`sent`) until the
        link into the broker begins to transmit it."""
        total = np.zeros(len(brokers))
        for share, service in self._layout.by_size[publisher]:
            total += share * self._chances(publisher, service, brokers, t_s, is_sent=place == "sent")
        return total

    def _chances(
        self, publisher: int, service: IntArray, brokers: IntArray, t_s: FloatArray, *, is_sent: bool
    ) -> FloatArray:
        shift_s, atom, is_stuck = self.constants(publisher, service, is_sent=is_sent)
        left_s = t_s - shift_s[brokers]
        reached = ~is_stuck[brokers] & self._reached(publisher)[brokers]
        endless = reached & np.isposinf(left_s)
        asked = np.flatnonzero(reached & (left_s > HALF_NS) & ~endless)
        out = np.where(endless, 1.0, 0.0)
        steps = self._steps(publisher, service, is_sent=is_sent)
        if steps is None:
            rest = self._rest(publisher, service, brokers[asked], left_s[asked], atom, None, is_sent=is_sent)
            out[asked] = atom[brokers[asked]] + rest
        else:
            rows, after_s, chances = steps.asked(brokers[asked], left_s[asked])
            possible = after_s > HALF_NS
            rows, after_s, chances = rows[possible], after_s[possible], chances[possible]
            at = brokers[asked][rows]
            rest = self._rest(publisher, service, at, after_s, steps.mass(), steps, is_sent=is_sent)
            out[asked] = np.bincount(rows, chances * (steps.below(at, after_s) + rest), minlength=len(asked))
        # What is asked of a distribution that holds up to a deadline only may be more than 1 until its height has been
        # found.
        return np.maximum(out, 0.0) if is_sent else np.clip(out, 0.0, 1.0)

    def _steps(self, publisher: int, service: IntArray, *, is_sent: bool) -> Steps | None:
        """Where the distribution functions of the delays jump; None if nowhere but where nothing is added."""
        layout, known = self._layout, self._waits.known[publisher]
        has_steps = self._steps_at[service].any() or self._steps_at[layout.delay].any()
        if not has_steps and not any(self._waited[number].has_steps for number in np.unique(known).tolist()):
            return None
        waits = [self._waited[number] if number else None for number in known.tolist()]
        return Steps(layout, publisher, service, waits, self._waits.idle[publisher], is_sent=is_sent)

    def _rest(
        self,
        publisher: int,
        service: IntArray,
        brokers: IntArray,
        left_s: FloatArray,
        mass: FloatArray,
        steps: Steps | None,
        *,
        is_sent: bool,
    ) -> FloatArray:
        """What is below each time besides steps and atoms, of which the latter have `mass` by broker."""
        out = np.zeros(len(brokers))
        asked = np.flatnonzero(mass[brokers] < 1.0 - 1e-12)
        bands = np.ceil(np.log(left_s[asked]) / math.log(_BAND) - 1e-12).astype(np.int64)
        for band in np.unique(bands).tolist():
            chosen = asked[bands == band]
            chosen = chosen[np.argsort(brokers[chosen], kind="stable")]
            s, decay, span = contour(_BAND**band, self._growth_per_s)
            if band not in self._tables:
                self._tables[band] = self._tables_at(s)
            transforms, residuals, waited = self._tables[band]
            if steps is not None:
                transforms, waited = transforms.copy(), waited.copy()
                transforms[self._discrete] = 1.0
                waited[[stage.is_discrete for stage in self._waited]] = 1.0
            whole = self._whole(publisher, service, transforms, residuals, waited, is_sent=is_sent)
            rest = whole - (mass[:, None] if steps is None else steps.transforms(s))
            found = np.zeros(len(chosen))
            _invert_rows(rest, s, decay, span, brokers[chosen], left_s[chosen], found)
            out[chosen] = found
        return out

    def constants(
        self, publisher: int, service: IntArray | None = None, *, is_sent: bool = False
    ) -> tuple[FloatArray, FloatArray, Array]:
        """By broker: the constant part of the delay, the chance that nothing is added to it, and overload before it."""
        layout, waits = self._layout, self._waits
        n = layout.mass.shape[1]
        shift_s, atom, is_stuck = np.zeros(n), np.zeros(n), np.zeros(n, np.bool_)
        _walk_constants(
            layout.order[publisher],
            layout.parent[publisher],
            layout.link[publisher],
            layout.service[publisher] if service is None else service,
            layout.delay,
            self._shift_of,
            self._atom_of,
            self._waits_atom[publisher],
            waits.constant_s,
            waits.is_stuck,
            is_sent,
            shift_s,
            atom,
            is_stuck,
        )
        return shift_s, atom, is_stuck

    def outlived(self, publisher: int, brokers: IntArray, mean_s: float) -> FloatArray:
        """P[delay < an exponential lifetime of this mean]: the transform at 1 / mean, without any inversion."""
        tables = self._tables_at(np.array([1.0 / mean_s + 0.0j]))
        total = np.zeros(len(brokers))
        for share, service in self._layout.by_size[publisher]:
            shift_s, _, is_stuck = self.constants(publisher, service)
            whole = self._whole(publisher, service, *tables, is_sent=False)[:, 0].real
            chance = np.where(self._reached(publisher) & ~is_stuck, whole * np.exp(-shift_s / mean_s), 0.0)
            total += share * chance[brokers]
        return total

    def _growth(self) -> float:
        """The rate at which distributions grow that hold up to a deadline only: the largest s with sigma Be(s) = 1."""
        steepest = self._waits.sigma.max(axis=0, initial=0.0)
        over = np.flatnonzero((steepest >= 1.0) & (self._stations.mean_s > 0.0))
        if not len(over):
            return 0.0
        # Be(s) < 1 / (s mean), so the root is below sigma / mean.
        low, high = 0.0, float((steepest[over] / self._stations.mean_s[over]).max())
        for _ in range(_ROOT_STEPS):
            s = np.linspace(low, high, _ROOT_POINTS)[1:] + 0.0j
            _, residuals, _ = self._tables_at(s)
            is_beyond = (steepest[over][:, None] * residuals[over].real < 1.0).all(axis=0)
            first = int(np.argmax(is_beyond)) if is_beyond.any() else len(s) - 1
            low, high = low if first == 0 else float(s[first - 1].real), float(s[first].real)
        return high

    def _reached(self, publisher: int) -> Array:
        members = self._layout.order[publisher]
        reached = np.zeros(len(members), np.bool_)
        reached[members[members >= 0]] = True
        return reached

    def _tables_at(self, s: Array) -> tuple[Array, Array, Array]:
        transforms = stage_transforms(self._layout.stages, s)
        residuals = residual_transforms(self._layout, self._stations, transforms, s)
        return transforms, residuals, stage_transforms(self._waited, s)

    def _whole(
        self, publisher: int, service: IntArray, transforms: Array, residuals: Array, waited: Array, *, is_sent: bool
    ) -> Array:
        layout = self._layout
        return _prefixes(
            layout.order[publisher],
            layout.parent[publisher],
            layout.link[publisher],
            service,
            layout.delay,
            self._waits.sigma[publisher],
            self._waits.idle[publisher],
            self._waits.known[publisher],
            transforms,
            residuals,
            waited,
            is_sent,
        )


def _wait_stage(points_s: FloatArray, chances: FloatArray) -> Stage:
    """Many values are a lattice that stands for a density, with no step but the chance of no wait."""
    made = discrete_stage(points_s, chances)
    return made if len(points_s) <= MOST_STEPS else replace(made, atoms=(points_s[:1], chances[:1]))


@compiled
def _walk_constants(
    order: Array,
    parent: Array,
    link: Array,
    service: Array,
    delay: Array,
    shift_of: Array,
    atom_of: Array,
    idle: Array,
    constant_s: Array,
    stuck: Array,
    is_sent: bool,
    shift_s: Array,
    atom: Array,
    is_stuck: Array,
) -> None:
    """Fills the last three; with `is_sent` what is known when the link into the broker begins to transmit."""
    n = len(order)
    whole_shift, whole_atom, whole_stuck = np.zeros(n), np.ones(n), np.zeros(n, np.bool_)
    for place in range(n):
        broker = order[place]
        if broker < 0:
            break
        ahead, chance, blocked = 0.0, 1.0, False
        if place > 0:
            above, station = parent[broker], n + link[broker]
            ahead = whole_shift[above] + constant_s[station]
            chance = whole_atom[above] * idle[station]
            blocked = whole_stuck[above] or stuck[station]
            shift_s[broker], atom[broker], is_stuck[broker] = ahead, chance, blocked
            ahead += shift_of[service[station]] + shift_of[delay[station]]
            chance *= atom_of[service[station]] * atom_of[delay[station]]
        ahead += constant_s[broker] + shift_of[service[broker]] + shift_of[delay[broker]]
        chance *= idle[broker] * atom_of[service[broker]] * atom_of[delay[broker]]
        whole_shift[broker], whole_atom[broker] = ahead, chance
        whole_stuck[broker] = blocked or stuck[broker]
        if not is_sent:
            shift_s[broker], atom[broker], is_stuck[broker] = ahead, chance, whole_stuck[broker]


@compiled
def _prefixes(
    order: Array,
    parent: Array,
    link: Array,
    service: Array,
    delay: Array,
    sigma: Array,
    idle: Array,
    known: Array,
    transforms: Array,
    residuals: Array,
    waited: Array,
    is_sent: bool,
) -> Array:
    """[broker, point]: the transform of the random part of the delay, a product along the path."""
    n, points = len(order), transforms.shape[1]
    whole = np.ones((n, points), np.complex128)
    sent = np.ones((n if is_sent else 0, points), np.complex128)
    for place in range(n):
        broker = order[place]
        if broker < 0:
            break
        station = n + link[broker]
        for k in range(points):
            value = 1.0 + 0.0j
            if place > 0:
                value = whole[parent[broker], k]
                value *= idle[station] / (1.0 - sigma[station] * residuals[station, k]) * waited[known[station], k]
                if is_sent:
                    sent[broker, k] = value
                value *= transforms[service[station], k] * transforms[delay[station], k]
            value *= idle[broker] / (1.0 - sigma[broker] * residuals[broker, k]) * waited[known[broker], k]
            whole[broker, k] = value * transforms[service[broker], k] * transforms[delay[broker], k]
    return sent if is_sent else whole


@compiled
def _invert_rows(rest: Array, s: Array, decay: float, span: float, brokers: Array, left_s: Array, out: Array) -> None:
    """P[random part < left] but for its atoms, for queries in the order of their brokers."""
    points = len(s)
    values, fraction = np.zeros(points, np.complex128), np.zeros(points, np.complex128)
    quotients, differences = np.zeros(points, np.complex128), np.zeros(points, np.complex128)
    before = -1
    for query in range(len(brokers)):
        broker = brokers[query]
        if broker != before:
            for k in range(points):
                values[k] = rest[broker, k] / s[k]
            fraction_of(values, fraction, quotients, differences)
            before = broker
        out[query] = value_at(left_s[query], fraction, decay, span)
