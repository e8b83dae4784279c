"""How many events may be under way on a link, so that a backlog waits in the queue and not in the network.

Events under way can no longer be reordered or dropped. So no more should be under way than keep the link busy: as many
as it carries in the time that an event takes on an idle link (least round trip, and the receiver's time to make it
durable), twice the spread of that time, and TARGET_NS more. That allowance makes the number grow: while the link could
carry more, it carries everything allowed in a round in the time of an idle link, so the next round allows more by the
factor (idle + TARGET) / idle, at most GROWTH. Once the link is the limit, its rate is what is measured, and events wait
about TARGET_NS in the network, whatever the link's rate.

A round ends when the first event that was sent in it is acknowledged, and takes at least LEAST_ROUND_NS, so that
acknowledgements that were delayed and arrive together do not look like a fast link. Only rounds with a non-empty queue
throughout count: otherwise the link was not fully used. Of the last ROUNDS rounds the fastest counts:
a receiver that was paused for a while does not look like a slow link.

Bursts are shorter than rounds. If part of a burst had to wait, and the rest was acknowledged within half of TARGET_NS
more than on an idle link, then the pace was the limit and not the link: twice as many may be under way next.

The window states how fast links are expected to be. So at first a sixteenth of it may be under way, if that is more
than FIRST, and later at least one in LEAST_SHARE: many peers that share one processor all answer late.
"""

from typing import Final

__all__ = ["Pace"]

TARGET_NS: Final = 40_000_000
FIRST: Final = 16
LEAST: Final = 2
FIRST_SHARE: Final = 16
LEAST_SHARE: Final = 128
GROWTH: Final = 4
LEAST_ROUND_NS: Final = 100_000_000
ROUNDS: Final = 4
_HELD_GAIN: Final = 0.25
_NS: Final = 1e-9


class Pace:
    """The allowance of one link."""

    __slots__ = ("_began_ns", "_count", "_ends", "_held_ns", "_least", "_turns_s", "_window", "most", "turn_s")

    def __init__(self, window: int) -> None:
        self.most = min(max(FIRST, window // FIRST_SHARE), window)
        """How many events may be under way."""
        self.turn_s: float | None = None
        """The time that the link needs for one event; None before it was ever busy for a round."""
        self._window = window
        self._least = min(max(LEAST, window // LEAST_SHARE), window)
        self._held_ns = 0.0
        self._turns_s: tuple[float, ...] = ()
        self._began_ns: int | None = None  # of the round; None if there is none
        self._ends = 0
        self._count = 0

    @property
    def is_least(self) -> bool:
        """Whether so few are under way that they hardly wait for each other."""
        return self.most <= self._least

    def acknowledged(
        self,
        count: int,
        last: int,
        *,
        held_ns: int,
        idle_ns: float,
        spread_ns: float,
        next_number: int,
        now_ns: int,
    ) -> None:
        """Events were acknowledged, `last` being the highest number, and others wait; `next_number` has yet to be
        sent."""
        self._held_ns += _HELD_GAIN * (held_ns - self._held_ns)
        self._count += count
        if self._began_ns is not None:
            took_ns = now_ns - self._began_ns
            if last < self._ends or took_ns < LEAST_ROUND_NS:
                return
            self._round(took_ns, idle_ns + 2.0 * spread_ns)
        self._began_ns, self._ends, self._count = now_ns, next_number, 0

    def idle(self, held_ns: int) -> None:
        """Events were acknowledged, and none wait."""
        self._held_ns += _HELD_GAIN * (held_ns - self._held_ns)
        self._began_ns = None

    def burst(self, took_ns: int, idle_ns: float) -> None:
        """Something had to wait, and what left before it was acknowledged after this long."""
        if took_ns - idle_ns <= TARGET_NS // 2:
            self.most = min(2 * self.most, self._window)

    def _round(self, took_ns: int, idle_ns: float) -> None:
        self._turns_s = (*self._turns_s[1 - ROUNDS :], took_ns * _NS / self._count)
        self.turn_s = min(self._turns_s)
        wanted = round((idle_ns + self._held_ns + TARGET_NS) * _NS / self.turn_s)
        self.most = max(min(wanted, GROWTH * self.most, self._window), self._least)
