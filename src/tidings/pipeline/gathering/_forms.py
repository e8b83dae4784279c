"""Rows of the three large tables in one form, by Spark's own expressions.

A bad row travels with the good ones, so that one pass finds facts and faults. Rows without a publisher or a sequence
number belong to no unit and may be anywhere. Rows that are found bad where they meet others are known by their values
and their turn among rows that are alike (rows/_join.py); `found_again` finds the file that each is in. Few are, so
only then are files read a second time.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES
from tidings.pipeline._units import CHUNK_EVENTS, WITHOUT_EVENT
from tidings.pipeline.ingest import JSON_OPTIONS, OUTCOMES, shown_path
from tidings.pipeline.ingest._columns import quoted
from tidings.pipeline.rows import KEPT_IN, OWN

__all__ = [
    "UNIT",
    "found_again",
    "to_gather",
    "unit_columns",
]

UNIT: Final = ("publisher", "chunk")
"""What is computed and replaced as one."""

_BAD: Final = "struct<file: string, reasons: array<string>, row: string>"


def unit_columns(without_event: Column | None = None) -> list[Column]:
    """The unit of a row, by its publisher and sequence number; rows without an event may be told apart by a column."""
    has_event = fn.col("publisher").isNotNull() & fn.col("sequence").isNotNull()
    other = fn.lit(WITHOUT_EVENT) if without_event is None else without_event
    chunk = fn.when(has_event, fn.expr(f"sequence div {CHUNK_EVENTS}L")).otherwise(other)
    return [fn.when(has_event, fn.col("publisher")).alias("publisher"), chunk.cast("bigint").alias("chunk")]


def _quarantine_columns(table: str) -> list[Column]:
    """A checked row as a row of the quarantine."""
    shown = fn.coalesce(fn.col("_raw"), fn.to_json(fn.struct(*TABLES[table].names), JSON_OPTIONS))
    file = shown_path(fn.col("_file")).alias("file")
    return [fn.lit(table).alias("table"), file, fn.col("reasons"), shown.alias("row"), _one()]


def _one() -> Column:
    return fn.lit(1).cast("bigint").alias("rows")


def to_gather(table: str, checked: DataFrame, attributes: Mapping[str, str]) -> DataFrame:
    """Checked rows as GATHERED has them; in place of `matches` the `attributes` that filters read (types by name)."""
    others = [_bad(table)]
    if attributes:
        kind = f"struct<{', '.join(f'{quoted(name)}: {kind}' for name, kind in attributes.items())}>"
        given = fn.struct(*(fn.col("attributes").getField(name).alias(name) for name in attributes))
        others.append((given if table == "publications" else fn.lit(None).cast(kind)).alias("attributes"))
    return in_one_form(table, checked, *others).drop("matches")


def in_one_form(table: str, rows: DataFrame, *others: Column) -> DataFrame:
    """The columns of GATHERED, up to `bad`, and others."""
    return rows.select(_of(table), "publisher", "sequence", *_own(table, rows), *others)


def _of(table: str) -> Column:
    return fn.lit(list(KEPT_IN).index(table)).cast("int").alias("of")


def _own(table: str, rows: DataFrame) -> list[Column]:
    has = {name for name in KEPT_IN[table] if name in rows.columns}
    return [(_value(name) if name in has else fn.lit(None)).cast(kind).alias(name) for name, kind in OWN.items()]


def _value(name: str) -> Column:
    if name != "outcome":
        return fn.col(name)
    words = " ".join(f"WHEN '{outcome}' THEN {number}" for number, outcome in enumerate(OUTCOMES))
    return fn.expr(f"CASE outcome {words} END")


def _bad(table: str) -> Column:
    return fn.when(fn.size("reasons") > 0, fn.struct(*_quarantine_columns(table)[1:4])).cast(_BAD).alias("bad")


def found_again(faults: DataFrame, checked: Mapping[str, DataFrame]) -> DataFrame:
    """Faults as rows of the quarantine (QUARANTINED), with the files that they are in."""
    found = [_found_again(table, faults.where(fn.col("table") == table), rows) for table, rows in checked.items()]
    return found[0].unionAll(found[1]).unionAll(found[2])


def _found_again(table: str, faults: DataFrame, checked: DataFrame) -> DataFrame:
    good = checked.where(fn.size("reasons") == 0)
    rows = in_one_form(table, good, *_quarantine_columns(table))
    events = faults.select("publisher", "sequence").distinct()
    near = rows.join(events, ["publisher", "sequence"], "left_semi")
    alike = ("publisher", "sequence", *OWN)
    order = Window.partitionBy(*alike).orderBy("file", "row")
    numbered = near.select(*alike, "file", "row", fn.row_number().over(order).cast("bigint").alias("turn"))
    names = (*alike, "turn")
    left, right = faults.alias("fault"), numbered.alias("found")
    is_same = [fn.col(f"fault.{name}").eqNullSafe(fn.col(f"found.{name}")) for name in names]
    return left.join(right, is_same, "inner").select(
        *(fn.col(f"fault.{name}").alias(name) for name in (*UNIT, "table")),
        "found.file",
        fn.array("fault.reason").alias("reasons"),
        "found.row",
        _one(),
    )
