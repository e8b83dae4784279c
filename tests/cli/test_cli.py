"""The command line: what it prints, where, and with which exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tidings
from tidings.cli._app import app

EXAMPLES_FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(str(path) for path in EXAMPLES_FOLDER.glob("*.toml"))
TIDINGS = [sys.executable, "-c", "from tidings.cli import main; main()"]


def example(name):
    return str(EXAMPLES_FOLDER / name)


@pytest.fixture
def run():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, list(arguments), prog_name="tidings", env={"COLUMNS": "160"})


@pytest.mark.parametrize("path", EXAMPLES)
def test_check_examples(run, path):
    result = run("scenario", "check", path)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{path}: OK: ")
    document = json.loads(run("scenario", "check", path, "--json").stdout)
    assert document["file"] == path
    assert document["subscriptions"] > 0


def test_show_is_readable(run):
    result = run("scenario", "show", example("quickstart.toml"))
    assert result.exit_code == 0
    for words in (
        "12 brokers, 36 links, mean degree 3.00, diameter 4 hops",
        "80 /s events",
        "exchange",
        "trader",
        "YHOO",
    ):
        assert words in result.stdout


def test_show_as_json_with_another_seed(run):
    documents = [
        json.loads(run("scenario", "show", example("paper-c.toml"), "--json", "--seed", s).stdout) for s in "12"
    ]
    assert [document["summary"]["seed"] for document in documents] == [1, 2]
    assert documents[0]["summary"]["interest"] != documents[1]["summary"]["interest"]
    assert documents[0]["summary"]["links"] == 64


@pytest.mark.parametrize("name", ["overlay.svg", "overlay.png"])
def test_pictures_have_the_same_bytes_each_time(run, tmp_path, name):
    pictures = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        result = run("scenario", "show", example("quickstart.toml"), "--picture", str(path), "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["picture"] == str(path)
        assert "drew the overlay" in result.stderr
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"<?xml" if name.endswith("svg") else b"\x89PNG")
    assert len(pictures[0]) > 10_000


@pytest.mark.parametrize(
    "topology",
    [
        '[topology]\nkind = "balanced-tree"\nbranching = 3\ndepth = 3',
        '[topology]\nkind = "random-graph"\nbrokers = 30\nmean_degree = 3',
        '[topology]\nkind = "layered-mesh"',
        '[topology]\nkind = "balanced-tree"\nbranching = 2\ndepth = 0',
        '[topology]\nkind = "explicit"\nbrokers = ["a$b$", "<&>"]\nlinks = [["a$b$", "<&>"]]',
    ],
)
def test_every_kind_of_overlay_can_be_drawn(run, tmp_path, topology):
    scenario = tmp_path / "s.toml"
    scenario.write_text(f'duration = "1 s"\n{topology}\n')
    result = run("scenario", "show", str(scenario), "--picture", str(tmp_path / "p.svg"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("picture", "message"),
    [("p.gif", "the name of a picture ends in .svg or .png"), ("no/where/p.svg", "there is no directory")],
)
def test_pictures_that_cannot_be_drawn(run, picture, message):
    result = run("scenario", "show", example("factory.toml"), "--picture", picture)
    assert result.exit_code == 2
    assert message in result.stderr


def test_errors_are_one_message_and_one_json_document(run, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text('duration = "5 kg"\ntopology = "topohub:sndlib/polska"\n')
    plain = run("scenario", "check", str(bad))
    assert plain.exit_code == 2
    assert plain.stdout == ""
    assert plain.stderr.startswith(f"error: {bad}:1: duration: '5 kg': unknown unit 'kg'")
    told = run("scenario", "check", str(bad), "--json")
    assert told.exit_code == 2
    error = json.loads(told.stdout)["error"]
    assert error["kind"] == "ScenarioError"
    assert error["place"] == f"{bad}:1: duration"
    assert error["message"] in told.stderr


def test_a_string_in_double_quotes_is_warned_about_on_standard_error(run, tmp_path):
    asked = 'country = "UK"'
    for arguments in (["explain", asked], ["covers", asked, "TRUE"], ["test", asked, "--event", "{}"]):
        result = run("filter", *arguments)
        assert result.exit_code == 0
        assert result.stderr.startswith('warning: "UK" is compared as an attribute')
        assert result.stderr.endswith("write a string in single quotes: 'UK'.\n")
        assert "warning" not in result.stdout
    assert len(json.loads(run("filter", "explain", asked, "--json").stdout)["warnings"]) == 1
    assert json.loads(run("filter", "explain", "country = 'UK'", "--json").stdout)["warnings"] == []
    path = tmp_path / "mine.toml"
    path.write_text(
        Path(example("shops.toml")).read_text("utf-8").replace("\"kind = 'price'\"", "'kind = \"price\"'"), "utf-8"
    )
    for command in (["scenario", "check"], ["scenario", "show"]):
        result = run(*command, str(path))
        assert result.exit_code == 0
        assert 'subscribers[0].filter: "price" is compared as an attribute' in result.stderr
    (warning,) = json.loads(run("scenario", "check", str(path), "--json").stdout)["warnings"]
    assert warning.startswith(f"{path}:")


def test_a_strict_command_refuses_what_it_would_warn_about(run):
    for arguments in (("explain",), ("test", "--event", "{}")):
        result = run("filter", arguments[0], 'country = "UK"', "--strict", *arguments[1:])
        assert result.exit_code == 2
        assert 'error: "UK" is compared as an attribute' in result.stderr
        assert run("filter", arguments[0], "country = 'UK'", "--strict", *arguments[1:]).exit_code == 0


def test_filter_explain(run):
    result = run("filter", "explain", "NOT (price BETWEEN 10 AND 20 OR halted)")
    assert result.exit_code == 0
    assert "price < 10" in result.stdout
    assert "clause 2 of 2" in result.stdout
    document = json.loads(run("filter", "explain", "[symbol,=,'YHOO'],[volume,>,1000000]", "--json").stdout)
    assert document["normal_form"]["attributes"] == ["symbol", "volume"]


def test_filter_errors_show_the_place(run):
    result = run("filter", "explain", "price > > 5", "--json")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].strip() == "^"
    assert json.loads(result.stdout)["error"]["kind"] == "FilterError"


@pytest.mark.parametrize(
    ("wide", "narrow", "answer", "covers"),
    [("price > 10", "price > 20", "yes", True), ("price > 20", "price > 10", "no", False)],
)
def test_filter_covers(run, wide, narrow, answer, covers):
    result = run("filter", "covers", wide, narrow)
    assert (result.exit_code, result.stdout) == (0, answer + "\n")
    assert json.loads(run("filter", "covers", wide, narrow, "--json").stdout)["covers"] is covers


@pytest.mark.parametrize(
    ("event", "answer"), [('{"price": 25}', "true"), ('{"price": 5}', "false"), ('{"other": 1}', "unknown")]
)
def test_filter_on_an_event(run, event, answer):
    result = run("filter", "test", "price > 20", "--event", event)
    assert (result.exit_code, result.stdout) == (0, answer + "\n")
    document = json.loads(run("filter", "test", "price > 20", "--event", event, "--json").stdout)
    assert document["result"] is {"true": True, "false": False, "unknown": None}[answer]


@pytest.mark.parametrize("event", ["{", "[1]", "5", '{"price": [1]}', "[" * 100_000])
def test_events_that_are_none(run, event):
    result = run("filter", "test", "price > 20", "--event", event)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""


def test_help_teaches_by_example(run):
    assert "tidings scenario show examples/quickstart.toml" in run("--help").stdout
    assert "[symbol,=,'YHOO'],[volume,>,1000000]" in run("filter", "explain", "--help").stdout
    for command in (["scenario", "check"], ["scenario", "show"], ["filter", "explain"], ["filter", "covers"]):
        shown = run(*command, "--help").stdout
        assert f"tidings {' '.join(command)}" in shown
        assert "--json" in shown
        assert "Try:" in shown


def test_help_shows_every_command_in_a_panel(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = run("--help").stdout.splitlines()
    panels = [line.split("─ ")[1].split(" ─")[0] for line in lines if line.startswith("╭─")]
    assert panels == ["Options", "Run a network", "Use it", "Understand it", "Plan it", "Study it"]
    use = next(number for number, line in enumerate(lines) if "─ Use it" in line)
    assert [line.split()[1] for line in lines[use + 1 : use + 5]] == ["subscribe", "publish", "filter", "bench"]


def execute(*arguments, **more):
    return subprocess.run([*TIDINGS, *arguments], capture_output=True, text=True, timeout=600, check=False, **more)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["scenario", "check", example("quickstart.toml")], 0),
        (["scenario", "check", str(EXAMPLES_FOLDER)], 2),
        (["scenario", "check", "none.toml"], 2),
        (["scenario", "check"], 2),
        (["scenario", "frobnicate"], 2),
        (["filter", "explain", "a >"], 2),
    ],
)
def test_exit_codes(arguments, code):
    done = execute(*arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code:
        assert done.stdout == ""


def test_version():
    assert execute("--version").stdout == f"tidings {tidings.__version__}\n"


def test_interrupt_leaves_with_130(tmp_path):
    pipe = tmp_path / "slow.toml"
    os.mkfifo(pipe)  # reading it waits for text that never comes, as a long run would
    process = subprocess.Popen(
        [*TIDINGS, "scenario", "check", str(pipe)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    for _ in range(600):
        try:  # succeeds once the command has opened the other end
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            time.sleep(0.05)
    for _ in range(20):  # one that comes just before the read begins is seen only when something ends the read
        process.send_signal(signal.SIGINT)
        try:
            _, complaint = process.communicate(timeout=2)
            break
        except subprocess.TimeoutExpired:
            continue
    os.close(writer)
    assert process.returncode == 130
    assert "Traceback" not in complaint


def test_help_loads_nothing_heavy():
    code = (
        "import sys, tidings.cli._app\n"
        "bad = {'numpy', 'numba', 'pyspark', 'scipy', 'matplotlib', 'networkx', 'lark', 'pyarrow'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_demo_of_a_missing_file(run, tmp_path):
    result = run("demo", str(tmp_path / "nowhere.toml"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "nowhere.toml" in result.stderr
