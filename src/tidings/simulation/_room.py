"""The world at the beginning of a run, and more room for it later.

Apart from the steps, so that these are not compiled anew whenever a scenario is read differently.
"""

from typing import Any

import numpy as np

from tidings.scheduling import Board, Pairs, Paths, Slots, empty_board
from tidings.simulation._layout import (
    ALIVE,
    BROKERS,
    CLOCK,
    CONTROLS,
    COPIES_STEP,
    COPIES_USED,
    COPY,
    DELIVERY,
    ENTRIES_STEP,
    ENTRIES_USED,
    ENTRY,
    EVENT,
    EVENTS_USED,
    FREE_COPY,
    FREE_EVENT,
    GROUP,
    HEAP_SIZE,
    HEAP_STEP,
    HOP,
    IS_FAILING,
    NOBODY,
    ORDER,
    PUBLICATION,
    ROUTE,
    SIZE_CLASSES,
    TRANSITION_OUT,
    VIEW,
    WAY,
    WIDEST,
    WORDS_USED,
    Array,
)
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._world import World

__all__ = ["give_room", "make_world"]

_COPIES, _EVENTS, _ENTRIES, _WORDS = 1024, 256, 8192, 16384


def make_world(plan: SimulationPlan, *, output_rows: int) -> World:
    """The world at time 0; without a trace it needs no rows of output."""
    control = np.zeros(CONTROLS, np.int64)
    control[FREE_COPY] = control[FREE_EVENT] = NOBODY
    control[HEAP_SIZE] = control[ORDER] = len(plan.heap)
    control[CLOCK] = 1
    known_of = len(plan.brokers) if plan.settings[IS_FAILING] else 0  # maps are for what fails
    return World(
        control=control,
        settings=plan.settings,
        heap=longer(plan.heap, len(plan.heap) + _COPIES),
        copies=np.zeros(_COPIES, COPY),
        events=np.zeros(_EVENTS, EVENT),
        entries=np.zeros(_ENTRIES, ENTRY),
        board=empty_board(_COPIES, _ENTRIES),
        words=np.zeros(_WORDS if known_of else 0, np.int64),
        free=np.full((2, SIZE_CLASSES), NOBODY, np.int64),
        links=plan.links.copy(),
        brokers=plan.brokers.copy(),
        subscriptions=plan.subscriptions.copy(),
        distributions=plan.distributions.copy(),
        places=plan.places,
        branches=plan.branches,
        parent=plan.parent,
        routes=_routes(plan),
        reaches=plan.routes.reaches,
        components=plan.components.records.copy(),
        rows=plan.rows.copy(),
        lists=plan.lists,
        views=_views(plan),
        first_link=np.full((known_of, known_of), NOBODY, np.int64),
        ways=np.zeros((known_of, known_of), WAY),
        walk=np.zeros(known_of + len(plan.rows) + 1, np.int64),
        hops=np.zeros(output_rows, HOP),
        deliveries=np.zeros(output_rows, DELIVERY),
        transitions=np.zeros(output_rows, TRANSITION_OUT),
        publications=np.zeros(0, PUBLICATION),
        matches=np.zeros(0, np.int64),
    )


def give_room(world: World) -> World:
    """The same world with room for one more step, and at least twice as large where there was too little."""
    control, settings = world.control, world.settings
    step = int(settings[COPIES_STEP])
    heap = int(control[HEAP_SIZE] + settings[HEAP_STEP] + 2 * control[ALIVE] * settings[IS_FAILING])
    entries = int(control[ENTRIES_USED] + settings[ENTRIES_STEP] * control[WIDEST]) + 2 * step
    larger: dict[str, Any] = {
        "copies": longer(world.copies, int(control[COPIES_USED]) + step),
        "events": longer(world.events, int(control[EVENTS_USED]) + 1),
        "heap": longer(world.heap, heap),
        "entries": longer(world.entries, entries),
    }
    if settings[IS_FAILING]:
        words = int(control[WORDS_USED] + 2 * ((GROUP + 1) * settings[BROKERS] + 1))
        larger["words"] = longer(world.words, words)
    larger["board"] = _larger_board(world.board, len(larger["copies"]), len(larger["entries"]))
    return world._replace(**larger)


def longer(array: Array, length: int) -> Array:
    """The same array if it has this length, or else one with what it holds that is at least twice as long."""
    if length <= len(array):
        return array
    found = np.zeros((max(int(length), 2 * len(array)), *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found


def _larger_board(board: Board, copies: int, entries: int) -> Board:
    """What strategies know, with room for this many copies and entries."""
    if copies == len(board.queue) and entries == len(board.pairs.target):
        return board
    paths = Paths(*(longer(each, entries) for each in board.paths))
    pairs = Pairs(np.arange(entries), longer(board.pairs.allowed_s, entries))
    slots = Slots(*(longer(each, copies) for each in board.slots))
    return empty_board(copies, 0)._replace(slots=slots, pairs=pairs, paths=paths)


def _routes(plan: SimulationPlan) -> Array:
    """The figures of paths as records; the last rows are those of access links."""
    routes = np.zeros(plan.routes.mean.shape, ROUTE)
    routes["fixed_s"][: len(plan.routes.fixed_s)] = plan.routes.fixed_s
    routes["fixed_s"][len(routes) - len(plan.access_s) :] += plan.access_s[:, np.newaxis]
    routes["mean"], routes["variance"] = plan.routes.mean, plan.routes.variance
    return routes


def _views(plan: SimulationPlan) -> Array:
    """Every broker that is up knows everything."""
    components = plan.components
    is_up = components.records["up"][: len(plan.brokers)]
    views = np.zeros((len(is_up), len(components.answering)), VIEW)
    views["up"] = np.outer(is_up, components.answering)
    views["seq"] = is_up[:, np.newaxis]
    return views
