"""Large indexes against brute force: what only shows when partitions have split, been rebuilt and compacted."""

import numpy as np
import pyarrow as pa
import pytest

from tidings.matching import MatchingIndex
from tidings.model.filters import Filter

ATTRIBUTES, RANGES = 12, 4


def bounds(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.argsort(rng.random((count, ATTRIBUTES)), axis=1)[:, :RANGES]
    start = rng.integers(0, 80, (count, RANGES)) / 100
    low, high = np.full((count, ATTRIBUTES), -np.inf), np.full((count, ATTRIBUTES), np.inf)
    np.put_along_axis(low, chosen, start, axis=1)
    np.put_along_axis(high, chosen, start + rng.integers(0, 40, (count, RANGES)) / 100, axis=1)
    return low, high


def filter_of(low: np.ndarray, high: np.ndarray) -> Filter:
    tests = []
    for a in np.flatnonzero(np.isfinite(low)).tolist():
        tests += [(f"a{a}", ">=", float(low[a])), (f"a{a}", "<=", float(high[a]))]
    return Filter.all_of(tests)


@pytest.mark.full
def test_churn_in_an_index_of_two_hundred_thousand() -> None:
    rng = np.random.default_rng(11)
    count = 200_000
    low, high = bounds(rng, count)
    filters = [filter_of(low[n], high[n]) for n in range(count)]
    index = MatchingIndex(enumerate(filters[:150_000]))
    alive = np.zeros(count, bool)
    alive[:150_000] = True
    events = rng.integers(0, 100, (600, ATTRIBUTES)) / 100  # ties with bounds
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in events.T], [f"a{a}" for a in range(ATTRIBUTES)])
    for _ in range(4):
        for n in rng.choice(np.flatnonzero(alive), 30_000, replace=False).tolist():
            index.remove(n)
            alive[n] = False
        added = rng.choice(np.flatnonzero(~alive), 20_000, replace=False).tolist()
        index.add_many((n, filters[n]) for n in added[5_000:])
        for n in added[:5_000]:
            index.add(n, filters[n])
        alive[added] = True
        offsets, ids = index.match_batch(batch)
        for e in range(0, 600, 10):
            expected = np.flatnonzero(alive & ((low <= events[e]) & (events[e] <= high)).all(axis=1)).tolist()
            assert sorted(ids[offsets[e] : offsets[e + 1]].tolist()) == expected
            if e % 100 == 0:
                assert sorted(index.match({f"a{a}": float(v) for a, v in enumerate(events[e])})) == expected
    assert len(index) == alive.sum()
