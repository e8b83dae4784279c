"""Where the results of a sweep lie, as Parquet in one directory (or anything that Spark can write to).

    runs/         one row per cell as the tasks returned it, a directory for each wave: what a later run finds again
    cells/        the table: one row per cell of the last sweep, in the order of its settings and seeds
    subscribers/  the table: one row per cell and subscriber, in the same order

The tables are written again from `runs` at the end of every sweep, sorted, so the same settings and seeds give the same
rows in the same order, whether they were computed at once or in ten attempts.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidings.errors import InputError
from tidings.pipeline._places import require_writable, spark_place
from tidings.pipeline.sweeps._cells import FIGURES, RUNS, Cell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SweepStore"]

COLUMNS = ("cell", "error", *FIGURES)


class SweepStore:
    """The directory of a sweep."""

    def __init__(self, spark: "SparkSession", out: str) -> None:
        self._spark = spark
        self._out = spark_place(out)
        require_writable(spark, self._out)
        place = Path(self._out.removeprefix("file:"))
        if place.is_file():
            raise InputError(f"{out} is a file; give a directory for the results of the sweep")
        if place.is_dir() and any(place.iterdir()) and not (place / "runs").is_dir():
            raise InputError(f"{out} already holds something that is not a sweep; give another directory")

    def find(self, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
        """The figures of those cells that an earlier run has computed, by the cells' names."""
        rows = self._runs().join(self._numbers(cells), on="cell", how="left_semi").select(*COLUMNS)
        return {row["cell"]: row.asDict() for row in rows.collect()}

    def add(self, runs: "DataFrame") -> list[dict[str, Any]]:
        """Run a wave of cells, keep their rows, and return them without their subscribers."""
        wave = f"{self._out}/runs/{uuid4().hex}"
        runs.write.parquet(wave)
        return [row.asDict() for row in self._spark.read.schema(RUNS).parquet(wave).select(*COLUMNS).collect()]

    def write_tables(self, cells: Sequence[Cell], failures: Mapping[str, str]) -> None:
        """Both tables; `failures` are the errors of cells that did not run, by their names."""
        from pyspark.sql.functions import posexplode

        numbers = self._numbers(cells)
        runs = numbers.join(self._runs().dropDuplicates(["cell"]), on="cell", how="inner")
        keys = self._spark.createDataFrame(
            [
                (cell.name, json.dumps(cell.setting.as_dict(), ensure_ascii=False), cell.seed, failures.get(cell.name))
                for cell in cells
            ],
            "cell string, setting string, seed bigint, error string",
        )
        (
            numbers.join(keys, on="cell", how="inner")
            .join(runs.select("cell", *FIGURES), on="cell", how="left")
            .select("number", "setting", "seed", *FIGURES, "error", "cell")
            .orderBy("number")
            .coalesce(1)
            .write.mode("overwrite")
            .parquet(f"{self._out}/cells")
        )
        (
            runs.join(keys.select("cell", "setting", "seed"), on="cell", how="inner")
            .select("number", "setting", "seed", posexplode("subscribers").alias("position", "row"))
            .select("number", "setting", "seed", "position", "row.*")
            .orderBy("number", "position")
            .write.mode("overwrite")
            .parquet(f"{self._out}/subscribers")
        )

    def _runs(self) -> "DataFrame":
        """The rows of all cells that succeeded; none if nothing has been written yet."""
        from pyspark.errors import AnalysisException

        try:
            runs = self._spark.read.schema(RUNS).option("recursiveFileLookup", "true").parquet(f"{self._out}/runs")
            runs.schema  # noqa: B018 - through Connect a plan is looked at only when it is asked for something
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            runs = self._spark.createDataFrame([], RUNS)
        return runs.where("error IS NULL")

    def _numbers(self, cells: Sequence[Cell]) -> "DataFrame":
        return self._spark.createDataFrame([(cell.name, cell.number) for cell in cells], "cell string, number bigint")
