"""Doubtful filters of a scenario, with the place where they are written.

All filters of a group come from one text, so only that of its first client is checked. The attributes of the publishers
are known.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings.errors import FilterWarning
from tidings.model.documents import Place
from tidings.model.scenario._network import Network
from tidings.model.scenario._schema import Document

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["doubtful_filters"]

Group = tuple[str, str]  # "publishers" or "subscribers", and the group's name


def doubtful_filters(document: Document, root: Place, network: Network) -> tuple[FilterWarning, ...]:
    """A warning for each doubtful place of each text."""
    written = list(_written(document, root))
    if not written:  # the usual case, and filters need not be loaded for it
        return ()
    from tidings.model.filters import filter_warnings

    attributes = {name for publisher in network.publishers for name in publisher.attributes}
    filters = _first_filters(network)
    return tuple(
        FilterWarning(f"{place}: {found}", text=found.text, position=found.position)
        for group, place in written
        if group in filters
        for found in filter_warnings(filters[group], attributes=attributes)
    )


def _written(document: Document, root: Place) -> Iterator[tuple[Group, Place]]:
    """The groups whose filter text has a double quote in it, and where it is written."""
    for number, publishers in enumerate(document.publishers):
        if publishers.advertisement is not None and '"' in publishers.advertisement:
            yield ("publishers", publishers.name), root / "publishers" / number / "advertisement"
    for number, subscribers in enumerate(document.subscribers):
        if '"' in subscribers.filter:
            yield ("subscribers", subscribers.name), root / "subscribers" / number / "filter"


def _first_filters(network: Network) -> "dict[Group, Filter]":
    found: dict[Group, Filter] = {}
    for publisher in network.publishers:
        if publisher.advertisement is not None:
            found.setdefault(("publishers", publisher.group), publisher.advertisement)
    groups = {subscriber.name: subscriber.group for subscriber in network.subscribers}
    for subscription in network.subscriptions:
        found.setdefault(("subscribers", groups[subscription.subscriber]), subscription.filter)
    return found
