"""`tidings demo`: a scenario from end to end, for a first look."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidings.cli._examples import examples_directory
from tidings.cli._output import Json, print_json, reporting
from tidings.cli._spark_options import Master, Verbose, require_spark

__all__ = ["EPILOG", "demo"]

EPILOG = "Try:\n\ntidings demo\n\ntidings demo examples/quickstart.toml --out mine --json"
SCENARIO = Path("examples/europe.toml")
"""Where there is no such file, the one of the installation."""


def demo(
    file: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario in TOML.")] = SCENARIO,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The directory for the trace, the tables and the report.")
    ] = Path("demo"),
    open_report: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser if there is a display.")
    ] = True,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="arrow: in this process, without a JVM (the default); or spark. --master implies spark.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """See Tidings find out who is late, why, and what helps, in about a minute.

    It predicts the on-time share of every subscriber, simulates an hour of
    quotes over Europe, computes from the trace what each subscriber got, and
    compares prediction and result. It estimates deadline scheduling,
    ordering, buffering and moving publishers one at a time, simulates all of
    them together, and writes an HTML report.
    """
    with reporting(json=json):
        is_spark = _is_spark(engine, master)
        if is_spark:
            require_spark()
        from tidings.demo import STEPS, next_commands, print_demo, run_demo
        from tidings.pipeline import local_path, open_session

        out = local_path(out)
        if file == SCENARIO and not file.exists():
            file = examples_directory() / SCENARIO.name
        steps = _Steps(STEPS)
        with ExitStack() as stack, steps.showing() as stage:
            start = None
            if is_spark:
                session = open_session(master=master, verbose=verbose, app_name="tidings demo")
                start = partial(stack.enter_context, session)
            found = run_demo(file, out, session=start, say=steps, stage=stage)
        if json:
            print_json(found)
            return
        print_demo(found)
        opened = open_report and _open(Path(found.report))
        typer.echo(f"\nThe report{' is open in your browser' if opened else ''}: {found.report}\n\nNext:")
        for command, purpose in next_commands(found):
            typer.echo(f"  {command}\n      {purpose}")


def _is_spark(engine: str | None, master: str | None) -> bool:
    from tidings.errors import ConfigurationError

    if engine not in (None, "arrow", "spark"):
        raise ConfigurationError(f"--engine {engine}: there is no such engine; write arrow or spark")
    if engine == "arrow" and master is not None:
        raise ConfigurationError("--master: for Spark only; leave it out, or run with --engine spark")
    return engine == "spark" or master is not None


class _Steps:
    """Numbered steps with the time since the beginning on standard error; on a terminal what goes on inside, too."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._begun_s = time.monotonic()

    def __call__(self, text: str) -> None:
        self._done += 1
        typer.echo(f"[{self._done}/{self._count}, {time.monotonic() - self._begun_s:.0f} s] {text}", err=True)

    @contextmanager
    def showing(self) -> Iterator[Callable[[str, float | None], None]]:
        """One line that changes; where there is no terminal, nothing: steps are frequent enough."""
        if not sys.stderr.isatty():
            yield lambda *_: None
            return
        from rich.console import Console
        from rich.status import Status

        with Status("", console=Console(stderr=True)) as status:
            yield lambda text, share: status.update(text if share is None else f"{text}: {share:.0%}")


def _open(report: Path) -> bool:
    """Open a page in the user's browser; False if there is no display or terminal."""
    import webbrowser

    has_display = sys.platform in ("darwin", "win32") or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_display and sys.stdout.isatty() and webbrowser.open(report.resolve().as_uri())
