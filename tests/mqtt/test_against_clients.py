"""Clients that others wrote, against real brokers: paho, Mosquitto's commands, MQTT.js."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.live.conftest import run, running
from tests.mqtt.conftest import Doors, needed
from tests.mqtt.paho_client import PahoClient, wait

from tidings.live import connect
from tidings.live.security._certificates import make_certificates

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 300.0
MQTT_JS = os.environ.get("TIDINGS_MQTT_JS", "")
"""The directory that `npm install mqtt` was run in."""
TLS = """
[tls]
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
authority = "certificates/authority.pem"
"""


def serve(doors: Doors, work: Callable[[], None], *names: str, **more: object) -> None:
    """Run a network while the work is done, in a thread."""
    network = doors.write(*names, **more)  # type: ignore[arg-type]

    async def serving() -> None:
        async with running(network):
            await asyncio.to_thread(work)

    run(serving())


@contextlib.asynccontextmanager
async def entered(client: PahoClient) -> AsyncIterator[PahoClient]:
    """A client that is connected, without making the brokers on this loop wait."""
    await asyncio.to_thread(client.__enter__)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.__exit__, None, None, None)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_against_paho_every_qos_arrives(doors: Doors, version: int, transport: str) -> None:
    key = "mqtt" if transport == "tcp" else "mqtt_ws"

    def work() -> None:
        port = doors.port("a", key)
        more = {"version": version, "transport": transport}
        with PahoClient(port, "s", **more) as s, PahoClient(port, "p", **more) as p:
            assert s.subscribe("plant/+/temp/#", 2) == 2
            for qos in (0, 1, 2):
                for number in range(20):
                    p.publish("plant/7/temp", b"%d-%d" % (qos, number), qos)
            found = s.payloads(60)
            assert sorted(found) == sorted(b"%d-%d" % (qos, number) for qos in (0, 1, 2) for number in range(20))
            assert {message.qos for message in s.messages} == {0, 1, 2}

    serve(doors, work, "a", keys=("mqtt", "mqtt_ws"))


def test_against_paho_large_messages_and_user_properties_over_three_brokers(doors: Doors) -> None:
    def work() -> None:
        with PahoClient(doors.port("c"), "s") as s, PahoClient(doors.port("a"), "p") as p:
            s.subscribe("big/#", 1, filter="kind = 'x'", max_delay_ms="60000", report="all")
            payload = os.urandom(300_000)
            wait_for_route(p, s)
            p.publish("big/one", payload, 1, UserProperty=[("kind", "x"), ("kind", "y")], ContentType="a/b")
            p.publish("big/one", payload, 1, UserProperty=[("kind", "z")])
            wait(lambda: any(message.payload == payload for message in s.messages))
            message = next(message for message in s.messages if message.payload == payload)
            assert message.properties is not None
            assert message.properties.ContentType == "a/b"
            names = [name for name, _ in message.properties.UserProperty]
            assert names == ["kind", "kind", "age-ms", "late", "deadline-left-ms"]

    serve(doors, work, "a", "b", "c")


def test_against_paho_a_session_that_was_away_gets_the_latest_of_each_topic(doors: Doors) -> None:
    def work() -> None:
        with PahoClient(doors.port("a"), "p") as p:
            with PahoClient(doors.port("a"), "s", expiry_s=300, clean=True) as s:
                assert s.subscribe("quotes/#", 1, conflate="topic") == 1
                p.publish("quotes/x", b"before", 1)
                assert s.payloads(1) == [b"before"]
            for number in range(30):
                p.publish(f"quotes/{'xy'[number % 2]}", b"%d" % number, 1)
            with PahoClient(doors.port("a"), "s", expiry_s=300, clean=False) as s:
                assert sorted(s.payloads(2)) == [b"28", b"29"]
                p.publish("quotes/x", b"after", 1)
                wait(lambda: any(message.payload == b"after" for message in s.messages))
                assert len(s.messages) == 3

    serve(doors, work, "a")


def wait_for_route(p: PahoClient, s: PahoClient) -> None:
    """Publish until something comes: by then the brokers know of the subscription."""

    def came() -> bool:
        p.publish("big/probe", b"probe", 1, UserProperty=[("kind", "x")])
        return bool(s.messages)

    wait(came)


def test_retained_messages_are_known_to_every_broker_with_a_door(doors: Doors) -> None:
    def work() -> None:
        with PahoClient(doors.port("a"), "p") as p:
            p.publish("state/x", b"on", 1, retain=True)

            def came() -> bool:
                p.publish("state/x", b"on", 1, retain=True)
                with PahoClient(doors.port("b"), "s") as s:
                    s.subscribe("state/#", 1)
                    s.subscribe("other", 1)
                    return [(each.payload, each.retain) for each in s.messages] == [(b"on", True)]

            wait(came)

    serve(doors, work, "a", "b")


def test_native_clients_and_mqtt_clients_see_each_others_events(doors: Doors) -> None:
    network = doors.write("a")

    async def work() -> None:
        async with running(network), connect(doors.place.address("a"), name="native") as native:
            hot = await native.subscribe("topic = 'sensors/1' AND celsius > 30")
            async with entered(PahoClient(doors.port("a"), "mqtt")) as mqtt:
                await asyncio.to_thread(mqtt.subscribe, "quotes/#", 1)
                await asyncio.to_thread(
                    mqtt.publish, "sensors/1", b'{"celsius": 31.5}', 1, ContentType="application/json"
                )
                event = await anext(hot)
                assert (event.attributes["celsius"], event.payload) == (31.5, b'{"celsius": 31.5}')
                await native.publish({"topic": "quotes/YHOO", "price": 17.25}, lifetime_s=30.0)
                await asyncio.to_thread(mqtt.payloads, 1)
                (message,) = mqtt.messages
                assert json.loads(message.payload) == {"price": 17.25}
                assert message.properties is not None
                assert message.properties.UserProperty == [("price", "17.25")]

    run(work())


def test_tokens_and_rules_hold_for_mqtt_clients(doors: Doors) -> None:
    more = """
[[token]]
identity = "sensor-*"
token = "sesame-sesame-sesame"
[[rule]]
identity = "sensor-*"
publish = "topic LIKE 'plant/%'"
subscribe = "topic LIKE 'plant/%'"
"""

    def work() -> None:
        port = doors.port("a")
        client = PahoClient(port, "sensor-1")
        client.client.username_pw_set("any", "sesame-sesame-sesame")
        with client:
            assert client.reasons == [0]
            assert client.subscribe("plant/+/x", 1) == 1
            assert client.subscribe("office/#", 1) == 0x87
            client.publish("plant/1/x", b"allowed", 1)
            assert client.payloads(1) == [b"allowed"]
            info = client.client.publish("office/1", b"not allowed", 1)
            info.wait_for_publish(60)
            client.publish("plant/2/x", b"still there", 1)
            assert client.payloads(2) == [b"allowed", b"still there"]
        for name, password in (("sensor-1", "wrong"), ("other", "sesame-sesame-sesame")):
            stranger = PahoClient(port, name)
            stranger.client.username_pw_set("any", password)
            with stranger:
                assert stranger.reasons[0] == 0x86

    serve(doors, work, "a", more=more)


def test_a_broker_without_room_refuses_a_client_with_the_reason(doors: Doors) -> None:
    """CONNACK with reason 0x97, quota exceeded; the door's own client takes one place."""

    def script() -> None:
        with PahoClient(doors.port("a"), "one") as one, PahoClient(doors.port("a"), "two") as two:
            assert (one.reasons[0], two.reasons[0]) == (0, 0x97)
            assert one.subscribe("x") == 0

    async def work() -> None:
        async with running(doors.write("a", more="[limits]\nclients = 2\n")):
            await asyncio.to_thread(script)

    run(work())


def test_against_paho_over_tls(doors: Doors) -> None:
    directory = doors.place.directory / "certificates"
    make_certificates(directory, ("a", "s"), days=2)

    def work() -> None:
        client = PahoClient(doors.port("a", "mqtt_tls"), "s")
        context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
        context.check_hostname = False
        client.client.tls_set_context(context)
        with client:
            client.subscribe("x", 1)
            client.publish("x", b"secret", 1)
            assert client.payloads(1) == [b"secret"]

    serve(doors, work, "a", keys=("mqtt_tls",), more=TLS)


def listened(command: list[str], publish: Callable[[], None]) -> list[str]:
    """What a subscriber prints that ends after some messages; there is something to hear until it has ended."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listening:
        for _ in range(200):
            publish()
            with contextlib.suppress(subprocess.TimeoutExpired):
                output = listening.communicate(timeout=0.2)[0]
                return output.decode().splitlines()
        listening.kill()
    raise AssertionError("it did not hear enough")


@needed("mosquitto_sub")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_against_mosquittos_commands(doors: Doors, version: str) -> None:
    def work() -> None:
        common = ["-p", str(doors.port("a")), "-V", version, "-q", "2"]
        send = ["mosquitto_pub", *common, "-t", "a/b", "-m", "hello"]
        heard = listened(
            ["mosquitto_sub", *common, "-t", "a/+", "-C", "3"],
            lambda: subprocess.run(send, check=True, timeout=60) and None,
        )
        assert heard == ["hello"] * 3

    serve(doors, work, "a")


@needed("mosquitto_sub")
def test_against_mosquittos_commands_a_filter_in_sql(doors: Doors) -> None:
    def work() -> None:
        common = ["-p", str(doors.port("a")), "-V", "mqttv5", "-q", "1"]
        terms = ["-D", "subscribe", "user-property", "filter", "price > 10"]

        def publish() -> None:
            for price in (5, 15):
                send = ["mosquitto_pub", *common, "-t", "quotes/a", "-m", json.dumps({"price": price})]
                subprocess.run([*send, "-D", "publish", "content-type", "application/json"], check=True, timeout=60)

        heard = listened(["mosquitto_sub", *common, "-t", "quotes/#", "-C", "2", *terms], publish)
        assert heard == ['{"price": 15}'] * 2

    serve(doors, work, "a")


SCRIPT = """
const mqtt = require('mqtt');
const client = mqtt.connect(process.argv[2], {protocolVersion: 5, clientId: 'js', properties: {topicAliasMaximum: 8}});
const got = [];
client.on('message', (topic, payload) => {
  got.push(topic + '=' + payload);
  if (got.length === 6) { console.log(got.sort().join(' ')); client.end(); }
});
client.on('connect', () => client.subscribe('js/#', {qos: 2}, () => {
  for (const qos of [0, 1, 2]) for (const n of [1, 2]) client.publish('js/' + qos, String(n), {qos});
}));
"""


@needed("node")
@pytest.mark.skipif(not MQTT_JS, reason="TIDINGS_MQTT_JS does not name a directory where `npm install mqtt` was run")
@pytest.mark.parametrize("key", ["mqtt", "mqtt_ws"])
def test_against_mqtt_js(doors: Doors, tmp_path: Path, key: str) -> None:
    def work() -> None:
        scheme = "mqtt" if key == "mqtt" else "ws"
        address = f"{scheme}://127.0.0.1:{doors.port('a', key)}"
        node = shutil.which("node")
        assert node is not None
        script = tmp_path / "client.js"
        script.write_text(SCRIPT, "utf-8")
        more = {"NODE_PATH": str(Path(MQTT_JS) / "node_modules")}
        found = subprocess.run(
            [node, str(script), address], env=os.environ | more, capture_output=True, timeout=120, check=True
        )
        assert found.stdout.decode().strip() == "js/0=1 js/0=2 js/1=1 js/1=2 js/2=1 js/2=2"

    serve(doors, work, "a", keys=(key,))


def answers(port: int) -> bool:
    """Whether somebody listens at a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.browser
@pytest.mark.skipif(not MQTT_JS, reason="TIDINGS_MQTT_JS does not name a directory where `npm install mqtt` was run")
def test_a_browser_shows_live_quotes_with_their_age(doors: Doors, tmp_path: Path, page: "Page") -> None:
    for file in (EXAMPLES / "browser" / "quotes.html", Path(MQTT_JS) / "node_modules/mqtt/dist/mqtt.min.js"):
        shutil.copy(file, tmp_path)
    network = doors.write("a", keys=("mqtt", "mqtt_ws"))
    brokers = subprocess.Popen([sys.executable, "-m", "tidings", "up", str(network.path)], stdout=subprocess.DEVNULL)
    try:
        while not answers(doors.port("a", "mqtt_ws")):
            assert brokers.poll() is None
            time.sleep(0.05)
        page.goto((tmp_path / "quotes.html").as_uri())
        page.fill("[name=address]", f"ws://127.0.0.1:{doors.port('a', 'mqtt_ws')}")
        page.click("button")
        page.wait_for_function("document.querySelector('#state').textContent.startsWith('subscribed')")
        with PahoClient(doors.port("a"), "p") as p:
            for symbol, price in (("YHOO", 17.2), ("LOW", 3.0), ("AAPL", 190.5), ("YHOO", 17.3)):
                quote = json.dumps({"symbol": symbol, "price": price}).encode()
                p.publish(f"quotes/{symbol}", quote, 1, ContentType="application/json")
        page.wait_for_function("document.querySelector('tbody').innerText.includes('190.5')")
        page.wait_for_function("document.querySelector('tbody').innerText.includes('17.3')")
        rows = page.eval_on_selector_all("tbody tr", "rows => rows.map(row => [...row.cells].map(c => c.innerText))")
        assert {row[0] for row in rows} == {"YHOO", "AAPL"}
        assert all(float(row[2]) >= 0 for row in rows)
        page.wait_for_function("Number(document.querySelector('tbody tr').cells[3].innerText) > 0")
    finally:
        brokers.terminate()
        assert brokers.wait(PATIENCE_S) == 0


def test_a_session_and_its_messages_outlive_the_broker(doors: Doors) -> None:
    network = doors.write("a")

    async def work() -> None:
        more = {"expiry_s": 300, "clean": False}
        async with running(network):
            async with entered(PahoClient(doors.port("a"), "s", **more)) as s:
                await asyncio.to_thread(s.subscribe, "x/#", 1)
            async with entered(PahoClient(doors.port("a"), "p")) as p:
                await asyncio.to_thread(p.publish, "x/1", b"kept", 1)
        async with running(network), entered(PahoClient(doors.port("a"), "s", **more)) as s:
            assert await asyncio.to_thread(s.payloads, 1) == [b"kept"]
            assert s.present == [True]

    run(work())


def test_a_broker_that_stops_says_so(doors: Doors) -> None:
    network = doors.write("a")
    reasons: list[int] = []

    async def work() -> None:
        async with running(network):
            client = PahoClient(doors.port("a"), "s")

            def gone(*facts: Any) -> None:
                reasons.append(facts[3].value)

            client.client.on_disconnect = gone
            client.client.reconnect_delay_set(60, 60)
            await asyncio.to_thread(client.__enter__)
        await asyncio.to_thread(wait, lambda: bool(reasons))
        client.client.loop_stop()

    run(work())
    assert reasons[0] == 0x8B
