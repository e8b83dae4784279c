"""The world at the beginning of a run, and more room for it later.

Apart from the steps, so that these are not compiled anew whenever a scenario is read differently.
"""

import numpy as np

from tidings.simulation._layout import (
    ARENA_USED,
    COPIES_USED,
    DELIVERY,
    EVENTS_USED,
    FREE_COPY,
    FREE_EVENT,
    HEAP_SIZE,
    HOP,
    NOBODY,
    ORDER,
    SIZE_CLASSES,
    WIDEST,
    Array,
)
from tidings.simulation._pools import longer
from tidings.simulation.failing._layout import (
    BROKERS,
    CLOCK,
    CONTROLS_FAILING,
    COPY,
    EVENT,
    TRANSITION_OUT,
    VIEW,
    WAY,
)
from tidings.simulation.failing._plan import FailingPlan
from tidings.simulation.failing._world import World

__all__ = ["give_room", "make_world"]


def make_world(planned: FailingPlan, *, output_rows: int) -> World:
    """The world at time 0; without a trace it needs no rows of output."""
    brokers = len(planned.stations)
    control = np.zeros(CONTROLS_FAILING, np.int64)
    control[FREE_COPY] = control[FREE_EVENT] = NOBODY
    control[HEAP_SIZE] = control[ORDER] = len(planned.first)
    control[CLOCK] = 1
    return World(
        control=control,
        settings=planned.settings,
        heap=longer(planned.first, len(planned.first) + 1024),
        free_blocks=np.full(SIZE_CLASSES, NOBODY, np.int64),
        copies=np.zeros(1024, COPY),
        events=np.zeros(256, EVENT),
        words=np.zeros(16384, np.int64),
        components=planned.components.copy(),
        channels=planned.channels.copy(),
        stations=planned.stations.copy(),
        laws=planned.laws.copy(),
        law_rows=planned.law_rows,
        rows=planned.rows.copy(),
        lists=planned.lists,
        places=planned.places,
        branches=planned.branches,
        parent=planned.parent,
        publishers=planned.publishers,
        subscriptions=planned.base.subscriptions.copy(),
        views=_views(planned),
        first_link=np.full((brokers, brokers), NOBODY, np.int64),
        ways=np.zeros((brokers, brokers), WAY),
        walk=np.zeros(brokers + len(planned.rows) + 1, np.int64),
        hops=np.zeros(output_rows, HOP),
        deliveries=np.zeros(output_rows, DELIVERY),
        transitions=np.zeros(output_rows, TRANSITION_OUT),
    )


def _views(planned: FailingPlan) -> Array:
    """Every broker that is up knows everything."""
    is_up = planned.components["up"][: len(planned.stations)]
    views = np.zeros((len(is_up), len(planned.answering)), VIEW)
    views["up"] = np.outer(is_up, planned.answering)
    views["seq"] = is_up[:, np.newaxis]
    return views


def give_room(world: World, *, copies: int, heap: int) -> World:
    """The same world with room for this many more copies, one more event and a heap of this length."""
    control = world.control
    words = 2 * (int(world.settings[BROKERS]) * 4 + int(control[WIDEST]) + 1)
    return world._replace(
        copies=longer(world.copies, int(control[COPIES_USED]) + copies),
        events=longer(world.events, int(control[EVENTS_USED]) + 1),
        heap=longer(world.heap, heap),
        words=longer(world.words, int(control[ARENA_USED]) + words),
    )
