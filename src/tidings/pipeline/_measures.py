"""Measures: what is computed of the facts, unit by unit, and put together to tables.

A partial is a pure function of the facts of its unit and has the unit's columns; a table is a pure function of all
partial rows, however they are split. So what a run leaves as it is and what it computes again add up to the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline._joining import UNIT, Joined
from tidings.pipeline.profiles import (
    PROFILES,
    merge_brokers,
    merge_links,
    merge_pairs,
    partial_pairs,
    partial_transmissions,
)
from tidings.pipeline.scores import PAIR_SCORES, merge_traffic

__all__ = ["QUARANTINE_MEASURE", "ROWS_MEASURE", "Measure", "all_measures"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Partials of one kind and the tables that come of them.

    `by` names what is replaced as one: units (columns publisher and chunk), or slices of time (column slice).
    """

    name: str
    by: Literal["chunk", "slice"]
    partial: Callable[[Joined], DataFrame]
    tables: Mapping[str, Callable[[DataFrame], DataFrame]]

    @property
    def keys(self) -> tuple[str, ...]:
        return UNIT if self.by == "chunk" else ("slice",)


def all_measures(*, window_ns: int) -> tuple[Measure, ...]:
    """Every measure of a run, the cheap ones that say what was read first. Tables of the same partials are one."""
    pairs = Measure(
        name="pairs",
        by="chunk",
        partial=partial(partial_pairs, window_ns=window_ns),
        tables={**PAIR_SCORES, "pairs": merge_pairs},
    )
    transmissions = Measure(
        name="transmissions",
        by="chunk",
        partial=partial_transmissions,
        tables={"traffic": merge_traffic, "brokers": merge_brokers, "links": merge_links},
    )
    together = {*pairs.tables, *transmissions.tables}
    others = [
        Measure(name=profile.name, by=profile.by, partial=profile.partial, tables={profile.name: profile.merge})
        for profile in PROFILES
        if profile.name not in together
    ]
    return (QUARANTINE_MEASURE, ROWS_MEASURE, pairs, transmissions, *others)


def _quarantine(partials: DataFrame) -> DataFrame:
    return partials.select("table", "file", "reasons", "row")


def _rows(partials: DataFrame) -> DataFrame:
    return partials.groupBy("table").agg(fn.sum("rows").alias("rows")).select("table", "rows")


QUARANTINE_MEASURE: Final = Measure(
    name="quarantine", by="chunk", partial=lambda facts: facts.quarantined, tables={"quarantine": _quarantine}
)
ROWS_MEASURE: Final = Measure(name="rows", by="chunk", partial=lambda facts: facts.rows, tables={"rows": _rows})
