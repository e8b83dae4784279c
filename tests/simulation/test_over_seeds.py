"""Tandem, fork, loss, priorities and failures against closed forms: within 2 standard errors of the mean of 16 seeds.

Seeds are fixed, so a test that passes once passes always; what it shows is that there is no bias beyond the noise.
"""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import pyarrow.parquet as pq
import pytest

from tidings.model import Scenario
from tidings.simulation import Result, simulate

SEEDS = range(16)
NETWORK = """
duration = "{duration} s"
warmup = "200 s"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = {links} }}
{more}
{parties}
[policies]
scheduling = "{scheduling}"
expired = "forward"
{faults}
"""
P = '[[publishers]]\nname = "p"\nat = "a"\nrate = "5 /s"\n'
CHAIN, FORK = '[["a", "b"], ["b", "c"]]', '[["a", "b"], ["a", "c"]]'
EXPONENTIAL = '[links]\nslowness = { law = "exponential", mean = "100 ms/kB" }'


def subscriber(name: str, at: str, condition: str = "TRUE", deadline_s: float | None = None, price: int = 1) -> str:
    max_delay = "" if deadline_s is None else f'max_delay = "{deadline_s} s"'
    return f'[[subscribers]]\nname = "{name}"\nat = "{at}"\nfilter = "{condition}"\nprice = {price}\n{max_delay}\n'


def is_near(found: list[float], expected: float) -> bool:
    """Whether the mean over the seeds is within two of its standard errors of what is expected."""
    assert len(found) == len(SEEDS)
    return abs(mean(found) - expected) <= 2 * stdev(found) / math.sqrt(len(found))


def agrees(text: str, figure: Callable[[Result], float], expected: float) -> bool:
    scenario = Scenario.parse(text)
    return is_near([figure(simulate(scenario.expand(seed))) for seed in SEEDS], expected)


def on_time(name: str) -> Callable[[Result], float]:
    def share(result: Result) -> float:
        found = result.subscribers[name].on_time_reliability
        assert found is not None
        return found

    return share


def network(
    *,
    links: str,
    more: str,
    parties: str,
    duration: int = 4_000,
    scheduling: str = "fifo",
    faults: str = "",
) -> str:
    return NETWORK.format(
        links=links, more=more, parties=parties, duration=duration, scheduling=scheduling, faults=faults
    )


@pytest.mark.parametrize("deadline_s", [0.2, 0.6])
def test_a_tandem_is_erlang(deadline_s: float) -> None:
    """Two M/M/1 in a row, each with a sojourn of rate mu - lambda = 5."""
    text = network(links=CHAIN, more=EXPONENTIAL, parties=P + subscriber("s", "c", deadline_s=deadline_s))
    x = 5 * deadline_s
    assert agrees(text, on_time("s"), 1 - math.exp(-x) * (1 + x))


@pytest.mark.parametrize("name", ["b", "c"])
def test_a_fork_is_a_queue_on_each_branch(name: str) -> None:
    """Both branches get every event, and each alone is M/M/1."""
    parties = P + subscriber("b", "b", deadline_s=0.2) + subscriber("c", "c", deadline_s=0.2)
    text = network(links=FORK, more=EXPONENTIAL, parties=parties)
    assert agrees(text, on_time(name), 1 - math.exp(-1))


def test_losses_multiply() -> None:
    text = network(links=CHAIN, more="[links]\nloss = 0.1", parties=P + subscriber("s", "c", deadline_s=1.0))
    assert agrees(text, on_time("s"), 0.81)


def mean_waits(out: Path) -> dict[str, list[float]]:
    """The mean wait of high-value and of low-value events on one link, by seed: EB makes prices priorities."""
    publisher = '[[publishers]]\nname = "{name}"\nat = "a"\nrate = "2.5 /s"\nattributes = {{ kind = "{name}" }}\n'
    prices = {"high": 2, "low": 1}
    parties = "".join(
        publisher.format(name=name) + subscriber(f"{name} reader", "b", f"kind = '{name}'", price=price)
        for name, price in prices.items()
    )
    text = network(links=CHAIN, more='[links]\nslowness = "100 ms/kB"', parties=parties, scheduling="eb")
    waits: dict[str, list[float]] = {name: [] for name in prices}
    for seed in SEEDS:
        simulate(Scenario.parse(text).expand(seed), out=out / f"{seed}")
        hops = pq.read_table(out / f"{seed}" / "hops").to_pandas()
        hops = hops[(hops.target == "b") & (hops.enqueued_ns >= 200_000_000_000)]
        for name, rows in hops.groupby("publisher"):
            waits[str(name)].append(float((rows.sent_ns - rows.enqueued_ns).mean()) / 1e9)
    return waits


def test_prices_are_priorities(tmp_path: Path) -> None:
    """Without deadlines the expected benefit of an event is its price, so EB is a queue with two priorities.

    M/D/1 without pre-emption, lambda = 5, D = .1 s, half of the events of either price: the mean residual work is
    R = lambda D^2 / 2 = .025 s, the high wait R / (1 - rho_high), the low one R / ((1 - rho_high) (1 - rho)).
    """
    waits = mean_waits(tmp_path)
    assert is_near(waits["high"], 0.025 / 0.75)
    assert is_near(waits["low"], 0.025 / 0.75 / 0.5)


def test_a_path_is_as_available_as_its_links() -> None:
    """What never waits and is never sent again arrives if both links are up."""
    text = network(
        links=CHAIN,
        more='[links]\nfailures = { availability = 0.95, period = "40 s" }',
        parties=P + subscriber("s", "c", deadline_s=1.0),
        duration=40_000,
        faults='faults = { scheme = "periodic", refresh = "10 s", timeout = "1 h" }',
    )
    assert agrees(text, on_time("s"), 0.95**2)
