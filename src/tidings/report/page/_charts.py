"""Charts as data: a chart is a value with two axes and a list of marks, and `draw` makes SVG of any of them.

Marks are given in the units of the data, and `style` is a class of the style sheet, so that a chart fits both colour
schemes and paper. Colour means lateness (docs/decisions/0050-charts-as-data.md). A chart has a title and a description
for screen readers; its figures are in a table or in the text as well.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from tidings.report.page._markup import Content, Markup, joined, tag

__all__ = [
    "Axis",
    "Bar",
    "Chart",
    "Label",
    "Line",
    "Mark",
    "Point",
    "Side",
    "draw",
    "legend",
    "path_of",
    "place_labels",
    "share_ticks",
    "ticks",
]

LETTER, LINE_HEIGHT = 6.6, 13.0
"""About how wide a letter is, and how high a line of text, in the units of the picture."""

SMALL = 500.0  # narrower charts are shown at about their own size, and need no larger text on a phone

Anchor = Literal["start", "middle", "end"]
Side = Literal["below", "above", "right", "left", "upper right", "lower right"]
Box = tuple[float, float, float, float]
Pair = tuple[float, float]


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """From low to high, linear or logarithmic, with ticks (a value and its text) and a label."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    is_log: bool = False
    has_grid: bool = True

    def share(self, value: float) -> float:
        """The position of a value between the ends, 0 to 1; values beyond an end are drawn at it."""
        if self.is_log:
            found = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            found = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return min(1.0, max(0.0, found))


class Line(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A line through points; a line with an `id` and no points is one that the script draws."""

    points: tuple[Pair, ...]
    style: str
    id: str | None = None


class Bar(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A rectangle between two corners; `text` is written to the right of the value `text_after`."""

    start: Pair
    end: Pair
    style: str
    title: str
    text: str = ""
    text_after: float = 0.0


class Point(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A circle, or a square; `size` is its width in units of the picture. `name` is the subscription that a click
    selects, `text` a label beside it."""

    at: Pair
    style: str
    title: str
    size: float = 9.0
    is_square: bool = False
    name: str | None = None
    text: str = ""


Mark = Line | Bar | Point


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn; `margins` are left, right, top and bottom."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    width: float = 640.0
    height: float = 380.0
    margins: tuple[float, float, float, float] = (66.0, 30.0, 34.0, 54.0)

    def at(self, point: Pair) -> Pair:
        """Where a point of the data is in the picture."""
        left, right, top, bottom = self.margins
        across = left + self.x.share(point[0]) * (self.width - left - right)
        down = self.height - bottom - self.y.share(point[1]) * (self.height - top - bottom)
        return round(across, 1), round(down, 1)


def ticks(most: float, about: int = 5) -> list[float]:
    """Round figures from 0 to the most."""
    if most <= 0.0:
        return [0.0]
    raw = most / about
    decade = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= raw)
    return [step * place for place in range(int(most / step + 1e-9) + 1)]


def share_ticks(low: float = 0.0) -> tuple[tuple[float, str], ...]:
    """Ticks of an axis of shares that ends at 100 %."""
    steps = 5 if low == 0.0 else 2
    shares = [low + (1.0 - low) * k / steps for k in range(steps + 1)]
    return tuple((share, f"{100.0 * share:.3g} %") for share in shares)


def path_of(chart: Chart, points: Iterable[Pair]) -> str:
    """The `d` of a path through points of the data."""
    return "M" + " L".join("{} {}".format(*chart.at(point)) for point in points)


def draw(chart: Chart) -> Markup:
    return tag(
        "svg",
        tag("title", chart.title, id=f"{chart.name}-title"),
        tag("desc", chart.description, id=f"{chart.name}-desc"),
        _axes(chart),
        *(_mark(chart, mark) for mark in chart.marks),
        *_texts(chart),
        id=chart.name,
        class_="chart" if chart.width > SMALL else "chart small",
        viewBox=f"0 0 {chart.width:g} {chart.height:g}",
        role="img",
        aria_labelledby=f"{chart.name}-title {chart.name}-desc",
    )


def _axes(chart: Chart) -> Markup:
    parts: list[Content] = []
    left, bottom = chart.at((chart.x.low, chart.y.low))
    right, _ = chart.at((chart.x.high, chart.y.high))
    for value, label in chart.y.ticks:
        _, down = chart.at((chart.x.low, value))
        if chart.y.has_grid:
            parts.append(tag("line", x1=left, x2=right, y1=down, y2=down, class_="grid"))
        parts.append(tag("text", label, x=left - 8, y=down + 4, text_anchor="end"))
    for value, label in chart.x.ticks:
        across, _ = chart.at((value, chart.y.low))
        parts.append(tag("line", x1=across, x2=across, y1=bottom, y2=bottom + 5, class_="axis"))
        parts.append(tag("text", label, x=across, y=bottom + 20, text_anchor="middle"))
    if chart.x.ticks:
        parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    for label, x, y, anchor in (
        (chart.x.label, (left + right) / 2, chart.height - 8, "middle"),
        (chart.y.label, 0.0, 16.0, "start"),
    ):
        parts.append(tag("text", label, x=x, y=y, text_anchor=anchor, class_="name") if label else None)
    return tag("g", *parts, class_="axes")


def _mark(chart: Chart, mark: Mark) -> Markup:
    match mark:
        case Line():
            path = path_of(chart, mark.points) if mark.points else None
            return tag("path", d=path, class_=mark.style, id=mark.id)
        case Bar():
            (x1, y1), (x2, y2) = chart.at(mark.start), chart.at(mark.end)
            box = {"x": min(x1, x2), "y": min(y1, y2), "width": abs(x2 - x1), "height": abs(y2 - y1)}
            return tag("rect", tag("title", mark.title), class_=mark.style, **box)
        case Point():
            x, y = chart.at(mark.at)
            shared = {"class_": mark.style, "data_name": mark.name}
            half = mark.size / 2
            if mark.is_square:
                box = {"x": x - half, "y": y - half, "width": mark.size, "height": mark.size}
                return tag("rect", tag("title", mark.title), **shared, **box)
            return tag("circle", tag("title", mark.title), **shared, cx=x, cy=y, r=half)


def _texts(chart: Chart) -> list[Markup]:
    """Beside bars at their ends; beside points where nothing else is."""
    found = []
    for bar in chart.marks:
        if isinstance(bar, Bar) and bar.text:
            x, y = chart.at((bar.text_after, (bar.start[1] + bar.end[1]) / 2))
            found.append(tag("text", bar.text, x=x + 8, y=y + 4))
    named = [mark for mark in chart.marks if isinstance(mark, Point) and mark.text]
    labels = place_labels(
        [chart.at(mark.at) for mark in named],
        [mark.text for mark in named],
        clear=6.0,
        sides=("right", "lower right", "upper right"),
    )
    for mark, label in zip(named, labels, strict=True):
        found.append(tag("text", mark.text, x=label.x, y=label.y, text_anchor=label.anchor))
    return found


def legend(*entries: tuple[str, str]) -> Markup:
    """Pairs of a class and its meaning."""
    return tag(
        "ul",
        *(tag("li", joined(tag("span", class_=f"key {kind}", aria_hidden="true"), what)) for kind, what in entries),
        class_="legend",
    )


class Label(NamedTuple):
    """Where the text begins, is centred or ends, on its base line."""

    x: float
    y: float
    anchor: Anchor


def place_labels(points: Sequence[Pair], texts: Sequence[str], *, clear: float, sides: Sequence[Side]) -> list[Label]:
    """One label for each point, at the distance `clear`: on the first side where it covers nothing, or the first."""
    taken: list[Box] = [(x - clear, y - clear, x + clear, y + clear) for x, y in points]
    found = []
    for number, (point, text) in enumerate(zip(points, texts, strict=True)):
        others = taken[:number] + taken[number + 1 :]  # a label may touch its own point
        tried = [_beside(point, len(text) * LETTER, clear, side) for side in sides]
        label, box = next((each for each in tried if not any(_overlap(each[1], box) for box in others)), tried[0])
        found.append(label)
        taken.append(box)
    return found


def _beside(point: Pair, width: float, clear: float, side: Side) -> tuple[Label, Box]:
    x, y = point
    match side:
        case "below":
            label = Label(x, y + clear + 0.85 * LINE_HEIGHT, "middle")
        case "above":
            label = Label(x, y - clear - 0.25 * LINE_HEIGHT, "middle")
        case "right":
            label = Label(x + clear + 3.0, y + 0.3 * LINE_HEIGHT, "start")
        case "left":
            label = Label(x - clear - 3.0, y + 0.3 * LINE_HEIGHT, "end")
        case "upper right":
            label = Label(x + 0.5 * clear, y - clear - 0.25 * LINE_HEIGHT, "start")
        case "lower right":
            label = Label(x + 0.5 * clear, y + clear + 0.85 * LINE_HEIGHT, "start")
    left = label.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width
    return label, (left, label.y - 0.8 * LINE_HEIGHT, left + width, label.y + 0.2 * LINE_HEIGHT)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
