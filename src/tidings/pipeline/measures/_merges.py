"""Measures: the partials that a run keeps, and the tables that are put together of them.

A partial is a pure function of the facts of its unit, or of its slice of time; a table is a pure function of all
partial rows, however they are split. So what a run leaves as it is and what it computes again add up to the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline.measures import (
    PAIR_SCORES,
    brokers_table,
    links_table,
    merge_arrivals,
    merge_components,
    merge_content,
    merge_publishers,
    merged_pairs,
    merged_transmissions,
    pairs_table,
    traffic_table,
)

__all__ = ["ARRIVALS", "MEASURES", "Measure"]

Merge = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Partials of one kind, and the tables that come of them; `prepare` makes what all of these need."""

    name: str
    tables: Mapping[str, Merge]
    prepare: Merge | None = None


def _quarantine(partials: DataFrame) -> DataFrame:
    return partials.select("table", "file", "reasons", "row", "rows")


def _rows(partials: DataFrame) -> DataFrame:
    return partials.groupBy("table").agg(fn.sum("rows").alias("rows")).select("table", "rows")


ARRIVALS: Final = "arrivals"
"""The measure by slices of time; all others are by unit."""

MEASURES: Final = (
    Measure(name="pairs", tables={**PAIR_SCORES, "pairs": pairs_table}, prepare=merged_pairs),
    Measure(
        name="transmissions",
        tables={"traffic": traffic_table, "brokers": brokers_table, "links": links_table},
        prepare=merged_transmissions,
    ),
    Measure(name="quarantine", tables={"quarantine": _quarantine}),
    Measure(name="rows", tables={"rows": _rows}),
    Measure(name="publishers", tables={"publishers": merge_publishers}),
    Measure(name="content", tables={"content": merge_content}),
    Measure(name="components", tables={"components": merge_components}),
    Measure(name=ARRIVALS, tables={"arrivals": merge_arrivals}),
)
"""Every measure of a run."""
