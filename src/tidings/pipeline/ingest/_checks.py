"""Which rows are bad, and why: native expressions over each row, in the same pass that reads it.

`check_rows` adds `reasons array<string>`: empty for a good row. Small tables that a row refers to (brokers,
subscriptions) are joined by broadcast, so nothing is shuffled. What needs the other rows of an event is left to where
they meet; `KEYS` and `first_of` say there which rows are the same one, and which of them is kept.

Clocks. Times of different machines are compared only beyond `clock_tolerance_ns`: an arrival before its departure by
less than that is a clock that is a little off, not a bad row.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, DoubleType, StructField, StructType

from tidings.errors import FilterError
from tidings.model.filters import Filter
from tidings.model.trace import TABLES
from tidings.pipeline.ingest._columns import TYPES
from tidings.pipeline.ingest._converting import shown_path
from tidings.pipeline.ingest._files import TraceFile
from tidings.pipeline.ingest._reasons import (
    BAD_FILTER,
    BAD_VALUE,
    DUPLICATE,
    JSON_OPTIONS,
    MISSING_ID,
    NEGATIVE_DELAY,
    QUARANTINE_SCHEMA,
    UNKNOWN_BROKER,
    UNKNOWN_SUBSCRIPTION,
    UNREADABLE_FILE,
)

__all__ = [
    "KEYS",
    "OUTCOMES",
    "TIMES_IN_ORDER",
    "TIME_NS_MAX",
    "check_rows",
    "delay_is_negative",
    "first_of",
    "known_brokers",
    "quarantine_rows",
    "split",
    "unreadable_files",
]

TIME_NS_MAX: Final = 1 << 62
"""Times and durations beyond this (146 years) are bad values: below it, sums and differences of two cannot overflow."""

OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
COMPONENTS: Final = ("broker", "link")

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "publications": ("publisher", "sequence"),
    "hops": ("publisher", "sequence", "source", "target", "enqueued_ns"),
    "deliveries": ("publisher", "sequence", "subscription"),
    "subscriptions": ("subscription",),
    "transitions": ("kind", "source", "target", "at_ns"),
    "topology": ("kind", "source", "target"),
}
"""What makes two rows of a table the same one. An event may pass a link again, but it enters its queue only once."""

_BROKERS: Final[dict[str, tuple[str, ...]]] = {
    "publications": ("broker",),
    "hops": ("source", "target"),
    "deliveries": ("broker",),
    "subscriptions": ("broker",),
    "transitions": ("source", "target"),
    "topology": ("source", "target"),
}
TIMES_IN_ORDER: Final[dict[str, tuple[str, ...]]] = {
    "hops": ("enqueued_ns", "sent_ns", "received_ns", "began_ns", "ended_ns"),
    "deliveries": ("arrived_ns", "delivered_ns"),
}
"""Times of a row, of which none is before one that comes before it here."""
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
    rows, unknown = _with_unknown(table, rows, brokers, subscriptions)
    conditions = [
        # A value that was wrong is NULL now: that is one reason, not two.
        (MISSING_ID, (f.size("_faults") == 0) & _any(_missing(table))),
        (BAD_VALUE, _any([*_bad_values(table), *_bad_attributes(rows)])),
        *([(BAD_FILTER, f.col("_bad_filter"))] if table == "subscriptions" else []),
        *([(NEGATIVE_DELAY, _any(_out_of_order(table, clock_tolerance_ns)))] if table in TIMES_IN_ORDER else []),
        *unknown,
    ]
    found = f.array_compact(f.array(*(f.when(condition, f.lit(reason)) for reason, condition in conditions)))
    is_bad = _any([condition for _, condition in conditions])
    # Arrays are built for bad rows only: of a thousand million good ones, each would cost an allocation.
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


def unreadable_files(files: Sequence[TraceFile]) -> pa.Table:
    """Files that cannot be read, as rows of the quarantine, one each."""
    rows = [
        {
            "table": file.table,
            "file": file.path,
            "reasons": [UNREADABLE_FILE],
            "row": _json({"fault": file.fault, "size_bytes": file.size_bytes}),
            "rows": file.rows_or_one,
        }
        for file in files
        if file.fault is not None
    ]
    return pa.Table.from_pylist(rows, QUARANTINE_SCHEMA)


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


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _contract(table: str) -> list[str]:
    return list(TABLES[table].names)


def _any(conditions: list[Column]) -> Column:
    """Whether one of the conditions holds; one that is NULL does not."""
    return f.coalesce(reduce(Column.__or__, conditions, f.lit(False)), f.lit(False))


def _missing(table: str) -> list[Column]:
    return [f.col(field.name).isNull() for field in TABLES[table] if not field.nullable]


def _bad_values(table: str) -> list[Column]:
    c = f.col
    times = [~c(name).between(-TIME_NS_MAX, TIME_NS_MAX) for name in TYPES[table] if name.endswith("_ns")]
    own: dict[str, list[Column]] = {
        "publications": [c("sequence") < 0, c("size_bytes") < 0, c("lifetime_ns") <= 0],
        "hops": [c("sequence") < 0, ~c("outcome").isin(*OUTCOMES)],
        "deliveries": [c("sequence") < 0],
        "subscriptions": [c("max_delay_ns") <= 0, _is_no_amount(c("price")), c("until_ns") < c("from_ns")],
        "transitions": [_is_no_component()],
        "topology": [_is_no_component(), _is_no_amount(c("length_km"))],
    }
    return own[table] + times


def _is_no_amount(value: Column) -> Column:
    """Negative, infinite or NaN, which is above all numbers in Spark's order."""
    return ~value.between(0.0, sys.float_info.max)


def _is_no_component() -> Column:
    is_link = f.col("kind") == "link"
    return ~f.col("kind").isin(*COMPONENTS) | (is_link == f.col("target").isNull())


def _bad_attributes(rows: DataFrame) -> Iterator[Column]:
    """A NaN or an infinity is the value of no attribute (model/filters): it would compare with nothing."""
    for field in rows.schema:
        if field.name == "attributes" and isinstance(field.dataType, StructType):
            for inner in field.dataType:
                value = f.col("attributes")[inner.name]
                if isinstance(inner.dataType, StructType) and "number" in inner.dataType.names:
                    yield ~value["number"].between(-sys.float_info.max, sys.float_info.max)
                elif isinstance(inner.dataType, DoubleType):
                    yield ~value.between(-sys.float_info.max, sys.float_info.max)


def _out_of_order(table: str, clock_tolerance_ns: int) -> list[Column]:
    """Each time against the latest of those that come before it; one that is NULL is passed over."""
    names = TIMES_IN_ORDER[table]
    earlier = [f.greatest(*names[:number]) if number > 1 else f.col(names[0]) for number in range(1, len(names))]
    return [
        delay_is_negative(before, f.col(name), clock_tolerance_ns=clock_tolerance_ns)
        for before, name in zip(earlier, names[1:], strict=True)
    ]


def _with_unknown(
    table: str, rows: DataFrame, brokers: DataFrame | None, subscriptions: DataFrame | None
) -> tuple[DataFrame, list[tuple[str, Column]]]:
    """The rows with marks of what they refer to, and the conditions under which it is unknown."""
    unknown: list[tuple[str, Column]] = []
    if brokers is not None:
        names = _BROKERS[table]
        for name in names:
            rows = _with_mark(rows, name, brokers.select("broker"), f"_known_{name}")
        conditions = [f.col(name).isNotNull() & f.col(f"_known_{name}").isNull() for name in names]
        unknown.append((UNKNOWN_BROKER, _any(conditions)))
    if subscriptions is not None and table == "deliveries":
        mark = "number" if "number" in subscriptions.columns else "_known_subscription"
        given = ["subscription", *(["number"] if mark == "number" else [])]
        rows = _with_mark(rows, "subscription", subscriptions.select(*given), mark)
        is_unknown = f.col("subscription").isNotNull() & f.col(mark).isNull()
        unknown.append((UNKNOWN_SUBSCRIPTION, is_unknown))
    return rows, unknown


def _with_mark(rows: DataFrame, name: str, known: DataFrame, mark: str) -> DataFrame:
    """The rows with a column that is NULL where `known` has no such name: its second column, or else true."""
    key = f"{mark}_key"
    value = known[known.columns[1]] if len(known.columns) > 1 else f.lit(True)
    marked = known.select(known[known.columns[0]].alias(key), value.alias(mark))
    return rows.join(f.broadcast(marked), f.col(name) == f.col(key), "left").drop(key)


def _with_filter_faults(rows: DataFrame) -> DataFrame:
    """`_bad_filter`: whether a subscription's filter does not parse. They are few, and Python alone can tell."""
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
