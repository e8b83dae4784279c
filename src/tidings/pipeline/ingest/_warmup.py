"""The warm-up of a trace: the time before which events do not count, as its files of subscriptions say."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.pipeline.ingest._files import TraceFile

__all__ = ["warmup_of"]


def warmup_of(files: Sequence[TraceFile]) -> int:
    """In nanoseconds; 0 if nobody says anything, an InputError if two files differ."""
    said: dict[int, str] = {}
    for file in files:
        if file.table == "subscriptions" and file.format == "parquet" and file.fault is None:
            notes = _schema(file.path).metadata or {}
            said.setdefault(int(notes.get(b"tidings.warmup_ns", b"0")), file.path)
    if len(said) > 1:
        places = " and ".join(f"{ns / 1e9:g} s in {path}" for ns, path in sorted(said.items())[:2])
        raise InputError(f"the traces have different warm-ups: {places}; say which to leave out with --warmup")
    return next(iter(said), 0)


def _schema(path: str) -> pa.Schema:
    if "://" not in path:
        return pq.read_schema(path)
    filesystem, place = pafs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return pq.read_schema(place, filesystem=filesystem)
