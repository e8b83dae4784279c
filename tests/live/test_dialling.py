"""Connections that are not answered: dialling goes on, in brokers and clients, and cancels nobody."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator

import pytest
from tests.live.conftest import Place, run, running, until

from tidings.live import connect
from tidings.live._errors import ConnectionLostError


@contextlib.asynccontextmanager
async def mute_listener() -> AsyncIterator[int]:
    """A port that accepts connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def test_connecting_to_a_mute_listener_ends_with_an_error_that_says_so_and_cancels_nobody() -> None:
    async def work() -> None:
        async with mute_listener() as port:
            with pytest.raises(ConnectionLostError, match="did not answer within"):
                await connect(f"127.0.0.1:{port}", connect_s=0.1).__aenter__()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(work())


def test_an_unknown_host_is_named_with_the_reason() -> None:
    async def work() -> None:
        with pytest.raises(ConnectionLostError, match=r"nowhere\.invalid:1 cannot be reached: (?!Unknown error)"):
            await connect("nowhere.invalid:1", connect_s=10.0).__aenter__()

    run(work())


def test_a_broker_paused_beyond_the_time_out_gets_its_link_and_its_client_back(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        paused = place.start("broker", str(network.path), "--name", "b")
        async with running(network, "a") as nodes:
            a = nodes["a"]
            await until(lambda: "b" in a.machine.neighbours and a.machine.neighbours["b"].is_up)
            async with connect(place.address("b"), name="c") as client:
                await client.subscribe("n >= 0")
                os.kill(paused.pid, signal.SIGSTOP)
                for connection in [*a.driver.connections.values(), *client._driver.connections.values()]:
                    connection.abort("the link was cut")
                # The system accepts the new connections; nobody answers them.
                log = a.log._stream
                assert log is not None
                await until(lambda: "did not answer within" in log.getvalue())  # type: ignore[attr-defined]
                os.kill(paused.pid, signal.SIGCONT)
                await until(lambda: a.machine.neighbours["b"].is_up)
                await until(lambda: client.is_connected)
                await client.publish({"n": 1})

    run(work())
