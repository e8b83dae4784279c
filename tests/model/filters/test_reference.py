"""Every example in docs/reference/filters.md runs."""

import doctest
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "filters.md"
SPARK_HEADING = "## In Spark SQL"


def run(text: str, **names: Any) -> int:
    examples = doctest.DocTestParser().get_doctest(text, names, "filters.md", str(PAGE), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    result = runner.run(examples)
    assert result.failed == 0
    return result.attempted


def test_examples() -> None:
    assert run(PAGE.read_text(encoding="utf-8").partition(SPARK_HEADING)[0]) > 25


@pytest.mark.spark
def test_spark_examples(spark: Any) -> None:
    from tidings.model import Filter

    assert run(PAGE.read_text(encoding="utf-8").partition(SPARK_HEADING)[2], spark=spark, Filter=Filter) == 5
