"""The clock of one machine: it starts at the nanoseconds since 1970 and never goes back, not even across restarts.

From its start on it follows the system's monotonic clock, so no correction of the wall clock changes the age of an
event. `noted_ns` is the last time that the previous process is known to have seen; the node decides what follows from
it.
"""

import time

from tidings.protocol.node import clock_offset_ns

__all__ = ["Clock"]


class Clock:
    """The clock of one machine."""

    __slots__ = ("_offset_ns",)

    def __init__(self, noted_ns: int = 0) -> None:
        self._offset_ns = clock_offset_ns(wall_ns=time.time_ns(), steady_ns=time.monotonic_ns(), noted_ns=noted_ns)

    def now_ns(self) -> int:
        """The time now."""
        return time.monotonic_ns() + self._offset_ns
