"""The resources of a broker that one client may use: queued bytes, traffic, and processor time for its filters.

| budget | at the bound |
| --- | --- |
| `queued_bytes` | of the events queued for the client, the one with the least expected benefit is dropped |
| `matching_us` | a subscription or advertisement is refused: all filters of the client would cost more for each event |
| `rate_per_s`, `bytes_per_s` | the client is not read from until it is within them again |
| `reading_share` | the same: this share of a processor may be used for reading its long filters, by estimate |

Estimates depend on the filter alone, so that equal frames have equal effects. Rates allow
bursts of one second's worth.
"""

from typing import Final

import msgspec

__all__ = ["Budget", "Purse", "reading_us"]

_FREE_CHARACTERS: Final = 256
"""Filters of this length are read in well under a millisecond, most of them in 20 us: only longer ones count."""
_READING_US_PER_CHARACTER: Final = 5.0
"""Of a long filter, if nothing about it is known; from 1.5 to 5 were measured."""
_US: Final = 1e6
_NS: Final = 1e9


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of one client; None: unlimited."""

    queued_bytes: int = 64_000_000
    matching_us: float = 500.0
    rate_per_s: float | None = None
    bytes_per_s: float | None = None
    reading_share: float = 0.1

    def capped(self, rate_per_s: float | None) -> "Budget":
        """The same with at most this rate."""
        if rate_per_s is None or (self.rate_per_s is not None and self.rate_per_s <= rate_per_s):
            return self
        return msgspec.structs.replace(self, rate_per_s=rate_per_s)


def reading_us(text: str) -> float:
    """The estimated time for reading a filter."""
    return max(len(text) - _FREE_CHARACTERS, 0) * _READING_US_PER_CHARACTER


class _Bucket:
    """A token bucket: it fills at the allowed rate, up to one second's worth; a deficit has to be waited for."""

    __slots__ = ("_filled_ns", "_per_s", "allowance")

    def __init__(self, per_s: float, now_ns: int) -> None:
        self._per_s = self.allowance = per_s
        self._filled_ns = now_ns

    def take(self, many: float, now_ns: int) -> int:
        """How long to wait after taking this much."""
        filled = self.allowance + (now_ns - self._filled_ns) / _NS * self._per_s
        self.allowance = min(filled, self._per_s) - many
        self._filled_ns = now_ns
        return round(max(-self.allowance / self._per_s, 0.0) * _NS)


class Purse:
    """The unused part of a client's rates, over one connection."""

    __slots__ = ("_buckets", "budget", "held_back_ns", "was_held_back", "why")

    def __init__(self, budget: Budget, now_ns: int) -> None:
        rates = (budget.rate_per_s, budget.bytes_per_s, budget.reading_share * _US)
        self._buckets = [(place, _Bucket(rate, now_ns)) for place, rate in enumerate(rates) if rate is not None]
        self.budget = budget
        self.held_back_ns = 0
        """For how long it was not read from, in total."""
        self.was_held_back = 0
        """How often."""
        self.why = ""
        """Which limit it exceeded the last time."""

    def spend(self, events: int, size_bytes: int, read_us: float, now_ns: int) -> int:
        """Charge for events or requests, their bytes, and the reading of filters; how long the client has to wait."""
        longest_ns, spent = 0, (events, size_bytes, read_us)
        for place, bucket in self._buckets:
            if not spent[place] and bucket.allowance >= 0.0:
                continue  # it fills when something is taken from it
            wait_ns = bucket.take(spent[place], now_ns)
            if wait_ns > longest_ns:
                longest_ns, self.why = wait_ns, self._limit(place)
        return longest_ns

    def _limit(self, place: int) -> str:
        budget = self.budget
        return (
            f"it sends more than {budget.rate_per_s or 0.0:g} events and requests a second",
            f"it sends more than {budget.bytes_per_s or 0.0:g} bytes a second",
            f"its long filters take more than {budget.reading_share:.0%} of a processor to read",
        )[place]
