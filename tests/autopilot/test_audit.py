"""The audit log: what is in it, what follows from it, and files that are damaged."""

from pathlib import Path

import pytest
from tests.autopilot.world import move

from tidings.autopilot import AuditLog, Measure, Memory, Record, read_records
from tidings.autopilot._audit import BAN_S, STAY_S, Forecast
from tidings.errors import InputError
from tidings.planning import UseStrategy


def measured(shortfall: float) -> Measure:
    return Measure(on_time_share=0.9, shortfall=shortfall, error=0.01, subscriptions=4, below=2, is_short=True)


def ordered(at_s: float) -> Record:
    return Record(
        at_s=at_s,
        kind="applying",
        words="move",
        change=move("b"),
        inverse=move("a"),
        measured=measured(2.0),
        predicted=Forecast(now=2.0, then=0.0, gain=2.0),
    )


def verdict(kind: str, at_s: float, after: float) -> Record:
    return Record(
        at_s=at_s,
        kind=kind,  # type: ignore[arg-type]
        words=kind,
        changes=(move("b"),),
        measured=measured(2.0),
        predicted=Forecast(now=2.0, then=0.0, gain=2.0),
        after=measured(after),
    )


def test_what_was_written_is_read_and_a_last_line_that_was_cut_off_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written = [
        ordered(1.0),
        Record(at_s=2.0, kind="applied", words="move", change=move("b")),
        verdict("kept", 9.0, 0.5),
    ]
    log = AuditLog(path)
    for record in written:
        log.write(record)
    log.close()
    with path.open("ab") as file:
        file.write(b'{"at_s": 3.0, "ki')
    assert read_records(path) == written
    again = AuditLog(path)
    assert again.records == written
    again.write(ordered(10.0))
    again.close()
    assert read_records(path) == [*written, ordered(10.0)]


def test_a_file_that_is_no_log_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n', "utf-8")
    with pytest.raises(InputError, match=r"line 1 is no record of an autopilot"):
        AuditLog(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be written"):
        AuditLog(tmp_path / "no" / "log.jsonl")


def test_a_slot_is_left_alone_for_longer_each_time_that_a_change_did_not_help() -> None:
    memory, at_s = Memory(), 1_000.0
    for times in (1, 2, 4):
        memory.note(ordered(at_s))
        memory.note(Record(at_s=at_s, kind="rolled back", words="", change=move("b")))
        assert memory.left_alone(at_s + times * BAN_S - 1.0) == {("publisher", "p")}
        assert not memory.left_alone(at_s + times * BAN_S)
        at_s += times * BAN_S
    memory.note(ordered(at_s))
    memory.note(verdict("kept", at_s, 0.0))
    assert memory.left_alone(at_s + STAY_S - 1.0) == {("publisher", "p")}
    assert not memory.left_alone(at_s + STAY_S)
    assert not memory.pending


def test_the_worth_of_predictions_is_by_kind_and_from_clear_verdicts_alone() -> None:
    memory = Memory([verdict("kept", 1.0, 1.0), verdict("rolling back", 2.0, 3.0)])
    assert memory.worth("move") == pytest.approx((2.0 + 0.5 + 0.0) / 4.0)
    assert (memory.worth("scheduling"), memory.judged("move")) == (1.0, 2)
    memory.note(Record(at_s=3.0, kind="kept", words="", changes=(move("b"),), is_clear=False))
    assert memory.judged("move") == 2


def test_pending_changes_are_those_without_a_verdict() -> None:
    other = UseStrategy(strategy="lookahead")
    memory = Memory([ordered(1.0), Record(at_s=1.5, kind="applied", words="", change=move("b"))])
    assert [(each.change, each.inverse, each.is_applied) for each in memory.pending] == [(move("b"), move("a"), True)]
    memory.note(Record(at_s=2.0, kind="not in effect", words="", change=other))
    assert len(memory.pending) == 1
    memory.note(Record(at_s=2.0, kind="not in effect", words="", change=move("b")))
    assert not memory.pending
    assert memory.ordered_s == [1.0]
