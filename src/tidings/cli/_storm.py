"""`tidings storm`: the real protocol under random faults in virtual time, and the promises that it kept or broke."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidings.cli._output import Json, print_json, progress_bar, reporting
from tidings.errors import ConfigurationError
from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY, listed

if TYPE_CHECKING:
    from tidings.storm import StormReport

__all__ = ["EPILOG", "storm"]

EPILOG = (
    "Try:\n\ntidings storm --seed 7 --minutes 1 --brokers 7\n\n"
    "tidings storm --seeds 100 --processes 2 --json\n\n"
    "tidings storm --seeds 10000 --processes 2 --log storms.jsonl\n\n"
    "tidings storm --seeds 100 --fault pause --fault disk-full\n\n"
    "tidings storm --seed 7 --out trace\n\n"
    "tidings storm --scenario examples/faults.toml --json"
)

_TELLS_EVERY_S: Final = 60.0


class _Pace:
    """Report how many storms an hour are run; without a terminal, in a line every minute."""

    def __init__(self, storms: int, progress: Callable[[float], None]) -> None:
        self._storms = storms
        self._progress = progress
        self._began_s = self._shown_s = time.monotonic()
        self._before: int | None = None  # storms that a log held already
        self._done = 0

    def __call__(self, share: float) -> None:
        self._done = round(share * self._storms)
        if self._before is None:
            self._before = self._done
        self._progress(share)
        if not sys.stderr.isatty() and time.monotonic() - self._shown_s >= _TELLS_EVERY_S:
            self._shown_s = time.monotonic()
            typer.echo(f"{self._done:,} of {self._storms:,} storms, {self.per_hour:,.0f} an hour", err=True)

    @property
    def per_hour(self) -> float:
        """Of those that were run now."""
        return (self._done - (self._before or 0)) * 3600.0 / max(time.monotonic() - self._began_s, 1e-9)


_Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", min=0, help="The seed of the storm, or of the first of several (default: 0).", show_default=False
    ),
]
_Minutes = Annotated[float, typer.Option("--minutes", help="The length of a storm in minutes of virtual time.")]
_Scheme = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        help=f"{listed('scheme', 'storm')} (default: {DEFAULT_SCHEME}, or the scenario's).",
        show_default=False,
    ),
]
_Strategy = Annotated[str, typer.Option("--strategy", help=f"What links send next: {listed('strategy', 'storm')}.")]
_Fault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="KIND",
        help="Inject only faults of this kind; repeatable (default: all kinds).",
        show_default=False,
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write the trace of a single storm here.", show_default=False),
]
_Log = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="Append a JSON line for every storm; storms already in the file are not repeated.",
        show_default=False,
    ),
]
_Scenario = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="FILE",
        help="Run this scenario with its failures instead, and compare with simulator and predictor.",
        show_default=False,
    ),
]


def storm(
    seed: _Seed = None,
    minutes: _Minutes = 1.0,
    brokers: Annotated[int, typer.Option("--brokers", min=1, help="The number of brokers.")] = 7,
    clients: Annotated[int, typer.Option("--clients", min=2, help="The number of clients.")] = 30,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Run this many storms, with consecutive seeds.")] = 1,
    scheme: _Scheme = None,
    strategy: _Strategy = DEFAULT_STRATEGY,
    fault: _Fault = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Run storms in this many processes.")] = 1,
    out: _Out = None,
    log: _Log = None,
    scenario: _Scenario = None,
    json: Json = False,
) -> None:
    """Run brokers and clients under random faults and check their guarantees.

    Everything runs in virtual time. If a seed breaks a guarantee, the
    command that replays it is shown.
    """
    with reporting(json=json):
        import msgspec

        if scenario is not None:
            from tidings.cli._storm_scenario import run

            if out is not None or log is not None or seeds > 1:
                raise ConfigurationError("--scenario runs one scenario once: omit --out, --log and --seeds")
            run(scenario, seed=seed, scheme=scheme, json=json)
            return
        seed = 0 if seed is None else seed
        scheme = DEFAULT_SCHEME if scheme is None else scheme

        from tidings.storm import KINDS, StormSettings, as_document, run_storms

        unknown = sorted(set(fault or ()) - set(KINDS))
        if unknown:
            raise ConfigurationError(f"--fault {unknown[0]}: unknown kind of fault; must be one of {', '.join(KINDS)}")
        values = {
            "brokers": brokers,
            "clients": clients,
            "duration_s": minutes * 60.0,
            "scheme": scheme,
            "strategy": strategy,
            "kinds": tuple(sorted(set(fault or ()))),
        }
        try:
            settings = msgspec.convert(values, StormSettings)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"tidings storm: {error}") from None
        if out is not None and seeds > 1:
            raise ConfigurationError("--out writes the trace of one storm: omit --seeds")
        with progress_bar("storming") as progress:
            pace = _Pace(seeds, progress)
            found = range(seed, seed + seeds)
            report = run_storms(settings, found, processes=processes, out=out, log=log, progress=pace)
        replay = (
            f"--minutes {minutes:g} --brokers {brokers} --clients {clients} --scheme {scheme} --strategy {strategy}"
        ) + "".join(f" --fault {kind}" for kind in settings.kinds)
        if json:
            print_json(as_document(report) | {"storms_per_hour": round(pace.per_hour)})
        else:
            _print(report, replay, pace.per_hour)
        if report.violations:
            raise typer.Exit(1)
        if report.seeds < seeds:
            typer.echo(f"interrupted: {report.seeds:,} of {seeds:,} storms", err=True)
            raise typer.Exit(130)


def _print(report: "StormReport", replay: str, per_hour: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("storms", f"{report.seeds:,}")
    facts.add_row("events", f"{report.events:,} published, {report.accepted:,} accepted")
    facts.add_row("deliveries", f"{report.deliveries:,}, {report.late:,} of them late and marked as late")
    facts.add_row("faults", ", ".join(f"{count:,} {kind}" for kind, count in report.faults.items()) or "none")
    facts.add_row("moves", ", ".join(f"{count:,} {kind}" for kind, count in report.moves.items()) or "none")
    facts.add_row("dropped", ", ".join(f"{count:,} {kind}" for kind, count in report.drops.items()) or "nothing")
    facts.add_row("frames", ", ".join(f"{each:.1f} {kind}" for kind, each in report.frames_per_event.items()))
    facts.add_row("pace", f"{per_hour:,.0f} storms an hour")
    facts.add_row("violations", f"{len(report.violations):,}")
    console.print(facts)
    for seed, check, what in report.violations:
        console.print(Text(f"seed {seed}: {check}: {what}", style="red"))
        console.print(f"  replay: tidings storm --seed {seed} {replay}")
