"""Every name that docs/reference/python.md tells of can be imported from where it says, and is public there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"
NAMES = sorted(set(re.findall(r"`(tidings(?:\.\w+)*\.\w+)`", PAGE.read_text("utf-8"))) - {"tidings.errors"})


@pytest.mark.parametrize("name", NAMES)
def test_name(name: str) -> None:
    place, _, own = name.rpartition(".")
    module = import_module(place)
    assert own in module.__all__
    assert getattr(module, own) is not None
