"""A read that ends: a subscriber for a while, whose events are the rows. It leaves nothing behind at the broker."""

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidings.live import Delivery, connect_blocking
from tidings.pipeline.source._columns import Record, batches
from tidings.pipeline.source._options import BatchOptions

__all__ = ["TidingsReader", "record_of"]


class TidingsReader(DataSourceReader):
    """One task subscribes, collects events for `within_s` or until it has enough, and unsubscribes."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (there is but one)
        return batches(self._records(), self._schema, fails_fast=self._options.terms.fails_fast)

    def _records(self) -> Iterator[Record]:
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
                yield record_of(delivery, time.time_ns() // 1000)


def record_of(each: Delivery, now_us: int) -> Record:
    """An event that was taken now; when it was published follows from its age."""
    age_ns = round(each.age_s * 1e9)
    published_us = now_us - age_ns // 1000
    return Record(
        each.publisher,
        each.epoch,
        each.sequence,
        published_us,
        age_ns,
        each.late,
        dict(each.attributes),
        each.payload,
    )
