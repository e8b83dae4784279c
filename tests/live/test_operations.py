"""What operators see: metrics, status, logs, the command line."""

import asyncio
import io
import re
import subprocess
import urllib.request

import msgspec
from tests.live.conftest import RUN, Place, free_ports, run, running, until
from typer.testing import CliRunner

from tidings.live import connect, read_network
from tidings.live.operations._asking import ask_network
from tidings.live.operations._logs import Log


def test_metrics_follow_the_conventions_and_tell_what_happened(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        (port,) = free_ports(1)
        text = network.path.read_text("utf-8")
        network.path.write_text(text + f'metrics = "127.0.0.1:{port}"\n', "utf-8")
        network = read_network(network.path)
        async with running(network), connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            for n in range(5):
                await s.publish({"n": n})
                await anext(events)
            page = await asyncio.get_running_loop().run_in_executor(None, fetch, f"http://127.0.0.1:{port}/metrics")
        values = dict(re.findall(r"^(tidings_\S+) (\S+)$", page, re.MULTILINE))
        assert float(values["tidings_transfers_total"]) == 5
        assert float(values["tidings_clients_connected"]) == 1
        assert float(values['tidings_sent_frames_total{kind="Transfer"}']) == 5
        assert float(values["tidings_store_commits_total"]) > 0
        assert float(values["tidings_store_full"]) == 0
        assert "s1" not in page
        for name in values:
            assert re.fullmatch(r'tidings_[a-z_]+(\{(kind|neighbour)="[^"]*"\})?', name)

    run(work())


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_status_says_who_is_up_and_who_is_not(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network, "a"), connect(place.address("a"), name="p") as p:
            await p.subscribe("n >= 0")
            await p.publish({"n": 1})
            await asyncio.sleep(0.1)
            up, down = await ask_network(network)
        assert (up["name"], up["up"], up["absent"], up["clients"], up["left_in_time"]) == ("a", True, ["b"], 1, 1.0)
        assert (down["name"], down["up"], down["subscribers"]) == ("b", False, [])
        assert "cannot be reached: Connection refused" in down["why"]

    run(work())


def test_status_counts_events_and_not_frames(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            events = await p.subscribe("n >= 0")
            for n in range(300):
                await p.offer({"n": n})
            await p.flush()
            for _ in range(300):
                await anext(events)
            (status,) = await ask_network(network)
        assert status["transfers"] == 300
        (subscriber,) = status["subscribers"]
        assert (subscriber["client"], subscriber["subscriptions"], subscriber["connected"]) == ("p", 1, True)
        assert (subscriber["sent"], subscriber["dropped"]) == (300, 0)

    run(work())


def test_status_tells_what_left_in_time_from_what_came_in_time(place: Place) -> None:
    """No event can be as quick as this: each leaves, is delivered, and is late."""

    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            events = await p.subscribe("n >= 0", max_delay_s=1e-9, late_s=60.0)
            for n in range(20):
                await p.publish({"n": n})
                assert (await anext(events)).late
            (status,) = await ask_network(network)
            while status["reported"]["late"] < 20:
                await asyncio.sleep(0.01)
                (status,) = await ask_network(network)
        assert (status["left_in_time"], status["reported"]) == (1.0, {"on_time": 0, "late": 20, "discarded": 0})
        (subscriber,) = status["subscribers"]
        assert (subscriber["sent"], subscriber["reported"]["late"], subscriber["on_time_share"]) == (20, 20, 0.0)

    run(work())


def test_a_subscriber_of_a_broker_that_is_down_stays_listed(place: Place) -> None:
    """Also when its broker is not on the map any more."""

    async def work() -> None:
        network = place.write("a", "b", timeout_s=1.5)
        async with running(network) as nodes, connect(place.address("b"), name="desk") as desk:
            await desk.subscribe("n >= 0", name="all")
            await desk.subscribe("n < 0", name="none")
            others = nodes["a"].machine.gossip.interests
            await until(lambda: "b" in others and len(others.entries("b")) == 2)
            nodes["b"].stop()
            machine = nodes["a"].machine
            await until(lambda: "b" not in machine.gossip.links)
            _, down = await ask_network(network)
            (subscriber,) = down["subscribers"]
            assert (subscriber["client"], subscriber["subscriptions"]) == ("desk", 2)
            assert (subscriber["connected"], subscriber["reported"]) == (False, None)

    run(work())


def test_status_shows_who_lacks_something(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network) as nodes, connect(place.address("b"), name="desk") as desk:
            await desk.subscribe("n >= 0")
            await until(lambda: "b" in nodes["a"].machine.gossip.interests)
            nodes["b"].stop()
            await until(lambda: not nodes["a"].machine.neighbours["b"].is_up)
            command = [*RUN, "status", str(network.path)]
            shown = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            output, _ = await shown.communicate()
        assert shown.returncode == 1
        assert re.search(r"^desk +b +broker down( +-){6}", output.decode(), re.MULTILINE)

    run(work(), within_s=90.0)


def test_logs_are_json_lines() -> None:
    stream = io.StringIO()
    log = Log("b1", stream=stream)
    log.info("connected", peer="b2", pid=5)
    log.error("store full", why="no\nroom")
    first, second = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert (first["who"], first["level"], first["event"], first["peer"]) == ("b1", "info", "connected", "b2")
    assert (second["level"], second["why"]) == ("error", "no\nroom")


def test_publish_and_subscribe_on_the_command_line(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        loop = asyncio.get_running_loop()
        async with running(network):
            subscriber = await asyncio.create_subprocess_exec(
                *RUN,
                *("subscribe", place.address("a"), "price > 10", "--count", "2", "--max-delay", "30 s"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert subscriber.stderr is not None
            assert await subscriber.stderr.readline() == b"subscribed\n"
            lines = (
                '{"price": 12}\n\n{"price": 5}\n{"attributes": {"price": 20}, "payload": "hello", "lifetime_s": 30}\n'
            )
            command = [*RUN, "publish", place.address("a"), "--json", "--lifetime", "60 s"]

            def publish(text: str) -> "subprocess.CompletedProcess[str]":
                return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

            done = await loop.run_in_executor(None, publish, lines)
            assert msgspec.json.decode(done.stdout) == {"accepted": 3, "refused": 0}
            output, _ = await subscriber.communicate()
            found = [msgspec.json.decode(line) for line in output.splitlines()]
            assert [(event["attributes"], event.get("payload"), event["late"]) for event in found] == [
                ({"price": 12}, None, False),
                ({"price": 20}, "hello", False),
            ]
            wrong = await loop.run_in_executor(None, publish, '{"price": 1}\n[1]\n')
            assert wrong.returncode == 2
            assert "line 2: an event is a JSON object of attributes" in wrong.stderr

    run(work(), within_s=90.0)


def test_check_reads_the_file_and_certificates(place: Place) -> None:
    from tidings.cli._app import app

    network = place.write("a", "b")
    for command in ("up", "broker"):
        checked = CliRunner().invoke(app, [command, str(network.path), "--check", "--json"])
        assert msgspec.json.decode(checked.stdout)["brokers"]["a"]["neighbours"] == ["b"]
    made = CliRunner().invoke(app, ["certificates", str(place.directory / "c"), "a", "b", "--json"])
    assert len(msgspec.json.decode(made.stdout)["written"]) == 6
    assert (place.directory / "c" / "a.key").stat().st_mode & 0o077 == 0
    assert CliRunner().invoke(app, ["broker", str(network.path)]).exit_code == 2
    tls = '[tls]\ncertificate = "c/{name}.pem"\nkey = "c/{name}.key"\nauthority = "c/none.pem"\n'
    place.write("a", "b", more=tls)
    wrong = CliRunner().invoke(app, ["up", str(network.path), "--check"])
    assert wrong.exit_code == 2
    assert "give the certificate that signed the others" in wrong.stderr
    down = CliRunner().invoke(app, ["status", str(place.write("a").path), "--json"])
    assert down.exit_code == 1
    assert not msgspec.json.decode(down.stdout)["brokers"][0]["up"]
