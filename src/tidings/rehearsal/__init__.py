"""Rehearsals: a scenario on real broker processes on this machine, and the same scenario four ways
(docs/reference/rehearsal.md).

`rehearse(network, scale=10)` runs it on processes; `compare(network)` runs simulator, protocol, rehearsal and predictor
and says where their on-time shares differ by more than noise. `door` is the shaped link that rehearsals use. Names load
on first use: who wants a door needs no simulator.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.rehearsal._comparison import WAYS, Comparison, Disagreement, SubscriberComparison, Way, compare
    from tidings.rehearsal._noise import Estimate
    from tidings.rehearsal._run import Machine, RehearsalResult, RehearsedSubscription, rehearse
    from tidings.rehearsal._shaping import FREE, Door, Shape, door, shape_of

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

__getattr__, __dir__ = lazily(
    __name__,
    {
        "FREE": "_shaping",
        "WAYS": "_comparison",
        "Comparison": "_comparison",
        "Disagreement": "_comparison",
        "Door": "_shaping",
        "Estimate": "_noise",
        "Machine": "_run",
        "RehearsalResult": "_run",
        "RehearsedSubscription": "_run",
        "Shape": "_shaping",
        "SubscriberComparison": "_comparison",
        "Way": "_comparison",
        "compare": "_comparison",
        "door": "_shaping",
        "rehearse": "_run",
        "shape_of": "_shaping",
    },
)
