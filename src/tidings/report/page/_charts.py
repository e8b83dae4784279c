"""Charts as inline SVG: axes, points and lines in the page's own colours (classes, so both colour schemes fit).

A chart has a title and a description for those who do not see it; its figures are in a table nearby as well.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidings.report.page._markup import Content, Markup, joined, tag

__all__ = ["Axis", "Chart", "histogram", "legend", "sparkline", "ticks"]

WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 30.0, 34.0, 54.0


def ticks(most: float, about: int = 5) -> list[float]:
    """Round figures from 0 to the most."""
    if most <= 0.0:
        return [0.0]
    raw = most / about
    decade = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= raw)
    return [step * place for place in range(int(most / step + 1e-9) + 1)]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From low to high, linear or logarithmic, with labelled ticks."""

    label: str
    low: float
    high: float
    marks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value is between the ends, 0 to 1; what is beyond is at the end."""
        if self.is_log:
            found = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            found = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return min(1.0, max(0.0, found))


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A frame with two axes, to put things into."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(down, 1)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + " L".join("{} {}".format(*self.at(x, y)) for x, y in points)

    def drawn(self, *inside: Content) -> Markup:
        return tag(
            "svg",
            tag("title", self.title, id=f"{self.name}-title"),
            tag("desc", self.description, id=f"{self.name}-desc"),
            self._axes(),
            *inside,
            id=self.name,
            class_="chart",
            viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
            role="img",
            aria_labelledby=f"{self.name}-title {self.name}-desc",
        )

    def _axes(self) -> Markup:
        parts: list[Content] = []
        left, bottom = self.at(self.x.low, self.y.low)
        right, _ = self.at(self.x.high, self.y.high)
        for value, label in self.y.marks:
            _, down = self.at(self.x.low, value)
            parts.append(tag("line", x1=left, x2=right, y1=down, y2=down, class_="grid"))
            parts.append(tag("text", label, x=left - 8, y=down + 4, text_anchor="end"))
        for value, label in self.x.marks:
            across, _ = self.at(value, self.y.low)
            parts.append(tag("line", x1=across, x2=across, y1=bottom, y2=bottom + 5, class_="axis"))
            parts.append(tag("text", label, x=across, y=bottom + 20, text_anchor="middle"))
        parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        parts.append(tag("text", self.x.label, x=(left + right) / 2, y=HEIGHT - 8, text_anchor="middle", class_="name"))
        parts.append(tag("text", self.y.label, x=0, y=16, class_="name"))
        return tag("g", *parts, class_="axes")


def histogram(name: str, measured: Sequence[int], predicted: Sequence[int] | None, what: str) -> Markup:
    """Bars of what was measured, and a line over them of what is predicted."""
    most = max((*measured, *(predicted or ()), 1))
    marks = [(value, f"{value:,.0f}") for value in ticks(float(most), 4) if value == int(value)]
    chart = Chart(
        name=name,
        title=f"Number of {what} by on-time share",
        description=f"{measured[-1]:,} of {sum(measured):,} are in the highest of {len(measured)} steps.",
        x=Axis(label="on-time share", low=0.0, high=1.0, marks=[(k / 5, f"{20 * k} %") for k in range(6)]),
        y=Axis(label=what, low=0.0, high=float(most), marks=marks),
    )
    step, parts = 1.0 / len(measured), list[Content]()
    for place, count in enumerate(measured):
        (left, top), (right, bottom) = chart.at(place * step, count), chart.at((place + 1) * step, 0.0)
        said = tag("title", f"{place * step:.0%} to {(place + 1) * step:.0%}: {count:,}")
        parts.append(
            tag("rect", said, x=left + 1, y=top, width=right - left - 2, height=bottom - top, class_="measured")
        )
    if predicted is not None:
        corners = [(place * step + side, count) for place, count in enumerate(predicted) for side in (0.0, step)]
        parts.append(tag("path", d=chart.path(corners), class_="predicted"))
    return chart.drawn(*parts)


def sparkline(points: Sequence[tuple[float, float]], title: str, description: str) -> Markup:
    """A line of shares over time, from the least to the greatest of them."""
    width, height = 320.0, 56.0
    first, last = points[0][0], points[-1][0]
    low, high = min(share for _, share in points), max(share for _, share in points)
    span = max(high - low, 1e-3)
    path = " L".join(
        f"{4 + (width - 8) * (at - first) / max(last - first, 1e-9):.1f} "
        f"{height - 6 - (height - 12) * (share - low) / span:.1f}"
        for at, share in points
    )
    return tag(
        "svg",
        tag("title", title, id="over-time-title"),
        tag("desc", description, id="over-time-desc"),
        tag("path", d=f"M{path}", class_="spark"),
        class_="sparkline",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby="over-time-title over-time-desc",
    )


def legend(*entries: tuple[str, str]) -> Markup:
    """Pairs of a class and what it stands for."""
    return tag(
        "ul",
        *(tag("li", joined(tag("span", class_=f"key {kind}", aria_hidden="true"), what)) for kind, what in entries),
        class_="legend",
    )
