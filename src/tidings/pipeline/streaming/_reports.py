"""The reports of a watch while it runs: values with a `kind`, so that each is one line of JSON as it stands."""

import msgspec

from tidings.pipeline._result import PipelineResult

__all__ = ["End", "Report", "Stage", "Update", "WindowScore", "WindowTotal"]


class Stage(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="stage"):
    """What is being done, or waited for."""

    text: str
    is_waiting: bool = False


class WindowScore(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="window"):
    """What became of the events that departed in a window and that one subscription matched.

    `final`: the watermark has reached the window's end. A final score that rows change which come later still is given
    again, with the next `revision` (0 is the first); so a window, a subscription and a revision name one report.
    """

    window_ns: int
    window_end_ns: int
    subscription: str
    subscriber: str
    matched: int
    on_time: int
    late: int
    lost: int
    duplicates: int
    final: bool
    revised: bool
    revision: int


class WindowTotal(msgspec.Struct, frozen=True, kw_only=True):
    """A window over all subscriptions."""

    window_ns: int
    matched: int
    on_time: int
    late: int
    lost: int
    final: bool


class Update(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="update"):
    """The answer after a batch of new files; `batch` is None for what an earlier watch had counted.

    `seconds` is what the batch took and `rows_read` the rows that it added; `windows` are the latest ones.
    """

    batch: int | None
    seconds: float
    rows_read: int
    watermark_ns: int | None
    windows: tuple[WindowTotal, ...]
    result: PipelineResult

    @property
    def rows_per_s(self) -> float:
        return self.rows_read / self.seconds if self.seconds > 0 else 0.0


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """The last answer, and why the watch ended: `stopped`, `idle` or `once`. No result: nothing was ever counted."""

    reason: str
    batches: int
    result: PipelineResult | None


Report = Stage | WindowScore | Update | End
