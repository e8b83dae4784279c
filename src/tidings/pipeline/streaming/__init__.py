"""Watching a trace that grows: the batch answer, kept up to date (docs/reference/pipeline-watch.md)."""

from tidings.pipeline.streaming._reports import End, Report, Stage, Update, WindowScore, WindowTotal
from tidings.pipeline.streaming._watch import WatchOptions, watch_trace

__all__ = ["End", "Report", "Stage", "Update", "WatchOptions", "WindowScore", "WindowTotal", "watch_trace"]
