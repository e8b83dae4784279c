import numpy as np
import pytest

from tidings.ordering import (
    WINDOW,
    Arrivals,
    Policy,
    Publications,
    Recorded,
    Streams,
    overtaken_ns,
    recorded_streams,
    replay,
)
from tidings.ordering._recorded import locate, sparse_draws, sparse_draws_between

MS = 1_000_000
POLICIES = [Policy.parse(name) for name in ("P-0.05-0", "P-0.05-25", "CST-3", "ours-record", "ours-quantile")]


class Traffic:
    """Some publishers and readers, with loss, in plain arrays; `shuffled` is the same as columns in any order."""

    def __init__(self, seed: int, publishers: int = 3, events: int = 400, readers: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.departure = np.cumsum(rng.exponential(MS, (publishers, events)), axis=1).astype(np.int64)
        self.arrival = self.departure + (5 * MS + rng.exponential(2 * MS, (readers, publishers, events))).astype(
            np.int64
        )
        self.matched = rng.random((readers, publishers, events)) < 0.6
        self.came = self.matched & (rng.random(self.matched.shape) > 0.03)

    def shuffled(self) -> tuple[Publications, Arrivals]:
        publishers, events = self.departure.shape
        order = self.rng.permutation(publishers * events)
        reader, publisher, event = np.nonzero(self.matched)
        published = Publications(
            publisher=order // events,
            sequence=order % events,
            departure_ns=self.departure.ravel()[order],
            key=np.arange(publishers),
            wanted_row=np.argsort(order)[publisher * events + event],
            wanted_by=reader,
        )
        order = self.rng.permutation(int(self.came.sum()))
        reader, publisher, event = (column[order] for column in np.nonzero(self.came))
        return published, Arrivals(publisher, reader, event, self.arrival[reader, publisher, event])

    def of(self, publisher: int) -> Streams:
        reader, event = np.nonzero(self.came[:, publisher])
        arrival = self.arrival[reader, publisher, event]
        order = np.lexsort((arrival, reader))
        return Streams.of_one_publisher(
            departure_ns=self.departure[publisher],
            stream=reader[order],
            sequence=event[order],
            arrival_ns=arrival[order],
            wanted=self.matched[:, publisher],
        )


@pytest.mark.parametrize("seed", range(3))
def test_columns_in_any_order_give_the_streams_of_each_publisher(seed: int) -> None:
    traffic = Traffic(seed)
    recorded = recorded_streams(*traffic.shuffled())
    assert recorded.unknown == recorded.early == 0
    found = replay(recorded.streams, POLICIES)
    for publisher in range(3):
        own = recorded.publisher == publisher
        assert recorded.subscription[own].tolist() == [0, 1, 2, 3]
        for name, alone in replay(traffic.of(publisher), POLICIES).items():
            assert (alone.counts == found[name].counts[own]).all()


def test_rows_say_which_arrival_they_are() -> None:
    published, arrived = Traffic(5).shuffled()
    recorded = recorded_streams(published, arrived)
    assert sorted(recorded.row) == list(range(arrived.sequence.size))
    assert (arrived.arrival_ns[recorded.row] == recorded.streams.arrival_ns).all()
    assert (arrived.sequence[recorded.row] == recorded.streams.sequence).all()


def one(sequence: list[int], departure: list[int], arrivals: list[tuple[int, int]], **more: object) -> Recorded:
    zeros = np.zeros(len(sequence), np.int64)
    nothing = np.empty(0, np.int64)
    published = Publications(zeros, np.array(sequence), np.array(departure), np.zeros(1, np.int64), nothing, nothing)
    numbers, times = (np.array(column, np.int64) for column in zip(*arrivals, strict=True))
    here = np.zeros(len(arrivals), np.int64)
    return recorded_streams(published, Arrivals(here, here + 7, numbers, times), **more)  # type: ignore[arg-type]


def test_what_was_not_published_or_arrives_before_is_left_out_and_counted() -> None:
    recorded = one([0, 1, 2], [10, 20, 30], [(0, 15), (9, 16), (1, 18), (2, 33)])
    assert (recorded.unknown, recorded.early, recorded.row.tolist()) == (1, 1, [0, 3])
    assert one([0, 1, 2], [10, 20, 30], [(1, 18)], clock_tolerance_ns=2).early == 0


def test_numbers_that_start_late_repeat_or_are_missing() -> None:
    far = 10**15
    recorded = one([50, 51, 51, 53, far], [10, 20, 19, 40, 90], [(51, 25), (53, 45), (far, 99), (50, 15)])
    streams = recorded.streams
    assert streams.table_departure_ns[:5].tolist() == [10, 19, 19, 40, 40]  # 52 left with the one before it
    assert streams.table_departure_ns.size == 3 + 1 + WINDOW + 1
    assert streams.sequence.tolist() == [0, 1, 3, 4 + WINDOW]
    assert streams.previous_departure_ns.tolist() == [10, 10, 19, 40]


def test_shortening_a_hole_changes_nothing() -> None:
    rng = np.random.default_rng(8)
    near = np.arange(300)
    for hole in (WINDOW, WINDOW + 5, 10**9):
        sequence = np.where(near < 150, near, near + hole)
        departure = np.cumsum(rng.exponential(MS, near.size)).astype(np.int64)
        arrival = departure + rng.exponential(30 * MS, near.size).astype(np.int64)
        recorded = one(sequence.tolist(), departure.tolist(), list(zip(sequence, arrival, strict=True)))
        order = np.lexsort((sequence, arrival))
        whole = Streams.of_one_stream(
            sequence=sequence[order],
            departure_ns=departure[order],
            arrival_ns=arrival[order],
            previous_departure_ns=departure[np.maximum(near - 1, 0)][order],
        )
        basic = [policy for policy in POLICIES if not policy.record]
        for name, found in replay(whole, basic).items():
            assert (found.delivered_ns == replay(recorded.streams, basic)[name].delivered_ns).all()


def test_as_many_are_overtaken_for_as_long_as_a_latch_as_it_has_violations() -> None:
    for seed in range(5):
        streams = Traffic(seed).of(0)
        lasted = overtaken_ns(streams)
        late = replay(streams, [Policy.static(0)])["CST-0"].total("out_of_order").sum()
        assert (lasted >= 0).sum() == late > 50
        for latch_ns in (0, 1, 10_000, MS, 3 * MS, 1_500_000_000):
            policy = Policy.static(latch_ns)
            violations = replay(streams, [policy])[policy.name].total("violations").sum()
            assert violations == (lasted >= latch_ns).sum()


def test_false_matches_are_as_frequent_as_said_and_do_not_depend_on_company() -> None:
    names, sizes = np.arange(40, dtype=np.uint64) * np.uint64(77), np.full(40, 50_000)
    starts, numbers = sparse_draws(names, sizes, np.log1p(-0.002))
    assert abs(numbers.size - 4000) < 4 * np.sqrt(4000)  # four standard deviations
    assert numbers.min() >= 0
    assert numbers.max() < 50_000
    alone = sparse_draws(names[7:8], sizes[7:8], np.log1p(-0.002))[1]
    assert alone.tolist() == numbers[starts[7] : starts[8]].tolist()
    assert (np.diff(alone) > 0).all()
    with np.errstate(over="ignore"):  # 64-bit arithmetic goes round
        plain = sparse_draws.py_func(names[7:8], sizes[7:8], np.log1p(-0.002))[1]  # type: ignore[attr-defined]
    assert plain.tolist() == alone.tolist()


def test_false_matches_cost_a_wait() -> None:
    traffic = Traffic(9, events=3000)
    columns = traffic.shuffled()
    policy = Policy.parse("P-0.001-25")
    held = [
        replay(recorded_streams(*columns, false_matches=share).streams, [policy])[policy.name].mean_hold_ns
        for share in (0.0, 0.05)
    ]
    assert held[1] > 1.02 * held[0]


def test_the_look_up_and_its_twin_agree() -> None:
    rng = np.random.default_rng(4)
    starts = np.array([0, 0, 40, 90])
    sequence = np.concatenate([np.sort(rng.choice(100, 40, replace=False)), np.arange(7, 57)])
    publisher, wanted = rng.integers(0, 3, 500), rng.integers(-3, 103, 500)
    expected = []
    for p, number in zip(publisher, wanted, strict=True):
        own = sequence[starts[p] : starts[p + 1]].tolist()
        expected.append(starts[p] + own.index(number) if number in own else -1)
    assert locate(starts, sequence, publisher, wanted).tolist() == expected


def test_nothing_at_all() -> None:
    nothing = np.empty(0, np.int64)
    recorded = recorded_streams(
        Publications(nothing, nothing, nothing, nothing, nothing, nothing),
        Arrivals(nothing, nothing, nothing, nothing),
        false_matches=0.1,
    )
    assert len(recorded.streams) == 0
    assert replay(recorded.streams, POLICIES)["ours-record"].counts.size == 0


def test_draws_between_two_numbers_are_those_of_all() -> None:
    names, share = np.arange(5, dtype=np.uint64) * np.uint64(77), np.log1p(-0.01)
    starts, numbers = sparse_draws(names, np.full(5, 5_000), share)
    states, last = names.copy(), np.full(5, -1.0)
    for low, high in ((0, 700), (300, 900), (300, 2_000), (1_999, 2_000), (2_000, 5_000)):
        found_starts, found = sparse_draws_between(states, last, np.full(5, low), np.full(5, high), share)
        for stream in range(5):
            own = numbers[starts[stream] : starts[stream + 1]]
            expected = own[(own >= low) & (own < high)].tolist()
            assert found[found_starts[stream] : found_starts[stream + 1]].tolist() == expected
