"""Differences of shares are points; any other change is per cent of what it was."""

from pathlib import Path

from tidings.placement import Change, Expected, MadeFrom, PlacementPlan, PlanAim
from tidings.report import read_report, render_report


def test_differences_of_shares_are_points(quick: Path) -> None:
    expected = Expected(
        messages_per_s=Change(now=400.0, then=100.0),
        delay_ms=Change(now=30.0, then=33.0),
        busiest=Change(now=0.5, then=0.25),
        on_time=Change(now=0.6, then=0.9),
    )
    plan = PlacementPlan(
        made_from=MadeFrom(traces=["t"], from_ns=0, until_ns=1, events=1, deliveries=1),
        aim=PlanAim(objective="delay", weight=100.0, hysteresis=0.0),
        moves=[],
        stay={"publisher": 1},
        expected=expected,
    )
    page = render_report(read_report(quick, plan=plan))
    for shown in ("−75.0 %<", "+10.0 %<", "−25.0 points<", "+30.0 points<"):
        assert shown in page
