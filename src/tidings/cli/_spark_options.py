"""Options that the commands on Spark share: where it runs, and what a run over a trace is asked for."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ClockTolerance",
    "Environment",
    "FromScratch",
    "MappingFile",
    "Master",
    "Remote",
    "Topic",
    "Verbose",
    "Warmup",
    "Window",
]

Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="A Spark master; local[*] unless given.")]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server.")]
Environment = Annotated[
    Path | None,
    typer.Option("--environment", metavar="FILE", help="An archive of a Python environment for the workers."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Let Spark speak on standard error.")]
MappingFile = Annotated[
    Path | None, typer.Option("--mapping", metavar="FILE", help="How to read a foreign trace (JSON lines, CSV).")
]
Topic = Annotated[
    str | None,
    typer.Option("--topic", metavar="ATTRIBUTE", help="Scores by this attribute; `topic` if events have it."),
]
Window = Annotated[str, typer.Option("--window", metavar="TIME", help="Length of the windows of time.")]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup",
        metavar="TIME",
        help="Leave out events that depart before; what the trace says unless given.",
        show_default=False,
    ),
]
ClockTolerance = Annotated[str, typer.Option("--clock-tolerance", metavar="TIME", help="How far clocks may differ.")]
FromScratch = Annotated[bool, typer.Option("--from-scratch", help="Forget earlier runs.")]
