"""Events by the batch, over real sockets: rows of Arrow data are published, and delivered as record batches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest
from tests.live.conftest import Place, run, running, until

from tidings.errors import EventError, InputError
from tidings.live import ConnectionLostError, DeniedError, Tidings, connect, connect_blocking

QUOTES = pa.table(
    {
        "symbol": ["A", "B", None, "A"],
        "price": [1.5, 2.0, 3.0, None],
        "volume": pa.array([1, 2, 3, 4], pa.int16()),
        "body": ["x", None, "z", "w"],
    }
)


def test_rows_are_published_in_order_and_come_as_batches(place: Place) -> None:
    async def work() -> None:
        async with (
            running(place.write("a")),
            connect(place.address("a"), name="s") as s,
            connect(place.address("a"), name="p", max_in_flight=3) as p,
        ):
            schema = pa.schema([("_sequence", pa.int64()), ("volume", pa.int32()), ("symbol", pa.string())])
            quotes = await s.subscribe("volume > 0 OR symbol = 'A' OR price > 1")
            for some in (QUOTES, QUOTES.to_batches()[0], QUOTES.to_pylist()):
                assert await p.publish_many(some, payload="body", lifetime_s=60.0) == 4
            tables = []
            async for batch in quotes.batches(max_rows=5, wait_s=60.0):
                tables.append(batch)
                if len(tables) == 2:
                    break
            async for batch in quotes.batches(schema, wait_s=0.0):
                tables.append(batch)
                if sum(each.num_rows for each in tables) == 12:
                    break
        assert [each.num_rows for each in tables[:2]] == [5, 5]
        rows = pa.Table.from_batches(tables[:2])
        assert rows.column_names[7:] == ["volume", "symbol", "price"]
        assert rows["_sequence"].to_pylist() == list(range(10))
        assert rows["symbol"].to_pylist()[:4] == ["A", "B", None, "A"]
        assert rows["price"].to_pylist()[:4] == [1.5, 2.0, 3.0, None]
        assert rows["_payload"].to_pylist()[:4] == [b"x", b"", b"z", b"w"]
        assert rows["volume"].type == pa.float64(), "a filter knows numbers, and not which"
        rest = pa.Table.from_batches(tables[2:])
        assert rest.schema == schema
        assert rest["_sequence"].to_pylist() == [10, 11]
        assert rest["volume"].to_pylist() == [3, 4]

    run(work())


def test_of_many_the_refused_are_told_and_the_others_published(place: Place) -> None:
    async def work() -> None:
        async with (
            running(place.write("a")),
            connect(place.address("a"), name="s") as s,
            connect(place.address("a"), name="p") as p,
        ):
            numbers = await s.subscribe("n >= 0")
            await p.advertise("n <> 2")
            with pytest.raises(DeniedError, match="advertised"):
                await p.publish_many({"n": n} for n in range(4))
            with pytest.raises(EventError, match="event 2: "):
                await p.publish_many([{"n": 5}, {"n": 6}, {"n": object()}, {"n": 7}])
            with pytest.raises(EventError, match="event 0: there is no column 'body'"):
                await p.publish_many([{"n": 5}], payload="body")
            for wrong in ({"n": 1}, "n", 5):
                with pytest.raises(InputError, match="the events are of type"):
                    await p.publish_many(wrong)  # type: ignore[arg-type]
            assert await p.publish_many([]) == 0
            await until(lambda: numbers.held == 5)
            async for batch in numbers.batches():
                assert batch["n"].to_pylist() == [0, 1, 3, 5, 6]
                break

    run(work())


def test_whoever_is_cancelled_or_gone_does_not_wait(place: Place) -> None:
    async def work() -> None:
        async with connected_to_nobody(place) as p:
            waiting = asyncio.create_task(p.publish_many([{"n": 1}, {"n": 2}]))
            await until(lambda: len(p._in_flight) == 2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            again = asyncio.create_task(p.publish_many([{"n": 3}]))
            await until(lambda: len(p._in_flight) == 3)
        with pytest.raises(ConnectionLostError, match="has left"):
            await again

    run(work())


@contextlib.asynccontextmanager
async def connected_to_nobody(place: Place) -> AsyncIterator[Tidings]:
    """A client whose broker has stopped."""
    async with contextlib.AsyncExitStack() as broker:
        await broker.enter_async_context(running(place.write("a")))
        async with connect(place.address("a"), name="p", failover_s=None) as client:
            await client.advertise("TRUE")
            await broker.aclose()
            yield client


def test_columns_that_cannot_be_are_refused_at_once(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="s") as s:
            unknown = await s.subscribe("a IS NULL")
            with pytest.raises(InputError, match=r"compares a with no number, .* schema="):
                unknown.batches()
            with pytest.raises(InputError, match="column t is of type timestamp"):
                unknown.batches(pa.schema([("t", pa.timestamp("us"))]))
            with pytest.raises(InputError, match="column _late is of type int64 in the schema, but must be bool"):
                unknown.batches(pa.schema([("_late", pa.int64())]))
            with pytest.raises(InputError, match="max_rows"):
                unknown.batches(pa.schema([("a", pa.int64())]), max_rows=0)
            called = await s.subscribe("b = 1", callback=lambda _: None)
            with pytest.raises(InputError, match="callback"):
                called.batches()

    run(work())


def test_the_blocking_twin_has_both(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")):
            await asyncio.to_thread(script)

    def script() -> None:
        with connect_blocking(place.address("a")) as t:
            numbers = t.subscribe("n > 0")
            assert t.publish_many(pa.table({"n": [1, 2, 3]})) == 3
            got = 0
            for batch in numbers.batches():
                got += batch.num_rows
                if got == 3:
                    break
            t.publish({"n": 4})
            rest = numbers.batches()
            assert next(rest)["n"].to_pylist() == [4]
            numbers.close()
            assert list(rest) == []

    run(work())
