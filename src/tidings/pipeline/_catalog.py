"""The tables of a run in a catalog: a star schema with views for BI, beside the files of the run.

Dimensions are `subscriptions`, `topology` and `transitions`; facts are the other tables, by subscription, publisher,
broker, link or window. Each table is replaced as a whole by Spark's own writer, in any catalog and format that the
session knows (`parquet` needs no jar; `delta` and `iceberg` need theirs). The commit in `--out` stays the answer: to
read all tables of one run at the same moment, read that.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidings.errors import ConfigurationError
from tidings.pipeline._options import Progress, silence
from tidings.pipeline._session import cause_in_jvm
from tidings.pipeline._storage import read_path

__all__ = ["VIEWS", "check_schema_name", "publish_tables"]

_PART: Final = re.compile(r"[A-Za-z0-9_]+")
_NO_VIEWS: Final = re.compile("MISSING_CATALOG_ABILITY|view is not supported", re.IGNORECASE)
"""What Spark says where a catalog knows no views, and what Iceberg's says."""

VIEWS: Final = {
    "on_time_by_subscription": """
        SELECT subscription, c.subscriber, s.broker, s.filter, s.max_delay_ns / 1e9 AS max_delay_s, c.matched,
               c.on_time, c.late, c.lost, c.on_time_reliability AS on_time_share, c.reliability_low AS share_low,
               c.reliability_high AS share_high, c.delay_p50_ns / 1e6 AS delay_p50_ms,
               c.delay_p99_ns / 1e6 AS delay_p99_ms
        FROM {schema}.subscriber_scores c LEFT JOIN {schema}.subscriptions s USING (subscription)""",
    "on_time_by_window": """
        SELECT timestamp_micros(window_ns div 1000) AS window_start, matched, on_time, late, lost,
               on_time_reliability AS on_time_share, date(timestamp_micros(window_ns div 1000)) AS day
        FROM {schema}.window_scores""",
    "slow_links": """
        SELECT source, target, copies, loss, wait_mean_s * 1e3 AS wait_mean_ms, delay_mean_s * 1e3 AS delay_mean_ms
        FROM {schema}.links WHERE source IS NOT NULL""",
}
"""Views by name: units that people read, and the columns of the dimensions beside the figures."""


def check_schema_name(schema: str) -> None:
    """Raise a ConfigurationError unless this is a schema, or a catalog and a schema."""
    parts = schema.split(".")
    if not 1 <= len(parts) <= 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigurationError(f"--catalog {schema}: write SCHEMA or CATALOG.SCHEMA, of letters, digits and _")


def publish_tables(
    spark: SparkSession, schema: str, tables: Mapping[str, str], *, table_format: str, report: Progress = silence
) -> list[str]:
    """Replace the tables of a schema by those of a run (places by name), and its views; the names are returned.

    A catalog that keeps no views gets the tables alone, and `report` says so.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    check_schema_name(schema)
    published = []
    try:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for name, place in tables.items():
            rows = spark.read.parquet(read_path(place))
            rows.write.format(table_format).mode("overwrite").option("overwriteSchema", "true").saveAsTable(
                f"{schema}.{name}"
            )
            published.append(f"{schema}.{name}")
        for name, query in VIEWS.items():
            spark.sql(f"CREATE OR REPLACE VIEW {schema}.{name} AS {query.format(schema=schema)}")
            published.append(f"{schema}.{name}")
    except (PySparkException, Py4JError) as error:
        cause = cause_in_jvm(error)
        if len(published) == len(tables) and _NO_VIEWS.search(str(error)):
            report(f"{schema} has no views, which its catalog does not keep ({cause})")
            return published
        raise ConfigurationError(
            f"--catalog {schema}: the tables cannot be written as {table_format}: {cause}; the run itself is complete. "
            "Set the catalog up with --conf (docs/guide/spark-cluster.md), choose another --table-format, or the "
            "release of it that was made for this Spark"
        ) from error
    return published
