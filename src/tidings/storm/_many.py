"""Many storms, in one or several processes, with their figures added up."""

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import msgspec

from tidings.errors import ConfigurationError
from tidings.storm._log import StormLog
from tidings.storm._run import Storm, StormResult, run_storm
from tidings.storm._settings import StormSettings
from tidings.storm._trace import write_trace

__all__ = ["StormReport", "as_document", "run_storms"]


class StormReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of many storms; `violations` are (seed, check, what happened)."""

    seeds: int
    violations: tuple[tuple[int, str, str], ...]
    events: int
    accepted: int
    deliveries: int
    late: int
    faults: dict[str, int]
    moves: dict[str, int]
    drops: dict[str, int]
    frames: int
    sent: dict[str, int]
    covered: dict[str, int] = {}
    excused: dict[str, int] = {}
    converged_s: tuple[float, ...]

    @property
    def frames_per_event(self) -> dict[str, float]:
        """The number of frames of each kind per accepted event."""
        kinds = {
            "Transfer": "data",
            "Publish": "data",
            "Ack": "ack",
            "Interest": "refresh",
            "InterestPart": "refresh",
            "Ask": "refresh",
        }
        kinds |= {"LinkState": "link-state", "Ping": "ping", "Pong": "ping", "Hello": "greeting", "Welcome": "greeting"}
        kinds |= dict.fromkeys(("TraceResult", "RelocationRequest", "RelocationAnswer"), "relocation")
        kinds |= dict.fromkeys(("TraceRequest", "TraceAnswer", "Move", "Moving"), "relocation")
        kinds |= dict.fromkeys(("MigrationUpdate", "MigrationComplete"), "relocation")
        found: Counter[str] = Counter()
        for name, count in self.sent.items():
            found[kinds.get(name, "requests")] += count
        return {kind: count / max(self.accepted, 1) for kind, count in sorted(found.items())}


def run_storms(
    settings: StormSettings,
    seeds: Sequence[int],
    *,
    processes: int = 1,
    out: Path | None = None,
    log: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> StormReport:
    """Run the storms of these seeds; the result does not depend on the number of processes.

    `out` is where the trace of a single storm is written. `log` gets a line for every finished storm, and storms that
    it already holds are not repeated. An interrupted run returns what it has; `seeds` is how many storms that is.
    """
    if out is not None and log is not None:
        raise ConfigurationError("a trace is of one storm, a log of many: leave out one of them")
    wanted = list(dict.fromkeys(seeds))
    with ExitStack() as stack:
        kept = None if log is None else stack.enter_context(StormLog(log, settings))
        found: dict[int, StormResult] = (
            {seed: kept.known[seed] for seed in wanted if seed in kept.known} if kept else {}
        )
        missing = [seed for seed in wanted if seed not in found]
        if progress is not None:
            progress(len(found) / len(wanted))
        try:
            for result, cpu_s in _each(settings, missing, processes) if out is None else _traced(settings, wanted, out):
                found[result.seed] = result
                if kept is not None:
                    kept.append(result, cpu_s)
                if progress is not None:
                    progress(len(found) / len(wanted))
        except KeyboardInterrupt:
            if not found:
                raise
    results = [found[seed] for seed in wanted if seed in found]
    return StormReport(
        seeds=len(results),
        violations=tuple((result.seed, *violation) for result in results for violation in result.violations),
        events=sum(result.events for result in results),
        accepted=sum(result.accepted for result in results),
        deliveries=sum(result.deliveries for result in results),
        late=sum(result.late for result in results),
        faults=_total(result.faults for result in results),
        moves=_total(result.moves for result in results),
        drops=_total(result.drops for result in results),
        frames=sum(result.frames for result in results),
        sent=_total(result.sent for result in results),
        covered=_total(result.covered for result in results),
        excused=_total(result.excused for result in results),
        converged_s=tuple(result.converged_s for result in results if result.converged_s is not None),
    )


def _each(settings: StormSettings, seeds: Sequence[int], processes: int) -> Iterator[tuple[StormResult, float]]:
    if processes == 1 or len(seeds) <= 1:
        yield from map(partial(_timed, settings), seeds)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_leave_interrupts) as pool:
        yield from pool.map(partial(_timed, settings), seeds)


def _timed(settings: StormSettings, seed: int) -> tuple[StormResult, float]:
    """A storm and its CPU time."""
    began_s = process_time()
    try:
        result = run_storm(settings, seed)
    except Exception as error:  # a machine must never raise: that is a violation like any other
        result = _broken_off(seed, error)
    return result, process_time() - began_s


def _broken_off(seed: int, error: Exception) -> StormResult:
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} (in {place.name}, {Path(place.filename).name} line {place.lineno})"
    return StormResult(
        seed=seed,
        violations=(("no-exception", what),),
        events=0,
        accepted=0,
        deliveries=0,
        late=0,
        faults={},
        moves={},
        drops={},
        frames=0,
        sent={},
        covered={},
        converged_s=None,
        digest="",
    )


def _leave_interrupts() -> None:
    """An interrupt ends the whole run: storms in progress are finished, and none is started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _traced(settings: StormSettings, seeds: Sequence[int], out: Path) -> Iterator[tuple[StormResult, float]]:
    if len(seeds) != 1:
        raise ConfigurationError(f"a trace is of one storm, not of {len(seeds)}: name its seed")
    began_s = process_time()
    storm = Storm(settings, seeds[0])
    yield storm.run(), process_time() - began_s
    write_trace(out, storm.plan, storm.history)


def _total(counts: Iterator[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def as_document(report: StormReport) -> dict[str, Any]:
    """The report as one JSON document; violations include the command that replays them."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    times = sorted(document.pop("converged_s"))
    document["violations"] = [{"seed": seed, "check": check, "what": what} for seed, check, what in report.violations]
    document["converged_s"] = {"median": _at(times, 0.5), "p99": _at(times, 0.99), "most": _at(times, 1.0)}
    document["frames_per_event"] = report.frames_per_event
    return document


def _at(times: list[float], share: float) -> float | None:
    return times[min(int(share * len(times)), len(times) - 1)] if times else None
