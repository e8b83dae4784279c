"""Labels beside points, on whichever side they cover nothing yet."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Label", "Side", "place_labels"]

LETTER, LINE = 6.6, 13.0
"""About how wide a letter is, and how high a line, in the chart's units."""

Anchor = Literal["start", "middle", "end"]
Side = Literal["below", "above", "right", "left", "upper right", "lower right"]
Box = tuple[float, float, float, float]


class Label(NamedTuple):
    """Where the text begins, is centred or ends, on its base line."""

    x: float
    y: float
    anchor: Anchor


def place_labels(
    points: Sequence[tuple[float, float]], texts: Sequence[str], *, clear: float, sides: Sequence[Side]
) -> list[Label]:
    """One for each point, `clear` of its middle; the first side that is free is taken, or the first one."""
    taken: list[Box] = [(x - clear, y - clear, x + clear, y + clear) for x, y in points]
    found = []
    for number, (point, text) in enumerate(zip(points, texts, strict=True)):
        others = taken[:number] + taken[number + 1 :]  # it may touch its own point
        tried = [_beside(point, len(text) * LETTER, clear, side) for side in sides]
        label, box = next((each for each in tried if not any(_meet(each[1], box) for box in others)), tried[0])
        found.append(label)
        taken.append(box)
    return found


def _beside(point: tuple[float, float], width: float, clear: float, side: Side) -> tuple[Label, Box]:
    x, y = point
    match side:
        case "below":
            label = Label(x, y + clear + 0.85 * LINE, "middle")
        case "above":
            label = Label(x, y - clear - 0.25 * LINE, "middle")
        case "right":
            label = Label(x + clear + 3.0, y + 0.3 * LINE, "start")
        case "left":
            label = Label(x - clear - 3.0, y + 0.3 * LINE, "end")
        case "upper right":
            label = Label(x + 0.5 * clear, y - clear - 0.25 * LINE, "start")
        case "lower right":
            label = Label(x + 0.5 * clear, y + clear + 0.85 * LINE, "start")
    left = label.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width
    return label, (left, label.y - 0.8 * LINE, left + width, label.y + 0.2 * LINE)


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
