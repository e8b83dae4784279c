"""What one life of a node has to know of the lives before: its clock and its epoch never go back.

A driver reads clocks and hands over what the store holds; what follows from both is decided here, for live brokers and
for simulated ones.
"""

from typing import Final

__all__ = ["clock_offset_ns", "next_epoch"]

_EPOCHS_APART_NS: Final = 1_000_000


def clock_offset_ns(*, wall_ns: int, steady_ns: int, noted_ns: int) -> int:
    """What to add to the steady clock in this life: it begins with the wall clock, but not before what was noted."""
    return max(wall_ns, noted_ns) - steady_ns


def next_epoch(stored: int | None, now_ns: int) -> int:
    """The epoch of a new life: one more than the stored one; by the clock if there is none, or none any more."""
    return max(now_ns // _EPOCHS_APART_NS, 1) if stored is None else stored + 1
