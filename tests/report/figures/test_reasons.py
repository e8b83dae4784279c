"""Reasons in words: of scenarios made to have one cause each, and of journeys made by hand."""

from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import HOSTILE_BROKER, HOSTILE_SUBSCRIBER

from tidings.report import Report, read_report
from tidings.report.figures import Journey, Station, parts_of, reason_of


@pytest.fixture(scope="module")
def found(star: Path) -> dict[str, Any]:
    return {each.name: each for each in read_report(star).subscriptions}


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("waits", "busy broker", ("An event waits", "at broker busy, which is 9", "% busy; the deadline is 800 ms.")),
        (
            "creeps",
            "slow link",
            ("An event spends", "on link hub → behind, most of it sending; the deadline is 150 ms."),
        ),
        (
            "hurries",
            "deadline",
            ("Its deadline of 45 ms is shorter than the path from p, which takes 60 ms over 3 links",),
        ),
        ("misses", "failures", ("Broker fails was down", "of the events from p are lost in outages.")),
        (HOSTILE_SUBSCRIBER, "losses", (f"of the events sent over hub → {HOSTILE_BROKER} are lost.",)),
        ("happy", "none", ("Its events arrive on time.",)),
        ("deaf", "none", ("No published event matches it.",)),
    ],
)
def test_each_arm_is_blamed_for_its_one_cause(found: dict[str, Any], name: str, cause: str, words: tuple[str]) -> None:
    reason = found[name].reason
    assert reason.cause == cause
    for part in words:
        assert part in reason.words


def test_the_stations_of_a_path_add_up_to_what_was_measured(star: Path) -> None:
    """Without priorities and drops, the means of the stations are those of the pair, up to events still in transit."""
    report: Report = read_report(star)
    for name in ("waits", "creeps", "hurries", "happy"):
        (journey,) = report.journeys[name]
        sum_s = sum(part.total_s for part in parts_of(journey, report.stations))
        assert sum_s == pytest.approx(journey.mean_delay_s, rel=0.02)
        assert journey.on_time == pytest.approx(
            next(each.reliability for each in report.subscriptions if each.name == name), abs=0.02
        )


def station(name: str, **known: Any) -> Station:
    nothing = dict.fromkeys(
        ("rate_per_s", "kb_per_s", "utilisation", "waiting_s", "service_s", "slowness_s_per_kb", "propagation_s"), 0.0
    )
    base = {"kind": "broker", "source": 0, "target": 0, "loss": 0.0, "shed": 0.0, "availability": 1.0}
    return Station(name=name, **{**nothing, **base, **known})


def journey(*, stations: tuple[int, ...], **known: Any) -> Journey:
    base = {"publisher": "p", "share": 1.0, "size_kb": 1.0, "allowed_s": 0.1, "arrived": 1.0, "on_time": 0.5}
    return Journey(stations=stations, mean_delay_s=None, **{**base, **known})


def test_the_sentence_of_a_busy_broker() -> None:
    path = [station("a", service_s=0.12), station("Bydgoszcz", waiting_s=0.38, utilisation=0.97)]
    reason = reason_of(0.5, [journey(stations=(0, 1), allowed_s=0.4)], path)
    assert (reason.cause, reason.station) == ("busy broker", 1)
    assert reason.words == (
        "An event waits 380 of its 500 ms at broker Bydgoszcz, which is 97.0 % busy; the deadline is 400 ms."
    )


def test_a_link_that_is_waited_for() -> None:
    link = station("a → b", kind="link", target=0, waiting_s=0.09, slowness_s_per_kb=0.01, utilisation=0.9)
    reason = reason_of(0.5, [journey(stations=(0, 1))], [station("a"), link])
    assert reason.cause == "busy link"
    assert "waits 90 of its 100 ms for link a → b, which is 90.0 % busy" in reason.words


def test_waiting_for_what_is_down_is_a_failure() -> None:
    link = station("a → b", kind="link", target=1, waiting_s=20.0, utilisation=0.1)
    path = [station("a"), station("b", availability=0.9), link]
    reason = reason_of(0.9, [journey(stations=(0, 2, 1))], path)
    assert reason.cause == "failures"
    assert "while broker b was down 10.0 % of the time" in reason.words


def test_what_expired_in_queues_is_delay_even_where_something_fails() -> None:
    """Half is gone, but no more than a hundredth can be the outages: the links dropped the rest."""
    link = station("a → b", kind="link", target=1, waiting_s=0.09, shed=0.4, utilisation=0.95)
    path = [station("a"), station("b", availability=0.99), link]
    assert reason_of(0.5, [journey(stations=(0, 2, 1), arrived=0.5)], path).cause == "busy link"


def test_a_long_path_on_which_nothing_stands_out() -> None:
    path = [station(f"b{number}", service_s=0.02, waiting_s=0.001) for number in range(5)]
    reason = reason_of(0.5, [journey(stations=(0, 1, 2, 3, 4), allowed_s=0.102)], path)
    assert reason.cause == "long path"
    assert "takes 105 ms on average over 0 links, 5 ms of it waiting; the deadline is 102 ms" in reason.words


def test_the_journey_that_costs_most_is_blamed() -> None:
    path = [station("a", service_s=0.01), station("b", waiting_s=1.0, utilisation=0.99)]
    fine = journey(stations=(0,), share=0.9, on_time=0.99)
    bad = journey(stations=(1,), share=0.1, on_time=0.0, publisher="q")
    assert reason_of(0.891, [fine, bad], path).cause == "busy broker"


def test_without_a_path_nobody_is_blamed() -> None:
    assert reason_of(0.5, [], []).words == "The path of its events is not known."
