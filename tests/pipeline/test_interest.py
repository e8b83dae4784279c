"""Interest against the filters themselves: the matches of an event are what `Filter.evaluate` and the lifetimes say."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidings import FilterError, InputError
from tidings.model.filters import Filter
from tidings.pipeline.interest import BAD_FILTER, Interests, parse_filters, with_matches
from tidings.pipeline.interest import _index_file as shipping
from tidings.pipeline.interest._filter_reader import read_filter
from tidings.pipeline.interest._matcher import Matcher, expanded

TYPES = {"p": pa.float64(), "q": pa.int64(), "s": pa.string(), "t": pa.bool_()}
COLUMNS = "sequence bigint, departure_ns bigint, attributes struct<p:double,q:bigint,s:string,t:boolean>, note string"
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "p": st.one_of(st.sampled_from([-1.5, 0.0, 0.5, 2.0, math.nan, math.inf, 2.0**53]), st.floats(-3, 3)),
    "q": st.one_of(st.integers(-3, 3), st.sampled_from([2**53 + 1, 2**63 - 1])),
    "s": st.sampled_from(["", "a", "ab", "b", "it's", "Ä"]),
    "t": st.booleans(),
}
NAMES = [*TYPES, "absent"]
events = st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in VALUES.items()})
lifetimes = st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 8)))


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    number = draw(st.sampled_from(["-1.5", "0", ".5", "2.", "1e0", "-2", "9007199254740993", "9223372036854775807"]))
    string = draw(st.sampled_from(["''", "'a'", "'it''s'", "'AND b'", "'Ä'"]))
    literal = draw(st.sampled_from([number, number, string]))
    blank = draw(st.sampled_from(["", " ", "\n "]))
    return f"{name}{blank}{draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))}{blank}{literal}"


others = st.sampled_from(
    ["t", "NOT t", "s LIKE 'a%'", "p + 1 > q", "q IN (1, 2, 3)", "s IS NULL", "absent IS NULL", "TRUE", "FALSE",
     "p BETWEEN 0 AND 1", "(p > 0 OR s = 'a')", "t = TRUE"]
)  # fmt: skip
conjunctions = st.lists(comparisons(), min_size=1, max_size=4).map(" AND ".join)
filters = st.one_of(
    conjunctions, st.lists(st.one_of(comparisons(), others), min_size=1, max_size=3).map(" and ".join),
    st.tuples(conjunctions, others).map(" OR ".join),
)  # fmt: skip


def table(rows: Sequence[tuple[int, str | None, int | None, int | None]]) -> pa.Table:
    numbers, texts, starts, ends = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()), "filter": pa.array(texts, pa.string()),
            "from_ns": pa.array(starts, pa.int64()), "until_ns": pa.array(ends, pa.int64()),
        }
    )  # fmt: skip


def interests_of(*texts: str) -> Interests:
    interests, faults = parse_filters(table([(number, text, 0, None) for number, text in enumerate(texts)]))
    assert not faults
    return interests


def truth(rows: Sequence[tuple[int, str, int, int | None]], event: dict[str, Any], departure_ns: int) -> list[int]:
    known = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in event.items()}
    return sorted(
        number
        for number, text, start, end in rows
        if start <= departure_ns and (end is None or departure_ns < end) and Filter.parse(text).evaluate(known)
    )


def arrays(given_events: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([event[name] for event in given_events], kind) for name, kind in TYPES.items()}


# -- reading ---------------------------------------------------------------------------------------------------------


def outcome(read: Callable[[str], Filter], text: str) -> str:
    """The condition that was read (its repr tells 1 from 1.0 and TRUE), or the message of the refusal."""
    try:
        return repr(read(text).condition)
    except FilterError as error:
        return f"refused: {error}"


@given(st.one_of(filters, st.text("aN>=<'.-1e \tAD$", max_size=20)))
@example("a > 5AND b > 3")
@example("a > --5 AND é < 1")
@example("a > 5 AND\x1cb > 3")
@example("a = 9223372036854775807 AND b = -9223372036854775808")
@settings(max_examples=300, deadline=None)
def test_a_text_is_read_as_the_grammar_reads_it(text: str) -> None:
    assert outcome(read_filter, text) == outcome(Filter.parse, text)


@pytest.mark.parametrize(
    "text",
    ["and > 5", "a > 5 AND", "a > 12345678901234567890", "a > 1e999", "a = 'x", "a = 'x''",
     "a > 5 b", "a > 5.e", "a.1 > 5 AND not = 3", "a > TRUE", "a > 'é"],
)  # fmt: skip
def test_what_is_no_filter_is_refused_in_the_words_of_the_grammar(text: str) -> None:
    assert outcome(read_filter, text) == outcome(Filter.parse, text)
    assert outcome(read_filter, text).startswith("refused")


def test_bad_filters_are_faults_and_the_others_go_on() -> None:
    rows = [(7, "p >", 0, None), (3, "p > 1", 0, None), (4, None, 0, None), (5, "p > 1", 0, None), (9, "p >", 0, 1)]
    interests, faults = parse_filters(table(rows))
    assert [(fault.number, fault.filter) for fault in faults] == [(7, "p >"), (4, None), (9, "p >")]
    assert "expected" in faults[0].message
    assert "no filter" in faults[1].message
    assert len(interests.filters) == 1, "a text is parsed once"
    assert interests.numbers.tolist() == [3, 5]
    assert len(interests) == 2
    assert BAD_FILTER == "bad-filter"


def test_a_table_that_is_none_of_subscriptions_is_refused() -> None:
    with pytest.raises(InputError, match="no column 'filter'"):
        parse_filters(table([]).drop_columns("filter"))
    with pytest.raises(InputError, match="same number"):
        parse_filters(table([(1, "p > 1", 0, None), (1, "p > 2", 0, None)]))


# -- matching --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(filters, lifetimes), max_size=12), st.lists(st.tuples(events, st.integers(0, 8)), max_size=8))
@settings(max_examples=150, deadline=None)
def test_against_the_filters_themselves(
    stored: list[tuple[str, tuple[int, int | None]]], happened: list[tuple[dict[str, Any], int]]
) -> None:
    # numbers that do not follow the order of the rows
    rows = [((5 * i + 3) % 12, text, *lifetime) for i, (text, lifetime) in enumerate(stored)]
    matcher = Matcher(parse_filters(table(rows))[0])
    departures = pa.array([departure for _, departure in happened], pa.int64())
    found = matcher.matches(departures, arrays([event for event, _ in happened]))
    assert found.type == pa.list_(pa.int32())
    assert found.to_pylist() == [truth(rows, event, departure) for event, departure in happened]


def test_a_lifetime_begins_with_its_first_nanosecond_and_ends_before_its_last() -> None:
    start, end = 2**60 + 1, 2**60 + 3  # where doubles cannot tell neighbours apart
    matcher = Matcher(parse_filters(table([(0, "TRUE", start, end), (1, "TRUE", None, None), (2, "TRUE", 5, 5)]))[0])
    departures = pa.array([start - 1, start, end - 1, end, None, -(2**63) + 1], pa.int64())
    assert matcher.matches(departures, {}).to_pylist() == [[1], [0, 1], [0, 1], [1], [], [1]]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_kernel_and_its_twin_agree(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    numbers = np.array(data.draw(st.permutations(range(int(starts[-1])))), np.int32)
    spans = [data.draw(st.tuples(st.integers(0, 4), st.integers(0, 5))) for _ in numbers]
    from_ns, until_ns = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    found = [data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True)) for _ in range(4)]
    offsets = np.concatenate([[0], np.cumsum([len(f) for f in found])]).astype(np.int64)
    flat = np.array([f for each in found for f in each], np.int64)
    departures = np.arange(4, dtype=np.int64)
    ends, out = expanded(offsets, flat, starts, numbers, from_ns, until_ns, departures)
    for event, matched in enumerate(found):
        members = [s for f in matched for s in range(starts[f], starts[f + 1]) if from_ns[s] <= event < until_ns[s]]
        assert out[ends[event] : ends[event + 1]].tolist() == sorted(numbers[members].tolist())


# -- shipping --------------------------------------------------------------------------------------------------------


def test_a_packed_matcher_matches_as_the_one_it_was_made_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    texts = [f"p > {low} AND p <= {low + 0.1} AND q <> {n % 7}" for n, low in enumerate(rng.random(3000).tolist())]
    interests = interests_of(*texts, "s LIKE 'a%' AND p < .5", "FALSE", "s IN ('a', 'b') OR t")
    matcher = Matcher(interests)
    path = shipping.write_packed(matcher, tmp_path)
    before = path.read_bytes()
    restored = shipping.read_packed(path)
    count = 500
    columns = {
        "p": pa.array(rng.random(count)), "q": pa.array(rng.integers(0, 7, count)),
        "s": pa.array(rng.choice(["a", "ab", "c"], count)), "t": pa.array(rng.random(count) < 0.1),
    }  # fmt: skip
    departures = pa.array(np.zeros(count, np.int64))
    assert restored.matches(departures, columns).equals(matcher.matches(departures, columns))
    assert restored._index._state.slots.ctypes.data % shipping.ALIGNED == 0
    restored._index.remove(0)  # writes into mapped pages
    restored._index.add(0, "p > 2")
    assert path.read_bytes() == before
    assert shipping.write_packed(matcher, tmp_path) == path
    assert shipping.write_packed(Matcher(interests_of("p > 1")), tmp_path) != path
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TMPDIR"):
        shipping.write_packed(Matcher(interests_of("p > 1")), tmp_path / "missing")


# -- in Spark --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[tuple[int, int, tuple[Any, ...], str]]:
    rng = np.random.default_rng(3)
    out: list[tuple[int, int, tuple[Any, ...], str]] = []
    for n in range(300):
        p, q, s, t = rng.random() * 4 - 2, int(rng.integers(-3, 4)), str(rng.choice(["a", "ab", "it's"])), n % 3 == 0
        values = [p if n % 11 else math.nan, q, s, t]
        values[n % 4] = None if n % 5 == 0 else values[n % 4]
        out.append((n, n // 3, tuple(values), f"note {n}"))
    return out


def expected(subscriptions: Sequence[tuple[int, str, int, int | None]], rows: list[Any]) -> dict[int, list[int]]:
    return {n: truth(subscriptions, dict(zip(TYPES, values, strict=True)), at) for n, at, values, _ in rows}


def matched(frame: Any) -> dict[int, list[int]]:
    return {row.sequence: row.matches for row in frame.collect()}


@pytest.mark.spark
def test_in_spark(spark: Any, rows: list[Any]) -> None:
    texts = ["p > 0", "q = 1 AND s = 'it''s'", "t", "NOT t OR p < -1", "s LIKE 'a%'", "p > q", "absent IS NULL",
             "absent > 3", "q IN (1, 2)", "p IS NULL", "TRUE", "FALSE"]  # fmt: skip
    stored = [(3 * n + 1, text, 5 * n, 40 + n if n % 2 else None) for n, text in enumerate(texts)]
    publications = spark.createDataFrame(rows, COLUMNS).repartition(3)
    frame = with_matches(publications, parse_filters(table(stored))[0])
    assert frame.columns == [*publications.columns, "matches"]
    assert frame.schema["matches"].dataType.simpleString() == "array<int>"
    assert matched(frame) == expected(stored, rows)
    assert {row.sequence: row.note for row in frame.collect()} == {n: note for n, _, _, note in rows}


@pytest.mark.spark
def test_two_sets_of_subscriptions_in_one_session_do_not_mix(spark: Any, rows: list[Any]) -> None:
    publications = spark.createDataFrame(rows, COLUMNS)
    sets = [[(n, f"p > {n}.{k}", 0, None) for n in range(-2, 2)] for k in range(shipping.MAX_MAPPED + 2)]
    frames = [with_matches(publications, parse_filters(table(rows_of))[0]) for rows_of in sets]
    for rows_of, frame in [*zip(sets, frames, strict=True), (sets[0], frames[0])]:
        assert matched(frame) == expected(rows_of, rows)
    both = with_matches(frames[0].withColumnRenamed("matches", "first"), parse_filters(table(sets[1]))[0])
    assert {row.sequence: row.first for row in both.collect()} == expected(sets[0], rows)
    assert matched(both) == expected(sets[1], rows)


@pytest.mark.spark
def test_no_subscriptions_no_events_no_attributes(spark: Any, rows: list[Any]) -> None:
    publications = spark.createDataFrame(rows, COLUMNS)
    assert matched(with_matches(publications, parse_filters(table([]))[0])) == {n: [] for n, *_ in rows}
    nothing = publications.where("sequence < 0")
    assert matched(with_matches(nothing, interests_of("p > 0"))) == {}
    bare = publications.selectExpr("sequence", "departure_ns", "named_struct('other', 1) AS attributes")
    assert matched(with_matches(bare, interests_of("p > 0", "p IS NULL"))) == {n: [1] for n, *_ in rows}


@pytest.mark.full
@pytest.mark.spark
def test_thousands_of_subscriptions(spark: Any, rows: list[Any]) -> None:
    rng = np.random.default_rng(9)
    low = np.round(rng.random(5000) * 4 - 2, 3).tolist()
    stored = [(n, f"p >= {a} AND p < {a + 0.01:.3f} AND q > {n % 5 - 3}", n % 100, None) for n, a in enumerate(low)]
    frame = with_matches(spark.createDataFrame(rows, COLUMNS), parse_filters(table(stored))[0])
    few = rows[::10]
    found = matched(frame)
    assert {n: found[n] for n, *_ in few} == expected(stored, few)


@pytest.mark.spark
def test_attributes_that_no_filter_can_read_are_refused(spark: Any) -> None:
    frame = spark.sql("SELECT 1L AS departure_ns, named_struct('p', current_date(), 'q', 1) AS attributes")
    with pytest.raises(InputError, match=r"attribute 'p' is of type date.*cast it"):
        with_matches(frame, interests_of("p > 1"))
    assert with_matches(frame, interests_of("q = 1")).collect()[0].matches == [0], "nobody reads p"
    with pytest.raises(InputError, match="not a struct"):
        with_matches(frame.selectExpr("departure_ns", "1 AS attributes"), interests_of("p > 1"))


@pytest.mark.spark
def test_who_wants_what_as_a_frame(spark: Any) -> None:
    """DataFrames in, a DataFrame out, on the caller's session; its settings stay as they are."""
    from tidings.pipeline import interest

    events = [("p", n, n, (n, "red" if n % 2 else "blue")) for n in range(6)]
    columns = "publisher string, sequence bigint, departure_ns bigint, attributes struct<x: bigint, colour: string>"
    publications = spark.createDataFrame(events, columns)
    wanted = [("high", "x > 3", None), ("red", "colour = 'red'", 2), ("nothing", "y = 1", None)]
    subscriptions = spark.createDataFrame(wanted, "subscription string, filter string, from_ns bigint")
    before = dict(spark.conf.getAll)
    found = interest.of(publications, subscriptions)
    assert found.columns == ["publisher", "sequence", "departure_ns", "subscription"]
    pairs = sorted((row["subscription"], row["sequence"]) for row in found.collect())
    assert pairs == [("high", 4), ("high", 5), ("red", 3), ("red", 5)]
    assert dict(spark.conf.getAll) == before
    wrong = spark.createDataFrame([("s", "x >")], "subscription string, filter string")
    with pytest.raises(InputError, match="subscription 's': found the end"):
        interest.of(publications, wrong)
