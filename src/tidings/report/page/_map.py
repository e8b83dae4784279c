"""The overlay as inline SVG: a disc for each broker, an arrow for each direction of a link.

Colour is lateness: of a broker's subscriptions, and of the deliveries whose path a link is on. The width of a link is
its traffic; a ring marks a busy station. The arrow keys reach every station: the script moves the one tab stop.
"""

import math
from collections.abc import Iterable

from tidings.model.units import percent
from tidings.report.figures import Place, Report, Station
from tidings.report.page._charts import place_labels
from tidings.report.page._markup import Content, Markup, tag
from tidings.report.page._words import count, lateness, per_second

__all__ = ["draw_map", "draw_moves"]

SIDE, MARGIN = 860.0, 84.0
LABELS_MAX = 80
LETTERS_MAX = 17
RING = 4.0  # from the disc to the ring, in units of the picture
BUSY = 0.8  # from this utilisation on, a broker has a ring and a link a dark edge
LABELLED = 0.99  # below this on-time share, the label of a broker has the figure

Point = tuple[float, float]


def draw_map(report: Report) -> Markup:
    """The whole overlay."""
    ends = [_point(place) for place in report.places]
    radius = _radius(report)
    idle = _idle_connections(report)
    busiest = max((link.kb_per_s for link in report.links), default=0.0)
    used = [number for number, link in enumerate(report.links) if link.rate_per_s > 0.0]
    first = len(report.places)
    parts: list[Content] = [
        tag("g", *(_line(ends[one], ends[other]) for one, other in idle), class_="idle"),
        tag(
            "g",
            *(_link(first + n, report.links[n], ends, busiest, radius) for n in used),
            class_="links",
        ),
        tag("g", *(_broker(n, report, radius) for n in range(first)), class_="brokers"),
        _labels([_label(n, report) for n in range(first)], ends, radius + RING),
    ]
    what = f"{count(first, 'broker')} and {count(len(report.links), 'link')}."
    shares = {number: _share(place) for number, place in enumerate(report.places)}
    worst = min((n for n, share in shares.items() if share is not None), key=lambda n: shares[n] or 0.0, default=None)
    if worst is not None:
        what += f" The latest subscriptions are at {report.stations[worst].name}, {percent(shares[worst])} on time."
    return _framed("map", "The overlay", what, ends, parts)


def draw_moves(report: Report, moves: Iterable[tuple[str, str]], name: str) -> Markup:
    """The same overlay in outline, with an arrow for each route on which clients move."""
    ends = [_point(place) for place in report.places]
    numbers = {station.name: number for number, station in enumerate(report.brokers)}
    counted: dict[tuple[str, str], int] = {}
    for pair in moves:
        counted[pair] = counted.get(pair, 0) + 1
    pairs = {(min(link.source, link.target), max(link.source, link.target)) for link in report.links}
    parts: list[Content] = [tag("g", *(_line(ends[one], ends[other]) for one, other in sorted(pairs)), class_="idle")]
    dots: list[Content] = []
    for number, station in enumerate(report.brokers):
        x, y = ends[number]
        dots.append(tag("circle", tag("title", station.name), cx=x, cy=y, r=5.0, class_="dot"))
    parts.append(tag("g", *dots))
    most = max(counted.values(), default=1)
    for (one, other), times in sorted(counted.items()):
        if one in numbers and other in numbers:
            title = f"{count(times, 'client')} from {one} to {other}"
            curve = _Curve(ends[numbers[one]], ends[numbers[other]], 10.0, bow=0.1)
            parts.append(
                tag(
                    "g",
                    tag("title", title),
                    tag("path", d=curve.path, stroke_width=2.0 + 4.0 * times / most),
                    tag("path", d=curve.arrow(5.0 + 3.0 * times / most, at=0.92), class_="head"),
                    class_="move",
                )
            )
    parts.append(_labels([_short(station.name) for station in report.brokers], ends, 5.0))
    what = f"{count(sum(counted.values()), 'client')} would move, on {count(len(counted), 'route')}."
    return _framed(name, "Who would move where", what, ends, parts)


def _framed(name: str, title: str, what: str, ends: list[Point], parts: list[Content]) -> Markup:
    width = max(x for x, _ in ends) + MARGIN
    height = max(y for _, y in ends) + MARGIN
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", what, id=f"{name}-desc"),
        *parts,
        id=name,
        class_="map",
        viewBox=f"0 0 {width:g} {height:g}",
        role="group",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _point(place: Place) -> Point:
    return round(MARGIN + place.x * (SIDE - 2 * MARGIN), 1), round(MARGIN + place.y * (SIDE - 2 * MARGIN), 1)


def _radius(report: Report) -> float:
    return 13.0 if len(report.places) <= LABELS_MAX else max(3.0, 120.0 / math.sqrt(len(report.places)))


def _idle_connections(report: Report) -> list[tuple[int, int]]:
    """Neighbours without traffic in either direction."""
    found: dict[tuple[int, int], bool] = {}
    for link in report.links:
        pair = (min(link.source, link.target), max(link.source, link.target))
        found[pair] = found.get(pair, False) or link.rate_per_s > 0.0
    return sorted(pair for pair, is_busy in found.items() if not is_busy)


def _line(one: Point, other: Point) -> Markup:
    return tag("line", x1=one[0], y1=one[1], x2=other[0], y2=other[1])


class _Curve:
    """From one point to another, bowed to the right so that both directions of a link are seen."""

    def __init__(self, one: Point, other: Point, short: float, bow: float = 0.03) -> None:
        (x1, y1), (x2, y2) = one, other
        length = max(math.hypot(x2 - x1, y2 - y1), 1e-9)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        self._a = (x1 + ux * short, y1 + uy * short)
        self._c = (x2 - ux * short, y2 - uy * short)
        bend = bow * length
        self._b = ((x1 + x2) / 2 - uy * bend * 2, (y1 + y2) / 2 + ux * bend * 2)

    @property
    def path(self) -> str:
        (ax, ay), (bx, by), (cx, cy) = self._a, self._b, self._c
        return f"M{ax:.1f} {ay:.1f}Q{bx:.1f} {by:.1f} {cx:.1f} {cy:.1f}"

    def arrow(self, size: float, at: float = 0.6) -> str:
        """A triangle on the curve, pointing along it."""
        (ax, ay), (bx, by), (cx, cy) = self._a, self._b, self._c
        x = (1 - at) ** 2 * ax + 2 * at * (1 - at) * bx + at**2 * cx
        y = (1 - at) ** 2 * ay + 2 * at * (1 - at) * by + at**2 * cy
        dx, dy = (1 - at) * (bx - ax) + at * (cx - bx), (1 - at) * (by - ay) + at * (cy - by)
        length = max(math.hypot(dx, dy), 1e-9)
        ux, uy = dx / length, dy / length
        left = (x - ux * size - uy * size * 0.7, y - uy * size + ux * size * 0.7)
        right = (x - ux * size + uy * size * 0.7, y - uy * size - ux * size * 0.7)
        tip = (x + ux * size, y + uy * size)
        return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in (tip, left, right)) + "Z"


def _link(number: int, link: Station, ends: list[Point], busiest: float, radius: float) -> Markup:
    curve = _Curve(ends[link.source], ends[link.target], radius + 3.0)
    width = 1.5 + 5.0 * math.sqrt(link.kb_per_s / busiest) if busiest > 0.0 else 1.5
    title = f"{link.name}: "
    if link.on_time is not None:
        title += f"{percent(link.on_time)} of the deliveries over it on time, "
    title += f"{percent(link.utilisation)} busy, {per_second(link.rate_per_s)}"
    edge = tag("path", d=curve.path, stroke_width=round(width + 3.0, 2), class_="edge")
    return tag(
        "g",
        tag("title", title),
        tag("path", d=curve.path, class_="reach"),
        edge if link.utilisation >= BUSY else None,
        tag("path", d=curve.path, stroke_width=round(width, 2), class_="stroke"),
        tag("path", d=curve.arrow(3.0 + width), class_="head"),
        class_=f"station link {lateness(link.on_time)}",
        tabindex=-1,
        role="button",
        aria_pressed="false",
        aria_label=title,
        data_station=number,
    )


def _share(place: Place) -> float | None:
    return place.on_time / place.matched if place.matched else None


def _broker(number: int, report: Report, radius: float) -> Markup:
    station, place = report.stations[number], report.places[number]
    x, y = _point(place)
    share = _share(place)
    title = f"{station.name}: "
    if share is not None:
        title += f"{percent(share)} on time at {count(place.subscriptions, 'subscription')}, "
    title += f"{percent(station.utilisation)} busy"
    return tag(
        "g",
        tag("title", title),
        tag("circle", cx=x, cy=y, r=radius + RING, class_="ring") if station.utilisation >= BUSY else None,
        tag("circle", cx=x, cy=y, r=radius, class_="disc"),
        tag("circle", cx=x, cy=y, r=radius * 0.38, class_="publishes") if place.publishers else None,
        class_=f"station broker {lateness(share)}",
        tabindex=0 if number == 0 else -1,
        role="button",
        aria_pressed="false",
        aria_label=title,
        data_station=number,
    )


def _label(number: int, report: Report) -> str:
    name, share = _short(report.stations[number].name), _share(report.places[number])
    return name if share is None or share >= LABELLED else f"{name} {percent(share)}"


def _short(name: str) -> str:
    return name if len(name) <= LETTERS_MAX else f"{name[:LETTERS_MAX]}…"


def _labels(names: list[str], ends: list[Point], clear: float) -> Markup | None:
    """The names of the brokers, if there are few enough to be read; drawn last, so that nothing covers them."""
    if len(ends) > LABELS_MAX:
        return None
    placed = place_labels(ends, names, clear=clear + 3.0, sides=("below", "above", "right", "left"))
    return tag(
        "g",
        *(
            tag("text", name, x=label.x, y=label.y, text_anchor=label.anchor, class_="label")
            for name, label in zip(names, placed, strict=True)
        ),
        class_="labels",
        aria_hidden="true",
    )
