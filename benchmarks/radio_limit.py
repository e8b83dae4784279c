"""The limit of `radio`: what no broker and no schedule can exceed on a recorded link, even if it knew all beforehand.

The bound is the exact optimum of an easier problem. Each byte of an event's payload is a job by itself: it can use one
byte of any moment between the event's publication and its deadline (less the time that a packet travels), and earns its
share of the event's price, also if the rest of the event does not come. Every schedule of whole events is one of
these, with the heads of the protocol for nothing besides, so none earns more.

1. The sets of bytes that can all be on time are the sets that can be matched into the moments: a transversal matroid.
   In a matroid the greedy choice is optimal: first as many as possible of what is worth most per byte, then as many as
   possible of the next without giving up any of the former, and so on. So the value is the sum over the densities,
   from the highest, of price per byte times rank(up to this density) - rank(up to the one before).
2. The rank, how many bytes of a set can be on time, is found by serving at every moment the byte that is due first
   among those published and not yet late (Glover's rule for matching where what fits is an interval). So the sweep
   over all moments is exact, and takes no search.

The share of any events that can be on time is bounded alike, with every event worth the same, and as if the link
carried nothing else (`share_limit`).
"""

import bisect
import heapq
import math
from collections.abc import Sequence

from benchmarks.radio_link import DELAY_S, PACKET_BYTES
from benchmarks.radio_load import CLASSES, Class, Event

__all__ = ["rank_bytes", "share_limit", "value_limit"]


def rank_bytes(
    events: Sequence[Event],
    moments_s: Sequence[float],
    classes: Sequence[Class] = CLASSES,
    *,
    delay_s: float = DELAY_S,
    packet_bytes: int = PACKET_BYTES,
) -> dict[int, int]:
    """How many bytes of each event are on time if as many as possible of all together are; events in order of time."""
    served: dict[int, int] = {}
    waiting: list[tuple[float, int, int]] = []  # the last moment, the number, how many bytes are left
    place = 0
    for moment_s in moments_s:
        while place < len(events) and events[place].at_s <= moment_s:
            event = events[place]
            last_s = event.at_s + classes[event.kind].deadline_s - delay_s
            heapq.heappush(waiting, (last_s, event.number, classes[event.kind].payload_bytes))
            place += 1
        space_bytes = packet_bytes
        while waiting and space_bytes:
            last_s, number, left_bytes = waiting[0]
            if last_s < moment_s:
                heapq.heappop(waiting)
                continue
            taken_bytes = min(left_bytes, space_bytes)
            space_bytes -= taken_bytes
            served[number] = served.get(number, 0) + taken_bytes
            if taken_bytes == left_bytes:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (last_s, number, left_bytes - taken_bytes))
    return served


def value_limit(
    events: Sequence[Event],
    moments_s: Sequence[float],
    classes: Sequence[Class] = CLASSES,
    *,
    delay_s: float = DELAY_S,
    packet_bytes: int = PACKET_BYTES,
) -> float:
    """The most that the prices of events that are on time can come to."""
    densities = [each.price / each.payload_bytes for each in classes]
    value, before_bytes = 0.0, 0
    for density in sorted(set(densities), reverse=True):
        chosen = [event for event in events if densities[event.kind] >= density]
        served = rank_bytes(chosen, moments_s, classes, delay_s=delay_s, packet_bytes=packet_bytes)
        value += density * (sum(served.values()) - before_bytes)
        before_bytes = sum(served.values())
    return value


def share_limit(
    events: Sequence[Event],
    moments_s: Sequence[float],
    classes: Sequence[Class] = CLASSES,
    *,
    delay_s: float = DELAY_S,
    packet_bytes: int = PACKET_BYTES,
) -> float:
    """The largest share of these events that can be on time; 1 if there are none."""
    if not events:
        return 1.0
    first, last = min(event.at_s for event in events), max(event.at_s for event in events)
    last += max(each.deadline_s for each in classes)
    inside = moments_s[bisect.bisect_left(moments_s, first) : bisect.bisect_right(moments_s, last)]
    alike = [each._replace(price=1.0) for each in classes]
    bound = value_limit(events, inside, alike, delay_s=delay_s, packet_bytes=packet_bytes)
    return math.floor(bound + 1e-6) / len(events)
