"""What a link is like, measured while it is used: round trips of pings, and the slowness of acknowledged transfers.

- Round trip: smoothed as in TCP (RFC 6298: gains 1/8 and 1/4); pings are answered at once, so half of it is the
  transit of a short frame, if both ways are alike. That is the one assumption that deadlines make about clocks.
- Least round trip: the smallest seen; larger ones count (gain 1/8) only while nothing waits for the link, because
  pings wait behind what is under way.
- Slowness, in seconds per kB, with its variance (paper C): a transfer's time from sending to acknowledgement, less the
  time that the receiver held it (it says how long) and less the least round trip, by its size: what events wait for
  each other on the way is part of it. Exponentially weighted. A transfer that was sent twice is no sample: nobody
  knows which copy was acknowledged (Karn's rule).
- Answer: how long acknowledgements take, all in all, smoothed like the round trip, from the first sending on even if
  there was another: a peer that has much to do is not helped by having everything twice.
"""

import math
from typing import Final

__all__ = ["LinkMeter"]

_RTT_GAIN: Final = 0.125
_DEVIATION_GAIN: Final = 0.25
_SLOWNESS_GAIN: Final = 0.1
_SMALLEST_KB: Final = 0.05
_UNKNOWN_RTT_NS: Final = 50_000_000


class LinkMeter:
    """The figures of the link to one peer."""

    __slots__ = (
        "_answer_deviation_ns",
        "_answer_ns",
        "_deviation_ns",
        "_least_ns",
        "_rtt_ns",
        "is_loaded",
        "mean_s_per_kb",
        "samples",
        "variance_s2_per_kb2",
    )

    def __init__(self) -> None:
        self._rtt_ns: float | None = None
        self._least_ns: float | None = None
        self._deviation_ns = 0.0
        self._answer_ns = self._answer_deviation_ns = 0.0
        self.is_loaded = False
        """Whether events wait for the link."""
        self.mean_s_per_kb = 0.0
        self.variance_s2_per_kb2 = 0.0
        self.samples = 0

    @property
    def rtt_ns(self) -> float:
        """The smoothed round trip; a guess before the first."""
        return _UNKNOWN_RTT_NS if self._rtt_ns is None else self._rtt_ns

    @property
    def least_ns(self) -> float:
        """The round trip when the link is idle; a guess before the first."""
        return _UNKNOWN_RTT_NS if self._least_ns is None else self._least_ns

    def note_round_trip(self, took_ns: int) -> None:
        """A ping was answered."""
        if took_ns < 0:
            return
        if self._least_ns is None or took_ns < self._least_ns:
            self._least_ns = float(took_ns)
        elif not self.is_loaded:
            self._least_ns += _RTT_GAIN * (took_ns - self._least_ns)
        if self._rtt_ns is None:
            self._rtt_ns, self._deviation_ns = float(took_ns), took_ns / 2
            return
        self._deviation_ns += _DEVIATION_GAIN * (abs(took_ns - self._rtt_ns) - self._deviation_ns)
        self._rtt_ns += _RTT_GAIN * (took_ns - self._rtt_ns)

    def note_transfer(self, took_ns: int, held_ns: int, size_bytes: int) -> None:
        """A transfer was acknowledged, and had been sent once."""
        size_kb = max(size_bytes / 1000.0, _SMALLEST_KB)
        sample = max(took_ns - held_ns - self.least_ns, 0.0) * 1e-9 / size_kb
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
        """A transfer was acknowledged so long after it was first sent."""
        self._answer_deviation_ns += _DEVIATION_GAIN * (abs(took_ns - self._answer_ns) - self._answer_deviation_ns)
        self._answer_ns += _RTT_GAIN * (took_ns - self._answer_ns)

    def spread_ns(self, size_bytes: int) -> float:
        """The standard deviation of how long frames of this size take."""
        return math.sqrt(self.variance_s2_per_kb2) * size_bytes * 1e6

    def transit_ns(self, size_bytes: int) -> int:
        """How long a frame of this size has probably been under way."""
        rtt_ns = _UNKNOWN_RTT_NS if self._rtt_ns is None else self._rtt_ns
        return int(rtt_ns / 2 + self.mean_s_per_kb * size_bytes * 1e6)

    def patience_ns(self, size_bytes: int) -> int:
        """After how long without an acknowledgement a transfer is worth repeating."""
        rtt_ns = _UNKNOWN_RTT_NS if self._rtt_ns is None else self._rtt_ns
        expected_ns = rtt_ns + 4 * self._deviation_ns + 2 * self.mean_s_per_kb * size_bytes * 1e6
        return int(max(expected_ns, self._answer_ns + 4 * self._answer_deviation_ns))
