"""Real brokers of two versions, and a network that damages what it carries."""

import asyncio
import signal
import subprocess
from collections import Counter
from typing import Any

from tests.live.conftest import Place, all_up, run, running, until

from tidings.live import Network, connect, read_network
from tidings.rehearsal import door, shape_of


def test_a_noisy_network_costs_connections_and_no_event(place: Place) -> None:
    """Of 31 bits flipped on a link without TLS, 31 were delivered as good payload, before frames had checksums."""

    async def work() -> None:
        network = place.write("a")
        got: list[bytes] = []
        noisy = shape_of(flip_after_bytes=100_000)
        async with (
            running(network) as nodes,
            door(place.ports["a"], noisy, noisy) as way,
            connect(f"127.0.0.1:{way.port}", name="p", failover_s=None) as p,
            connect(f"127.0.0.1:{way.port}", name="s", failover_s=None) as s,
        ):
            await s.subscribe("n >= 0", callback=lambda event: got.append(event.payload))
            payloads = [n.to_bytes(4, "big") * 256 for n in range(300)]
            for n, payload in enumerate(payloads):
                await p.publish({"n": n}, payload=payload)
            await until(lambda: len(got) >= len(payloads))
            assert Counter(got) == Counter(payloads)
            assert nodes["a"].machine.refused["damaged"] >= 2  # what the publisher sent; its answers are short

    run(work())


def start(place: Place, network: Network, name: str) -> "subprocess.Popen[bytes]":
    return place.start("broker", str(network.path), "--name", name)


def test_a_network_is_upgraded_broker_by_broker_under_load(place: Place) -> None:
    """The versions of the wire are mixed all the time, among brokers and towards clients."""

    async def work() -> None:
        ring = ("a-b", "b-c", "a-c")
        network = place.write("a", "b", "c", links=ring, network="wire_version = 2\n")
        brokers = {name: start(place, network, name) for name in network.brokers}
        await all_up(network)
        got: Counter[Any] = Counter()
        accepted: list[int] = []
        is_over = asyncio.Event()
        async with connect(place.address("a"), name="p") as p, connect(place.address("c"), name="s") as s:
            await s.subscribe("n >= 0", callback=lambda event: got.update([event.attributes["n"]]))
            await asyncio.sleep(0.7)

            async def publish() -> None:
                while not is_over.is_set():
                    await p.publish({"n": len(accepted)}, payload=bytes(300))
                    accepted.append(len(accepted))

            publishing = asyncio.create_task(publish())
            text = network.path.read_text("utf-8").replace("wire_version = 2", "wire_version = 3")
            network.path.write_text(text, "utf-8")
            network = read_network(network.path)
            for name in network.brokers:
                before = len(accepted)
                brokers[name].send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(brokers[name].wait, 30) == 0
                brokers[name] = start(place, network, name)
                await all_up(network)
                await until(lambda before=before: len(accepted) > before)  # type: ignore[misc]
            is_over.set()
            await publishing
            await until(lambda: len(got) >= len(accepted))
        assert sorted(got) == accepted
        assert set(got.values()) == {1}

    run(work())
