"""Connections that are not answered, do not last, or fail in ways that nobody expected: dialling goes on."""

import asyncio
import contextlib
import os
import selectors
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from tests.live.conftest import Place, run, running, until

from tidings.live import connect
from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.broker._admission import Preamble
from tidings.live.configuration._schema import Address
from tidings.live.transport._dialling import BACKOFF_MOST_S, STEADY_S, dial, keep_connected


@contextlib.asynccontextmanager
async def mute_listener() -> AsyncIterator[int]:
    """A port that accepts connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def test_a_connection_that_is_not_answered_is_an_error_and_cancels_nobody() -> None:
    async def work() -> None:
        async with mute_listener() as port:
            with pytest.raises(ConnectionLostError, match="did not answer within"):
                await dial(
                    Address("127.0.0.1", port),
                    Preamble("client", "c"),
                    name="c",
                    max_frame_bytes=1_000,
                    ready=lambda *_: None,
                    grace_s=0.05,
                )
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(work())


def test_connecting_to_a_mute_listener_ends_with_an_error_that_says_so() -> None:
    async def work() -> None:
        async with mute_listener() as port:
            with pytest.raises(ConnectionLostError, match="did not answer within"):
                await connect(f"127.0.0.1:{port}", connect_s=0.1).__aenter__()

    run(work())


def test_an_unknown_host_is_named_with_the_reason() -> None:
    async def work() -> None:
        with pytest.raises(ConnectionLostError, match=r"nowhere\.invalid:1 cannot be reached: (?!Unknown error)"):
            await connect("nowhere.invalid:1", connect_s=0.1).__aenter__()

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


# -- a keeper in virtual time ------------------------------------------------------------------------------------------


class _Jump(selectors.SelectSelector):
    """Nobody waits: the clock of the loop is moved to when the next timer is due."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(work)


async def keep_for(seconds: float, dial_once: Callable[[], Any], **more: Any) -> list[dict[str, Any]]:
    """Keep dialling for so long; what was reported to the loop."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    keeper = asyncio.create_task(keep_connected(dial_once, what="b", failed=lambda _: True, **more))
    await asyncio.sleep(seconds)
    assert not keeper.done(), "a keeper ends only when its owner says so"
    keeper.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeper
    assert keeper.cancelled()
    return reports


@pytest.mark.parametrize("lasts_s", [0.0, STEADY_S / 2])
def test_connections_that_do_not_last_are_dialled_ever_more_rarely(lasts_s: float) -> None:
    dials_s: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()

        async def dial_once() -> asyncio.Event:
            dials_s.append(loop.time())
            loss = asyncio.Event()
            loop.call_later(lasts_s, loss.set)
            return loss

        await keep_for(300.0, dial_once)

    run_virtually(work())
    gaps_s = [after - before for before, after in pairwise(dials_s)]
    assert len(dials_s) < 300.0 / (BACKOFF_MOST_S / 2 + lasts_s) + 10
    assert all(gap_s >= BACKOFF_MOST_S / 2 for gap_s in gaps_s[8:])


def test_a_connection_that_lasted_is_dialled_again_at_once() -> None:
    dials_s: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()

        async def dial_once() -> asyncio.Event:
            dials_s.append(loop.time())
            loss = asyncio.Event()
            loop.call_later(STEADY_S, loss.set)
            return loss

        await keep_for(60.0, dial_once)

    run_virtually(work())
    assert len(dials_s) >= 60.0 / (STEADY_S + 0.1)


@pytest.mark.parametrize("error", [ValueError("a bug"), asyncio.CancelledError(), OSError("no descriptors left")])
def test_an_error_that_nobody_expected_is_reported_and_dialling_goes_on(error: BaseException) -> None:
    dials = 0
    reports: list[dict[str, Any]] = []

    async def work() -> None:
        async def dial_once() -> asyncio.Event:
            nonlocal dials
            dials += 1
            if dials <= 2:
                raise error
            return asyncio.Event()

        reports.extend(await keep_for(60.0, dial_once))

    run_virtually(work())
    assert dials == 3
    assert [report["exception"] for report in reports] == [error, error]


def test_a_keeper_whose_owner_is_refused_stops_dialling() -> None:
    dials = 0

    async def work() -> None:
        async def dial_once() -> asyncio.Event:
            nonlocal dials
            dials += 1
            raise DeniedError("token", "wrong token")

        await keep_connected(dial_once, what="b", failed=lambda error: not isinstance(error, DeniedError))

    run_virtually(work())
    assert dials == 1
