"""How many events may be under way on a link, so that a backlog waits in the queue and not in the network.

Events under way can no longer be reordered or dropped. So no more should be under way than keep the link busy: as many
as it carries in the time that an event takes on an idle link (least round trip, and the receiver's time to make it
durable), twice the spread of that time, and TARGET_NS more. The spread adds TARGET_NS at most: on a link that has just
been slow it is much larger.

That allowance makes the number grow: while the link could carry more, it carries everything allowed in a round in the
time of an idle link, so the next round allows more by the factor (idle + TARGET) / idle, at most GROWTH. Once the link
is the limit, its rate is what is measured, and events wait about TARGET_NS in the network, whatever the link's rate.

A round ends when the first event that was sent in it is acknowledged, and takes at least LEAST_ROUND_NS, so that
acknowledgements that were delayed and arrive together do not look like a fast link. Only rounds with a non-empty queue
throughout count: otherwise the link was not fully used. Of the last ROUNDS rounds, and of those that ended in the last
RECENT_NS, the fastest counts: a receiver that was paused for a while does not look like a slow link, and a radio link
that has become slow does, soon.

Bursts are shorter than rounds. If part of a burst had to wait, and the rest was acknowledged within half of TARGET_NS
more than on an idle link, then the pace was the limit and not the link: twice as many may be under way next.

The same goes for their bytes, by the same rounds, with SLACK: a few long events may be more than many short ones, and
among events of one size their number decides. The allowance is
the smaller of the two, but LEAST events may be under way whatever their size, so that the next is there when one has
been sent. The bytes grow without a round, too: if half of what is allowed is under way and acknowledged as soon as on
an idle link, twice as much is allowed, so that nothing has to wait on a fast link before more may be under way. What a
link carried KNOWN_NS ago says little of a radio link: after as long without a round, no more is allowed than twice
what was under way in that time, or at first, as TCP does after a pause.

The window states how fast links are expected to be. So at first a sixteenth of it may be under way, if that is more
than FIRST, and later at least one in LEAST_SHARE: many peers that share one processor all answer late. The same goes
for bytes, with TYPICAL_BYTES for an event.
"""

from typing import Final, NamedTuple

__all__ = ["Pace"]

TARGET_NS: Final = 40_000_000
FIRST: Final = 16
FIRST_BYTES: Final = 32 * 1024
LEAST: Final = 2
LEAST_BYTES: Final = 1_500
TYPICAL_BYTES: Final = 1_000
SLACK: Final = 2
FIRST_SHARE: Final = 16
LEAST_SHARE: Final = 128
GROWTH: Final = 4
LEAST_ROUND_NS: Final = 100_000_000
ROUNDS: Final = 4
RECENT_NS: Final = 500_000_000
KNOWN_NS: Final = 1_000_000_000
_HELD_GAIN: Final = 0.25
_NS: Final = 1e-9


class _Round(NamedTuple):
    """A round, and what the link carried in it."""

    ended_ns: int
    per_s: float
    bytes_per_s: float


class Pace:
    """The allowance of one link."""

    __slots__ = (
        "_began_ns",
        "_bytes",
        "_count",
        "_ends",
        "_first_bytes",
        "_held_ns",
        "_known_ns",
        "_least_bytes",
        "_rounds",
        "_used_bytes",
        "_window",
        "least",
        "most",
        "most_bytes",
        "turn_s",
    )

    def __init__(self, window: int) -> None:
        self.most = min(max(FIRST, window // FIRST_SHARE), window)
        """How many events may be under way."""
        self._first_bytes = self.most_bytes = max(FIRST_BYTES, self.most * TYPICAL_BYTES)
        """How many bytes of them, beyond the least."""
        self.turn_s: float | None = None
        """The time that the link needs for one event; None before it was ever busy for a round."""
        self._window = window
        self.least = min(max(LEAST, window // LEAST_SHARE), window)
        """So many may be under way in any case."""
        self._least_bytes = max(LEAST_BYTES, self.least * TYPICAL_BYTES)
        self._held_ns = 0.0
        self._rounds: list[_Round] = []
        self._began_ns: int | None = None  # of the round; None if there is none
        self._ends = 0
        self._count = 0
        self._bytes = 0
        self._known_ns: int | None = None  # when the bytes were last adjusted to what the link carries
        self._used_bytes = 0  # the most under way since then

    @property
    def is_least(self) -> bool:
        """Whether so few are under way that they hardly wait for each other."""
        return self.most <= self.least

    def acknowledged(
        self,
        count: int,
        size_bytes: int,
        last: int,
        *,
        held_ns: int,
        idle_ns: float,
        spread_ns: float,
        next_number: int,
        now_ns: int,
    ) -> None:
        """Events of so many bytes were acknowledged, `last` being the highest number, and others wait.

        `next_number` has yet to be sent.
        """
        self._held_ns += _HELD_GAIN * (held_ns - self._held_ns)
        self._count += count
        self._bytes += size_bytes
        if self._began_ns is not None:
            took_ns = now_ns - self._began_ns
            if last < self._ends or took_ns < LEAST_ROUND_NS:
                return
            self._round(took_ns, idle_ns + min(2.0 * spread_ns, TARGET_NS), now_ns)
        self._began_ns, self._ends, self._count, self._bytes = now_ns, next_number, 0, 0

    def idle(self, held_ns: int, under_way_bytes: int, now_ns: int) -> None:
        """Events were acknowledged, and none wait; so many bytes had been under way."""
        self._held_ns += _HELD_GAIN * (held_ns - self._held_ns)
        self._began_ns = None
        self._used_bytes = max(self._used_bytes, under_way_bytes)
        if self._known_ns is None:
            self._known_ns = now_ns
        elif now_ns - self._known_ns > KNOWN_NS:
            self.most_bytes = min(self.most_bytes, max(self._first_bytes, 2 * self._used_bytes))
            self._rounds.clear()
            self._know(now_ns)

    def burst(self, took_ns: int, size_bytes: int, idle_ns: float) -> None:
        """Something had to wait, and what left before it, of so many bytes, was acknowledged after this long."""
        if took_ns - idle_ns <= TARGET_NS // 2:
            self.most = min(2 * self.most, self._window)
        self.flow(took_ns, size_bytes, idle_ns)

    def flow(self, took_ns: int, size_bytes: int, idle_ns: float) -> None:
        """What was under way, of so many bytes, was acknowledged after this long."""
        is_much = 2 * size_bytes >= self.most_bytes
        # Once a round begins, it is what counts.
        if is_much and self._began_ns is None and took_ns - idle_ns <= TARGET_NS // 2:
            self.most_bytes *= 2

    def _know(self, now_ns: int) -> None:
        self._known_ns, self._used_bytes = now_ns, 0

    def _round(self, took_ns: int, idle_ns: float, now_ns: int) -> None:
        took_s, target_s = took_ns * _NS, (idle_ns + self._held_ns + TARGET_NS) * _NS
        recent = [each for each in self._rounds[1 - ROUNDS :] if now_ns - each.ended_ns <= RECENT_NS]
        self._rounds = [*recent, _Round(now_ns, self._count / took_s, self._bytes / took_s)]
        per_s = max(each.per_s for each in self._rounds)
        self.turn_s = 1.0 / per_s
        self.most = max(min(round(target_s * per_s), GROWTH * self.most, self._window), self.least)
        wanted_bytes = round(SLACK * target_s * max(each.bytes_per_s for each in self._rounds))
        self.most_bytes = max(min(wanted_bytes, GROWTH * self.most_bytes), self._least_bytes)
        self._know(now_ns)
