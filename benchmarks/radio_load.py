"""The load of `radio`, and what came of it: events of four classes, the same for every broker, counted alike.

A vehicle, a plant or a ship reports to one site over a radio link: alarms, telemetry that steers something, telemetry
for the record, and bulk (pictures, logs) from time to time. Rates follow the link: shares of what it carries on average
in the run.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["CLASSES", "DRAIN_S", "Class", "Event", "bulk_phases", "events_of"]

SEED = 31


class Class(NamedTuple):
    """Events of one kind."""

    name: str
    price: float
    """What one of them is worth if it arrives in time."""
    deadline_s: float
    payload_bytes: int
    share: float
    """Of what the link carries on average; 0: `per_s`."""
    per_s: float
    is_bulk: bool = False


CLASSES = (
    Class("alarm", price=10.0, deadline_s=1.0, payload_bytes=300, share=0.0, per_s=2.0),
    Class("urgent", price=3.0, deadline_s=0.5, payload_bytes=600, share=0.1, per_s=0.0),
    Class("routine", price=1.0, deadline_s=2.0, payload_bytes=1_200, share=0.2, per_s=0.0),
    Class("bulk", price=0.5, deadline_s=20.0, payload_bytes=12_000, share=1.2, per_s=0.0, is_bulk=True),
)
DRAIN_S = max(each.deadline_s for each in CLASSES)
"""How long the last events may still arrive."""


class Event(NamedTuple):
    """An event, in seconds from the begin; `number` is its place in the list."""

    at_s: float
    number: int
    kind: int
    """Its place in CLASSES."""

    @property
    def due_s(self) -> float:
        """When it has to be there."""
        return self.at_s + CLASSES[self.kind].deadline_s


def bulk_phases(length_s: float) -> list[tuple[float, float]]:
    """When bulk is published: in the second and the last quarter."""
    return [(0.25 * length_s, 0.5 * length_s), (0.75 * length_s, length_s)]


def events_of(bytes_per_s: float, length_s: float, classes: Sequence[Class] = CLASSES) -> list[Event]:
    """All events of a run over a link of this mean capacity, in the order in which they are published."""
    found: list[tuple[float, int]] = []
    for kind, each in enumerate(classes):
        dice = random.Random(SEED + kind)
        rate_per_s = each.per_s or each.share * bytes_per_s / each.payload_bytes
        for begin_s, end_s in bulk_phases(length_s) if each.is_bulk else [(0.0, length_s)]:
            at_s = begin_s
            while (at_s := at_s + dice.expovariate(rate_per_s)) < end_s:
                found.append((at_s, kind))
    return [Event(at_s, number, kind) for number, (at_s, kind) in enumerate(sorted(found))]
