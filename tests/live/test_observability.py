"""What a broker tells of itself stays small, whatever clients do, and says why and what helps."""

import asyncio
import random
import socket
import threading
import urllib.request
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.live.conftest import Place, all_up, run, running, until
from tests.live.raw import Raw

from tidings.live import DeniedError, connect, read_network
from tidings.live.operations import _metrics, _status
from tidings.live.operations._query import ask_network
from tidings.live.operations._status import RANKED_MAX, SUBSCRIBERS_MAX, _shown, snapshot
from tidings.live.page import _application
from tidings.protocol import Broker, BrokerSettings, wire
from tidings.protocol.node import Preamble
from tidings.rehearsal._ports import free_ports

METRICS_BYTES, METRICS_BYTES_EACH = 40_000, 6_000
"""The metrics of a broker take so much at most, and so much more for each neighbour."""


async def greeted(address: str, name: str) -> Raw:
    """A client of raw bytes, of the oldest version."""
    raw = await Raw.to(address)
    raw.send(Preamble("client", name), wire.encode(wire.Hello(wire.OLDEST_VERSION, name, "client", 5, 10)))
    assert (await raw.answer()).code == ""
    while not isinstance(wire.decode(await raw.frame() or b""), wire.Welcome):
        pass
    return raw


def metrics(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return bytes(answer.read())


def test_thought_up_codes_make_neither_metrics_nor_status_grow(place: Place) -> None:
    """Random error codes made /metrics 20 MB long, and `tidings status` failed for good."""

    async def work() -> None:
        (port,) = free_ports(1)
        network = place.write("a", "b")
        text = network.path.read_text("utf-8").replace('name = "a"', f'name = "a"\nmetrics = "127.0.0.1:{port}"')
        network.path.write_text(text, "utf-8")
        place.start("up", str(network.path))
        await all_up(network)
        dice = random.Random(1)
        raw = await greeted(place.address("a"), "mallory")
        for _ in range(40):
            raw.send(*(wire.encode(wire.Error(dice.randbytes(60).hex(), "?")) for _ in range(500)))
            await raw.writer.drain()
        while True:
            (status, _) = await ask_network(network)
            if status["counts"].get("told other") == 20_000:
                break
            await asyncio.sleep(0.05)
        assert len(msgspec.json.encode(status)) < 20_000
        assert len(await asyncio.to_thread(metrics, port)) < METRICS_BYTES + METRICS_BYTES_EACH
        raw.close()

    run(work())


def lines(nodes: dict[str, Any], event: str) -> list[dict[str, Any]]:
    found = [msgspec.json.decode(line) for line in nodes["a"].log._stream.getvalue().splitlines()]
    return [line for line in found if line["event"] == event]


def test_refusals_and_limits_are_lines_with_cause_and_remedy(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more='[limits]\nconnections = 3\nsubscriptions = 1\nrate = "100 /s"\n')
        async with running(network) as nodes, connect(place.address("a"), name="c") as c:
            await c.subscribe("n >= 0")
            for _ in range(3):
                with pytest.raises(DeniedError, match="1 subscriptions, the limit"):
                    await c.subscribe("n >= 1")
            (line,) = lines(nodes, "refused")
            assert (line["level"], line["peer"], line["kind"]) == ("warning", "c", "subscribe")
            assert line["code"] == "too-many"
            assert line["remedy"].startswith("raise the limit")
            for _ in range(300):
                await c.offer({"n": -1})
            await c.flush()
            (line,) = lines(nodes, "client held back")
            assert (line["peer"], line["why"]) == ("c", "it sends more than 100 events and requests a second")
            crowd = [await Raw.to(place.address("a")) for _ in range(3)]
            await until(lambda: bool(lines(nodes, "connection refused")))
            assert "raise [limits] connections" in lines(nodes, "connection refused")[0]["remedy"]
            for raw in crowd:
                raw.close()

    run(work())


def test_a_neighbour_that_goes_is_a_line_with_cause_and_remedy(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network, "a") as nodes:
            async with running(network, "b"):
                await until(lambda: bool(lines(nodes, "neighbour heard")))
            await until(lambda: bool(lines(nodes, "neighbour lost")))
            (line,) = lines(nodes, "neighbour lost")
            assert line["why"] in ("the connection was lost",) or "been silent" in line["why"]
            assert line["remedy"]

    run(work())


def test_a_status_is_bounded_and_made_as_often_as_it_costs(place: Place) -> None:
    async def work() -> None:
        many = SUBSCRIBERS_MAX + 200
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="c") as c:
            subscriptions = await c.subscribe_many([f"n = {n}" for n in range(many)], max_delay_s=1e-9, late_s=60.0)
            late = many - 7  # of a subscription that would not be shown, were it not for its late events
            await c.publish({"n": late})
            assert (await anext(subscriptions[late])).late
            while True:
                (status,) = await ask_network(network)
                if status["subscribers"][0]["late"]:
                    break
                await asyncio.sleep(0.05)
            assert status["subscribers"][0]["subscription"] == f"c/{subscriptions[late].name}"
            assert (len(status["subscribers"]), status["subscribers_left_off"]) == (SUBSCRIBERS_MAX, 200)
            snapshots = nodes["a"].snapshots
            snapshots._until_s = float("inf")
            first = snapshots.encoded()
            assert all(snapshots.encoded() is first for _ in range(100))  # it is not made anew for each who asks

    run(work())


def test_a_status_computes_the_figures_of_what_has_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    figures = _status._figures

    def counted(balance: Any) -> dict[str, Any]:
        computed.append(balance)
        return figures(balance)

    async def work() -> None:
        many = 50
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="c") as c:
            subscriptions = await c.subscribe_many([f"n <= {n}" for n in range(many)])

            def taken() -> dict[str, int]:
                computed.clear()
                return {row["subscription"]: row["on_time"] for row in snapshot(nodes["a"])["subscribers"]}

            await c.publish({"n": 0})
            await until(lambda: set(taken().values()) == {1})
            monkeypatch.setattr(_status, "_figures", counted)
            await until(lambda: set(taken().values()) == {1} and len(computed) < 10)  # those of the whole broker
            await c.publish({"n": many - 1})
            last = f"c/{subscriptions[-1].name}"
            await until(lambda: taken()[last] == 2)
            assert set(taken().values()) == {1, 2}

    run(work())


def test_a_status_of_very_many_clients_looks_at_those_that_take_much_and_its_sums_are_exact(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more clients than are looked at, those who take something are found all the same."""

    class Counted(dict[str, Any]):
        looked_at = 0

        def values(self) -> Any:
            Counted.looked_at += len(self)
            return super().values()

    async def work() -> None:
        monkeypatch.setattr(_status, "CLIENTS_MAX", 3)
        network = place.write(
            "a", more='[limits]\nrate = "20 /s"\n[[budget]]\nidentity = "many"\nrate = "1000000 /s"\n'
        )
        async with running(network) as nodes, AsyncExitStack() as stack:
            machine = nodes["a"].machine
            names = ("many", "costly", "fast", "p", "i1", "i2", "i3")
            clients = {name: await stack.enter_async_context(connect(place.address("a"), name=name)) for name in names}
            await clients["many"].subscribe_many([f"n = {n}" for n in range(100)])
            await clients["costly"].subscribe("a + b * c > d")
            await clients["p"].advertise("TRUE")
            for name in ("i1", "i2"):
                await clients[name].subscribe("x = 1")
            await asyncio.gather(*(clients["fast"].advertise(f"x = {n}", name=f"n{n}") for n in range(60)))
            machine.clients = Counted(machine.clients)
            found = snapshot(nodes["a"])
            assert Counted.looked_at == 0
            rows = {row["client"] for row in found["budgets"]["clients"]}
            assert {"many", "costly", "fast"} <= rows
            assert not {"i1", "i2", "i3"} & rows
            assert found["clients"] == found["clients_connected"] == len(names)
            assert found["subscriptions"] == 100 + 3

    run(work())


def test_a_status_ranks_no_more_subscriptions_than_its_bound_however_many_lack_something() -> None:
    now_ns, many = 10**17, RANKED_MAX + 500
    broker = Broker(BrokerSettings(name="b", tracing=False))
    broker.start(now_ns)
    broker.synced(1, now_ns)
    for name in ("p", "s"):
        broker.connected(name, now_ns)
        broker.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 256)), now_ns)
    for n in range(many):
        broker.gossip.local.put("s", wire.Entry(f"n{n}", f"x >= {n % 5}", None, 1.0, 0))
    broker.receive("p", wire.encode(wire.Advertise(broker.epoch, 0, "all", "TRUE")), now_ns)
    content = wire.encode_content(wire.Content({"x": 9}, b"", b""))
    event = wire.Publication(0, now_ns, 0, 60 * 10**9, 1, content)
    broker.receive("p", wire.encode(wire.Publish(1, 0, 0, (event,))), now_ns)
    assert len(broker.accounts.balances()) == len(broker.accounts.lacking) == many  # all of them wait for it
    assert ("s", "s/n0") not in set(_shown(broker, many))
    broker.accounts.dropped_here("s", ("n0",), 1)
    broker.accounts.look()
    shown = list(_shown(broker, many))
    assert shown[0] == ("s", "s/n0")
    assert len(shown) == len(set(shown)) == RANKED_MAX


def test_a_reader_that_reads_nothing_is_dropped_without_a_word(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stream that nobody takes ended with a traceback among the JSON lines of the log."""
    monkeypatch.setattr(_metrics._Quiet, "timeout", 0.2)
    monkeypatch.setattr(_application, "PUSH_S", 0.0)

    async def work() -> None:
        (port,) = free_ports(1)
        network = place.write("a")
        text = network.path.read_text("utf-8").replace('name = "a"', f'name = "a"\nmetrics = "127.0.0.1:{port}"')
        network.path.write_text(text, "utf-8")
        async with running(read_network(network.path)):
            lazy = socket.create_connection(("127.0.0.1", port))
            lazy.sendall(f"GET /events HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            await until(lambda: bool(streams()))
            await until(lambda: not streams())
            lazy.close()

    def streams() -> list[Any]:
        return [each for each in threading.enumerate() if "process_request_thread" in each.name]

    run(work())
    assert "Traceback" not in capfd.readouterr().err
