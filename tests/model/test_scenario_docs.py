"""Every example in the reference of scenarios runs, and every key is in it."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from tidings.model.scenario import Scenario, _schema

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "scenarios.md").read_text("utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
TREE = 'topology = { kind = "balanced-tree", branching = 2, depth = 3 }\n'


@pytest.mark.parametrize("block", BLOCKS)
def test_toml_blocks(block):
    written = tomllib.loads(block)
    head = "" if "duration" in written else 'duration = "1 min"\n'
    head += "" if "topology" in written else TREE
    network = Scenario.parse(head + block).expand()
    assert network.topology.brokers


def test_there_are_blocks():
    assert len(BLOCKS) >= 7


def test_python_block(monkeypatch):
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    assert "network" in names


@pytest.mark.parametrize("struct", [getattr(_schema, name) for name in _schema.__all__ if name != "AnyTopology"])
def test_every_key_is_told(struct):
    for field in msgspec.structs.fields(struct):
        assert re.search(rf"(`|\[|\b){field.encode_name}\b", TEXT), field.encode_name
    tag = struct.__struct_config__.tag
    assert tag is None or f"`{tag}`" in TEXT
