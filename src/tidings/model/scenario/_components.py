"""The components of a scenario that fail: brokers, and the connections between them.

Links of one component fail together: the two directed links of a pair, unless `together = false` or a `[[link]]` with
`direction = "forward"` separates them. Defaults are drawn component by component from their own stream, and each
exception has its own stream too, so that failures change no other draw, and an exception changes no other exception.
"""

from collections.abc import Sequence
from typing import Literal

from tidings.model.documents import Place
from tidings.model.failures import Failures
from tidings.model.scenario._faults import LinkFailuresWritten, make_failures
from tidings.model.scenario._schema import Document, LinkOverride
from tidings.model.scenario._streams import Streams
from tidings.model.topology import Topology

__all__ = ["build_broker_failures", "build_link_failures", "joint_components"]


def joint_components(topology: Topology) -> tuple[int, ...]:
    """The component of each directed link when the two directions of a pair are one; numbered as they first appear."""
    numbers: dict[frozenset[str], int] = {}
    return tuple(numbers.setdefault(frozenset((link.source, link.target)), len(numbers)) for link in topology.links)


def build_broker_failures(
    document: Document, topology: Topology, place: Place, streams: Streams
) -> tuple[Failures | None, ...]:
    """The failures of each broker, None if it never fails."""
    found: list[Failures | None] = [None] * len(topology.brokers)
    usual = document.brokers.failures
    if usual is not None:
        generator = streams.stream("failures", "brokers")
        found = [make_failures(usual, generator, place / "brokers" / "failures") for _ in found]
    for number, exception in enumerate(document.broker):
        if exception.failures is not None:
            generator = streams.stream("failures", "broker", number)
            here = place / "broker" / number / "failures"
            found[topology.index[exception.name]] = make_failures(exception.failures, generator, here)
    return tuple(found)


def build_link_failures(
    document: Document, topology: Topology, place: Place, streams: Streams
) -> tuple[tuple[Failures | None, ...], tuple[int, ...]]:
    """The failures of each directed link, and its component."""
    keys: list[object] = list(joint_components(topology))
    found: list[Failures | None] = [None] * len(keys)
    numbers = {(link.source, link.target): number for number, link in enumerate(topology.links)}
    if document.links.failures is not None:
        _fail(document.links.failures, range(len(keys)), "links", keys, found, place / "links", streams, "links", 0)
    for number, exception in enumerate(document.link):
        if exception.failures is None:
            continue
        links = [numbers[ends] for ends in _ends(exception) if ends in numbers]
        here = place / "link" / number
        _fail(exception.failures, links, f"link-{number}", keys, found, here, streams, "link", number)
    dense: dict[object, int] = {}
    return tuple(found), tuple(dense.setdefault(key, len(dense)) for key in keys)


def _fail(
    written: LinkFailuresWritten | Literal["never"],
    links: Sequence[int],
    name: str,
    keys: list[object],
    found: list[Failures | None],
    place: Place,
    streams: Streams,
    *stream: str | int,
) -> None:
    """Give these links failures, one draw for each component; links that are given some leave their old component."""
    generator = streams.stream("failures", *stream)
    is_apart = written != "never" and not written.together
    drawn: dict[object, Failures | None] = {}
    for link in links:
        key = (name, link if is_apart else keys[link])
        if key not in drawn:
            drawn[key] = make_failures(written, generator, place / "failures")
        keys[link], found[link] = key, drawn[key]


def _ends(exception: LinkOverride) -> list[tuple[str, str]]:
    forward = exception.source, exception.target
    return [forward, forward[::-1]] if exception.direction == "both" else [forward]
