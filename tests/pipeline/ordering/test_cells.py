import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.pipeline.ordering._cells import whole_cells


@given(
    st.lists(st.integers(0, 6), max_size=60).map(sorted),
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.integers(1, 20),
)
def test_cells_are_never_cut_and_nothing_is_lost(cells: list[int], sizes: list[int], at_a_time: int) -> None:
    whole = pa.record_batch({"cell": pa.array(cells, pa.int64()), "row": pa.array(range(len(cells)), pa.int64())})
    batches, start, turn = [], 0, 0
    while start < len(cells):
        size = sizes[turn % len(sizes)] or (turn >= len(sizes))
        batches.append(whole.slice(start, size))
        start, turn = start + size, turn + 1
    tables = list(whole_cells(iter(batches), at_a_time))
    assert [row for table in tables for row in table["row"].to_pylist()] == list(range(len(cells)))
    seen: set[int] = set()
    for table in tables:
        own = set(table["cell"].to_pylist())
        assert not own & seen
        seen |= own
    assert all(len(table) >= at_a_time for table in tables[:-1])


def test_one_cell_that_fills_many_batches_is_one_table() -> None:
    batches = [pa.record_batch({"cell": np.full(1000, 5)}) for _ in range(20)]
    assert [len(table) for table in whole_cells(iter(batches), 10)] == [20_000]


@pytest.mark.parametrize("batches", [[], [pa.record_batch({"cell": pa.array([], pa.int64())})]])
def test_no_rows_no_tables(batches: list[pa.RecordBatch]) -> None:
    assert list(whole_cells(iter(batches), 10)) == []
