"""What to do first: the largest gain of what is known, and capacity only if nothing else helps."""

from pathlib import Path

import numpy as np
import pytest
from tests.report.conftest import STAR

from tidings.model.scenario import Scenario
from tidings.report import Report, read_report
from tidings.report.figures import LATENESS_STEPS
from tidings.report.figures._comparison import lateness_of


@pytest.fixture(scope="module")
def report(star: Path) -> Report:
    return read_report(star)


def better(report: Report, by: float) -> dict[str, float]:
    return {each.name: min(1.0, each.reliability + by) for each in report.subscriptions if each.reliability is not None}


def test_the_change_with_the_largest_gain_comes_first(star: Path, report: Report) -> None:
    changes = [
        {"name": "small", "reliability": better(report, 0.01)},
        {"name": "large", "description": "move p to busy", "reliability": better(report, 0.2)},
        {"name": "all", "reliability": better(report, 0.3)},
    ]
    advice = read_report(star, changes=changes).advice
    assert advice is not None
    assert (advice.action, advice.basis) == ("Move p to busy", "changes")
    assert advice.now == pytest.approx(report.headline.reliability)
    assert advice.gain > 0.05


def test_a_scheme_is_advised_if_the_one_in_force_is_known(star: Path) -> None:
    advice = read_report(star, scenario=Scenario.parse(STAR).expand()).advice
    assert advice is not None
    assert advice.basis == "schemes"
    assert "buffer" in advice.action


def test_without_anything_else_a_station_is_made_faster(report: Report) -> None:
    """Broker busy is 90 % busy and costs most of the events: twice as fast, it would hardly wait."""
    advice = report.advice
    assert advice is not None
    assert (advice.action, advice.basis) == ("Make broker busy twice as fast", "capacity")
    assert advice.gain > 0.05


def test_changes_that_gain_nothing_are_not_advised(star: Path, report: Report) -> None:
    advice = read_report(star, changes=[{"name": "idle", "reliability": better(report, 0.0)}]).advice
    assert advice is not None
    assert advice.basis == "capacity"


def test_links_have_the_on_time_share_of_what_passes_them(report: Report) -> None:
    """From the hub, each arm has one subscription that matches anything."""
    shares = {each.name: each.reliability for each in report.subscriptions}
    links = {link.name: link.on_time for link in report.links}
    assert links["hub → busy"] == pytest.approx(shares["waits"])
    assert links["one → two"] == links["two → far"] == pytest.approx(shares["hurries"])
    assert links["busy → hub"] is None
    hub = next(station for station in report.brokers if station.name == "hub")
    assert hub.on_time == pytest.approx(report.headline.reliability, abs=1e-3)


def test_the_steps_of_lateness_count_everybody(report: Report) -> None:
    assert lateness_of(np.array([1.0, 0.99, 0.989, 0.95, 0.8, 0.5, 0.499, 0.0, np.nan])) == (2, 2, 1, 1, 2)
    assert sum(report.lateness) == report.headline.heard
    assert report.lateness[0] == report.headline.meeting
    assert len(report.lateness) == len(LATENESS_STEPS) + 1
