"""Packed rows are the same rows, and those of a unit go to one place, whoever packs them."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.rows import GATHERED_SCHEMA, pack, unpack

Row = dict[str, Any]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "of": st.sampled_from([0, 1, 2]),
            "publisher": st.none() | st.sampled_from(["p", "q", "ä"]),
            "sequence": st.none() | st.sampled_from([-1, 0, 1, CHUNK_EVENTS, 5 * CHUNK_EVENTS]),
            "a": st.none() | st.integers(-(2**63), 2**63 - 1),
            "first": st.none() | st.text(max_size=3),
            "matches": st.none() | st.lists(st.integers(0, 5), max_size=3),
            "bad": st.none() | st.just({"file": "f", "reasons": None, "row": None}),
        }
    ),
    min_size=1,
    max_size=40,
)


def batch_of(rows: list[Row], *, coded: bool = False) -> pa.RecordBatch:
    kept = [field for field in GATHERED_SCHEMA if field.name in rows[0]]
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in kept]
    if coded:
        arrays = [array.dictionary_encode() if pa.types.is_string(array.type) else array for array in arrays]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in kept])


def shown(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS, st.integers(1, 7))
def test_rows_come_out_as_they_went_in(some: list[Row], others: list[Row], partitions: int) -> None:
    packed = [pack(batch_of(some), partitions), pack(batch_of(others, coded=True), partitions)]
    everything = [{field.name: row.get(field.name) for field in GATHERED_SCHEMA} for row in [*some, *others]]
    assert shown(unpack(packed)) == shown(pa.Table.from_pylist(everything, GATHERED_SCHEMA))


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS, st.integers(1, 7))
def test_the_rows_of_a_unit_go_to_one_place(some: list[Row], others: list[Row], partitions: int) -> None:
    places: dict[Any, set[int]] = {}
    for batch in (pack(batch_of(some), partitions), pack(batch_of(others, coded=True), partitions)):
        for number in range(batch.num_rows):
            part = batch.column("part")[number].as_py()
            assert 0 <= part < partitions
            for row in unpack([batch.slice(number, 1)]).to_pylist():
                if row["publisher"] is not None and row["sequence"] is not None:
                    unit = row["publisher"], int(row["sequence"] / CHUNK_EVENTS)
                    places.setdefault(unit, set()).add(part)
    assert all(len(parts) == 1 for parts in places.values())


def test_units_are_spread_over_the_partitions() -> None:
    rows = [{"of": 1, "publisher": f"p{n % 20}", "sequence": n // 20 * CHUNK_EVENTS} for n in range(2000)]
    packed = pack(batch_of(rows), 10)
    sizes = [unpack([packed.slice(n, 1)]).num_rows for n in range(packed.num_rows)]
    # 200 on average; six standard deviations of a fair throw are 81.
    assert len(sizes) == 10
    assert max(sizes) < 290
    assert min(sizes) > 110


def test_nothing_unpacks_to_no_rows() -> None:
    assert unpack([]).num_rows == 0
    assert unpack([]).schema.names == GATHERED_SCHEMA.names
