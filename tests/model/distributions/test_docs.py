"""Every example in the reference page runs and says what the page says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "distributions.md"


def test_reference_page() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 10
    assert result.failed == 0
