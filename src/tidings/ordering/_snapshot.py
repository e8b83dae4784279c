"""What a receiver of one publisher knows, as values: to be stored, and taken up again elsewhere or later."""

from typing import Generic, TypeVar

import msgspec

from tidings.ordering._latches import Overtaking

__all__ = ["Snapshot"]

T = TypeVar("T")


class Snapshot(msgspec.Struct, Generic[T], frozen=True, kw_only=True, array_like=True):
    """All that a Sequencer knows, as values that can be stored; `base` is (sequence, departure, the one before)."""

    base: tuple[int, int, int] | None
    arrival_ns: int
    clock_ns: int
    held: list[tuple[int, int, T]]
    frontier: int
    highest: int
    received: bytes
    resolved: bytes
    differences: list[int]
    overtaken: bool
    overtaking: Overtaking
    first: dict[int, tuple[int, int]]
    stepped_at: int
    step_over_ns: int
    counts: list[int]
    spread: float = 0.0  # this and the rest: not known to the first versions
    late_ns: int = 0
    opened: int = 0
    arrived: int = 0
