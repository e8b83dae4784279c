"""The topology of a scenario: its shape by recipe, then the behaviour of links and brokers, then the exceptions.

Defaults are drawn link by link in the order of the links, from a stream of their own; each override has its own stream
too. So changing one link does not change the others.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import generators
from tidings.model.documents import Place, closest
from tidings.model.scenario import _schema
from tidings.model.scenario._streams import Streams
from tidings.model.topology import Broker, Link, Topology

if TYPE_CHECKING:
    import numpy as np

__all__ = ["build_topology"]


def build_topology(document: _schema.Document, place: Place, streams: Streams) -> Topology:
    """The topology with all its behaviour; a ScenarioError at the key that is wrong."""
    shape = _shape(document.topology, place / "topology", streams.stream("topology"))
    generator = streams.stream("links")
    links = {
        (link.source, link.target): _behave(link, document.links, place / "links", generator) for link in shape.links
    }
    for number, override in enumerate(document.link):
        _override_links(links, shape, override, place / "link" / number, streams.stream("link", number))
    generator = streams.stream("brokers")
    brokers = {broker.name: _serve(broker, document.brokers, place / "brokers", generator) for broker in shape.brokers}
    for number, exception in enumerate(document.broker):
        here = place / "broker" / number
        _check_known(exception.name, brokers, here / "name")
        changed = _serve(brokers[exception.name], exception, here, streams.stream("broker", number))
        if exception.position is not None:
            changed = msgspec.structs.replace(changed, position=(exception.position[0], exception.position[1]))
        brokers[exception.name] = changed
    return Topology(brokers=tuple(brokers.values()), links=tuple(links.values()))


def _shape(written: _schema.AnyTopology, place: Place, generator: "np.random.Generator") -> Topology:
    try:
        match written:
            case _schema.ExplicitTopology():
                return _explicit(written, place)
            case _schema.BalancedTree(branching=branching, depth=depth):
                return generators.balanced_tree(branching=branching, depth=depth)
            case _schema.RandomTree(brokers=brokers, max_degree=max_degree):
                return generators.random_tree(brokers=brokers, max_degree=max_degree, generator=generator)
            case _schema.RandomGraph(brokers=brokers, mean_degree=mean_degree):
                return generators.random_graph(brokers=brokers, mean_degree=mean_degree, generator=generator)
            case _schema.LayeredMesh(layers=layers, fan_in=fan_in, direction=direction):
                return generators.layered_mesh(layers=layers, fan_in=fan_in, direction=direction, generator=generator)
            case _schema.TopohubNetwork(name=name, refractive_index=index):
                index = generators.FIBRE_REFRACTIVE_INDEX if index is None else index
                return generators.topohub_network(name, refractive_index=index)
    except ScenarioError:
        raise
    except ConfigurationError as error:
        place.fail(str(error))


def _explicit(written: _schema.ExplicitTopology, place: Place) -> Topology:
    from tidings.model.distributions import Deterministic

    names: dict[str, None] = {}
    for number, name in enumerate(written.brokers):
        if name in names:
            (place / "brokers" / number).fail(f"broker {name!r} is given twice; names must be unique")
        names[name] = None
    links: dict[tuple[str, str], Link] = {}
    for number, (source, target) in enumerate(written.links):
        here = place / "links" / number
        _check_known(source, names, here)
        _check_known(target, names, here)
        if source == target:
            here.fail(f"a link from {source!r} to itself; a link joins two different brokers")
        both = written.direction == "both"
        for ends in ((source, target), (target, source)) if both else ((source, target),):
            if ends in links:
                already = " (links have both directions here)" if both else ""
                here.fail(f"the link {source!r} to {target!r} is given twice{already}; keep one of them")
            links[ends] = Link(source=ends[0], target=ends[1], propagation=Deterministic(value=0.0))
    brokers = tuple(Broker(name=name) for name in names)
    return Topology(brokers=brokers, links=tuple(links.values()))


def _behave(link: Link, written: _schema.LinkDefaults, place: Place, generator: "np.random.Generator") -> Link:
    from tidings.model.distributions import Deterministic

    if written.propagation is not None:
        link = msgspec.structs.replace(link, propagation=written.propagation.make(generator, place / "propagation"))
    if written.slowness is not None:
        link = msgspec.structs.replace(link, slowness=written.slowness.make(generator, place / "slowness"))
    if written.bandwidth_kb_per_s is not None:
        link = msgspec.structs.replace(link, slowness=Deterministic(value=1.0 / written.bandwidth_kb_per_s))
    if written.loss is not None:
        try:
            link = msgspec.structs.replace(link, loss=written.loss.draw(generator, 1, place / "loss")[0])
        except ScenarioError:
            raise
        except ConfigurationError as error:
            (place / "loss").fail(str(error))
    return link


def _override_links(
    links: dict[tuple[str, str], Link],
    shape: Topology,
    written: _schema.LinkOverride,
    place: Place,
    generator: "np.random.Generator",
) -> None:
    from tidings.model.distributions import Deterministic

    _check_known(written.source, shape.index, place / "source")
    _check_known(written.target, shape.index, place / "target")
    ends = written.source, written.target
    if ends not in links:
        joined = ", ".join(shape.neighbours(written.source)) or "nobody"
        (place / "target").fail(f"there is no link {ends[0]!r} to {ends[1]!r}; {ends[0]!r} has links to {joined}")
    for pair in (ends, ends[::-1]) if written.direction == "both" else (ends,):
        if pair not in links:
            continue
        link = _behave(links[pair], written, place, generator)
        if written.length_km is not None:
            delay = Deterministic(value=generators.length_delay_s(written.length_km))
            link = msgspec.structs.replace(link, propagation=delay, length_km=written.length_km)
        links[pair] = link


def _serve(broker: Broker, written: _schema.BrokerDefaults, place: Place, generator: "np.random.Generator") -> Broker:
    if written.service is not None:
        broker = msgspec.structs.replace(broker, service=written.service.make(generator, place / "service"))
    if written.service_per is not None:
        broker = msgspec.structs.replace(broker, service_per=written.service_per)
    if written.processing is not None:
        broker = msgspec.structs.replace(broker, processing=written.processing.make(generator, place / "processing"))
    return broker


def _check_known(name: str, names: Collection[str], place: Place) -> None:
    if name not in names:
        close = closest(name, list(names))
        hint = f"did you mean `{close}`?" if close else f"the brokers are {', '.join(list(names)[:12])}"
        place.fail(f"there is no broker {name!r}; {hint}")
