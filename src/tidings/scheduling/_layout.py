"""The flat arrays that compiled decisions read: slots of queued events, (event, subscription) pairs, paths.

A slot is one event waiting on one link; a queue is an array of slot numbers in the order in which they were enqueued.
Slots of many links may share the arrays. `known` holds what earlier decisions learnt about a slot, as upper bounds:
worth never rises with time, so a stale figure still rules a slot out. `fill_slot` starts it at infinity (nothing is
known); `forget` does so again, and is needed when path figures or the time of a turn change while events wait.

Kernels unpack these tuples by position, so that a plain tuple of the same arrays does as well: a call from Python takes
a plain tuple in a fraction of the time that a named one costs.
"""

import math
from typing import NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.scheduling._kernels import FloatArray, IntArray, deletion_time
from tidings.scheduling._lane import TURNS

__all__ = ["Pairs", "Paths", "Room", "Slots", "empty_slots", "fill_slot", "forget", "make_room"]


class Slots(NamedTuple):
    """By slot: the event's own figures, its pairs start..stop-1, when to delete it, its place in the order."""

    published_s: FloatArray
    size_kb: FloatArray
    start: IntArray
    stop: IntArray
    delete_s: FloatArray
    sequence: IntArray
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
    """Room to decide in, for loops that must not allocate: one place for each that may wait and one more, and what a
    plan is made of (`_plan`)."""

    urgent: IntArray
    top: FloatArray
    holder: IntArray
    without: FloatArray


@compiled
def make_room(waiting: int) -> Room:
    """Room for decisions about this many that wait."""
    return Room(
        np.zeros(waiting + 1, np.int64),
        np.zeros((TURNS, TURNS)),
        np.zeros((TURNS + 1, TURNS), np.int64),
        np.zeros(TURNS),
    )


def empty_slots(capacity: int) -> Slots:
    """Room for this many events."""
    return Slots(
        published_s=np.zeros(capacity),
        size_kb=np.zeros(capacity),
        start=np.zeros(capacity, np.int64),
        stop=np.zeros(capacity, np.int64),
        delete_s=np.zeros(capacity),
        sequence=np.zeros(capacity, np.int64),
        known=np.full((capacity, TURNS), math.inf),
    )


@compiled
def fill_slot(
    slot: int,
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    sequence: int,
    quantile: float,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
) -> None:
    """Enter an event whose pairs start..stop-1 are in place; its deletion time follows from them."""
    published, size, starts, stops, delete_s, sequences, known = slots
    target, allowed_s = pairs
    _, nodes, mean_s_per_kb, sd_s_per_kb = paths
    published[slot] = published_s
    size[slot] = size_kb
    starts[slot] = start
    stops[slot] = stop
    sequences[slot] = sequence
    known[slot, :] = math.inf
    delete_s[slot] = deletion_time(
        published_s,
        size_kb,
        start,
        stop,
        target,
        allowed_s,
        nodes,
        mean_s_per_kb,
        sd_s_per_kb,
        processing_s,
        quantile,
    )


@compiled
def forget(queue: IntArray, count: int, known: FloatArray) -> None:
    """Drop what is known of the queued slots, after a change of path figures or of the time of a turn."""
    for position in range(count):
        known[queue[position], :] = math.inf
