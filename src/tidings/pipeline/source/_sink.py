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
    with connect_blocking(**options.connection, name=name) as client:
        events = sum(
            client.publish_many(
                batch.select([*attributes, *([] if options.payload is None else [options.payload])]),
                payload=options.payload,
                lifetime_s=options.lifetime_s,
                require=options.require,
            )
            for batch in rows
        )
    return Published(events)
