"""Charts are data that one renderer draws; labels stand beside their points; colours are distinct."""

import re
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidings.report.page._charts import LETTER, LINE_HEIGHT, Axis, Bar, Chart, Line, Point, Side, draw, place_labels

POINTS = st.lists(st.tuples(st.floats(0, 900), st.floats(0, 900)), min_size=1, max_size=12)
SIDES: tuple[Side, ...] = ("below", "above", "right", "left", "upper right", "lower right")


def test_the_first_side_is_taken_where_nothing_is_in_the_way() -> None:
    (label,) = place_labels([(100.0, 50.0)], ["abc"], clear=10.0, sides=("below", "right"))
    assert (label.x, label.anchor) == (100.0, "middle")
    assert 60.0 < label.y < 60.0 + 2 * LINE_HEIGHT


def test_a_label_gives_way_to_a_point_below_it() -> None:
    upper, lower = place_labels([(100.0, 50.0), (100.0, 75.0)], ["abc", "abc"], clear=10.0, sides=("below", "above"))
    assert upper.y < 50.0
    assert lower.y > 75.0


def test_two_points_in_one_place_have_labels_side_by_side() -> None:
    one, other = place_labels([(0.0, 0.0)] * 2, ["left", "right"], clear=4.0, sides=("right", "left"))
    assert (one.anchor, other.anchor) == ("start", "end")


@given(POINTS)
def test_every_label_is_near_its_point(points: list[tuple[float, float]]) -> None:
    labels = place_labels(points, ["name"] * len(points), clear=8.0, sides=SIDES)
    assert len(labels) == len(points)
    for (x, y), label in zip(points, labels, strict=True):
        assert abs(label.x - x) <= 8.0 + 4 * LETTER
        assert abs(label.y - y) <= 8.0 + LINE_HEIGHT


def test_a_chart_is_drawn_from_its_values() -> None:
    chart = Chart(
        name="c",
        title="a < b",
        description="d",
        x=Axis(low=0.0, high=10.0, ticks=((0.0, "0"), (10.0, "10")), label="x"),
        y=Axis(low=1.0, high=100.0, ticks=((10.0, "ten"),), is_log=True),
        marks=(
            Line(points=((0.0, 1.0), (10.0, 100.0)), style="curve"),
            Bar(start=(0.0, 1.0), end=(5.0, 10.0), style="l2", title="half", text="5", text_after=5.0),
            Point(at=(5.0, 10.0), style="point", title="middle", name="s", text="here"),
        ),
        width=120.0,
        height=120.0,
        margins=(10.0, 10.0, 10.0, 10.0),
    )
    drawn = draw(chart)
    assert "a &lt; b" in drawn
    assert 'd="M10.0 110.0 L110.0 10.0"' in drawn
    assert '<rect class="l2" x="10" y="60" width="50" height="50">' in drawn
    assert '<circle class="point" data-name="s" cx="60" cy="60" r="4.5">' in drawn
    assert ">ten<" in drawn
    assert ">here<" in drawn


def test_values_beyond_an_axis_are_drawn_at_its_end() -> None:
    axis = Axis(low=0.0, high=2.0)
    assert [axis.share(value) for value in (-1.0, 0.0, 1.0, 2.0, 9.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]


# Machado, Oliveira, Fernandes 2009: full protanopia and deuteranopia, on linear RGB.
SIGHTS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def lab(colour: str, sight: str) -> NDArray[np.float64]:
    """The colour as it is seen, in CIE Lab."""
    rgb = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(SIGHTS[sight] @ linear, 0.0, 1.0)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    scaled = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    root = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("sight", list(SIGHTS))
def test_the_steps_of_lateness_are_distinct(sight: str) -> None:
    """In light, dark and print; a difference of 10 is plain to see side by side."""
    style = files("tidings.report.page").joinpath("style.css").read_text("utf-8")
    scales = re.findall(r"--l0: (#\w+); --l1: (#\w+); --l2: (#\w+); --l3: (#\w+); --l4: (#\w+);", style)
    assert len(scales) == 3
    for scale in scales:
        seen = [lab(colour, sight) for colour in scale]
        apart = [float(np.linalg.norm(one - other)) for n, one in enumerate(seen) for other in seen[:n]]
        assert min(apart) > 20.0, (sight, scale)
