"""Which rows are bad, and why: the rules (_rules.py) as Spark's expressions, in the same pass that reads the rows.

`check_rows` adds `reasons array<string>`: empty for a good row. Small tables that a row refers to (brokers,
subscriptions) are joined by broadcast, so nothing is shuffled. What needs the other rows of an event is left to where
they meet; `KEYS` and `first_of` say there which rows are the same one, and which of them is kept.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StructField, StructType

from tidings.errors import FilterError
from tidings.model.filters import Filter
from tidings.model.trace import TABLES
from tidings.pipeline.ingest._casts import shown_path
from tidings.pipeline.ingest._columns import KIND_TYPES
from tidings.pipeline.ingest._reasons import DUPLICATE, JSON_OPTIONS, MISSING_ID
from tidings.pipeline.ingest._rules import KEYS, Rule, broken_by_reason, rules_of

__all__ = [
    "check_rows",
    "delay_is_negative",
    "first_of",
    "known_brokers",
    "quarantine_rows",
    "split",
]

_SMALL: Final = ("subscriptions", "transitions", "topology")


def check_rows(
    table: str,
    rows: DataFrame,
    *,
    clock_tolerance_ns: int = 0,
    brokers: DataFrame | None = None,
    subscriptions: DataFrame | None = None,
) -> DataFrame:
    """The rows of `read_table` with `reasons array<string>`, in the order of REASONS, in place of `_faults`.

    `brokers` (column `broker`, see `known_brokers`) and `subscriptions` (column `subscription`) are those that there
    are, each once; without them nothing is unknown. If subscriptions have a `number`, deliveries get it. Duplicates are
    looked for in the small tables only (subscriptions, transitions, topology). Whoever has read the filters of
    subscriptions already says in `_bad_filter` which do not parse.
    """
    columns = rows.columns
    if table == "subscriptions" and "_bad_filter" not in columns:
        rows = _with_filter_faults(rows)
    rules = rules_of(table, _kinds(rows))
    by = _Columns(clock_tolerance_ns, brokers is not None, subscriptions is not None)
    for rule in rules:
        rows = _with_mark(rule, rows, brokers, subscriptions)
    broken = broken_by_reason(rules, by)
    # A value that was wrong is NULL now: that is one reason, not two.
    broken[MISSING_ID] = (f.size("_faults") == 0) & broken[MISSING_ID]
    # Arrays are built for bad rows only: of a thousand million good ones, each would cost an allocation.
    found = f.array_compact(f.array(*(f.when(condition, f.lit(reason)) for reason, condition in broken.items())))
    is_bad = f.coalesce(reduce(Column.__or__, broken.values()), f.lit(False))
    reasons = f.when(is_bad, f.concat(f.col("_faults"), found)).otherwise(f.col("_faults"))
    kept = [name for name in columns if name not in ("_faults", "_bad_filter")]
    if "number" in rows.columns and "number" not in kept:
        kept.append("number")
    checked = rows.select(*kept, reasons.alias("reasons"))
    return _mark_duplicates(table, checked) if table in _SMALL else checked


def split(table: str, checked: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The good rows, with the contract's columns, and the bad ones, as rows of the quarantine."""
    good = checked.where(f.size("reasons") == 0).select(*_contract(table))
    return good, quarantine_rows(table, checked.where(f.size("reasons") > 0))


def quarantine_rows(table: str, rows: DataFrame) -> DataFrame:
    """Rows with `reasons` (and, where they are known, `_file` and `_raw`) as rows of the quarantine (QUARANTINE)."""
    shown = f.to_json(f.struct(*_contract(table)), JSON_OPTIONS)
    row = f.coalesce(f.col("_raw"), shown) if "_raw" in rows.columns else shown
    file = shown_path(f.col("_file")) if "_file" in rows.columns else f.lit(None).cast("string")
    named = [f.lit(table).alias("table"), file.alias("file"), f.col("reasons"), row.alias("row")]
    return rows.select(*named, f.lit(1).cast("bigint").alias("rows"))


def known_brokers(topology: DataFrame) -> DataFrame:
    """The brokers of a topology, for `check_rows`. A trace whose topology is unknown has none: pass None instead."""
    return topology.where("kind = 'broker'").select(f.col("source").alias("broker")).distinct()


def delay_is_negative(departure_ns: Column, arrival_ns: Column, *, clock_tolerance_ns: int) -> Column:
    """Whether something arrived before it departed, by more than the clock tolerance (NULL if either is NULL)."""
    # A sum that overflows is NULL: such an arrival is far too late, not too early, and a bad value anyway.
    latest = f.try_add(arrival_ns, f.lit(clock_tolerance_ns)) if clock_tolerance_ns else arrival_ns
    return latest < departure_ns


def first_of(table: str) -> list[Column]:
    """The order among rows with the same KEYS: the first is kept, the others are duplicates.

    The earliest arrival comes first, and every column takes part, so the choice does not depend on files or order.
    """
    times = {"publications": "departure_ns", "deliveries": "arrived_ns"}.get(table)
    names = [name for name in _contract(table) if name != times and name not in KEYS[table]]
    return [f.col(name).asc_nulls_last() for name in ([times] if times else []) + names]


def _contract(table: str) -> list[str]:
    return list(TABLES[table].names)


class _Columns:
    """The rules' Algebra in Spark: what is known is a mark beside the row (`_with_mark`)."""

    def __init__(self, clock_tolerance_ns: int, has_brokers: bool, has_subscriptions: bool) -> None:
        self.clock_tolerance_ns = clock_tolerance_ns
        self._has = {"broker": has_brokers, "subscription": has_subscriptions, "filter": True}

    def column(self, path: Sequence[str]) -> Column:
        return reduce(Column.getField, path[1:], f.col(path[0]))

    def is_null(self, value: Column) -> Column:
        return value.isNull()

    def is_in(self, value: Column, words: Sequence[str]) -> Column:
        return value.isin(*words)

    def greatest(self, values: Sequence[Column]) -> Column:
        return f.greatest(*values)

    def plus(self, value: Column, number: int) -> Column:
        return f.try_add(value, f.lit(number))

    def is_known(self, column: str, of: str) -> Column | None:
        if of == "filter":
            return ~f.col("_bad_filter")
        return f.col(_mark(column)).isNotNull() if self._has[of] else None


def _mark(column: str) -> str:
    return f"_known_{column}"


def _kinds(rows: DataFrame) -> dict[str, tuple[str, ...]]:
    """The attributes of the rows with their kinds."""
    kinds: dict[str, tuple[str, ...]] = {}
    words = {kind: name for name, kind in KIND_TYPES.items()}
    for field in rows.schema:
        if field.name == "attributes" and isinstance(field.dataType, StructType):
            for inner in field.dataType:
                kind = words.get(inner.dataType.simpleString(), "string")
                kinds[inner.name] = tuple(getattr(inner.dataType, "names", (kind,)))
    return kinds


def _with_mark(rule: Rule, rows: DataFrame, brokers: DataFrame | None, subscriptions: DataFrame | None) -> DataFrame:
    """The rows with a column for a rule that asks whether a name is known: NULL where it is not."""
    of, name = getattr(rule.check, "of", None), rule.column[0]
    known = {"broker": brokers, "subscription": subscriptions}.get(of or "")
    if known is None:
        return rows
    assert of is not None
    others = ["number"] if of == "subscription" and "number" in known.columns else []
    marked = known.select(known[of].alias("_key"), f.lit(True).alias(_mark(name)), *others)
    return rows.join(f.broadcast(marked), f.col(name) == f.col("_key"), "left").drop("_key")


def _with_filter_faults(rows: DataFrame) -> DataFrame:
    """`_bad_filter`: whether a subscription's filter does not parse. They are few, and only Python can parse them."""
    schema = StructType([*rows.schema.fields, StructField("_bad_filter", BooleanType())])
    return rows.mapInArrow(_mark_filters, schema)


def _mark_filters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    verdicts: dict[str | None, bool] = {None: False}
    for batch in batches:
        filters = batch.column("filter").to_pylist()
        verdicts.update({text: not _parses(text) for text in set(filters) - verdicts.keys()})
        yield batch.append_column("_bad_filter", pa.array([verdicts[text] for text in filters], pa.bool_()))


def _parses(text: str) -> bool:
    try:
        Filter.parse(text)
    except FilterError:
        return False
    return True


def _mark_duplicates(table: str, checked: DataFrame) -> DataFrame:
    """All but the first of the rows with the same key; a bad row never takes the place of a good one."""
    is_bad = f.size("reasons") > 0
    order = Window.partitionBy(*KEYS[table]).orderBy(is_bad, *first_of(table))
    ranked = checked.withColumn("_rank", f.row_number().over(order))
    again = f.when((f.col("_rank") > 1) & ~is_bad, f.array(f.lit(DUPLICATE))).otherwise(f.col("reasons"))
    return ranked.select(*(name for name in checked.columns if name != "reasons"), again.alias("reasons"))
