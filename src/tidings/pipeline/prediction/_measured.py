"""The profiles of a pipeline run on Spark: the tables that grow (`content`, `subscriptions`) are never collected.

A publisher's content is its own. Its kinds of events are the sets of subscriptions that its events matched; a set is
known by its hash, which also decides its slice.
"""

from os import PathLike
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tidings.errors import InputError
from tidings.model.distributions import DelayDistribution, Deterministic, Empirical
from tidings.pipeline._run_store import table_paths
from tidings.pipeline._storage import read_path
from tidings.prediction import PROFILE_TABLES, Knowledge
from tidings.prediction.parts import (
    SETTING_TABLES,
    SHARE_QUANTUM,
    brokers_of_topology,
    lifetime_distribution,
    outline_of_profiles,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["MeasuredContent"]

SLICES: Final = 64
_GROWING: Final = ("content", "subscriptions")


class MeasuredContent:
    """What `predict_on_spark` needs of profiles: see `_rows` for the tables."""

    def __init__(self, spark: "SparkSession", directory: str | PathLike[str]) -> None:
        from pyspark.sql import functions as fn

        places = table_paths(directory, spark)
        self._tables = {
            name: spark.read.parquet(read_path(places[name])) for name in (*PROFILE_TABLES, *SETTING_TABLES)
        }
        self._small = {name: table.toArrow() for name, table in self._tables.items() if name not in _GROWING}
        names = self._small["publishers"].column("publisher").to_pylist()
        self.content_of = list(range(len(names)))
        """By publisher, the number of its content."""
        numbers = spark.createDataFrame(
            pa.table({"publisher": names, "content": pa.array(self.content_of, pa.int32())})
        )
        brokers = brokers_of_topology(self._small["topology"])
        homes = spark.createDataFrame(
            pa.table({"broker": brokers, "home": pa.array(np.arange(len(brokers)), pa.int32())})
        )
        self._subscriptions = (
            self._tables["subscriptions"]
            .join(homes, on="broker", how="inner")
            .select(
                "subscription",
                "home",
                fn.coalesce(fn.col("max_delay_ns") / 1e9, fn.lit(float("inf"))).alias("max_delay_s"),
            )
        )
        content = self._tables["content"].join(fn.broadcast(numbers), on="publisher", how="inner")
        totals = content.groupBy("content").agg(fn.sum("events").alias("total"))
        self._kinds = (
            content.where("size(subscriptions) > 0")
            .withColumn("cell", fn.xxhash64(fn.col("subscriptions")))
            .groupBy("content", "cell")
            .agg(fn.sum("events").alias("events"), fn.any_value("subscriptions").alias("subscriptions"))
            .join(fn.broadcast(totals), on="content", how="inner")
            .select("content", "cell", _exact_share().alias("share"), "subscriptions")
            .persist()
        )
        self._require_known()

    def outline(self) -> Knowledge:
        """All that is known but for subscriptions and content."""
        return outline_of_profiles(self._small, self._lifetimes())

    def wanted(self) -> "DataFrame":
        from pyspark.sql import functions as fn

        shares = (
            self._kinds.select("content", "share", fn.explode("subscriptions").alias("subscription"))
            .groupBy("content", "subscription")
            .agg(fn.sum("share").alias("share"))
        )
        return self._subscriptions.join(shares, on="subscription", how="left").select(
            "content", "subscription", "home", "max_delay_s", fn.coalesce("share", fn.lit(0.0)).alias("share")
        )

    def asked(self) -> "DataFrame":
        from pyspark.sql import functions as fn

        each = self._kinds.select("content", "cell", "share", fn.explode("subscriptions").alias("subscription"))
        return (
            each.join(self._subscriptions.select("subscription", "home"), on="subscription", how="inner")
            .groupBy("content", "cell")
            .agg(fn.any_value("share").alias("share"), fn.collect_set("home").alias("homes"))
            .select("content", fn.pmod("cell", fn.lit(SLICES)).cast("int").alias("slice"), "cell", "share", "homes")
        )

    def release(self) -> None:
        """Let go of what was kept between the two passes."""
        self._kinds.unpersist()

    def _require_known(self) -> None:
        from pyspark.sql import functions as fn

        each = self._kinds.select(fn.explode("subscriptions").alias("subscription"))
        for row in each.join(self._subscriptions, on="subscription", how="left_anti").limit(1).collect():
            raise InputError(
                f"profiles: the content names subscription {row['subscription']!r}, "
                "and the setting has none of this name"
            )

    def _lifetimes(self) -> dict[str, DelayDistribution | None]:
        from pyspark.sql import functions as fn

        counted = self._tables["content"].groupBy("publisher", "lifetime_ns").agg(fn.sum("events").alias("events"))
        distributions = counted.groupBy("publisher").applyInArrow(
            _distribution_of_group, "publisher string, quantiles_s array<double>"
        )
        return {row["publisher"]: _distribution(row["quantiles_s"]) for row in distributions.collect()}


def _exact_share() -> "Column":
    """`exact_shares` of events out of total: sums are exact, so the order of adding does not matter."""
    from pyspark.sql import functions as fn

    quanta = fn.rint(fn.col("events") / fn.col("total") / SHARE_QUANTUM)
    return fn.greatest(quanta, fn.lit(1.0)) * SHARE_QUANTUM


def _distribution_of_group(group: pa.Table) -> pa.Table:
    """A publisher's lifetimes as quantiles: none if it has no lifetime, one if it is a constant."""
    counts = dict(zip(group.column("lifetime_ns").to_pylist(), group.column("events").to_pylist(), strict=True))
    distribution = lifetime_distribution(counts)
    quantiles: list[float] = []
    if isinstance(distribution, Deterministic):
        quantiles = [distribution.value]
    elif isinstance(distribution, Empirical):
        quantiles = list(distribution.quantiles)
    return pa.table(
        {"publisher": group.column("publisher")[:1], "quantiles_s": pa.array([quantiles], pa.list_(pa.float64()))}
    )


def _distribution(quantiles_s: list[float]) -> DelayDistribution | None:
    if not quantiles_s:
        return None
    return Deterministic(value=quantiles_s[0]) if len(quantiles_s) == 1 else Empirical(quantiles=tuple(quantiles_s))
