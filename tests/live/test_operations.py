"""What operators see: metrics, status, logs, the command line."""

import asyncio
import contextlib
import io
import itertools
import os
import pty
import re
import signal
import subprocess
import urllib.request
from typing import Any

import msgspec
from tests.live.conftest import RUN, Place, run, running, until
from typer.testing import CliRunner

from tidings.live import Network, connect, read_network
from tidings.live.operations._logs import Log
from tidings.live.operations._query import ask_network
from tidings.live.operations._status import _intervals, network_status, subscribers_of
from tidings.rehearsal._ports import free_ports


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
            while 'tidings_deliveries_total{outcome="on_time"} 5.0' not in (page := await metrics(port)):
                await asyncio.sleep(0.05)
        values = values_of(page)
        assert float(values["tidings_transfers_total"]) == 5
        assert float(values["tidings_clients_connected"]) == 1
        assert float(values['tidings_sent_frames_total{kind="Transfer"}']) == 5
        assert float(values["tidings_store_commits_total"]) > 0
        assert float(values["tidings_store_full"]) == 0
        assert "s1" not in page
        for name in values:
            label = r'(kind|neighbour|outcome|peer|le)="[^"]*"'
            assert re.fullmatch(rf"tidings_[a-z_]+(\{{{label}(,{label})?\}})?", name)
        assert float(values["tidings_delivery_delay_seconds_count"]) == 5
        assert 0 < float(values["tidings_delivery_delay_seconds_sum"]) < 60
        assert float(values['tidings_deliveries_total{outcome="dropped_here"}']) == 0

    run(work())


async def metrics(port: int) -> str:
    return await asyncio.get_running_loop().run_in_executor(None, fetch, f"http://127.0.0.1:{port}/metrics")


def values_of(page: str) -> dict[str, str]:
    return dict(re.findall(r"^(tidings_\S+) (\S+)$", page, re.MULTILINE))


def buckets_of(values: dict[str, str], metric: str, label: str) -> tuple[list[float], list[float]]:
    """Upper edges and counts of a histogram."""
    found = {name: many for name, many in values.items() if name.startswith(f"{metric}_bucket") and label in name}
    edges = re.findall(r'le="([^"]*)"', " ".join(found))
    return [float(edge) for edge in edges], [float(many) for many in found.values()]


def test_histograms_count_frames_of_each_neighbour_and_events_that_wait(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        (port,) = free_ports(1)
        text = network.path.read_text("utf-8")
        network.path.write_text(text.replace('name = "b"\n', f'name = "b"\nmetrics = "127.0.0.1:{port}"\n'), "utf-8")
        network = read_network(network.path)
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="slow", window=4) as slow,
        ):
            events = await slow.subscribe("n >= 0", max_held=4)
            await until(lambda: "b" in nodes["a"].machine.gossip.interests)
            for n in range(40):
                await p.publish({"n": n})
            await asyncio.sleep(0.2)
            for _ in range(40):
                await anext(events)
            while 'tidings_deliveries_total{outcome="on_time"} 40.0' not in (page := await metrics(port)):
                await asyncio.sleep(0.05)
        values = values_of(page)
        assert 0 < float(values['tidings_link_transit_seconds_count{neighbour="a"}']) <= 40
        assert 0 < float(values['tidings_queue_wait_seconds_count{peer="client"}']) <= 40
        assert float(values['tidings_queue_wait_seconds_count{peer="broker"}']) == 0
        for metric, label in (
            ("delivery_delay", ""),
            ("link_transit", 'neighbour="a"'),
            ("queue_wait", 'peer="client"'),
        ):
            name = f"tidings_{metric}_seconds"
            edges, counts = buckets_of(values, name, label)
            assert edges == sorted(edges)
            assert edges[-1] == float("inf")
            assert counts == sorted(counts), "buckets are cumulative"
            assert counts[-1] == float(values[f"{name}_count{{{label}}}" if label else f"{name}_count"])
        assert values["tidings_delivery_delay_seconds_count"] == "40.0"
        waited_s = float(values['tidings_queue_wait_seconds_sum{peer="client"}'])
        assert waited_s / float(values['tidings_queue_wait_seconds_count{peer="client"}']) > 0.05

    run(work())


def test_a_counter_of_deliveries_never_goes_down(place: Place) -> None:
    """An event that counts as dropped may turn out to have arrived."""

    async def work() -> None:
        network = place.write("a")
        (port,) = free_ports(1)
        text = network.path.read_text("utf-8")
        network.path.write_text(text + f'metrics = "127.0.0.1:{port}"\n', "utf-8")
        async with running(read_network(network.path)) as nodes, connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0", name="all")
            await s.publish({"n": 1})
            await anext(events)
            machine = nodes["a"].machine
            account = machine.accounts.balances()["s/all"]
            shown = []
            for many in (2, -1, 1):
                account.drop("a", many)
                machine.accounts._touched["s/all"] = account
                shown.append(float(values_of(await metrics(port))['tidings_deliveries_total{outcome="dropped_here"}']))
        assert shown == [2, 2, 2]

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
            status = network_status(await ask_network(network))
        up, down = status["brokers"]
        assert (up["name"], up["up"], up["absent"], up["clients"], up["left_in_time"]) == ("a", True, ["b"], 1, 1.0)
        assert (down["name"], down["up"], down["subscribers_left_off"]) == ("b", False, 0)
        (subscriber,) = status["subscribers"].values()
        assert (subscriber["broker"], subscriber["affected"], subscriber["client"]) == ("a", False, "p")
        assert "cannot be reached: Connection refused" in down["why"]

    run(work())


def test_status_counts_events_and_not_frames(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            events = await p.subscribe("n >= 0", name="all")
            await p.subscribe("n < 0", name="none")
            for n in range(300):
                await p.offer({"n": n})
            await p.flush()
            for _ in range(300):
                await anext(events)
            status = await settled(network, 300)
        (broker,), subscribers = status["brokers"], status["subscribers"]
        assert broker["transfers"] == 300
        assert list(subscribers) == ["p/all", "p/none"]
        for name, many, share in (("p/all", 300, 1.0), ("p/none", 0, None)):
            found = subscribers[name]
            assert (found["client"], found["broker"], found["connected"], found["affected"]) == ("p", "a", True, False)
            for figures in (found, found["last_minute"]):
                assert (figures["matched"], figures["on_time"], figures["under_way"]) == (many, many, 0)
                assert (figures["late"], figures["dropped"], figures["dropped_by"], figures["lost"]) == (0, 0, {}, 0)
                assert figures["on_time_reliability"] == share
        found = subscribers["p/all"]
        assert 0 < found["delay_ms_p50"] <= found["delay_ms_p99"]
        assert (broker["deliveries"]["matched"], broker["deliveries"]["last_minute"]["matched"]) == (300, 300)

    run(work())


async def settled(network: Network, many: int) -> dict[str, Any]:
    """The status, once brokers know what became of so many events."""
    while True:
        status = network_status(await ask_network(network))
        found = [broker["deliveries"] for broker in status["brokers"] if broker["up"]]
        if sum(each["matched"] - each["under_way"] for each in found) >= many:
            return status
        await asyncio.sleep(0.01)


def test_status_tells_what_left_in_time_from_what_came_in_time(place: Place) -> None:
    """No event can be as quick as this: each leaves, is delivered, and is late."""

    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            events = await p.subscribe("n >= 0", max_delay_s=1e-9, late_s=60.0)
            for n in range(20):
                await p.publish({"n": n})
                assert (await anext(events)).late
            status = await settled(network, 20)
        (broker,) = status["brokers"]
        (subscriber,) = status["subscribers"].values()
        assert broker["left_in_time"] == 1.0
        for figures in (broker["deliveries"], subscriber, subscriber["last_minute"]):
            assert (figures["matched"], figures["on_time"], figures["late"], figures["dropped"]) == (20, 0, 20, 0)
            assert figures["on_time_reliability"] == 0.0

    run(work())


def test_a_subscriber_of_a_broker_that_is_down_stays_listed(place: Place) -> None:
    """Also when its broker is not on the map any more."""

    async def work() -> None:
        network = place.write("a", "b", timeout_s=1.5)
        async with running(network) as nodes, connect(place.address("b"), name="desk") as desk:
            await desk.subscribe("n >= 0", name="all")
            await desk.subscribe("n < 0", name="none")
            others = nodes["a"].machine.gossip.interests
            await until(lambda: len(others) == 2)
            nodes["b"].stop()
            machine = nodes["a"].machine
            await until(lambda: "b" not in machine.gossip.links)
            subscribers = network_status(await ask_network(network))["subscribers"]
            assert list(subscribers) == ["desk/all", "desk/none"]
            for found in subscribers.values():
                assert (found["client"], found["broker"], found["affected"]) == ("desk", "b", True)
                assert (found["connected"], found["matched"], found["last_minute"]) == (False, None, None)

    run(work())


def test_status_shows_who_lacks_something(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network) as nodes, connect(place.address("b"), name="desk", failover_s=None) as desk:
            await desk.subscribe("n >= 0", name="all")
            await until(lambda: "b" in nodes["a"].machine.gossip.interests)
            nodes["b"].stop()
            await until(lambda: not nodes["a"].machine.neighbours["b"].is_up)
            code, output = await printed_status(network)
        assert code == 1
        assert output.startswith(
            "down: broker b is down, 1 of 1 subscription affected\n\ncritical: broker b is down, for "
        )
        assert re.search(r"^  why: 127.0.0.1:\d+ cannot be reached: Connection refused", output, re.MULTILINE)
        assert "\n  affected: desk/all\n" in output
        assert f"\n    $ tidings broker {network.path} --name b\n" in output
        assert re.search(r"^desk/all +b +broker down +– +– +not known$", output, re.MULTILINE)

    run(work())


def test_status_shows_who_is_late_and_who_dropped_what(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            late = await p.subscribe("n >= 0", name="late", max_delay_s=1e-9, late_s=60.0)
            await p.subscribe("n >= 0", name="strict", max_delay_s=1e-9)
            quick = await p.subscribe("n >= 0", name="quick")
            for n in range(20):
                await p.publish({"n": n})
                await anext(late)
                await anext(quick)
            await settled(network, 60)
            code, output = await printed_status(network)
        assert code == 0
        assert output.startswith(
            "late: deadlines at a are shorter than the delay of events, 2 of 3 subscriptions affected\n"
        )
        assert "  affected: p/late, p/strict\n" in output
        assert re.search(r"^a +up .* 33.3 % +33.3 % +\d+ +none$", output, re.MULTILINE)
        output = re.sub(r"in the last \d+ s: ", "", output)  # as long as there have been accounts
        assert re.search(r"^p/late +a +connected +0.0 % +\S+ ms +20 matched, 20 late$", output, re.MULTILINE)
        assert re.search(
            r"^p/strict +a +connected +0.0 % +– +20 matched, 20 dropped by (a|client)$", output, re.MULTILINE
        )
        assert "p/quick" not in output

    run(work())


async def printed_status(network: Network) -> tuple[int | None, str]:
    command = [*RUN, "status", str(network.path)]
    shown = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await shown.communicate()
    return shown.returncode, "\n".join(line.rstrip() for line in output.decode().splitlines())


def test_a_subscription_that_is_listed_twice_counts_where_its_client_is() -> None:
    """Its client has moved away from a broker that is down now, or that has not forgotten it yet."""
    figures = {"on_time_reliability": None, "under_way": 0, "last_minute": None}
    there = {"subscription": "desk/all", "connected": True, **figures}
    away = {"subscription": "desk/all", "connected": False, **figures}
    affected = {"subscription": "desk/all", "connected": False, **figures}
    for rows in itertools.permutations(((True, there), (True, away), (False, affected))):
        brokers = [{"name": f"b{n}", "up": up, "subscribers": [dict(row)]} for n, (up, row) in enumerate(rows)]
        (found,) = subscribers_of(brokers).values()
        assert (found["affected"], found["connected"]) == (False, True)


def test_the_worst_of_the_last_minute_come_first() -> None:
    def row(name: str, recent: float | None, whole: float | None, under_way: int = 0) -> dict[str, Any]:
        last_minute = {"on_time_reliability": recent}
        figures = {"on_time_reliability": whole, "under_way": under_way, "last_minute": last_minute}
        return {"subscription": name, "connected": True, **figures}

    rows = [row("unknown", None, None), row("waits", None, None, 3), row("good", 1.0, 0.2), row("poor", 0.5, 1.0)]
    up = {"name": "a", "up": True, "subscribers": [*rows, row("was poor", None, 0.7)]}
    down = {"name": "b", "up": False, "subscribers": [row("affected", None, None)]}
    assert list(subscribers_of([up, down])) == ["affected", "poor", "was poor", "good", "waits", "unknown"]


def test_shares_since_the_start_have_intervals_that_know_that_events_are_late_together() -> None:
    bursty = [(100, 100 if batch % 2 else 40) for batch in range(10)]
    even = [(100, 70)] * 10
    never_late = [(100, 100)] * 10
    none, clustered, independent, no_surer = _intervals([[(100, 90)] * 3, bursty, even, never_late])
    assert none is None  # three batches tell nothing
    assert clustered is not None
    assert independent is not None
    assert no_surer is not None
    assert clustered["low"] < 0.5
    assert clustered["high"] > 0.85
    assert clustered["is_rough"]
    assert clustered["effective_events"] < 50
    assert 0.66 < independent["low"] < 0.7 < independent["high"] < 0.74
    assert independent["effective_events"] == 1_000.0
    assert no_surer["high"] == 1.0
    assert no_surer["effective_events"] < 1_000.0


def test_logs_are_json_lines() -> None:
    stream = io.StringIO()
    log = Log("b1", stream=stream)
    log.info("connected", peer="b2", pid=5)
    log.error("store full", why="no\nroom")
    first, second = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert (first["who"], first["level"], first["event"], first["peer"]) == ("b1", "info", "connected", "b2")
    assert (second["level"], second["why"]) == ("error", "no\nroom")


def test_logs_are_sentences_for_people_at_a_terminal() -> None:
    stream = io.StringIO()
    log = Log("b1", stream=stream, is_text=True)
    log.info("serving", listen="127.0.0.1:7001", epoch=5, seconds=0.1)
    log.info("connected", peer="b2", kind="broker")  # expected, and of no interest
    log.info("ready", brokers=1, links=0)
    log.warning("connected", peer="b2")  # above info nothing is left out
    log.error("store full", why="no room", remedy="free some", used=5)
    first, second, third, last = [line[9:] for line in stream.getvalue().splitlines()]
    assert first == "b1   serving at 127.0.0.1:7001"
    assert second == "b1   ready: 1 broker, 0 links; Ctrl-C stops them"
    assert third == "b1   warning: connected (peer b2)"
    assert last == "b1   error: store full (used 5): no room; free some"


def test_up_at_a_terminal_shows_addresses_and_when_it_is_ready(place: Place) -> None:
    """At a terminal: sentences. Ctrl-C stops all brokers."""
    network = place.write("a", "b")
    terminal, end = pty.openpty()
    command = [*RUN, "up", str(network.path)]
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True)
    os.close(end)
    output = b""
    while b"ready: 2 brokers, 1 link;" not in output:
        output += os.read(terminal, 4096)  # ends with an error if the command does
    assert f"serving at {place.address('a')}".encode() in output
    assert b"{" not in output
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does on Ctrl-C
    with contextlib.suppress(OSError):  # how a terminal ends
        while more := os.read(terminal, 4096):
            output += more
    assert b"all brokers have stopped" in output
    os.close(terminal)
    assert process.wait() == 0


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
                return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=600)

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
            assert "line 2: an event must be a JSON object of attributes" in wrong.stderr

    run(work())


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
