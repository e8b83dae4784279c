"""The tables of a run put together by Spark, of partials of any number, with the very functions of one process.

Theory of operation. Each task makes sums of the partials that it has (arrow/_sums.py), some thousand rows at a time,
and leaves of them the first rows of every table (arrow/_tables.py). These are shuffled by the keys of their table, and
the last step is made where they meet. So no task holds more than the sums of its partials, or its share of a table's
rows; nothing comes to the driver.

Violations of order need the partials of a pair from its last chunk to its first: in that order they come to the first
step, which carries the least delivery of later chunks from batch to batch.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidings.pipeline._partials import KINDS, PASSING, UNIT_COLUMNS
from tidings.pipeline.arrow._sums import Sums, added, sums_of, with_violations
from tidings.pipeline.arrow._tables import MADE, Made, with_usual
from tidings.pipeline.measures import LEVEL, PARTIAL_ARRIVALS
from tidings.pipeline.rows import arrow_schema, over_partitions

__all__ = ["ARRIVALS", "merged_tables"]

ROWS_AT_A_TIME: Final = 20_000
ARRIVALS: Final = "arrivals"
"""The table that comes of partials by slice of time; all others of those by unit."""
PAIRS: Final = "pairs"
QUARANTINE: Final = "quarantine"
_COUNTED: Final = tuple(kind for kind in KINDS if kind not in (*PASSING, QUARANTINE))
_BY_UNIT: Final = {made.name: made for made in MADE if made.name != ARRIVALS}
_UNIT: Final = tuple(arrow_schema(UNIT_COLUMNS.removesuffix(", ")).names)


def merged_tables(
    partials: DataFrame, arrivals: DataFrame, lay_down: Callable[[DataFrame], DataFrame] = lambda rows: rows
) -> dict[str, DataFrame]:
    """Every table by name, of the PARTIALS of all units and those of all slices (PARTIAL_ARRIVALS).

    `lay_down` may write rows that all tables are made of, and read them from there.
    """
    subscription = f"{PAIRS}.subscription"
    lane = fn.coalesce(subscription, fn.col("chunk").cast("string"))
    ordered = (
        partials.where(fn.col("kind").isin(*_COUNTED))
        .repartition("publisher", lane)
        .sortWithinPartitions("publisher", subscription, fn.desc("chunk"))
    )
    firsts = lay_down(ordered.mapInArrow(_first_rows, _spark_schema(pa.schema(_first_fields()))))
    tables = {
        name: _table(made, firsts.where(fn.col("table") == name).select(f"{name}.*")) for name, made in _BY_UNIT.items()
    }
    tables[ARRIVALS] = _table(next(made for made in MADE if made.name == ARRIVALS), arrivals)
    tables[QUARANTINE] = partials.where(fn.col("kind") == QUARANTINE).select(f"{QUARANTINE}.*")
    return tables


def _table(made: Made, firsts: DataFrame) -> DataFrame:
    """A table of its first rows, of which there may be several with the same keys."""
    met = firsts.repartition(*made.keys) if made.keys else firsts.repartition(1)
    wholes = _last_schema(made)
    if not made.share:
        return _mapped(met, lambda rows: made.finish(made.last(rows), LEVEL), made.finish(wholes, LEVEL).schema)
    rows = _mapped(met, made.last, wholes.schema)
    usual = rows.agg(fn.coalesce(fn.median("clustering"), fn.lit(1.0)).alias("usual"))

    def finish(rows: pa.Table) -> pa.Table:
        known = with_usual(rows.drop_columns("usual"), made.share, rows["usual"][0].as_py())
        return made.finish(known, LEVEL)

    schema = made.finish(with_usual(wholes, made.share, 1.0), LEVEL).schema
    return _mapped(rows.crossJoin(fn.broadcast(usual)), finish, schema)


def _mapped(rows: DataFrame, compute: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    return over_partitions(rows, lambda table: compute(table).cast(schema), _spark_schema(schema))


def _spark_schema(schema: pa.Schema) -> StructType:
    found: StructType = from_arrow_schema(schema)
    return found


# The first step: PARTIALS in, in order; the first rows of all tables out.


def _first_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sums: Sums | None = None
    pairs = _Pairs()
    held: dict[str, list[pa.Table]] = {kind: [] for kind in _COUNTED}
    rows = 0

    def add() -> None:
        nonlocal sums, held, rows
        given = {kind: pa.concat_tables([_empty(kind), *held[kind]], promote_options="default") for kind in _COUNTED}
        found = sums_of({**given, QUARANTINE: _empty(QUARANTINE)}, arrow_schema(PARTIAL_ARRIVALS).empty_table())
        sums = found if sums is None else added(sums, found)
        held, rows = {kind: [] for kind in _COUNTED}, 0

    for batch in batches:
        for kind, table in _by_kind(batch):
            held[kind].append(pairs.take(table) if kind == PAIRS else table)
        rows += batch.num_rows
        if rows >= ROWS_AT_A_TIME:
            add()
    held[PAIRS].append(pairs.rest())
    add()
    assert sums is not None, "add makes them"
    for name, made in _BY_UNIT.items():
        for batch in made.first(sums).combine_chunks().to_batches():
            yield _as_first(name, batch)


def _by_kind(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    """PARTIALS as the tables of their kinds."""
    for kind in _COUNTED:
        mine = batch.filter(pc.equal(batch["kind"], kind))
        if mine.num_rows:
            own = mine[kind]
            columns = {name: mine[name] for name in _UNIT}
            columns |= {field.name: pc.struct_field(own, [place]) for place, field in enumerate(own.type)}
            yield kind, pa.table(columns).select(_empty(kind).column_names)


@cache
def _empty(kind: str) -> pa.Table:
    return arrow_schema(KINDS[kind]).empty_table()


class _Pairs:
    """Partials of pairs as they come, those of a pair from its last chunk to its first: with the violations of order.

    Those of one chunk are judged together, so the last ones of a batch wait for the next.
    """

    def __init__(self) -> None:
        self._held = _empty(PAIRS)
        self._later = _empty(PAIRS)  # a row in place of the later chunks of the last pair, or none

    def take(self, rows: pa.Table) -> pa.Table:
        both = pa.concat_tables([self._held, rows]).combine_chunks()
        last = both.slice(len(both) - 1)
        is_last = _same(both, last, ("publisher", "subscription", "chunk"))
        self._held = both.filter(is_last)
        return self._judged(both.filter(pc.invert(is_last)))

    def rest(self) -> pa.Table:
        return self._judged(self._held)

    def _judged(self, rows: pa.Table) -> pa.Table:
        if not len(rows):
            return with_violations(rows)
        later = self._later
        found = with_violations(pa.concat_tables([later, rows])).slice(len(later))
        last = rows.slice(len(rows) - 1)
        pair = ("publisher", "subscription")
        mine = pa.concat_tables([some.filter(_same(some, last, pair)) for some in (later, rows)])
        self._later = _replaced(
            last,
            chunk=pa.array([(1 << 62)], pa.int64()),
            first_delivered_ns=pa.array([pc.min(mine["first_delivered_ns"]).as_py()], pa.int64()),
            border_ns=pa.array([[]], pa.list_(pa.int64())),
        )
        return found


def _same(rows: pa.Table, row: pa.Table, names: tuple[str, ...]) -> pa.ChunkedArray | pa.Array:
    """Which rows are the same as one row in these columns."""
    found = pa.array([True] * len(rows), pa.bool_())
    for name in names:
        value = row[name][0]
        alike = pc.fill_null(pc.equal(rows[name], value), False) if value.is_valid else pc.is_null(rows[name])
        found = pc.and_(found, alike)
    return found


def _replaced(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


@cache
def _nothing() -> Sums:
    return sums_of(
        {kind: _empty(kind) for kind in (*_COUNTED, QUARANTINE)}, arrow_schema(PARTIAL_ARRIVALS).empty_table()
    )


def _last_schema(made: Made) -> pa.Table:
    return made.last(made.first(_nothing()))


@cache
def _first_fields() -> tuple[pa.Field, ...]:
    structs = [pa.field(name, pa.struct(list(made.first(_nothing()).schema))) for name, made in _BY_UNIT.items()]
    return pa.field("table", pa.string()), *structs


def _as_first(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The first rows of a table as rows of one form: `table` says which, and the column of that name holds it."""
    columns: list[Any] = [pa.array([name] * batch.num_rows, pa.string())]
    for field in _first_fields()[1:]:
        own = [batch[inner.name].cast(inner.type) for inner in field.type] if field.name == name else []
        columns.append(
            pa.StructArray.from_arrays(own, fields=list(field.type)) if own else pa.nulls(batch.num_rows, field.type)
        )
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(_first_fields()))
