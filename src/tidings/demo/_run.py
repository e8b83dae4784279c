"""The steps of the demonstration, each by the part of Tidings that a user would call for it.

The on-time share of every subscriber is predicted from the scenario before anything runs. The scenario is simulated,
and the pipeline computes from the trace alone what each subscriber got. Single changes are estimated on the network as
it was described (`tidings.planning.what_if`), and their differences are added to what was measured. All changes
together are simulated: their shares are counted, not estimated.

A directory of an earlier demonstration is reused: its trace, tables and report are replaced. Any other directory that
contains something is refused.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tidings.demo._compilation import SIMULATIONS, compiling
from tidings.demo._values import Demonstration, Effect, OrderEffect, Standing
from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Network, Scenario
from tidings.planning import ChangeOutcome, MovePublisher, WhatIf, apply, what_if
from tidings.simulation import Result, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.pipeline import PipelineResult
    from tidings.report import Report

__all__ = ["STEPS", "run_demo"]

STEPS: Final = 6
GAIN: Final = 0.01
_MARK: Final = ".tidings-demo"
_MADE: Final = ("trace", "scores", "report.html")

Say = Callable[[str], None]
Stage = Callable[[str, float | None], None]
Start = Callable[[], "SparkSession"]
FloatArray = NDArray[np.float64]


def run_demo(
    scenario: Path, out: Path, *, session: "SparkSession | Start | None" = None, say: Say, stage: Stage
) -> Demonstration:
    """Run all steps and write everything to `out`.

    `session` is a Spark session or a function that starts one; without it, the pipeline runs in this process. `say` is
    called with each of the STEPS, `stage` with what happens in it and the share that is done, if that is known.
    """
    say(f"reading {scenario}{'' if session is None else ', starting Spark'}")
    network = Scenario.load(scenario).expand()
    _check(network)
    _prepare(out)
    spark = session() if callable(session) else session  # first of all, so that it does not fail after a minute
    say(
        "predicting the on-time share of every subscriber, now and with each change (the first time, compiling as well)"
    )
    with compiling(SIMULATIONS):  # on another processor, while this one predicts
        changes = what_if(network, report=lambda text: stage(text, None))
    say(f"simulating {_length(network)}")
    result = simulate(network, out=out / "trace", progress=lambda share: stage("simulating", share))
    say(f"computing {'on Spark, ' if spark is not None else ''}from the trace alone, who got what on time")
    measured = _measure(spark, out, stage)
    say(f"simulating {_length(network)} again, with all changes")
    every = [change for outcome in changes.changes for change in outcome.changes]
    after = simulate(apply(network, every), progress=lambda share: stage("simulating", share))
    say(f"writing {out / 'report.html'}")
    standings = _standings(network, measured, changes, after)
    report = _write_report(network, out, standings, changes)
    return Demonstration(
        title=network.title or str(scenario),
        scenario=str(scenario),
        trace=str(out / "trace"),
        scores=str(out / "scores"),
        report=str(out / "report.html"),
        simulated_s=result.duration_s,
        brokers=len(network.topology.brokers),
        events=result.published,
        deliveries=measured.matched,
        rows=sum(measured.rows.values()),
        on_time_share=report.headline.reliability,
        reliability=_mean([row.measured for row in standings]),
        error=_mean([_difference(row.predicted, row.measured) for row in standings]),
        unpredicted=changes.unpredicted,
        unmodelled=changes.unmodelled,
        reliability_all=_mean([row.all for row in standings]),
        effects=_effects(changes, _mean([row.measured for row in standings])),
        order=_order(after),
        worst=report.headline.worst,
        reason=report.subscriptions[0].reason.words if report.headline.worst is not None else None,
        subscribers=standings,
    )


def _check(network: Network) -> None:
    if not network.publishers or not network.subscriptions:
        raise ConfigurationError("the demo needs publishers and subscribers: add a group of each to the scenario")


def _prepare(out: Path) -> None:
    try:
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: is a file; give a directory with --out (it is created if missing)")
        if out.is_dir() and not (out / _MARK).exists() and any(out.iterdir()):
            raise InputError(
                f"{out}: has files that are not from an earlier demo; give another directory with --out, or remove it"
            )
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).touch()
        for name in _MADE:
            made = out / name
            if made.is_dir():
                shutil.rmtree(made)
            else:
                made.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}; give another --out") from None


def _length(network: Network) -> str:
    minutes = network.duration_s / 60.0
    return f"{minutes:g} minutes" if minutes < 120 else f"{minutes / 60.0:g} hours"


def _measure(spark: "SparkSession | None", out: Path, stage: Stage) -> "PipelineResult":
    if spark is None:
        from tidings.pipeline import run_in_process

        return run_in_process([out / "trace"], out / "scores", progress=lambda text: stage(text, None))
    from tidings.pipeline import run_pipeline

    return run_pipeline(spark, [out / "trace"], out / "scores", progress=lambda text: stage(text, None))


def _order(result: Result) -> OrderEffect | None:
    """How much arrives out of order with all changes, and how much of that receivers repair."""
    found = result.ordering
    if found is None:
        return None
    return OrderEffect(
        policy=found.policy,
        received=found.received,
        out_of_order=found.out_of_order,
        repaired=found.repaired,
        hold_ms_mean=found.hold_ms_mean,
    )


def _write_report(network: Network, out: Path, standings: tuple[Standing, ...], changes: WhatIf) -> "Report":
    from tidings.report import read_report, write_report

    shown: list[dict[str, Any]] = []
    for outcome in changes.changes:
        gains = (outcome.reliability - changes.now).tolist()
        after = {row.subscriber: _added(row.measured, gain) for row, gain in zip(standings, gains, strict=True)}
        shown.append(
            {
                "name": outcome.name,
                "description": outcome.description,
                "reliability": after,
                "moves": _moves(network, outcome),
            }
        )
    shown.append({"name": "all", "reliability": {row.subscriber: row.all for row in standings}})
    report = read_report(out / "scores", scenario=network, changes=shown)
    write_report(report, out / "report.html")
    return report


def _moves(network: Network, outcome: ChangeOutcome) -> list[dict[str, str]]:
    return [
        {"client": change.publisher, "origin": network.homes[change.publisher], "target": change.broker}
        for change in outcome.changes
        if isinstance(change, MovePublisher)
    ]


def _standings(network: Network, measured: "PipelineResult", changes: WhatIf, after: Result) -> tuple[Standing, ...]:
    gains = np.array([outcome.reliability - changes.now for outcome in changes.changes])
    rows = []
    for number, subscription in enumerate(network.subscriptions):
        score = measured.subscribers[subscription.id]
        share = score.on_time_reliability
        best = _best(gains[:, number]) if len(gains) else None
        rows.append(
            Standing(
                subscriber=subscription.id,
                broker=network.homes[subscription.subscriber],
                filter=str(subscription.filter),
                max_delay_s=subscription.max_delay_s,
                matched=score.matched,
                measured=share,
                predicted=_known(float(changes.now[number])),
                best=_added(share, 0.0 if best is None else float(gains[best, number])),
                best_change=None if best is None else changes.changes[best].name,
                all=None if share is None else after.subscribers[subscription.id].on_time_reliability,
            )
        )
    return tuple(rows)


def _best(gains: FloatArray) -> int | None:
    """The change that gains most; None if none gains more than a hundredth of a point."""
    number = int(np.argmax(np.nan_to_num(gains)))
    return number if gains[number] > 1e-4 else None


def _effects(changes: WhatIf, measured: float) -> tuple[Effect, ...]:
    found = []
    for outcome in changes.changes:
        gains = np.nan_to_num(outcome.reliability - changes.now)
        found.append(
            Effect(
                name=outcome.name,
                description=outcome.description,
                reliability=min(1.0, measured + float(gains.mean())),
                gaining=int((gains >= GAIN).sum()),
            )
        )
    return tuple(found)


def _known(share: float) -> float | None:
    return None if np.isnan(share) else share


def _added(share: float | None, gain: float) -> float | None:
    return None if share is None else min(1.0, max(0.0, share + (0.0 if np.isnan(gain) else gain)))


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


def _mean(shares: list[float | None]) -> float:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else 0.0
