"""The setting of a trace on Spark: small tables that Spark reads, checked in the driver (arrow/_small_tables.py)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tidings.model.trace import TABLES
from tidings.pipeline._options import SMALL
from tidings.pipeline.arrow import _small_tables as held
from tidings.pipeline.arrow._batches import Batch
from tidings.pipeline.ingest import TraceFile
from tidings.pipeline.interest import Interests
from tidings.pipeline.rows import Audience

__all__ = ["Setting", "batches_of_rows", "read_setting"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The small tables: as the driver holds them, and those that rows are joined with.

    `brokers` (column `broker`) is None if the trace does not name them.
    """

    held: held.Setting
    subscriptions: DataFrame
    brokers: DataFrame | None

    @property
    def interests(self) -> Interests:
        return self.held.interests

    @property
    def audience(self) -> Audience:
        return self.held.audience

    @property
    def fingerprint(self) -> str:
        return self.held.fingerprint


def read_setting(
    spark: SparkSession,
    read: Callable[[str], DataFrame],
    lay_down: Callable[[str, pa.Table], DataFrame],
    *,
    faults: Sequence[TraceFile] = (),
    clock_tolerance_ns: int,
) -> Setting:
    """Read the small tables, each once.

    `read` gives the rows of a table (`read_table`), `lay_down` may write what is clean and read it from there, so that
    no plan has to carry the rows; `faults` are the files that cannot be read.
    """
    batches = {table: list(batches_of_rows(table, read(table).toArrow())) for table in SMALL}
    found = held.read_setting(batches, faults, clock_tolerance_ns=clock_tolerance_ns)
    frames = {table: lay_down(table, getattr(found, table)) for table in SMALL}
    return Setting(
        held=found,
        subscriptions=frames["subscriptions"],
        brokers=None if found.brokers is None else spark.createDataFrame(pa.table({"broker": found.brokers})),
    )


def batches_of_rows(table: str, rows: pa.Table) -> Iterator[Batch]:
    """Rows that Spark has read (`read_table`), those of each file in the contract's columns."""
    for path in rows["_file"].unique().to_pylist():
        mine = rows.filter(pc.is_null(rows["_file"]) if path is None else pc.equal(rows["_file"], path))
        faults = pa.array([some[0] if some else None for some in mine["_faults"].to_pylist()], pa.string())
        names = [name for name in (*TABLES[table].names, "clock") if name in mine.column_names and name != "attributes"]
        columns = {
            name: mine[name].dictionary_encode() if mine[name].type == pa.string() else mine[name] for name in names
        }
        attributes = _attributes(mine["attributes"].combine_chunks()) if table == "publications" else {}
        if table == "publications":
            is_null = pc.is_null(mine["attributes"].combine_chunks())
            columns["attributes"] = (
                pa.StructArray.from_arrays(list(attributes.values()), names=list(attributes), mask=is_null)
                if attributes
                else pa.array([True] * len(mine))
            )
        shown = "" if path is None else unquote(re.sub("^file:/+", "/", path))
        yield Batch(
            file=TraceFile(table=table, path=shown, size_bytes=0, modified_ns=0),
            rows=pa.table(columns),
            attributes=attributes,
            faults=faults if faults.null_count < len(faults) else None,
            raw=mine["_raw"].combine_chunks(),
        )


def _attributes(held: pa.StructArray) -> dict[str, pa.Array]:
    """The attributes of one file; where other files have another kind of one, the kind that has values here."""
    found = {}
    for field in held.type:
        values = pc.struct_field(held, [field.name])
        if pa.types.is_struct(values.type):
            kinds = [pc.struct_field(values, [inner.name]) for inner in values.type]
            values = min(kinds, key=lambda each: each.null_count)
        found[field.name] = values
    return found
