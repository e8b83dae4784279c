"""Attacks of one client in raw bytes, against broker processes: the others are served, and memory keeps to budgets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.conftest import Place, all_up, run, until
from tests.live.test_security import preamble

from tidings.errors import ConfigurationError
from tidings.live import connect, read_network
from tidings.live.operations._query import ask_network
from tidings.protocol import Budget, wire
from tidings.protocol.node import Splitter, joined

MB = 1_000_000
EVENT_BYTES = 900_000
ARITHMETIC = " OR ".join(f"a + {n} * b > c - {n}" for n in range(600))


class Raw:
    """A client that speaks bytes and keeps no rules."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard: list[wire.Message] = []
        self._reader = reader
        self._writer = writer
        self._splitter = Splitter(1 << 24)
        self._is_admitted = False

    async def say(self, *messages: wire.Message) -> None:
        self._writer.write(joined([wire.encode(message) for message in messages]))
        await self._writer.drain()

    async def listen(self) -> None:
        """For as long as somebody speaks; pings are answered."""
        while data := await self._reader.read(65_536):
            for frame in self._splitter.feed(data):
                if not self._is_admitted:
                    self._is_admitted = True
                    continue
                self.heard.append(wire.decode(frame))
                if isinstance(self.heard[-1], wire.Ping):
                    await self.say(wire.Pong(self.heard[-1].sent_ns, 1))

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]


@contextlib.asynccontextmanager
async def raw(place: Place, name: str) -> AsyncIterator[Raw]:
    """Somebody who has greeted broker a, again where it took so long that the broker did not wait."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.ports["a"])
        writer.write(joined([preamble("client", name)]))
        client = Raw(reader, writer)
        listening = asyncio.create_task(client.listen())
        try:
            await client.say(wire.Hello(wire.OLDEST_VERSION, name, "client", 5, 256))
            await until(lambda: listening.done() or bool(client.of(wire.Welcome)))  # noqa: B023
            if client.of(wire.Welcome):
                yield client
                return
        finally:
            listening.cancel()
            writer.close()


def subscriptions(life: int, texts: Sequence[str]) -> list[wire.Message]:
    entries = [wire.Entry(f"n{number}", text, None, 1.0, 0) for number, text in enumerate(texts)]
    return [wire.Subscribe(life, number, entry) for number, entry in enumerate(entries)]


async def status_of(place: Place, name: str = "a") -> dict[str, Any]:
    found = await ask_network(read_network(place.directory / "network.toml"))
    return next(broker for broker in found if broker["name"] == name)


def anonymous_bytes(pid: int) -> int:
    """What a process has in memory that is not a file's: the store is mapped, and may be dropped at any time."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


async def exchange(place: Place, count: int) -> None:
    """An honest publisher and an honest subscriber, event by event."""
    a = place.address("a")
    async with connect(a, name="honest-p") as p, connect(a, name="honest-s") as s:
        events = await s.subscribe("honest > 0")
        await p.advertise("TRUE")
        for n in range(1, count + 1):
            await p.publish({"honest": n})
            assert (await anext(events)).attributes["honest"] == n


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_large_events_for_a_client_that_is_away_take_no_more_than_its_budget(place: Place) -> None:
    async def work() -> None:
        limits = 'queued_client_size = "8 MB"\nunder_way_size = "4 MB"'
        network = place.write("a", more=f"[limits]\n{limits}\n")
        process = place.start("broker", str(network.path), "--name", "a")
        (status,) = await all_up(network)
        async with raw(place, "gone") as gone:
            await gone.say(*subscriptions(status["epoch"], ["fat > 0"]))
            await until(lambda: bool(gone.of(wire.Done)))
        async with connect(place.address("a"), name="p") as p:
            await p.advertise("TRUE")
            for n in range(170):
                if n == 20:  # its queue is full, and what decides about it is loaded
                    before_bytes = anonymous_bytes(process.pid)
                await p.publish({"fat": n + 1}, payload=bytes(EVENT_BYTES))
            after_bytes = anonymous_bytes(process.pid)
            await exchange(place, 3)
        status = await status_of(place)
        (row,) = [row for row in status["budgets"]["clients"] if row["client"] == "gone"]
        assert 0 < row["queued_bytes"] <= row["queued_bytes_most"] == 8 * MB
        assert row["under_way_bytes"] <= row["under_way_bytes_most"] + EVENT_BYTES
        assert status["budgets"]["stored_bytes"] <= 12 * MB + 2 * EVENT_BYTES
        assert status["counts"]["full"] >= 150
        # 135 MB have come since. The margin is for what is being read or written, and for what the allocator keeps.
        assert after_bytes - before_bytes < 40 * MB

    run(work())


def test_costly_filters_are_refused_with_the_figure_and_neighbours_never_hear_of_them(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", more='[limits]\nmatching = "2 ms"\nmatching_all = "5 ms"\n')
        for name in ("a", "b"):
            place.start("broker", str(network.path), "--name", name)
        status = (await all_up(network))[0]
        texts = [f"{ARITHMETIC} OR k = {n}" for n in range(100)]
        async with raw(place, "fat") as fat:
            await fat.say(*subscriptions(status["epoch"], texts))
            await exchange(place, 20)
            await until(lambda: len(fat.of(wire.Error)) >= 3)
            errors = fat.of(wire.Error)
            assert {error.code for error in errors} == {"budget"}
            assert "the limit is 2,000" in errors[0].text
            accepted = len(fat.of(wire.Done))
            assert accepted < 5
            budgets = (await status_of(place))["budgets"]
            (row,) = [row for row in budgets["clients"] if row["client"] == "fat"]
            assert 0.0 < row["matching_us"] <= row["matching_us_most"] == 2_000.0
            assert budgets["refused"] >= len(errors)
            assert (await status_of(place, "b"))["subscriptions_elsewhere"] <= accepted + 2

    run(work())


def test_long_filters_in_one_piece_do_not_keep_the_others_waiting(place: Place) -> None:
    """Each may take a hundredth of a processor: 12 of them take minutes, and the others are served before that."""

    async def work() -> None:
        network = place.write("a", more="[limits]\nreading = 0.01\n")
        place.start("broker", str(network.path), "--name", "a")
        (status,) = await all_up(network)
        listed = ", ".join(map(str, range(2_500)))
        async with raw(place, "long") as long:
            await long.say(*subscriptions(status["epoch"], [f"a IN ({listed}, {n})" for n in range(12)]))
            await until(lambda: bool(long.of(wire.Done)))
            await exchange(place, 20)
            assert len(long.of(wire.Done)) < 12
            budgets = (await status_of(place))["budgets"]
            (row,) = [row for row in budgets["clients"] if row["client"] == "long"]
            assert row["held_back"] >= 1
            assert row["held_back_s"] > 0.0
            assert row["reading_share_most"] == 0.01

    run(work())


def test_a_flood_of_requests_waits_for_its_share_and_the_others_are_served(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more="[limits]\nrequests = 0.05\n")
        place.start("broker", str(network.path), "--name", "a")
        (status,) = await all_up(network)
        async with raw(place, "flood") as flood, connect(place.address("a"), name="pulse") as pulse:
            await pulse.advertise("TRUE")
            beating = asyncio.create_task(beat(pulse))
            many = 4_000
            entries = [wire.Entry(f"n{n % 100}", f"a = {n}", None, 1.0, 0) for n in range(many)]
            await flood.say(*(wire.Subscribe(status["epoch"], n, entry) for n, entry in enumerate(entries)))
            budgets = await held_back(place, "flood")
            assert budgets["requests_share_most"] == 0.05
            await exchange(place, 20)
            beating.cancel()  # nobody publishes: requests take all the time there is
            await until(lambda: len(flood.of(wire.Done)) == many)
            numbers = [done.number for done in flood.of(wire.Done)]
            assert numbers == list(range(len(numbers)))
        (line,) = [line for line in place.logs() if line["event"] == "client held back" and line["peer"] == "flood"]
        assert "5%" in line["why"]
        assert "[limits] requests" in line["remedy"]

    run(work())


async def beat(client: Any) -> None:
    """Events, more often than a broker calms down."""
    for n in range(1_000_000):
        await client.publish({"beat": n})
        await asyncio.sleep(0.01)


async def held_back(place: Place, client: str) -> dict[str, Any]:
    """The budgets as the status has them, once a client was held back."""
    while True:
        budgets: dict[str, Any] = (await status_of(place))["budgets"]
        if any(row["client"] == client and row["held_back"] for row in budgets["clients"]):
            return budgets
        await asyncio.sleep(0.1)


def test_a_flood_is_not_read_and_budgets_go_by_identity(place: Place) -> None:
    async def work() -> None:
        more = '[limits]\ntraffic = "20 kB"\n[[budget]]\nidentity = "rich-*"\ntraffic = "1 GB"\n'
        network = place.write("a", more=more)
        place.start("broker", str(network.path), "--name", "a")
        (status,) = await all_up(network)
        flood = [wire.Advertise(status["epoch"], n, f"n{n}", f"x = '{'y' * 200}{n}'") for n in range(500)]
        async with raw(place, "poor-1") as poor, raw(place, "rich-1") as rich:
            await asyncio.gather(poor.say(*flood), rich.say(*flood))
            await until(lambda: len(rich.of(wire.Done)) == 500)
            assert len(poor.of(wire.Done)) < 500
            rows = {row["client"]: row for row in (await status_of(place))["budgets"]["clients"]}
            assert rows["poor-1"]["held_back"] >= 1
            assert rows["poor-1"]["bytes_per_s_most"] == 20_000.0
            assert rows["rich-1"]["held_back"] == 0
            assert rows["rich-1"]["bytes_per_s_most"] == 1e9
            await exchange(place, 3)

    run(work())


def test_budgets_of_identities_say_only_what_differs(place: Place) -> None:
    more = (
        '[limits]\nqueued_client_size = "5 MB"\n[[budget]]\nidentity = "desk-*"\nmatching = "10 ms"\nrate = "50 /s"\n'
    )
    network = place.write("a", more=more)
    assert network.budget == Budget(queued_bytes=5 * MB)
    expected = msgspec.structs.replace(network.budget, matching_us=10_000.0, rate_per_s=50.0)
    assert network.budgets == (("desk-*", expected),)


@pytest.mark.parametrize("line", ["reading = 0", "reading = 1.5", 'matching = "fast"', "traffik = 3"])
def test_budgets_are_read_strictly(place: Place, line: str) -> None:
    with pytest.raises(ConfigurationError, match=line.split()[0]):
        place.write("a", more=f'[[budget]]\nidentity = "x"\n{line}\n')
