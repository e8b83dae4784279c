"""Delays that ours were not tuned to: how soon a pair meets its target, in stalls and out of them, and for what hold.

The margins: a set has at least 7,000 late events, so that a share of .99 of independent ones has a standard deviation
of .0012; the first ten of 40 pairs are 400, and .96 of them has one of .01. In `stalls` some 260 stalls make whole
bursts late, and .99 has one of .006.
"""

import numpy as np
import pytest
from benchmarks.ordering_delays import SETS, Outcome, assess, streams_of

from tidings.ordering import Policy, Receiver, Sequencer, Stamp, replay

MS = 1_000_000
S = 1_000_000_000
SEEDS = (11, 12)


def outcomes(name: str, policy: str) -> list[Outcome]:
    return [assess(streams_of(SETS[name](seed), seed), policy) for seed in SEEDS]


@pytest.mark.parametrize("policy", ["ours-quantile", "ours-record"])
@pytest.mark.parametrize("name", ["gamma", "pareto", "regime", "ar1"])
def test_from_the_20th_on_a_pair_meets_its_target(name: str, policy: str) -> None:
    """Four standard deviations below it for independent delays; before: .875 to .988 (but gamma, record: .993)."""
    for found in outcomes(name, policy):
        first, early, later = found.repaired
        assert first is not None
        assert early is not None
        assert later is not None
        assert later > 0.99 - 0.005
        assert early > 0.94
        assert first > 0.92  # before: .5 to .58 without a record


@pytest.mark.parametrize("policy", ["ours-quantile", "ours-record"])
def test_stalls_of_seconds_are_waited_for(policy: str) -> None:
    """Before: .65 and .37. What is beyond 1.5 times the longest so far is not to be foreseen: that is the limit."""
    for found in outcomes("stalls", policy):
        later = found.repaired[2]
        assert later is not None
        assert later > 0.97
        assert later > found.foreseen[1] - 0.02


@pytest.mark.parametrize("name", ["gamma", "pareto", "stalls", "regime", "ar1"])
def test_holds_are_little_longer_than_those_of_the_best_static_latch(name: str) -> None:
    """1.5 times is aimed at; of heavy tails two seeds may have 10 % more."""
    for found in outcomes(name, "ours-quantile"):
        assert found.hold_ms < 1.65 * found.static_hold_ms


def stamp(sequence: int) -> Stamp:
    return Stamp(sequence=sequence, departure_ns=sequence * 100 * MS, previous_departure_ns=(sequence - 1) * 100 * MS)


def overtake(receiver: Receiver[int], publisher: str, start: int, lasted_ns: int) -> None:
    """Two events in order, then two of which the second comes first, `lasted_ns` before the other."""
    base_ns = start * 100 * MS
    receiver.receive(publisher, start, stamp(start), base_ns)
    receiver.receive(publisher, start + 1, stamp(start + 1), base_ns + 101 * MS)
    receiver.receive(publisher, start + 3, stamp(start + 3), base_ns + 300 * MS)
    receiver.receive(publisher, start + 2, stamp(start + 2), base_ns + 300 * MS + lasted_ns)


def test_a_new_pair_starts_with_what_the_others_needed() -> None:
    receiver: Receiver[int] = Receiver(Policy.parse("ours-quantile"))
    for n in range(8):
        overtake(receiver, f"known {n}", 100 * n, 400 * MS)
    receiver.receive("new", 0, stamp(1000), 100_000 * MS)
    receiver.receive("new", 1, stamp(1001), 100_101 * MS)
    receiver.receive("new", 2, stamp(1003), 100_300 * MS)
    assert receiver.next_timer_ns is not None
    assert receiver.next_timer_ns >= 100_700 * MS
    alone: Sequencer[int] = Sequencer(Policy.parse("ours-quantile"))
    for now_ms, number in ((100_000, 1000), (100_101, 1001), (100_300, 1003)):
        alone.receive(number, stamp(number), now_ms * MS)
    assert alone.next_timer_ns is None or alone.next_timer_ns < 100_400 * MS  # it cannot know


@pytest.mark.parametrize("name", ["ours-quantile", "ours-record"])
def test_the_longest_latch_follows_the_deadline(name: str) -> None:
    """Overtaking of 6 s: without a deadline it is waited for, up to 10 s; with one, no longer than that."""
    policy = Policy.parse(name)
    for left_s, longest_s in ((None, 10.0), (3.0, 3.0), (15.0, 15.0)):
        sequencer: Sequencer[int] = Sequencer(policy)
        now_ns, longest_ns = 0, 0
        for n in range(0, 400, 4):
            for number, lasts_ns in ((n, 0), (n + 1, 0), (n + 3, 0), (n + 2, 6 * S)):
                now_ns += 100 * MS + lasts_ns
                while (timer_ns := sequencer.next_timer_ns) is not None and timer_ns <= now_ns:
                    sequencer.advance(timer_ns)
                until_ns = None if left_s is None else now_ns + round(left_s * S)
                sent = Stamp(
                    sequence=number,
                    departure_ns=n * 1700 * MS + number,
                    previous_departure_ns=n * 1700 * MS + number - 1,
                )
                sequencer.receive(number, sent, now_ns, until_ns=until_ns)
                longest_ns = max(longest_ns, sequencer.assessed_ns)
        assert longest_ns <= longest_s * S
        assert longest_ns >= min(longest_s, 6.0) * S  # 2 s was the most
        assert sequencer.counts.restarts == 0


def test_nothing_is_lost_in_stalls() -> None:
    streams = streams_of(SETS["stalls"](13)[:10], 13)
    for one in replay(streams, [Policy.parse(name) for name in ("ours-record", "ours-quantile")]).values():
        assert (one.delivered_ns >= streams.arrival_ns).all()
        assert (one.delivered_ns - streams.arrival_ns <= 60 * S).all()
        assert int(one.total("received").sum()) == streams.sequence.size
    limited = streams.held_until(streams.arrival_ns + np.int64(S))
    for one in replay(limited, [Policy.parse(name) for name in ("ours-record", "ours-quantile")]).values():
        assert (one.delivered_ns - streams.arrival_ns <= S).all()
