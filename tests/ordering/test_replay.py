import numpy as np
import pytest

from tidings.errors import InputError
from tidings.ordering import Policy, Streams, _replay, optimal_static_latch, replay

MS = 1_000_000


def make_streams(seed: int, events: int = 3000, readers: int = 3) -> Streams:
    rng = np.random.default_rng(seed)
    departure = np.cumsum(rng.exponential(1.0, events) * MS).astype(np.int64)
    arrival = departure + (50 + rng.exponential(1.0, (readers, events)) * MS).astype(np.int64)
    matched = rng.random((readers, events)) < 0.7
    stream, sequence = np.nonzero(matched)
    came = arrival[stream, sequence]
    order = np.lexsort((came, stream))
    return Streams.of_one_publisher(
        departure_ns=departure, stream=stream[order], sequence=sequence[order], arrival_ns=came[order], wanted=matched
    )


def test_nothing_leaves_before_it_came_and_counts_add_up() -> None:
    streams = make_streams(1)
    names = ("P-0.05-0", "P-0.05-25", "CST-30", "CST-0", "ours-record", "ours-quantile")
    found = replay(streams, [Policy.parse(name) for name in names])
    assert list(found) == list(names)
    for one in found.values():
        held = one.delivered_ns - streams.arrival_ns
        assert held.min() >= 0
        assert one.total("received").sum() == streams.sequence.size
        assert one.total("hold_ns").sum() == held.sum()
        assert one.mean_hold_ns == held.mean()
    late = {int(one.total("out_of_order").sum()) for one in found.values()}
    assert len(late) == 1  # what came out of order does not depend on the policy
    assert found["CST-0"].mean_hold_ns == 0.0
    assert found["CST-0"].mitigation == 0.0
    assert found["CST-30"].mitigation > 0.99  # what was sent before the first to arrive cannot be waited for
    assert found["P-0.05-25"].mean_hold_ns < found["P-0.05-0"].mean_hold_ns


def test_the_order_of_what_is_delivered_is_that_of_the_counts() -> None:
    streams = make_streams(2)
    found = replay(streams, [Policy.parse("P-0.05-0")])["P-0.05-0"]
    for stream in range(len(streams)):
        rows = slice(int(streams.starts[stream]), int(streams.starts[stream + 1]))
        number, left = streams.sequence[rows], found.delivered_ns[rows]
        told = number[np.lexsort((number, left))]
        # Of those that leave together the lower number goes first, unless it came too late.
        violations = int((told < np.maximum.accumulate(told)).sum())
        assert violations == found.total("violations")[stream]


def test_the_optimal_static_latch_is_the_least_that_is_as_good() -> None:
    streams = [make_streams(3), make_streams(4)]
    allowed = 20
    latch_ns = optimal_static_latch(streams, allowed, precision_ns=1000)

    def violations(ns: int) -> int:
        policy = Policy.static(ns)
        return sum(int(replay(some, [policy])[policy.name].total("violations").sum()) for some in streams)

    assert violations(latch_ns) <= allowed < violations(latch_ns - 1000)
    assert optimal_static_latch(streams, 10**9) == 0 or optimal_static_latch(streams, 10**9) < 10_000
    assert optimal_static_latch(streams, -1, longest_ns=MS) == MS


def test_one_stream_alone_is_what_it_is_among_others() -> None:
    streams = make_streams(5)
    policies = [Policy.parse(name) for name in ("P-0.05-5", "ours-record", "ours-quantile")]
    together = replay(streams, policies)
    events = streams.table_departure_ns.size
    for stream in range(len(streams)):
        rows = slice(int(streams.starts[stream]), int(streams.starts[stream + 1]))
        alone = Streams.of_one_stream(
            sequence=streams.sequence[rows],
            departure_ns=streams.departure_ns[rows],
            arrival_ns=streams.arrival_ns[rows],
            previous_departure_ns=streams.previous_departure_ns[rows],
            table_departure_ns=streams.table_departure_ns,
            wanted=np.isin(
                np.arange(events),
                streams.wanted[streams.wanted_starts[stream] : streams.wanted_starts[stream + 1]],
            ),
        )
        for name, found in replay(alone, policies).items():
            assert (found.delivered_ns == together[name].delivered_ns[rows]).all()
            assert (found.counts[0] == together[name].counts[stream]).all()


def test_a_receiver_of_very_many_publishers_learns_from_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = make_streams(6, readers=5)
    policies = [Policy.parse(name) for name in ("P-0.05-5", "ours-record", "ours-quantile")]
    some = replay(streams.shared_by(np.array([0, 0, 1, 1, 2])), policies)
    every = replay(streams.shared_by(np.zeros(5, np.int64)), policies)
    monkeypatch.setattr(_replay, "MOST_SHARING", 2)
    for name, found in replay(streams.shared_by(np.zeros(5, np.int64)), policies).items():
        assert (found.delivered_ns == some[name].delivered_ns).all()
        assert (found.delivered_ns == every[name].delivered_ns).all() == name.startswith("P")


def test_an_empty_stream_and_one_without_events() -> None:
    streams = Streams.of_one_stream(sequence=[], departure_ns=[], arrival_ns=[], previous_departure_ns=[])
    found = replay(streams, [Policy.parse("ours-record")])["ours-record"]
    assert found.mitigation is None
    assert found.counts.sum() == 0


def test_columns_that_do_not_fit_are_refused() -> None:
    policy = [Policy.parse("P-0.05-5")]
    with pytest.raises(InputError, match="differ in length"):
        replay(Streams.of_one_stream(sequence=[0], departure_ns=[], arrival_ns=[0], previous_departure_ns=[0]), policy)
    with pytest.raises(InputError, match="receiver names 1 of 3"):
        replay(make_streams(1).shared_by(np.zeros(1, np.int64)), policy)
    with pytest.raises(InputError, match="negative"):
        replay(
            Streams.of_one_stream(sequence=[-1], departure_ns=[0], arrival_ns=[0], previous_departure_ns=[0]), policy
        )
    with pytest.raises(InputError, match="tables end"):
        replay(Streams.of_one_stream(sequence=[9], departure_ns=[0], arrival_ns=[0], previous_departure_ns=[0]), policy)
