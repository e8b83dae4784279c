"""`tidings profile`: what the brokers of a live network have seen lately, as the tables of a pipeline run."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting
from tidings.cli._pipeline import print_scores
from tidings.model.units import percent

if TYPE_CHECKING:
    from tidings.live import Network
    from tidings.pipeline import PipelineResult

__all__ = ["EPILOG", "Taken", "profile", "take", "taken_for_a_moment"]

EPILOG = (
    "Try:\n\ntidings profile examples/live/network.toml --out profiles\n\n"
    "tidings profile examples/live/network.toml --out profiles --last '1 min'\n\n"
    "tidings predict profiles\n\ntidings report profiles"
)
_TRACE = "window"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The profiles of a live network in a directory, what they were made from, and who did not answer."""

    network: "Network"
    directory: Path
    result: "PipelineResult"
    lasted_s: float
    share: float
    events: int
    silent: dict[str, str]

    def facts(self) -> dict[str, Any]:
        """What the figures rest on, for a document."""
        return {
            "network": str(self.network.path),
            "lasted_s": self.lasted_s,
            "share": self.share,
            "events": self.events,
            "silent": self.silent,
        }

    def words(self) -> str:
        """The same as a line."""
        share = "all events" if self.share == 1.0 else f"{percent(self.share, 3)} of the events"
        return f"{self.events:,} events, {share} of {self.lasted_s:,.0f} s"


def profile(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file, in TOML.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the tables go.", show_default=False)],
    last: Annotated[
        str | None,
        typer.Option("--last", metavar="TIME", help="Of this time only (default: all they have).", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a running network: publishers, links, and who gets what on time.

    Every broker keeps what it has seen in the last minutes. This asks all of
    them, and computes the tables of `tidings pipeline run` from it, for
    predict, plan and report. The rows themselves are a trace in DIR/window,
    for place. The exit code is 1 if a broker does not answer.
    """
    with reporting(json=json):
        from tidings.model.units import parse_quantity
        from tidings.pipeline import local_path

        last_s = None if last is None else parse_quantity(last, "time")
        taken = take(network, local_path(out), last_s=last_s, report=lambda stage: typer.echo(stage, err=True))
        warn_of_silent(taken)
        if json:
            import msgspec

            print_json({"window": taken.facts(), **msgspec.to_builtins(taken.result)})
        else:
            _print(taken)
        if taken.silent:
            raise typer.Exit(1)


def take(
    network: Path, out: Path, *, last_s: float | None = None, report: Callable[[str], None] = lambda _: None
) -> Taken:
    """Ask a live network, and write its profiles; TidingsError if no broker answers, or nothing has happened."""
    import asyncio

    from tidings.errors import InputError
    from tidings.live import read_network
    from tidings.live.operations import ask_windows
    from tidings.live.traces import merged, write_merged
    from tidings.pipeline import PipelineOptions, run_in_process

    if last_s is not None and last_s <= 0.0:
        raise InputError(f"--last is {last_s:g} s, but must be above 0")
    read = read_network(network)
    report("asking the brokers")
    windows, silent = asyncio.run(ask_windows(read))
    rows = merged(windows, read.links, last_ns=None if last_s is None else round(last_s * 1e9))
    if not rows.events:
        raise InputError(
            f"{network}: nobody has published anything in the last {rows.lasted_ns * 1e-9:.0f} s that the brokers "
            "remember; try again when there is traffic"
        )
    report("computing profiles")
    write_merged(rows, out / _TRACE)
    result = run_in_process([out / _TRACE], out, PipelineOptions(from_scratch=True))
    return Taken(
        network=read,
        directory=out,
        result=result,
        lasted_s=rows.lasted_ns * 1e-9,
        share=rows.share,
        events=rows.events,
        silent=silent,
    )


@contextmanager
def taken_for_a_moment(network: Path) -> Iterator[Taken]:
    """The profiles of a live network in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
        taken = take(network, Path(folder), report=lambda stage: typer.echo(stage, err=True))
        warn_of_silent(taken)
        yield taken


def warn_of_silent(taken: Taken) -> None:
    """Say which brokers are missing in the tables."""
    for name, why in taken.silent.items():
        typer.echo(f"warning: broker {name} is missing: {why}", err=True)


def _print(taken: Taken) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    result = taken.result
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("seen", taken.words())
    facts.add_row("on time", f"{percent(result.delivery_rate)}: {result.on_time:,} of {result.matched:,} deliveries")
    facts.add_row("not on time", f"{result.late:,} late, {result.lost:,} lost or dropped")
    if result.bad:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.quarantined.items())
        facts.add_row("bad rows", f"{result.bad:,} ({reasons})")
    console.print(facts)
    print_scores(console, result)
    typer.echo(f"profiles: {taken.directory}", err=True)
