"""Copies that wait in a row, each knowing who is before and after it; whoever owns the row keeps its two ends."""

from tidings.compiled import borrowing_inner
from tidings.simulation._layout import NOBODY, Array

__all__ = ["appended", "removed"]


@borrowing_inner
def appended(copies: Array, copy: int, head: int, tail: int) -> tuple[int, int]:
    """The ends of the row with a copy after its last one."""
    copies[copy].next = NOBODY
    copies[copy].previous = tail
    if tail < 0:
        return copy, copy
    copies[tail].next = copy
    return head, copy


@borrowing_inner
def removed(copies: Array, copy: int, head: int, tail: int) -> tuple[int, int]:
    """The ends of the row without one of its copies."""
    before, after = copies[copy].previous, copies[copy].next
    if before >= 0:
        copies[before].next = after
    else:
        head = after
    if after >= 0:
        copies[after].previous = before
    else:
        tail = before
    return head, tail
