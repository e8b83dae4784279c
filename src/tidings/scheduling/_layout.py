"""The flat arrays that compiled decisions read: slots of queued events, (event, subscription) pairs, paths.

A slot is one event waiting on one link; a queue is an array of slot numbers in the order in which they were enqueued.
Slots of many links may share the arrays. `known` holds what earlier decisions learnt about a slot, as upper bounds:
worth never rises with time, so a stale figure still rules a slot out. `fill_slot` starts it at infinity: nothing is
known.

Kernels take a `Board` as it is lent (`tidings.compiled.lend`): all of it is one pointer.
"""

import math
from typing import NamedTuple

import numpy as np

from tidings.compiled import borrowing
from tidings.scheduling._kernels import NORMAL_TABLE, FloatArray, IntArray, deletion_time
from tidings.scheduling._lane import TURNS

__all__ = ["Board", "Pairs", "Paths", "Room", "Slots", "empty_board", "fill_slot"]


class Slots(NamedTuple):
    """By slot: the event's own figures, its pairs start..stop-1, when to delete it, what is known of its worth."""

    published_s: FloatArray
    size_kb: FloatArray
    start: IntArray
    stop: IntArray
    delete_s: FloatArray
    known: FloatArray


class Pairs(NamedTuple):
    """By pair: the subscription (an index into the paths) and the tighter of the two deadlines."""

    target: IntArray
    allowed_s: FloatArray


class Paths(NamedTuple):
    """By subscription: what an on-time delivery pays, and the path that is left (see `_kernels`)."""

    price: FloatArray
    nodes: FloatArray
    mean_s_per_kb: FloatArray
    sd_s_per_kb: FloatArray


class Room(NamedTuple):
    """Room to decide in: one place for each that may wait and one more, and what a plan is made of (`_plan`)."""

    urgent: IntArray
    top: FloatArray
    holder: IntArray
    without: FloatArray


class Board(NamedTuple):
    """All that a decision looks at: the queue (slots in the order in which they were enqueued; a decision is told how
    many), what is known of each slot, pair and path, the table of the normal distribution, and room."""

    queue: IntArray
    slots: Slots
    pairs: Pairs
    paths: Paths
    table: FloatArray
    room: Room


def empty_board(slots: int, pairs: int) -> Board:
    """Room for this many events, and for this many pairs; a pair is a subscription of its own."""
    return Board(
        queue=np.zeros(slots, np.int64),
        slots=Slots(
            published_s=np.zeros(slots),
            size_kb=np.zeros(slots),
            start=np.zeros(slots, np.int64),
            stop=np.zeros(slots, np.int64),
            delete_s=np.zeros(slots),
            known=np.full((slots, TURNS), math.inf),
        ),
        pairs=Pairs(target=np.arange(pairs), allowed_s=np.zeros(pairs)),
        paths=Paths(*(np.zeros(pairs) for _ in Paths._fields)),
        table=NORMAL_TABLE,
        room=Room(
            urgent=np.zeros(slots + 1, np.int64),
            top=np.zeros((TURNS, TURNS)),
            holder=np.zeros((TURNS + 1, TURNS), np.int64),
            without=np.zeros(TURNS),
        ),
    )


@borrowing
def fill_slot(
    board: Board,
    slot: int,
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    quantile: float,
    processing_s: float,
) -> None:
    """Enter an event whose pairs start..stop-1 are in place; its deletion time follows from them."""
    slots, pairs, paths = board.slots, board.pairs, board.paths
    slots.published_s[slot] = published_s
    slots.size_kb[slot] = size_kb
    slots.start[slot] = start
    slots.stop[slot] = stop
    for turn in range(TURNS):
        slots.known[slot, turn] = math.inf
    slots.delete_s[slot] = deletion_time(
        published_s,
        size_kb,
        start,
        stop,
        pairs.target,
        pairs.allowed_s,
        paths.nodes,
        paths.mean_s_per_kb,
        paths.sd_s_per_kb,
        processing_s,
        quantile,
    )
