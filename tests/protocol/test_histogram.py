"""Durations counted by size: buckets without gaps, quantiles within 6 %, and coarser counts that are exact."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol._histogram import MAX_BUCKET, add_up, at_most, bucket_of, lower_edge_ns, quantile_ns, sum_ns

UNIT_NS = 1_024
FINE_NS = 16 * UNIT_NS
"""Below, a bucket is one unit wide."""
durations = st.one_of(st.integers(0, 10**6), st.integers(0, 10**10), st.integers(0, 2**64 - 1))
powers = st.integers(10, 63).map(lambda power: 1 << power)


def counted(values: list[int]) -> dict[int, int]:
    histogram: dict[int, int] = {}
    for value in values:
        add_up(histogram, {bucket_of(value): 1})
    return histogram


@given(durations)
def test_a_duration_lies_between_the_edges_of_its_bucket(duration_ns: int) -> None:
    bucket = bucket_of(duration_ns)
    assert lower_edge_ns(bucket) <= duration_ns < lower_edge_ns(bucket + 1)
    assert 0 <= bucket <= MAX_BUCKET


def test_every_edge_begins_its_own_bucket_and_none_is_left_out() -> None:
    for bucket in range(MAX_BUCKET):
        edge_ns = lower_edge_ns(bucket)
        assert bucket_of(edge_ns) == bucket
        assert bucket == 0 or bucket_of(edge_ns - 1) == bucket - 1


@given(st.integers(-(2**64), -1))
def test_a_duration_below_zero_counts_as_none(duration_ns: int) -> None:
    assert bucket_of(duration_ns) == 0


@given(st.lists(durations, min_size=1, max_size=50), st.floats(0.0, 1.0))
def test_a_quantile_is_right_within_6_percent(values: list[int], share: float) -> None:
    """Half of a bucket that is an eighth of an octave wide; below 16 units, one unit."""
    found_ns = quantile_ns(counted(values), share)
    true_ns = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
    assert found_ns is not None
    edges_ns = lower_edge_ns(bucket_of(true_ns)), lower_edge_ns(bucket_of(true_ns) + 1)
    assert edges_ns[0] <= found_ns <= edges_ns[1], "it lies in the bucket of the true one"
    middle_ns = sum(edges_ns) / 2
    assert abs(true_ns - middle_ns) <= (UNIT_NS if true_ns < FINE_NS else 0.0625 * true_ns)


@given(durations, st.integers(1, 1_000))
def test_of_equal_durations_the_median_is_right_within_6_percent(duration_ns: int, many: int) -> None:
    found_ns = quantile_ns({bucket_of(duration_ns): many}, 0.5)
    assert found_ns is not None
    assert abs(found_ns - duration_ns) <= (UNIT_NS if duration_ns < FINE_NS else 0.0625 * duration_ns)


def test_of_nothing_there_is_no_quantile() -> None:
    assert quantile_ns({}, 0.5) is None
    assert quantile_ns({3: 0}, 0.5) is None


@given(st.lists(st.one_of(durations, powers), max_size=50), st.lists(powers, max_size=10))
def test_counts_below_powers_of_two_are_exact(values: list[int], edges_ns: list[int]) -> None:
    assert at_most(counted(values), edges_ns) == [sum(value < edge for value in values) for edge in edges_ns]


@given(st.lists(durations, max_size=30), st.lists(durations, max_size=30))
def test_histograms_add_up(one: list[int], other: list[int]) -> None:
    both = counted(one)
    add_up(both, counted(other))
    assert both == counted(one + other)


@given(st.lists(st.integers(FINE_NS, 10**12), max_size=30))
def test_a_sum_is_right_within_6_percent(values: list[int]) -> None:
    assert abs(sum_ns(counted(values)) - sum(values)) <= 0.0625 * sum(values)
