"""What the commands on Spark share: that PySpark is there, where it runs, what a run over a trace is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.errors import ConfigurationError

__all__ = [
    "ClockTolerance",
    "Conf",
    "Environment",
    "FromScratch",
    "MappingFile",
    "Master",
    "MaxBad",
    "Out",
    "Remote",
    "Topic",
    "Verbose",
    "Warmup",
    "Window",
    "parse_conf",
    "require_spark",
]

Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="The Spark master (default: local[*]).")]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server.")]
Environment = Annotated[
    Path | None,
    typer.Option("--environment", metavar="FILE", help="An archive of a Python environment for the workers."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark's, as in spark-submit; may be given several times.",
        show_default=False,
    ),
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where the tables go: a path, or an address (hdfs://, s3a://); later runs continue from it.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log on standard error.")]
MappingFile = Annotated[
    Path | None,
    typer.Option("--mapping", metavar="FILE", help="The mapping file for a foreign trace (JSON lines, CSV)."),
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="ATTRIBUTE", help="Also score by this attribute (default: `topic`, if events have it)."
    ),
]
Window = Annotated[str, typer.Option("--window", metavar="TIME", help="The length of a time window.")]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup",
        metavar="TIME",
        help="Ignore events published before this time (default: the trace's own warm-up).",
        show_default=False,
    ),
]
ClockTolerance = Annotated[str, typer.Option("--clock-tolerance", metavar="TIME", help="How far clocks may be apart.")]
MaxBad = Annotated[
    str, typer.Option("--max-bad", metavar="SHARE", help="Exit with 1 if a larger share of rows is bad, as 1% or 0.01.")
]
FromScratch = Annotated[bool, typer.Option("--from-scratch", help="Ignore earlier runs and compute everything again.")]


def require_spark() -> None:
    """Say how to install PySpark if it is not there, before a command imports what needs it."""
    from tidings.pipeline import require_pyspark

    require_pyspark()


def parse_conf(settings: list[str] | None) -> dict[str, str]:
    """Settings of Spark's as people write them: key=value."""
    found = dict[str, str]()
    for text in settings or ():
        key, is_given, value = text.partition("=")
        if not is_given or not key.strip().startswith("spark."):
            raise ConfigurationError(f"--conf {text!r} is no setting of Spark's: write --conf spark.name=value")
        found[key.strip()] = value.strip()
    return found
