"""Which units a run has to compute: those that the new files have rows of.

Of old files only groups of rows are read that may have rows of these units: the range of their sequence numbers is
pushed down to the footers' statistics; of what is read a semi join keeps the rows of the units.

Measures by slices of time need whole slices: the slices are those in which a new hop was received, or an old hop of an
event whose publication is new; and every unit with a hop received in one of them is computed as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.gathering._forms import UNIT, unit_columns
from tidings.pipeline.ingest import TraceFile
from tidings.pipeline.measures import SLICE_NS

__all__ = ["LARGE", "Touched", "is_without_event", "restricted", "touched_units"]

LARGE = ("publications", "hops", "deliveries")

Read = Callable[[str, Sequence[TraceFile]], DataFrame]
LayDown = Callable[[str, DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Touched:
    """Units (publisher, chunk) and slices to compute; the unit of no event is always one of them."""

    units: DataFrame
    slices: DataFrame
    least_sequence: int
    greatest_sequence: int


def touched_units(new: Sequence[TraceFile], old: Sequence[TraceFile], read: Read, lay_down: LayDown) -> Touched:
    """What new files touch. `read` gives the raw rows of a table's files, `lay_down` writes and reads a DataFrame."""
    rows = [read(table, new).select("publisher", "sequence") for table in LARGE]
    direct = rows[0].unionAll(rows[1]).unionAll(rows[2]).select(*unit_columns()).distinct()
    old_hops = read("hops", old).where("received_ns IS NOT NULL")
    published = read("publications", new).select("publisher", "sequence").distinct()
    near = old_hops.where(_may_be_of(new))
    healed = near.join(published, ["publisher", "sequence"], "left_semi").select(_slice())
    received = read("hops", new).where("received_ns IS NOT NULL").select(_slice())
    slices = lay_down("slices", received.unionAll(healed).distinct())
    least_ns, greatest_ns = _span(slices, "slice", SLICE_NS)
    beside = old_hops.where(fn.col("received_ns").between(least_ns, greatest_ns)).select(*unit_columns(), _slice())
    beside = beside.join(fn.broadcast(slices), "slice", "left_semi")
    units = lay_down("units", direct.unionAll(beside.select(*UNIT)).distinct())
    known = units.where("publisher IS NOT NULL")
    least, greatest = _span(known, "chunk", CHUNK_EVENTS)
    return Touched(units=known, slices=slices, least_sequence=least, greatest_sequence=greatest)


def _span(rows: DataFrame, name: str, length: int) -> tuple[int, int]:
    """The least and greatest value in intervals of this length whose numbers these are; nothing is between 0 and -1."""
    found = rows.agg(fn.min(name), fn.max(name)).head()
    if found is None or found[0] is None:
        return 0, -1
    # Numbers are rounded towards 0, so the interval 0 begins below it.
    least, greatest = int(found[0]), int(found[1])
    return (least - (least <= 0)) * length, (greatest + 1) * length - 1


def _may_be_of(new: Sequence[TraceFile]) -> Column:
    """Whether a row may be of an event in the new publications, by the ranges in their footers."""
    files = [file for file in new if file.table == "publications"]
    if any(file.least_sequence is None or file.greatest_sequence is None for file in files):
        return fn.lit(True)
    least = min((file.least_sequence for file in files if file.least_sequence is not None), default=0)
    greatest = max((file.greatest_sequence for file in files if file.greatest_sequence is not None), default=-1)
    return fn.col("sequence").between(least, greatest)


def restricted(rows: DataFrame, touched: Touched) -> DataFrame:
    """Those rows that belong to a touched unit or to no event."""
    is_near = fn.col("sequence").between(touched.least_sequence, touched.greatest_sequence)
    units = touched.units.select(fn.col("publisher").alias("_publisher"), fn.col("chunk").alias("_chunk"))
    placed = rows.where(is_near & fn.col("publisher").isNotNull())
    publisher, chunk = unit_columns()
    is_touched = (publisher == fn.col("_publisher")) & (chunk == fn.col("_chunk"))
    return placed.join(fn.broadcast(units), is_touched, "left_semi").unionAll(rows.where(is_without_event()))


def is_without_event() -> Column:
    return fn.col("publisher").isNull() | fn.col("sequence").isNull()


def _slice() -> Column:
    return fn.expr(f"received_ns div {SLICE_NS}L").alias("slice")
