"""What a run of the pipeline found out, as one document."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidings.errors import TidingsError

__all__ = ["PipelineResult", "SubscriberScore", "TooManyBadRows", "check_bad", "make_result"]

REASONS_SHOWN = 3


class TooManyBadRows(TidingsError):  # noqa: N818 - said as it is raised
    """Raised when more rows are in the quarantine than the caller allows; the answer is complete even so."""


class SubscriberScore(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that one subscription matched: matched = on_time + late + lost.

    The low and high ends are those of Wilson's interval at 95 %; shares are None where nothing matched.
    """

    matched: int
    on_time: int
    late: int
    lost: int
    on_time_reliability: float | None
    reliability_low: float | None
    reliability_high: float | None
    earnings: float
    duplicates: int
    fifo_violations: int


class PipelineResult(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a run.

    `rows` and `quarantined` count rows by table and by reason (a row with two reasons counts for both), `bad` the rows
    in the quarantine. `new_files` of `files` were read for the first time; `recomputed` says why everything was
    computed again, None if it was not. `tables` are the directories of the tables.
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
    new_files: int
    recomputed: str | None
    tables: dict[str, str]


def make_result(
    places: Mapping[str, str], *, shown: dict[str, Path], files: int, new_files: int, recomputed: str | None
) -> PipelineResult:
    """The document of the tables in these places; the driver holds one row per subscription."""
    names = SubscriberScore.__struct_fields__
    scores = ds.dataset(places["subscriber_scores"], format="parquet").to_table(["subscription", *names])
    rows: list[dict[str, Any]] = scores.sort_by("subscription").to_pylist()
    subscribers = {row["subscription"]: SubscriberScore(**{name: row[name] for name in names}) for row in rows}
    totals = {name: sum(getattr(score, name) for score in subscribers.values()) for name in names[:4]}
    counted = ds.dataset(places["rows"], format="parquet").to_table().to_pylist()
    bad, by_reason = _by_reason(places["quarantine"])
    return PipelineResult(
        subscribers=subscribers,
        **totals,
        delivery_rate=totals["on_time"] / totals["matched"] if totals["matched"] else None,
        earnings=sum(score.earnings for score in subscribers.values()),
        rows=dict(sorted((row["table"], int(row["rows"])) for row in counted)),
        bad=bad,
        quarantined=dict(sorted(by_reason.items())),
        files=files,
        new_files=new_files,
        recomputed=recomputed,
        tables={name: str(path) for name, path in shown.items()},
    )


def _by_reason(place: str) -> tuple[int, Counter[str]]:
    """How many bad rows there are, and how many for each reason, one batch at a time."""
    bad, by_reason = 0, Counter[str]()
    for batch in ds.dataset(place, format="parquet").to_batches(columns=["reasons"]):
        bad += batch.num_rows
        for each in pc.value_counts(pc.list_flatten(batch.column("reasons"))).to_pylist():
            by_reason[each["values"]] += each["counts"]
    return bad, by_reason


def check_bad(result: PipelineResult, max_bad: float | None) -> None:
    """TooManyBadRows if the share of bad rows is above what is allowed."""
    total = sum(result.rows.values())
    if max_bad is None or result.bad <= max_bad * total:
        return
    worst = sorted(result.quarantined.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN]
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in worst)
    raise TooManyBadRows(
        f"{result.bad:,} of {total:,} rows are bad ({result.bad / total:.3%}), more than {max_bad:.3%}: {reasons}; "
        f"they are in {result.tables['quarantine']}; mend the trace, or allow more with --max-bad"
    )
