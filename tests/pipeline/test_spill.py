"""Spilled rows are the same rows, and those of a unit go to one part, whoever adds them."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.arrow._spill import Spill
from tidings.pipeline.rows import GATHERED

Row = dict[str, Any]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "of": st.sampled_from([0, 1, 2]),
            "publisher": st.none() | st.sampled_from(["p", "q", "ä"]),
            "sequence": st.none() | st.sampled_from([-1, 0, 1, CHUNK_EVENTS, 5 * CHUNK_EVENTS]),
            "sent_ns": st.none() | st.integers(-(2**63), 2**63 - 1),
            "target": st.none() | st.text(max_size=3),
            "matches": st.none() | st.lists(st.integers(0, 5), max_size=3),
            "bad": st.none() | st.just({"file": "f", "reasons": None, "row": None}),
        }
    ),
    min_size=1,
    max_size=40,
)


def batch_of(rows: list[Row], *, coded: bool = False) -> pa.RecordBatch:
    kept = [field for field in GATHERED if field.name in rows[0]]
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in kept]
    if coded:
        arrays = [array.dictionary_encode() if pa.types.is_string(array.type) else array for array in arrays]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in kept])


def shown(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def spilled(parts: int, *batches: pa.RecordBatch) -> list[pa.Table]:
    with Spill(parts) as spill:
        for batch in batches:
            spill.add(batch)
        return list(spill.parts())


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS, st.integers(1, 7))
def test_rows_come_out_as_they_went_in_and_those_of_a_unit_in_one_part(
    some: list[Row], others: list[Row], parts: int
) -> None:
    found = spilled(parts, batch_of(some), batch_of(others, coded=True))
    everything = [{field.name: row.get(field.name) for field in GATHERED} for row in [*some, *others]]
    assert sorted(row for part in found for row in shown(part)) == shown(pa.Table.from_pylist(everything, GATHERED))
    assert len(found) <= parts
    places: dict[Any, set[int]] = {}
    for number, part in enumerate(found):
        assert part.schema.names == GATHERED.names
        for row in part.to_pylist():
            if row["publisher"] is not None and row["sequence"] is not None:
                unit = row["publisher"], int(row["sequence"] / CHUNK_EVENTS)
                places.setdefault(unit, set()).add(number)
    assert all(len(numbers) == 1 for numbers in places.values())


def test_units_are_spread_over_the_parts() -> None:
    rows = [{"of": 1, "publisher": f"p{n % 20}", "sequence": n // 20 * CHUNK_EVENTS} for n in range(2000)]
    sizes = [len(part) for part in spilled(10, batch_of(rows))]
    # 200 on average; six standard deviations of a fair throw are 81.
    assert len(sizes) == 10
    assert max(sizes) < 290
    assert min(sizes) > 110


def test_without_rows_there_are_no_parts() -> None:
    assert spilled(3) == []
