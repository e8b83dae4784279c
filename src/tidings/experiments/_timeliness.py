"""Paper B, section 5: predicted against simulated on-time reliability, on the networks of Table 3.

For each model and each of the six pairs of publishing and service distributions: the mean of |R' - R| over subscribers
and topologies, with R from a simulation. A prediction cannot be better than the simulation's own sampling noise:
`noise.exp-exp` is that floor, from pairs of runs that differ only in their random numbers. With periodic publishers a
run has phases that nobody can know beforehand, and R depends on them for as long as it runs: `bound.*` (full scale
only) is how far single runs are from the mean of runs with other phases, which no prediction can beat.

`low.*` is the second setting: a quarter of the service time, where the paper's tight scatter appears. `alpha.*` is our
model with exponential distributions and content known to the power alpha (section 5.4).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.experiments._claims import Claim, claim
from tidings.experiments._processes import worker_processes
from tidings.experiments._timeliness_network import COMBINATIONS, PER_SUBSCRIPTION_S, Shape, table_3
from tidings.model.scenario import Network
from tidings.prediction import ContentMatcher, Knowledge, Model, from_network, predict
from tidings.simulation import simulate

__all__ = ["Case", "TimelinessScale", "draw_scatter", "draw_timeliness", "timeliness"]

FloatArray = NDArray[np.float64]
Setting = Literal["literal", "low"]

MODELS: Final[tuple[Model, ...]] = ("mm1", "gg1", "ours")
ALPHAS: Final = (0.5, 0.75, 1.0, 1.5, 2.0)
PER_SUBSCRIPTION: Final[Mapping[Setting, float]] = {"literal": PER_SUBSCRIPTION_S, "low": PER_SUBSCRIPTION_S / 4.0}
_COLUMNS: Final = 3
_PANEL_IN: Final = 3.2
FIRST_SEED: Final = 101  # topologies that nothing was tuned on
_APART: Final = 100_000  # between the seeds of runs on one topology


class TimelinessScale(NamedTuple):
    """How much is run: topologies, simulated time after the warm-up (in the second setting, where there is little to
    see, a part of it), and runs with other phases for the bound."""

    topologies: int
    duration_s: float
    low_share: float
    phase_runs: int

    @classmethod
    def quick(cls) -> "TimelinessScale":
        """Short runs: the noise floor is then several times what our model is off by."""
        return cls(topologies=5, duration_s=4000.0, low_share=0.125, phase_runs=0)

    @classmethod
    def full(cls) -> "TimelinessScale":
        """Five times as long as the paper."""
        return cls(topologies=5, duration_s=50_000.0, low_share=0.2, phase_runs=4)

    def simulated_s(self, setting: Setting) -> float:
        return self.duration_s * (self.low_share if setting == "low" else 1.0)


class Case(NamedTuple):
    """One simulation: a setting, the two distributions, the topology, and the number of the run."""

    setting: Setting
    publish: Shape
    service: Shape
    seed: int
    run: int = 0

    @property
    def distributions(self) -> str:
        return f"{self.publish}-{self.service}"


Runs = Mapping[Case, FloatArray]
Predictions = Mapping[tuple[str, Case], FloatArray]


def timeliness(
    scale: TimelinessScale, *, progress: Callable[[float], None] | None = None, workers: int | None = None
) -> tuple[list[Claim], Runs, Predictions]:
    """All claims, the simulated reliabilities by case, and the predicted ones by model (or "alpha x") and case."""
    cases = list(_cases(scale))
    actual: dict[Case, FloatArray] = {}
    with worker_processes(workers) as pool:
        jobs = pool.map(_simulated, [(case, scale.simulated_s(case.setting)) for case in cases], chunksize=2)
        predicted: dict[tuple[str, Case], FloatArray] = {}
        steps = scale.topologies + len(cases)
        for number in range(scale.topologies):  # while the others simulate
            predicted |= _predictions(scale, FIRST_SEED + number)
            if progress is not None:
                progress((number + 1) / steps)
        for done, (case, found) in enumerate(zip(cases, jobs, strict=True)):
            actual[case] = found
            if progress is not None:
                progress((scale.topologies + done + 1) / steps)
    return _claims(scale, actual, predicted), actual, predicted


def _cases(scale: TimelinessScale) -> Iterator[Case]:
    for setting in PER_SUBSCRIPTION:
        for publish, service in COMBINATIONS:
            runs = 1
            if setting == "literal" and publish == "det":
                runs = 1 + scale.phase_runs
            elif setting == "literal" and (publish, service) == ("exp", "exp"):
                runs = 2
            for number in range(scale.topologies):
                yield from (Case(setting, publish, service, FIRST_SEED + number, run) for run in range(runs))


def _network(case: Case, duration_s: float) -> Network:
    network = table_3(
        publish=case.publish,
        service=case.service,
        seed=case.seed,
        duration_s=duration_s,
        per_subscription_s=PER_SUBSCRIPTION[case.setting],
    )
    return msgspec.structs.replace(network, seed=case.seed + _APART * case.run)


def _simulated(job: tuple[Case, float]) -> FloatArray:
    result = simulate(_network(*job))
    found = [row.on_time_reliability for row in result.subscribers.values()]
    return np.array([np.nan if each is None else each for each in found])


def _predictions(scale: TimelinessScale, seed: int) -> dict[tuple[str, Case], FloatArray]:
    """Of one topology: content and trees do not depend on the distributions, so they are computed once."""
    answers: dict[tuple[str, Case], FloatArray] = {}
    first = _network(Case("literal", "exp", "exp", seed), scale.duration_s)
    matcher = ContentMatcher([s.filter for s in first.subscriptions])
    for alpha in ALPHAS:
        knowledge = from_network(first, alpha=alpha, matcher=matcher)
        answers[f"alpha {alpha:g}", Case("literal", "exp", "exp", seed)] = predict(knowledge).reliability
    known = from_network(first, matcher=matcher)
    for setting in PER_SUBSCRIPTION:
        for publish, service in COMBINATIONS:
            case = Case(setting, publish, service, seed)
            changed = _with_distributions(known, _network(case, scale.duration_s))
            for model in MODELS:
                answers[model, case] = predict(changed, model=model).reliability
    return answers


def _with_distributions(knowledge: Knowledge, network: Network) -> Knowledge:
    pairs = zip(knowledge.publishers, network.publishers, strict=True)
    brokers = zip(knowledge.brokers, network.topology.brokers, strict=True)
    return replace(
        knowledge,
        publishers=tuple(replace(old, interval=new.interval) for old, new in pairs),
        brokers=tuple(replace(old, service=new.service) for old, new in brokers),
    )


def _claims(scale: TimelinessScale, actual: Runs, predicted: Predictions) -> list[Claim]:
    claims = []
    seeds = [FIRST_SEED + number for number in range(scale.topologies)]
    noise = _noise(actual, seeds)
    for setting, prefix in (("literal", ""), ("low", "low.")):
        for publish, service in COMBINATIONS:
            for model in MODELS:
                cases = [Case(_setting(setting), publish, service, seed) for seed in seeds]
                pairs = [_known(predicted[model, case], actual[case]) for case in cases]
                errors = [float(np.abs(guess - truth).mean()) for guess, truth in pairs]
                over = float(np.mean([(guess - truth).mean() for guess, truth in pairs]))
                note = f"R' - R is {over:+.4f} on average"
                if setting == "literal":
                    rest = math.sqrt(max(0.0, float(np.mean(errors)) ** 2 - float(np.mean(noise)) ** 2))
                    note += f"; {rest:.4f} with the sampling noise taken off"
                claims.append(claim(f"{prefix}mae.{model}.{publish}-{service}", errors, unit="share", note=note))
    claims.append(claim("noise.exp-exp", noise, unit="share", note=f"{scale.duration_s:g} s simulated"))
    if scale.phase_runs:
        for service in ("exp", "uni"):
            bound = _bound(actual, seeds, _shape(service), scale.phase_runs)
            note = "single runs against the mean of runs with other phases"
            claims.append(claim(f"bound.det-{service}", bound, unit="share", note=note))
    for alpha in ALPHAS:
        cases = [Case("literal", "exp", "exp", seed) for seed in seeds]
        pairs = [_known(predicted[f"alpha {alpha:g}", case], actual[case]) for case in cases]
        errors = [float(np.abs(guess - truth).mean()) for guess, truth in pairs]
        claims.append(claim(f"alpha.{alpha:g}", errors, unit="share"))
    return claims


def _setting(name: str) -> Setting:
    return "low" if name == "low" else "literal"


def _shape(name: str) -> Shape:
    return "exp" if name == "exp" else "uni"


def _known(predicted: FloatArray, actual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The subscribers that both say something about."""
    both = ~(np.isnan(predicted) | np.isnan(actual))
    return predicted[both], actual[both]


def _noise(actual: Runs, seeds: Sequence[int]) -> list[float]:
    """By topology: what |R' - R| would be on average if R' were the truth; two runs differ by sqrt(2) times that."""
    found = []
    for seed in seeds:
        one, other = (actual[Case("literal", "exp", "exp", seed, run)] for run in (0, 1))
        found.append(float(np.nanmean(np.abs(one - other)) / np.sqrt(2.0)))
    return found


def _bound(actual: Runs, seeds: Sequence[int], service: Shape, runs: int) -> list[float]:
    found = []
    for seed in seeds:
        each = np.array([actual[Case("literal", "det", service, seed, run)] for run in range(1 + runs)])
        others = (each.sum(axis=0) - each) / runs
        # The mean of the others is itself off by a share 1 / runs of the variance.
        found.append(float(np.nanmean(np.abs(each - others)) / np.sqrt(1.0 + 1.0 / runs)))
    return found


def draw_timeliness(actual: Runs, predicted: Predictions, folder: Path) -> list[Path]:
    """Figures 4 (M/M/1), 5 (G/G/1) and 6 (alpha) of the paper, and ours like them, as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    titles = {"mm1": "Figure 4: M/M/1", "gg1": "Figure 5: G/G/1", "ours": "Ours: whole waiting distributions"}
    names = {"mm1": "figure-4", "gg1": "figure-5", "ours": "ours"}
    written = []
    for model in MODELS:
        panels = {}
        for publish, service in COMBINATIONS:
            panels[f"{publish}-{service}"] = _points(
                model, [c for c in actual if c[:3] == ("literal", publish, service) and c.run == 0], actual, predicted
            )
        written.append(folder / f"{names[model]}.png")
        draw_scatter(panels, written[-1], title=titles[model])
    cases = [case for case in actual if case[:3] == ("literal", "exp", "exp") and case.run == 0]
    blurred = {f"alpha = {alpha:g}": _points(f"alpha {alpha:g}", cases, actual, predicted) for alpha in ALPHAS}
    written.append(folder / "figure-6.png")
    draw_scatter(blurred, written[-1], title="Figure 6: imprecise content")
    return written


def _points(name: str, cases: Sequence[Case], actual: Runs, predicted: Predictions) -> tuple[FloatArray, FloatArray]:
    pairs = [_known(predicted[name, case], actual[case]) for case in cases]
    return np.concatenate([guess for guess, _ in pairs]), np.concatenate([truth for _, truth in pairs])


def draw_scatter(panels: Mapping[str, tuple[FloatArray, FloatArray]], path: Path, *, title: str = "") -> None:
    """One panel for each pair of arrays (predicted, actual), by heading; the format follows the file's name."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(_PANEL_IN * columns + 0.4, _PANEL_IN * rows + 0.5), layout="constrained")
    for number, (heading, (predicted, actual)) in enumerate(panels.items()):
        axes: Any = figure.add_subplot(rows, columns, number + 1)
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        axes.scatter(predicted, actual, s=8, alpha=0.5, linewidths=0)
        error = float(np.abs(predicted - actual).mean()) if len(predicted) else 0.0
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel="predicted", ylabel="actual")
        axes.set_title(f"{heading}, mean error {error:.3f}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)
