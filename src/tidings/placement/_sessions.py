"""GRAPE, phase 1: a trace session's bit vectors and what the brokers answer about it (paper E, section 4.1).

Rules:

- A session traces consecutive events of one publisher, numbered from 0 by that publisher's own count (a count that
  publishers share would leave gaps). A broker sets bit k when it delivers the k-th event to a subscriber of its own,
  and counts its deliveries.
- At the end each broker that forwarded or delivered something answers with its bits, its deliveries, the time an event
  takes from its arrival here to a client of this broker, and the time to the arrival at each neighbour: input queue,
  matching, output queue and the transfer over the link.
- A neighbour that sent no answer is not part of the session, and nothing behind it is.

Times are whole nanoseconds, so that sums do not depend on the order in which they are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tidings.errors import InputError
from tidings.placement._defaults import DEFAULT_TRACED
from tidings.routing import NO_LINK, Overlay, Tree

__all__ = ["SessionLog", "TraceSession", "bit_words", "pool"]

WORD_BITS: Final = 64
NANOSECONDS_MAX: Final = 2**62

WordArray = NDArray[np.uint64]


def bit_words(events: int) -> int:
    """How many words of 64 bits hold a bit for each event of a session."""
    return max(1, -(-events // WORD_BITS))


class SessionLog:
    """What one broker notes during a session: which events it delivered, and how many deliveries that were."""

    def __init__(self, events: int = DEFAULT_TRACED) -> None:
        if events < 1:
            raise InputError(f"a session of {events} events: it must trace at least 1")
        self.events = events
        self.deliveries = 0
        self._bits = 0

    def delivered(self, number: int, subscribers: int) -> None:
        """The event with this number went to so many subscribers of this broker; none is not a delivery."""
        if not 0 <= number < self.events:
            raise InputError(f"event {number} is not one of this session's {self.events}")
        if subscribers > 0:
            self._bits |= 1 << number
            self.deliveries += subscribers

    @property
    def words(self) -> WordArray:
        raw = self._bits.to_bytes(bit_words(self.events) * 8, "little")
        return np.frombuffer(raw, "<u8").astype(np.uint64)


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceSession:
    """All answers of a session, by broker of the overlay.

    `tree` leads from the publisher's home to every broker that answered. `bits[b]` and `deliveries[b]` are of broker b
    itself; `to_client_ns[b]` is the time from an event's arrival at b to a subscriber there; `onward_ns[l]` the time
    from its arrival at the source of link l to its arrival at the target; `ping_ns[b]` how long an event takes from the
    publisher to b when b is its home. Entries of brokers that did not answer mean nothing. `events` is how many bits
    there are, `traced` how many events those stand for, where that is fewer (pooled sessions are joined word by word).
    """

    overlay: Overlay
    tree: Tree
    events: int
    bits: WordArray
    deliveries: NDArray[np.int64]
    to_client_ns: NDArray[np.int64]
    onward_ns: NDArray[np.int64]
    ping_ns: NDArray[np.int64]
    traced: int | None = None

    def __post_init__(self) -> None:
        brokers, links = self.overlay.broker_count, self.overlay.link_count
        self._keep("bits", (brokers, bit_words(self.events)), np.uint64)
        self._keep("onward_ns", (links,), np.int64)
        for name in ("deliveries", "to_client_ns", "ping_ns"):
            self._keep(name, (brokers,), np.int64)
        oneway = self.tree.order[1:][self.back_links[1:] == NO_LINK]
        if len(oneway):
            child = int(oneway[0])
            raise InputError(
                f"no link leads from broker {self.overlay.brokers[child]!r} back to "
                f"{self.overlay.brokers[self.tree.parent[child]]!r}: a publisher can move only where "
                "links go in both directions"
            )
        farthest = int(self.ping_ns.max(initial=0)) + int(self.to_client_ns.max(initial=0))
        farthest += int(self.onward_ns.max(initial=0)) * len(self.tree.order)
        if farthest * max(1, int(self.deliveries.sum())) > NANOSECONDS_MAX:
            raise InputError("the delays of this session add up to more than 146 years: are they in nanoseconds?")

    def _keep(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        given = np.asarray(getattr(self, name))
        if given.shape != shape:
            raise InputError(f"{name} has shape {given.shape}, not {shape}: one entry for each broker or link")
        if given.dtype.kind not in "iu" or (given.size and int(given.min()) < 0):
            raise InputError(f"{name} must hold whole numbers of at least 0")
        array = np.array(given, dtype, order="C")
        array.flags.writeable = False
        object.__setattr__(self, name, array)

    @cached_property
    def back_links(self) -> NDArray[np.int32]:
        """For each broker of `tree.order` the link to its parent; -1 for the home, and where there is none."""
        members = self.tree.order
        parents = self.tree.parent[members]
        return np.where(parents < 0, NO_LINK, self.overlay.links_between(members, parents)).astype(np.int32)

    @property
    def traced_events(self) -> int:
        return self.events if self.traced is None else self.traced

    @property
    def total_deliveries(self) -> int:
        return int(self.deliveries[self.tree.order].sum())


def pool(sessions: Sequence[TraceSession]) -> TraceSession:
    """Several sessions of one publisher at one home as one: more events, so less noise in every figure.

    Events and deliveries add up; times are means over the sessions. Only brokers of the common tree may have answered.
    """
    if not sessions:
        raise InputError("there is no session to pool")
    first = sessions[0]
    for other in sessions[1:]:
        if other.overlay is not first.overlay or not np.array_equal(other.tree.parent, first.tree.parent):
            raise InputError("sessions of different homes, or with different answers, cannot be pooled")
    words = [session.bits for session in sessions]
    return TraceSession(
        overlay=first.overlay,
        tree=first.tree,
        events=sum(bits.shape[1] for bits in words) * WORD_BITS,
        bits=np.concatenate(words, axis=1),
        deliveries=np.sum([session.deliveries for session in sessions], axis=0),
        to_client_ns=_mean_ns([session.to_client_ns for session in sessions]),
        onward_ns=_mean_ns([session.onward_ns for session in sessions]),
        ping_ns=_mean_ns([session.ping_ns for session in sessions]),
        traced=sum(session.traced_events for session in sessions),
    )


def _mean_ns(times: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    mean: NDArray[np.int64] = np.rint(np.mean(times, axis=0)).astype(np.int64)
    return mean
