"""Two copies on real brokers: kill -9 of any broker, and its disk is gone too; nothing accepted is lost or doubled."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run, until

from tidings.errors import ConfigurationError
from tidings.live import Network, connect
from tidings.live.operations._query import ask_network

RING = ("a-b", "b-c", "a-c")


async def lose(
    place: Place, network: Network, name: str, process: "subprocess.Popen[bytes]"
) -> "subprocess.Popen[bytes]":
    """A broker is killed, and its store deleted; then it is started again."""
    os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    shutil.rmtree(network.store_of(name))
    await asyncio.sleep(0.2)
    again = place.start("broker", str(network.path), "--name", name)
    await all_up(network)
    return again


async def all_know(network: Network, subscriptions: int) -> None:
    """Wait until every broker knows of so many subscriptions, at home and elsewhere."""
    while any(
        broker["subscriptions"] + broker["subscriptions_elsewhere"] < subscriptions
        for broker in await ask_network(network)
    ):
        await asyncio.sleep(0.05)


async def disks_lost_under_load(place: Place, times: int, seed: int) -> None:
    network = place.write("a", "b", "c", links=RING, network="copies = 2\n")
    processes = {name: place.start("broker", str(network.path), "--name", name) for name in network.brokers}
    await all_up(network)
    addresses = [place.address(name) for name in network.brokers]
    got: dict[str, Counter[Any]] = {name: Counter() for name in network.brokers}
    accepted: list[int] = []
    is_over = asyncio.Event()
    dice = random.Random(seed)
    async with (
        connect(addresses, name="p", failover_s=1.0, max_in_flight=64) as p,
        connect(addresses[0], name="sa", failover_s=1.0) as sa,
        connect(addresses[1], name="sb", failover_s=1.0) as sb,
        connect(addresses[2], name="sc", failover_s=1.0) as sc,
    ):
        for subscriber, name in ((sa, "a"), (sb, "b"), (sc, "c")):
            counts = got[name]
            await subscriber.subscribe("n >= 0", callback=lambda event, c=counts: c.update([event.attributes["n"]]))
        await all_know(network, 3)

        async def publish() -> None:
            n = 0
            while not is_over.is_set():
                outcome = await p.offer({"n": n}, payload=bytes(300))
                outcome.add_done_callback(lambda done, n=n: accepted.append(n) if done.exception() is None else None)
                n += 1
                await asyncio.sleep(0.004)
            await p.flush()

        publishing = asyncio.create_task(publish())
        for _ in range(times):
            before = len(accepted)
            name = dice.choice(sorted(processes))
            processes[name] = await lose(place, network, name, processes[name])
            await until(lambda before=before: len(accepted) > before + 20)  # type: ignore[misc]
        is_over.set()
        await publishing
        await until(lambda: all(len(counts) >= len(accepted) for counts in got.values()))
    for name, counts in got.items():
        assert sorted(counts) == sorted(accepted), f"the subscriber at {name} has everything"
        assert set(counts.values()) == {1}, f"and nothing twice, at {name}"


def test_a_disk_that_is_lost_under_load_costs_no_event(place: Place) -> None:
    run(disks_lost_under_load(place, 2, 3))


@pytest.mark.full
def test_twenty_disks_that_are_lost_under_load_cost_no_event(place: Place) -> None:
    run(disks_lost_under_load(place, 20, 4))


def test_what_an_away_client_is_owed_survives_the_disk_of_its_home(place: Place) -> None:
    """Before, 20 accepted events for a durable client were gone with the disk, and nobody was told."""

    async def work() -> None:
        network = place.write("a", "b", "c", links=RING, network="copies = 2\n")
        processes = {name: place.start("broker", str(network.path), "--name", name) for name in network.brokers}
        await all_up(network)
        async with connect(place.address("a"), name="s", durable=True) as s:
            await s.subscribe("n >= 0", name="all", callback=lambda _: None)
        async with connect(place.address("a"), name="p") as p:
            for n in range(20):
                await p.publish({"n": n})
        await lose(place, network, "a", processes["a"])
        got: list[int] = []
        async with connect(place.address("a"), name="s", durable=True) as s:
            await s.subscribe("n >= 0", name="all", callback=lambda event: got.append(event.attributes["n"]))
            await until(lambda: len(got) >= 20)
            await asyncio.sleep(0.5)
        assert sorted(got) == list(range(20))

    run(work())


def test_a_broker_without_a_neighbour_cannot_have_two_copies(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="broker 'a' has no neighbour to keep second copies"):
        place.write("a", network="copies = 2\n")


def test_a_store_whose_file_is_deleted_stops_the_broker(place: Place) -> None:
    """Before, it went on acknowledging what nobody would ever find again."""

    async def work() -> None:
        network = place.write("a")
        process = place.start("broker", str(network.path), "--name", "a")
        await all_up(network)
        async with connect(place.address("a"), name="s", durable=True) as s:
            await s.subscribe("n >= 0", name="all", callback=lambda _: None)
        async with connect(place.address("a"), name="p", failover_s=None) as p:
            await p.publish({"n": 1})
            (network.store_of("a") / "data.mdb").unlink()
            outcome = await p.offer({"n": 2})
            assert await asyncio.to_thread(process.wait, 30) == 1
            assert not outcome.done()
        assert any(
            line["event"] == "store failed" and "was deleted or replaced" in line["why"] for line in place.logs()
        )

    run(work())
