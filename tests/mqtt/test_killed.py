"""A real broker process that is killed (kill -9) again and again under load, with clients of the paho library."""

import os
import signal
import time
from collections import Counter

import pytest
from tests.live.conftest import Place
from tests.mqtt.conftest import Doors
from tests.mqtt.paho_client import PahoClient, wait

BETWEEN_S = 0.5


def killed_under_load(doors: Doors, place: Place, kills: int) -> None:
    doors.write("a")
    port = doors.port("a")
    broker = place.start("broker", str(doors.path), "--name", "a")
    wait_listening(place, 1)
    more = {"expiry_s": 600, "clean": False}
    with PahoClient(port, "s", **more) as s, PahoClient(port, "p", **more) as p:
        for each in (s, p):
            each.client.reconnect_delay_set(1, 1)
        s.subscribe("t/1", 1)
        s.subscribe("t/2", 2)
        sent, infos = 0, []
        for number in range(kills):
            end_s = time.monotonic() + BETWEEN_S
            while time.monotonic() < end_s:
                sent += 1
                infos += [p.client.publish(f"t/{qos}", b"%d" % sent, qos) for qos in (1, 2)]
                time.sleep(0.005)
            os.killpg(broker.pid, signal.SIGKILL)
            broker.wait()
            broker = place.start("broker", str(doors.path), "--name", "a")
            wait_listening(place, number + 2)
            wait(lambda: p.client.is_connected() and s.client.is_connected(), 120.0)
        for info in infos:
            info.wait_for_publish(120.0)
        wanted = {b"%d" % number for number in range(1, sent + 1)}
        wait(lambda: all({m.payload for m in s.messages if m.topic == f"t/{qos}"} == wanted for qos in (1, 2)), 120.0)
        p.client.publish("t/2", b"last", 2)  # behind it nothing is under way that would have come before
        wait(lambda: any(m.payload == b"last" for m in s.messages), 120.0)
        assert Counter(m.payload for m in s.messages if m.topic == "t/2") == Counter([*wanted, b"last"])


def wait_listening(place: Place, times: int) -> None:
    wait(lambda: sum(line.get("event") == "serving" for line in place.logs()) >= times, 120.0)


def test_a_killed_broker_loses_nothing_and_doubles_nothing_of_qos_2(doors: Doors, place: Place) -> None:
    killed_under_load(doors, place, kills=3)


@pytest.mark.full
def test_fifty_kills_lose_nothing_and_double_nothing_of_qos_2(doors: Doors, place: Place) -> None:
    killed_under_load(doors, place, kills=50)
