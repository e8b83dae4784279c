"""A Spark job as a subscriber with deadlines, and as a publisher: `format("tidings")` (docs/guide/spark-streams.md)."""

from tidings.pipeline.source._source import TidingsSource

__all__ = ["TidingsSource"]
