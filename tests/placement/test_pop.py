"""POP: which events are traced, what brokers learn, where the walk ends. Figure 1 of paper E step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.placement import ProfileTable, RelocationRequest, TagWindow, next_broker, running_average, walk

SECOND_NS = 1_000_000_000


@dataclass
class Known:
    local: float
    behind: Mapping[int, float] = field(default_factory=dict)


FIGURE_1 = {
    1: Known(1, {2: 6, 4: 3, 5: 15}),
    5: Known(0, {6: 15}),
    6: Known(5, {7: 4, 8: 6}),
}
"""Publisher at B1; behind B5 there are 15, all at B6 and beyond (how they divide there the figure leaves open)."""


def test_figure_1_step_by_step() -> None:
    request = RelocationRequest()
    assert next_broker(FIGURE_1[1], request) == 5
    request = request.passed(1, 10)
    assert (request.left_behind, request.brokers) == (10, (1,))
    assert next_broker(FIGURE_1[5], request) == 6
    request = request.passed(5, 0)
    assert (request.left_behind, request.brokers) == (10, (5, 1))
    assert next_broker(FIGURE_1[6], request) is None
    assert walk(1, FIGURE_1.__getitem__) == (1, 5, 6)


def test_a_tie_stays_and_nobody_turns_back() -> None:
    assert next_broker(Known(5, {2: 5}), RelocationRequest()) is None
    assert next_broker(Known(0, {2: 5, 3: 1}), RelocationRequest(left_behind=1, brokers=(2,))) is None


@given(seed=st.integers(0, 2**32 - 1), brokers=st.integers(1, 30))
def test_with_true_counts_the_walk_ends_at_the_least_total_distance(seed, brokers) -> None:
    generator = np.random.default_rng(seed)
    parent = [-1] + [int(generator.integers(child)) for child in range(1, brokers)]
    neighbours = {b: [c for c in range(brokers) if parent[c] == b] + ([parent[b]] if b else []) for b in range(brokers)}
    local = generator.integers(0, 6, size=brokers).tolist()

    def served(broker: int, before: int) -> tuple[int, int]:
        """Subscribers at this broker and behind it, and the sum of their distances from it."""
        count, distance = local[broker], 0
        for other in neighbours[broker]:
            if other != before:
                there, further = served(other, broker)
                count, distance = count + there, distance + further + there
        return count, distance

    home = int(generator.integers(brokers))
    upstream = {home: -1}
    waiting = [home]
    while waiting:
        broker = waiting.pop()
        for other in neighbours[broker]:
            if other != upstream[broker]:
                upstream[other] = broker
                waiting.append(other)
    end = walk(
        home,
        lambda b: Known(local[b], {n: served(n, b)[0] for n in neighbours[b] if n != upstream[b]}),
    )[-1]
    assert served(end, -1)[1] == min(served(b, -1)[1] for b in range(brokers))


def test_a_window_traces_its_first_event_and_no_more_than_its_bound() -> None:
    window = TagWindow(most=3, window_ns=60 * SECOND_NS)
    assert [window.tag(second * SECOND_NS, 0.0) for second in range(5)] == [True, True, True, False, False]
    assert window.tag(60 * SECOND_NS, 0.999)
    assert window.probability == pytest.approx(2 / 3)


def test_the_chance_of_the_kth_event_falls() -> None:
    """(1 - 1/N)^(k-1); 40,000 windows: the standard error is below .0025, the margin is five of them."""
    generator = np.random.default_rng(5)
    tagged = np.zeros(6)
    windows = 40_000
    for _ in range(windows):
        window = TagWindow(most=4)
        tagged += [window.tag(0, generator.random()) for _ in range(len(tagged))]
    assert tagged / windows == pytest.approx((1 - 1 / 4) ** np.arange(6), abs=0.0125)


def test_a_table_starts_with_the_first_sample_and_counts_silence_as_nothing() -> None:
    table = ProfileTable((2, 3, 4))
    table.record(local=4, behind={2: 8}, upstream=4)
    assert (table.local, table.behind) == (4.0, {2: 8.0, 3: 0.0})
    table.record(local=0, behind={3: 4}, upstream=4)
    assert (table.local, table.behind) == (3.0, {2: 6.0, 3: 1.0})


@given(samples=st.lists(st.integers(0, 1000), max_size=60))
def test_the_average_of_many_samples_is_that_of_one_after_the_other(samples) -> None:
    table = ProfileTable((2,))
    for sample in samples:
        table.record(local=sample, behind={2: 2 * sample})
    assert running_average(samples) == pytest.approx(table.local)
    if samples:
        assert running_average([2 * sample for sample in samples]) == pytest.approx(table.behind[2])


def test_reports_of_strangers_and_from_upstream_are_refused() -> None:
    table = ProfileTable((2, 3))
    with pytest.raises(InputError, match="broker 9, which is not a neighbour"):
        table.record(local=0, behind={9: 1})
    with pytest.raises(InputError, match="broker 2, which the event itself came from"):
        table.record(local=0, behind={2: 1}, upstream=2)
    assert table.behind == {}
    with pytest.raises(ConfigurationError):
        ProfileTable((1,), weight=0.0)
    with pytest.raises(ConfigurationError):
        TagWindow(most=0)
    with pytest.raises(ConfigurationError):
        TagWindow(window_ns=0)
