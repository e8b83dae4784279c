"""The tables of a run from DataFrames of a caller's session: nothing is written, and no setting is changed.

The same rules, kernels and merges as in a run (_job.py). What a run writes between its stages is computed again here
for each table that is used: DataFrames are lazy, and files would be left behind.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tidings.errors import ConfigurationError
from tidings.pipeline._held import frame_of
from tidings.pipeline._merges import merged_tables
from tidings.pipeline._partials import FAULTY, RECEIVED
from tidings.pipeline._small_tables import read_setting
from tidings.pipeline._unit_kernels import arrivals_in_slices, as_partials, of_kind, partials_of_source
from tidings.pipeline.gathering import Source
from tidings.pipeline.ingest import frame_rows, no_rows
from tidings.pipeline.rows import Counting

__all__ = ["frame_tables"]


def frame_tables(
    frames: Mapping[str, DataFrame | None],
    *,
    window_ns: int,
    topic: str | None,
    warmup_ns: int,
    clock_tolerance_ns: int,
) -> dict[str, DataFrame]:
    """Every table of a run by name, from the tables of a trace by name; those that are None have no rows."""
    if window_ns < 1 or clock_tolerance_ns < 0:
        raise ConfigurationError(
            f"window_ns is {window_ns} and clock_tolerance_ns {clock_tolerance_ns}: give a window of 1 ns or more, and "
            "a tolerance that is not negative"
        )
    spark = next(frame.sparkSession for frame in frames.values() if frame is not None)

    def read(table: str) -> DataFrame:
        rows = frames.get(table)
        return no_rows(spark, table).drop("_host") if rows is None else frame_rows(table, rows)

    setting = read_setting(spark, read, lambda _, rows: frame_of(spark, rows), clock_tolerance_ns=clock_tolerance_ns)
    source = Source(read=read, setting=setting, topic=topic, clock_tolerance_ns=clock_tolerance_ns)
    source.check_topic()
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    counting = Counting(counted_from_ns=warmup_ns, clock_tolerance_ns=clock_tolerance_ns)
    partials = partials_of_source(spark, source, counting, window_ns=window_ns, partitions=partitions)
    found = as_partials("quarantine", source.found_again(of_kind(FAULTY, partials)))
    arrivals = arrivals_in_slices(of_kind(RECEIVED, partials), partitions=partitions)
    return merged_tables(partials.unionAll(found), arrivals)
