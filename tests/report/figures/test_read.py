"""The figures of a run: those of the pipeline, of the prediction, and sentences where something is missing."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.conftest import STAR

from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.report import Report, read_report
from tidings.report.figures import SHOWN_MAX


@pytest.fixture(scope="module")
def report(quick: Path) -> Report:
    return read_report(quick)


def test_the_headline_adds_up(quick: Path, report: Report) -> None:
    scores = pq.read_table(table_place(quick, "subscriber_scores")).to_pylist()
    head = report.headline
    assert head.subscriptions == len(scores) == 117
    assert head.matched == sum(row["matched"] for row in scores) == head.on_time + head.late + head.lost
    worst = min(scores, key=lambda row: (row["on_time_reliability"], row["subscription"]))
    assert (head.worst, head.worst_reliability) == (worst["subscription"], worst["on_time_reliability"])
    assert head.events == sum(pq.read_table(table_place(quick, "publishers"))["events"].to_pylist())
    assert head.bad == 0
    assert sum(report.measured_bins) == head.heard == 117
    assert sum(window.matched for window in report.windows) == head.matched
    assert sum(place.matched for place in report.places) == head.matched


def test_subscriptions_come_the_worst_first(report: Report) -> None:
    shares = [each.reliability or 0.0 for each in report.subscriptions]
    assert shares == sorted(shares)
    assert len(shares) == 117 <= SHOWN_MAX


def test_brokers_are_where_the_map_has_them(report: Report) -> None:
    where = {station.name: place for station, place in zip(report.brokers, report.places, strict=True)}
    assert report.is_map
    assert where["Gdansk"].y < where["Warsaw"].y < where["Krakow"].y  # north is up
    assert where["Szczecin"].x < where["Poznan"].x < where["Bialystok"].x
    assert all(0.0 <= value <= 1.0 for place in report.places for value in (place.x, place.y))
    assert (where["Warsaw"].publishers, where["Krakow"].publishers, where["Lodz"].publishers) == (1, 1, 0)


def test_how_busy_links_are_follows_from_bytes_and_bandwidth(report: Report) -> None:
    """500 kbit/s are 62.5 kB/s."""
    for link in report.links:
        assert link.utilisation == pytest.approx(link.kb_per_s / 62.5, rel=1e-3)


def test_predictions_go_over_links_that_were_used(report: Report) -> None:
    assert report.comparison is not None
    for own in report.journeys.values():
        for journey in own:
            assert all(report.stations[number].rate_per_s > 0.0 for number in journey.stations)
    # Sampling alone makes .01 in a minute; links here schedule by deadlines, and predictions know first in first out.
    assert report.comparison.error < 0.05
    assert report.comparison.compared == 117


def test_disorder_falls_with_the_hold(report: Report) -> None:
    assert report.ordering is not None
    for curve in (report.ordering.curve, *report.ordering.curves.values()):
        assert (np.diff(curve) <= 1e-15).all()
        assert 0.0 <= curve[-1] <= curve[0] <= 0.5
    assert 0.0 < report.ordering.measured < report.ordering.curve[0]


def test_what_is_missing_is_said_with_the_command_that_adds_it(report: Report) -> None:
    assert set(report.missing) == {"schemes", "placement", "changes"}
    assert "tidings place TRACE" in report.missing["placement"]
    assert "--scenario" in report.missing["schemes"]


def test_failures_that_were_measured_give_schemes(star: Path) -> None:
    found = read_report(star).schemes
    assert found is not None
    assert found.source == "measured"
    shares = {each.scheme: each.by_subscription["misses"] for each in found.schemes}
    assert list(shares) == ["periodic", "buffer", "bypass", "bypass+buffer"]
    assert shares["buffer"] == pytest.approx(shares["bypass+buffer"], abs=0.01)  # no path around the hub's only link


def test_with_the_scenario_outages_count_in_what_is_predicted(star: Path) -> None:
    """The scenario says the scheme and how often subscriptions are refreshed."""
    without, known = read_report(star), read_report(star, scenario=Scenario.parse(STAR).expand())
    assert without.comparison is not None
    assert known.comparison is not None
    assert (without.comparison.scheme, known.comparison.scheme) == (None, "periodic")
    (misses,) = (each for each in known.subscriptions if each.name == "misses")
    assert misses.predicted == pytest.approx(misses.reliability, abs=0.06)  # some 20 outages: 1 / sqrt(20) of a fifth
    assert next(each.predicted for each in without.subscriptions if each.name == "misses") == pytest.approx(1.0)


def test_failures_of_the_scenario_where_none_were_seen(quick: Path, quick_text: str, tmp_path: Path) -> None:
    text = quick_text.replace("[brokers]", '[brokers]\nfailures = { availability = 0.9, period = "60000 s" }')
    file = tmp_path / "fails.toml"
    file.write_text(text, "utf-8")
    report = read_report(quick, scenario=file)
    assert report.headline.title == "Stock quotes over Poland"
    assert report.schemes is not None
    assert report.schemes.source == "scenario"
    by_scheme = {each.scheme: each.reliability for each in report.schemes.schemes}
    assert by_scheme["bypass"] > by_scheme["periodic"] + 0.02


def test_a_scenario_of_another_network_is_refused(quick: Path, star: Path) -> None:  # noqa: ARG001
    other = Scenario.parse('duration = "1 s"\ntopology = { kind = "explicit", brokers = ["x"], links = [] }').expand()
    with pytest.raises(InputError, match="has no broker 'Bialystok', which the run has"):
        read_report(quick, scenario=other)


def test_bad_rows_are_counted_by_reason(quick: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(quick, copied)
    quarantine = table_place(copied, "quarantine")
    shutil.rmtree(quarantine)
    quarantine.mkdir()
    rows = [
        {"table": "hops", "file": "f", "reasons": reasons, "row": "{}", "rows": count}
        for reasons, count in ((["a"], 1), (["a", "b"], 1), (["unreadable-file"], 50))
    ]
    pq.write_table(pa.Table.from_pylist(rows), quarantine / "part.parquet")
    head = read_report(copied).headline
    assert (head.bad, head.quarantined) == (52, {"unreadable-file": 50, "a": 2, "b": 1})


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such directory; `tidings pipeline run"):
        read_report(tmp_path / "nowhere")
    with pytest.raises(InputError, match="there is no table 'brokers'"):
        read_report(tmp_path)


def test_the_same_run_gives_the_same_report(quick: Path, report: Report) -> None:
    assert msgspec.json.encode(read_report(quick)) == msgspec.json.encode(report)
