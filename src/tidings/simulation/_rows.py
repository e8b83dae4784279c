"""The paths of subscriptions, from their home brokers against the trees to the publishers.

A home broker issues the subscriptions of its clients together. They travel to the root of every tree, each broker on
the path notes them in its table and sends them on. Paths that begin alike are walked once: the paths of one home are a
tree of *rows* (broker, link that leads there from the row before), and one message refreshes a row for all trees
whose paths go through it.

The rows of a path are listed from the home on, so `lists[first_row + depth of home - depth of broker]` is the row by
which a broker in a tree knows a home.
"""

import numpy as np

from tidings.simulation._layout import NOBODY, ROW, Array

__all__ = ["Lists", "plan_rows"]


class Lists:
    """Many lists of numbers in one array."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, numbers: list[int]) -> tuple[int, int]:
        """Where the list begins, and where the next one does."""
        first = len(self._numbers)
        self._numbers += numbers
        return first, len(self._numbers)

    def array(self) -> Array:
        return np.array(self._numbers, np.int64)


def plan_rows(homes: Array, links: Array, places: Array, parent: Array, brokers: Array, lists: Lists) -> Array:
    """The rows of all homes that have subscriptions; what points to them is written into places and brokers."""
    link_to = {
        (int(source), int(target)): link
        for link, (source, target) in enumerate(zip(links["source"], links["target"], strict=True))
        if source >= 0
    }
    found: list[tuple[int, int]] = []
    children: list[list[int]] = []

    def new_row(broker: int, link: int) -> int:
        found.append((broker, link))
        children.append([])
        return len(found) - 1

    brokers["root"] = NOBODY
    places["first_row"] = NOBODY
    for home in np.unique(homes).tolist():
        root = new_row(home, NOBODY)
        brokers["root"][home] = root
        known: dict[tuple[int, int], int] = {}
        for tree, above in enumerate(parent):
            if places["position"][tree, home] < 0:
                continue
            row, broker, path = root, home, [root]
            while above[broker] >= 0:
                following = int(above[broker])
                if (row, following) not in known:
                    known[row, following] = new_row(following, link_to[broker, following])
                    children[row].append(known[row, following])
                row, broker = known[row, following], following
                path.append(row)
            places["first_row"][tree, home], _ = lists.add(path)
    rows = np.zeros(len(found), ROW)
    for number, ((broker, link), below) in enumerate(zip(found, children, strict=True)):
        first, last = lists.add(below)
        rows[number] = (0, broker, link, first, last)
    for broker in range(len(brokers)):
        table = np.flatnonzero(rows["broker"] == broker).tolist()
        brokers["first_row"][broker], brokers["last_row"][broker] = lists.add(table)
    return rows
