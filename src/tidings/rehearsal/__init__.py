"""Rehearsals: a scenario on real broker processes on this machine, and the same scenario by four
methods (docs/reference/rehearsal.md).

`rehearse(network, scale=10)` runs it on processes; `compare(network)` runs simulator, protocol, rehearsal and predictor
and reports where their on-time shares differ by more than noise. `door` is the shaped link of rehearsals. Names load on
first use: a door needs no simulator.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.rehearsal._comparison import WAYS, Comparison, Disagreement, SubscriberComparison, Way, compare
    from tidings.rehearsal._noise import Estimate
    from tidings.rehearsal._run import Machine, RehearsalResult, RehearsedSubscription, rehearse
    from tidings.rehearsal._shaped_link import FREE, Door, Shape, door, shape_of

__all__ = [
    "FREE",
    "WAYS",
    "Comparison",
    "Disagreement",
    "Door",
    "Estimate",
    "Machine",
    "RehearsalResult",
    "RehearsedSubscription",
    "Shape",
    "SubscriberComparison",
    "Way",
    "compare",
    "door",
    "rehearse",
    "shape_of",
]

__getattr__, __dir__ = lazily(__name__)
