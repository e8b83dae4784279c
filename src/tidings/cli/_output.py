"""How commands speak: one document on standard output, everything else on standard error, one line for an error."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.errors import FilterWarning, TidingsError
from tidings.model.units import percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tidings.statistics import ReliabilityInterval

__all__ = [
    "ROUGH",
    "Json",
    "interval_terms",
    "print_json",
    "print_table",
    "progress_bar",
    "reporting",
    "shown_interval",
]

WIDEST = 1_000
QUIET_S = 5.0  # after so long without a terminal, progress is reported in a line

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(document: Any) -> None:
    """One JSON document, indented, as UTF-8 whatever the terminal's encoding."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    sys.stdout.flush()
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()


def interval_terms(level: float) -> dict[str, Any]:
    """What stands in a document beside intervals for R."""
    return {"level": level, "by": "batches of time"}


ROUGH = "~ few independent events: the interval is rough; a longer run narrows it"
"""What stands below a table in which `shown_interval` has marked one."""


def shown_interval(interval: "ReliabilityInterval | None") -> str:
    """The interval of an on-time share in a table; a rough one is marked."""
    if interval is None:
        return "-"
    return f"{'~' if interval.is_rough else ''}{100.0 * interval.low:.1f} to {percent(interval.high)}"


def print_table(console: "Console", table: "Table") -> None:
    """Print a table with every figure whole.

    Where the terminal is too narrow, headings and names take several lines; if that is not enough, lines are longer
    than the terminal is wide.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.measure import Measurement

    unbounded = console.options.update(max_width=WIDEST)
    if Measurement.get(console, unbounded, table).maximum > console.width:
        for column in table.columns:
            column.no_wrap = column.justify == "right"
            if column.no_wrap:
                words = str(column.header).split()
                widths = [cell_len(str(cell)) for cell in column.cells]
                column.min_width = max([*widths, *map(len, words)], default=0)
                column.header = "\n".join(wrap(str(column.header), column.min_width or 1))
    least = Measurement.get(console, unbounded, table).minimum
    if least > console.width:
        for column in table.columns:
            texts = [str(column.header), *map(str, column.cells)]
            column.width = column.min_width or max(cell_len(word) for text in texts for word in text.split() or [""])
        console = Console(width=least, highlight=False)
    console.print(table)


@contextmanager
def reporting(*, json: bool) -> Iterator[None]:
    """Turn what a command raises on purpose into its message and exit code, and show warnings about filters; a
    traceback is left for our own bugs."""
    try:
        with _showing_warnings():
            yield
    except TidingsError as error:
        _report(error, json=json)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None


def _report(error: TidingsError, *, json: bool) -> None:
    if json:
        place = getattr(error, "place", "") or None
        print_json({"error": {"kind": type(error).__name__, "message": str(error), "place": place}})
    typer.echo(f"error: {error}", err=True)


@contextmanager
def _showing_warnings() -> Iterator[None]:
    """Each warning about a filter once, in a line that names no line of our code."""
    seen = set[str]()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if not isinstance(message, FilterWarning):
            usual(message, *where, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", FilterWarning)
        usual, warnings.showwarning = warnings.showwarning, show
        yield


def _progress_lines(what: str) -> Callable[[float], None]:
    last_s = time.monotonic()

    def report(share: float) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= QUIET_S:
            last_s = time.monotonic()
            typer.echo(f"{what}: {share:.0%}", err=True)

    return report


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error if that is a terminal, otherwise a line of text every QUIET_S seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _progress_lines(what)
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)
