"""Many replicates of a network that fails go through `tidings sweep`; a thousand are a thousand times one."""

from pathlib import Path
from typing import Any

import pytest

from tidings.model import Scenario
from tidings.pipeline.sweeps import grid, read_vary, run_sweep
from tidings.simulation import simulate

ROOT = Path(__file__).parents[3]
SCHEMES = ("periodic", "buffer", "bypass", "bypass+buffer")


@pytest.mark.full
@pytest.mark.spark
def test_every_cell_is_the_simulators_own(spark: Any, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "faults.toml").read_text().replace('duration = "14 d"', 'duration = "6 h"')
    path = tmp_path / "faults.toml"
    path.write_text(text.replace("count = 500", "count = 20"))
    settings = grid([read_vary(f"policies.faults={','.join(SCHEMES)}")], [])
    result = run_sweep(spark, path, settings, seeds=range(5, 8), out=str(tmp_path / "sweep"))
    assert [row.setting["policies.faults"] for row in result.settings] == list(SCHEMES)
    assert all(row.runs == 3 for row in result.settings)
    assert not result.failures
    network = Scenario.load(path).expand(5)  # the scenario itself has the last of the schemes
    alone = [simulate(Scenario.load(path).expand(seed)).delivery_rate or 0.0 for seed in range(5, 8)]
    assert network.policies.faults.scheme == SCHEMES[-1]
    assert result.settings[-1].figures["delivery_rate"].mean == pytest.approx(sum(alone) / 3, abs=1e-12)
