"""What the reference page shows, runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_examples_of_the_reference_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/simulation.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "simulation.md", "exec"), {})
