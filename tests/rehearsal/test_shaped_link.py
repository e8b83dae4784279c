"""Doors: delay, capacity, outages that break connections and hold newcomers back, and bits that flip."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
import uvloop

from tidings.rehearsal import Shape, door, shape_of
from tidings.rehearsal._ports import free_ports


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 60.0))


@contextlib.asynccontextmanager
async def echo(port: int = 0) -> AsyncIterator[int]:
    """A port that sends everything back."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def round_trip(port: int, data: bytes) -> tuple[bytes, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = time.monotonic()
    writer.write(data)
    found = await reader.readexactly(len(data))
    took_s = time.monotonic() - began_s
    writer.close()
    return found, took_s


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_bytes_come_through_as_they_were_and_not_before_their_time(loop: Any) -> None:
    async def work() -> None:
        data = bytes(range(256)) * 40
        async with echo() as port, door(port, shape_of(delay_s=0.1), shape_of(delay_s=0.05)) as gate:
            found, took_s = await round_trip(gate.port, data)
            assert found == data
            assert took_s >= 0.15 - 0.002
            assert gate.lateness_s

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(work(), 60.0))


def test_a_narrow_link_takes_its_time_for_every_byte() -> None:
    async def work() -> None:
        async with echo() as port, door(port, shape_of(bytes_per_s=100_000)) as gate:
            _, took_s = await round_trip(gate.port, bytes(20_000))
            assert took_s >= 0.2 - 0.002

    run(work())


def test_bytes_never_overtake_each_other() -> None:
    async def work() -> None:
        delays_s = iter([0.2, 0.0, 0.1] * 1_000)
        async with echo() as port, door(port, Shape(lambda _: (0.0, next(delays_s)))) as gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            for number in range(20):
                writer.write(bytes([number]))
                await asyncio.sleep(0.005)
            assert await reader.readexactly(20) == bytes(range(20))
            writer.close()

    run(work())


def test_a_shut_door_breaks_connections_and_keeps_newcomers_waiting() -> None:
    async def work() -> None:
        async with echo() as port, door(port) as gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            gate.shut()
            gate.shut()  # for two reasons
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            waiting = asyncio.create_task(round_trip(gate.port, b"after"))
            gate.unshut()
            await asyncio.sleep(0.05)
            assert not waiting.done()
            gate.unshut()
            assert (await waiting)[0] == b"after"

    run(work())


def test_an_outage_is_noticed_later_if_that_is_asked_for() -> None:
    async def work() -> None:
        async with echo() as port, door(port) as gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            began_s = time.monotonic()
            gate.shut(0.2)
            writer.write(b"into the dark")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert time.monotonic() - began_s >= 0.2 - 0.002
            writer.close()

    run(work())


def test_who_comes_before_anybody_listens_waits_for_that() -> None:
    async def work() -> None:
        (port,) = free_ports(1)
        async with door(port) as gate:
            waiting = asyncio.create_task(round_trip(gate.port, b"early"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            async with echo(port):
                assert (await waiting)[0] == b"early"

    run(work())


def test_a_bit_flips_once_a_connection_has_carried_so_much() -> None:
    async def work() -> None:
        async with echo() as port, door(port, shape_of(flip_after_bytes=5_000)) as gate:
            found, _ = await round_trip(gate.port, bytes(10_000))
            assert [at for at, byte in enumerate(found) if byte] == [5_000]

    run(work())
