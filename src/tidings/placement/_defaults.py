"""The defaults of placement, in a module of their own: setting a broker up must not load the algorithms."""

from typing import Final, Literal

from tidings.model.policies import RELOCATION_EVENTS, RELOCATION_HYSTERESIS, RELOCATION_STAY_S

__all__ = [
    "DEFAULT_HYSTERESIS",
    "DEFAULT_STAY_NS",
    "DEFAULT_TRACED",
    "DEFAULT_TRACED_PER_WINDOW",
    "DEFAULT_WAIT_NS",
    "DEFAULT_WEIGHT",
    "DEFAULT_WINDOW_NS",
    "Metric",
]

Metric = Literal["delay", "load"]
"""What GRAPE makes small: the time that events take, or the load of brokers."""

DEFAULT_TRACED: Final = RELOCATION_EVENTS
"""How many events make a session of GRAPE (G_threshold)."""
DEFAULT_TRACED_PER_WINDOW: Final = 50
"""POP traces at most so many events of a publisher in a window."""
DEFAULT_WINDOW_NS: Final = 60_000_000_000
DEFAULT_WAIT_NS: Final = 2_000_000_000
"""How long a broker waits for what others say of traced events."""
DEFAULT_STAY_NS: Final = round(RELOCATION_STAY_S * 1e9)
"""How long a publisher is left alone that has just come, or has just been asked to move."""
DEFAULT_HYSTERESIS: Final = RELOCATION_HYSTERESIS
"""A move must gain more than this."""
DEFAULT_WEIGHT: Final = 0.25
"""What one more sample counts in POP's running averages."""
