"""How bad rows are counted, and when they are too many."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tidings.errors import ConfigurationError
from tidings.pipeline._result import MAX_BAD, PipelineResult, TooManyBadRows, check_bad, count_bad

CLEAN = PipelineResult(
    subscribers={},
    matched=0,
    on_time=0,
    late=0,
    lost=0,
    delivery_rate=None,
    earnings=0.0,
    rows={"publications": 600, "deliveries": 400},
    bad=0,
    quarantined={},
    files=20,
    unread_files=0,
    new_files=20,
    recomputed=None,
    tables={"quarantine": "out/quarantine"},
)


def spoilt(bad: int, *, unread_files: int = 0, **reasons: int) -> PipelineResult:
    quarantined = {name.replace("_", "-"): count for name, count in reasons.items()}
    return msgspec.structs.replace(CLEAN, bad=bad, unread_files=unread_files, quarantined=quarantined)


def test_one_in_a_hundred_rows_may_be_bad_unless_told_otherwise() -> None:
    check_bad(CLEAN, MAX_BAD)
    check_bad(spoilt(10, duplicate=10), MAX_BAD)
    half = spoilt(500, duplicate=300, bad_value=150, wrong_type=49, malformed=1)
    with pytest.raises(TooManyBadRows) as raised:
        check_bad(half, MAX_BAD)
    message = str(raised.value)
    assert (
        "500 of 1,000 rows are bad (50 %), more than 1 %: duplicate (300), bad-value (150), wrong-type (49)" in message
    )
    assert "see out/quarantine" in message
    assert "--max-bad" in message
    assert raised.value.exit_code == 1
    assert raised.value.result is half
    check_bad(half, 0.5)
    with pytest.raises(TooManyBadRows):
        check_bad(spoilt(1, duplicate=1), 0.0)


def test_a_file_whose_rows_nobody_can_count_counts_as_a_file() -> None:
    """As one row of a thousand it would pass, whatever it had held."""
    torn = spoilt(1, unread_files=1, unreadable_file=1)
    with pytest.raises(TooManyBadRows, match=r"1 of 20 files cannot be read, .* more than 1 %: unreadable-file \(1\)"):
        check_bad(torn, MAX_BAD)
    check_bad(torn, 0.05)


def test_an_unreadable_file_counts_with_its_rows(tmp_path: Path) -> None:
    rows = [
        {"reasons": ["duplicate"], "rows": 1},
        {"reasons": ["bad-value", "negative-delay"], "rows": 1},
        {"reasons": ["unreadable-file"], "rows": 70},
        {"reasons": ["unreadable-file"], "rows": 0},
        {"reasons": ["duplicate"], "rows": 1},
    ]
    pq.write_table(pa.Table.from_pylist(rows[:3]), tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows[3:]), tmp_path / "b.parquet")
    bad, by_reason = count_bad(ds.dataset(tmp_path, format="parquet").to_batches())
    assert bad == 73
    assert by_reason == {"duplicate": 2, "bad-value": 1, "negative-delay": 1, "unreadable-file": 70}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_what_is_no_share(share: float) -> None:
    pipeline = pytest.importorskip("tidings.pipeline._job")
    with pytest.raises(ConfigurationError, match="must be a share from 0 to 1"):
        pipeline.PipelineOptions(max_bad=share)
