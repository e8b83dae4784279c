"""What a run of the pipeline found out, as one document."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import TidingsError

__all__ = ["MAX_BAD", "PipelineResult", "SubscriberScore", "TooManyBadRows", "check_bad", "count_bad", "make_result"]

MAX_BAD: Final = 0.01
"""The share of bad rows, or of files that cannot even be counted, that a run may have by default."""
REASONS_SHOWN: Final = 3


class TooManyBadRows(TidingsError):  # noqa: N818 - named as it is raised
    """Raised when more rows are bad than the caller allows; the tables are complete even so, and `result` is theirs."""

    def __init__(self, message: str, result: "PipelineResult") -> None:
        super().__init__(message)
        self.result = result


class SubscriberScore(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that one subscription matched: matched = on_time + late + lost.

    The low and high ends are those of a 95 % interval in which events that are late together count for less than
    independent ones: for `effective_events` of them. Where these are too few the interval `is_rough`. Shares are None
    where nothing matched. Where clocks were compared, `on_time` is between `on_time_least` and `on_time_most`, whatever
    the clocks were within their errors, and the interval is wider by that.
    """

    matched: int
    on_time: int
    late: int
    lost: int
    on_time_least: int
    on_time_most: int
    on_time_reliability: float | None
    reliability_low: float | None
    reliability_high: float | None
    effective_events: float | None
    is_rough: bool
    earnings: float
    duplicates: int
    fifo_violations: int


class PipelineResult(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a run.

    `rows` and `quarantined` count rows by table and by reason (a row with two reasons counts for both), `bad` all that
    are bad, those of unreadable files included. `unread_files` of them do not even say how many rows they have; each
    counts for one. `new_files` of `files` were read for the first time; `recomputed` says why everything was computed
    again, None if it was not. `tables` are the directories of the tables. `clocks` are those that were corrected, by
    host.
    """

    subscribers: dict[str, SubscriberScore]
    matched: int
    on_time: int
    late: int
    lost: int
    delivery_rate: float | None
    earnings: float
    rows: dict[str, int]
    bad: int
    quarantined: dict[str, int]
    files: int
    unread_files: int
    new_files: int
    recomputed: str | None
    tables: dict[str, str]
    clocks: dict[str, dict[str, float]] = {}


def make_result(
    scores: pa.Table,
    rows: Mapping[str, int],
    bad: int,
    quarantined: Mapping[str, int],
    *,
    places: dict[str, str],
    files: int,
    unread_files: int,
    new_files: int,
    recomputed: str | None,
    clocks: dict[str, dict[str, float]] | None = None,
) -> PipelineResult:
    """The document of a table of `subscriber_scores`, rows by table, and bad rows by reason."""
    names = SubscriberScore.__struct_fields__
    found: list[dict[str, Any]] = scores.select(["subscription", *names]).sort_by("subscription").to_pylist()
    subscribers = {row["subscription"]: SubscriberScore(**{name: row[name] for name in names}) for row in found}
    totals = {name: sum(getattr(score, name) for score in subscribers.values()) for name in names[:4]}
    return PipelineResult(
        subscribers=subscribers,
        **totals,
        delivery_rate=totals["on_time"] / totals["matched"] if totals["matched"] else None,
        earnings=sum(score.earnings for score in subscribers.values()),
        rows=dict(sorted(rows.items())),
        bad=bad,
        quarantined=dict(sorted(quarantined.items())),
        files=files,
        unread_files=unread_files,
        new_files=new_files,
        recomputed=recomputed,
        tables=dict(places),
        clocks=clocks or {},
    )


def count_bad(quarantine: Iterable[pa.RecordBatch]) -> tuple[int, Counter[str]]:
    """How many rows are bad, and how many for each reason, one batch at a time."""
    bad, by_reason = 0, Counter[str]()
    for batch in quarantine:
        bad += pc.sum(batch.column("rows")).as_py() or 0
        reasons = batch.column("reasons")
        each = pa.table(
            {
                "reason": pc.list_flatten(reasons),
                "rows": batch.column("rows").take(pc.list_parent_indices(reasons)),
            }
        )
        for row in each.group_by("reason").aggregate([("rows", "sum")]).to_pylist():
            by_reason[row["reason"]] += row["rows_sum"]
    return bad, by_reason


def check_bad(result: PipelineResult, max_bad: float) -> None:
    """TooManyBadRows if the share of bad rows, or of files that cannot even be counted, is above what is allowed."""
    total = sum(result.rows.values())
    is_many = result.bad > max_bad * total
    if not is_many and result.unread_files <= max_bad * result.files:
        return
    found = (
        f"{result.bad:,} of {total:,} rows are bad ({result.bad / total * 100:.4g} %)"
        if is_many
        else f"{result.unread_files:,} of {result.files:,} files cannot be read, and their rows not even be counted"
    )
    worst = sorted(result.quarantined.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN]
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in worst)
    raise TooManyBadRows(
        f"{found}, more than {max_bad * 100:.4g} %: {reasons}; see {result.tables['quarantine']}, and mend the trace "
        "or allow more with --max-bad; the tables hold what could be counted",
        result,
    )
