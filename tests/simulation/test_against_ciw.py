"""Queues, losses and priorities as Ciw simulates them: the means of 16 seeds each are within 2 standard errors.

Ciw is another implementation, written by others for other users: what the closed forms of `test_over_seeds` and the
compiled loop might have in common by mistake, it has not.
"""

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from tests.simulation.test_over_seeds import CHAIN, EXPONENTIAL, SEEDS, P, mean_waits, network, on_time, subscriber

from tidings.model import Scenario
from tidings.simulation import simulate

ciw = pytest.importorskip("ciw")

WARM_UP_S, END_S = 100.0, 600.0


def agree(ours: list[float], theirs: list[float]) -> bool:
    """Whether two means differ by no more than two standard errors of their difference."""
    error = math.sqrt(sum(stdev(each) ** 2 / len(each) for each in (ours, theirs)))
    return abs(mean(ours) - mean(theirs)) <= 2 * error


def records(seed: int, **model: Any) -> list[Any]:
    """What Ciw recorded of each stay at a node."""
    ciw.seed(seed)
    run = ciw.Simulation(ciw.create_network(**model))
    run.simulate_until_max_time(END_S + 20.0)
    return list(run.get_all_records())


def reliability(seed: int, nodes: int, loss: float, deadline_s: float) -> float:
    """The share of those that come in and get through so many servers in a row, losses between them, in time."""
    begin, end = ciw.dists.Exponential(5.0), ciw.dists.Deterministic(0.0)
    onward = [[(1 - loss) * (column == row + 1) for column in range(nodes + 1)] for row in range(nodes + 1)]
    rows = records(
        seed,
        arrival_distributions=[begin, *([None] * nodes)],
        service_distributions=[*([ciw.dists.Exponential(10.0)] * nodes), end],
        number_of_servers=[*([1] * nodes), math.inf],
        routing=onward,
    )
    came = {row.id_number: row.arrival_date for row in rows if row.node == 1}
    counted = {id for id, at in came.items() if WARM_UP_S <= at < END_S}
    in_time = sum(
        row.node == nodes + 1 and row.id_number in counted and row.arrival_date - came[row.id_number] < deadline_s
        for row in rows
    )
    return in_time / len(counted)


@pytest.mark.parametrize(("nodes", "loss", "deadline_s"), [(1, 0.0, 0.2), (2, 0.0, 0.6), (2, 0.1, 0.4)])
def test_queues_in_a_row_that_lose(nodes: int, loss: float, deadline_s: float) -> None:
    to = "b" if nodes == 1 else "c"
    more = f"{EXPONENTIAL}\nloss = {loss}"
    text = network(links=CHAIN, more=more, parties=P + subscriber("s", to, deadline_s=deadline_s))
    ours = [on_time("s")(simulate(Scenario.parse(text).expand(seed))) for seed in SEEDS]
    assert agree(ours, [reliability(seed, nodes, loss, deadline_s) for seed in SEEDS])


def test_priorities(tmp_path: Path) -> None:
    ours = mean_waits(tmp_path)
    theirs: dict[str, list[float]] = {"high": [], "low": []}
    for seed in SEEDS:
        rows = records(
            seed,
            arrival_distributions={name: [ciw.dists.Exponential(2.5)] for name in theirs},
            service_distributions={name: [ciw.dists.Deterministic(0.1)] for name in theirs},
            number_of_servers=[1],
            priority_classes={"high": 0, "low": 1},
        )
        for name, waits in theirs.items():
            waits.append(mean(r.waiting_time for r in rows if r.customer_class == name and r.arrival_date > WARM_UP_S))
    for name in theirs:
        assert agree(ours[name], theirs[name]), name
