"""What a run has to do, after what the last one did."""

from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

from tidings.pipeline._manifest import FORMAT, Manifest, Workload, workload_of
from tidings.pipeline.ingest import TraceFile

FIRST = TraceFile(table="hops", path="t/hops/1.parquet", size_bytes=10, modified_ns=1)
SECOND = TraceFile(table="hops", path="t/hops/2.parquet", size_bytes=10, modified_ns=1)
OPTIONS = {"window_ns": "60"}


def planned(files: list[TraceFile], *, counted: list[TraceFile], **changes: Any) -> Workload:
    before = Manifest(format=changes.pop("format", FORMAT), files=counted, options=OPTIONS, setting="s", result={})
    given = {"options": OPTIONS, "setting": "s", **changes}
    return workload_of(before, files, **given)


def test_nothing_new() -> None:
    assert planned([FIRST], counted=[FIRST]).is_nothing


def test_new_files() -> None:
    plan = planned([FIRST, SECOND], counted=[FIRST])
    assert (plan.new, plan.old, plan.reason) == ([SECOND], [FIRST], None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"window_ns": "30"}}, "the option window_ns was 60 and is 30"),
        ({"setting": "other"}, "subscriptions or brokers have changed"),
        ({"format": FORMAT + 1}, "the last run was made by another version"),
    ],
)
def test_what_everything_depends_on(changes: dict[str, Any], reason: str) -> None:
    plan = planned([FIRST], counted=[FIRST], **changes)
    assert (plan.new, plan.old, plan.reason) == ([FIRST], (), reason)


def test_files_that_count_only_together() -> None:
    plan = planned([FIRST, SECOND], counted=[FIRST], is_whole=True)
    assert (plan.new, plan.old) == ([FIRST, SECOND], ())
    assert plan.reason is not None
    assert planned([FIRST], counted=[FIRST], is_whole=True).is_nothing


def test_a_changed_file() -> None:
    changed = msgspec.structs.replace(FIRST, size_bytes=11)
    plan = planned([changed], counted=[FIRST])
    assert plan.reason == "t/hops/1.parquet has changed since it was counted"


def test_a_file_that_can_be_read_now_is_new() -> None:
    torn = msgspec.structs.replace(FIRST, size_bytes=5, fault="torn")
    plan = planned([FIRST, SECOND], counted=[torn, SECOND])
    assert (plan.new, plan.old, plan.reason) == ([FIRST], [SECOND], None)


def test_a_file_that_is_gone() -> None:
    plan = planned([SECOND], counted=[FIRST, SECOND])
    assert (plan.new, plan.reason) == ([SECOND], "t/hops/1.parquet was counted and is gone (1 such files)")
    torn = msgspec.structs.replace(FIRST, fault="torn")
    small = msgspec.structs.replace(FIRST, table="topology", path="t/topology/1.parquet")
    assert planned([SECOND], counted=[torn, small, SECOND]).is_nothing
