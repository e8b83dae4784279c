"""Rows in the shuffle: the columns of many rows as one value, not rows one by one.

What Spark shuffles are few long values (Arrow's stream format), each with the number of the partition that it goes to;
so the shuffle costs what its bytes cost. The rows of a unit have the same number, whoever packed them.
"""

import zlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.rows._columns import names_of, values_of
from tidings.pipeline.rows._gathered import GATHERED_SCHEMA
from tidings.pipeline.rows._groups import truncated_quotient

__all__ = ["PACKED", "pack", "together", "unpack", "with_numbers"]

Array = npt.NDArray[Any]

PACKED: Final = "part int, rows binary"
"""Rows (GATHERED, without columns that are all NULL) for the partition `part`."""

_SCHEMA: Final = pa.schema([("part", pa.int32()), ("rows", pa.binary())])
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(use_threads=False, compression="lz4")


def with_numbers(column: pa.Array) -> pa.Array:
    """Names as a dictionary: few are in many rows, and from here on they are moved about as numbers."""
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def pack(batch: pa.RecordBatch, partitions: int) -> pa.RecordBatch:
    """Rows (of any columns of GATHERED) as PACKED."""
    part = _part(batch, partitions)
    order = np.argsort(part, kind="stable")
    ordered = _with_short_dictionaries(batch, partitions).take(pa.array(order))
    counts = np.bincount(part, minlength=partitions)
    firsts = np.cumsum(counts) - counts
    parts = np.flatnonzero(counts)
    values = _written([ordered.slice(int(firsts[n]), int(counts[n])) for n in parts])
    return pa.RecordBatch.from_arrays([pa.array(parts, pa.int32()), values], schema=_SCHEMA)


def _part(batch: pa.RecordBatch, partitions: int) -> Array:
    """The partition of each row's unit; a row without an event may go anywhere."""
    publisher, sequence = names_of(batch.column("publisher")), values_of(batch.column("sequence"))
    hashes = [zlib.crc32(name.encode()) if name is not None else 0 for name in publisher.names.to_pylist()]
    mixed = np.array([*hashes, 0], np.uint64)[publisher.codes] * _MIXER
    chunk = truncated_quotient(sequence.values, CHUNK_EVENTS)
    mixed = (mixed ^ (mixed >> np.uint64(32)) ^ chunk.astype(np.uint64)) * _MIXER
    has_event = (publisher.codes >= 0) & sequence.known
    mixed = np.where(has_event, mixed >> np.uint64(32), np.arange(len(mixed), dtype=np.uint64))
    return (mixed % np.uint64(partitions)).astype(np.int16)


def _with_short_dictionaries(batch: pa.RecordBatch, partitions: int) -> pa.RecordBatch:
    """Names as numbers only where the list of names, which goes with every value, is shorter than the rows."""
    arrays = [
        column.cast(pa.string())
        if pa.types.is_dictionary(column.type) and len(column.dictionary) * partitions > len(column)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _written(batches: list[pa.RecordBatch]) -> pa.Array:
    """A stream for each, as binary values that lie one after the other in one buffer."""
    sink, ends = pa.BufferOutputStream(), [0]
    for rows in batches:
        with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
            stream.write_batch(rows)
        ends.append(sink.tell())
    return pa.Array.from_buffers(
        pa.binary(), len(batches), [None, pa.py_buffer(np.array(ends, np.int32)), sink.getvalue()]
    )


def unpack(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows (GATHERED; names may be dictionaries) of packed values."""
    return together(
        [pa.ipc.open_stream(value.as_buffer()).read_all() for batch in batches for value in batch.column("rows")]
    )


def together(found: list[pa.Table]) -> pa.Table:
    """Rows of any columns of GATHERED as one table; those that they lack are NULL."""
    return pa.Table.from_arrays([_column(field, found) for field in GATHERED_SCHEMA], names=GATHERED_SCHEMA.names)


def _column(field: pa.Field, found: list[pa.Table]) -> pa.ChunkedArray:
    chunks: list[pa.Array] = []
    for table in found:
        has = field.name in table.column_names
        chunks += table[field.name].chunks if has else [pa.nulls(len(table), field.type)]
    kinds = {chunk.type for chunk in chunks}
    if len(kinds) > 1 and field.type == pa.string():
        # Those that are numbers stay so: a table that lacks the column would cost all others their dictionaries.
        chunks = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
        kinds = {chunk.type for chunk in chunks}
    if len(kinds) > 1 or not kinds:
        chunks = [chunk.cast(field.type) for chunk in chunks]
        kinds = {field.type}
    return pa.chunked_array(chunks, kinds.pop())
