"""What placement does unless told otherwise, apart from it: who only sets a broker up must not load the algorithms."""

from typing import Final, Literal

__all__ = ["DEFAULT_TRACED", "DEFAULT_TRACED_PER_WINDOW", "DEFAULT_WEIGHT", "DEFAULT_WINDOW_NS", "Metric"]

Metric = Literal["delay", "load"]
"""What GRAPE makes small: the time that events take, or the load of brokers."""

DEFAULT_TRACED: Final = 100
"""How many events make a session of GRAPE (G_threshold)."""
DEFAULT_TRACED_PER_WINDOW: Final = 50
"""POP traces at most so many events of a publisher in a window."""
DEFAULT_WINDOW_NS: Final = 60_000_000_000
DEFAULT_WEIGHT: Final = 0.25
"""What one more sample counts in POP's running averages."""
