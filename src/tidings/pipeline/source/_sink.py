"""Rows as events: each partition is a publisher, and is done when the broker has all its events on disk.

A task or a batch that Spark runs again publishes its rows again: delivery is at least once. Nothing is taken back
when a write fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidings.live import connect_blocking
from tidings.pipeline.source._columns import attribute_columns
from tidings.pipeline.source._options import SinkOptions

__all__ = ["TidingsStreamWriter", "TidingsWriter"]


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """How many events a partition has published."""

    events: int


class TidingsWriter(DataSourceArrowWriter):
    """The rows of a batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._attributes = attribute_columns(schema, options.payload)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return _publish(self._options, self._attributes, iterator)


class TidingsStreamWriter(DataSourceStreamArrowWriter):
    """The rows of a stream, batch by batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._attributes = attribute_columns(schema, options.payload)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return _publish(self._options, self._attributes, iterator)


def _publish(options: SinkOptions, attributes: list[str], rows: Iterator[pa.RecordBatch]) -> Published:
    context = TaskContext.get()
    name = None if options.name is None else f"{options.name}-{0 if context is None else context.partitionId()}"
    count = 0
    with connect_blocking(**options.connection, name=name) as client:
        offered = []
        for batch in rows:
            for row in batch.to_pylist():
                event = {name: row[name] for name in attributes}
                payload = _bytes(None if options.payload is None else row[options.payload])
                offered.append(
                    client.offer(event, payload=payload, lifetime_s=options.lifetime_s, require=options.require)
                )
                count += 1
            for each in offered:
                each.result()  # raises what the broker refused
            offered.clear()
    return Published(count)


def _bytes(payload: bytes | str | None) -> bytes:
    return b"" if payload is None else payload.encode() if isinstance(payload, str) else payload
