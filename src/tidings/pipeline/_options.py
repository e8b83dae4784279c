"""What a run is asked for, whichever engine makes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidings.errors import ConfigurationError
from tidings.pipeline._result import MAX_BAD
from tidings.pipeline.ingest import Mapping, TraceFile, warmup_of

__all__ = ["SMALL", "PipelineOptions", "Progress", "silence", "small_files", "terms_of"]

SMALL = ("subscriptions", "topology", "transitions")
"""The tables that a run holds whole."""

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """What a run is asked for, beside the trace.

    `window_ns` is the length of the windows of `window_scores`; `topic` the attribute whose values are the topics (by
    default `topic`, where events have it); `warmup_ns` leaves out events that depart before (by default as the trace
    states); clocks may differ by `clock_tolerance_ns`; `mapping` is the mapping file for a foreign trace. More
    than the share `max_bad` of bad rows is an error (1.0: never); `from_scratch` forgets earlier runs.
    `catalog` is a schema (or catalog and schema) that gets the tables as well, in `table_format`.
    """

    window_ns: int = 60_000_000_000
    topic: str | None = None
    warmup_ns: int | None = None
    clock_tolerance_ns: int = 0
    mapping: Path | None = None
    max_bad: float = MAX_BAD
    from_scratch: bool = False
    catalog: str | None = None
    table_format: str = "parquet"

    def __post_init__(self) -> None:
        if self.window_ns < 1:
            raise ConfigurationError(f"the window is {self.window_ns} ns, but must be 1 ns or more")
        if self.clock_tolerance_ns < 0:
            raise ConfigurationError(f"the clock tolerance is {self.clock_tolerance_ns} ns, but must not be negative")
        if not 0.0 <= self.max_bad <= 1.0:
            raise ConfigurationError(f"max_bad is {self.max_bad!r}, but must be a share from 0 to 1")


def silence(_stage: str) -> None:
    """Progress that nobody sees."""


def small_files(files: Sequence[TraceFile]) -> list[TraceFile]:
    return [file for file in files if file.table in SMALL]


def terms_of(
    options: PipelineOptions, mapping: Mapping | None, files: Sequence[TraceFile], *, engine: str = "spark"
) -> dict[str, str]:
    """The options that the answer depends on, as text to compare and to show."""
    warmup_ns = warmup_of(files) if options.warmup_ns is None else options.warmup_ns
    return {
        "window_ns": str(options.window_ns),
        "topic": options.topic or "",
        "warmup_ns": str(warmup_ns),
        "clock_tolerance_ns": str(options.clock_tolerance_ns),
        "mapping": "" if mapping is None else mapping.digest,
        "engine": engine,
    }
