"""What may be under way on a link, tried on links that are simulated event by event in virtual time."""

from collections import deque

import pytest

from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._pace import FIRST, FIRST_BYTES, LEAST, SLACK, TARGET_NS, Pace

MS = 10**6
SECOND = 10**9


class Line:
    """A link that takes `turn_ns` for each event, one after the other, and `idle_ns` for the round trip."""

    def __init__(
        self, *, turn_ns: int, idle_ns: int, window: int = 256, event_bytes: int = 1_000, spread_ns: int = 0
    ) -> None:
        self.pace = Pace(window)
        self.event_bytes = event_bytes
        self.spread_ns = spread_ns
        self.turn_ns = turn_ns
        self.idle_ns = idle_ns
        self.now_ns = 0
        self.carried = 0
        self._free_ns = 0
        self._next = 0
        self._under_way: deque[tuple[int, int, int]] = deque()  # when acknowledged, the number, the bytes

    def run(self, seconds: float, *, waiting: int = 1, most: int = 10**6, stalls: range = range(0)) -> None:
        """Keep as many under way as may be, and `most` at most; within `stalls` (ns) nothing is acknowledged."""
        until_ns = self.now_ns + round(seconds * SECOND)
        while self.now_ns < until_ns:
            while self._has_room() and len(self._under_way) < most:
                self._free_ns = max(self._free_ns, self.now_ns) + self.turn_ns
                self._under_way.append((self._free_ns + self.idle_ns, self._next, self.event_bytes))
                self._next += 1
            under_way_bytes = self.under_way_bytes
            acknowledged_ns, number, size_bytes = self._under_way.popleft()
            self.now_ns = max(acknowledged_ns, self.now_ns)
            if self.now_ns in stalls:
                self.now_ns = stalls.stop
            self.carried += 1
            if not waiting:
                self.pace.idle(0, under_way_bytes, self.now_ns)
                continue
            self.pace.acknowledged(
                1,
                size_bytes,
                number,
                held_ns=0,
                idle_ns=self.idle_ns,
                spread_ns=self.spread_ns,
                next_number=self._next,
                now_ns=self.now_ns,
            )

    @property
    def under_way_bytes(self) -> int:
        return sum(size_bytes for _, _, size_bytes in self._under_way)

    def _has_room(self) -> bool:
        under_way, pace = len(self._under_way), self.pace
        fits = self.under_way_bytes < pace.most_bytes or under_way < pace.least
        return under_way < pace.most and fits


@pytest.mark.parametrize("idle_ms", [1, 20, 200])
@pytest.mark.parametrize("turn_ms", [1, 5, 50])
def test_a_link_is_kept_busy_and_events_wait_on_it_for_about_the_target(turn_ms: int, idle_ms: int) -> None:
    line = Line(turn_ns=turn_ms * MS, idle_ns=idle_ms * MS)
    line.run(10.0)
    carried = line.carried
    line.run(10.0)
    assert line.carried - carried >= 0.95 * 10_000 / turn_ms
    assert line.pace.turn_s == pytest.approx(turn_ms / 1000, rel=0.1)
    # As many as it carries in the time of an idle link and the target, and the one that is being sent.
    assert line.pace.most * turn_ms <= idle_ms + TARGET_NS / MS + 2 * turn_ms + 0.1 * idle_ms


def test_a_fast_link_gets_the_whole_window() -> None:
    line = Line(turn_ns=10_000, idle_ns=2 * MS, window=256)
    assert line.pace.most == FIRST
    line.run(1.0)
    assert line.pace.most == 256


def test_a_receiver_that_stalls_does_not_look_like_a_slow_link() -> None:
    line = Line(turn_ns=5 * MS, idle_ns=1 * MS)
    line.run(3.0)
    before = line.pace.most
    line.run(0.5, stalls=range(line.now_ns + 50 * MS, line.now_ns + 300 * MS))
    assert line.pace.most >= before - 1


def test_a_link_that_becomes_slow_has_less_under_way_soon() -> None:
    line = Line(turn_ns=1 * MS, idle_ns=1 * MS)
    line.run(2.0)
    assert line.pace.most > 30
    line.turn_ns = 20 * MS
    line.run(6.0)
    assert line.pace.most <= 4


def test_a_link_for_which_nothing_waits_teaches_nothing() -> None:
    line = Line(turn_ns=50 * MS, idle_ns=1 * MS)
    line.run(5.0, waiting=0)
    assert line.pace.most == FIRST
    assert line.pace.turn_s is None


def test_there_is_always_something_under_way() -> None:
    line = Line(turn_ns=SECOND, idle_ns=1 * MS)
    line.run(20.0)
    assert line.pace.most == LEAST
    assert line.pace.is_least
    assert Pace(1).most == 1


def test_a_few_long_events_are_as_much_as_many_short_ones() -> None:
    line = Line(turn_ns=1 * MS, idle_ns=20 * MS, event_bytes=500)  # 500 kB/s
    line.run(5.0)
    short, bytes_at_once = line.pace.most, line.pace.most_bytes
    assert 0.9 * SLACK * 60 * 500 <= bytes_at_once <= 1.2 * SLACK * 60 * 500
    line.turn_ns, line.event_bytes = 24 * MS, 12_000  # on the same link
    line.run(0.05)
    assert line.under_way_bytes - line.event_bytes < bytes_at_once
    line.run(5.0)
    assert line.pace.most < short / 10
    assert line.pace.most_bytes <= 1.2 * bytes_at_once


def test_spread_adds_no_more_than_the_target() -> None:
    calm, stormy = Line(turn_ns=5 * MS, idle_ns=20 * MS), Line(turn_ns=5 * MS, idle_ns=20 * MS, spread_ns=500 * MS)
    for line in (calm, stormy):
        line.run(5.0)
    assert calm.pace.most < stormy.pace.most <= calm.pace.most + TARGET_NS // (5 * MS) + 1


def test_bytes_begin_again_after_a_pause() -> None:
    line = Line(turn_ns=10_000, idle_ns=50 * MS)
    line.run(3.0)
    assert line.pace.most_bytes > 4 * FIRST_BYTES
    most = line.pace.most
    line.run(2.5, waiting=0, most=4)
    assert line.pace.most_bytes == FIRST_BYTES
    assert line.pace.most == most


def test_bytes_that_are_used_stay_allowed_although_nothing_waits() -> None:
    line = Line(turn_ns=10_000, idle_ns=50 * MS)
    line.run(3.0)
    most_bytes = line.pace.most_bytes
    assert most_bytes > 4 * FIRST_BYTES
    line.run(5.0, waiting=0, most=100)  # kB each
    assert 150_000 <= line.pace.most_bytes <= min(most_bytes, 220_000)


def test_a_fast_link_is_allowed_more_bytes_before_anything_has_to_wait() -> None:
    pace = Pace(64)
    pace.flow(22 * MS, FIRST_BYTES // 2 - 1, 20 * MS)
    assert pace.most_bytes == FIRST_BYTES  # it was hardly used
    pace.flow(20 * MS + TARGET_NS, FIRST_BYTES, 20 * MS)
    assert pace.most_bytes == FIRST_BYTES  # it was slow
    pace.flow(22 * MS, FIRST_BYTES // 2, 20 * MS)
    assert pace.most_bytes == 2 * FIRST_BYTES


def test_a_large_window_states_a_fast_link() -> None:
    assert Pace(64).most_bytes == FIRST_BYTES
    assert Pace(4_096).most_bytes == 256_000


def test_an_outage_does_not_make_a_link_long() -> None:
    meter = LinkMeter()
    for took_ns in (20 * MS, 4 * SECOND):
        meter.note_round_trip(took_ns)
    assert 20 * MS < meter.least_ns <= 22.5 * MS
    for _ in range(100):
        meter.note_round_trip(50 * MS)
    assert meter.least_ns == pytest.approx(50 * MS, rel=0.01)
