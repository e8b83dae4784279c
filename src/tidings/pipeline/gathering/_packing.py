"""Rows packed by the workers that read them, and brought to the partition of their unit."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidings.pipeline.rows import KEPT_IN, PACKED, pack, with_numbers

__all__ = ["brought_together", "pack_rows"]


def pack_rows(table: str, rows: DataFrame, *, partitions: int) -> DataFrame:
    """The rows of a table (those columns of GATHERED that it has, but for `of`), as PACKED."""
    of = [*KEPT_IN].index(table)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                numbers = pa.array(np.full(batch.num_rows, of, np.int32))
                columns = [numbers, *(with_numbers(column) for column in batch.columns)]
                yield pack(pa.RecordBatch.from_arrays(columns, names=["of", *batch.schema.names]), partitions)

    return rows.mapInArrow(run, PACKED)


def brought_together(packed: DataFrame, *, partitions: int) -> DataFrame:
    """Packed rows (PACKED), each in the partition that it is for."""
    return packed.repartitionById(partitions, "part")
