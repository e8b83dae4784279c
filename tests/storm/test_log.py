"""A log lets a run of many storms go on where it ended, and holds what every one of them came to."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.errors import ConfigurationError, InputError
from tidings.protocol import Client
from tidings.storm import StormResult, StormSettings, _many, run_storms

TINY = StormSettings(brokers=2, clients=4, duration_s=30.0, rate_per_s=1.0)


def test_what_is_logged_is_not_run_again_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "storms.jsonl"
    first = run_storms(TINY, range(2), log=log)
    assert first == run_storms(TINY, range(2))
    shares: list[float] = []
    ran: list[int] = []
    timed = _many._timed

    def counted(settings: StormSettings, seed: int) -> tuple[StormResult, float]:
        ran.append(seed)
        return timed(settings, seed)

    monkeypatch.setattr(_many, "_timed", counted)
    report = run_storms(TINY, range(3), log=log, progress=shares.append)
    assert ran == [2]
    assert shares == [2 / 3, 1.0]
    assert report == run_storms(TINY, range(3))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 1, 2]
    assert sum(line["events"] for line in lines) == report.events
    keys = {"violations", "deliveries", "faults", "moves", "converged_s", "cpu_s"}
    assert all(line.keys() >= keys and line["cpu_s"] > 0.0 for line in lines)


def test_a_line_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    log = tmp_path / "storms.jsonl"
    run_storms(TINY, range(2), log=log)
    whole = log.read_bytes()
    log.write_bytes(whole[:-40])
    run_storms(TINY, range(2), log=log)
    before, after = ([json.loads(line)["digest"] for line in text.splitlines()] for text in (whole, log.read_bytes()))
    assert before == after


def test_logs_of_something_else_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "storms.jsonl"
    run_storms(TINY, [0], log=log)
    other = StormSettings(brokers=2, clients=5, duration_s=30.0, rate_per_s=1.0)
    with pytest.raises(ConfigurationError, match="line 1: seed 0 was run with other settings"):
        run_storms(other, [0], log=log)
    log.write_text("no log\n")
    with pytest.raises(InputError, match="line 1 is not a line of a log"):
        run_storms(TINY, [0], log=log)
    with pytest.raises(InputError, match="cannot be used as a log"):
        run_storms(TINY, [0], log=tmp_path / "nowhere" / "storms.jsonl")
    with pytest.raises(ConfigurationError, match="leave out one"):
        run_storms(TINY, [0], log=log, out=tmp_path / "trace")


def test_whoever_interrupts_gets_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = _many._each

    def interrupted(*arguments: object) -> Iterator[object]:
        yield next(each(*arguments))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(_many, "_each", interrupted)
    report = run_storms(TINY, range(5), log=tmp_path / "storms.jsonl")
    assert report.seeds == 1
    assert len((tmp_path / "storms.jsonl").read_text().splitlines()) == 1


def test_a_storm_that_raises_is_a_breach_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(_: Client, broker: str, now_ns: int) -> None:
        raise KeyError(f"{broker} at {now_ns}")

    monkeypatch.setattr(Client, "move", raises)
    report = run_storms(TINY, range(3))
    assert report.seeds == 3
    assert {check for _, check, _ in report.violations} == {"no-exception"}
    assert "KeyError" in report.violations[0][2]
    assert "in raises, test_log.py line" in report.violations[0][2]
