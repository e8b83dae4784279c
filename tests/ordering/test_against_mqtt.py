"""A real client of another system: paho-mqtt on a real Mosquitto broker, stamps as MQTT 5 user properties."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.errors import InputError
from tidings.model.filters import Filter
from tidings.ordering import OrderedReceiver, Policy, Stamper, SummaryMatcher, from_properties, to_properties
from tidings.rehearsal._ports import free_ports

EVENTS = 40


@pytest.fixture
def broker_port(tmp_path: Path) -> Iterator[int]:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        pytest.skip("Mosquitto is not installed: apt-get install mosquitto")
    (port,) = free_ports(1)
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    process = subprocess.Popen(
        [program, "-c", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            pytest.fail("Mosquitto does not answer")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_events_that_arrive_out_of_order_are_delivered_in_order(broker_port: int) -> None:
    mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed: pip install paho-mqtt")
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    wanted = Filter.parse("kind = 'even'")
    arrived: list[int] = []
    delivered: list[int] = []
    everything = threading.Event()

    def deliver(number: int) -> None:
        delivered.append(number)
        if len(delivered) == EVENTS // 2:
            everything.set()

    ordered = OrderedReceiver(deliver, Policy.static(5 * 10**9), SummaryMatcher([wanted]))

    def on_message(_client: object, _userdata: object, message) -> None:
        found = from_properties(message.properties.UserProperty)
        assert found is not None
        publisher, stamp = found
        arrived.append(int(message.payload))
        ordered.on_message(publisher, int(message.payload), stamp)

    def client():
        one = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        one.connect("127.0.0.1", broker_port)
        return one

    subscriber, publisher, subscribed = client(), client(), threading.Event()
    subscriber.on_message = on_message
    subscriber.on_subscribe = lambda *_: subscribed.set()
    subscriber.subscribe("even", qos=1)
    subscriber.loop_start()
    publisher.loop_start()
    try:
        assert subscribed.wait(20.0)
        stamper = Stamper(record=5)
        sent = []
        for number in range(EVENTS):
            kind = "even" if number % 2 == 0 else "odd"
            sent.append((kind, number, stamper.stamp({"kind": kind}, time.time_ns())))
        # What a best-effort network does to them on the way: every other pair changes places, but not the first.
        for first in range(4, EVENTS - 2, 4):
            sent[first], sent[first + 2] = sent[first + 2], sent[first]
        for kind, number, stamp in sent:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = to_properties("sensor", stamp)
            publisher.publish(kind, str(number), qos=1, properties=properties)
        assert everything.wait(20.0)
    finally:
        for one in (subscriber, publisher):
            one.disconnect()
            one.loop_stop()
        ordered.close()
    assert arrived != sorted(arrived)
    assert delivered == list(range(0, EVENTS, 2))
    counts = ordered.receiver.counts("sensor")
    assert counts is not None
    assert (counts.violations, counts.out_of_order) == (0, 9)


def test_what_others_send_has_no_stamp_and_a_broken_one_is_named() -> None:
    assert from_properties([("content-type", "text")]) is None
    assert from_properties([]) is None
    with pytest.raises(InputError, match="tidings-stamp is missing"):
        from_properties([("tidings-publisher", "p")])
    with pytest.raises(InputError, match="base64"):
        from_properties([("tidings-publisher", "p"), ("tidings-stamp", "!")])
