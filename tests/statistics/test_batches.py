"""Intervals for shares of events that are late together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.statistics import BATCHES, shares_of_batches

RUNS = 400


def sojourns(load: float, events: int, seed: int) -> np.ndarray:
    """[run, event]: times in M/M/1 queues of mean service 1 that have been running for ever, by Lindley's recursion."""
    generator = np.random.default_rng(seed)
    service = generator.exponential(1.0, (events, RUNS))
    interval = generator.exponential(1.0 / load, (events, RUNS))
    wait = np.where(generator.random(RUNS) < load, generator.exponential(1.0 / (1.0 - load), RUNS), 0.0)
    out = np.empty((events, RUNS))
    for number in range(events):
        out[number] = wait + service[number]
        wait = np.maximum(0.0, out[number] - interval[number])
    return out.T


class TestCoverage:
    # The share of 400 intervals that cover has a standard error of .011 at .95, so that .93 to .97 asked of the
    # long run are .905 to .99 here, 2.3 standard errors further out.
    @pytest.mark.parametrize("reliability", [0.5, 0.9, 0.97])
    @pytest.mark.parametrize(("load", "events"), [(0.3, 8_000), (0.5, 8_000), (0.8, 30_000), (0.9, 60_000)])
    def test_intervals_cover_what_is_so_in_the_long_run(self, load: float, events: int, reliability: float) -> None:
        lifetime = -np.log(1.0 - reliability) / (1.0 - load)
        on_time = (sojourns(load, events, seed=7) < lifetime).reshape(RUNS, BATCHES, -1).sum(axis=2)
        covers, rough = [], 0
        for run in on_time:
            found = shares_of_batches(run[:, None], np.full((BATCHES, 1), events // BATCHES), level=0.95)
            rough += bool(found.is_rough[0])
            covers.append(found.interval.low[0] <= reliability <= found.interval.high[0])
        assert rough < RUNS / 4 or load == 0.9
        assert 0.905 <= np.mean(covers) <= 0.99

    def test_what_counts_events_as_independent_covers_far_less(self) -> None:
        """The reason for batches: with a load of .9, one event in a hundred is one of its own."""
        lifetime = -np.log(0.1) / 0.1
        on_time = (sojourns(0.9, 20_000, seed=8) < lifetime).reshape(RUNS, BATCHES, -1).sum(axis=2)
        found = shares_of_batches(on_time.T, np.full(on_time.T.shape, 2_000), level=0.95)
        assert 20.0 < np.median(found.effective) < 400.0


class TestShares:
    @given(
        counts=st.lists(
            st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair))),
            min_size=2,
            max_size=12,
        )
    )
    def test_the_share_is_that_of_all_and_lies_within(self, counts: list[tuple[int, int]]) -> None:
        hits, trials = np.array(counts).T[:, :, None]
        found = shares_of_batches(hits, trials, level=0.95)
        if not trials.sum():
            assert np.isnan(found.share[0])
            assert np.isnan(found.interval.low[0])
            return
        assert found.share[0] == hits.sum() / trials.sum()
        assert 0.0 <= found.interval.low[0] <= found.share[0] + 1e-12
        assert found.share[0] <= found.interval.high[0] + 1e-12
        assert found.effective[0] <= trials.sum()

    def test_a_row_that_was_never_late_is_no_surer_than_its_neighbours(self) -> None:
        trials = np.full((BATCHES, 2), 100)
        hits = trials.copy()
        hits[::2, 0] = 40  # late in bursts
        alone = shares_of_batches(hits[:, 1:], trials[:, 1:], level=0.95)
        beside = shares_of_batches(hits, trials, level=0.95)
        assert alone.effective[0] == 1_000.0
        assert beside.effective[1] == beside.effective[0] < 50.0
        assert beside.interval.low[1] < alone.interval.low[0]

    def test_batches_without_trials_do_not_count(self) -> None:
        """A row that was watched for less time has fewer batches, and knows its spread as badly as those do."""
        trials = np.array([[100, 100, 100, 100, 100, 0, 0, 0]]).T
        hits = np.array([[90, 50, 90, 50, 90, 0, 0, 0]]).T
        padded, short = (shares_of_batches(hits[:n], trials[:n], level=0.95) for n in (8, 5))
        assert padded.effective[0] == short.effective[0]
        assert padded.interval.low[0] == short.interval.low[0]
        three = shares_of_batches(hits[:3], trials[:3], level=0.95)
        assert three.is_rough[0], "three batches tell nothing"

    def test_large_counts_lose_nothing(self) -> None:
        """10^12 events in a batch, of which one or three are late: squares of the counts have more digits than a
        floating-point number."""
        trials = np.full((8, 1), 10**12)
        hits = trials - np.array([[1, 3] * 4]).T
        found = shares_of_batches(hits, trials, level=0.95)
        # The variance of the late ones over their mean is 8 / 7 / 2: less than that of independent events.
        assert found.effective[0] == 8e12

    def test_order_of_batches_does_not_matter(self) -> None:
        generator = np.random.default_rng(3)
        trials = generator.integers(1, 50, (8, 3))
        hits = generator.integers(0, trials + 1)
        order = generator.permutation(8)
        one, other = (shares_of_batches(hits[rows], trials[rows], level=0.9) for rows in (np.arange(8), order))
        np.testing.assert_allclose(one.effective, other.effective)

    @pytest.mark.parametrize("shape", [(3,), (1, 3)])
    def test_what_is_no_batches_is_refused(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="two batches or more"):
            shares_of_batches(np.zeros(shape), np.zeros(shape), level=0.95)
