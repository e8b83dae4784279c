"""The setting of a trace on Spark: small tables that Spark reads, checked in the driver (arrow/_small_tables.py)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tidings.model.trace import TABLES
from tidings.pipeline._held import frame_of
from tidings.pipeline._options import SMALL
from tidings.pipeline.arrow import _small_tables as held
from tidings.pipeline.arrow._batches import Batch
from tidings.pipeline.ingest import TraceFile
from tidings.pipeline.interest import Interests
from tidings.pipeline.rows import Audience

__all__ = ["Setting", "batches_of_rows", "read_setting"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The small tables. `brokers` (column `broker`) is None if the trace does not name them.

    `quarantined` and `rows` are partials of the unit of no event.
    """

    subscriptions: DataFrame
    topology: DataFrame
    transitions: DataFrame
    brokers: DataFrame | None
    interests: Interests
    audience: Audience
    fingerprint: str
    quarantined: DataFrame
    rows: DataFrame


def read_setting(
    spark: SparkSession,
    read: Callable[[str], DataFrame],
    lay_down: Callable[[str, DataFrame], DataFrame],
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
    brokers = found.brokers
    return Setting(
        subscriptions=lay_down("subscriptions", frame_of(spark, found.subscriptions).coalesce(1)),
        topology=lay_down("topology", frame_of(spark, found.topology).coalesce(1)),
        transitions=lay_down("transitions", frame_of(spark, found.transitions).coalesce(1)),
        brokers=None if brokers is None else spark.createDataFrame(pa.table({"broker": brokers})),
        interests=found.interests,
        audience=found.audience,
        fingerprint=found.fingerprint,
        quarantined=frame_of(spark, found.quarantined),
        rows=frame_of(spark, found.rows),
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
