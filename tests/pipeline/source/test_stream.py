"""A Spark job as a subscriber and as a publisher, with a real broker process."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidings
from tidings.live import BlockingTidings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

FILTER = "symbol = 'YHOO' AND price > 10"
IDLE = "500 ms"
RUNS_MOST = 100
STARTS_MOST = 10
Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def session(spark: "SparkSession") -> "SparkSession":
    from tidings.pipeline import TidingsSource

    spark.dataSource.register(TidingsSource)
    return spark


@pytest.fixture
def publisher(broker: str, tmp_path: Path) -> Iterator[BlockingTidings]:
    with tidings.connect_blocking(broker, name=f"exchange-{tmp_path.name}") as client:
        yield client


def stream(session: "SparkSession", broker: str, folder: Path, **more: str) -> "DataFrame":
    """Of a job of this test; what comes after its idle time, its next run takes."""
    known = {"address": broker, "name": f"job-{folder.name}", "secret": "of-the-job"}
    options = {**known, "spool": str(folder / "spool"), "idle": IDLE}
    return session.readStream.format("tidings").options(**{"filter": FILTER} | options | more).load()


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)


class Sink:
    """Writes each batch to a file by its number, over whatever was there: it is idempotent by batch."""

    def __init__(self, folder: Path, *, fails_at: int | None = None) -> None:
        self._folder = folder
        self._fails_at = fails_at
        folder.mkdir(exist_ok=True)

    def __call__(self, batch: "DataFrame", number: int) -> None:
        rows = sorted(tuple(row) for row in batch.collect())
        (self._folder / f"{number}.json").write_text(json.dumps(rows, default=_plain))
        if rows and self._fails_at is not None:
            raise RuntimeError("the job ends between writing a batch and committing it")

    def batches(self) -> dict[int, list[list[Any]]]:
        found = {int(path.stem): json.loads(path.read_text()) for path in self._folder.glob("*.json")}
        return {number: rows for number, rows in found.items() if rows}

    def rows(self) -> list[list[Any]]:
        return [row for _, rows in sorted(self.batches().items()) for row in rows]


@contextmanager
def started(frame: "DataFrame", sink: Sink, folder: Path, **trigger: Any) -> "Iterator[StreamingQuery]":
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    query = begun(writer.trigger(**trigger) if trigger else writer)
    try:
        yield query
    finally:
        query.stop()


def begun(writer: "DataStreamWriter") -> "StreamingQuery":
    """A query whose Python process has come up: Spark gives it ten seconds, which a busy machine may not have."""
    for _ in range(STARTS_MOST):
        query = writer.start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.1)
        if "failed to connect back" not in str(query.exception()):
            break
    return query


def take(frame: "DataFrame", sink: Sink, folder: Path, rows: int) -> None:
    """Have a job take what there is, and end, until it has so many rows: how long a broker may take is not said."""
    for _ in range(RUNS_MOST):
        with started(frame, sink, folder, availableNow=True) as query:
            assert query.awaitTermination(900)
            assert query.exception() is None, query.exception()
        if len(sink.rows()) >= rows:
            return
    raise AssertionError(f"{len(sink.rows())} of {rows} rows came")


def is_subscribed(query: "StreamingQuery") -> bool:
    """The first batch is planned after the broker has confirmed the subscription."""
    assert query.exception() is None, query.exception()
    return query.lastProgress is not None


def test_events_become_rows_with_types_from_the_filter(
    session: "SparkSession", broker: str, publisher: BlockingTidings, tmp_path: Path, until: Until
) -> None:
    frame = stream(session, broker, tmp_path, metadata="publisher,sequence,payload,late", maxDelay="5 min")
    assert frame.schema.simpleString() == (
        "struct<symbol:string,price:double,_publisher:string,_sequence:bigint,_payload:binary,_late:boolean>"
    )
    sink = Sink(tmp_path / "out")
    with started(frame, sink, tmp_path) as query:
        until(lambda: is_subscribed(query))
        for n in range(20):
            publisher.publish({"symbol": "YHOO" if n % 2 else "IBM", "price": 10 + n, "n": n}, payload=b"quote")
        until(lambda: len(sink.rows()) >= 10)
    exchange = f"exchange-{tmp_path.name}"
    assert [row[:4] for row in sink.rows()] == [["YHOO", 10.0 + n, exchange, n] for n in range(1, 20, 2)]
    assert {(row[4], row[5]) for row in sink.rows()} == {("quote", False)}


def test_a_batch_that_was_not_committed_is_the_same_again(
    session: "SparkSession", broker: str, publisher: BlockingTidings, tmp_path: Path, until: Until
) -> None:
    """The job ends after its sink has written, and goes on from its checkpoint; more has come meanwhile."""
    from pyspark.errors import StreamingQueryException

    frame = stream(session, broker, tmp_path, metadata="sequence,published,age_ns", maxEventsPerTrigger="7")
    failing = Sink(tmp_path / "out", fails_at=0)
    with started(frame, failing, tmp_path) as query:
        until(lambda: is_subscribed(query))
        for n in range(20):
            publisher.publish({"symbol": "YHOO", "price": 11 + n})
        with pytest.raises(StreamingQueryException, match="between writing a batch and committing it"):
            query.awaitTermination(900)
    first = failing.batches()
    assert len(first) == 1
    for n in range(20, 40):
        publisher.publish({"symbol": "YHOO", "price": 11 + n})
    sink = Sink(tmp_path / "again")
    take(frame, sink, tmp_path, 40)
    found = sink.batches()
    assert {number: found[number] for number in first} == first  # to the last bit: ages and all
    assert sorted(row[2] for row in sink.rows()) == list(range(40))
    assert all(len(rows) <= 7 for rows in found.values())


def test_what_comes_while_the_job_is_away_is_kept_by_the_broker(
    session: "SparkSession", broker: str, publisher: BlockingTidings, tmp_path: Path
) -> None:
    sink = Sink(tmp_path / "out")
    frame = stream(session, broker, tmp_path)
    for taken in (0, 10, 20):
        take(frame, sink, tmp_path, taken)
        for n in range(taken, taken + 10):
            publisher.publish({"symbol": "YHOO", "price": 11 + n})
    assert sorted(row[1] for row in sink.rows()) == [11.0 + n for n in range(20)]


def test_a_checkpoint_without_its_spool_is_an_error(
    session: "SparkSession", broker: str, publisher: BlockingTidings, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    sink = Sink(tmp_path / "out")
    take(stream(session, broker, tmp_path), sink, tmp_path, 0)
    publisher.publish({"symbol": "YHOO", "price": 11})
    take(stream(session, broker, tmp_path), sink, tmp_path, 1)
    other = stream(session, broker, tmp_path, spool=str(tmp_path / "other"))
    with (
        started(other, sink, tmp_path, availableNow=True) as query,
        pytest.raises(StreamingQueryException, match="option spool: the checkpoint goes on at event 1 of spool"),
    ):
        query.awaitTermination(900)


def test_a_read_that_ends(session: "SparkSession", broker: str, tmp_path: Path) -> None:
    """Events that are published while a batch listens, by a job that publishes rows."""
    rows = session.createDataFrame(
        [(n, f"s{n % 2}", n / 2, n % 3 == 0, b"body") for n in range(40)],
        "n bigint, symbol string, half double, third boolean, body binary",
    )
    listening = (
        session.readStream.format("tidings")
        .options(address=broker, filter="n >= 0", name="reader", secret="of-the-reader", idle=IDLE)
        .option("spool", str(tmp_path / "spool"))
        .schema("n bigint, symbol string, half double, third boolean, other string, _publisher string, _payload binary")
        .load()
    )
    sink = Sink(tmp_path / "out")
    take(listening, sink, tmp_path, 0)
    writer = rows.repartition(2).write.format("tidings").mode("append")
    writer.options(address=broker, name="feed", secret="of-the-feed", lifetime="9 min", payload="body").save()
    take(listening, sink, tmp_path, 40)
    found = sorted(sink.rows())
    assert [tuple(row[:4]) for row in found] == [(n, f"s{n % 2}", n / 2, n % 3 == 0) for n in range(40)]
    assert {row[4] for row in found} == {None}
    assert {row[5] for row in found} == {"feed-0", "feed-1"}
    assert {row[6] for row in found} == {"body"}


def test_a_batch_listens_for_a_while(session: "SparkSession", broker: str, publisher: BlockingTidings) -> None:
    from threading import Event, Thread

    done = Event()

    def publish() -> None:
        n = 0
        while not done.wait(0.02):
            publisher.publish({"symbol": "YHOO", "price": 11 + n})
            n += 1

    reader = session.read.format("tidings").options(address=broker, filter=FILTER, within="600 s", events="5")
    thread = Thread(target=publish)
    thread.start()
    try:
        rows = reader.load().collect()
    finally:
        done.set()
        thread.join()
    assert len(rows) == 5
    assert [row.price - rows[0].price for row in rows] == [0, 1, 2, 3, 4]
    nothing = session.read.format("tidings").options(address=broker, filter=FILTER, within="100 ms")
    assert nothing.load().collect() == []


def test_a_stream_of_rows_is_published(session: "SparkSession", broker: str, tmp_path: Path, until: Until) -> None:
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().selectExpr("value AS n")
    with tidings.connect_blocking(broker) as client:
        subscription = client.subscribe("n >= 0")
        writer = rows.writeStream.format("tidings").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.options(address=broker, lifetime="9 min").start()
        try:
            until(lambda: query.lastProgress is not None and query.lastProgress["batchId"] >= 1)
        finally:
            query.stop()
        assert query.exception() is None
        found = []
        while (event := subscription.get(0.5 if len(found) >= 10 else 600.0)) is not None:
            found.append(event.attributes["n"])
    assert sorted(found)[:10] == list(range(10))


def test_errors_name_the_option_or_the_column(session: "SparkSession", broker: str) -> None:
    from pyspark.errors import AnalysisException, PySparkException

    with pytest.raises(AnalysisException, match="option filter is missing; say which events are wanted"):
        session.read.format("tidings").option("address", broker).load()
    with pytest.raises(AnalysisException, match=r"names no attribute, so there are no columns; give them: .schema"):
        session.read.format("tidings").options(address=broker, filter="TRUE").load()
    times = session.range(1).selectExpr("current_timestamp() AS t")
    with pytest.raises(PySparkException, match="column t is of type timestamp, and attributes are"):
        times.write.format("tidings").mode("append").option("address", broker).save()
    with pytest.raises(PySparkException, match=r"events that were published cannot be overwritten: .*append"):
        session.range(1).write.format("tidings").mode("overwrite").option("address", broker).save()
    nobody = session.range(1).write.format("tidings").mode("append").option("address", "127.0.0.1:1")
    with pytest.raises(PySparkException, match="cannot be reached: Connection refused"):
        nobody.option("connectTimeout", "100 ms").save()
