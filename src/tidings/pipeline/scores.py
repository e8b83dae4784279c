"""Scores: who got what on time, by subscription, publisher, topic and window of time, and what links carried for it.

`of` computes them from DataFrames; see docs/reference/pipeline.md.
"""

from typing import TYPE_CHECKING, Final

from tidings.pipeline.measures import LEVEL, SCORES, TRAFFIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LEVEL", "SCORES", "TABLES", "TRAFFIC", "of"]

TABLES: Final = ("subscriber_scores", "publisher_scores", "topic_scores", "window_scores")
"""All tables of scores."""


def of(
    publications: "DataFrame",
    subscriptions: "DataFrame",
    deliveries: "DataFrame",
    *,
    hops: "DataFrame | None" = None,
    topology: "DataFrame | None" = None,
    transitions: "DataFrame | None" = None,
    window_ns: int = 60_000_000_000,
    topic: str | None = None,
    warmup_ns: int = 0,
    clock_tolerance_ns: int = 0,
) -> "dict[str, DataFrame]":
    """The tables of scores by name, from the tables of a trace: on the caller's session, without files or settings.

    `subscriber_scores`, `publisher_scores`, `topic_scores` and `window_scores`; `traffic` of `hops`; `quarantine` has
    the rows that do not count, `rows` how many there are of each table. Each is computed when it is used.
    """
    from tidings.pipeline._frames import frame_tables

    frames = {
        "publications": publications,
        "subscriptions": subscriptions,
        "deliveries": deliveries,
        "hops": hops,
        "topology": topology,
        "transitions": transitions,
    }
    found = frame_tables(
        frames, window_ns=window_ns, topic=topic, warmup_ns=warmup_ns, clock_tolerance_ns=clock_tolerance_ns
    )
    return {name: found[name] for name in (*TABLES, "traffic", "quarantine", "rows")}
