"""Bridges between Mosquitto and a network of brokers."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.conftest import run, running
from tests.mqtt.conftest import Doors
from tests.mqtt.paho_client import PahoClient, wait

from tidings.live import read_network
from tidings.rehearsal._ports import free_ports

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


@contextlib.contextmanager
def mosquitto(directory: Path, port: int) -> Iterator[None]:
    """A Mosquitto that keeps its sessions while it is stopped."""
    path = directory / f"mosquitto-{port}.conf"
    kept = f"persistence true\npersistence_location {directory}/\npersistence_file {port}.db\n"
    path.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n{kept}", "utf-8")
    assert MOSQUITTO is not None
    process = subprocess.Popen([MOSQUITTO, "-c", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: is_listening(port))
        yield
    finally:
        process.terminate()
        process.wait()


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def written(doors: Doors, first: int, second: int) -> None:
    """Two brokers, each with a bridge to a Mosquitto."""
    doors.write("a", "b")
    text = doors.path.read_text("utf-8")
    for name, broker, port in (("one", "a", first), ("two", "b", second)):
        text += f'[[bridge]]\nname = "{name}"\nbroker = "{broker}"\naddress = "127.0.0.1:{port}"\n'
        text += 'in = ["plant/#"]\nout = ["plant/#"]\nlifetime = "5 min"\n'
    doors.path.write_text(text, "utf-8")


def test_messages_cross_both_ways_once_and_outlast_a_broker_that_is_away(doors: Doors, tmp_path: Path) -> None:
    first, second = free_ports(2)
    written(doors, first, second)

    def cross(one: PahoClient, other: PahoClient) -> None:
        """What one publishes comes to both, once."""
        wait_for_bridge(one, other)
        begin = len(one.messages), len(other.messages)
        for number in range(20):
            one.publish("plant/x", b"%d" % number, 1)
        wanted = {b"%d" % number for number in range(20)}
        for client in (one, other):
            wait(lambda client=client: {each.payload for each in client.messages} >= wanted)
        one.publish("plant/x", b"last", 1)
        for client in (one, other):
            wait(lambda client=client: any(each.payload == b"last" for each in client.messages))
        for client, since in zip((one, other), begin, strict=True):
            found = [each.payload for each in client.messages[since:] if each.payload not in (b"probe", b"last")]
            assert sorted(found) == sorted(wanted)
            client.messages.clear()

    def work() -> None:
        with mosquitto(tmp_path, first):
            with mosquitto(tmp_path, second), PahoClient(first, "c1") as one, PahoClient(second, "c2") as other:
                one.subscribe("plant/#", 1)
                other.subscribe("plant/#", 1)
                cross(one, other)
                cross(other, one)
            with PahoClient(first, "c3") as one:
                for number in range(10):
                    one.publish("plant/x", b"while away %d" % number, 1)
            with mosquitto(tmp_path, second), PahoClient(second, "c4") as other:
                other.subscribe("plant/#", 1)
                wait(lambda: len({each.payload for each in other.messages}) >= 10)

    async def serving() -> None:
        async with running(read_network(doors.path)):
            await asyncio.to_thread(work)

    run(serving())


def wait_for_bridge(one: PahoClient, other: PahoClient) -> None:
    """Until the brokers know of all subscriptions."""

    def came() -> bool:
        one.publish("plant/probe", b"probe", 1)
        time.sleep(0.1)
        return bool(other.messages)

    wait(came)
