"""Traces of live brokers: Parquet files in the format of the trace contract, and what brokers have seen lately."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live.traces._merged import merged, write_merged

__all__ = ["merged", "write_merged"]

__getattr__, __dir__ = lazily(__name__)
