"""Rows by unit, in parts of bounded size, in a file on this disk: what Spark's shuffle does elsewhere.

The rows of a unit go to the same part, whoever adds them. Each piece of a part is a stream of Arrow's, compressed.
"""

import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.rows import names_of, together, truncated_quotient, values_of

__all__ = ["Spill"]

Array = npt.NDArray[Any]

_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(use_threads=False, compression="lz4")


class Spill:
    """Rows (of any columns of GATHERED), added batch by batch and read part by part."""

    def __init__(self, parts: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="tidings-")  # noqa: SIM115 - closed by __exit__
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(parts)]

    def __enter__(self) -> "Spill":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        parts = len(self._spans)
        part = _part(batch, parts)
        ordered = _with_short_dictionaries(batch, parts).take(pa.array(np.argsort(part, kind="stable")))
        counts = np.bincount(part, minlength=parts)
        firsts = np.cumsum(counts) - counts
        for number in np.flatnonzero(counts).tolist():
            begin = self._file.tell()
            with pa.ipc.new_stream(self._file, ordered.schema, options=_COMPRESSED) as stream:
                stream.write_batch(ordered.slice(int(firsts[number]), int(counts[number])))
            self._spans[number].append((begin, self._file.tell() - begin))

    def parts(self) -> Iterator[pa.Table]:
        """The rows (GATHERED) of each part that has any."""
        for spans in self._spans:
            if spans:
                yield together([self._read(*span) for span in spans])

    def _read(self, begin: int, length: int) -> pa.Table:
        self._file.seek(begin)
        return pa.ipc.open_stream(self._file.read(length)).read_all()


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
