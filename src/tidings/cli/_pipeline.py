"""`tidings pipeline`: from traces to who got what on time, with Spark."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli import _watch
from tidings.cli._output import ROUGH, Json, interval_terms, print_json, print_table, reporting
from tidings.cli._shares import parse_share
from tidings.cli._spark_options import (
    ClockTolerance,
    Conf,
    Environment,
    FromScratch,
    MappingFile,
    Master,
    MaxBad,
    Out,
    Remote,
    Topic,
    Verbose,
    Warmup,
    Window,
    parse_conf,
    require_spark,
)
from tidings.errors import ConfigurationError
from tidings.model.units import percent

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.pipeline import PipelineResult

__all__ = ["app"]

app = typer.Typer(help="Compute from traces what every subscriber got on time, on Spark.", no_args_is_help=True)
EPILOG = (
    "Try:\n\ntidings simulate examples/quickstart.toml --out trace\n\n"
    "tidings pipeline run trace --out scores\n\n"
    "tidings pipeline run trace --out scores --max-bad 5% --json"
)
ROWS_MAX = 20
SPARK, ARROW = "spark", "arrow"
QUICK_ROWS_MAX = 25_000_000
"""Up to so many rows the engine arrow was measured (docs/reference/pipeline.md)."""
QUICK_FOREIGN_ROWS_MAX = 1_000_000
"""Of logs read through a mapping, which it parses row by row (docs/guide/foreign-traces.md)."""
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog", metavar="[CATALOG.]SCHEMA", help="Write the tables, and views for BI, into this schema as well."
    ),
]
TableFormat = Annotated[
    str,
    typer.Option("--table-format", metavar="NAME", help="Of tables in the catalog: parquet, delta, iceberg."),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="spark, or arrow: one process without a JVM, for traces on this machine."
    ),
]


_Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACES...",
        help="Directories of a trace, as paths or addresses (hdfs://, s3a://); several are read as one.",
        show_default=False,
    ),
]


@app.command(epilog=EPILOG)
def run(
    traces: _Traces,
    out: Out,
    engine: Engine = "spark",
    master: Master = None,
    remote: Remote = None,
    environment: Environment = None,
    conf: Conf = None,
    mapping: MappingFile = None,
    topic: Topic = None,
    window: Window = "60 s",
    warmup: Warmup = None,
    clock_tolerance: ClockTolerance = "0 s",
    max_bad: MaxBad = "1%",
    from_scratch: FromScratch = False,
    catalog: Catalog = None,
    table_format: TableFormat = "parquet",
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Score what is new in a trace, and measure its publishers, brokers and links.

    Bad rows go to the quarantine. If there are too many, the exit code is 1;
    the tables are complete even so, and a larger --max-bad prints the scores.
    """
    with reporting(json=json):
        settings = parse_conf(conf)
        spark_only = {
            "--master": master,
            "--remote": remote,
            "--environment": environment,
            "--conf": conf,
            "--catalog": catalog,
        }
        _check_engine(engine, {**spark_only, "--verbose": verbose or None})
        if engine == SPARK:
            require_spark()
        _check_catalog(catalog, remote, settings)
        import msgspec

        from tidings.model.units import parse_quantity
        from tidings.pipeline import PipelineOptions, open_session, run_in_process
        from tidings.pipeline.scores import LEVEL

        options = PipelineOptions(
            window_ns=round(parse_quantity(window, "time") * 1e9),
            topic=topic,
            warmup_ns=None if warmup is None else round(parse_quantity(warmup, "time") * 1e9),
            clock_tolerance_ns=round(parse_quantity(clock_tolerance, "time") * 1e9),
            mapping=mapping,
            max_bad=parse_share(max_bad),
            from_scratch=from_scratch,
            catalog=catalog,
            table_format=table_format,
        )
        with ExitStack() as stack:
            progress = stack.enter_context(_stages())
            session = open_session(
                master=master,
                remote=remote,
                environment=environment,
                verbose=verbose,
                app_name="tidings pipeline",
                extra=settings,
            )

            def start():  # type: ignore[no-untyped-def]
                progress("starting Spark")
                return stack.enter_context(session)

            if engine == SPARK:
                from tidings.pipeline import run_pipeline

                result = run_pipeline(start, traces, out, options, progress=progress)
            else:
                result = run_in_process(traces, out, options, progress=progress)
        rows = sum(result.rows.values())
        is_here = not any(spark_only.values()) and "://" not in " ".join([*traces, out])
        quick_rows = QUICK_ROWS_MAX if mapping is None else QUICK_FOREIGN_ROWS_MAX
        if engine == SPARK and is_here and result.new_files and rows <= quick_rows:
            typer.echo(f"note: for {rows:,} rows --engine arrow is quicker: it starts no JVM", err=True)
        if json:
            print_json({**msgspec.to_builtins(result), "intervals": interval_terms(LEVEL)})
        else:
            _print(result)


@contextmanager
def _stages() -> Iterator[Callable[[str], None]]:
    """The stage that runs: on a terminal one line that changes, otherwise a line for each, on standard error."""
    if not sys.stderr.isatty():
        yield lambda stage: typer.echo(stage, err=True)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda stage: bar.update(task, description=stage)


def _check_engine(engine: str, spark_only: Mapping[str, object]) -> None:
    """Raise a ConfigurationError for an unknown engine, or for options that the engine does not have."""
    if engine not in (SPARK, ARROW):
        raise ConfigurationError(f"--engine {engine}: there is no such engine; write {SPARK} or {ARROW}")
    given = [name for name, value in spark_only.items() if value is not None and value != []]
    if engine == ARROW and given:
        raise ConfigurationError(
            f"{', '.join(given)}: for Spark only, and --engine {ARROW} runs without it; leave it out, or run with "
            f"--engine {SPARK}"
        )


def _check_catalog(catalog: str | None, remote: str | None, settings: Mapping[str, str]) -> None:
    """Raise a ConfigurationError if the tables would be gone with the session of this command."""
    if catalog is None or remote is not None or any(name.startswith("spark.sql.catalog") for name in settings):
        return
    raise ConfigurationError(
        f"--catalog {catalog}: this session would forget its tables when it ends; name a metastore or a catalog, such "
        "as --conf spark.sql.catalogImplementation=hive (docs/guide/spark-cluster.md)"
    )


def _print(result: "PipelineResult") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if result.recomputed is not None:
        console.print(f"everything was computed again: {result.recomputed}")
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    rate = percent(result.delivery_rate)
    rows = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
    facts.add_row("read", f"{rows}; {result.files:,} files, {result.new_files:,} of them new")
    facts.add_row("on time", f"{rate}: {result.on_time:,} of {result.matched:,}, earning {result.earnings:,.10g}")
    facts.add_row("not on time", f"{result.late:,} late, {result.lost:,} lost")
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.quarantined.items()) or "none"
    facts.add_row("bad rows", f"{result.bad:,} ({reasons})" if result.bad else "none")
    if result.unread_files:
        facts.add_row("unread files", f"{result.unread_files:,}, with an unknown number of rows")
    if result.clocks:
        ahead, error = (max(abs(clock[name]) for clock in result.clocks.values()) for name in ("ahead_s", "error_s"))
        facts.add_row(
            "clocks", f"of {len(result.clocks):,} hosts corrected by up to {ahead * 1e3:.3g} ms, ± {error * 1e3:.3g} ms"
        )
    console.print(facts)
    print_scores(console, result)
    typer.echo("tables: " + " ".join(result.tables.values()), err=True)


def print_scores(console: "Console", result: "PipelineResult") -> None:
    """The subscriptions with their scores, the least reliable first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="subscriptions, the least reliable first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscription")
    for heading in ("matched", "on time", "late", "lost", "reliability", "95 % interval", "effective"):
        table.add_column(heading, justify="right")
    ranked = sorted(result.subscribers.items(), key=lambda item: _order(item[1].on_time_reliability))
    for name, row in ranked[:ROWS_MAX]:
        share = interval = effective = "-"
        if row.on_time_reliability is not None:
            share, interval, effective = (
                percent(row.on_time_reliability),
                f"{'~' if row.is_rough else ''}{100.0 * (row.reliability_low or 0.0):.1f} to "
                f"{percent(row.reliability_high)}",
                f"{row.effective_events:,.0f}",
            )
        counts = (f"{row.matched:,}", f"{row.on_time:,}", f"{row.late:,}", f"{row.lost:,}")
        table.add_row(Text(name), *counts, share, interval, effective)
    print_table(console, table)
    console.print("effective: independent events these are worth, as events are late together", style="dim")
    if any(row.is_rough and row.matched for _, row in ranked[:ROWS_MAX]):
        console.print(ROUGH, style="dim")
    if len(ranked) > ROWS_MAX:
        console.print(f"and {len(ranked) - ROWS_MAX:,} more; --json shows all", style="dim")


def _order(share: float | None) -> float:
    return 2.0 if share is None else share  # those without events last


app.command(epilog=_watch.EPILOG)(_watch.watch)
