"""Every example in docs/reference/pipeline-input.md runs, and its table of reasons is complete."""

import doctest
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidings.pipeline.ingest import REASONS, RULES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "pipeline-input.md"


@pytest.mark.spark
def test_examples(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = {"spark": spark, "folder": str(tmp_path)}
    examples = doctest.DocTestParser().get_doctest(PAGE.read_text("utf-8"), names, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(examples)
    assert result.failed == 0
    assert result.attempted > 10


def test_reasons() -> None:
    assert dict(re.findall(r"^\| ([a-z-]+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)) == {
        "reason": "meaning",
        "---": "---",
        "key": "meaning",
        **REASONS,
    }


def test_rules() -> None:
    """The page's table is the one that rows are judged by."""
    alike: dict[tuple[str, str], dict[str, list[str]]] = {}
    for rule in RULES:
        alike.setdefault((rule.reason, rule.check.text), {}).setdefault(rule.table, []).append(f"`{rule.column[0]}`")
    page = PAGE.read_text("utf-8")
    for (reason, text), tables in alike.items():
        columns = "; ".join(f"{table}: {', '.join(names)}" for table, names in tables.items())
        assert f"| {text} | {columns} | {reason} |" in page
