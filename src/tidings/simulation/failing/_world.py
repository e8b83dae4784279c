"""All arrays of one run of a network that fails, under one roof: steps take the world and a few numbers.

The event loop and its steps allocate nothing (see `tidings.compiled`), so passing the world counts no references; the
steps that every event takes are put in the place of their calls.
"""

from typing import NamedTuple

from tidings.simulation._layout import Array

__all__ = ["World"]


class World(NamedTuple):
    """Pools, components, tables, maps and output; the records are those of `_layout`.

    `lists` holds all lists of numbers one after the other; who has one knows where it begins. `first_link` is the first
    link of the way from each broker to each other by the first one's map, -1 if it has none; `walk` is room to work in.
    """

    control: Array
    settings: Array
    heap: Array
    free_blocks: Array
    copies: Array
    events: Array
    words: Array
    components: Array
    channels: Array
    stations: Array
    laws: Array
    law_rows: Array
    rows: Array
    lists: Array
    places: Array
    branches: Array
    parent: Array
    publishers: Array
    subscriptions: Array
    views: Array
    first_link: Array
    ways: Array
    walk: Array
    hops: Array
    deliveries: Array
    transitions: Array
