"""`tidings sweep`: one scenario under many settings and seeds, and what each setting gives."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, print_table, progress_bar, reporting
from tidings.cli._scenario_options import ScenarioFile
from tidings.cli._spark_options import Environment, Master, Remote, Verbose

if TYPE_CHECKING:
    from tidings.pipeline.sweeps import Estimate, SweepResult

__all__ = ["EPILOG", "sweep"]

EPILOG = (
    "Try:\n\n"
    "tidings sweep examples/quickstart.toml --vary policies.scheduling=fifo,eb,lookahead --seeds 5\n\n"
    "tidings sweep examples/quickstart.toml --vary publishers.rate_per_s=20:60:10 --seeds 3 --out sweep"
)
ROWS_MAX = 50
FAILURES_MAX = 10
COLUMNS = {"delivery_rate": "on time", "earnings": "earnings", "traffic": "traffic"}


def sweep(
    scenario: ScenarioFile,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUES",
            help="A key of the scenario and its values: policies.scheduling=fifo,eb or links.loss=0:0.1:0.02; "
            "repeatable, which runs every combination.",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option(
            "--list", metavar="FILE", help="A file with one setting per row, in CSV or JSON lines.", show_default=False
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, metavar="N", help="The number of seeds for each setting.")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="FIRST", help="The first seed (default: the scenario's)."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Keep the results here; settings already in them are not run again."),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    environment: Environment = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Simulate a scenario under many settings and seeds, on Spark, and summarise each setting."""
    with reporting(json=json):
        from tidings.pipeline import open_session
        from tidings.pipeline.sweeps import Base, grid, read_list, read_vary, run_sweep

        rows = [] if listed is None else read_list(listed)
        settings = grid([read_vary(each) for each in vary or []], rows)
        base = Base(scenario)
        base.check(settings)  # before a session is opened, which takes seconds
        first = base.seed if seed is None else seed
        with (
            open_session(
                master=master, remote=remote, environment=environment, verbose=verbose, app_name="tidings sweep"
            ) as spark,
            progress_bar("sweeping") as progress,
        ):
            result = run_sweep(spark, scenario, settings, seeds=range(first, first + seeds), out=out, progress=progress)
        if json:
            print_json(result)
        else:
            _print(result)
        _print_failures(result)
        if result.failures:
            raise typer.Exit(1)


def _print(result: "SweepResult") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    keys = list(dict.fromkeys(key for row in result.settings for key in row.setting))
    seeds = f"seed {result.seeds[0]}" if len(result.seeds) == 1 else f"seeds {result.seeds[0]} to {result.seeds[-1]}"
    console.print(Text(f"{result.scenario}: {len(result.settings):,} settings, {seeds}", style="bold"))
    table = Table(box=None, pad_edge=False)
    for key in keys:
        table.add_column(key)
    for heading in ("runs", *COLUMNS.values()):
        table.add_column(heading, justify="right")
    for row in result.settings[:ROWS_MAX]:
        values = [Text(_value(row.setting.get(key))) for key in keys]
        table.add_row(*values, f"{row.runs:,}", *(_estimate(name, row.figures[name]) for name in COLUMNS))
    print_table(console, table)
    if len(result.settings) > ROWS_MAX:
        console.print(f"and {len(result.settings) - ROWS_MAX:,} more; --json shows all", style="dim")
    if result.found:
        typer.echo(f"{result.found:,} of {result.cells:,} cells were already there", err=True)
    if result.out is not None:
        typer.echo(f"wrote the tables cells and subscribers to {result.out}", err=True)


def _print_failures(result: "SweepResult") -> None:
    for failure in result.failures[:FAILURES_MAX]:
        setting = " ".join(f"{key}={_value(value)}" for key, value in failure.setting.items()) or "unchanged"
        typer.echo(f"failed: {setting}, seed {failure.seed}: {failure.error}", err=True)
        typer.echo(f"  to run it alone: {failure.command}", err=True)
    rest = len(result.failures) - FAILURES_MAX
    if rest > 0:
        typer.echo(f"and {rest:,} more cells failed; --json shows all", err=True)


def _value(value: object) -> str:
    from tidings.pipeline.sweeps import write_value

    return "" if value is None else write_value(value)


def _estimate(name: str, figure: "Estimate") -> str:
    if figure.mean is None:
        return "-"
    scale, form = (100, ".2f") if name == "delivery_rate" else (1, ",.0f")
    unit = "%" if name == "delivery_rate" else ""
    if figure.high is None:
        return f"{figure.mean * scale:{form}}{unit}"
    return f"{figure.mean * scale:{form}} ± {(figure.high - figure.mean) * scale:{form}}{unit}"
