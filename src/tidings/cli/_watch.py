"""`tidings pipeline watch`: the scores of a trace that grows, on a terminal or as lines of JSON."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import interval_terms, reporting
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
    Topic,
    Verbose,
    Warmup,
    Window,
    parse_conf,
    require_spark,
)
from tidings.errors import TidingsError
from tidings.model.units import percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidings.pipeline import PipelineResult, SubscriberScore
    from tidings.pipeline.streaming import Report, Update

__all__ = ["EPILOG", "errors_as_lines", "watch"]

EPILOG = (
    "Try:\n\ntidings pipeline watch trace --out scores\n\n"
    "tidings pipeline watch trace --out scores --window 10s --late 5s --until-idle 30s --json"
)
WORST_SHOWN = 10
REASONS_SHOWN = 4


_Trace = Annotated[
    str, typer.Argument(metavar="DIR", help="The directory of a trace; it need not exist yet.", show_default=False)
]
_Late = Annotated[
    str,
    typer.Option(
        "--late", metavar="TIME", help="How long a window waits for its rows after later events have departed."
    ),
]
_Hold = Annotated[
    str,
    typer.Option(
        "--hold", metavar="TIME", help="How long rows may lag behind their publisher before they are too late to count."
    ),
]
_Keep = Annotated[
    str, typer.Option("--keep", metavar="TIME", help="How long window_scores keeps windows; other tables keep all.")
]
_UntilIdle = Annotated[
    str | None,
    typer.Option(
        "--until-idle", metavar="TIME", help="Exit when nothing new has arrived for this long.", show_default=False
    ),
]


def watch(
    trace: _Trace,
    out: Out,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look for new files.")] = "5 s",
    late: _Late = "30 s",
    hold: _Hold = "10 min",
    keep: _Keep = "1 d",
    until_idle: _UntilIdle = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when all existing files are counted.")] = False,
    window: Window = "60 s",
    master: Master = None,
    environment: Environment = None,
    conf: Conf = None,
    mapping: MappingFile = None,
    topic: Topic = None,
    warmup: Warmup = None,
    clock_tolerance: ClockTolerance = "0 s",
    max_bad: MaxBad = "1%",
    from_scratch: FromScratch = False,
    verbose: Verbose = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each update and window.")] = False,
) -> None:
    """Keep the scores of a trace up to date while it is written.

    Ctrl-C stops it after the current batch; a restart continues where it
    stopped. If it ends on its own and too many rows are bad, the exit code
    is 1; the tables are complete even so.
    """
    with reporting(json=False), errors_as_lines(json=json):
        require_spark()
        from tidings.model.units import parse_quantity
        from tidings.pipeline import PipelineOptions, open_session
        from tidings.pipeline.streaming import WatchOptions, watch_trace

        def nanoseconds(text: str) -> int:
            return round(parse_quantity(text, "time") * 1e9)

        how = WatchOptions(
            every_s=parse_quantity(every, "time"),
            late_ns=nanoseconds(late),
            hold_ns=nanoseconds(hold),
            keep_ns=nanoseconds(keep),
            until_idle_s=None if until_idle is None else parse_quantity(until_idle, "time"),
            is_once=once,
        )
        what = PipelineOptions(
            window_ns=nanoseconds(window),
            topic=topic,
            warmup_ns=None if warmup is None else nanoseconds(warmup),
            clock_tolerance_ns=nanoseconds(clock_tolerance),
            mapping=mapping,
            max_bad=parse_share(max_bad),
            from_scratch=from_scratch,
        )
        with ExitStack() as stack:
            listener = stack.enter_context(_lines() if json else _view(trace))
            stop = threading.Event()
            stack.enter_context(_signals(stop))
            session = open_session(
                master=master,
                environment=environment,
                verbose=verbose,
                app_name="tidings pipeline watch",
                extra=parse_conf(conf),
            )
            watch_trace(lambda: stack.enter_context(session), trace, out, how, what, listener=listener, stop=stop)


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and a service manager's TERM set `stop`; a second Ctrl-C interrupts."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def errors_as_lines(*, json: bool) -> Iterator[None]:
    """With `--json` an error is a line like the others, beside the message on standard error."""
    try:
        yield
    except TidingsError as error:
        if json:
            _print_line({"kind": "error", "error": {"kind": type(error).__name__, "message": str(error)}})
        raise


def _print_line(document: Any) -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def _lines() -> Iterator[Callable[["Report"], None]]:
    """Each report as one line of JSON on standard output, at once; what is waited for on standard error."""
    from tidings.pipeline.streaming import Stage, Update

    def show(report: "Report") -> None:
        if isinstance(report, Stage):
            if report.is_waiting:
                typer.echo(report.text, err=True)
            return
        _print_line(_update_line(report) if isinstance(report, Update) else report)

    yield show


def _update_line(update: "Update") -> dict[str, Any]:
    """An update with the worst subscriptions only: a line must not grow with all of them."""
    import msgspec

    from tidings.pipeline.scores import LEVEL

    document: dict[str, Any] = msgspec.to_builtins(update)
    result = document.pop("result")
    worst = [{"subscription": name, **result["subscribers"][name]} for name, _ in _worst(update.result)]
    for name in ("subscribers", "tables"):
        del result[name]
    return {**document, "rows_per_s": update.rows_per_s, **result, "worst": worst, "intervals": interval_terms(LEVEL)}


def _worst(result: "PipelineResult") -> list[tuple[str, "SubscriberScore"]]:
    """The least reliable subscriptions, those without events left out."""
    import heapq

    def share(item: "tuple[str, SubscriberScore]") -> tuple[float, str]:
        return item[1].on_time_reliability or 0.0, item[0]

    return heapq.nsmallest(WORST_SHOWN, (item for item in result.subscribers.items() if item[1].matched), key=share)


@contextmanager
def _view(trace: str) -> Iterator[Callable[["Report"], None]]:
    """A view that refreshes on a terminal; elsewhere a line for each update."""
    from rich.console import Console
    from rich.live import Live

    from tidings.pipeline.streaming import End, Stage, Update

    console = Console(highlight=False)
    if not console.is_terminal:
        yield _plain_line
        return
    view = _View(trace)
    with Live(view, console=console, refresh_per_second=4) as live:

        def show(report: "Report") -> None:
            if isinstance(report, Stage):
                view.stage = report.text
            elif isinstance(report, Update):
                view.update, view.stage = report, "waiting for new files"
            elif isinstance(report, End):
                view.stage = _ended(report.reason)
                live.refresh()

        yield show


def _plain_line(report: "Report") -> None:
    from tidings.pipeline.streaming import End, Stage, Update

    if isinstance(report, Update):
        typer.echo(_summary(report))
        if report.result.recomputed is not None:
            typer.echo(f"everything was computed again: {report.result.recomputed}")
    elif isinstance(report, End):
        typer.echo(_ended(report.reason))
    elif isinstance(report, Stage) and report.is_waiting:
        typer.echo(report.text, err=True)


def _ended(reason: str) -> str:
    return {
        "stopped": "stopped; a restart continues from here",
        "idle": "ended: nothing new has arrived",
        "once": "ended: all existing files are counted",
    }[reason]


def _summary(update: "Update") -> str:
    result = update.result
    rate = percent(result.delivery_rate)
    return (
        f"{result.files:,} files ({result.new_files:,} new), {update.rows_read:,} rows in {update.seconds:.1f} s "
        f"({update.rows_per_s:,.0f} rows/s); on time {rate}: {result.on_time:,} of {result.matched:,}, "
        f"{result.late:,} late, {result.lost:,} lost; bad rows {result.bad:,}"
    )


class _View:
    """What the terminal shows; drawn again several times a second."""

    def __init__(self, trace: str) -> None:
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        self._trace = trace
        self.stage = "starting"
        self.update: Update | None = None

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        self._spinner.update(text=Text(f"{self._trace}: {self.stage}"))
        if self.update is None:
            return self._spinner
        return Group(_facts(self.update), "", _windows(self.update), "", _subscribers(self.update), "", self._spinner)


def _facts(update: "Update") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    result = update.result
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    rate = percent(result.delivery_rate)
    table.add_row("on time", f"{rate}: {result.on_time:,} of {result.matched:,}, earning {result.earnings:,.10g}")
    table.add_row("not on time", f"{result.late:,} late, {result.lost:,} lost or under way")
    table.add_row(
        "last batch",
        f"{update.rows_read:,} rows of {result.new_files:,} new files in {update.seconds:.1f} s, "
        f"{update.rows_per_s:,.0f} rows/s; {sum(result.rows.values()):,} rows in {result.files:,} files so far",
    )
    reasons = sorted(result.quarantined.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN]
    shown = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
    table.add_row("quarantine", Text(f"{result.bad:,} rows ({shown})", style="yellow") if result.bad else "empty")
    if result.recomputed is not None:
        table.add_row("note", Text(f"everything was computed again: {result.recomputed}", style="yellow"))
    return table


def _windows(update: "Update") -> "RenderableType":
    from rich.table import Table

    table = Table(title="windows of departure", title_justify="left", box=None, pad_edge=False)
    for heading in ("from", "matched", "on time", "late", "lost", "reliability"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in update.windows:
        share = percent(row.on_time / row.matched) if row.matched else "-"
        counts = [f"{count:,}" for count in (row.matched, row.on_time, row.late, row.lost)]
        table.add_row(
            f"{row.window_ns / 1e9:,.10g} s",
            *counts,
            share,
            "final" if row.final else "open",
            style="dim" if row.final else "",
        )
    return table


def _subscribers(update: "Update") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(title="subscriptions, the least reliable first", title_justify="left", box=None, pad_edge=False)
    table.add_column("subscription")
    for heading in ("matched", "on time", "late", "lost", "reliability"):
        table.add_column(heading, justify="right")
    for name, row in _worst(update.result):
        counts = [f"{count:,}" for count in (row.matched, row.on_time, row.late, row.lost)]
        table.add_row(Text(name), *counts, percent(row.on_time_reliability))
    return table
