"""Measurements of a link while it is used: the difference of the two clocks, round trips, and slowness.

- Clocks: the answer to a greeting or a ping carries the peer's clock, which gives the difference of the two clocks if
  both directions are alike; the error is at most half of the round trip (`error_ns`), however much the directions
  differ. Every frame with events states when it left, so its time under way is known, whatever it waited for. The best
  reading is kept, the one with the shortest round trip, given that two clocks may drift apart by DRIFT in the meantime,
  the only assumption about clocks. A reading that contradicts it comes from a clock that was set, or stood still, and
  replaces it. Before the first reading, half of the least round trip is used, or 0 while that is unknown as well, and
  the error is unknown.
- Round trip: smoothed as in TCP (RFC 6298: gains 1/8 and 1/4); pings are answered at once.
- Least round trip: the smallest seen; larger ones count (gain 1/8) only while the queue is empty, because pings wait
  behind events under way, and as twice the least at most: a link that was down for seconds is not a long one.
- Slowness, in seconds per kB, with its variance (paper C): a transfer's time from sending to acknowledgement, less the
  time that the receiver held it (which it states) and less the least round trip, by its size. The time that events wait
  for each other under way is part of it. Exponentially weighted. A transfer that was sent twice is no sample: it is
  unknown which copy was acknowledged (Karn's rule). It is used for events yet to be sent, never for ages.
- Answer: the whole time until an acknowledgement, smoothed like the round trip, from the first sending even if there
  was another: a busy peer gains nothing from duplicates.
"""

import math
from typing import Final

from tidings.protocol._histogram import bucket_of
from tidings.protocol.wire import LONGEST_NS, Ping, Welcome

__all__ = ["LinkMeter"]

DRIFT: Final = 2e-4
"""Two clocks drift apart by at most this share of the time: 100 ppm each."""
_RTT_GAIN: Final = 0.125
_DEVIATION_GAIN: Final = 0.25
_SLOWNESS_GAIN: Final = 0.1
_SMALLEST_KB: Final = 0.05


class LinkMeter:
    """The figures of the link to one peer."""

    __slots__ = (
        "_ahead_ns",
        "_answer_deviation_ns",
        "_answer_ns",
        "_deviation_ns",
        "_error_ns",
        "_least_ns",
        "_read_ns",
        "is_loaded",
        "mean_s_per_kb",
        "rtt_ns",
        "samples",
        "transits",
        "variance_s2_per_kb2",
    )

    def __init__(self) -> None:
        self.rtt_ns: float | None = None
        """The smoothed round trip; None before the first."""
        self._least_ns: float | None = None
        self._deviation_ns = 0.0
        self._answer_ns = self._answer_deviation_ns = 0.0
        self._ahead_ns: int | None = None  # the peer's clock minus ours, by the best reading
        self._error_ns = 0.0  # the error of that reading when it was made
        self._read_ns = 0
        self.is_loaded = False
        """Whether events are queued for the link."""
        self.mean_s_per_kb = 0.0
        self.variance_s2_per_kb2 = 0.0
        self.samples = 0
        self.transits: dict[int, int] = {}
        """How long frames with events were under way from the peer, counted by size (`_histogram`)."""

    @property
    def least_ns(self) -> float:
        """The round trip when the link is idle; 0 before the first."""
        return self._least_ns or 0.0

    def note_round_trip(self, took_ns: int) -> None:
        """A ping was answered."""
        if took_ns < 0:
            return
        if self._least_ns is None or took_ns < self._least_ns:
            self._least_ns = float(took_ns)
        elif not self.is_loaded:
            self._least_ns += _RTT_GAIN * (min(took_ns, 2 * self._least_ns) - self._least_ns)
        if self.rtt_ns is None:
            self.rtt_ns, self._deviation_ns = float(took_ns), took_ns / 2
            return
        self._deviation_ns += _DEVIATION_GAIN * (abs(took_ns - self.rtt_ns) - self._deviation_ns)
        self.rtt_ns += _RTT_GAIN * (took_ns - self.rtt_ns)

    def read_clock(self, clock_ns: int, sent_ns: int, now_ns: int) -> None:
        """What left at `sent_ns` is answered now, and the peer's clock showed `clock_ns` in between."""
        if sent_ns <= now_ns:
            # The reading may be as old as the round trip.
            self.set_clock(clock_ns - (sent_ns + now_ns) // 2, (now_ns - sent_ns) / 2, sent_ns, now_ns)

    def read_greeting(self, welcome: Welcome, now_ns: int) -> None:
        """The same for a greeting."""
        if welcome.clock_ns is not None and welcome.yours_ns is not None:
            self.read_clock(welcome.clock_ns, welcome.yours_ns, now_ns)

    def read_ping(self, ping: Ping, now_ns: int) -> None:
        """Use the peer's own measurement, if it has one: it was right when the ping left."""
        if ping.yours_ns is not None:
            self.set_clock(ping.sent_ns - ping.yours_ns, ping.error_ns, ping.yours_ns, now_ns)

    def set_clock(self, ahead_ns: int, error_ns: float, read_ns: int, now_ns: int) -> None:
        """The peer's clock was so far ahead at `read_ns`, give or take an error: kept if it is better than what is
        known, or contradicts it."""
        read_ns = min(read_ns, now_ns)
        known_ns, known_error_ns = self._ahead_ns, self.error_ns(now_ns)
        if known_ns is not None and known_error_ns is not None:
            aged_ns = error_ns + DRIFT * (now_ns - read_ns)
            if aged_ns > known_error_ns and abs(ahead_ns - known_ns) <= aged_ns + known_error_ns:
                return
        self._ahead_ns, self._error_ns, self._read_ns = ahead_ns, error_ns, read_ns

    def forget_clock(self) -> None:
        """The peer may have another clock from now on."""
        self._ahead_ns = None

    @property
    def ahead_ns(self) -> int | None:
        """How far the peer's clock is ahead of ours; None if that is not known."""
        return self._ahead_ns

    def error_ns(self, now_ns: int) -> int | None:
        """By how much the difference of the clocks may be wrong, and so `left_ns`; None before the first reading."""
        if self._ahead_ns is None:
            return None
        return math.ceil(min(self._error_ns + DRIFT * (now_ns - self._read_ns), LONGEST_NS))

    def left_ns(self, sent_ns: int | None, now_ns: int) -> int:
        """When a frame left that came now, by our clock; `sent_ns` is what the sender's showed."""
        ahead_ns = self._ahead_ns
        if sent_ns is None or ahead_ns is None:
            return now_ns - int(self.least_ns / 2)
        return max(min(sent_ns - ahead_ns, now_ns), now_ns - LONGEST_NS)  # whatever clock a peer states

    def note_transit(self, took_ns: int) -> None:
        """A frame with events was under way for this long; not counted while the peer's clock is unknown."""
        if self._ahead_ns is not None:
            bucket = bucket_of(took_ns)
            self.transits[bucket] = self.transits.get(bucket, 0) + 1

    def note_transfer(self, took_ns: int, held_ns: int, size_bytes: int) -> None:
        """A transfer that was sent once is acknowledged; no sample while the round trip is unknown."""
        if self._least_ns is None:
            return
        size_kb = max(size_bytes / 1000.0, _SMALLEST_KB)
        sample = max(took_ns - held_ns - self._least_ns, 0.0) * 1e-9 / size_kb
        self.samples += 1
        if self.samples == 1:
            self.mean_s_per_kb = sample
            return
        difference = sample - self.mean_s_per_kb
        self.mean_s_per_kb += _SLOWNESS_GAIN * difference
        self.variance_s2_per_kb2 = (1.0 - _SLOWNESS_GAIN) * (
            self.variance_s2_per_kb2 + _SLOWNESS_GAIN * difference * difference
        )

    def note_answer(self, took_ns: int) -> None:
        """A transfer was acknowledged this long after it was first sent."""
        self._answer_deviation_ns += _DEVIATION_GAIN * (abs(took_ns - self._answer_ns) - self._answer_deviation_ns)
        self._answer_ns += _RTT_GAIN * (took_ns - self._answer_ns)

    def spread_ns(self, size_bytes: int) -> float:
        """The standard deviation of the time that frames of this size take."""
        return math.sqrt(self.variance_s2_per_kb2) * size_bytes * 1e6

    def transit_ns(self, size_bytes: int) -> int:
        """The expected time under way of a frame of this size."""
        return int(self.least_ns / 2 + self.mean_s_per_kb * size_bytes * 1e6)

    def patience_ns(self, size_bytes: int) -> int:
        """How long to wait for an acknowledgement before a transfer is worth repeating."""
        expected_ns = (self.rtt_ns or 0.0) + 4 * self._deviation_ns + 2 * self.mean_s_per_kb * size_bytes * 1e6
        return int(max(expected_ns, self._answer_ns + 4 * self._answer_deviation_ns))
