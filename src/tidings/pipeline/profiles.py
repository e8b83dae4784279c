"""Profiles: what a trace says about publishers, their content, brokers, links, components and pairs.

`of` computes them from DataFrames; see docs/reference/profiles.md.
"""

from typing import TYPE_CHECKING, Final

from tidings.pipeline.measures import LEVEL, PROBABILITIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LEVEL", "PROBABILITIES", "TABLES", "of"]

TABLES: Final = ("publishers", "content", "brokers", "arrivals", "links", "components", "pairs")
"""All profiles, in the order that they are shown in."""


def of(
    publications: "DataFrame",
    subscriptions: "DataFrame",
    deliveries: "DataFrame | None" = None,
    *,
    hops: "DataFrame | None" = None,
    topology: "DataFrame | None" = None,
    transitions: "DataFrame | None" = None,
    window_ns: int = 60_000_000_000,
    topic: str | None = None,
    warmup_ns: int = 0,
    clock_tolerance_ns: int = 0,
) -> "dict[str, DataFrame]":
    """The profiles by name, from the tables of a trace: on the caller's session, without files or settings.

    `publishers`, `content`, `brokers`, `arrivals`, `links`, `components` and `pairs`; `quarantine` has the rows that do
    not count, `rows` how many there are of each table. Each is computed when it is used.
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
    return {name: found[name] for name in (*TABLES, "quarantine", "rows")}
