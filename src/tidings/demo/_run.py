"""The steps of the demonstration, each by the part of Tidings that a user would call for it.

What each subscriber will get is predicted from the scenario before anything is run; then the scenario is simulated, and
the Spark pipeline finds from the trace alone what each subscriber got. Changes are tried on the network as it was
described (`tidings.planning.what_if`), and their differences are added to what was measured.

A directory of an earlier demonstration is used again: its trace, tables and report are replaced. Any other directory
that holds something is refused.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.demo._compiling import compiling
from tidings.demo._values import Demonstration, Effect, OrderEffect, Standing
from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Network, Scenario
from tidings.model.scenario import Scheduling as SchedulingPolicy
from tidings.planning import WhatIf, what_if
from tidings.simulation import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.pipeline import PipelineResult

__all__ = ["STEPS", "by_deadlines_in_order", "run_demo"]

STEPS: Final = 6
ORDER_POLICY: Final = "ours-record"
ORDER_EVENTS: Final = 20_000
GAIN: Final = 0.01
_MARK: Final = ".tidings-demo"
_MADE: Final = ("trace", "scores", "report.html")

Say = Callable[[str], None]
Stage = Callable[[str, float | None], None]
Start = Callable[[], "SparkSession"]
FloatArray = NDArray[np.float64]


def run_demo(scenario: Path, out: Path, *, session: "SparkSession | Start", say: Say, stage: Stage) -> Demonstration:
    """Run all steps and write everything to `out`.

    `session` is a Spark session or a function that starts one. `say` is told each of the STEPS, `stage` what goes on in
    it, with the share that is done where that is known.
    """
    say(f"reading {scenario}, starting Spark, compiling kernels (some minutes, the first time only)")
    network = Scenario.load(scenario).expand()
    _check(network)
    _prepare(out)
    with compiling():  # Spark first of all, so that it does not fail after a minute
        spark = session() if callable(session) else session
    say("predicting the on-time share of every subscriber, now and with each change")
    changes = what_if(network, say=lambda text: stage(text, None))
    say(f"simulating {_length(network)}")
    result = simulate(network, out=out / "trace", progress=lambda share: stage("simulating", share))
    say("computing on Spark, from the trace alone, who got what on time")
    measured = _measure(spark, out, stage)
    say("measuring how sending by deadline affects order, and what ordering repairs")
    order = _order(network)
    say(f"writing {out / 'report.html'}")
    standings = _standings(network, measured, changes)
    _write_report(network, out, standings, changes)
    return Demonstration(
        title=network.title or str(scenario),
        scenario=str(scenario),
        trace=str(out / "trace"),
        scores=str(out / "scores"),
        report=str(out / "report.html"),
        simulated_s=result.duration_s,
        events=result.published,
        deliveries=measured.matched,
        rows=sum(measured.rows.values()),
        reliability=_mean([row.measured for row in standings]),
        error=_mean([_apart(row.predicted, row.measured) for row in standings]),
        unpredicted=changes.unpredicted,
        unmodelled=changes.unmodelled,
        reliability_all=_mean([row.all for row in standings]),
        effects=_effects(changes, _mean([row.measured for row in standings])),
        order=order,
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


def _measure(spark: "SparkSession", out: Path, stage: Stage) -> "PipelineResult":
    from tidings.pipeline import run_pipeline

    return run_pipeline(spark, [out / "trace"], out / "scores", progress=lambda text: stage(text, None))


def _order(network: Network) -> OrderEffect | None:
    """What ordering has to do once links send by deadlines."""
    found = simulate(by_deadlines_in_order(network)).ordering
    if found is None:
        return None
    return OrderEffect(
        policy=found.policy,
        received=found.received,
        out_of_order=found.out_of_order,
        repaired=found.repaired,
        hold_ms_mean=found.hold_ms_mean,
    )


def by_deadlines_in_order(network: Network) -> Network:
    """A short run of the network with urgent events first and receivers that put them in order; nothing fails."""
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    policies = msgspec.structs.replace(
        network.policies, ordering=ORDER_POLICY, scheduling=SchedulingPolicy(name="lookahead"), routing="single-path"
    )
    return msgspec.structs.replace(
        network,
        policies=policies,
        duration_s=min(network.duration_s, network.warmup_s + ORDER_EVENTS / rate_per_s),
        broker_failures=(),
        link_failures=(),
        link_components=(),
    )


def _write_report(network: Network, out: Path, standings: tuple[Standing, ...], changes: WhatIf) -> None:
    from tidings.report import read_report, write_report

    shown = []
    for name, shares in (*((each.name, each.reliability) for each in changes.changes), ("all", changes.all)):
        gains = (shares - changes.now).tolist()
        after = {row.subscriber: _added(row.measured, gain) for row, gain in zip(standings, gains, strict=True)}
        shown.append({"name": name, "reliability": after})
    write_report(read_report(out / "scores", scenario=network, changes=shown), out / "report.html")


def _standings(network: Network, measured: "PipelineResult", changes: WhatIf) -> tuple[Standing, ...]:
    gains = np.array([outcome.reliability - changes.now for outcome in changes.changes])
    together = changes.all - changes.now
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
                all=_added(share, float(together[number])),
            )
        )
    return tuple(rows)


def _best(gains: FloatArray) -> int | None:
    """The change that gains most, if one gains anything to speak of."""
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


def _apart(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


def _mean(shares: list[float | None]) -> float:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else 0.0
