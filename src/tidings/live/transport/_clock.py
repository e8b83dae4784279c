"""The clock of one machine: nanoseconds since 1970 when it starts, never backwards, on over a restart.

It follows the steady clock of the system from then on, so no correction of the wall clock makes an event younger or
older. `not_before_ns` is the last time that the life before is known to have seen (the durable store keeps it): if the
wall clock was set back in between, the new life begins there.
"""

import time

__all__ = ["Clock"]


class Clock:
    """The time as one machine knows it."""

    __slots__ = ("_offset_ns",)

    def __init__(self, not_before_ns: int = 0) -> None:
        self._offset_ns = max(time.time_ns(), not_before_ns) - time.monotonic_ns()

    def now_ns(self) -> int:
        """The time now."""
        return time.monotonic_ns() + self._offset_ns
