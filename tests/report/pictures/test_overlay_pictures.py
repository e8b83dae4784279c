"""The picture of a plan: both panels, everybody in them, and the same bytes for the same plan."""

from pathlib import Path

import numpy as np
import pytest

from tidings.errors import InputError
from tidings.pipeline.placement import Placement
from tidings.placement import Change, Expected, MadeFrom, PlacementPlan, PlanAim
from tidings.report import draw_placement
from tidings.routing import overlay_of_links

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'tidings[spark]'")

BROKERS = 63
EXPECTED = Expected(
    messages_per_s=Change(now=400.0, then=90.0),
    delay_ms=Change(now=300.0, then=100.0),
    busiest=Change(now=0.5, then=0.2),
    on_time=Change(now=0.6, then=0.9),
)


@pytest.fixture(scope="module")
def placement() -> Placement:
    """A balanced tree; one publisher moves, one stays, and a dozen stay together."""
    joined = [((child - 1) // 2, child, 1.0) for child in range(1, BROKERS)]
    return Placement(
        plan=PlacementPlan(
            made_from=MadeFrom(traces=["t"], from_ns=0, until_ns=1, events=1, deliveries=1),
            aim=PlanAim(objective="load", weight=100.0, hysteresis=0.0),
            moves=[],
            stay={},
            expected=EXPECTED,
        ),
        overlay=overlay_of_links(tuple(f"b{number}" for number in range(BROKERS)), joined, both_ways=True),
        positions={},
        utilisation_now=np.linspace(0.0, 0.5, BROKERS),
        utilisation_then=np.linspace(0.0, 0.2, BROKERS),
        publishers={(5, 9): 1, (7, 7): 1, (8, 8): 12},
    )


def test_everybody_is_in_both_panels(placement: Placement, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw_placement(placement, tmp_path / name)
    text = (tmp_path / "one.svg").read_text("utf-8")
    assert text == (tmp_path / "two.svg").read_text("utf-8")
    for shown in ("now", "after the plan", "400 messages/s, 300 ms, busiest 50.0 %, 60.0 % on time"):
        assert text.count(f"<!-- {shown} -->") == 1
    assert text.count("<!-- 12 -->") == 2
    assert text.count("<!-- ● -->") == 2 * 2  # two publishers that are shown as dots, before and after


def test_a_map_and_a_png(placement: Placement, tmp_path: Path) -> None:
    names = placement.overlay.brokers
    positions = {name: (float(place), 50.0 + place % 7) for place, name in enumerate(names)}
    on_map = Placement(**{**vars(placement), "positions": positions})
    draw_placement(on_map, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_format_that_cannot_be_written_is_refused(placement: Placement, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a picture ends in"):
        draw_placement(placement, tmp_path / "plan.gif")
