"""Files of a trace read for a state: in this process where they are on this machine, or else by Spark.

Both give the same batches of the contract's columns (arrow/_batches.py). What PyArrow does not convert, Spark reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidings.pipeline._small_tables import batches_of_rows
from tidings.pipeline._storage import is_local
from tidings.pipeline.arrow._batches import Batch, Kinds, OnlyOnSpark, read_batches
from tidings.pipeline.arrow._log import Readable, open_log
from tidings.pipeline.ingest import Mapping, TraceFile, read_table, with_clocks
from tidings.pipeline.ingest._clocks import Corrections
from tidings.pipeline.ingest._columns import KIND_TYPES
from tidings.pipeline.ingest._topics import is_topics, span_of

__all__ = ["SparkLog", "open_files"]


@dataclass(frozen=True, kw_only=True)
class SparkLog:
    """A trace whose rows Spark reads, from wherever it can."""

    spark: SparkSession
    files: Sequence[TraceFile]
    mapping: Mapping | None

    @property
    def corrections(self) -> Corrections | None:
        return None if self.mapping is None else self.mapping.corrections

    def batches(self, table: str) -> Iterator[Batch]:
        known = {
            span_of(file.path).partition_path if is_topics(file.path) else file.path: file
            for file in self.files
            if file.table == table
        }
        for batch in batches_of_rows(table, self._rows(table).toArrow()):
            yield batch._replace(file=known.get(batch.file.path, batch.file))

    @property
    def kinds(self) -> Kinds:
        """The attributes of all publications, with their kinds."""
        held = self._rows("publications").schema["attributes"].dataType
        found: Kinds = {}
        words = {kind: name for name, kind in KIND_TYPES.items()}
        for field in getattr(held, "fields", ()):
            inner = getattr(field.dataType, "names", None)
            found[field.name] = tuple(inner) if inner else (words[field.dataType.simpleString()],)
        return found

    def rows(self, tables: Sequence[str]) -> int:
        return sum(file.rows or 0 for file in self.files if file.table in tables and file.fault is None)

    def _rows(self, table: str) -> DataFrame:
        return read_table(self.spark, table, self.files, mapping=self.mapping)


def open_files(spark: SparkSession, files: Sequence[TraceFile], mapping: Mapping | None, folder: Path) -> Readable:
    """The log of these files; foreign ones of this machine are parsed into `folder`."""
    if all(is_local(file.path) for file in files) and _are_read_here(files):
        return open_log(files, mapping, folder).with_clocks()
    return SparkLog(spark=spark, files=files, mapping=with_clocks(spark, files, mapping))


def _are_read_here(files: Sequence[TraceFile]) -> bool:
    """Whether PyArrow converts what these Parquet files have: files with the same columns are asked once."""
    seen: set[tuple[str, str]] = set()
    for file in files:
        if file.format != "parquet" or file.fault is not None or (file.table, str(file.columns)) in seen:
            continue
        seen.add((file.table, str(file.columns)))
        try:
            next(read_batches(file), None)
        except OnlyOnSpark:
            return False
    return True
