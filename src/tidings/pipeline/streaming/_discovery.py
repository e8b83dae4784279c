"""New files of a growing trace, as a stream, and whether there is a trace yet.

The stream has a row for every complete file in the directory, whatever its table and format: its path, never its
content. Spark's file source keeps in the checkpoint which files each batch had, so that a batch that was not completed
comes again with the same files. Names that begin with ``_`` or ``.`` are half-written and are not seen.

Of Kafka's topics the stream has a row for every record, without its value, and a batch is a span of each partition.
"""

import fnmatch
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES
from tidings.pipeline._storage import Listed, place_of, read_path, storage_of
from tidings.pipeline.ingest import Mapping
from tidings.pipeline.ingest._casts import shown_path
from tidings.pipeline.ingest._files import NEEDED
from tidings.pipeline.ingest._topics import is_topics, new_records, spans_of_batch

__all__ = ["listed", "missing", "new_files"]

_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"
_NEVER_TOO_OLD: Final = "36500d"
"""Spark ignores files that are older than the newest by more than this, a week by default."""


def new_files(spark: SparkSession, trace: str, mapping: Mapping | None) -> DataFrame:
    """The stream of a directory's files: `path` as people write it, `size_bytes` and `modified_us`.

    Of topics `topic`, `partition`, `offset` and `modified_us` of each record.
    """
    if is_topics(place_of(trace)):
        return new_records(spark, place_of(trace), None if mapping is None else mapping.patterns)
    found = (
        spark.readStream.format("binaryFile")
        .schema(_FILE)
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", _NEVER_TOO_OLD)
        .load(read_path(place_of(trace)))
    )
    return found.select(
        shown_path(fn.col("path")).alias("path"),
        fn.col("length").alias("size_bytes"),
        fn.unix_micros("modificationTime").alias("modified_us"),
    )


def listed(trace: str, files: DataFrame) -> list[Listed]:
    """The files of a batch."""
    root = place_of(trace)
    if is_topics(root):
        return [
            Listed(span.path, name, span.records, 1_000 * modified_us)
            for name, span, modified_us in spans_of_batch(root, files)
        ]
    return [
        Listed(row["path"], row["path"].removeprefix(root).strip("/"), row["size_bytes"], 1_000 * row["modified_us"])
        for row in files.collect()
    ]


def missing(trace: str, mapping: Mapping | None) -> str | None:
    """What a directory of this machine still lacks to be a trace; None if nothing."""
    place = place_of(trace)
    storage = storage_of(place, None)
    if not storage.exists(place):
        return f"{trace}: there is no such directory yet"
    present = set() if mapping is None else set(mapping.given_tables)
    for file in storage.list(place):
        present |= _tables_of(file.below, mapping)
    lacking = [table for table in NEEDED if table not in present]
    return f"{trace}: no files of {' and '.join(lacking)} yet" if lacking else None


def _tables_of(below: str, mapping: Mapping | None) -> set[str]:
    """The tables that a file is of, by its path from the directory on."""
    patterns = {} if mapping is None else mapping.patterns
    by_pattern = {table for table, (pattern, _) in patterns.items() if fnmatch.fnmatchcase(below, pattern)}
    folder, slash, _ = below.partition("/")
    return by_pattern or ({folder} if slash and folder in TABLES and folder not in patterns else set())
