"""The on-time figure of a live network: what status says is what the applications saw, and what the trace says."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import PATIENCE_S, Place, all_up, run, running, until

from tidings.live import Delivery, Network, Tidings, connect, read_network
from tidings.live.operations._query import ask_network
from tidings.live.operations._status import subscribers_of
from tidings.pipeline import PipelineResult, run_in_process, run_pipeline
from tidings.rehearsal import door, shape_of
from tidings.rehearsal._ports import free_ports

TRACE = '[trace]\ndirectory = "trace"\nroll_age = "300 ms"\n'
LIFETIME_S = 1.0
PAUSE_S = 2.5
Account = dict[str, Any]


async def accounts_when(network: Network, settled: Any) -> dict[str, Account]:
    """The accounts of all subscriptions, as soon as this holds of them."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found = subscribers_of(await ask_network(network))
        if settled(found):
            return found
        assert time.monotonic() < end_s, found
        await asyncio.sleep(0.1)


def balances(account: Account) -> bool:
    parts = ("on_time", "late", "dropped", "lost", "under_way")
    return bool(account["matched"] == sum(account[part] for part in parts))


async def publish(client: Tidings, first: int, many: int, accepted: list[int]) -> None:
    """Offer events one after the other, and note which were accepted."""
    waiting = []
    for n in range(first, first + many):
        waiting.append((n, await client.offer({"n": n}, lifetime_s=LIFETIME_S)))
        await asyncio.sleep(0.01)
    for n, each in waiting:
        await asyncio.wait([each])
        if each.exception() is None:
            accepted.append(n)


async def calm_pause_and_away(place: Place, network: Network) -> tuple[dict[str, Account], dict[str, list[Delivery]]]:
    """A calm, a broker in the middle that stands still for longer than events live, and a client that goes away."""
    got: dict[str, list[Delivery]] = {"strict": [], "lenient": [], "away": []}
    processes = {name: place.start("broker", str(network.path), "--name", name) for name in network.brokers}
    await all_up(network)
    # Where no kernel is compiled yet, the first queue waits for it: events would expire before they are accepted.
    await until(lambda: sum(line["event"] == "warm" for line in place.logs()) == len(processes))
    accepted: list[int] = []
    async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="s") as s:
        await s.subscribe("n >= 0", name="strict", max_delay_s=0.3, callback=got["strict"].append)
        await s.subscribe("n >= 0", name="lenient", max_delay_s=0.3, late_s=20.0, callback=got["lenient"].append)
        async with connect(place.address("c"), name="t", durable=True) as t:
            await t.subscribe("n >= 0", name="away", callback=got["away"].append)
            while not all(got.values()):  # until everybody knows of the subscriptions
                await publish(p, -1, 1, [])
                await p.publish({"n": 0}, lifetime_s=LIFETIME_S)
            await publish(p, 1, 50, accepted)
        os.kill(processes["b"].pid, signal.SIGSTOP)
        publishing = asyncio.create_task(publish(p, 51, 100, accepted))
        await asyncio.sleep(PAUSE_S)
        os.kill(processes["b"].pid, signal.SIGCONT)
        await publishing
        await publish(p, 151, 50, accepted)
        assert len(accepted) > 100
        found = await accounts_when(
            network,
            lambda found: all(each["matched"] >= len(accepted) and not each["under_way"] for each in found.values()),
        )
    for process in processes.values():
        process.terminate()
        process.wait(20)
    return found, got


def compare(found: dict[str, Account], got: dict[str, list[Delivery]]) -> None:
    for name, account in found.items():
        assert balances(account), (name, account)
        deliveries = got[name.partition("/")[2]]
        assert account["on_time"] == sum(not each.late for each in deliveries), name
        assert account["late"] == sum(each.late for each in deliveries), name
        assert account["lost"] == 0
    assert found["t/away"]["dropped_by"]["c"] > 0  # what expired while it was away
    assert found["s/strict"]["matched"] > found["s/strict"]["on_time"]  # what the broker that stood still has cost
    assert found["s/strict"]["delay_ms_p50"] <= 300.0
    assert found["t/away"]["connected"] is False


def test_status_says_what_the_applications_saw(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c")
        compare(*await calm_pause_and_away(place, network))

    run(work())


def test_the_pipeline_finds_the_same_in_the_traces(place: Place, tmp_path: Path) -> None:
    pipeline_agrees(place, run_in_process, tmp_path)


@pytest.mark.full
@pytest.mark.spark
def test_spark_finds_the_same_in_the_traces(place: Place, spark: Any, tmp_path: Path) -> None:
    pipeline_agrees(place, partial(run_pipeline, spark), tmp_path)


def pipeline_agrees(place: Place, run_on: Callable[..., PipelineResult], tmp_path: Path) -> None:
    """Status, applications and pipeline have the same account; whichever engine reads the traces."""
    found: dict[str, Account] = {}

    async def work() -> None:
        network = place.write("a", "b", "c", more=TRACE)
        accounts, got = await calm_pause_and_away(place, network)
        compare(accounts, got)
        found.update(accounts)

    run(work())
    scores = run_on([place.directory / "trace"], tmp_path / "out").subscribers
    for name, account in found.items():
        score = scores[name]
        assert (score.on_time, score.late) == (account["on_time"], account["late"]), name
        # Of the events of the first moments the network may not have known whom they are for.
        assert abs(score.matched - account["matched"]) <= 0.02 * account["matched"], name
        assert abs(score.on_time_reliability - account["on_time_reliability"]) <= 0.005, name


def test_what_an_overloaded_link_drops_is_in_the_account_of_the_subscriber_behind_it(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        (port,) = free_ports(1)
        text = network.path.read_text("utf-8")
        network.path.write_text(text + f'address = "127.0.0.1:{port}"\n', "utf-8")  # of broker b, the last one
        network = read_network(network.path)
        got: list[Delivery] = []
        accepted: list[int] = []
        async with (
            door(place.ports["b"], shape_of(bytes_per_s=50_000), listen=port),
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="s") as s,
        ):
            await s.subscribe("n >= 0", name="all", max_delay_s=2.0, callback=got.append)
            while not got:  # until a knows of the subscription
                await p.publish({"n": 0})
            for n in range(1, 301):  # 2 kB each, three times what the pipe carries
                await p.publish({"n": n}, payload=bytes(2_000), lifetime_s=3.0)
                accepted.append(n)
                await asyncio.sleep(0.01)
            found = await accounts_when(
                network,
                lambda found: found["s/all"]["matched"] >= len(accepted) and not found["s/all"]["under_way"],
            )
            account = found["s/all"]
            assert balances(account)
            assert account["on_time"] == len(got) < account["matched"]
            assert account["dropped_by"]["a"] > 0
            assert account["lost"] == 0

    run(work())
