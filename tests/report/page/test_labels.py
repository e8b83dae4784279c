"""Labels stand beside their points, and not on each other."""

from hypothesis import given
from hypothesis import strategies as st

from tidings.report.page._labels import LETTER, LINE, Side, place_labels

POINTS = st.lists(st.tuples(st.floats(0, 900), st.floats(0, 900)), min_size=1, max_size=12)
SIDES: tuple[Side, ...] = ("below", "above", "right", "left", "upper right", "lower right")


def test_the_first_side_is_taken_where_nothing_is_in_the_way() -> None:
    (label,) = place_labels([(100.0, 50.0)], ["abc"], clear=10.0, sides=("below", "right"))
    assert (label.x, label.anchor) == (100.0, "middle")
    assert 60.0 < label.y < 60.0 + 2 * LINE


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
        assert abs(label.y - y) <= 8.0 + LINE
