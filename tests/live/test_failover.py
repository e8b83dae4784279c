"""Real broker processes die, and their clients go on at others."""

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run, running, until
from tests.live.test_processes import pid_of

from tidings.errors import ConfigurationError, InputError
from tidings.live import Delivery, DeniedError, connect
from tidings.live.operations._query import ask_network
from tidings.rehearsal._ports import free_ports

MESH = ("a-b", "b-c", "a-c")


def test_of_several_addresses_whichever_answers_first(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        place.start("up", str(network.path))
        await all_up(network)
        (nobody,) = free_ports(1)
        async with connect([f"127.0.0.1:{nobody}", place.address("a")], name="p") as p:
            await p.publish({"n": 1})
            assert p.home == "a"

    run(work())


def test_no_address_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        connect([])
    with pytest.raises(ConfigurationError, match="must be positive"):
        connect("127.0.0.1:7001", failover_s=0.0)


def test_clients_go_on_elsewhere_and_miss_nothing(place: Place) -> None:
    """The homes of a publisher and of a subscriber are killed one after the other, under load, and come back."""

    async def work() -> None:
        network = place.write("a", "b", "c", links=MESH)
        place.start("up", str(network.path))
        await all_up(network)
        got: list[Delivery] = []
        accepted: set[int] = set()
        options = {"durable": True, "failover_s": 0.5}
        async with (
            connect(place.address("a"), name="p", **options) as p,
            connect(place.address("c"), name="s", **options) as s,
        ):
            await s.subscribe("n >= 0", name="all", callback=got.append)
            while not got:  # until a knows of the subscription
                await p.publish({"n": 0})
            is_over = asyncio.Event()

            async def publish() -> None:
                offered = {}
                n = 1
                while not is_over.is_set():
                    offered[n] = await p.offer({"n": n}, lifetime_s=300.0)
                    n += 1
                    await asyncio.sleep(0.01)
                for n, each in offered.items():
                    await each
                    accepted.add(n)

            publishing = asyncio.create_task(publish())
            for client in (p, s):
                home = client.home
                assert home is not None
                pid = pid_of(place, home)
                for _ in range(2_000):  # whoever starts it again is killed too, until the client has gone
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid_of(place, home), signal.SIGKILL)
                    if client.home != home:
                        break
                    await asyncio.sleep(0.02)
                assert client.home != home
                await until(lambda home=home, pid=pid: pid_of(place, home) != pid)
                await all_up(network)
            is_over.set()
            await publishing
            await until(lambda: accepted <= {each.attributes["n"] for each in got})
        numbers = [each.attributes["n"] for each in got if each.attributes["n"]]
        assert len(numbers) == len(set(numbers))

    run(work())


def test_what_waits_for_a_broker_is_shown_or_refused(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        got: list[Delivery] = []
        async with running(network, "a"), connect(place.address("a"), name="p") as p:
            async with running(network, "b"), connect(place.address("b"), name="s", durable=True) as s:
                await s.subscribe("n >= 0", name="all", callback=got.append)
                while not got:  # until a knows of the subscription
                    await p.publish({"n": 0}, require="reachable")
            for n in range(1, 6):
                await p.publish({"n": n}, payload=bytes(1_000))

            async def parked() -> dict[str, Any]:
                found = await ask_network(network)
                return dict(next(broker for broker in found if broker["name"] == "a")["parked"])

            async with asyncio.timeout(30.0):
                while not (seen := await parked()):
                    await asyncio.sleep(0.05)
            assert seen["b"]["events"] >= 5  # the last of those before may not have been acknowledged
            assert seen["b"]["bytes"] > 5_000
            with pytest.raises(DeniedError, match="out of reach: b") as refused:
                await p.publish({"n": 6}, require="reachable")
            assert refused.value.code == "unreachable"
            with pytest.raises(InputError, match="require"):
                await p.publish({"n": 6}, require="everything")  # type: ignore[arg-type]

    run(work())


def test_a_clock_that_was_set_back_keeps_no_client_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A life is later than the one before because its broker says so, and not by the clock of its machine."""

    async def work() -> None:
        network = place.write("a")
        got: list[Delivery] = []
        async with running(network):
            with monkeypatch.context() as patched:
                now_ns = time.time_ns()
                patched.setattr("tidings.live.client._connect.time.time_ns", lambda: now_ns + 3_600 * 10**9)
                async with connect(place.address("a"), name="s", durable=True) as s:
                    await s.subscribe("n >= 0", name="all")
            async with connect(place.address("a"), name="p") as p:
                await p.publish({"n": 1})
            async with connect(place.address("a"), name="s", durable=True) as s:
                await s.subscribe("n >= 0", name="all", callback=got.append)
                await until(lambda: len(got) == 1)
                await s.publish({"n": 2})
                await until(lambda: len(got) == 2)

    run(work())
