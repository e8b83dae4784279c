"""`tidings import`: check how the logs of other systems are read, before anything is computed from them."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli._output import Json, print_json, reporting

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.pipeline.ingest import Inspection

__all__ = ["app"]

app = typer.Typer(help="Read logs of other systems (Kafka, MQTT, NATS, OpenTelemetry, your own).", no_args_is_help=True)
EPILOG = (
    "Try:\n\ntidings import check examples/foreign --mapping examples/foreign/mapping.toml\n\n"
    "tidings import check logs --mapping examples/foreign/kafka.toml --json"
)
ROW_LENGTH = 100
QUICK_BYTES_MAX = 50_000_000
"""About a million rows: the engine arrow parses them in less than a minute (docs/guide/foreign-traces.md)."""


@app.callback()
def _import() -> None:
    """Read logs of other systems (Kafka, MQTT, NATS, OpenTelemetry, your own)."""


@app.command(epilog=EPILOG)
def check(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGS...", help="Directories with the logs; several are read as one.", show_default=False
        ),
    ],
    mapping: Annotated[
        Path,
        typer.Option("--mapping", metavar="FILE", help="The mapping file for a foreign trace (JSON lines, CSV)."),
    ],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to read of each table.")] = 50_000,
    json: Json = False,
) -> None:
    """Show in seconds what is understood of a log: columns, keys, hosts, clocks, bad rows.

    Reads the first rows without Spark, computes no scores, and prints the
    command to run next. The exit code is 1 if something must be fixed first.
    """
    with reporting(json=json):
        from tidings.pipeline.ingest import inspect_log

        found = inspect_log(traces, mapping, rows_max=rows)
        command = f"tidings pipeline run {shlex.join(traces)} --mapping {shlex.quote(str(mapping))} --out scores"
        if sum(table.size_bytes for table in found.tables.values()) <= QUICK_BYTES_MAX:
            command += " --engine arrow"
        if json:
            import msgspec

            print_json({**msgspec.to_builtins(found), "next": command})
        else:
            _print(found, command)
    if found.advice:
        raise typer.Exit(1)


def _print(found: "Inspection", command: str) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    _print_tables(found, console)
    _print_names(found, console)
    _print_events(found, console)
    _print_clocks(found, console)
    _print_bad(found, console)
    for line in found.advice:
        console.print(f"fix: {line}", style="bold")
    console.print(f"next: {command}" if not found.advice else f"then: {command}")


def _print_tables(found: "Inspection", console: "Console") -> None:
    for name, table in found.tables.items():
        files = "1 file" if table.files == 1 else f"{table.files:,} files"
        console.print(f"{name}: {table.rows:,} rows{'' if table.is_whole else ' and more'}, {files}, {table.format}")
        for field, (columns, known) in table.fields.items():
            lacking = "" if known == table.rows else f"   {table.rows - known:,} rows have none"
            console.print(f"  {field:24} {columns}{lacking}")
        if table.unused:
            console.print(f"  not used                 {', '.join(table.unused)}", style="dim")
        for fault in table.faults:
            console.print(f"  cannot be read           {fault}")


def _print_names(found: "Inspection", console: "Console") -> None:
    for title, names in (("publishers", found.publishers), ("topics", found.topics), ("hosts", found.hosts)):
        if names:
            console.print(f"{title}: {', '.join(f'{name} ({count:,})' for name, count in names.items())}")
    for name, counts in found.subscriptions.items():
        matched = "?" if counts["matched"] is None else f"{counts['matched']:,}"
        console.print(f"subscription {name}: {matched} events match, {counts['received']:,} received")


def _print_events(found: "Inspection", console: "Console") -> None:
    if found.first_ns is not None and found.last_ns is not None:
        console.print(
            f"{(found.last_ns - found.first_ns) / 1e9:,.3f} s from the first event to the last; the first are"
        )
    for event in found.events:
        received = ", ".join(f"{name} after {delay:.3f} ms" for name, delay in event["received_after_ms"].items())
        console.print(
            f"  {event['publisher']} {event['sequence']} at {event['departure_ns'] / 1e9:.6f} s {event['attributes']}: "
            f"{received or 'received by nobody'}"
        )


def _print_clocks(found: "Inspection", console: "Console") -> None:
    if found.clocks is None:
        if not found.clocks_asked:
            console.print("clocks: not compared, all times are assumed to be of one clock", style="dim")
        return
    verb = "are corrected" if found.clocks_asked else "are not corrected, write [clocks] to do so"
    if len(found.clocks) > 1:
        console.print(f"clocks: they {verb}")
        for host, clock in found.clocks.items():
            drift = f", drifts by {clock['drift_ppm']:.1f} ppm" if clock["drift_ppm"] else ""
            console.print(
                f"  {host:24} ahead by {clock['ahead_s'] * 1e3:.3f} ms, ± {clock['error_s'] * 1e3:.3f} ms{drift}"
            )


def _print_bad(found: "Inspection", console: "Console") -> None:
    if not found.bad:
        console.print("bad rows: none")
    for bad in found.bad:
        row = bad.row if len(bad.row) <= ROW_LENGTH else bad.row[:ROW_LENGTH] + "..."
        console.print(f"bad rows: {bad.rows:,} of {bad.table} are {bad.reason}, such as {row} in {bad.file}")
