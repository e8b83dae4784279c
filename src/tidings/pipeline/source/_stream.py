"""A stream of events: the driver is the subscriber, Spark's tasks turn what it took into rows.

Theory of operation. Spark asks one Python process on the driver for offsets and partitions, for as long as the query
runs. There a durable client takes events as they come, whatever the trigger does, and keeps them in a spool; an offset
is a number of the spool. A partition carries its events with it, so that workers need neither the broker nor the spool.
What Spark has committed is forgotten.

Guarantees (docs/guide/spark-streams.md says them to users, decision 45 why):

- A batch is a function of its offsets: planned again after a crash, it has the same rows, to the last bit.
- No event is in two batches, and each that the broker gave the subscription is in one, as long as the spool is there.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidings.live import BlockingSubscription, BlockingTidings, connect_blocking
from tidings.live.client.columns import EventRow
from tidings.pipeline.source._columns import batches
from tidings.pipeline.source._options import StreamOptions
from tidings.pipeline.source._spool import Offset, Spool, position
from tidings.protocol import ClientSettings

__all__ = ["TidingsStreamReader"]

SUBSCRIPTION: Final = "spark"
PARTITION_EVENTS: Final = 5_000
PARTITION_BYTES: Final = 4 << 20
BATCH_BYTES: Final = 64 << 20
"""A larger batch is cut, unless Spark asks for everything."""
AVAILABLE_WAIT_S: Final = 60.0
"""So long at most `availableNow` waits for events that keep coming."""
_PAUSE_S: Final = 0.02
_CLIENT: Final = ClientSettings(name="defaults")
_decoded: Final = msgspec.msgpack.Decoder(EventRow).decode


class Encoded(InputPartition):
    """Events of a batch, as the spool has them."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records


class TidingsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls. It is also pickled for the workers, which only `read`: all that is open stays here."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._spool: Spool | None = None
        self._client: BlockingTidings | None = None
        self._subscription: BlockingSubscription | None = None
        self._target: int | None = None  # of `availableNow`: the number that it goes to

    def __getstate__(self) -> dict[str, Any]:
        open_here = ("_spool", "_client", "_subscription", "_target")
        return {name: None if name in open_here else value for name, value in self.__dict__.items()}

    # -- on the driver -------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """A new checkpoint begins with what is in the spool and no batch has committed."""
        spool = self._opened()
        return spool.offset(spool.first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_events)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All that is there now has come when nothing comes for a while."""
        self._subscribed()
        spool = self._opened()
        end_s = time.monotonic() + AVAILABLE_WAIT_S
        seen, since_s = spool.end, time.monotonic()
        while time.monotonic() < min(end_s, since_s + self._options.idle_s):
            self._check()
            if spool.end != seen:
                seen, since_s = spool.end, time.monotonic()
            time.sleep(_PAUSE_S)
        self._target = spool.end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._subscribed()
        self._check()
        spool = self._opened()
        begin = spool.require(start)
        end = spool.end
        if isinstance(limit, ReadMaxRows):
            end = spool.end_of(begin, limit.max_rows, BATCH_BYTES)
        return spool.offset(end if self._target is None else min(end, max(begin, self._target)))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """For the progress of the query: how far behind it is."""
        spool = self._opened()
        return spool.offset(spool.end)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        spool = self._opened()
        found: list[InputPartition] = []
        some: list[bytes] = []
        some_bytes = 0
        for record in spool.records(spool.require(start), spool.require(end)):
            if len(some) == PARTITION_EVENTS or some_bytes > PARTITION_BYTES:
                found.append(Encoded(some))
                some, some_bytes = [], 0
            some.append(record)
            some_bytes += len(record)
        return [*found, Encoded(some)] if some else found

    def commit(self, end: Offset) -> None:
        if self._opened().forget(position(end)) and self._subscription is not None:
            self._subscription.resume()

    def stop(self) -> None:
        """The subscription stays with the broker, which keeps events for it; the spool stays on disk."""
        if self._client is not None:
            self._client.__exit__(None, None, None)
            self._client = self._subscription = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _opened(self) -> Spool:
        if self._spool is None:
            seen_ns = _CLIENT.max_lifetime_ns + _CLIENT.seen_grace_ns
            seen_s = seen_ns * 1e-9 + self._options.terms.late_s
            self._spool = Spool.open(self._options.spool, self._options.name, seen_s)
        return self._spool

    def _subscribed(self) -> None:
        if self._subscription is None:
            spool, terms = self._opened(), self._options.terms
            self._client = connect_blocking(**self._options.connection).__enter__()
            self._subscription = self._client.subscribe(terms.filter, name=SUBSCRIPTION, keep=spool.keep, **terms.asked)

    def _check(self) -> None:
        """What ended the client, if anything did: it is raised where Spark sees it."""
        if self._subscription is not None and self._subscription.failure is not None:
            raise self._subscription.failure

    # -- in a worker ---------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Encoded)
        return batches(map(_decoded, partition.records), self._schema, fails_fast=self._options.terms.fails_fast)
