"""The index against the filters themselves: whatever is stored, added or removed, the same subscriptions match."""

import math
import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tidings import EventError, FilterError, InputError
from tidings.matching import MatchingIndex
from tidings.model.filters import Filter

NUMBERS = [-(2**53) - 1, -3, -1.5, 0, 0.5, 1, 1.5, 2, 5e-324, 7, 2**53, 2**53 + 1, 2**63 - 1, 1e308, -1e308]
STRINGS = ["", "a", "b", "ab", "Ä", "日本", "a%", "YHOO", "𝕏", "a/b", "/a", "$S/a", "a/b/c"]
ATTRIBUTES = ["p", "q", "r", "s"]

values = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(STRINGS), st.booleans(), st.none(), st.floats(-5, 5), st.integers(-5, 5)
)
events = st.dictionaries(st.sampled_from(ATTRIBUTES), values)


def literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


@st.composite
def leaves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(ATTRIBUTES))
    number = st.sampled_from(NUMBERS).map(literal)
    string = st.sampled_from(STRINGS).map(literal)
    kind = draw(st.integers(0, 10))
    if kind <= 2:
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(number)}"
    if kind == 3:
        return f"{name} BETWEEN {draw(number)} AND {draw(number)}"
    if kind == 4:
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '>=']))} {draw(string)}"
    if kind == 5:
        negated = draw(st.sampled_from(["", "NOT "]))
        members = draw(st.lists(draw(st.sampled_from([number, string])), min_size=1, max_size=30))
        return f"{name} {negated}IN ({', '.join(members)})"
    if kind == 6:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 7:
        return f"{name} LIKE {literal(draw(st.sampled_from(['a%', '%', '_', 'YHOO', '%本'])))}"
    if kind == 8:
        return draw(st.sampled_from([name, f"NOT {name}", f"{name} = TRUE"]))
    if kind == 9:
        pattern = draw(st.sampled_from(["a/+", "#", "+/a", "$S/#", "a/b", "a/#", "+/b/#", "/+"]))
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}MATCHES '{pattern}'"
    return f"{name} + 1 > {draw(st.sampled_from(ATTRIBUTES))}"


conditions = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda c: f"NOT ({c})"),
    ),
    max_leaves=6,
)


def truth(filters: dict[object, Filter], event: dict[str, object]) -> list[object]:
    return sorted((id for id, filter in filters.items() if filter.evaluate(event) is True), key=str)


def as_batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    """One Arrow column per attribute and kind is impossible, so a batch keeps the kind that an attribute has most."""
    columns = {}
    for name in ATTRIBUTES:
        kinds = [type(row.get(name)) for row in rows if row.get(name) is not None]
        kind = max(set(kinds), key=kinds.count) if kinds else float
        column = [row.get(name) if type(row.get(name)) is kind else None for row in rows]
        columns[name] = pa.array(column, {bool: pa.bool_(), str: pa.string(), int: pa.int64()}.get(kind, pa.float64()))
    return pa.RecordBatch.from_pydict(columns)


def batch_matches(index: MatchingIndex, batch: pa.RecordBatch) -> list[list[object]]:
    offsets, ids = index.match_batch(batch)
    assert len(offsets) == batch.num_rows + 1
    return [sorted(ids[a:b].tolist(), key=str) for a, b in pairwise(offsets.tolist())]


class IndexAgainstFilters(RuleBasedStateMachine):
    """Adds, removals and events in any order; a dictionary of filters is the truth."""

    stored = Bundle("stored")

    @initialize(texts=st.lists(conditions, max_size=40))
    def start(self, texts: list[str]) -> None:
        self.filters: dict[object, Filter] = {n: Filter.parse(text) for n, text in enumerate(texts)}
        self.index = MatchingIndex(self.filters.items())
        self.next = len(texts)

    @rule(target=stored, text=conditions, named=st.booleans())
    def add(self, text: str, named: bool) -> object:
        id = f"s{self.next}" if named else self.next
        self.next += 1
        self.index.add(id, text)
        self.filters[id] = Filter.parse(text)
        return id

    @rule(id=consumes(stored))
    def remove(self, id: object) -> None:
        self.index.remove(id)
        del self.filters[id]

    @rule(event=events)
    def match(self, event: dict[str, object]) -> None:
        assert sorted(self.index.match(event), key=str) == truth(self.filters, event)

    @rule(rows=st.lists(events, max_size=5))
    def match_batch(self, rows: list[dict[str, object]]) -> None:
        batch = as_batch(rows)
        assert batch_matches(self.index, batch) == [truth(self.filters, row) for row in batch.to_pylist()]

    @invariant()
    def has_all(self) -> None:
        assert len(self.index) == len(self.filters)


TestIndexAgainstFilters = IndexAgainstFilters.TestCase
TestIndexAgainstFilters.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def ranges(rng: np.random.Generator, count: int, attributes: int = 8, tests: int = 3) -> dict[int, Filter]:
    """Conjunctions of ranges whose bounds are hundredths, so that events tie with them."""
    filters = {}
    for n in range(count):
        low = rng.integers(0, 90, tests)
        chosen = rng.choice(attributes, tests, replace=False)
        pairs = [
            (f"a{a}", op, v)
            for a, x in zip(chosen, low, strict=True)
            for op, v in ((">=", x / 100), ("<", (x + rng.integers(0, 30)) / 100))
        ]
        filters[n] = Filter.all_of(pairs)
    return filters


def hundredths(rng: np.random.Generator, count: int, attributes: int = 8) -> pa.RecordBatch:
    """Events with ties on bounds and, in every column, one value in ten missing."""
    columns = rng.integers(0, 100, (attributes, count)) / 100
    gone = rng.random((attributes, count)) < 0.1
    return pa.RecordBatch.from_arrays(
        [pa.array(column, mask=mask) for column, mask in zip(columns, gone, strict=True)],
        [f"a{a}" for a in range(attributes)],
    )


@pytest.mark.parametrize("count", [10, 300, 6000])
def test_partitions_of_every_depth_and_both_ways_of_matching_agree_with_the_filters(count: int) -> None:
    rng = np.random.default_rng(count)
    filters = ranges(rng, count)
    index = MatchingIndex(filters.items())
    batch = hundredths(rng, 700)  # more than a tile, so the last one is not full
    offsets, ids = index.match_batch(batch)
    assert ids.dtype == np.int64
    rows = batch.to_pylist()
    for row in range(0, 700, 7):
        event = {name: value for name, value in rows[row].items() if value is not None}
        expected = [n for n, filter in filters.items() if filter.evaluate(event)]
        assert sorted(ids[offsets[row] : offsets[row + 1]].tolist()) == expected
        assert sorted(index.match(event)) == expected


def test_one_by_one_and_at_once_give_the_same_answers_and_so_does_what_is_left_after_removals() -> None:
    rng = np.random.default_rng(5)
    filters = ranges(rng, 3000)
    at_once = MatchingIndex(filters.items())
    one_by_one = MatchingIndex()
    for n, filter in filters.items():
        one_by_one.add(n, filter)
    batch = hundredths(rng, 200)
    assert batch_matches(at_once, batch) == batch_matches(one_by_one, batch)
    for n in range(3000):
        if n % 10:
            at_once.remove(n)
            del filters[n]
    assert len(at_once) == 300
    fresh = MatchingIndex(filters.items())
    assert batch_matches(at_once, batch) == batch_matches(fresh, batch)
    assert at_once.nbytes < one_by_one.nbytes  # compaction has given the room back


def test_equalities_are_found_by_value() -> None:
    rng = np.random.default_rng(6)
    symbols = [f"S{n:04}" for n in range(500)]
    filters = {
        n: Filter.parse(f"symbol = '{symbols[n % 500]}' AND price > {rng.integers(0, 100)} AND lot = {n % 3}")
        for n in range(4000)
    }
    filters[4000] = Filter.parse("symbol IN ('S0001', 'S0002', 'S0003') OR symbol = 'S0002'")
    filters[4001] = Filter.parse(f"symbol IN ({', '.join(repr(s) for s in symbols)})")
    filters[4002] = Filter.parse("symbol NOT IN ('S0001') AND lot <> 2")
    index = MatchingIndex(filters.items())
    for n in range(200):
        event = {"symbol": symbols[n % 7] if n % 2 else "unheard of", "price": n % 100, "lot": n % 4}
        assert sorted(index.match(event), key=str) == truth(filters, event)


def test_a_subscription_with_many_alternatives_is_reported_once() -> None:
    index = MatchingIndex([("s", "a > 1 OR b > 1 OR a > 2 OR c IN (1, 2, 3)"), ("t", "a > 100")])
    assert index.match({"a": 5, "b": 5, "c": 2}) == ["s"]
    batch = pa.RecordBatch.from_pydict({"a": [5.0, 0.0] * 50, "b": [5, 0] * 50, "c": [2, 3] * 50})
    assert batch_matches(index, batch) == [["s"]] * 100


def test_nothing_matches_in_an_empty_index_and_an_impossible_filter_never_does() -> None:
    index = MatchingIndex()
    assert index.match({"a": 1}) == []
    offsets, ids = index.match_batch(pa.RecordBatch.from_pydict({"a": [1.0, 2.0]}))
    assert offsets.tolist() == [0, 0, 0]
    assert len(ids) == 0
    index.add("never", "a > 5 AND a < 3")
    index.add("always", "TRUE")
    assert index.match({"a": 4}) == ["always"]
    assert index.match({}) == ["always"]
    index.remove("never")
    index.remove("always")
    assert index.match({"a": 4}) == []
    assert index.match_batch(pa.RecordBatch.from_pydict({"a": pa.array([], pa.float64())}))[0].tolist() == [0]


def test_bad_input_is_refused_and_leaves_the_index_as_it_was() -> None:
    index = MatchingIndex([("s", "a > 1")])
    with pytest.raises(InputError, match="'s' is in the index already"):
        index.add("s", "a > 2")
    with pytest.raises(FilterError):
        index.add_many([("t", "a > 2"), ("u", "a >")])
    assert "t" not in index
    with pytest.raises(InputError, match="no subscription 'x'"):
        index.remove("x")
    for wrong in (math.nan, math.inf, [1], 2**64):
        with pytest.raises(EventError, match="'a'"):
            index.match({"a": wrong})
    assert index.match({"a": 2, "ignored": math.nan}) == ["s"]
    with pytest.raises(EventError, match="column 'a', row 1"):
        index.match_batch(pa.RecordBatch.from_pydict({"a": [2.0, math.nan]}))
    with pytest.raises(EventError, match="column 'a', row 9000"):
        index.match_batch(pa.RecordBatch.from_pydict({"a": [2.0] * 9000 + [math.inf]}))
    with pytest.raises(EventError, match="column 'a' is of type list"):
        index.match_batch(pa.RecordBatch.from_pydict({"a": [[2.0], [1.0]]}))
    assert index.match({"a": 2}) == ["s"]


def test_arrow_types_of_every_width_are_understood() -> None:
    index = MatchingIndex([(1, "a = 2"), (2, "s = 'x'"), (3, "b"), (4, "a IS NULL"), (5, "s LIKE 'x%'")])
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(24, 2)):
        batch = pa.RecordBatch.from_pydict({"a": pa.array([1, 2, None], pa.int64()).cast(kind)})
        assert batch_matches(index, batch) == [[], [1], [4]]
    strings = pa.array(["x", "y", None])
    for column in (strings, strings.cast(pa.large_string()), strings.dictionary_encode()):
        assert batch_matches(index, pa.RecordBatch.from_pydict({"s": column, "a": [1, 1, 1]})) == [[2, 5], [], []]
    assert batch_matches(index, pa.RecordBatch.from_pydict({"b": [True, False], "a": [1, 1]})) == [[3], []]


def test_whole_numbers_beyond_double_precision_are_told_apart() -> None:
    index = MatchingIndex([("eq", f"id = {2**53 + 1}"), ("gt", f"id > {2**53}"), ("le", f"id <= {2**53}")])
    assert sorted(index.match({"id": 2**53})) == ["le"]
    assert sorted(index.match({"id": 2**53 + 1})) == ["eq", "gt"]
    batch = pa.RecordBatch.from_pydict({"id": pa.array([2**53, 2**53 + 1, 2**53 + 2] * 30, pa.int64())})
    assert batch_matches(index, batch) == [["le"], ["eq", "gt"], ["gt"]] * 30


def test_a_thousand_attributes_of_which_an_event_has_few() -> None:
    rng = np.random.default_rng(8)
    filters = {n: Filter.all_of([(f"x{a}", ">", 0.5) for a in rng.choice(1000, 3, replace=False)]) for n in range(3000)}
    index = MatchingIndex(filters.items())
    for _ in range(50):
        event = {f"x{a}": float(rng.random()) for a in rng.choice(1000, 200, replace=False)}
        assert sorted(index.match(event)) == [n for n, filter in filters.items() if filter.matches(event)]


@given(rows=st.lists(events, min_size=64, max_size=80))
@settings(max_examples=10, deadline=None)
def test_large_batches_of_mixed_events(rows: list[dict[str, object]]) -> None:
    texts = ["p > 0 AND q < 2", "p BETWEEN -1 AND 1", "s = 'a' OR r LIKE 'a%'", "p <> 1", "q IS NULL", "r AND p > 0"]
    filters = {n: Filter.parse(texts[n % len(texts)]) for n in range(100)}
    index = MatchingIndex(filters.items())
    batch = as_batch(rows)
    assert batch_matches(index, batch) == [truth(filters, row) for row in batch.to_pylist()]


def test_an_index_can_be_shipped_to_workers() -> None:
    index = MatchingIndex([("s", "a > 1 AND b LIKE 'x%'")])
    assert pickle.loads(pickle.dumps(index)).match({"a": 2, "b": "xy"}) == ["s"]


def test_an_unpickled_index_can_be_changed_like_the_one_it_was_made_of() -> None:
    rng = np.random.default_rng(4)
    low = rng.random(2000).tolist()
    index = MatchingIndex((n, f"p > {a} AND p < {a + 0.05} AND q = {n % 9}") for n, a in enumerate(low))
    index.add_many([("never", "FALSE"), ("either", "p IN (1, 2, 3) OR q > 5"), ("like", "s LIKE 'a%' AND q < 3")])
    for gone in (0, 5, 1999):
        index.remove(gone)
    copy = pickle.loads(pickle.dumps(index, protocol=5))
    again = pickle.loads(pickle.dumps(copy))  # of an index whose ids have not been asked for yet
    events = [{"p": p, "q": int(q), "s": "ab"} for p, q in zip(rng.random(300), rng.integers(0, 9, 300), strict=True)]
    for other in (copy, again):
        assert len(other) == len(index) == 2000
        assert [sorted(map(str, other.match(e))) for e in events] == [sorted(map(str, index.match(e))) for e in events]
        assert "never" in other
        assert 5 not in other
        with pytest.raises(InputError, match="already"):
            other.add("never", "p > 1")
        for old in ("never", "either", 7):
            other.remove(old)
        other.add_many((f"new {n}", f"p > {n / 1000}") for n in range(1000))
        assert sorted(map(str, other.match({"p": 0.0015, "q": 8}))) == ["new 0", "new 1"]


def test_a_pickled_index_is_without_room_to_grow() -> None:
    index = MatchingIndex((n, f"p > {n}") for n in range(5000))
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(index, protocol=5, buffer_callback=buffers.append)
    assert len(head) < 20_000, "all that grows with the subscriptions is in buffers"
    assert sum(buffer.raw().nbytes for buffer in buffers) <= index.nbytes


def test_ids_may_be_tuples():
    index = MatchingIndex([(("alice", 1), "price > 10"), (("bob", 2), "price > 20 OR symbol = 'IBM'")])
    index.add(("carol", 3), "price < 5 OR price > 30")
    assert sorted(index.match({"price": 35.0})) == [("alice", 1), ("bob", 2), ("carol", 3)]
    assert index.match({"price": 1.0}) == [("carol", 3)]
