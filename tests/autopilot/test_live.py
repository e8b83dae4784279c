"""The autopilot over a live network of broker processes with shaped links."""

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run, running, state, until
from typer.testing import CliRunner

from tidings.autopilot import Account, Files, Record, TraceProfiles, WindowProfiles, measure, read_records, source_of
from tidings.autopilot._live import observation_of
from tidings.cli._app import app
from tidings.errors import InputError, TidingsError
from tidings.live import Network, Tidings, connect, read_network
from tidings.live.operations import ask_network
from tidings.planning import MovePublisher, Objective, UseStrategy
from tidings.rehearsal import door, shape_of

__all__ = ["state"]

TREE = ("a-b", "a-c", "b-d", "b-e", "c-f", "f-g")
SLOW_S = 0.3
OBJECTIVE = Objective(reliability=0.95)


@pytest.fixture
def place(tmp_path: Path) -> Any:
    """A directory for a network; processes that were started are gone afterwards."""
    found = Place(tmp_path)
    yield found
    found.end()


@contextlib.asynccontextmanager
async def tree(place: Place) -> AsyncIterator[Network]:
    """Seven brokers; the only link of g is long: SLOW_S in each direction."""
    network = place.write("a", "b", "c", "d", "e", "f", "g", links=TREE, timeout_s=10.0)
    async with door(place.ports["g"], shape_of(delay_s=SLOW_S), shape_of(delay_s=SLOW_S)) as far:
        text = network.path.read_text("utf-8")
        # Brokers dial those that come after them in the alphabet, so this address is used for the link alone.
        text = text.replace('name = "g"\n', f'name = "g"\naddress = "127.0.0.1:{far.port}"\n')
        network.path.write_text(text.replace('silence = "600 ms"', 'silence = "3 s"'), "utf-8")
        network = read_network(network.path)
        place.start("up", str(network.path))
        await all_up(network)
        yield network


class Traffic:
    """Publishers and readers; every event is counted at each reader."""

    def __init__(self, place: Place) -> None:
        self.got: dict[str, Counter[int]] = {}
        self.sent: Counter[str] = Counter()
        self.clients: dict[str, Tidings] = {}
        self._place = place
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def client(self, name: str, broker: str) -> Tidings:
        found = await self._stack.enter_async_context(connect(self._place.address(broker), name=name))
        self.clients[name] = found
        return found

    async def read(self, name: str, broker: str, source: str, max_delay_s: float) -> None:
        got = self.got[name] = Counter()
        client = await self.client(name, broker)
        await client.subscribe(
            f"source = '{source}'",
            max_delay_s=max_delay_s,
            late_s=60.0,
            callback=lambda event: got.update([event.attributes["n"]]),
        )

    async def publish(self, name: str, broker: str, rate_per_s: float, *, burst: int = 1) -> None:
        client = await self.client(name, broker)
        await client.advertise(f"source = '{name}'")

        async def work() -> None:
            while True:
                for _ in range(burst):
                    event = {"source": name, "n": self.sent[name]}
                    await client.publish(event, payload=b"x" * (200 if burst == 1 else 1_500), lifetime_s=60.0)
                    self.sent[name] += 1
                await asyncio.sleep(1.0 / rate_per_s)

        self._tasks.append(asyncio.create_task(work()))

    async def __aenter__(self) -> "Traffic":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.quiet()
        await self._stack.aclose()

    async def quiet(self) -> None:
        """No more events."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()


async def share_of(network: Network, span_s: float) -> float:
    """The mean on-time share of the subscriptions over some seconds."""
    accounts: list[dict[str, Account]] = []
    for _ in range(2):
        accounts.append(dict(observation_of(await ask_network(network), time.time()).accounts))
        if len(accounts) == 1:
            await asyncio.sleep(span_s)
    share = measure(accounts[0], accounts[1], OBJECTIVE).on_time_share
    assert share is not None
    return share


def records(network: Network) -> list[Record]:
    files = Files.of(network.path)
    return read_records(files.log) if files.log.exists() else []


def kinds(network: Network) -> list[str]:
    return [record.kind for record in records(network)]


def test_what_brokers_remember_is_a_network(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        profiles, since_ns = source_of(network), time.time_ns()
        assert isinstance(profiles, WindowProfiles)
        async with running(network), Traffic(place) as traffic:
            await traffic.read("r", "b", "p", 5.0)
            with pytest.raises(TidingsError, match="no event"):
                await asyncio.to_thread(profiles.network, since_ns, strategy="fifo", round_trips_s={})
            await traffic.publish("p", "a", 50.0)
            found = None
            while found is None:
                with contextlib.suppress(TidingsError):
                    found = await asyncio.to_thread(profiles.network, since_ns, strategy="fifo", round_trips_s={})
            assert [publisher.broker for publisher in found.publishers] == ["a"]
            assert [subscriber.broker for subscriber in found.subscribers] == ["b"]
            assert {(link.source, link.target) for link in found.topology.links} == {("a", "b"), ("b", "a")}

    run(work())


def test_traces_come_first_and_there_has_to_be_something(place: Place) -> None:
    traced = place.write("a", more='[trace]\ndirectory = "trace"\n')
    assert isinstance(source_of(traced), TraceProfiles)
    assert isinstance(source_of(place.write("a"), (place.directory,)), TraceProfiles)
    with pytest.raises(InputError, match="record = false"):
        source_of(place.write("a", more="[profiles]\nrecord = false\n"))


@pytest.mark.full
def test_a_publisher_far_from_its_readers_is_moved_and_nothing_is_lost(place: Place) -> None:
    async def work() -> None:
        async with tree(place) as network, Traffic(place) as traffic:
            for name, broker in (("r1", "a"), ("r2", "b"), ("r3", "d")):
                await traffic.read(name, broker, "hot", 0.25)
            await traffic.read("r4", "e", "calm", 2.0)
            await traffic.publish("calm", "d", 5.0)
            pilot = place.start("autopilot", str(network.path), "--slo", "95%", "--apply")
            await until(lambda: "started" in kinds(network))
            await traffic.publish("hot", "g", 10.0)
            await until(lambda: "kept" in kinds(network))
            made = {record.kind: record for record in records(network)}
            (change,) = made["kept"].changes
            assert isinstance(change, MovePublisher)
            assert (change.publisher, traffic.clients["hot"].home) == ("hot", change.broker)
            assert made["kept"].measured is not None
            assert made["kept"].measured.below == 3
            share = await share_of(network, 10.0)
            pilot.send_signal(signal.SIGINT)
            await until(lambda: pilot.poll() is not None)
            assert (pilot.returncode, kinds(network)[-1]) == (0, "stopped")
            await traffic.quiet()
            sent = traffic.sent["hot"]
            await until(lambda: all(len(traffic.got[name]) >= sent for name in ("r1", "r2", "r3")))
            for name in ("r1", "r2", "r3"):
                assert set(traffic.got[name].values()) == {1}
            assert kinds(network).count("applying") == 1
            assert share > OBJECTIVE.reliability

    run(work())


@pytest.mark.full
def test_urgent_events_behind_bulk_get_another_strategy_and_the_file_keeps_its_comments(place: Place) -> None:
    """The publishers have subscriptions too, so they are not moved."""

    async def work() -> None:
        trace = f'[trace]\ndirectory = "{place.directory / "trace"}"\nroll_age = "1 s"\n'
        # What a connection has taken waits in its order: little, so that the strategy decides.
        trace += '[limits]\nsend_buffer = "4 kB"\nunsent = "4 kB"\nwindow = 2\n'
        network = place.write("a", "b", network='strategy = "fifo"  # as in 2019\n', more=trace, timeout_s=10.0)
        narrow = shape_of(delay_s=0.005, bytes_per_s=20_000.0)
        async with door(place.ports["b"], narrow, shape_of(delay_s=0.005)) as link, Traffic(place) as traffic:
            text = network.path.read_text("utf-8").replace('silence = "600 ms"', 'silence = "5 s"')
            text = text.replace('name = "b"\n', f'name = "b"\naddress = "127.0.0.1:{link.port}"\n')
            network.path.write_text(text, "utf-8")
            network = read_network(network.path)
            place.start("up", str(network.path))
            await all_up(network)
            await traffic.read("desk", "b", "urgent", 0.6)
            await traffic.read("archive", "b", "bulk", 30.0)
            await traffic.publish("urgent", "a", 4.0)
            await traffic.publish("bulk", "a", 0.4, burst=24)
            for name in ("urgent", "bulk"):
                await traffic.clients[name].subscribe("source = 'nobody'")
            pilot = place.start("autopilot", str(network.path), "--slo", "90%", "--apply")
            await until(lambda: bool({"kept", "holding"} & {*kinds(network)}))
            kept = {record.kind: record for record in records(network)}.get("kept")
            assert kept is not None, kinds(network)
            (change,) = kept.changes
            assert isinstance(change, UseStrategy)
            assert network.path.read_text("utf-8") == text.replace('"fifo"', f'"{change.strategy}"')
            assert {broker["strategy"] for broker in await ask_network(network)} == {change.strategy}
            stop = ["autopilot", str(network.path), "--stop", "--json"]
            stopped = await asyncio.to_thread(lambda: CliRunner().invoke(app, stop))
            assert json.loads(stopped.stdout)["was_running"]
            await until(lambda: pilot.poll() is not None)
            assert (pilot.returncode, kinds(network)[-1]) == (0, "stopped")

    run(work())
