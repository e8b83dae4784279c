"""Brokers and links as they were measured, and where they are drawn.

A link's utilisation is the time its transmissions took over the time watched: bytes times slowness. Where nothing ever
waited for a link, no slowness is known, and it counts as never busy. Places are those of the trace, or of the scenario,
or a layout; scaled to 0 to 1 with y downwards, degrees of longitude as long as they are at that latitude.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tidings.model.distributions import Deterministic
from tidings.model.scenario import Network
from tidings.model.topology import Broker, Link, Topology
from tidings.prediction import Knowledge
from tidings.report.figures._report import Place, Station
from tidings.report.figures._tables import Tables
from tidings.report.pictures import positions_of

__all__ = ["BROKERS_MAX", "places_of", "stations_of", "watched_s"]

BROKERS_MAX = 1500
"""A larger map would be unreadable and slow to open; its brokers get no position."""

Row = Mapping[str, Any]


def watched_s(tables: Tables) -> float:
    """From the first departure to the last."""
    rows = [row for row in tables.rows("publishers") if row["first_ns"] is not None]
    return (max(row["last_ns"] for row in rows) - min(row["first_ns"] for row in rows)) / 1e9 if rows else 0.0


def stations_of(tables: Tables, knowledge: Knowledge | None) -> tuple[Station, ...]:
    """The brokers, then the links, both in the order of the topology."""
    topology = tables.rows("topology")
    names = [row["source"] for row in topology if row["kind"] == "broker"]
    ends = [(row["source"], row["target"]) for row in topology if row["kind"] == "link"]
    numbers = {name: number for number, name in enumerate(names)}
    up = {(row["kind"], row["source"], row["target"]): row["availability"] for row in tables.rows("components")}
    brokers = {row["broker"]: row for row in tables.rows("brokers")}
    links = {(row["source"], row["target"]): row for row in tables.rows("links")}
    lasted_s = watched_s(tables)
    made = [
        _broker(name, number, brokers.get(name), _share(up.get(("broker", name, None))))
        for number, name in enumerate(names)
    ]
    for number, pair in enumerate(ends):
        slowness, propagation_s = _distributions(
            links.get(pair), None if knowledge is None else knowledge.links[number]
        )
        made.append(
            _link(
                pair,
                (numbers[pair[0]], numbers[pair[1]]),
                links.get(pair),
                slowness_s_per_kb=slowness,
                propagation_s=propagation_s,
                availability=_share(up.get(("link", *pair))),
                lasted_s=lasted_s,
            )
        )
    return tuple(made)


def _share(value: float | None) -> float:
    return 1.0 if value is None else float(value)


def _broker(name: str, number: int, row: Row | None, availability: float) -> Station:
    seen: Row = {} if row is None else row
    return Station(
        name=name,
        kind="broker",
        source=number,
        target=number,
        rate_per_s=seen.get("arrival_rate_per_s") or 0.0,
        kb_per_s=0.0,
        utilisation=seen.get("utilisation") or 0.0,
        waiting_s=max(0.0, seen.get("waiting_mean_s") or 0.0),
        service_s=seen.get("service_mean_s") or 0.0,
        slowness_s_per_kb=0.0,
        propagation_s=0.0,
        loss=0.0,
        shed=0.0,
        availability=availability,
    )


def _distributions(row: Row | None, known: Any) -> tuple[float, float]:
    """Mean slowness and propagation: as the prediction takes them, otherwise the plain columns."""
    if row is None:
        return 0.0, 0.0
    if known is not None:
        return 0.0 if known.slowness is None else known.slowness.mean(), known.propagation.mean()
    if row["slowness_mean_s_per_kb"] is None or not row["wait_max_ns"]:
        return 0.0, row["delay_mean_s"] or 0.0
    return max(0.0, row["slowness_mean_s_per_kb"]), max(0.0, row["propagation_s"] or 0.0)


def _link(
    names: tuple[str, str],
    ends: tuple[int, int],
    row: Row | None,
    *,
    slowness_s_per_kb: float,
    propagation_s: float,
    availability: float,
    lasted_s: float,
) -> Station:
    seen: Row = {} if row is None else row
    copies = max(1, seen.get("copies") or 0)
    kb_per_s = (seen.get("bytes") or 0) / 1000.0 / lasted_s if lasted_s > 0.0 else 0.0
    return Station(
        name=f"{names[0]} → {names[1]}",
        kind="link",
        source=ends[0],
        target=ends[1],
        rate_per_s=seen.get("transmissions_per_s") or 0.0,
        kb_per_s=kb_per_s,
        utilisation=kb_per_s * slowness_s_per_kb,
        waiting_s=max(0.0, seen.get("wait_mean_s") or 0.0),
        service_s=0.0,
        slowness_s_per_kb=slowness_s_per_kb,
        propagation_s=propagation_s,
        loss=seen.get("loss") or 0.0,
        shed=((seen.get("expired") or 0) + (seen.get("hopeless") or 0)) / copies,
        availability=availability,
    )


def places_of(tables: Tables, stations: Sequence[Station], network: Network | None) -> tuple[tuple[Place, ...], bool]:
    """The position of each broker with its clients; and whether the positions are those of a map."""
    homes = {row["subscription"]: row["broker"] for row in tables.rows("subscriptions")}
    columns = tables.scores.select(["subscription", "matched", "on_time"]).to_pydict()
    counts: dict[str, list[int]] = {}
    for name, matched, on_time in zip(*columns.values(), strict=True):
        own = counts.setdefault(homes.get(name, ""), [0, 0, 0])
        own[0], own[1], own[2] = own[0] + 1, own[1] + matched, own[2] + on_time
    publishing: dict[str, int] = {}
    for row in tables.rows("publishers"):
        for name in row["brokers"][-1:]:
            publishing[name] = publishing.get(name, 0) + 1
    brokers = [station.name for station in stations if station.kind == "broker"]
    scaled, is_map = dict.fromkeys(brokers, (0.0, 0.0)), False
    if len(brokers) <= BROKERS_MAX:
        found, is_map = positions_of(_topology(tables, stations, network))
        scaled = _scaled(found, is_map=is_map)
    places = tuple(
        Place(
            x=scaled[name][0],
            y=scaled[name][1],
            publishers=publishing.get(name, 0),
            subscriptions=counts.get(name, [0, 0, 0])[0],
            matched=counts.get(name, [0, 0, 0])[1],
            on_time=counts.get(name, [0, 0, 0])[2],
        )
        for name in brokers
    )
    return places, is_map


def _topology(tables: Tables, stations: Sequence[Station], network: Network | None) -> Topology:
    """For a picture: the network's own, or that of the trace."""
    known = {} if network is None else {broker.name: broker for broker in network.topology.brokers}
    nothing = Deterministic(value=0.0)
    brokers = []
    for row in tables.rows("topology"):
        if row["kind"] != "broker":
            continue
        own = known.get(row["source"])
        place = (row["x"], row["y"]) if row["x"] is not None and row["y"] is not None else None
        brokers.append(
            Broker(
                name=row["source"],
                position=place if place is not None or own is None else own.position,
                layer=None if own is None else own.layer,
            )
        )
    names = [broker.name for broker in brokers]
    links = [station for station in stations if station.kind == "link"]
    return Topology(
        brokers=tuple(brokers),
        links=tuple(Link(source=names[link.source], target=names[link.target], propagation=nothing) for link in links),
    )


def _scaled(found: Mapping[str, tuple[float, float]], *, is_map: bool) -> dict[str, tuple[float, float]]:
    xs, ys = [x for x, _ in found.values()], [y for _, y in found.values()]
    stretch = max(0.1, math.cos(math.radians(sum(ys) / len(ys)))) if is_map else 1.0
    left, top = min(xs) * stretch, max(ys)
    span = max(max(xs) * stretch - left, top - min(ys), 1e-9)
    return {name: ((x * stretch - left) / span, (top - y) / span) for name, (x, y) in found.items()}
