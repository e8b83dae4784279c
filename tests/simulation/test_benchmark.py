"""`python -m benchmarks.simulation`, as small as it can be: it begins and ends."""

import io
from typing import get_args

import pytest
from benchmarks import simulation
from rich.console import Console

from tidings.model.policies import Scheme


def test_networks_that_fail_are_compared_with_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "FAILING_SIZES", (simulation.MEAN_DEGREE + 1,))
    monkeypatch.setattr(simulation, "FAILING_DURATION_S", 50_000.0)
    monkeypatch.setattr(simulation, "ROUNDS", 1)
    console = Console(file=io.StringIO(), width=120)
    simulation.show_failing(console)
    assert isinstance(console.file, io.StringIO)
    assert "plain twin" in console.file.getvalue()


def test_every_strategy_runs_under_every_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "FAILING_DURATION_S", 20_000.0)
    console = Console(file=io.StringIO(), width=120)
    simulation.show_policies(console)
    assert isinstance(console.file, io.StringIO)
    rows = console.file.getvalue().splitlines()[2:]
    assert [row.split()[:2] for row in rows] == [[scheme, "8"] for scheme in get_args(Scheme)]


def test_the_compiled_loop_and_simpy_run_the_same_chain() -> None:
    rate, on_time = simulation.compiled_rate(2, 20.0)
    plain_rate, plain_on_time = simulation.Chain(2, 20.0).run()
    assert rate > 0.0
    assert plain_rate > 0.0
    assert on_time == pytest.approx(plain_on_time, abs=0.05)  # nearly all are on time in both
