"""Steps: where the distribution function of a delay jumps, exactly.

A Fourier series draws a jump as a slope. So along a path

    delay = shift + steps + rest,   P[delay < t] = sum over steps x of chance(x) P[rest < t - shift - x].

`steps` is the sum of the stages that are discrete, convolved value by value; `rest` is the sum of the others. These may
have atoms beside a density (an idle queue, equal quantiles): P[rest < t] is the sum of its atoms plus an inversion
of the transform without them.

Values closer than half a nanosecond are merged. A path with more than MOST_STEPS values keeps that many, each at the
mean of those it replaces: the error of P is less than the chance of one of them.
"""

from collections.abc import Sequence

import numpy as np

from tidings.prediction._flows import Array, Layout
from tidings.prediction._knowledge import FloatArray, IntArray
from tidings.prediction._stages import Atoms, Stage

__all__ = ["HALF_NS", "MOST_STEPS", "Steps", "convolved"]

HALF_NS = 0.5e-9
MOST_STEPS = 512
_LEAST = 1e-4  # lighter atoms of the rest stay in its transform

_ZERO: Atoms = (np.zeros(1), np.ones(1))
_NONE: Atoms = (np.zeros(0), np.zeros(0))


def convolved(one: Atoms, other: Atoms) -> Atoms:
    """The sums of two independent values, in ascending order, with their chances."""
    if not len(one[0]) or not len(other[0]):
        return _NONE
    points = np.add.outer(one[0], other[0]).ravel()
    chances = np.multiply.outer(one[1], other[1]).ravel()
    if len(points) == 1:
        return points, chances
    order = np.argsort(points, kind="stable")
    points, chances = points[order], chances[order]
    group = np.concatenate([[0], np.cumsum(np.diff(points) > HALF_NS)])
    if group[-1] >= MOST_STEPS:
        middle = np.cumsum(chances) - 0.5 * chances
        group = np.unique((middle / chances.sum() * MOST_STEPS).astype(np.int64), return_inverse=True)[1]
    mass = np.asarray(np.bincount(group, chances), np.float64)
    return np.bincount(group, points * chances) / mass, mass


class Steps:
    """The steps and atoms of the delays from one publisher to the brokers of its tree.

    `discrete[broker]` are the values of the stages that have no others, `atoms[broker]` those of the rest. `waits` by
    station is the stage of its wait, None where that has no more than a chance `idle` to be nothing; with `is_sent` it
    is the delay until the link into the broker begins to transmit.
    """

    def __init__(
        self,
        layout: Layout,
        publisher: int,
        service: IntArray,
        waits: Sequence[Stage | None],
        idle: FloatArray,
        *,
        is_sent: bool,
    ) -> None:
        members = layout.order[publisher]
        n = len(members)
        self.discrete: list[Atoms] = [_ZERO] * n
        self.atoms: list[Atoms] = [_NONE] * n
        whole: list[tuple[Atoms, Atoms]] = [(_ZERO, _ZERO)] * n

        def waited(so_far: tuple[Atoms, Atoms], station: int) -> tuple[Atoms, Atoms]:
            own = waits[station]
            if own is not None:
                return _added(so_far, own)
            return so_far[0], (so_far[1][0], so_far[1][1] * idle[station])

        def served(so_far: tuple[Atoms, Atoms], station: int) -> tuple[Atoms, Atoms]:
            after = _added(so_far, layout.stages[service[station]])
            return _added(after, layout.stages[layout.delay[station]])

        for place, broker in enumerate(members[members >= 0].tolist()):
            here = (_ZERO, _ZERO)
            if place > 0:
                via = n + int(layout.link[publisher, broker])
                here = waited(whole[layout.parent[publisher, broker]], via)
                if is_sent:
                    self.discrete[broker], self.atoms[broker] = here
                here = served(here, via)
            whole[broker] = served(waited(here, broker), broker)
            if not is_sent:
                self.discrete[broker], self.atoms[broker] = whole[broker]

    def asked(self, brokers: IntArray, left_s: FloatArray) -> tuple[Array, FloatArray, FloatArray]:
        """Every question once for each step: the number of the question, the time left after it, and its chance."""
        counts = np.array([len(self.discrete[broker][0]) for broker in brokers.tolist()], np.int64)
        points = np.concatenate([self.discrete[broker][0] for broker in brokers.tolist()] or [np.zeros(0)])
        chances = np.concatenate([self.discrete[broker][1] for broker in brokers.tolist()] or [np.zeros(0)])
        rows = np.repeat(np.arange(len(brokers)), counts)
        return rows, left_s[rows] - points, chances

    def below(self, brokers: IntArray, left_s: FloatArray) -> FloatArray:
        """What the atoms of the rest have below each time."""
        out = np.zeros(len(brokers))
        for broker in np.unique(brokers).tolist():
            points, chances = self.atoms[broker]
            sums = np.concatenate([[0.0], np.cumsum(chances)])
            chosen = np.flatnonzero(brokers == broker)
            out[chosen] = sums[np.searchsorted(points, left_s[chosen] - HALF_NS)]
        return out

    def mass(self) -> FloatArray:
        """By broker, what the atoms of the rest have together."""
        return np.array([chances.sum() for _, chances in self.atoms])

    def transforms(self, s: Array) -> Array:
        """[broker, point]: the transform of the atoms of the rest."""
        out = np.zeros((len(self.atoms), len(s)), np.complex128)
        for broker, (points, chances) in enumerate(self.atoms):
            if len(points):
                out[broker] = np.exp(-np.multiply.outer(s, points)) @ chances
        return out


def _added(so_far: tuple[Atoms, Atoms], stage: Stage) -> tuple[Atoms, Atoms]:
    """With one stage more, its shift taken off: discrete ones count apart."""
    discrete, atoms = so_far
    if stage.is_discrete:
        return convolved(discrete, stage.atoms), atoms
    if stage.at_shift == 1.0:
        return so_far
    points, chances = convolved(atoms, stage.atoms)
    heavy = chances >= _LEAST
    heavy[np.argsort(-chances)[MOST_STEPS:]] = False
    return discrete, (points[heavy], chances[heavy])
