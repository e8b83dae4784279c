"""Recorded values as a law: CSV and Parquet, beside the file, with errors that name the place."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.errors import ScenarioError
from tidings.model.distributions import Empirical
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

TEXT = """
duration = "60 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = LAW }
[[publishers]]
name = "p"
at = "a"
rate = "20 /s"
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
max_delay = "30 ms"
"""
VALUES_MS = np.random.default_rng(2).gamma(3.0, 10.0, 2_000)


def write(directory: Path, law: str) -> Path:
    path = directory / "scenario.toml"
    path.write_text(TEXT.replace("LAW", law), "utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_is_a_law(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        rows = "\n".join(f"{number},{value!r}" for number, value in enumerate(VALUES_MS.tolist()))
        (tmp_path / "delays.csv").write_text(f"row,delay\n{rows}\n", "utf-8")
    else:
        pq.write_table(pa.table({"row": range(len(VALUES_MS)), "delay": VALUES_MS}), tmp_path / "delays.parquet")
    law = f'{{ law = "recorded", file = "delays.{kind}", column = "delay", unit = "ms" }}'
    network = Scenario.load(write(tmp_path, law)).expand()
    found = network.topology.links[0].propagation
    assert isinstance(found, Empirical)
    assert found.mean() == pytest.approx(VALUES_MS.mean() / 1e3, rel=1e-3)
    share = float(np.mean(VALUES_MS < 30.0))
    assert simulate(network).delivery_rate == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ('{ law = "recorded", column = "delay", unit = "ms" }', "needs `file`"),
        ('{ law = "recorded", file = "delays.csv", unit = "ms" }', "needs `column`"),
        ('{ law = "recorded", file = "delays.csv", column = "delay" }', "needs `unit`"),
        ('{ law = "recorded", file = "delays.csv", column = "delay", unit = "kB" }', r"links\.propagation\.unit"),
        ('{ law = "recorded", file = "delays.csv", column = "dely", unit = "ms" }', "did you mean `delay`"),
        ('{ law = "recorded", file = "none.csv", column = "delay", unit = "ms" }', "relative to the scenario"),
        ('{ law = "recorded", file = "holes.csv", column = "delay", unit = "ms" }', "holes.csv:3: delay is 'x'"),
        ('{ law = "recorded", file = "below.csv", column = "delay", unit = "ms" }', "must be 0 or more"),
        ('{ law = "recorded", file = "one.csv", column = "delay", unit = "ms" }', "two at least"),
        ('{ law = "recorded", file = "delays.csv", column = "delay", unit = "ms", n = 5 }', "no parameter `n`"),
        ('{ law = "recorded", file = "holes.parquet", column = "delay", unit = "ms" }', "row 2 of delay is None"),
        ('{ law = "recorded", file = "words.parquet", column = "delay", unit = "ms" }', "cannot be read as numbers"),
        ('{ law = "recordd", file = "delays.csv", column = "delay", unit = "ms" }', "did you mean `recorded`"),
    ],
)
def test_errors_name_file_key_and_remedy(tmp_path: Path, law: str, message: str) -> None:
    for name, lines in {"delays": "1\n2", "holes": "1\nx", "below": "1\n-2", "one": "1"}.items():
        (tmp_path / f"{name}.csv").write_text(f"delay\n{lines}\n", "utf-8")
    pq.write_table(pa.table({"delay": [1.0, None]}), tmp_path / "holes.parquet")
    pq.write_table(pa.table({"delay": ["a", "b"]}), tmp_path / "words.parquet")
    path = write(tmp_path, law)
    with pytest.raises(ScenarioError, match=message) as raised:
        Scenario.load(path)
    assert f"{path}:4" in str(raised.value)
