"""The clock of one machine: nanoseconds since 1970 when it starts, never backwards, on over a restart.

It follows the steady clock of the system from then on, so no correction of the wall clock makes an event younger or
older. `noted_ns` is the last time that the life before is known to have seen; what follows from it the node decides.
"""

import time

from tidings.protocol.node import clock_offset_ns

__all__ = ["Clock"]


class Clock:
    """The time as one machine knows it."""

    __slots__ = ("_offset_ns",)

    def __init__(self, noted_ns: int = 0) -> None:
        self._offset_ns = clock_offset_ns(wall_ns=time.time_ns(), steady_ns=time.monotonic_ns(), noted_ns=noted_ns)

    def now_ns(self) -> int:
        """The time now."""
        return time.monotonic_ns() + self._offset_ns
