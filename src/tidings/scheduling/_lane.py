"""The flat arrays of one live queue, and the tournaments over them that decisions ask.

Layout:

- An event has a *position*: positions are given in the order of arrival, and again from 0 on when the end is reached
  and those still in use have moved together (`compact`). So the earliest enqueued of a set is the one furthest left.
- Row p of `facts` and `spans` is the event at position p. Its subscriptions are columns start..stop-1 of `rows`
  (`Waiting.rows`), in the order of arrival too.
- Row k of `trees` is a tournament: leaf `width + p` belongs to position p, and every node is the greater of the two
  below it. Entering a value, finding the greatest, and finding the leftmost or rightmost that is at least so great all
  take log2(width) steps. A position without an event is -inf.

The tournaments: DUE of negative deletion times; VALID of negative times until which a bound holds (see `_tournament`);
and from WORTHS on, upper bounds of worths, one tournament or for plans one for each turn.
"""

from math import inf
from typing import Final, NamedTuple

import numpy as np

from tidings.compiled import borrowing, borrowing_step
from tidings.scheduling._kernels import FloatArray, IntArray

__all__ = [
    "AT",
    "BENEFIT",
    "CALM",
    "DELETE",
    "DUE",
    "EXACT",
    "FACTS",
    "HORIZON",
    "NUMBER",
    "PUBLISHED",
    "SIZE",
    "SPANS",
    "START",
    "STOP",
    "TOTAL",
    "TURNS",
    "VALID",
    "WORTHS",
    "Lane",
    "clear",
    "compact",
    "empty_lane",
    "leftmost",
    "position_of",
    "put",
    "rightmost",
]

TURNS: Final = 4
"""The transmissions of a plan: the one at hand and three later ones."""

DUE, VALID, WORTHS = range(3)

PUBLISHED, SIZE, DELETE, TOTAL, CALM, BENEFIT, HORIZON, EXACT, AT = range(9)
"""Columns of `facts`: publication, size, deletion time; the sum of all prices; until when every success is 1; then what
decisions learnt: the last EB, how far the last bound looked ahead, the last exact worth, and when it was exact (for
plans a column for each turn)."""
FACTS: Final = AT + TURNS

START, STOP, NUMBER = range(3)
SPANS: Final = 3


class Lane(NamedTuple):
    """All that is known of the events that wait for one link; the last three are room for decisions to work in.

    Kernels take it apart by position: a call from Python takes a plain tuple in a fraction of the time of a named one.
    """

    facts: FloatArray
    spans: IntArray
    rows: FloatArray
    itself: IntArray
    trees: FloatArray
    scratch: IntArray
    top: FloatArray
    holder: IntArray


def empty_lane(width: int, columns: int, tournaments: int) -> Lane:
    """Room for so many events, with so many subscriptions together."""
    return Lane(
        facts=np.zeros((width, FACTS)),
        spans=np.zeros((width, SPANS), np.int64),
        rows=np.zeros((5, columns)),
        itself=np.arange(columns),
        trees=np.full((tournaments, 2 * width), -inf),
        scratch=np.zeros(width, np.int64),
        top=np.zeros((TURNS + 1, TURNS)),
        holder=np.zeros((TURNS + 1, TURNS), np.int64),
    )


@borrowing_step
def put(trees: FloatArray, tournament: int, position: int, value: float) -> None:
    """Enter a value at a position."""
    tree = trees[tournament]
    node = (len(tree) >> 1) + position
    tree[node] = value
    node >>= 1
    while node > 0:
        greater = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == greater:
            break
        tree[node] = greater
        node >>= 1


@borrowing_step
def leftmost(trees: FloatArray, tournament: int, least: float) -> int:
    """The first position with at least this value; there must be one."""
    tree = trees[tournament]
    width = len(tree) >> 1
    node = 1
    while node < width:
        node *= 2
        if tree[node] < least:
            node += 1
    return node - width


@borrowing_step
def rightmost(trees: FloatArray, tournament: int, least: float) -> int:
    """The last position with at least this value; there must be one."""
    tree = trees[tournament]
    width = len(tree) >> 1
    node = 1
    while node < width:
        node = 2 * node + 1
        if tree[node] < least:
            node -= 1
    return node - width


@borrowing_step
def clear(trees: FloatArray, position: int) -> None:
    """The event at a position has left."""
    for tournament in range(len(trees)):
        put(trees, tournament, position, -inf)


@borrowing_step
def position_of(spans: IntArray, tail: int, number: int) -> int:
    """The position of the event with this number, of positions up to `tail`; numbers rise with positions."""
    low, high = 0, tail
    while low < high:
        middle = (low + high) >> 1
        if spans[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low


@borrowing
def compact(old: Lane, tail: int, new: Lane) -> tuple[int, int]:
    """Move the events of a lane together, into another or within it: how many they are, and the end of their rows."""
    facts, spans, rows, trees = old[0], old[1], old[2], old[4]
    to_facts, to_spans, to_rows, to_trees = new[0], new[1], new[2], new[4]
    width, to_width = trees.shape[1] >> 1, to_trees.shape[1] >> 1
    kept = end = 0
    for position in range(tail):
        if trees[WORTHS, width + position] == -inf:
            continue
        start = spans[position, START]
        count = spans[position, STOP] - start
        for row in range(5):
            for column in range(count):
                to_rows[row, end + column] = rows[row, start + column]
        for fact in range(FACTS):
            to_facts[kept, fact] = facts[position, fact]
        to_spans[kept, START] = end
        to_spans[kept, STOP] = end + count
        to_spans[kept, NUMBER] = spans[position, NUMBER]
        for tournament in range(len(trees)):
            to_trees[tournament, to_width + kept] = trees[tournament, width + position]
        kept += 1
        end += count
    for tournament in range(len(to_trees)):
        tree = to_trees[tournament]
        for node in range(to_width + kept, 2 * to_width):
            tree[node] = -inf
        for node in range(to_width - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
    return kept, end
