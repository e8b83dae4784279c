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
from tidings.pipeline.rows import KEPT_IN

__all__ = [
    "UNIT",
    "found_again",
    "in_one_form",
    "unit_columns",
    "with_faults",
]

UNIT: Final = ("publisher", "chunk")
"""What is computed and replaced as one."""

_KINDS: Final = {
    **dict.fromkeys(("a", "b", "c", "d", "e", "f"), "bigint"),
    **dict.fromkeys(("first", "second"), "string"),
    "matches": "array<int>",
}
_BAD: Final = "struct<file: string, reasons: array<string>, row: string>"


def unit_columns() -> list[Column]:
    """The unit of a row, by its publisher and sequence number."""
    has_event = fn.col("publisher").isNotNull() & fn.col("sequence").isNotNull()
    chunk = fn.when(has_event, fn.expr(f"sequence div {CHUNK_EVENTS}L")).otherwise(fn.lit(WITHOUT_EVENT))
    return [fn.when(has_event, fn.col("publisher")).alias("publisher"), chunk.cast("bigint").alias("chunk")]


def _quarantine_columns(table: str) -> list[Column]:
    """A checked row as a row of the quarantine."""
    shown = fn.coalesce(fn.col("_raw"), fn.to_json(fn.struct(*TABLES[table].names), JSON_OPTIONS))
    file = shown_path(fn.col("_file")).alias("file")
    return [fn.lit(table).alias("table"), file, fn.col("reasons"), shown.alias("row"), _one()]


def _one() -> Column:
    return fn.lit(1).cast("bigint").alias("rows")


def with_faults(table: str, checked: DataFrame) -> DataFrame:
    """Checked rows as those columns of GATHERED that the table has, but for `of`.

    Publications have `matches` and `topic`, deliveries the `number` of a subscription.
    """
    own = [_value(column).cast(_KINDS[name]).alias(name) for name, column in _kept(table, checked).items()]
    return checked.select("publisher", "sequence", *own, _bad(table))


def in_one_form(table: str, rows: DataFrame, *others: Column) -> DataFrame:
    """The columns of GATHERED, up to `bad`, and others."""
    kept = _kept(table, rows)
    own = [
        (_value(kept[name]) if name in kept else fn.lit(None)).cast(kind).alias(name) for name, kind in _KINDS.items()
    ]
    number = list(KEPT_IN).index(table)
    return rows.select(fn.lit(number).cast("int").alias("of"), "publisher", "sequence", *own, *others)


def _kept(table: str, rows: DataFrame) -> dict[str, str]:
    return {name: column for name, column in KEPT_IN[table].items() if column in rows.columns}


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
    alike = ("publisher", "sequence", *_KINDS)
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
