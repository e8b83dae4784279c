"""The tables of a run from DataFrames of a caller's session: nothing is written, and no setting is changed.

The same rules, kernels and merges as in a run (_job.py). What a run writes between its stages is computed again here
for each table that is used: DataFrames are lazy, and files would be left behind.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tidings.errors import ConfigurationError
from tidings.pipeline._partials import FAULTY, RECEIVED
from tidings.pipeline._small_tables import read_setting
from tidings.pipeline._unit_kernels import as_partials, of_kind, partials_of_source
from tidings.pipeline.gathering import Source
from tidings.pipeline.ingest import frame_rows, no_rows
from tidings.pipeline.measures import arrivals_in_slices
from tidings.pipeline.measures._merges import ARRIVALS, MEASURES
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

    setting = read_setting(spark, read, lambda _, rows: rows, clock_tolerance_ns=clock_tolerance_ns)
    source = Source(read=read, setting=setting, topic=topic, clock_tolerance_ns=clock_tolerance_ns)
    source.check_topic()
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    counting = Counting(counted_from_ns=warmup_ns, clock_tolerance_ns=clock_tolerance_ns)
    partials = partials_of_source(spark, source, counting, window_ns=window_ns, partitions=partitions)
    found = as_partials("quarantine", source.found_again(of_kind(FAULTY, partials)))

    def of(kind: str) -> DataFrame:
        if kind == ARRIVALS:
            return arrivals_in_slices(of_kind(RECEIVED, partials), partitions=partitions)
        return of_kind(kind, partials.unionAll(found) if kind == "quarantine" else partials)

    tables: dict[str, DataFrame] = {}
    for measure in MEASURES:
        rows = of(measure.name) if measure.prepare is None else measure.prepare(of(measure.name))
        tables |= {name: merge(rows) for name, merge in measure.tables.items()}
    return tables
