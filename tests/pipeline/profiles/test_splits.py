"""However the facts are split, the profiles are the same: exactly, but for what is read off sketches.

Rows come in another order, and partials are made of other groups of chunks, each on its own.
"""

import random
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from tests.pipeline.facts import PROFILES, partials_of, tables_of_facts, tables_of_partials

from tidings.pipeline import _merges
from tidings.pipeline._partials import KINDS, PASSING, RECEIVED, as_batch
from tidings.pipeline.arrow._job import arrivals_by_slice
from tidings.pipeline.arrow._sums import added, sums_of
from tidings.pipeline.arrow._tables import MADE, tables_of
from tidings.pipeline.measures import SLICE_NS

from .conftest import Rows, make_facts

SKETCHED = ("_quantiles_ns", "_sketch", "_distance", "_p50_ns", "_p90_ns", "_p99_ns")
EVENTS = 1500
"""First events of each publisher that are used: two and a half slices of time."""


def chunked(rows: dict[str, Rows]) -> dict[str, Rows]:
    """The first events of each publisher in chunks of 256."""
    small = {name: rows[name] for name in ("subscriptions", "topology")}
    transitions = [
        {"kind": "link", "source": "a", "target": "b", "at_ns": at, "up": up}
        for at, up in [(10**9, False), (2 * 10**9, True), (2 * 10**9, True), (5 * 10**9, False)]
    ]
    kept = {
        name: [{**row, "chunk": row["sequence"] // 256} for row in rows[name] if row["sequence"] < EVENTS]
        for name in ("events", "fates", "transmissions")
    }
    return {**small, **kept, "transitions": transitions}


def exact(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [name for name in table.column_names if not name.endswith(SKETCHED)]
    return sorted(tuple(map(repr, row.values())) for row in table.select(columns).to_pylist())


def partials_by_group(
    rows: dict[str, Rows], groups: int, generator: random.Random, *, by: str = "chunk"
) -> list[dict[str, pa.Table]]:
    """Partials of groups of chunks (or of slices) made one group at a time, from rows in random order."""
    group: dict[Any, int] = {}

    def mine(row: dict[str, Any], number: int) -> bool:
        slice_key = (row.get("received_ns") or 0) // SLICE_NS
        key = (row["publisher"], row["chunk"]) if by == "chunk" else slice_key
        return group.setdefault(key, generator.randrange(groups)) == number

    parts = []
    for number in range(groups):
        kept = {
            name: [row for row in table if name not in ("events", "fates", "transmissions") or mine(row, number)]
            for name, table in rows.items()
        }
        for table in kept.values():
            generator.shuffle(table)
        parts.append(partials_of(make_facts(**kept), is_first=number == 0))  # the small tables are one chunk, made once
    return parts


@pytest.fixture(scope="module")
def whole(known_rows: dict[str, Rows]) -> dict[str, pa.Table]:
    return tables_of_facts(make_facts(**chunked(known_rows)))


@pytest.mark.parametrize("by", ["chunk", "slice"])
def test_any_split_merges_to_the_same(known_rows: dict[str, Rows], whole: dict[str, pa.Table], by: str) -> None:
    parts = partials_by_group(chunked(known_rows), 3, random.Random(by), by=by)
    together = {kind: pa.concat_tables([part[kind] for part in parts]) for kind in KINDS}
    # What comes in slices of time needs whole slices, all else whole chunks.
    names = ("arrivals",) if by == "slice" else (*(made.name for made in MADE if made.name != "arrivals"),)
    merged = tables_of_partials(together)
    sums = tables_of(added(*(sums_of(part, arrivals_by_slice(part[RECEIVED])) for part in parts)))
    for name in names:
        assert exact(whole[name]) or name in ("topic_scores", "rows"), name
        assert exact(merged[name]) == exact(whole[name]), name
        if name not in VIOLATIONS:
            assert exact(sums[name]) == exact(whole[name]), name


VIOLATIONS = [f"{name}_scores" for name in ("subscriber", "publisher", "topic", "window")]
"""Tables with counts of what later chunks make of a chunk: it has to be summed beside these."""


def test_any_number_of_tasks_makes_the_same(
    known_rows: dict[str, Rows], whole: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of pipeline/_merges.py, as Spark makes them: few rows at a time, a pair's from its last chunk on."""
    monkeypatch.setattr(_merges, "ROWS_AT_A_TIME", 20)
    generator = random.Random(7)
    tasks: list[list[pa.RecordBatch]] = [[], [], []]
    for part in partials_by_group(chunked(known_rows), 3, generator):
        for kind in (kind for kind in KINDS if kind not in PASSING):
            for batch in part[kind].to_batches():
                for number in range(batch.num_rows):
                    row = as_batch(kind, batch.slice(number, 1))
                    subscription = batch["subscription"][number].as_py() if kind == "pairs" else None
                    lane = f"{row['publisher'][0].as_py()} {subscription}"
                    tasks[crc32(lane.encode()) % 3].append(row)

    def place(row: pa.RecordBatch) -> tuple[Any, ...]:
        pair = (row["pairs"][0].as_py() or {}).get("subscription")
        return repr(row["publisher"][0].as_py()), repr(pair), -row["chunk"][0].as_py()

    firsts: dict[str, list[pa.Table]] = {}
    for task in tasks:
        batches = pa.Table.from_batches(sorted(task, key=place)).combine_chunks().to_batches(max_chunksize=7)
        for batch in _merges._first_rows(iter(batches)):
            name = batch["table"][0].as_py()
            names = [field.name for field in batch[name].type]
            firsts.setdefault(name, []).append(pa.table(batch[name].flatten(), names=names))
    made_of = {made.name: made for made in MADE if made.name in firsts}
    assert set(made_of) == {made.name for made in MADE if whole[made.name].num_rows} - {"arrivals"}
    for name, made in made_of.items():
        assert exact(made.of(pa.concat_tables(firsts[name]))) == exact(whole[name]), name


def test_without_facts_there_are_no_rows() -> None:
    for name, table in tables_of_facts(make_facts()).items():
        assert table.num_rows == 0, name
        assert len(table.column_names) > 1
    assert set(PROFILES) < set(tables_of_facts(make_facts()))
