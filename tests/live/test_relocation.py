"""Brokers that find their publishers' places and ask them to move, as the network file says."""

import asyncio
import os
import random
import re
import signal
from collections import Counter
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run, running, until
from tests.live.test_operations import metrics, printed_status, values_of
from tests.live.test_processes import pid_of

from tidings.errors import TidingsError
from tidings.live import Delivery, DeniedError, Network, Tidings, connect, read_network
from tidings.live.operations._query import ask_network
from tidings.protocol import BrokerSettings
from tidings.rehearsal import door, shape_of
from tidings.rehearsal._ports import free_ports

SOON = '[relocation]\nstay = "100 ms"\n'


@pytest.mark.parametrize("relocation", [pytest.param("pop", marks=pytest.mark.full), "grape"])
def test_a_publisher_moves_to_where_its_subscribers_are(place: Place, relocation: str) -> None:
    """Under load, and nothing is lost or comes twice."""

    async def work() -> None:
        network = place.write(
            "a", "b", "c", network=f'relocation = "{relocation}"\n', more='[relocation]\nstay = "100 ms"\n'
        )
        got: list[Delivery] = []
        accepted = []
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="fixed", may_be_moved=False, failover_s=None) as fixed,
            connect(place.address("c"), name="s") as s,
        ):
            await s.subscribe("n >= 0", callback=got.append)
            while not got:  # until a knows of the subscription
                await p.publish({"n": 0})
            while p.home != "c":
                for client in (p, fixed):
                    accepted.append(await client.publish({"n": len(accepted) + 1}))
                await asyncio.sleep(0.005)
            accepted.append(await p.publish({"n": len(accepted) + 1}))
            while len({each.attributes["n"] for each in got}) <= len(accepted):
                await asyncio.sleep(0.01)
            assert fixed.home == "a"
        numbers = [each.attributes["n"] for each in got if each.attributes["n"]]
        assert sorted(numbers) == list(range(1, len(accepted) + 1))

    run(work())


def test_a_publisher_moves_to_where_its_events_are_on_time(place: Place) -> None:
    """Over a link on which everything is late; whoever has no deadline moves nobody."""

    async def work() -> None:
        network = place.write("a", "b", network='relocation = "on-time"\n', more=SOON)
        (port,) = free_ports(1)
        text = network.path.read_text("utf-8")
        network.path.write_text(text + f'address = "127.0.0.1:{port}"\n', "utf-8")  # of broker b, the last one
        network = read_network(network.path)
        slow = shape_of(delay_s=0.2)
        got: list[Delivery] = []
        n = 0
        async with (
            door(place.ports["b"], slow, slow, listen=port),
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="s") as s,
        ):
            await s.subscribe("n >= 0", name="all", callback=got.append)
            while not got:  # until a knows of the subscription
                await p.publish({"n": 0})
            for n in range(1, 200):
                await p.publish({"n": n})
            assert (await moves_of(network, "a"))["asked"] == 0
            await s.subscribe("n >= 0", name="quick", max_delay_s=0.1, late_s=30.0, callback=lambda _: None)
            while p.home != "b":
                n += 1
                await p.publish({"n": n})
                await asyncio.sleep(0.005)
            await until(lambda: len({each.attributes["n"] for each in got}) > n)
            (move,) = (await moves_of(network, "a"))["recent"]
            assert (move["client"], move["to"], move["by"], move["phase"]) == ("p", "b", "on-time", "done")
        numbers = [each.attributes["n"] for each in got if each.attributes["n"]]
        assert sorted(numbers) == list(range(1, n + 1))

    run(work())


def test_it_needs_a_scheme_that_keeps_events(place: Place) -> None:
    with pytest.raises(TidingsError, match="needs a scheme with buffers"):
        place.write("a", network='relocation = "pop"\nscheme = "bypass"\n')


@pytest.mark.parametrize("key", ['stay = "soon"', "events = 0", "hysteresis = 1.0", "gain = 0.1"])
def test_what_is_written_about_moves_is_read_strictly(place: Place, key: str) -> None:
    with pytest.raises(TidingsError, match=rf"relocation\.{key.split()[0]}|{key.split()[0]}"):
        place.write("a", more=f"[relocation]\n{key}\n")
    network = place.write("a", network='relocation = "on-time"\n', more='[relocation]\nstay = "7 s"\nevents = 20\n')
    settings = network.settings_of("a")
    assert settings.relocation == "on-time"
    assert (settings.relocation_stay_ns, settings.relocation_events) == (7 * 10**9, 20)
    assert settings.relocation_hysteresis == BrokerSettings(name="any").relocation_hysteresis
    assert place.write("a").settings_of("a").relocation_stay_ns == BrokerSettings(name="any").relocation_stay_ns


def test_status_and_metrics_show_moves_under_way_and_done(place: Place) -> None:
    """c does not run: whoever goes there is on its way until it gives up."""

    async def work() -> None:
        (port,) = free_ports(1)
        network = place.write("a", "b", "c")
        text = network.path.read_text("utf-8")
        network.path.write_text(text.replace('name = "a"\n', f'name = "a"\nmetrics = "127.0.0.1:{port}"\n'), "utf-8")
        network = read_network(network.path)
        async with running(network, "a", "b"), connect(place.address("a"), name="p") as p:
            await p.advertise("n >= 0")
            await p.move("b")
            await p.move("a")
            moving = asyncio.create_task(p.move("c"))
            while not (moves := await moves_of(network, "a"))["under_way"]:
                await asyncio.sleep(0.02)
            (under_way,) = moves["under_way"]
            assert under_way.pop("phase_s") >= 0.0
            assert under_way == {"client": "p", "from": "a", "to": "c", "by": "client", "phase": "joining"}
            assert {key: moves[key] for key in ("asked", "done", "called_off", "moving")} == {
                "asked": 0,
                "done": 1,
                "called_off": 0,
                "moving": 1,
            }
            code, output = await printed_status(network)
            assert code == 1  # c is down
            assert re.search(r"^p moves from a to c: joining for [\d.]+ s \(by client\)$", output, re.MULTILINE)
            counted = "Moves since the start: 0 asked for, 2 done, 0 called off, 1 under way"
            assert counted in output
            page = values_of(await metrics(port))
            assert float(page["tidings_moves_under_way"]) == 1.0
            assert float(page['tidings_moves_total{outcome="done"}']) == 1.0
            with pytest.raises(DeniedError):
                await moving
            while not (moves := await moves_of(network, "a"))["called_off"]:
                await asyncio.sleep(0.02)
            last, first = moves["recent"]
            assert (last["phase"], last["why"], last["to"]) == ("called off", "timeout", "c")
            assert (first["phase"], first["why"], first["to"]) == ("done", "", "b")
            assert last["took_s"] >= 0.0
            assert last["ago_s"] <= first["ago_s"]

    run(work())


async def moves_of(network: Network, name: str) -> dict[str, Any]:
    """What a broker says about the moves of its clients."""
    return next(dict(broker["moves"]) for broker in await ask_network(network) if broker["name"] == name)


MESH = ("a-b", "b-c", "c-d", "a-d", "a-c")


async def moves_under_load(place: Place, moves: int, seed: int) -> None:
    """A publisher and a subscriber go from broker to broker, under load; during every other move a broker is killed."""
    network = place.write("a", "b", "c", "d", links=MESH)
    place.start("up", str(network.path))
    await all_up(network)
    dice = random.Random(seed)
    got: Counter[int] = Counter()
    accepted: list[int] = []
    is_over = asyncio.Event()
    done: Counter[str] = Counter()

    async def publish(client: Tidings) -> None:
        offered = {}
        while not is_over.is_set():
            offered[len(offered) + 1] = await client.offer({"n": len(offered) + 1}, lifetime_s=500.0)
            await asyncio.sleep(0.005)
        for n, each in offered.items():
            await each
            accepted.append(n)

    async def kill() -> None:
        """Kill any broker, at any moment of a move, and wait until it is back."""
        victim = dice.choice(sorted(network.brokers))
        pid = pid_of(place, victim)
        await asyncio.sleep(dice.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        done["kill"] += 1
        await until(lambda: pid_of(place, victim) != pid)
        await all_up(network)

    async with (
        connect(place.address("a"), name="p", durable=True, failover_s=2.0) as p,
        connect(place.address("c"), name="s", durable=True, failover_s=2.0) as s,
    ):
        await s.subscribe("n >= 0", name="all", callback=lambda event: got.update([event.attributes["n"]]))
        while not got:  # until a knows of the subscription
            await p.publish({"n": 0})
        publishing = asyncio.create_task(publish(p))
        while done["move"] < moves:
            client = (p, s)[dice.randrange(2)]
            target = dice.choice(sorted(network.brokers.keys() - {client.home}))
            killing = asyncio.create_task(kill()) if done["move"] % 2 else None
            try:
                async with asyncio.timeout(90.0):  # a move that hangs: all patience ends long before
                    await client.move(target)
                done["move"] += 1
            except DeniedError:  # its target was killed, or it moves already because its home was
                done["called off"] += 1
            if killing is not None:
                await killing
        is_over.set()
        await publishing
        await until(lambda: set(accepted) <= got.keys())
        while any([(await moves_of(network, name))["under_way"] for name in network.brokers]):
            await asyncio.sleep(0.05)
        del got[0]
    assert sorted(got) == sorted(accepted), "nothing that was accepted is lost"
    assert set(got.values()) == {1}, "nothing comes twice"
    assert done["kill"] >= moves // 2
    print(f"{dict(done)}, {len(accepted)} events")


def test_moves_under_load_while_brokers_are_killed_lose_nothing_and_do_not_hang(place: Place) -> None:
    run(moves_under_load(place, 5, 3))


@pytest.mark.full
def test_forty_moves_under_load_while_brokers_are_killed(place: Place) -> None:
    run(moves_under_load(place, 40, 5))
