"""Subscriptions that come one by one, between events: the same answers, few moves, little memory."""

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.matching import MatchingIndex
from tidings.matching import _index as index_module
from tidings.matching._clauses import LEARN_EVERY, LEARN_UNTIL
from tidings.model.filters import Filter

NUMBER = st.integers(0, 9)
TEXT = st.one_of(
    st.builds(lambda s, v: f"s = 'S{s}' AND v > {v}", NUMBER, NUMBER),
    st.builds(lambda a, b: f"v BETWEEN {min(a, b)} AND {max(a, b)} AND w < {a}", NUMBER, NUMBER),
    st.builds(lambda s, t: f"s IN ('S{s}', 'S{t}') OR v = {t}", NUMBER, NUMBER),
    st.builds(lambda a: f"w >= {a} AND s LIKE 'S%'", NUMBER),
    st.sampled_from(["s IS NULL", "TRUE", "FALSE", "v <> 3"]),
)
EVENT = st.fixed_dictionaries({}, optional={"s": st.builds("S{}".format, NUMBER), "v": NUMBER, "w": NUMBER})
STEPS = st.lists(st.one_of(TEXT, EVENT, st.just("remove"), st.just("batch")), max_size=60)


@given(steps=STEPS, together=st.sampled_from([1, 4, 16]), burst=st.integers(1, 12))
@settings(max_examples=120, deadline=None)
def test_the_answer_is_that_of_the_filters_whatever_came_when(steps: list[Any], together: int, burst: int) -> None:
    index, kept, number = MatchingIndex(), dict[int, Filter](), 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index_module, "MIN_TOGETHER", together)
        for step in steps:
            if step == "remove":
                if kept:
                    index.remove(gone := sorted(kept)[number % len(kept)])
                    del kept[gone]
                    assert gone not in index
            elif step == "batch":
                _, ids = index.match_batch(pa.RecordBatch.from_pylist([{"s": "S1", "v": 3, "w": 1}]))
                assert sorted(ids.tolist()) == wanted(kept, {"s": "S1", "v": 3, "w": 1})
            elif isinstance(step, dict):
                assert sorted(index.match(step)) == wanted(kept, step)  # type: ignore[type-var]
            else:
                for _ in range(burst):
                    kept[number] = Filter.parse(step)
                    index.add(number, kept[number])
                    number += 1
            assert len(index) == len(kept)


def wanted(kept: dict[int, Filter], event: dict[str, Any]) -> list[int]:
    return [number for number, filter in kept.items() if filter.matches(event)]


def test_a_column_that_comes_late_moves_only_the_clauses_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it has become worth learning: the thousands of others stay where they are."""
    rng = np.random.default_rng(3)
    count = 30_000
    index = MatchingIndex((n, Filter.all_of([("a", ">", float(x))])) for n, x in enumerate(rng.random(count)))
    monkeypatch.setattr(MatchingIndex, "_place_all", lambda _: pytest.fail("all was filed anew"))
    late = rng.random(4_000).tolist()
    for number, x in enumerate(late):
        index.add(count + number, Filter.all_of([("b", "<", x)]))
        if number % 500 == 0:
            index.match({"b": 0.5})
    assert index._store.code_counts[index._columns.of("b", 0)] > 100  # it was learned
    found = index.match({"a": -1.0, "b": 0.5})
    assert sorted(found) == [count + number for number, x in enumerate(late) if x > 0.5]  # type: ignore[type-var]


def test_what_is_laid_out_anew_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    place_all = MatchingIndex._place_all

    def counted(self: MatchingIndex) -> None:
        sizes.append(len(self))
        place_all(self)

    monkeypatch.setattr(MatchingIndex, "_place_all", counted)
    index = MatchingIndex()
    for number, x in enumerate(np.random.default_rng(4).random(40_000).tolist()):
        index.add(number, Filter.all_of([("a", ">", x)]))
    index.match({"a": 0.5})
    assert sizes
    assert max(sizes) <= LEARN_EVERY * LEARN_UNTIL + index_module.MIN_TOGETHER
    assert sum(sizes) <= 2 * max(sizes)


@pytest.mark.parametrize("symbols", [1_000, 20_000])
def test_a_subscription_takes_less_than_800_bytes(symbols: int) -> None:
    """Though nearly every one of them names another value."""
    rng = np.random.default_rng(5)
    filters = [
        Filter.all_of([("symbol", "=", f"S{symbol}"), ("price", ">", float(price))])
        for symbol, price in zip(rng.integers(symbols, size=20_000).tolist(), rng.random(20_000), strict=True)
    ]
    MatchingIndex(enumerate(filters[:2_000])).match({"symbol": "S1", "price": 0.5})  # kernels are loaded
    for filter in filters:
        assert filter.clauses  # made when first asked for, and the filter's own
    tracemalloc.start()
    try:
        index = MatchingIndex()
        for number, filter in enumerate(filters):
            index.add(number, filter)
        index.match({"symbol": "S1", "price": 0.5})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(filters) < 800
