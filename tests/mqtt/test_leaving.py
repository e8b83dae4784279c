"""A broker that leaves the network sends its MQTT clients to one that stays (server reference)."""

import asyncio
from typing import Any

from tests.live.conftest import run, running
from tests.mqtt.conftest import Doors
from tests.mqtt.paho_client import PahoClient, wait

from tidings.live import connect

EVENTS = 60


def test_a_client_of_a_leaving_broker_goes_on_at_the_one_it_is_sent_to_and_loses_nothing(doors: Doors) -> None:
    """[MQTT-4.13] reason 0x9D with a server reference; the session's events follow the client to its new broker."""

    def stay(client: PahoClient, servers: list[str]) -> None:
        """Subscribe, wait for the disconnection, and go on where it says."""
        gone: list[tuple[int, str]] = []

        def disconnected(*facts: Any) -> None:
            properties = facts[4]
            gone.append((facts[3].value, getattr(properties, "ServerReference", "")))
            client.client.loop_stop()

        client.client.on_disconnect = disconnected
        with client:
            assert client.subscribe("plant/#", 1) == 1
            servers.append("subscribed")
            wait(lambda: bool(gone))
        servers.extend(map(str, gone[0]))
        port = int(gone[0][1].rpartition(":")[2])
        moved = PahoClient(port, "panel", expiry_s=300, clean=False)
        with moved:
            assert moved.subscribe("plant/#", 1) == 1
            seen = {message.payload for message in client.messages}
            wait(lambda: len(seen | {message.payload for message in moved.messages}) == EVENTS)

    async def work() -> None:
        network = doors.write("a", "b")
        servers: list[str] = []
        async with running(network) as nodes, connect(doors.place.address("b"), name="plant") as plant:
            client = PahoClient(doors.port("a"), "panel", expiry_s=300)
            following = asyncio.create_task(asyncio.to_thread(stay, client, servers))
            while not servers:
                await asyncio.sleep(0.02)
            for number in range(EVENTS):
                await plant.publish({"topic": "plant/1", "n": number}, payload=b"%d" % number, lifetime_s=300.0)
                if number == EVENTS // 3:
                    text = doors.path.read_text("utf-8")
                    doors.path.write_text(text.replace(text[text.index("[[broker]]") : text.rindex("[[broker]]")], ""))
                    nodes["a"]._reloading.hung_up(False)
                    nodes["b"]._reloading.hung_up(False)
            await following
            assert servers[1:] == ["157", f"127.0.0.1:{doors.port('b')}"]

    run(work())
