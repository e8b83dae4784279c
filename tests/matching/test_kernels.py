"""Every kernel against its plain twin, on the arrays of real indexes."""

import numpy as np
import pytest
from tests.matching import twins

from tidings.matching import MatchingIndex, _kernels, _results
from tidings.model.filters import Filter


def random_index(seed: int, count: int) -> MatchingIndex:
    """Ranges, equalities, sets and NULL tests on six attributes; bounds are small whole numbers, so ties abound."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        parts = []
        for name in rng.choice(["a", "b", "c", "d", "e", "f"], rng.integers(1, 5), replace=False):
            low = int(rng.integers(0, 20))
            parts.append(
                [
                    f"{name} BETWEEN {low} AND {low + int(rng.integers(0, 8))}",
                    f"{name} = {low}",
                    f"{name} IN ({', '.join(map(str, rng.integers(0, 20, 20)))})",
                    f"{name} NOT IN ({low}, {low + 1})",
                    f"{name} IS NOT NULL",
                ][rng.integers(0, 5)]
            )
        texts.append((" OR " if rng.random() < 0.2 else " AND ").join(parts))
    return MatchingIndex(enumerate(Filter.parse(text) for text in texts))


def random_values(index: MatchingIndex, seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = [{name: int(rng.integers(0, 20)) for name in "abcdef" if rng.random() < 0.8} for _ in range(count)]
    return np.concatenate([index._columns.row(row) for row in rows])


@pytest.mark.parametrize(("seed", "count"), [(1, 5), (2, 200), (3, 3000)])
def test_search_finds_what_the_twin_finds(seed: int, count: int) -> None:
    index = random_index(seed, count)
    for events in (1, 70, 600):  # alone, one tile, a full tile and part of another
        values = random_values(index, seed, events)[: max(1, 3000 // count * 20) if events > 1 else 1]
        found = index._pairs(values)
        alive = [clause for span in index._clauses_of.values() for clause in span]
        expected = twins.match(index._state, alive, values)
        assert sorted(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected


def test_an_output_that_is_too_short_is_made_longer() -> None:
    index = MatchingIndex((n, "a > 0") for n in range(3000))
    assert len(index.match({"a": 1})) == 3000
    values = np.concatenate([index._columns.row({"a": 1})] * 100)
    assert len(index._pairs(values)[0]) == 300_000


def test_codes() -> None:
    index = random_index(4, 500)
    values = random_values(index, 4, 50)
    codes = np.empty(values.shape, np.uint8)
    _kernels.encode(index._state.boundaries, values, codes)
    assert codes.tolist() == twins.encode(index._state.boundaries, values)


@pytest.mark.parametrize("value", [0.0, 1.0, 2.5, -1.0, 19.0, 20.0, 7.0])
def test_membership(value: float) -> None:
    members = [-1.0, 0.0, 2.5, 7.0, 19.0]
    sets = np.array([99.0, len(members), *members, 20.0])
    assert _kernels.member(sets, 1, value) == (value in members)


def test_grouping_by_event() -> None:
    rng = np.random.default_rng(9)
    first = np.sort(rng.integers(0, 50, 100))
    pairs = [(int(e), int(c)) for e, c in zip(rng.integers(0, 30, 2000), rng.integers(0, 100, 2000), strict=True)]
    pairs = list(dict.fromkeys(pairs))
    events, clauses = (np.array(column) for column in zip(*pairs, strict=True))
    grouped, counts = _results.each_once(*_results.by_event(events, clauses, 30), first)
    ends = np.cumsum(counts)
    got = [sorted(first[grouped[end - count : end]].tolist()) for end, count in zip(ends, counts, strict=True)]
    assert got == twins.by_event(pairs, 30, first)
    plain, counts = _results.by_event(events, clauses, 30)
    assert sorted(plain.tolist()) == sorted(clauses.tolist())
    assert counts.tolist() == np.bincount(events, minlength=30).tolist()


def test_lowest_bit() -> None:
    @_kernels.compiled
    def lowest(word: int) -> int:
        return _kernels.lowest_bit(word)

    for bit in range(64):
        assert lowest(np.uint64((1 << 63) | (1 << bit))) == bit


def test_the_equality_table_keeps_values_apart() -> None:
    columns, values = np.full(64, -1, np.int64), np.zeros(64)
    for n in range(30):
        value = (n - 10) * 0.5
        at = _kernels.table_slot(columns, values, 3, value)
        assert columns[at] == -1
        columns[at], values[at] = 3, value
    for n in range(30):
        at = _kernels.table_slot(columns, values, 3, (n - 10) * 0.5)
        assert (columns[at], values[at]) == (3, (n - 10) * 0.5)
    assert columns[_kernels.table_slot(columns, values, 4, 0.5)] == -1
