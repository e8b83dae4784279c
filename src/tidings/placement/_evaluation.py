"""All candidates at once: what the printed algorithms give for each broker, in one pass over the tree.

Theory of operation (rerooting). Let p be a broker and c a neighbour of it. Moving the publisher from p to c changes

- the delay of everybody on c's side by minus the time p to c, and of everybody else by plus the time c to p;
- the traffic of two brokers only: c was handling what is delivered on its side of the link and p everything; then p
  handles what is delivered on its side and c everything. The traffic of every other broker depends on the side from
  which events come, which stays the same.

So both totals of c follow from those of p, and all of them from those of the home: O(N) steps instead of O(N²). The
events delivered on c's side are the union over its subtree; those on p's side the union over all else, which is joined
from what lies above p, at p, and behind p's other children. Sums are of whole numbers, so the results are those of the
printed algorithms to the last digit.

Prices: each broker may also put a price on handling an event, and a candidate's total is then in that coin. Prices that
rise with a broker's load make publishers avoid each other (`place_jointly`).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled, compiled_inline
from tidings.errors import InputError
from tidings.placement._sessions import TraceSession, WordArray

__all__ = ["Candidates", "evaluate", "loads_from"]

_ODD = np.uint64(0x5555555555555555)
_PAIRS = np.uint64(0x3333333333333333)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)
_ONE, _TWO, _FOUR, _TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The places where a publisher could be, and what each would cost; all arrays go along with `brokers`.

    `total_delay_ns` is over all deliveries of the session, `messages` how many times brokers handle its events,
    `hops` how far the broker is from the present home. `home` is always among the brokers.
    """

    home: int
    brokers: NDArray[np.int32]
    total_delay_ns: NDArray[np.int64]
    messages: NDArray[np.int64]
    hops: NDArray[np.int32]
    deliveries: int

    @property
    def average_delay_ns(self) -> NDArray[np.float64]:
        """Mean over the deliveries; 0 where there were none, since then no place is better than another."""
        return self.total_delay_ns / max(1, self.deliveries)

    def at(self, broker: int) -> int:
        """Where this broker stands in the arrays."""
        found = np.flatnonzero(self.brokers == broker)
        if not len(found):
            raise InputError(f"broker {broker} is not a candidate: it did not answer in this session")
        return int(found[0])


def evaluate(session: TraceSession) -> Candidates:
    """What every broker that answered would cost as the publisher's home, the present one included."""
    order, parent = session.tree.order, session.tree.parent
    down, up = _union_sizes(order, parent, session.bits)
    return Candidates(
        home=session.tree.root,
        brokers=order,
        total_delay_ns=delays_of(session),
        messages=_priced(order, parent, down, up, np.ones(len(parent), np.int64)),
        hops=session.tree.depth[order].astype(np.int32),
        deliveries=session.total_deliveries,
    )


def delays_of(session: TraceSession) -> NDArray[np.int64]:
    """The delays of all deliveries, added up, for every candidate."""
    order = session.tree.order
    down_ns, up_ns = _times_along(session)
    delays = _delays(order, session.tree.parent, session.deliveries, down_ns, up_ns, session.to_client_ns)
    return delays + session.ping_ns[order] * session.total_deliveries


def loads_from(session: TraceSession, home: int) -> NDArray[np.int64]:
    """How many of the session's events each broker of the overlay would handle with the publisher at `home`."""
    return handled_from(session, home)[0]


def handled_from(session: TraceSession, home: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """With the publisher at `home`: how many events each broker handles, and how many deliveries pass it."""
    order, parent = session.tree.order, session.tree.parent
    if home not in session.tree:
        raise InputError(f"broker {home} did not answer in this session, so its load is not known")
    down, up = _union_sizes(order, parent, session.bits)
    handled = np.zeros(session.overlay.broker_count, np.int64)
    handled[order] = down[order]
    below = _deliveries_below(order, parent, session.deliveries)
    passing = below.copy()
    root = session.tree.root
    for above, broker in pairwise(session.tree.path(home)):
        handled[above], passing[above] = up[broker], below[root] - below[broker]
    handled[home], passing[home] = down[root], below[root]
    return handled, passing


def priced_messages(session: TraceSession, prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """What handling costs in all for every candidate, when broker b asks `prices[b]` for each event."""
    order, parent = session.tree.order, session.tree.parent
    down, up = _union_sizes(order, parent, session.bits)
    return _priced(order, parent, down, up, np.ascontiguousarray(prices, np.float64))


def _times_along(session: TraceSession) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each broker the time from its parent to it, and back."""
    down = np.zeros(session.overlay.broker_count, np.int64)
    up = np.zeros(session.overlay.broker_count, np.int64)
    members = session.tree.order[1:]
    down[members] = session.onward_ns[session.tree.parent_link[members]]
    up[members] = session.onward_ns[session.back_links[1:]]
    return down, up


@compiled
def _deliveries_below(
    order: NDArray[np.int32], parent: NDArray[np.int32], deliveries: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each broker the deliveries at it and behind it, seen from the home."""
    below = np.zeros(len(parent), np.int64)
    for broker in order:
        below[broker] = deliveries[broker]
    for place in range(len(order) - 1, 0, -1):
        below[parent[order[place]]] += below[order[place]]
    return below


@compiled
def _delays(
    order: NDArray[np.int32],
    parent: NDArray[np.int32],
    deliveries: NDArray[np.int64],
    down_ns: NDArray[np.int64],
    up_ns: NDArray[np.int64],
    to_client_ns: NDArray[np.int64],
) -> NDArray[np.int64]:
    below = _deliveries_below(order, parent, deliveries)
    away_ns = np.zeros(len(parent), np.int64)
    total = np.zeros(len(parent), np.int64)
    home = order[0]
    for broker in order:
        if broker != home:
            away_ns[broker] = away_ns[parent[broker]] + down_ns[broker]
        total[home] += deliveries[broker] * (away_ns[broker] + to_client_ns[broker])
    found = np.zeros(len(order), np.int64)
    for place in range(len(order)):
        broker = order[place]
        if place > 0:
            above = parent[broker]
            nearer, farther = below[broker], below[home] - below[broker]
            total[broker] = total[above] - nearer * down_ns[broker] + farther * up_ns[broker]
        found[place] = total[broker]
    return found


@compiled_inline
def _ones(word: np.uint64) -> np.int64:
    """How many bits are set, by adding neighbours (all operands unsigned: a mix would become a float)."""
    pairs = word - ((word >> _ONE) & _ODD)
    nibbles = (pairs & _PAIRS) + ((pairs >> _TWO) & _PAIRS)
    sums = (nibbles + (nibbles >> _FOUR)) & _NIBBLES
    return np.int64((sums * _BYTES) >> _TOP)


@compiled
def _union_sizes(
    order: NDArray[np.int32], parent: NDArray[np.int32], bits: WordArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each broker how many events are delivered on its side of the link to its parent, and on the other side.

    In reverse preorder a broker's later siblings come before it, in preorder its earlier ones: `below` of the parent,
    while it is being joined, is what lies behind the siblings that came before.
    """
    words = bits.shape[1]
    below = np.zeros((len(parent), words), np.uint64)
    beside = np.zeros((len(parent), words), np.uint64)
    earlier = np.zeros((len(parent), words), np.uint64)
    down = np.zeros(len(parent), np.int64)
    up = np.zeros(len(parent), np.int64)
    for place in range(len(order) - 1, -1, -1):
        broker = order[place]
        above = parent[broker]
        for word in range(words):
            if place > 0:
                beside[broker, word] = below[above, word]
            below[broker, word] |= bits[broker, word]
            down[broker] += _ones(below[broker, word])
            if place > 0:
                below[above, word] |= below[broker, word]
    for place in range(1, len(order)):
        broker = order[place]
        above = parent[broker]
        for word in range(words):
            beside[broker, word] |= bits[above, word] | earlier[above, word]
            if above != order[0]:
                beside[broker, word] |= beside[above, word]
            earlier[above, word] |= below[broker, word]
            up[broker] += _ones(beside[broker, word])
    return down, up


@compiled
def _priced(
    order: NDArray[np.int32],
    parent: NDArray[np.int32],
    down: NDArray[np.int64],
    up: NDArray[np.int64],
    prices: NDArray[Any],
) -> NDArray[Any]:
    """For every candidate what brokers handle, each event at the price of its broker; whole where prices are."""
    home = order[0]
    found = np.zeros(len(order), prices.dtype)
    total = np.zeros(len(parent), prices.dtype)
    for broker in order:
        total[home] += down[broker] * prices[broker]
    found[0] = total[home]
    for place in range(1, len(order)):
        broker = order[place]
        above = parent[broker]
        now_here = (down[home] - down[broker]) * prices[broker]
        now_above = (up[broker] - down[home]) * prices[above]
        total[broker] = total[above] + now_here + now_above
        found[place] = total[broker]
    return found
