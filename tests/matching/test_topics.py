"""Topic patterns in every index: the same answers as the filters give, however many shapes there are."""

import random
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.matching import MaskIndex, MatchingIndex, PlainIndex
from tidings.matching._topics import MAX_LITERAL_LEVELS, MAX_SHAPES, TopicShapes, shape_of
from tidings.model.filters import Filter, Topic

LEVELS = st.sampled_from(["a", "b", "", "$SYS", "é"])
PATTERNS = st.tuples(st.lists(LEVELS | st.just("+"), max_size=3), st.sampled_from(["#", "+", "a"])).map(
    lambda drawn: "/".join([*drawn[0], drawn[1]])
)
CONDITIONS = st.sampled_from(["", " AND x > 2", " AND x < 4 AND NOT t MATCHES '+/a'", " AND t LIKE '%a'", " OR x = 3"])
TEXTS = st.tuples(st.sampled_from(["", "NOT "]), PATTERNS, CONDITIONS).map(
    lambda drawn: f"t {drawn[0]}MATCHES '{drawn[1]}'{drawn[2]}"
)
TOPICS = st.lists(LEVELS | st.sampled_from(["+", "#"]), min_size=1, max_size=5).map("/".join)
EVENTS = st.fixed_dictionaries(
    {}, optional={"t": TOPICS | st.none() | st.integers(0, 3) | st.booleans(), "x": st.integers(0, 5)}
)


def check(filters: dict[int, Filter], events: list[dict[str, object]], gone: set[int]) -> None:
    """All indexes against the filters, after some have been removed."""
    index, plain, masks = MatchingIndex(filters.items()), PlainIndex[int](), MaskIndex()
    bits = {}
    for number, filter in filters.items():
        plain.put(number, filter)
        bits[number] = masks.add(filter)
    masks.match({})
    for number in gone:
        index.remove(number)
        plain.remove(number)
        masks.remove(bits.pop(number))
    left = {number: filter for number, filter in filters.items() if number not in gone}
    expected = [[number for number, filter in left.items() if filter.matches(event)] for event in events]
    for event, numbers in zip(events, expected, strict=True):
        assert sorted(index.match(event)) == numbers  # type: ignore[type-var]
        assert sorted(plain.match(event)) == numbers
        mask = masks.match(event)
        assert [number for number, own in bits.items() if own & mask] == numbers
    of_strings = [row for row, event in enumerate(events) if type(event.get("t")) in (str, type(None))]
    topics = pa.array([events[row].get("t") for row in of_strings], pa.string())
    numbers_x = pa.array([events[row].get("x") for row in of_strings], pa.int64())
    for column in (topics, topics.dictionary_encode()):
        offsets, ids = index.match_batch(pa.record_batch({"t": column, "x": numbers_x}))
        found = [sorted(ids[start:end].tolist()) for start, end in pairwise(offsets.tolist())]
        assert found == [expected[row] for row in of_strings]


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=25),
    events=st.lists(EVENTS, min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
def test_every_index_answers_as_the_filters_do(texts: list[str], events: list[dict[str, object]], seed: int) -> None:
    filters = {number: Filter.parse(text) for number, text in enumerate(texts)}
    rng = random.Random(seed)
    check(filters, events, {number for number in filters if rng.random() < 0.2})


def test_more_shapes_than_an_index_keeps() -> None:
    rng = random.Random(3)
    patterns = set()
    while len(patterns) < 400:
        levels = [rng.choice(["+", "a", "b", "c"]) for _ in range(rng.randrange(1, 12))]
        patterns.add("/".join([*levels, "#"] if rng.random() < 0.4 else levels))
    assert len({shape_of(pattern) for pattern in patterns}) > 4 * MAX_SHAPES
    ordered = sorted(patterns)
    filters = {n: Filter.parse(f"t {'NOT ' * (n % 9 == 0)}MATCHES '{p}'") for n, p in enumerate(ordered)}
    events = [{"t": "/".join(rng.choices("abc", k=rng.randrange(1, 13)))} for _ in range(150)]
    check(filters, events, set(range(0, 400, 7)))


def test_the_shapes_of_an_attribute_are_bounded() -> None:
    shapes, kept = TopicShapes(), set()
    for number in range(1, 2_000):
        levels = ["+" if number >> place & 1 else "a" for place in range(11)]
        for clause in shapes.settled(Filter.parse(f"t MATCHES '{'/'.join(levels)}'")):
            (test,) = clause.tests
            assert isinstance(test, Topic)
            kept.add(shape_of(test.pattern))
    assert len(kept) <= MAX_SHAPES + MAX_LITERAL_LEVELS + 1


def test_patterns_of_one_shape_are_found_by_a_look_up() -> None:
    index = MatchingIndex((number, f"t MATCHES 'plant/{number}/+/temp/#'") for number in range(20_000))
    assert index.match({"t": "plant/777/x/temp/y/z"}) == [777]
    assert not index._unsure
    assert index._columns.count == 2
