"""A page of 10,000 subscriptions is no larger than one of a few hundred, and says what it leaves out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.model.tables import Commit, table_place
from tidings.report import read_report, write_report
from tidings.report.figures import SHOWN_MAX

if TYPE_CHECKING:
    from playwright.sync_api import Page

COPIES = 86


def many(run: Path, place: Path) -> Path:
    """The run with every subscription there so many times, under names of their own."""

    def named(name: str, copy: int) -> str:
        return name if copy == 0 else f"{name}~{copy}"

    tables: dict[str, Any] = {}
    for table in ("subscriber_scores", "pairs", "subscriptions"):
        rows = pq.read_table(table_place(run, table)).to_pylist()
        tables[table] = [
            row | {"subscription": named(row["subscription"], copy)} for copy in range(COPIES) for row in rows
        ]
    tables["content"] = [
        row | {"subscriptions": [named(name, copy) for copy in range(COPIES) for name in row["subscriptions"]]}
        for row in pq.read_table(table_place(run, "content")).to_pylist()
    ]
    for name, rows in tables.items():
        (place / name).mkdir(parents=True)
        schema = pq.read_schema(next(table_place(run, name).glob("*.parquet")))
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), place / name / "part.parquet")
    commit = max((run / "commits").iterdir())
    places = msgspec.json.decode(commit.read_bytes(), type=Commit).tables
    places = {name: name if name in tables else str(run / path) for name, path in places.items()}
    (place / "commits").mkdir()
    (place / "commits" / commit.name).write_bytes(msgspec.json.encode(Commit(run="", tables=places)))
    return place


@pytest.mark.browser
def test_ten_thousand_subscriptions(quick: Path, page: "Page", tmp_path: Path) -> None:
    run, place = many(quick, tmp_path / "run"), tmp_path / "many.html"
    began = time.process_time()
    report = read_report(run)
    write_report(report, place)
    print(f"{time.process_time() - began:.1f} processor s, {place.stat().st_size:,} bytes")
    assert report.headline.subscriptions == 117 * COPIES > 10_000
    assert len(report.subscriptions) == len(report.journeys) == SHOWN_MAX
    assert report.comparison is not None
    assert report.comparison.points is None
    assert sum(map(sum, report.comparison.counts)) == report.comparison.compared == 117 * COPIES
    assert place.stat().st_size < 1_000_000
    page.goto(place.as_uri())
    words = page.locator("section", has=page.locator("#worst")).inner_text()
    assert "the worst 200 of 10,062 subscriptions" in words
    assert page.locator("#scatter rect.point").count() > 5
