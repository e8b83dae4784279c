"""`tidings autopilot`: keep a live network at its objective, by changes that are judged and taken back if need be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._shares import share_option

if TYPE_CHECKING:
    from tidings.autopilot import Files, Record

__all__ = ["EPILOG", "autopilot"]

EPILOG = (
    "Try:\n\ntidings autopilot network.toml --slo 0.99\n\n"
    "tidings autopilot network.toml --slo 0.99 --apply\n\n"
    "tidings autopilot network.toml --show\n\n"
    "tidings autopilot network.toml --stop"
)
STYLES = {"kept": "green", "rolling back": "yellow", "rolled back": "yellow", "not rolled back": "red", "short": "red"}


def autopilot(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)],
    slo: Annotated[
        float,
        typer.Option(
            "--slo",
            metavar="SHARE",
            parser=share_option,
            help="The share of its events that a subscriber gets on time, as 99% or 0.99.",
        ),
    ] = 0.99,
    share: Annotated[
        float,
        typer.Option(
            "--share", metavar="SHARE", parser=share_option, help="The share of subscribers that must get it."
        ),
    ] = 1.0,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes; without it they are only written down.")
    ] = False,
    changes: Annotated[
        int, typer.Option("--changes", metavar="COUNT", min=1, help="At most so many changes in 10 minutes.")
    ] = 4,
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--traces", metavar="DIR", help="Where brokers trace to, if not as in the file.", show_default=False
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", help="The audit log, by default NETWORK.autopilot.jsonl.", show_default=False
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what it did and why, and exit.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Set the kill switch, wait until no autopilot runs, and exit.")
    ] = False,
    json: Json = False,
) -> None:
    """Keep a live network at its on-time objective.

    Watches the accounts of all subscriptions. If too many are late for 10 s,
    it takes the profiles of that time from the brokers, or from their traces
    if there are any, finds the cheapest changes that it may make (moving publishers, the strategy),
    rehearses them in the simulator, makes them one by one, and compares the
    accounts before and after. What did not help is taken back. Capacity it
    only recommends. Every decision is a JSON object in a line of the audit
    log; --json prints these lines. Without --apply nothing is changed. Runs
    until Ctrl-C or --stop: then nothing is changed any more, and a change
    under way stays and is judged by the next start.
    """
    with reporting(json=json):
        from tidings.autopilot import Files

        files = Files.of(network, log)
        if show:
            _show(files, json=json)
        elif stop:
            _stop(files, json=json)
        else:
            _fly(network, files, slo, share, apply, changes, tuple(traces or ()), json=json)


def _fly(
    network: Path,
    files: "Files",
    slo: float,
    share: float,
    apply: bool,
    changes: int,
    traces: tuple[Path, ...],
    *,
    json: bool,
) -> None:
    import asyncio

    from tidings.autopilot import AutopilotSettings, fly, source_of

    settings = AutopilotSettings(slo=slo, share=share, may_apply=apply, changes_max=changes)
    typer.echo(f"audit log: {files.log}", err=True)
    asyncio.run(fly(network, settings, lambda live: source_of(live, traces), files, report=_line if json else _print))


def _stop(files: "Files", *, json: bool) -> None:
    from tidings.autopilot import stop_flight

    was_running = stop_flight(files)
    if json:
        print_json({"switch": str(files.switch), "was_running": was_running})
    else:
        what = "stopped" if was_running else "none was running"
        typer.echo(f"{what}; nothing is changed until {files.switch} is removed")


def _show(files: "Files", *, json: bool) -> None:
    from tidings.autopilot import Memory, read_records

    records = read_records(files.log)
    if json:
        print_json(records)
        return
    for record in records:
        _print(record)
    memory = Memory(records)
    for kind, name in (("move", "moves of publishers"), ("scheduling", "strategies")):
        if memory.judged(kind):
            typer.echo(f"predictions for {name} were worth {memory.worth(kind):.0%} ({memory.judged(kind)} judged)")


def _line(record: "Record") -> None:
    import sys

    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.flush()


def _print(record: "Record") -> None:
    from datetime import datetime

    from rich.console import Console
    from rich.text import Text

    at = datetime.fromtimestamp(record.at_s).strftime("%Y-%m-%d %H:%M:%S")
    text = Text.assemble(
        (at, "dim"), "  ", (f"{record.kind:<16}", STYLES.get(record.kind, "")), f"{record.words}{_more(record)}"
    )
    console: Any = Console(highlight=False, soft_wrap=True)
    console.print(text)
    for advice in record.advice:
        console.print(Text(f"{'':21}{'advice':<16}{advice}"))


def _more(record: "Record") -> str:
    forecast = record.predicted
    if record.kind != "planned" or forecast is None:
        return ""
    rehearsed = "" if forecast.rehearsed_gain is None else f", {forecast.rehearsed_gain:.3g} in the simulator"
    return f" (gain {forecast.gain:.3g}{rehearsed})"
