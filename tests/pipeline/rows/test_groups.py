"""Groups of rows and their sums, against plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

from tidings.pipeline.rows import LONGEST, LOW_BITS, Values, grouped, grouped_value, packed, truncated_quotient, turns

EXTREME = st.integers(-(2**62), 2**62)
ROWS = st.lists(st.tuples(st.integers(-2, 2), EXTREME | st.integers(-1, 1), st.none() | EXTREME), max_size=30)


@settings(deadline=None)
@given(ROWS)
def test_sums_are_those_of_plain_python(rows: list[tuple[int, int, int | None]]) -> None:
    first, second = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    value = Values(
        np.array([row[2] or 0 for row in rows], np.int64), np.array([row[2] is not None for row in rows], bool)
    )
    groups = grouped(first, second)
    keys = [(int(first[row]), int(second[row])) for row in groups.firsts]
    assert keys == sorted({row[:2] for row in rows})
    found = grouped_value("x", groups, value, sketch=False)
    for place, key in enumerate(keys):
        values = [max(-LONGEST, min(LONGEST, row[2])) for row in rows if row[:2] == key and row[2] is not None]
        assert found["x_count"][place] == len(values)
        assert found["x_sum"][place] == sum(values)
        high, middle, low = (int(found[f"x_squares_{half}"][place]) for half in ("hh", "hl", "ll"))
        squares = (high << 2 * LOW_BITS) + (middle << LOW_BITS) + low
        assert squares == pytest.approx(sum(each * each for each in values), rel=1e-14)
        assert bool(found["x_min"].known[place]) == bool(values)
        if values:
            assert (found["x_min"].values[place], found["x_max"].values[place]) == (min(values), max(values))


@settings(deadline=None)
@given(st.lists(st.tuples(EXTREME, EXTREME, EXTREME), min_size=1, max_size=20))
def test_packed_rows_keep_their_order(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    keys = packed(*columns).tolist()
    for one, key in zip(rows, keys, strict=True):
        for other, another in zip(rows, keys, strict=True):
            assert (one < other, one == other) == (key < another, key == another)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=20))
def test_turns_count_equal_rows(values: list[int]) -> None:
    wanted = [values[: place + 1].count(value) for place, value in enumerate(values)]
    assert turns(np.array(values, np.int64)).tolist() == wanted


@settings(deadline=None)
@given(EXTREME, st.integers(1, 10**12))
def test_quotients_are_those_of_spark(value: int, divisor: int) -> None:
    wanted: Any = abs(value) // divisor * (1 if value >= 0 else -1)
    assert truncated_quotient(np.array([value]), divisor)[0] == wanted
