"""A prediction on Spark: the same answer as `tidings.prediction.predict`, with subscriptions and content in pieces.

    per content: what it matches             -> masses of filter unions, by tree and broker
    the driver: loads, waits and delay distributions  -> a plan that fits into a task
    per tree: the chance to be on time       -> rates that match and that are on time, by subscription and tree
    per subscription: the sum over its trees -> R'

The driver holds what the number of brokers, links and publishers decides, and, from a scenario, the scenario. Only the
Spark Connect API is used, so a prediction runs on this machine, on a cluster and through `sc://` alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidings.errors import InputError
from tidings.model.scenario import Network
from tidings.pipeline._places import require_writable, spark_place
from tidings.pipeline.prediction._measured import MeasuredContent
from tidings.pipeline.prediction._rows import SUBSCRIBERS
from tidings.pipeline.prediction._scenario import ScenarioContent
from tidings.pipeline.prediction._trees import SettledNetwork, add_masses, as_subscribers, with_chances
from tidings.prediction import Knowledge, Model, Prediction
from tidings.prediction.parts import FloatArray, Layout, layout_of, settle, spread_latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkPrediction", "predict_on_spark"]

SUBSCRIBERS_TABLE = "subscribers"


@dataclass(frozen=True, kw_only=True, eq=False)
class SparkPrediction:
    """`network` says all about brokers and links and has no subscriptions; those are the rows of `subscribers`.

    What Spark keeps for `subscribers` goes with `release`; a prediction that was written keeps nothing.
    """

    network: Prediction
    subscribers: "DataFrame"
    release: Callable[[], None]


def predict_on_spark(
    spark: "SparkSession",
    source: Network | str | PathLike[str],
    *,
    model: Model = "ours",
    alpha: float = 1.0,
    drops_expired: bool | None = None,
    out: str | PathLike[str] | None = None,
    progress: Callable[[float], None] | None = None,
) -> SparkPrediction:
    """Predict a scenario's network, or the profiles in the directory of a pipeline run.

    `alpha` blurs the content of a scenario; `drops_expired` overrides what the source says. With `out` the table
    `subscribers` is written to that directory as Parquet, and read from there.
    """
    place = None if out is None else _free_place(spark, out)
    advance = progress or (lambda _: None)
    content: ScenarioContent | MeasuredContent
    if isinstance(source, Network):
        content = ScenarioContent(spark, source, alpha=alpha)
    elif alpha != 1.0:
        raise InputError("alpha needs a scenario: profiles are measured as they are; give the scenario's network")
    else:
        content = MeasuredContent(spark, source)
    try:
        outline = content.outline()
        if drops_expired is not None:
            outline = replace(outline, drops_expired=drops_expired)
        advance(0.1)
        mass = add_masses(content.asked(), outline, content.content_of)
        advance(0.6)
        layout = layout_of(outline, mass)
        wanted = _by_publisher(spark, content.wanted(), content.content_of)
        latest_s = _latest(wanted, layout) if outline.drops_expired else None
        plan = _settled(outline, mass, layout, latest_s, model)
        advance(0.7)
        packed = plan.packed()
        subscribers = as_subscribers(with_chances(wanted, packed), packed)
        if place is not None:
            subscribers.sortWithinPartitions("subscription").write.mode("overwrite").parquet(place)
            subscribers = spark.read.schema(SUBSCRIBERS).parquet(place)
            content.release()
        advance(1.0)
    except BaseException:
        content.release()
        raise
    return SparkPrediction(network=plan.prediction(), subscribers=subscribers, release=content.release)


def _free_place(spark: "SparkSession", out: str | PathLike[str]) -> str:
    place = spark_place(out)
    require_writable(spark, place)
    directory = Path(place.removeprefix("file:"))
    if directory.is_file():
        raise InputError(f"{directory} is a file; give a directory for the prediction")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / SUBSCRIBERS_TABLE).is_dir():
        raise InputError(f"{directory} already holds something that is not a prediction; give another directory")
    return f"{place}/{SUBSCRIBERS_TABLE}"


def _by_publisher(spark: "SparkSession", wanted: "DataFrame", content_of: list[int]) -> "DataFrame":
    """A row for each publisher of the content; subscriptions that nothing matches keep theirs, without a publisher."""
    import pyarrow as pa
    from pyspark.sql import functions as fn

    numbers = pa.table(
        {"content": pa.array(content_of, pa.int32()), "publisher": pa.array(np.arange(len(content_of)), pa.int32())}
    )
    publishers = (
        spark.createDataFrame(numbers)
        if len(content_of)
        else spark.range(0).selectExpr("CAST(id AS int) AS content", "CAST(id AS int) AS publisher")
    )
    return wanted.join(fn.broadcast(publishers), on="content", how="left").select(
        "publisher", "subscription", "home", "max_delay_s", "share"
    )


def _latest(wanted: "DataFrame", layout: Layout) -> FloatArray:
    from pyspark.sql import functions as fn

    latest_s = np.zeros(layout.mass.shape)
    found = wanted.where("publisher IS NOT NULL AND share > 0").groupBy("publisher", "home")
    for row in found.agg(fn.max("max_delay_s").alias("latest_s")).toLocalIterator():
        latest_s[row["publisher"], row["home"]] = row["latest_s"]
    return spread_latest(layout, latest_s)


def _settled(
    outline: Knowledge, mass: FloatArray, layout: Layout, latest_s: FloatArray | None, model: Model
) -> SettledNetwork:
    settled = settle(outline, layout, latest_s, model=model)
    return SettledNetwork(
        model=model,
        outline=outline,
        mass=mass,
        stations=settled.stations,
        waits=settled.waits,
        wait_s=np.array(settled.wait_s),
        has_converged=settled.has_converged,
    )
