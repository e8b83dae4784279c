"""The same scenario by four methods, and whether they agree.

| method | what it is |
| --- | --- |
| simulator | the compiled model of queues, links, failures and schemes |
| protocol | the real brokers and clients in virtual time (`tidings storm --scenario`) |
| rehearsal | real broker processes on this machine, in scaled time |
| predictor | formulas, or a short sample with a seed of its own if they leave something out |

The first three process the same publications and outages, so they are compared event by event: the noise is that of the
difference over batches of time (`statistics.batch_share`). The predictor gives long-run values; it is compared with the
simulator's mean over independent seeds.

Two methods disagree about a subscription if their shares differ by more than a tolerance, that noise, and what the
machine may have made late. The level of the noise is such that all comparisons together raise a false alarm once in a
hundred times. A method that cannot be judged is shown with the reason: the machine is too slow for the scale, or the
predictor leaves something out that the scenario has.
"""

import math
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network as Scene
from tidings.prediction import predict_network
from tidings.rehearsal._noise import BATCHES, LEVEL, Batches, BoolArray, Estimate, estimate
from tidings.rehearsal._run import RehearsalResult, rehearse_script, require_rehearsable
from tidings.simulation import Result, Script, simulate, simulate_script
from tidings.statistics import BATCHES_LEAST, batch_share, student_quantile
from tidings.storm import PlayResult, play_script, require_playable

__all__ = ["WAYS", "Comparison", "Disagreement", "SubscriberComparison", "Way", "compare"]

Way = Literal["simulator", "protocol", "rehearsal", "predictor"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
FALSE_ALARMS: Final = 0.01
"""Over all comparisons of a scenario together."""
TOLERANCE: Final = 0.01
PREDICTOR_TOLERANCE: Final = 0.02
"""What the approximations of the predictor may cost beside noise."""
SEEDS: Final = 8

T = TypeVar("T")
Progress = Callable[[Way, float], None]


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two methods whose shares of a subscription differ by more than is allowed."""

    subscription: str
    one: Way
    other: Way
    difference: float
    allowed: float


class SubscriberComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its on-time share by each method (None: it matched nothing, or the method was skipped)."""

    matched: int
    shares: dict[Way, Estimate | None]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario by four methods. `total` is over all subscriptions; `unjudged` has the reasons why a method cannot be
    judged, `skipped` the reason why it was not run."""

    title: str
    seed: int
    seeds: int
    batches: int
    level: float
    tolerance: float
    predictor_tolerance: float
    published: int
    matched: int
    total: dict[Way, Estimate | None]
    subscriptions: dict[str, SubscriberComparison]
    disagreements: tuple[Disagreement, ...]
    unjudged: dict[Way, tuple[str, ...]]
    skipped: dict[Way, str]
    wall_s: dict[Way, float]
    machine_share_s: float | None
    scale: float | None

    @property
    def agrees(self) -> bool:
        """Whether all methods that can be judged agree."""
        return not self.disagreements


def compare(
    network: Scene,
    *,
    ways: Sequence[Way] = WAYS,
    scale: float = 10.0,
    seeds: int = SEEDS,
    tolerance: float = TOLERANCE,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run a scenario's network by each of these methods and compare the on-time shares; the rehearsal's files go to
    `out`."""
    _check(network, ways, scale, seeds)
    return _ComparisonRun(network, ways, scale, seeds, tolerance, out, progress).run()


def _check(network: Scene, ways: Sequence[Way], scale: float, seeds: int) -> None:
    for method in ways:
        if method not in WAYS:
            raise ConfigurationError(f"there is no method {method!r}: there are {', '.join(WAYS)}")
    if seeds < BATCHES_LEAST:
        raise ConfigurationError(f"{seeds} seeds are too few to estimate the noise: give {BATCHES_LEAST} or more")
    if "rehearsal" in ways:
        require_rehearsable(network, scale)
    elif "protocol" in ways:
        require_playable(network)


class _ComparisonRun:
    """A comparison while it is made."""

    def __init__(
        self,
        network: Scene,
        ways: Sequence[Way],
        scale: float,
        seeds: int,
        tolerance: float,
        out: Path | None,
        progress: Progress | None,
    ) -> None:
        self._network, self._ways, self._scale = network, ways, scale
        self._seeds, self._tolerance, self._out = seeds, tolerance, out
        self._progress = progress or (lambda _, __: None)
        self._wall_s: dict[Way, float] = {}
        self._unjudged: dict[Way, tuple[str, ...]] = {}
        self._skipped: dict[Way, str] = {
            method: "not requested" for method in WAYS if method not in (*ways, "simulator")
        }
        self._on_time: dict[Way, BoolArray] = {}
        self._rehearsed: RehearsalResult | None = None
        self._predicted: npt.NDArray[np.float64] | None = None
        self._predicted_within = np.zeros(len(network.subscriptions))
        self._results: list[Result] = []

    def run(self) -> Comparison:
        script, result = self._timed("simulator", lambda: simulate_script(self._network))
        self._script, self._results = script, [result]
        self._on_time["simulator"] = script.on_time()
        if "protocol" in self._ways:
            played = self._timed("protocol", lambda: self._play(script, result))
            self._on_time["protocol"] = script.judged(played.delays_ns)
        if "predictor" in self._ways:
            self._timed("predictor", self._predict)
        if "rehearsal" in self._ways:
            self._rehearsed = self._timed("rehearsal", lambda: self._rehearse(script))
            self._on_time["rehearsal"] = self._rehearsed.on_time_pairs
            if self._rehearsed.warnings:
                self._unjudged["rehearsal"] = self._rehearsed.warnings
        self._count()
        return self._compared()

    def _timed(self, method: Way, do: Callable[[], T]) -> T:
        self._progress(method, 0.0)
        began_s = time.monotonic()
        found = do()
        self._wall_s[method] = time.monotonic() - began_s
        self._progress(method, 1.0)
        return found

    def _play(self, script: Script, result: Result) -> PlayResult:
        return play_script(script, result, progress=lambda share: self._progress("protocol", share))

    def _rehearse(self, script: Script) -> RehearsalResult:
        return rehearse_script(
            script, scale=self._scale, out=self._out, progress=lambda share: self._progress("rehearsal", share)
        )

    def _predict(self) -> None:
        network = self._network
        found = predict_network(network)
        self._predicted = found.reliability
        if found.sample is not None:
            self._predicted_within = found.sample.half_widths
        if found.unmodelled:
            self._unjudged["predictor"] = tuple(f"not modelled: {each.what}" for each in found.unmodelled)
        for number in range(1, self._seeds):
            self._results.append(simulate(msgspec.structs.replace(network, seed=network.seed + number)))

    def _count(self) -> None:
        """Matched and on time by subscription and batch of time."""
        batches = Batches(self._script)
        self._matched = batches.matched
        self._hits = {method: batches.counts(on_time) for method, on_time in self._on_time.items()}
        if self._rehearsed is not None:
            self._forgiven = batches.counts(self._rehearsed.forgiven_pairs)

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _compared(self) -> Comparison:
        network, numbers = self._network, range(len(self._network.subscriptions))
        ids = [subscription.id for subscription in network.subscriptions]
        subscriptions = {
            ids[number]: SubscriberComparison(
                matched=int(self._matched[number].sum()),
                shares={method: self._estimate(method, slice(number, number + 1)) for method in WAYS},
            )
            for number in numbers
        }
        disagreements = [each for number in numbers for each in self._disagreements(number, ids[number])]
        rehearsed = self._rehearsed
        return Comparison(
            title=network.title,
            seed=network.seed,
            seeds=len(self._results),
            batches=BATCHES,
            level=LEVEL,
            tolerance=self._tolerance,
            predictor_tolerance=PREDICTOR_TOLERANCE,
            published=len(self._script.publications),
            matched=int(self._matched.sum()),
            total={method: self._estimate(method, slice(None)) for method in WAYS},
            subscriptions=subscriptions,
            disagreements=tuple(disagreements),
            unjudged=self._unjudged,
            skipped=self._skipped,
            wall_s=self._wall_s,
            machine_share_s=None if rehearsed is None else rehearsed.machine_share_s,
            scale=None if rehearsed is None else rehearsed.scale,
        )

    def _estimate(self, method: Way, which: slice) -> Estimate | None:
        matched = self._matched[which].sum(axis=0)
        if not matched.sum():
            return None
        if method == "predictor":
            if self._predicted is None:
                return None
            weights = self._matched[which].sum(axis=1)
            share = float(np.dot(self._predicted[which][weights > 0], weights[weights > 0]) / weights.sum())
            return Estimate(share=share, low=share, high=share)
        return estimate(self._hits[method][which].sum(axis=0), matched) if method in self._hits else None

    def _disagreements(self, number: int, id: str) -> list[Disagreement]:
        runs: list[Way] = [method for method in ("simulator", "protocol", "rehearsal") if method in self._hits]
        judged = [method for method in runs if method not in self._unjudged]
        found = [self._difference(number, id, one, other) for one, other in combinations(judged, 2)]
        if self._predicted is not None and "predictor" not in self._unjudged:
            found.append(self._from_prediction(number, id))
        return [each for each in found if each is not None and abs(each.difference) > each.allowed]

    @property
    def _level(self) -> float:
        """Of one comparison, so that all of them together hardly ever raise a false alarm."""
        return 1.0 - FALSE_ALARMS / max(1, 4 * len(self._network.subscriptions))

    def _difference(self, number: int, id: str, one: Way, other: Way) -> Disagreement | None:
        """Of two runs of the same events; what the machine may have made late counts for neither."""
        matched = self._matched[number]
        hits = self._hits[other][number] - self._hits[one][number]
        found = batch_share(hits, matched)
        if math.isnan(found.error):
            return None
        difference = found.value
        if other == "rehearsal":
            most = float((self._forgiven[number] - self._hits[one][number]).sum() / matched.sum())
            difference = 0.0 if difference <= 0.0 <= most else min(difference, most, key=abs)
        allowed = self._tolerance + found.half_width(self._level)
        return Disagreement(subscription=id, one=one, other=other, difference=difference, allowed=allowed)

    def _from_prediction(self, number: int, id: str) -> Disagreement | None:
        assert self._predicted is not None
        shares = [result.subscribers[id].on_time_reliability for result in self._results]
        known = np.array([share for share in shares if share is not None])
        if len(known) < BATCHES_LEAST or math.isnan(self._predicted[number]):
            return None
        error = float(known.std(ddof=1)) / math.sqrt(len(known))
        return Disagreement(
            subscription=id,
            one="simulator",
            other="predictor",
            difference=float(self._predicted[number] - known.mean()),
            allowed=PREDICTOR_TOLERANCE
            + float(self._predicted_within[number])
            + error * student_quantile(self._level, len(known) - 1),
        )
