"""What may be under way on a link, tried on links that are simulated event by event in virtual time."""

from collections import deque

import pytest

from tidings.protocol.links._pace import FIRST, LEAST, TARGET_NS, Pace

MS = 10**6
SECOND = 10**9


class Line:
    """A link that takes `turn_ns` for each event, one after the other, and `idle_ns` for the round trip."""

    def __init__(self, *, turn_ns: int, idle_ns: int, window: int = 256) -> None:
        self.pace = Pace(window)
        self.turn_ns = turn_ns
        self.idle_ns = idle_ns
        self.now_ns = 0
        self.carried = 0
        self._free_ns = 0
        self._next = 0
        self._under_way: deque[tuple[int, int]] = deque()  # when acknowledged, and the number

    def run(self, seconds: float, *, waiting: int = 1, stalls: range = range(0)) -> None:
        """Keep as many under way as may be; within `stalls` (ns) nothing is acknowledged."""
        until_ns = self.now_ns + round(seconds * SECOND)
        while self.now_ns < until_ns:
            while len(self._under_way) < self.pace.most:
                self._free_ns = max(self._free_ns, self.now_ns) + self.turn_ns
                self._under_way.append((self._free_ns + self.idle_ns, self._next))
                self._next += 1
            acknowledged_ns, number = self._under_way.popleft()
            self.now_ns = max(acknowledged_ns, self.now_ns)
            if self.now_ns in stalls:
                self.now_ns = stalls.stop
            self.carried += 1
            if not waiting:
                self.pace.idle(0)
                continue
            self.pace.acknowledged(
                1,
                number,
                held_ns=0,
                idle_ns=self.idle_ns,
                spread_ns=0.0,
                next_number=self._next,
                now_ns=self.now_ns,
            )


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
