"""The data source, as Spark's Python Data Source API wants it, and a read that ends.

A batch read is a subscriber for a while, whose events are the rows; it leaves nothing behind at the broker.
"""

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidings.errors import ConfigurationError
from tidings.live import connect_blocking
from tidings.live.client.columns import EventRow, event_row
from tidings.pipeline.source._columns import batches, checked_schema, schema_of_filter
from tidings.pipeline.source._options import BatchOptions, batch_options, sink_options, stream_options, wanted
from tidings.pipeline.source._sink import TidingsStreamWriter, TidingsWriter
from tidings.pipeline.source._stream import TidingsStreamReader

__all__ = ["TidingsSource"]


class TidingsReader(DataSourceReader):
    """One task subscribes, collects events for `within_s` or until it has enough, and unsubscribes."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (there is but one)
        return batches(self._records(), self._schema, fails_fast=self._options.terms.fails_fast)

    def _records(self) -> Iterator[EventRow]:
        options = self._options
        with connect_blocking(**options.connection) as client:
            subscription = client.subscribe(options.terms.filter, **options.terms.asked)
            until_s, count = time.monotonic() + options.within_s, 0
            while options.events is None or count < options.events:
                left_s = until_s - time.monotonic()
                delivery = subscription.get(left_s) if left_s > 0 else None
                if delivery is None:
                    return
                count += 1
                yield event_row(delivery, time.time_ns() // 1000)


class TidingsSource(DataSource):
    """`spark.dataSource.register(TidingsSource)`, and Spark reads and writes `format("tidings")`."""

    @classmethod
    def name(cls) -> str:
        return "tidings"

    def schema(self) -> StructType:
        terms = wanted(self.options)
        return schema_of_filter(terms.filter, terms.metadata)

    def reader(self, schema: StructType) -> TidingsReader:
        return TidingsReader(batch_options(self.options), checked_schema(schema))

    def streamReader(self, schema: StructType) -> TidingsStreamReader:  # noqa: N802 (Spark's name)
        return TidingsStreamReader(stream_options(self.options), checked_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> TidingsWriter:
        _require_append(overwrite)
        return TidingsWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidingsStreamWriter:  # noqa: N802
        _require_append(overwrite)
        return TidingsStreamWriter(sink_options(self.options), schema)


def _require_append(overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError("events that were published cannot be overwritten: write with .mode('append')")
