"""Queues whose laws are known: sojourn times, tails, tandems, losses.

Margins: sojourn times of successive events are correlated, so a share of n events has a standard error of up to about
four times sqrt(p (1 - p) / n) at a load of one half. The margins below are at least 3 of those, and seeds are fixed.
"""

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tidings.model import Scenario
from tidings.simulation import Result, simulate

DEADLINES_MS = (50, 100, 200, 400, 800)
QUEUE = """
duration = "{duration} s"
warmup = "100 s"
seed = 5
topology = {topology}
{more}
[[publishers]]
name = "p"
at = "a"
rate = "5 /s"
attributes = {{ x = 1 }}

[[subscribers]]
name = "s"
at = "{at}"
count = {count}
filter = "x = 1"
{max_delay}

[policies]
scheduling = "fifo"
expired = "forward"
"""
ONE = '{ kind = "explicit", brokers = ["a"] }'
TWO = '{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }'


def run(
    *,
    topology: str = ONE,
    more: str,
    at: str = "a",
    deadline_ms: int | None = None,
    out: Path | None = None,
    duration: int,
) -> Result:
    max_delay = "" if deadline_ms is None else f'max_delay = "{deadline_ms} ms"'
    text = QUEUE.format(duration=duration, topology=topology, more=more, at=at, count=1, max_delay=max_delay)
    return simulate(Scenario.parse(text).expand(), out=out)


def share(result: Result) -> float:
    reliability = result.subscribers["s"].on_time_reliability
    assert reliability is not None
    return reliability


def mean_sojourn_s(out: Path) -> float:
    left = pq.read_table(out / "publications")
    arrived = dict(
        zip(*(pq.read_table(out / "deliveries").column(n).to_pylist() for n in ("sequence", "arrived_ns")), strict=True)
    )
    delays = [
        arrived[sequence] - departure
        for sequence, departure in zip(*(left.column(n).to_pylist() for n in ("sequence", "departure_ns")), strict=True)
    ]
    return sum(delays) / len(delays) / 1e9


@pytest.mark.parametrize("deadline_ms", DEADLINES_MS)
def test_mm1_sojourn_is_exponential(deadline_ms: int) -> None:
    """P[T < t] = 1 - exp(-(mu - lambda) t)."""
    more = '[brokers]\nservice = { law = "exponential", mean = "100 ms" }'
    result = run(more=more, deadline_ms=deadline_ms, duration=20_000)
    assert share(result) == pytest.approx(1 - math.exp(-5 * deadline_ms / 1000), abs=0.012)
    assert result.brokers["a"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("service", "expected_s"),
    [('{ law = "exponential", mean = "100 ms" }', 0.2), ('"100 ms"', 0.15)],
    ids=["M/M/1", "M/D/1"],
)
def test_mean_sojourn(service: str, expected_s: float, tmp_path: Path) -> None:
    """1 / (mu - lambda), and D + D rho / (2 (1 - rho)); margin 3 %."""
    run(more=f"[brokers]\nservice = {service}", out=tmp_path / "trace", duration=10_000)
    assert mean_sojourn_s(tmp_path / "trace") == pytest.approx(expected_s, rel=0.03)


def test_a_link_is_a_server_too(tmp_path: Path) -> None:
    """1 kB at 100 ms/kB: M/D/1 in the output queue, without a broker's service."""
    result = run(topology=TWO, more='[links]\nslowness = "100 ms/kB"', at="b", out=tmp_path / "trace", duration=10_000)
    assert mean_sojourn_s(tmp_path / "trace") == pytest.approx(0.15, rel=0.03)
    assert result.links["a -> b"] == pytest.approx(0.5, abs=0.01)
    assert result.links["b -> a"] == 0.0


def test_tandem_of_two_exponential_brokers() -> None:
    """Two M/M/1 in a row: Erlang-2 of rate mu - lambda, .959572318 within 1 s; margin .005."""
    more = '[brokers]\nservice = { law = "exponential", mean = "100 ms" }'
    result = run(topology=TWO, more=more, at="b", deadline_ms=1000, duration=30_000)
    assert share(result) == pytest.approx(0.959572318, abs=0.005)


def test_losses_multiply() -> None:
    """Three links that each lose a tenth: .9^3 arrive; margin 4 standard errors of a share of 50,000."""
    topology = '{ kind = "explicit", brokers = ["a", "b", "c", "d"], links = [["a", "b"], ["b", "c"], ["c", "d"]] }'
    result = run(topology=topology, more="[links]\nloss = 0.1", at="d", duration=10_100)
    assert share(result) == pytest.approx(0.729, abs=4 * math.sqrt(0.729 * 0.271 / 50_000))
    assert result.subscribers["s"].lost == result.lost > 0
    assert result.dropped == result.late == 0


def test_a_deadline_is_strict() -> None:
    """Without queueing the delay is exactly 30 ms: late for a deadline of 30 ms, on time for one nanosecond more."""
    more = '[links]\npropagation = "20 ms"\n[brokers]\nprocessing = "5 ms"'
    exact = run(topology=TWO, more=more, at="b", deadline_ms=30, duration=200)
    assert exact.on_time == 0
    assert exact.late == exact.matched > 0
    text = QUEUE.format(duration=200, topology=TWO, more=more, at="b", count=1, max_delay='max_delay = "30000001 ns"')
    assert simulate(Scenario.parse(text).expand()).late == 0


def test_service_per_subscription_grows_with_the_table() -> None:
    """10 ms for each of 4 subscriptions at 5 events a second: a load of .2."""
    more = '[brokers]\nservice = "10 ms"\nservice_per = "subscription"'
    text = QUEUE.format(duration=2000, topology=ONE, more=more, at="a", count=4, max_delay="")
    assert simulate(Scenario.parse(text).expand()).brokers["a"] == pytest.approx(0.2, abs=0.01)
