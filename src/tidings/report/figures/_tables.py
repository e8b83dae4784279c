"""The tables of a pipeline run that a report needs, read without Spark; sketches stay on the disk.

What grows with subscriptions is read as columns; `content`, which may be as long as the trace, only up to a bound
(beyond it a report has no prediction, and says so).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from tidings.errors import InputError
from tidings.model.tables import table_place
from tidings.pipeline import count_bad

__all__ = ["CONTENT_ROWS_MAX", "Tables", "read_tables"]

CONTENT_ROWS_MAX: Final = 2_000_000

Row = Mapping[str, Any]

_WHOLE: Final = ("brokers", "links", "publishers", "components", "window_scores", "rows")
_SETTING: Final = ("subscriptions", "topology", "transitions")
_SCORES: Final = (
    "subscription",
    "matched",
    "on_time",
    "late",
    "lost",
    "on_time_reliability",
    "reliability_low",
    "reliability_high",
    "effective_events",
    "fifo_violations",
    "delay_p50_ns",
    "delay_p99_ns",
)
_PAIRS: Final = (
    "publisher",
    "subscription",
    "matched",
    "arrived",
    "delay_count",
    "delay_mean_s",
    "delay_min_ns",
    "delay_max_ns",
    "delay_quantiles_ns",
    "two_laplace_scale_s",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """By name as in docs/reference/pipeline.md and profiles.md; `content` is None if it is too long to be read here."""

    scores: pa.Table
    pairs: pa.Table
    content: pa.Table | None
    content_rows: int
    whole: Mapping[str, pa.Table]
    bad: int
    quarantined: Mapping[str, int]

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.whole[name].to_pylist()
        return found

    @property
    def profiles(self) -> dict[str, pa.Table] | None:
        """As `tidings.prediction.from_profiles` takes them."""
        return None if self.content is None else {**self.whole, "content": self.content}


def read_tables(directory: Path) -> Tables:
    """InputError if it is not the directory of a complete pipeline run."""
    if not directory.is_dir():
        what = "is a file, not a directory" if directory.exists() else "there is no such directory"
        raise InputError(f"{directory}: {what}; `tidings pipeline run TRACE --out DIR` makes one")
    whole = {name: _read(directory, name) for name in _WHOLE}
    whole |= {name: _read(directory, name) for name in _SETTING}
    content = _dataset(directory, "content")
    rows = content.count_rows()
    bad, by_reason = count_bad(
        _dataset(directory, "quarantine", ("reasons", "rows")).to_batches(columns=["reasons", "rows"])
    )
    return Tables(
        scores=_read(directory, "subscriber_scores", _SCORES),
        pairs=_read(directory, "pairs", _PAIRS),
        content=content.to_table() if rows <= CONTENT_ROWS_MAX else None,
        content_rows=rows,
        whole=whole,
        bad=bad,
        quarantined=dict(sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))),
    )


def _dataset(directory: Path, name: str, columns: tuple[str, ...] | None = None) -> ds.Dataset:
    found = ds.dataset(table_place(directory, name), format="parquet")
    missing = [column for column in columns or () if column not in found.schema.names]
    if missing:
        raise InputError(
            f"{directory}: table {name!r} has no column {missing[0]!r}, it was made by another version; "
            "run the pipeline again with --from-scratch"
        )
    return found


def _read(directory: Path, name: str, columns: tuple[str, ...] | None = None) -> pa.Table:
    found = _dataset(directory, name, columns)
    wanted = [column for column in found.schema.names if not column.endswith("_sketch")]
    return found.to_table(list(columns) if columns else wanted)
