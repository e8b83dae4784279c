"""Load for a running network: figures that add up, from events that are counted one by one."""

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.live.conftest import Place, all_up, run
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import ConfigurationError, FilterError
from tidings.live import Network
from tidings.live.bench import BenchEvent, Load, filters_of
from tidings.live.bench._figures import Tally, bin_of, figures


def small_load(*events: BenchEvent, max_delay_s: float | None = None) -> Load:
    return Load(
        publish_at=("a",), subscribe_at=("a",), events=events, filters=("n > 0", "n > 1"), max_delay_s=max_delay_s
    )


def test_what_never_came_is_lost_or_too_late_by_whether_it_had_a_deadline() -> None:
    lasting = BenchEvent(attributes={"n": 2}, payload=b"")
    short = BenchEvent(attributes={"n": 2}, payload=b"", lifetime_s=1.0)
    load = small_load(lasting, short)
    assert load.wanted([0, 1]) == [2, 2]
    assert load.wanted([1]) == [1, 1]
    tally = Tally(accepted=[10, 10], expired=[0, 0], wanted=[2, 2], came=[17, 15], on_time=12)
    found = figures(load, tally)
    assert (found.expected, found.delivered, found.lost) == (40, 32, 3)
    assert (found.too_late, found.on_time) == (5 + 3, 0.6)
    tally.expired = [0, 2]
    assert (figures(load, tally).too_late, figures(load, tally).on_time) == (5 + 3 + 4, 0.5)
    assert figures(small_load(lasting), Tally(accepted=[1], expired=[0], wanted=[2], came=[2])).on_time is None
    assert load.deadline_s(short) == 1.0
    assert small_load(short, max_delay_s=0.5).deadline_s(short) == 0.5


def test_latencies_are_within_one_percent() -> None:
    dice = random.Random(5)
    latencies_s = [dice.lognormvariate(-6.0, 1.0) for _ in range(20_000)]
    halves = [Tally(accepted=[0], expired=[0], wanted=[0], came=[0]) for _ in range(2)]
    for number, latency_s in enumerate(latencies_s):
        bins = halves[number % 2].latencies
        bins[bin_of(latency_s)] = bins.get(bin_of(latency_s), 0) + 1
    halves[0].add(halves[1])
    found = figures(small_load(BenchEvent(attributes={"n": 1}, payload=b"")), halves[0])
    p50_s, p99_s = np.quantile(latencies_s, [0.5, 0.99])
    assert found.latency_p50_ms == pytest.approx(p50_s * 1e3, rel=0.01)
    assert found.latency_p99_ms == pytest.approx(p99_s * 1e3, rel=0.01)


def test_filters_of_a_template() -> None:
    assert filters_of("symbol = '{symbol}' AND n > {n}", 12)[11] == "symbol = 'S1' AND n > 11"
    with pytest.raises(FilterError):
        filters_of("n > {m}", 2)
    with pytest.raises(ConfigurationError, match="leaves nothing to measure"):
        msgspec.structs.replace(small_load(BenchEvent(attributes={}, payload=b"")), warmup_s=10.0)


@pytest.mark.full
def test_a_bench_against_brokers_on_the_command_line(place: Place) -> None:
    network = place.write("a", "b")
    place.start("up", str(network.path))
    run(_up(network))
    run_for = ("--duration", "2 s", "--warmup", "500 ms", "--json")
    at = (place.address("a"), "--subscribe-at", place.address("b"))

    steady = invoke("bench", *at, "--rate", "100 /s", "--subscribers", "20", "--lifetime", "30 s", *run_for)
    assert (steady["accepted"], steady["refused"], steady["unconfirmed"]) == (200, 0, 0)
    assert steady["delivered"] == steady["expected"] > 100
    assert (steady["on_time"], steady["lost"], steady["duplicated"]) == (1.0, 0, 0)
    assert 80 < steady["accepted_per_s"] < 120
    assert 0.0 < steady["latency_p50_ms"] <= steady["latency_p99_ms"]

    several = ("--processes", "2", "--publishers", "3", "--subscribers", "3", "--in-flight", "4", "--filter", "TRUE")
    flat_out = invoke("bench", *at, *several, *run_for)
    assert flat_out["delivered"] == flat_out["expected"] == 3 * flat_out["accepted"] > 0
    assert (flat_out["on_time"], flat_out["lost"]) == (None, 0)

    lines = '{"n": 1}\n{"attributes": {"n": 2}, "payload": "a payload that is longer", "lifetime_s": 30}\n'
    asked = ("--filter", "n > {n}", "--subscribers", "2", "--rate", "50 /s")
    given = invoke("bench", *at, "-", *asked, *run_for, input=lines)
    assert (given["accepted"], given["delivered"]) == (100, 50 + 2 * 50)

    wrong = CliRunner().invoke(app, ["bench", *at, "lines.txt"])
    assert wrong.exit_code == 2
    assert "use '-'" in wrong.stderr
    assert "accepted" in CliRunner().invoke(app, ["bench", *at, "--duration", "300 ms", "--warmup", "0 s"]).stdout


async def _up(network: Network) -> None:
    await all_up(network)


def invoke(*arguments: str, input: str | None = None) -> dict[str, Any]:
    done = CliRunner().invoke(app, list(arguments), input=input)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found
