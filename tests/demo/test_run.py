"""The demonstration: its figures are those of its parts, it tells a story, and it keeps to its own directory."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

from tidings.demo import STEPS, Demonstration, Standing, print_demo, run_demo
from tidings.demo._run import _prepare
from tidings.demo._story import next_commands, spread
from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Scenario
from tidings.planning import apply, what_if
from tidings.simulation import simulate

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession
    from typer.testing import Result

SMALL = """
title = "Three in a row"
seed = 4
duration = "3 min"
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
[links]
bandwidth = "128 kbit/s"
propagation = "5 ms"
failures = { availability = 0.97, period = "20 s" }
[[publishers]]
name = "p"
at = "a"
rate = "8 /s"
size = { law = "uniform", low = "200 B", high = "2 kB" }
lifetime = "20 s"
attributes = { x = { range = [1, 10] } }
[[subscribers]]
name = "hasty"
at = "c"
count = 3
filter = "x <= {most}"
max_delay = "250 ms"
parameters = { most = { range = [3, 9] } }
[[subscribers]]
name = "patient"
at = "b"
filter = "x > 2"
max_delay = "15 s"
[[subscribers]]
name = "nobody"
at = "b"
filter = "x > 100"
[policies]
scheduling = "fifo"
faults = { scheme = "periodic", refresh = "5 s" }
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "small.toml"
    path.write_text(SMALL, "utf-8")
    return path


@pytest.fixture(scope="module")
def result(scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> "Result":
    """The command's own result."""
    from tidings.cli._app import app

    out = tmp_path_factory.mktemp("demo") / "out"
    return CliRunner().invoke(app, ["demo", str(scenario), "--out", str(out), "--json"])


@pytest.fixture(scope="module")
def found(result: "Result") -> Demonstration:
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=Demonstration)


def test_what_is_measured_is_what_the_simulator_counted(found: Demonstration, scenario: Path) -> None:
    network = Scenario.load(scenario).expand()
    run = simulate(network)
    assert {row.subscriber: row.measured for row in found.subscribers} == {
        name: each.on_time_reliability for name, each in run.subscribers.items()
    }
    assert found.events == run.published


def test_steps_are_numbered(result: "Result") -> None:
    steps = [line for line in result.stderr.splitlines() if line.startswith("[")]
    assert [line[: len("[1/6")] for line in steps] == [f"[{number + 1}/{STEPS}" for number in range(STEPS)]


def test_gains_of_changes_are_added_to_what_was_measured(found: Demonstration, scenario: Path) -> None:
    tried = what_if(Scenario.load(scenario).expand())
    assert {effect.name for effect in found.effects} == {change.name for change in tried.changes}
    rows = {row.subscriber: row for row in found.subscribers}
    for number, name in enumerate(tried.subscribers):
        row = rows[name]
        if name == "nobody":
            assert row.measured is row.best is row.all is None
            continue
        assert row.measured is not None
        gain = max(0.0, float(max(change.reliability[number] - tried.now[number] for change in tried.changes)))
        assert row.best == pytest.approx(min(1.0, row.measured + gain), abs=2e-4)
        assert row.predicted == pytest.approx(tried.now[number])
    assert found.reliability < found.reliability_all


def test_all_changes_together_are_simulated(found: Demonstration, scenario: Path) -> None:
    network = Scenario.load(scenario).expand()
    every = [change for outcome in what_if(network).changes for change in outcome.changes]
    run = simulate(apply(network, every))
    for row in found.subscribers:
        if row.measured is not None:
            assert row.all == run.subscribers[row.subscriber].on_time_reliability
    assert found.order is not None
    assert run.ordering is not None
    assert found.order.received == run.ordering.received


@pytest.mark.spark
def test_on_spark_it_finds_the_same(
    spark: "SparkSession", found: Demonstration, scenario: Path, tmp_path: Path
) -> None:
    other = run_demo(scenario, tmp_path / "out", session=spark, say=print, stage=lambda *_: None)
    assert other.subscribers == found.subscribers
    assert other.reason == found.reason


def test_the_prediction_is_near(found: Demonstration) -> None:
    assert found.error < 0.1  # three minutes with a failure every 20 s: mostly noise


@pytest.mark.browser
def test_the_report_opens_without_a_network(found: Demonstration, page: "Page") -> None:
    text = Path(found.report).read_text("utf-8")
    assert "Three in a row" in text
    page.context.set_offline(True)
    page.goto(Path(found.report).resolve().as_uri())
    assert "deadline scheduling" in page.inner_text("body")
    assert page.locator("section").first.locator(".first").is_visible()


def test_the_story(found: Demonstration, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_demo(found, shown=3)
    printed = capsys.readouterr().out
    chapters = ["Who was late?", "Why?", "What was done?", "What did it bring?", "Was it foreseen?"]
    places = [printed.index(title) for title in chapters]
    assert places == sorted(places)
    assert "…" not in printed
    assert "hasty-" in printed
    assert "nobody" not in printed
    assert found.worst is not None
    assert found.reason is not None
    words = " ".join(printed.split())
    assert f"{found.worst} at c got only" in words
    assert found.reason in words
    assert "points" in words
    assert "The prediction, made before anything ran, is off by" in words
    simulated = msgspec.structs.replace(found, unpredicted='links that send by "eb"')
    print_demo(simulated, shown=3)
    printed = " ".join(capsys.readouterr().out.split())
    assert 'No prediction covers links that send by "eb". A short simulation estimated the shares beforehand' in printed
    assert "redicted" not in printed.replace("No prediction", "")


def test_it_ends_with_three_commands_that_exist(found: Demonstration) -> None:
    from typer.main import get_command

    from tidings.cli._app import app

    commands = next_commands(found)
    assert len(commands) == 3
    for command, purpose in commands:
        assert command.split()[0] == "tidings"
        assert command.split()[1] in get_command(app).commands  # type: ignore[attr-defined]
        assert purpose


def test_an_unknown_engine_is_refused(scenario: Path, tmp_path: Path) -> None:
    from tidings.cli._app import app

    for options, words in (
        (["--engine", "duck"], "write arrow or spark"),
        (["--engine", "arrow", "--master", "local"], "for Spark only"),
    ):
        result = CliRunner().invoke(app, ["demo", str(scenario), "--out", str(tmp_path / "out"), *options])
        assert result.exit_code == 2
        assert words in result.stderr


def standing(number: int) -> Standing:
    share = None if number == 0 else number / 100
    return Standing(
        subscriber=f"s{number}",
        broker="b",
        filter="TRUE",
        max_delay_s=None,
        matched=number,
        measured=share,
        predicted=share,
        best=share,
        best_change=None,
        all=share,
    )


def test_a_spread_has_the_worst_and_the_best() -> None:
    rows = spread([standing(number) for number in (30, 10, 0, 20, 50, 40)], 3)
    assert [row.subscriber for row in rows] == ["s10", "s30", "s50"]
    assert len(spread([standing(1), standing(2)], 12)) == 2


def test_a_directory_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "mine.txt").write_text("keep me", "utf-8")
    with pytest.raises(InputError, match="has files that are not from an earlier demo"):
        _prepare(tmp_path)
    assert (tmp_path / "trace" / "mine.txt").read_text("utf-8") == "keep me"
    with pytest.raises(InputError, match="is a file; give a directory"):
        _prepare(tmp_path / "trace" / "mine.txt")


def test_a_directory_of_its_own_is_emptied(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    _prepare(out)
    (out / "trace").mkdir()
    (out / "report.html").write_text("old", "utf-8")
    (out / "notes.txt").write_text("mine", "utf-8")
    _prepare(out)
    assert sorted(path.name for path in out.iterdir()) == [".tidings-demo", "notes.txt"]


def test_a_scenario_without_clients_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text('duration = "1 min"\ntopology = { kind = "balanced-tree", branching = 2, depth = 1 }\n', "utf-8")
    with pytest.raises(ConfigurationError, match="needs publishers and subscribers"):
        run_demo(path, tmp_path / "out", say=print, stage=print)
    assert not (tmp_path / "out").exists()


def test_a_scenario_that_does_not_exist_is_named(tmp_path: Path) -> None:
    from tidings.cli._app import app

    result = CliRunner().invoke(app, ["demo", str(tmp_path / "none.toml"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "none.toml" in result.stderr


def test_nothing_is_opened_where_nobody_sits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import webbrowser

    from tidings.cli._demo import _open

    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("opened a browser"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not _open(tmp_path / "report.html")
