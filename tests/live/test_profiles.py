"""`tidings profile` and `tidings predict --live`, on brokers that run."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.live.conftest import Place, run, running, until
from typer.testing import CliRunner, Result

from tidings.cli._app import app
from tidings.errors import ConfigurationError
from tidings.live import DeniedError, Network, connect
from tidings.live.operations import ask_windows
from tidings.live.operations._orders import Orders
from tidings.live.operations._query import put_question
from tidings.live.operations._windows import WindowQuestion
from tidings.live.traces import merged
from tidings.protocol.node import Preamble


async def tidings(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)


async def publish(place: Place, events: int) -> None:
    async with connect(place.address("a"), name="p") as p:
        for n in range(events):
            await p.publish({"n": n % 10}, payload=bytes(100 + 10 * (n % 7)), lifetime_s=60.0)


async def settled(network: Network, events: int) -> None:
    """Wait until so many events can no longer be under way: the latest do not count."""
    while merged((await ask_windows(network))[0], network.links).events < events:
        await asyncio.sleep(0.1)


def test_profiles_of_a_running_network(place: Place) -> None:
    results: list[Result] = []

    async def work() -> None:
        network = place.write("a", "b")
        got: list[object] = []
        async with running(network) as nodes, connect(place.address("b"), name="s") as s:
            await s.subscribe("n >= 5", name="half", max_delay_s=50.0, callback=got.append)
            await until(lambda: len(nodes["a"].machine.gossip.interests) == 1)
            await publish(place, 200)
            await until(lambda: len(got) == 100)
            await settled(network, 200)
            file, out = str(network.path), str(place.directory / "profiles")
            results.append(await tidings("profile", file, "--out", out, "--json"))
            results.append(await tidings("predict", file, "--live", "--json"))
            results.append(await tidings("predict", out))
            newcomer = place.directory / "newcomer.toml"
            newcomer.write_text('broker = "b"\nfilter = "n >= 5"\nmax_delay = "50 s"\n', "utf-8")
            results.append(await tidings("predict", file, "--live", "--admit", str(newcomer), "--json"))

    run(work())
    profile, predicted, again, admitted = results
    assert profile.exit_code == 0, profile.output
    found = msgspec.json.decode(profile.stdout)
    assert found["window"]["events"] == 200
    assert found["window"]["share"] == 1.0
    assert found["window"]["silent"] == {}
    assert (found["bad"], found["late"], found["lost"]) == (0, 0, 0)
    assert found["subscribers"]["s/half"]["on_time"] == found["subscribers"]["s/half"]["matched"] == 100
    answer = msgspec.json.decode(predicted.stdout)
    assert answer["subscribers"]["s/half"]["on_time_reliability"] > 0.99
    assert answer["window"]["events"] == 200
    assert {"a -> b", "b -> a"} <= set(answer["links"])
    assert again.exit_code == 0, again.output
    assert (place.directory / "profiles" / "window" / "hops").is_dir()
    assert admitted.exit_code == 0, admitted.output
    admission = msgspec.json.decode(admitted.stdout)["admission"]
    assert admission["advice"] == "admit"
    assert admission["on_time_reliability"] > 0.99


def test_a_broker_that_is_away_is_missing(place: Place) -> None:
    results: list[Result] = []

    async def work() -> None:
        network = place.write("a", "b", network='scheme = "static"\n')
        async with running(network, "a"):
            await publish(place, 20)
            await settled(network, 20)
            out = str(place.directory / "profiles")
            results.append(await tidings("profile", str(network.path), "--out", out))

    run(work())
    assert results[0].exit_code == 1
    assert "warning: broker b is missing" in results[0].stderr
    assert "20 events" in results[0].stdout


def test_nothing_has_happened(place: Place) -> None:
    results: list[Result] = []

    async def work() -> None:
        network = place.write("a")
        async with running(network):
            results.append(await tidings("predict", str(network.path), "--live"))

    run(work())
    assert results[0].exit_code == 2
    assert "nobody has published anything" in results[0].stderr


def test_nobody_answers(place: Place) -> None:
    network = place.write("a")
    result = CliRunner().invoke(app, ("profile", str(network.path), "--out", str(place.directory / "profiles")))
    assert result.exit_code == 1
    assert "no broker answers" in result.stderr


def test_recording_can_be_turned_off(place: Place) -> None:
    results: list[Result] = []

    async def work() -> None:
        network = place.write("a", more="[profiles]\nrecord = false\n")
        async with running(network) as brokers:
            assert brokers["a"].driver.tracer is None
            assert not brokers["a"].machine._choice.is_any
            out = str(place.directory / "profiles")
            results.append(await tidings("profile", str(network.path), "--out", out))

    run(work())
    assert "record = false" in results[0].stderr


def test_only_those_who_may_give_orders_get_rows(place: Place) -> None:
    async def work() -> None:
        place.secret("client", "c" * 32)
        network = place.write("a", more='[[token]]\nidentity = "*"\ntoken_file = "client"\n')
        async with running(network):
            windows, silent = await ask_windows(network)
            assert [window.name for window in windows] == ["a"]
            assert not silent
            detail: Any = msgspec.msgpack.encode(Orders(window=WindowQuestion()))
            with pytest.raises(DeniedError, match="orders need the brokers' token"):
                await put_question(network, "a", Preamble("operator", "operator", detail=detail), "c" * 32)

    run(work())


@pytest.mark.parametrize(("line", "why"), [('size = "10 kB"', "10 kB are too few"), ('window = "1 s"', "too short")])
def test_a_window_has_a_least_size(place: Place, line: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        place.write("a", more=f"[profiles]\n{line}\n")
