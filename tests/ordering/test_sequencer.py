"""What holds for every stream: once each, in order, nothing forgotten, nothing without bound."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError
from tidings.ordering import WINDOW, Delivery, Policy, RecordEntry, Sequencer, Snapshot, Stamp

MS = 1_000_000
NAMES = ["P-0.05-0", "P-0.05-5", "P-0.2-25", "CST-30", "ours-record", "ours-quantile"]


def stamp(sequence: int, departure_ns: int | None = None, record: tuple[RecordEntry, ...] = ()) -> Stamp:
    left = sequence * MS if departure_ns is None else departure_ns
    return Stamp(sequence=sequence, departure_ns=left, previous_departure_ns=left - MS, record=record)


def feed(sequencer: Sequencer[int], arrivals: list[tuple[int, Stamp]]) -> list[int]:
    """Every arrival and every timer on time; the numbers delivered, in order."""
    order = []
    for now_ns, one in arrivals:
        while (timer := sequencer.next_timer_ns) is not None and timer <= now_ns:
            order += [d.sequence for d in sequencer.advance(timer)]
        order += [d.sequence for d in sequencer.receive(one.sequence, one, now_ns)]
    while (timer := sequencer.next_timer_ns) is not None:
        order += [d.sequence for d in sequencer.advance(timer)]
    return order


delays = st.lists(st.integers(0, 20 * MS), min_size=1, max_size=40)


def arrivals_of(delays_ns: list[int]) -> list[tuple[int, Stamp]]:
    return sorted(((n * MS + delay, stamp(n)) for n, delay in enumerate(delays_ns)), key=lambda a: a[0])


@settings(deadline=None)
@given(delays, st.sampled_from(NAMES), st.sampled_from(["deliver", "drop"]))
def test_each_event_is_delivered_once(delays_ns: list[int], name: str, late: str) -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name, late=late))
    twice = [arrival for arrival in arrivals_of(delays_ns) for _ in range(2)]
    order = feed(sequencer, twice)
    assert len(order) == len(set(order))
    assert sequencer.counts.duplicates == len(delays_ns)
    if late == "deliver":
        assert sorted(order) == list(range(len(delays_ns)))
    else:
        assert len(order) == len(delays_ns) - sequencer.counts.violations


@settings(deadline=None)
@given(delays)
def test_without_loss_and_with_an_endless_latch_the_order_is_perfect(delays_ns: list[int]) -> None:
    first, *rest = arrivals_of(delays_ns)
    sequencer: Sequencer[int] = Sequencer(Policy.static(3600 * 10**9))
    order = feed(sequencer, [first, *rest])
    # What was sent before the first to arrive could not be waited for: the stream began with that one.
    begun = first[1].sequence
    assert [n for n in order if n >= begun] == list(range(begun, len(delays_ns)))


@settings(deadline=None)
@given(delays, st.sampled_from(NAMES), st.sets(st.integers(0, 39)))
def test_under_drop_the_order_never_goes_backwards(delays_ns: list[int], name: str, lost: set[int]) -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name, late="drop"))
    order = feed(sequencer, [a for a in arrivals_of(delays_ns) if a[1].sequence not in lost])
    assert order == sorted(order)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6), st.integers(0, 10**5)), max_size=40),
    st.sampled_from(NAMES),
)
def test_without_restarts_the_order_never_goes_backwards_whatever_clocks_say(
    events: list[tuple[int, int, int]], name: str
) -> None:
    """An event that seems older than any can be is still an earlier one (found by a storm)."""
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name, late="drop"), restarts=False)
    now_ns, order = 0, []
    for number, departure_ms, later_ms in events:
        now_ns += later_ms * MS
        order += [each.item for each in sequencer.receive(number, stamp(number, departure_ms * MS), now_ns)]
    order += [each.item for each in sequencer.flush()]
    assert order == sorted(set(order))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(NAMES))
def test_memory_is_bounded(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name))
    for n in np.cumsum(rng.geometric(rng.choice([0.001, 0.1, 0.9]), 3000)).tolist():
        number = int(n + rng.integers(-50, 50)) if n > 50 else int(n)
        sequencer.receive(number, stamp(number), number * MS + int(rng.integers(100 * MS)))
    policy = sequencer.policy
    assert sequencer.held <= policy.max_held
    assert len(sequencer._differences) <= policy.samples
    assert sequencer._received.bit_length() <= WINDOW
    assert sequencer._resolved.bit_length() <= WINDOW
    assert len(sequencer._first) <= 2 * WINDOW + 1


def test_a_gap_is_held_until_it_is_filled() -> None:
    sequencer: Sequencer[str] = Sequencer(Policy.parse("CST-30"))
    assert [d.item for d in sequencer.receive("a", stamp(5), 100 * MS)] == ["a"]
    assert sequencer.receive("c", stamp(7), 101 * MS) == []
    assert sequencer.next_timer_ns == 131 * MS
    assert [(d.item, d.late) for d in sequencer.receive("b", stamp(6), 102 * MS)] == [("b", False), ("c", False)]
    assert sequencer.next_timer_ns is None


def test_nothing_overtakes_a_held_event_and_a_late_one_takes_its_place() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("CST-30"))
    sequencer.receive(0, stamp(0), 0)
    assert sequencer.receive(3, stamp(3), 10 * MS) == []
    assert sequencer.receive(4, stamp(4), 11 * MS) == []  # no gap before it, but 3 is held
    assert sequencer.receive(2, stamp(2), 12 * MS) == []  # 1 is still missing: it leaves with 3
    assert [d.sequence for d in sequencer.advance(40 * MS)] == [2, 3, 4]
    (late,) = sequencer.receive(1, stamp(1), 41 * MS)
    assert late.late
    assert sequencer.counts.violations == 1


def test_a_record_that_covers_the_gap_and_does_not_match_needs_no_wait() -> None:
    entries = tuple(RecordEntry(bytes([n]) * 16, n * MS) for n in (8, 7, 6))
    sequencer: Sequencer[int] = Sequencer(Policy.parse("P-0.05-3"), lambda summary: summary[0] == 6)
    for n in range(5):
        sequencer.receive(n, stamp(n), n * MS + (n % 2) * 5 * MS)
    assert [d.sequence for d in sequencer.receive(5, stamp(5), 12 * MS)] == [5]
    assert sequencer.receive(9, stamp(9, record=entries), 13 * MS) == []  # 6 may match: wait for that one
    assert [d.sequence for d in sequencer.receive(6, stamp(6), 14 * MS)] == [6, 9]  # 7 and 8 count as come
    deaf: Sequencer[int] = Sequencer(Policy.parse("P-0.05-3"), lambda _: False)
    for n in range(6):
        deaf.receive(n, stamp(n), n * MS + (n % 2) * 5 * MS)
    assert [d.sequence for d in deaf.receive(9, stamp(9, record=entries), 13 * MS)] == [9]


def test_a_publisher_that_begins_again() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("CST-30", late="drop"))
    sequencer.receive(0, stamp(500), 0)
    assert sequencer.receive(1, stamp(502), 10 * MS) == []
    restarted = sequencer.receive(2, stamp(0, departure_ns=600 * MS), 100 * MS)
    assert [d.item for d in restarted] == [1, 2]
    assert sequencer.counts.restarts == 1
    assert [d.item for d in sequencer.receive(3, stamp(1, departure_ns=601 * MS), 101 * MS)] == [3]


@pytest.mark.parametrize("step_ms", [-3_600_000, -20, 20, 3_600_000])
def test_a_publisher_whose_clock_is_set(step_ms: int) -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("P-0.05-0"))
    order = []
    for n in [*range(50), 51, 52, 50, *range(53, 100)]:
        left = n * MS + (step_ms * MS if n > 50 else 0)
        sent = Stamp(sequence=n, departure_ns=left, previous_departure_ns=(n - 1) * MS)
        order += [d.sequence for d in sequencer.receive(n, sent, 10**12 + n * MS)]
        assert sequencer.next_timer_ns is None or sequencer.next_timer_ns <= 10**12 + n * MS + 2 * 10**9
    while (timer := sequencer.next_timer_ns) is not None:
        order += [d.sequence for d in sequencer.advance(timer)]
    assert sorted(order) == list(range(100))
    assert sequencer.counts.restarts == 0


def test_a_receiver_whose_clock_goes_back_keeps_the_wait_that_was_left() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("CST-30"))
    sequencer.receive(0, stamp(0), 1000 * MS)
    sequencer.receive(2, stamp(2), 1010 * MS)
    assert sequencer.advance(500 * MS) == []
    assert sequencer.next_timer_ns == 530 * MS


def test_a_full_queue_lets_the_first_go() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy(name="tight", kind="static", latch_ns=10**9, max_held=2))
    sequencer.receive(0, stamp(0), 0)
    out = [sequencer.receive(n, stamp(n), n * MS) for n in (2, 4, 6)]
    assert [[d.sequence for d in one] for one in out] == [[], [], [2]]
    assert sequencer.counts.forced == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("late", ["deliver", "drop"])
def test_an_event_from_beyond_the_window_is_late_like_any_other(name: str, late: str) -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name, late=late))
    order = feed(sequencer, [(n * MS, stamp(n)) for n in range(2 * WINDOW) if n != 5])
    straggler = sequencer.receive(5, stamp(5), 2 * WINDOW * MS)
    assert [(d.item, d.late) for d in straggler] == ([(5, True)] if late == "deliver" else [])
    assert sorted([*order, 5]) == list(range(2 * WINDOW))
    assert (sequencer.counts.out_of_order, sequencer.counts.violations, sequencer.counts.forgotten) == (1, 1, 1)


def test_an_event_from_beyond_the_window_takes_its_place_if_it_still_has_one() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("CST-30"))
    sequencer.receive(0, stamp(0), 0)
    assert sequencer.receive(3 * WINDOW, stamp(3 * WINDOW), 10 * MS) == []
    assert sequencer.receive(7, stamp(7), 11 * MS) == []
    assert sequencer.receive(7, stamp(7), 12 * MS) == []  # a copy
    assert [(d.sequence, d.late) for d in sequencer.advance(40 * MS)] == [(7, False), (3 * WINDOW, False)]
    assert (sequencer.counts.violations, sequencer.counts.duplicates, sequencer.counts.forgotten) == (0, 1, 1)


def test_no_event_is_held_beyond_its_time_nor_what_stands_before_it() -> None:
    sequencer: Sequencer[int] = Sequencer(Policy.parse("CST-30"))
    sequencer.receive(0, stamp(0), 0)
    sequencer.receive(2, stamp(2), 10 * MS)
    sequencer.receive(4, stamp(4), 11 * MS, until_ns=20 * MS)
    sequencer.receive(6, stamp(6), 12 * MS, until_ns=35 * MS)
    assert sequencer.next_timer_ns == 20 * MS
    assert [d.sequence for d in sequencer.advance(20 * MS)] == [2, 4]
    assert sequencer.next_timer_ns == 35 * MS
    assert [d.sequence for d in sequencer.receive(8, stamp(8), 21 * MS, until_ns=21 * MS)] == [6, 8]
    assert sequencer.next_timer_ns is None


@settings(deadline=None)
@given(delays, st.sampled_from(NAMES), st.lists(st.integers(0, 60), min_size=40, max_size=40))
def test_every_event_leaves_in_time(delays_ns: list[int], name: str, patience_ms: list[int]) -> None:
    """Whatever the policy says, and though nothing overtakes a held event."""
    sequencer: Sequencer[int] = Sequencer(Policy.parse(name))
    until_ns: dict[int, int] = {}

    def check(deliveries: list[Delivery[int]], now_ns: int) -> None:
        assert all(now_ns <= until_ns[delivery.item] for delivery in deliveries)

    for arrival_ns, sent in arrivals_of(delays_ns):
        while (timer_ns := sequencer.next_timer_ns) is not None and timer_ns <= arrival_ns:
            check(sequencer.advance(timer_ns), timer_ns)
        until_ns[sent.sequence] = arrival_ns + patience_ms[sent.sequence % 40] * MS
        check(sequencer.receive(sent.sequence, sent, arrival_ns, until_ns=until_ns[sent.sequence]), arrival_ns)
    while (timer_ns := sequencer.next_timer_ns) is not None:
        check(sequencer.advance(timer_ns), timer_ns)


@pytest.mark.parametrize("name", ["P-0.05-5", "ours-record", "ours-quantile"])
def test_one_that_is_stored_and_taken_up_again_goes_on_as_if_nothing_had_been(name: str) -> None:
    policy = Policy.parse(name)
    rng = np.random.default_rng(21)
    left = np.cumsum(rng.exponential(5.0, 1500) * MS).astype(np.int64)
    came = left + (rng.exponential(2.0, left.size) * MS).astype(np.int64)
    for begin in range(100, 1500, 200):  # what is sent by one of two paths stands still for a while
        stuck = begin + np.flatnonzero(rng.random(60) < 0.5)
        came[stuck] = came[stuck].max() + np.arange(stuck.size)
    kept: Sequencer[int] = Sequencer(policy)
    moved: Sequencer[int] = Sequencer(policy)
    for count, n in enumerate(np.argsort(came, kind="stable").tolist()):
        if n % 5:
            sent = Stamp(sequence=n, departure_ns=int(left[n]), previous_departure_ns=int(left[max(n - 1, 0)]))
            if count % 7 == 0:
                state = msgspec.msgpack.decode(msgspec.msgpack.encode(moved.snapshot()), type=Snapshot[int])
                moved = Sequencer.restored(policy, state)
            assert kept.receive(n, sent, int(came[n])) == moved.receive(n, sent, int(came[n]))
            assert (kept.assessed_ns, kept.next_timer_ns) == (moved.assessed_ns, moved.next_timer_ns)
    assert kept.counts.out_of_order > 100


def test_quantiles_hold_their_target() -> None:
    """Independent delays, 20,000 events: the share repaired is within .3 points, as claimed, for either target."""
    rng = np.random.default_rng(9)
    left = np.cumsum(rng.exponential(1.0, 20_000) * MS).astype(np.int64)
    came = left + (rng.exponential(2.0, left.size) * MS).astype(np.int64)
    for target in (0.95, 0.99):
        sequencer: Sequencer[int] = Sequencer(Policy.quantile(target))
        for n in np.argsort(came, kind="stable").tolist():
            if n % 7:
                sent = Stamp(
                    sequence=n, departure_ns=int(left[n]), previous_departure_ns=int(left[n - 1]) if n else int(left[0])
                )
                sequencer.receive(n, sent, int(came[n]))
        repaired = 1.0 - sequencer.counts.violations / sequencer.counts.out_of_order
        assert abs(repaired - (1.0 - 0.9 * (1.0 - target))) < 0.003


@pytest.mark.parametrize(
    "name", ["P-0.05-25", "P-0.05-0", "CST-30", "CST-0.5", "ours-record", "ours-quantile", "Q-0.995"]
)
def test_policies_are_read_from_their_names(name: str) -> None:
    assert Policy.parse(name).name == name


@pytest.mark.parametrize("name", ["", "P", "P-0.05", "P-x-0", "CST-", "CST-nan", "Q-", "fast", "P-0.05-0-1"])
def test_names_that_are_no_policy(name: str) -> None:
    with pytest.raises(ConfigurationError, match="ordering policy"):
        Policy.parse(name)


@pytest.mark.parametrize("name", ["P-0-25", "P-0.7-0", "P-0.05--1", "Q-1", "Q-0.2", "CST--5"])
def test_policies_that_cannot_be(name: str) -> None:
    with pytest.raises(ConfigurationError, match="must be"):
        Policy.parse(name)
