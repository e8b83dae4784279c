"""`tidings what-if` at the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import ConfigurationError
from tidings.planning import (
    CHANGES_WRITTEN,
    AllowLonger,
    LiveLonger,
    MovePublisher,
    SpeedUpBroker,
    SpeedUpLink,
    UseOrdering,
    UseScheme,
    UseStrategy,
    parse_change,
)

OVERLOAD = str(Path(__file__).parents[2] / "examples" / "plan" / "overload.toml")


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["what-if", *words])
    return result.exit_code, result.stdout, result.stderr


def test_before_and_after_for_each_subscriber() -> None:
    code, out, _ = run(OVERLOAD, "--change", "link:middle,south=1.5", "--change", "lifetime:feed=1.25", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["format"] == "tidings.what-if"
    wider, patient = found["changes"]
    assert wider["words"] == "give middle - south 1.5 times the bandwidth"
    assert wider["means"] == "predicted"
    assert found["now"]["far"] < 0.6 < 0.99 < wider["subscribers"]["far"]
    assert found["now"]["near"] == wider["subscribers"]["near"] == 1.0
    assert patient["subscribers"]["far"] <= wider["subscribers"]["far"]
    assert found["all"]["far"] >= wider["subscribers"]["far"]


def test_changes_that_exclude_each_other_are_shown_by_themselves() -> None:
    words = ("--change", "link:middle,south=1.5", "--change", "link:middle,south=2")
    code, out, _ = run(OVERLOAD, *words)
    assert code == 0
    assert "(2) give middle - south 2 times the bandwidth, predicted" in out
    assert "all" not in out.splitlines()[4]
    document = json.loads(run(OVERLOAD, *words, "--json")[1])
    assert set(document["all"].values()) == {None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("link:middle,nowhere=2", "there is no link between 'middle' and 'nowhere'"),
        ("broker:midle=2", "did you mean 'middle'?"),
        ("link:middle,south=fast", "'fast' is not a number; write a factor"),
        ("strategy=quick", "there is no strategy 'quick'"),
        ("faster", "write one of strategy=NAME"),
        ("link:middle=2", "write one of strategy=NAME"),
    ],
)
def test_what_cannot_be_changed_is_named_before_anything_takes_time(change: str, said: str) -> None:
    code, out, err = run(OVERLOAD, "--change", change)
    assert code == 2
    assert said in err
    assert "estimating" not in err
    assert out == ""


def test_every_change_has_a_word() -> None:
    written = {
        "strategy=eb": UseStrategy(strategy="eb"),
        "scheme=buffer": UseScheme(scheme="buffer"),
        "ordering=CST-100": UseOrdering(policy="CST-100"),
        "move:p=b": MovePublisher(publisher="p", broker="b"),
        "broker:b=2": SpeedUpBroker(broker="b", factor=2.0),
        "link:a, b = 1.5": SpeedUpLink(source="a", target="b", factor=1.5),
        "deadline:s=2": AllowLonger(subscription="s", factor=2.0),
        "lifetime:p=2": LiveLonger(publisher="p", factor=2.0),
    }
    assert {text: parse_change(text) for text in written} == written
    assert [form.partition("=")[0].partition(":")[0] for form, _ in CHANGES_WRITTEN] == [
        text.partition("=")[0].partition(":")[0] for text in written
    ]
    with pytest.raises(ConfigurationError, match="write one of"):
        parse_change("strategy=")
