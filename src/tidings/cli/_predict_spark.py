"""`tidings predict --spark`: the same prediction with the subscriptions on Spark, and their table in a directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from tidings.cli._output import print_json, print_table, progress_bar
from tidings.cli._predict_tables import Row, facts, least_reliable
from tidings.cli._spark_options import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.model.scenario import Network
    from tidings.pipeline.prediction import SparkPrediction

__all__ = ["Where", "run"]

LEAST_MAX = 20  # rows that are shown of the least reliable subscribers


class Where(NamedTuple):
    """Where Spark runs, and the directory for the table; Spark is wanted as soon as one of them is given."""

    spark: bool
    master: str | None
    remote: str | None
    environment: Path | None
    verbose: bool
    out: str | None

    @property
    def is_wanted(self) -> bool:
        return self.spark or any(each is not None for each in (self.master, self.remote, self.environment, self.out))


def run(
    source: Path,
    network: "Network | None",
    where: Where,
    *,
    model: Literal["ours", "gg1", "mm1"],
    alpha: float,
    drops_expired: bool | None,
    json: bool,
) -> None:
    """Predict, write the table, and show what is small."""
    require_spark()
    from tidings.pipeline import open_session
    from tidings.pipeline.prediction import predict_on_spark

    with (
        open_session(
            master=where.master,
            remote=where.remote,
            environment=where.environment,
            verbose=where.verbose,
            app_name="tidings predict",
        ) as spark,
        progress_bar("predicting") as progress,
    ):
        answer = predict_on_spark(
            spark,
            source if network is None else network,
            model=model,
            alpha=alpha,
            drops_expired=drops_expired,
            out=where.out,
            progress=progress,
        )
        figures, least = _figures(answer.subscribers), _least(answer.subscribers)
        answer.release()
    title = str(source) if network is None else network.title
    if json:
        print_json(
            {
                "scenario": str(source),
                "model": model,
                "alpha": alpha,
                "bottleneck": answer.network.bottleneck,
                "overloaded": answer.network.overloaded,
                "unmodelled": answer.network.unmodelled,
                "subscribers": figures,
                "least_reliable": {row["subscription"]: row["on_time_reliability"] for row in least},
                "brokers": answer.network.brokers,
                "links": answer.network.links,
                "out": where.out,
            }
        )
    else:
        _print(title, answer, figures, least)
    if where.out is not None:
        typer.echo(f"wrote the table subscribers to {where.out}", err=True)


def _figures(subscribers: "DataFrame") -> dict[str, Any]:
    from pyspark.sql import functions as fn

    matched = fn.sum("matched_per_s")
    row = subscribers.agg(
        fn.count("*").alias("count"),
        fn.count("on_time_reliability").alias("matched"),
        matched.alias("matched_per_s"),
        fn.try_divide(fn.sum(fn.col("on_time_reliability") * fn.col("matched_per_s")), matched).alias(
            "on_time_reliability"
        ),
    ).collect()[0]
    return row.asDict()


def _least(subscribers: "DataFrame") -> list[Any]:
    known = subscribers.where("on_time_reliability IS NOT NULL")
    return known.orderBy("on_time_reliability", "subscription").limit(LEAST_MAX).collect()


def _print(title: str, answer: "SparkPrediction", figures: dict[str, Any], least: list[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if title:
        console.print(Text(title, style="bold"))
    table = facts(answer.network, figures["on_time_reliability"], figures["matched_per_s"] or 0.0)
    table.add_row("subscribers", f"{figures['count']:,}, of which {figures['matched']:,} match something")
    print_table(console, table)
    if least:
        fields = ("subscription", "matched_per_s", "mean_delay_s", "on_time_reliability", "path")
        print_table(console, least_reliable(Row(*(row[field] for field in fields)) for row in least))
