"""The evaluations of the five papers, one after the other: each statement, our result, whether it holds, and why not.

An experiment that fails is reported in its place; the others continue.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from tidings.experiments._bounded_delay import Scale, bounded_delay, draw_figures
from tidings.experiments._claims import Claim
from tidings.experiments._fault_tolerance import FaultScale, draw_fault_tolerance, fault_tolerance
from tidings.experiments._fifo_ordering import OrderingScale, fifo_ordering
from tidings.experiments._fifo_ordering_statistics import draw_adaptivity
from tidings.experiments._headlines import Found, Headline, judge
from tidings.experiments._relocation import RelocationScale, draw_relocation, relocation
from tidings.experiments._timeliness import TimelinessScale, draw_timeliness, timeliness

__all__ = ["EXPERIMENTS", "Evaluation", "Experiment", "reproduce_all"]

ScaleName = Literal["quick", "full"]
Progress = Callable[[float], None]
Draw = Callable[[Path], list[Path]]


class Run(Protocol):
    """Runs an experiment; gives its claims, and how to draw its figures into a folder."""

    def __call__(self, scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]: ...


class Experiment(NamedTuple):
    letter: str
    name: str  # as in `tidings reproduce NAME`
    title: str
    run: Run


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one paper's experiments; if they failed, `error` is the reason."""

    letter: str
    name: str
    title: str
    seconds: float
    headlines: tuple[Headline, ...] = ()
    beyond: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[str, ...] = ()
    error: str | None = None


def reproduce_all(
    scale: ScaleName = "quick",
    *,
    figures: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
    experiments: Sequence[Experiment] | None = None,
) -> list[Evaluation]:
    """Run all experiments; figures are drawn to a folder if one is given.

    `progress` is called with what runs and the share of it that is done.
    """
    chosen = EXPERIMENTS if experiments is None else experiments
    evaluations = []
    for number, experiment in enumerate(chosen):
        what = f"paper {experiment.letter}, {experiment.name} ({number + 1} of {len(chosen)})"
        report: Progress | None = None
        if progress is not None:
            progress(what, 0.0)
            report = _reporter(progress, what)
        evaluations.append(_evaluate(experiment, scale, figures, report))
    return evaluations


def _reporter(progress: Callable[[str, float], None], what: str) -> Progress:
    return lambda share: progress(what, share)


def _evaluate(experiment: Experiment, scale: ScaleName, figures: Path | None, progress: Progress | None) -> Evaluation:
    letter, name, title, run = experiment
    begun_s = time.monotonic()
    try:
        claims, draw = run(scale, progress=progress)
        drawn = [] if figures is None else draw(figures / name)
        headlines, beyond = judge(letter, claims), BEYOND[letter](Found(claims))
    except Exception as error:  # whatever it is, the other papers' answers are still wanted
        seconds = time.monotonic() - begun_s
        return Evaluation(
            letter=letter, name=name, title=title, seconds=seconds, error=f"{type(error).__name__}: {error}"
        )
    return Evaluation(
        letter=letter,
        name=name,
        title=title,
        seconds=time.monotonic() - begun_s,
        headlines=headlines,
        beyond=beyond,
        claims=tuple(claims),
        figures=tuple(str(path) for path in drawn),
    )


def _run_fifo_ordering(scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]:
    claims, series = fifo_ordering(getattr(OrderingScale, scale)(), progress=progress)
    return claims, lambda folder: [draw_adaptivity(series, folder)]


def _run_timeliness(scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]:
    claims, actual, predicted = timeliness(getattr(TimelinessScale, scale)(), progress=progress)
    return claims, lambda folder: draw_timeliness(actual, predicted, folder)


def _run_bounded_delay(scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]:
    chosen = getattr(Scale, scale)()
    claims, outcomes = bounded_delay(chosen, progress=progress)
    return claims, lambda folder: draw_figures(outcomes, chosen, folder)


def _run_fault_tolerance(scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]:
    claims, outcomes = fault_tolerance(getattr(FaultScale, scale)(), progress=progress)
    return claims, lambda folder: draw_fault_tolerance(outcomes, folder)


def _run_relocation(scale: ScaleName, *, progress: Progress | None) -> tuple[list[Claim], Draw]:
    claims, found = relocation(getattr(RelocationScale, scale)(), progress=progress)
    return claims, lambda folder: draw_relocation(found, folder)


EXPERIMENTS: Final = (
    Experiment("A", "fifo-ordering", "Probabilistic FIFO Ordering in Publish/Subscribe Networks", _run_fifo_ordering),
    Experiment(
        "B",
        "timeliness",
        "Towards Timeliness and Reliability Analysis of Distributed Content-based Publish/Subscribe Systems over "
        "Best-effort Networks",
        _run_timeliness,
    ),
    Experiment(
        "C",
        "bounded-delay",
        "Achieving Bounded Delay on Message Delivery in Publish/Subscribe Systems",
        _run_bounded_delay,
    ),
    Experiment(
        "D",
        "fault-tolerance",
        "Fault tolerance and reliability of publish/subscribe systems",
        _run_fault_tolerance,
    ),
    Experiment(
        "E",
        "relocation",
        "Publisher Relocation Algorithms for Minimizing Average Delivery Delay and System Load",
        _run_relocation,
    ),
)


def _beyond_ordering(found: Found) -> tuple[str, ...]:
    repaired = [share for name, share in found.values("mitigation.").items() if name.endswith("ours-record")]
    aimed = [share for name, share in found.values("mitigation.").items() if name.endswith("ours-quantile")]
    return (
        f"`ours-record` repairs {min(repaired):.1f} to {max(repaired):.1f} % in all four networks; `ours-quantile`, "
        f"which aims at 99 % and needs no record, {min(aimed):.1f} to {max(aimed):.1f} %.",
    )


def _beyond_timeliness(found: Found) -> tuple[str, ...]:
    ours = found.values("mae.ours.")
    return (
        f"With the whole distribution of the wait instead of its mean, |R' - R| is {min(ours.values()):.3f} to "
        f"{max(ours.values()):.3f}; sampling alone makes {found['noise.exp-exp']:.3f}.",
    )


def _beyond_bounded_delay(found: Found) -> tuple[str, ...]:
    gains = [
        100 * (found[f"{what}.single-path.15.ours"] / found[f"{what}.single-path.15.ebpc"] - 1)
        for what in ("delivery", "earning")
    ]
    return (
        f"Looking ahead on spread routes delivers {gains[0]:+.1f} % and earns {gains[1]:+.1f} % against EBPC, on one "
        "path at rate 15.",
    )


def _beyond_fault_tolerance(found: Found) -> tuple[str, ...]:
    stored = found["lag.buffer"]
    return (
        f"What the paper leaves out, on the path of three brokers: to acknowledge before it is known where an event "
        f"has to go costs {stored - found['trap.early']:.3f}, subscriptions that are forgotten after half an hour "
        f"{stored - found['trap.timeout']:.3f}.",
    )


def _beyond_relocation(found: Found) -> tuple[str, ...]:
    late, kept = (found[f"ontime.clustered.16.{policy}"] for policy in ("grape-delay100", "ours-ontime"))
    moved = found["subscribers.random.63.rate"]
    return (
        f"Placed by deadlines, {kept:.1f} % of quotes are on time where GRAPE has {late:.1f} %, with readers on 16 "
        f"brokers. If readers may move too, the random workload's message rate changes by {moved:+.0f} %.",
    )


BEYOND: Final[Mapping[str, Callable[[Found], tuple[str, ...]]]] = {
    "A": _beyond_ordering,
    "B": _beyond_timeliness,
    "C": _beyond_bounded_delay,
    "D": _beyond_fault_tolerance,
    "E": _beyond_relocation,
}
