"""Sketches made here, as Spark reads and merges them."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql")

from pyspark.sql import functions as fn

from tidings.pipeline.rows import SKETCH_K, sketches
from tidings.pipeline.rows._sketches import _CAPACITIES, sketch_bytes, write_sketch

SIZES = (0, 1, 2, SKETCH_K, SKETCH_K + 1, 1_001, 40_000)
RANKS = (0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0)


def groups() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.lognormal(15, 2, size).astype(np.int64) - 10**6 for size in SIZES]


def made() -> pa.Array:
    values = groups()
    return sketches(np.concatenate(values), np.array([len(each) for each in values]))


@pytest.mark.spark
def test_spark_reads_them(spark: Any) -> None:
    """Counts and extremes exactly, ranks within the sketch's error, and exactly up to SKETCH_K values."""
    values = groups()
    rows = spark.createDataFrame(pa.table({"n": pa.array(range(len(SIZES))), "sketch": made()}))
    ranks = fn.array(*(fn.lit(rank) for rank in RANKS))
    counted = fn.kll_sketch_get_n_bigint("sketch").alias("count")
    shown = fn.when(counted > 0, fn.kll_sketch_get_quantile_bigint("sketch", ranks)).alias("quantiles")
    for row in rows.select("n", counted, shown).collect():
        ordered = np.sort(values[row["n"]])
        assert row["count"] == len(ordered)
        if not len(ordered):
            continue
        found = row["quantiles"]
        assert (found[0], found[-1]) == (ordered[0], ordered[-1])
        error = 0.0 if len(ordered) <= SKETCH_K else 0.0133
        for rank, quantile in zip(RANKS, found, strict=True):
            below, upto = np.searchsorted(ordered, quantile, "left"), np.searchsorted(ordered, quantile, "right")
            assert below / len(ordered) - error <= rank <= upto / len(ordered) + error + 1e-9


@pytest.mark.spark
def test_spark_merges_them(spark: Any) -> None:
    everything = np.sort(np.concatenate(groups()))
    rows = spark.createDataFrame(pa.table({"sketch": made()}))
    merged = rows.agg(fn.kll_merge_agg_bigint("sketch").alias("sketch"))
    count, median = merged.select(
        fn.kll_sketch_get_n_bigint("sketch"), fn.kll_sketch_get_quantile_bigint("sketch", fn.lit(0.5))
    ).head()
    assert count == len(everything)
    assert abs(np.searchsorted(everything, median) / count - 0.5) < 0.03


def test_kernel_and_plain_code_write_the_same_bytes() -> None:
    for values, found in zip(groups(), made().to_pylist(), strict=True):
        plain = np.zeros(sketch_bytes.py_func(len(values)), np.uint8)  # type: ignore[attr-defined]
        write_sketch.py_func(np.sort(values), _CAPACITIES, plain)  # type: ignore[attr-defined]
        assert plain.tobytes() == found


def test_a_sketch_does_not_depend_on_the_order_of_its_values() -> None:
    values = groups()[-1]
    shuffled = np.random.default_rng(1).permutation(values)
    count = np.array([len(values)])
    assert sketches(values, count).equals(sketches(shuffled, count))


def test_every_value_stands_for_as_many_as_its_level_says() -> None:
    """The weights of all values kept add up to the number of values, whatever it is."""
    for count in (2, 199, 200, 201, 399, 400, 401, 12_345):
        data = sketches(np.arange(count), np.array([count]))[0].as_py()
        n, _, levels, _ = struct.unpack_from("<qhbb", data, 8)
        starts = [*struct.unpack_from(f"<{levels}i", data, 20), int(_CAPACITIES[levels - 1])]
        sizes = np.diff(starts)
        assert n == count == sum(int(size) << level for level, size in enumerate(sizes))
        assert len(data) == 20 + 4 * levels + 16 + 8 * sizes.sum()
