"""A rehearsal on real processes: everything arrives, is counted and traced, and nothing is left behind."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.rehearsal.scenarios import SCENARIOS

from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Scenario
from tidings.rehearsal import rehearse

SHORT = """
title = "Two brokers"
duration = "30 s"
warmup = "5 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = "50 ms", bandwidth = "1 Mbit/s" }
[[publishers]]
name = "p"
at = "a"
rate = "4 /s"
attributes = { x = { range = [1, 2] } }
[[subscribers]]
name = "s"
at = ["a", "b"]
count = 2
filter = "x = 1"
"""


def test_without_deadlines_everything_arrives_and_is_traced(tmp_path: Path) -> None:
    network = Scenario.parse(SHORT).expand()
    result = rehearse(network, scale=10.0, out=tmp_path / "out")
    assert result.matched == result.on_time > 50
    assert result.refused == 0
    for row in result.subscriptions.values():
        assert row.matched == row.on_time == row.on_time_forgiven
        assert row.on_time_reliability is not None
        assert row.on_time_reliability.share == 1.0 == row.on_time_reliability.high
        assert 0.8 < row.on_time_reliability.low < 1.0
    assert result.machine.share_s > 0.0
    assert result.machine_share_s == pytest.approx(10.0 * result.machine.share_s)
    trace = tmp_path / "out" / "trace"
    published = [row for file in (trace / "publications").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(published) == result.published
    delivered = [row for file in (trace / "deliveries").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(delivered) >= result.matched
    with pytest.raises(InputError, match="is not empty"):
        rehearse(network, out=tmp_path / "out")


def test_what_cannot_be_rehearsed_is_refused() -> None:
    network = Scenario.parse(SHORT).expand()
    with pytest.raises(ConfigurationError, match="a scale of -1"):
        rehearse(network, scale=-1.0)
    many = SHORT.replace('{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }', "TOPOLOGY")
    many = many.replace("TOPOLOGY", '{ kind = "balanced-tree", branching = 2, depth = 5 }').replace('"a"', '"b1"')
    with pytest.raises(ConfigurationError, match="63 brokers are too many processes"):
        rehearse(Scenario.parse(many.replace('"b"', '"b2"')).expand())


@pytest.mark.full
def test_a_scale_that_the_machine_cannot_follow_is_warned_of() -> None:
    network = Scenario.parse(SCENARIOS["ring"]).expand()
    result = rehearse(msgspec.structs.replace(network, duration_s=200.0), scale=200.0)
    assert any("give a --scale of" in warning for warning in result.warnings)
