"""All arrays of one run under one roof: a step of the event loop takes the world and a few numbers.

The world is lent to the loop (`tidings.compiled.lend`), so a call passes one pointer.
"""

from typing import Literal, NamedTuple

from tidings.scheduling import Board
from tidings.simulation._draws import Distributions
from tidings.simulation._layout import Array

__all__ = ["Failing", "World"]

Failing = Literal[True] | None
"""Whether anything fails, as a type: steps that are compiled for None leave out all that is about failures, which takes
longer to compile than the rest together."""


class World(NamedTuple):
    """The state of a run; the records are those of `_layout`.

    - Pools, which grow with the load: `heap`, `copies`, `events`, `entries`, `words`; `free` are the lists of free
      blocks. `board` is what strategies decide by: its slots are the copies, its pairs and paths the entries.
    - What is published in the chunk of time at hand: `publications` and their `matches`.
    - The network: `links`, `brokers`, `subscriptions`, random streams (`distributions`), trees (`places`,
      `branches`, `parent`), figures of paths (`routes`), and what each link leads to where there are several paths
      (`reaches`).
    - Where things fail: `components`, tables (`rows`), maps (`views`, `first_link`, `ways`); `walk` is room to work in.
      `first_link` is the first link of the path from each broker to each other by the first one's map, -1 if none.
    - `lists` holds all lists of numbers one after the other; who has one knows where it begins.
    - Output: `hops`, `deliveries`, `transitions`.
    """

    control: Array
    settings: Array
    heap: Array
    copies: Array
    events: Array
    entries: Array
    board: Board
    words: Array
    free: Array
    links: Array
    brokers: Array
    subscriptions: Array
    distributions: Distributions
    places: Array
    branches: Array
    parent: Array
    routes: Array
    reaches: Array
    components: Array
    rows: Array
    lists: Array
    views: Array
    first_link: Array
    ways: Array
    walk: Array
    hops: Array
    deliveries: Array
    transitions: Array
    publications: Array
    matches: Array
