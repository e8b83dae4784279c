"""A sweep from beginning to end: check, find what is there, run the rest in waves, write the tables, summarise.

Waves. A Spark job shows its results only when all its tasks are done. So that an interruption loses little, cells run
in jobs of bounded length: a wave grows while it takes less than WAVE_AIM_S and shrinks when it takes much longer,
whatever the number of cores and the length of a simulation. If a job fails as a whole (a simulation that takes the
worker down with it), its cells run again in halves until the one is alone whose fault it is.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline._session import was_interrupted
from tidings.pipeline.sweeps._cells import FIGURES, RUNS, Cell, make_cells, simulate_cells
from tidings.pipeline.sweeps._settings import CELLS_MAX, Base, Setting
from tidings.pipeline.sweeps._summary import Failure, SweepResult, summarise
from tidings.pipeline.sweeps._sweep_store import SweepStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_sweep"]

WAVE_CELLS_FIRST = 16
WAVE_CELLS_MOST = 8192
WAVE_AIM_S = 20.0
ERROR_MOST = 2_000  # characters of an error that the tables keep


def run_sweep(
    spark: "SparkSession",
    scenario: str | PathLike[str],
    settings: Sequence[Setting],
    *,
    seeds: Sequence[int] | None = None,
    out: str | PathLike[str] | None = None,
    progress: Callable[[float], None] | None = None,
) -> SweepResult:
    """Simulate the scenario under every setting with every seed (the scenario's own unless given).

    With `out` the results go to that directory, and cells that it already holds do not run again.
    """
    base = Base(scenario)
    base.check(settings)
    numbers = list(seeds if seeds is not None else [base.seed])
    _require_possible(settings, numbers)
    cells = make_cells(base, settings, numbers)
    store = None if out is None else SweepStore(spark, str(out))
    rows = {} if store is None else store.find(cells)
    found = len(rows)
    waves = _Waves(spark, base, store, rows)
    missing = [cell for cell in cells if cell.name not in rows]
    if missing:
        _require_package(spark)
    waves.run(missing, progress)
    if store is not None:
        store.write_tables(cells, waves.errors)
    return SweepResult(
        scenario=base.place,
        out=None if out is None else str(out),
        seeds=numbers,
        cells=len(cells),
        found=found,
        settings=summarise(cells, rows),
        failures=[
            Failure(
                setting=cell.setting.as_dict(),
                seed=cell.seed,
                error=waves.errors[cell.name],
                command=shlex.join(cell.command(base.place)),
            )
            for cell in cells
            if cell.name in waves.errors
        ],
    )


class _Waves:
    """The cells that have run so far: `rows` of those that succeeded, `errors` of those that did not."""

    def __init__(
        self, spark: "SparkSession", base: Base, store: SweepStore | None, rows: dict[str, dict[str, Any]]
    ) -> None:
        self.rows = rows
        self.errors: dict[str, str] = {}
        self._spark = spark
        self._base = base
        self._store = store

    def run(self, cells: Sequence[Cell], progress: Callable[[float], None] | None) -> None:
        begin, size = 0, WAVE_CELLS_FIRST
        while begin < len(cells):
            started = time.monotonic()
            self._run_wave(cells[begin : begin + size])
            begin += size
            took_s = time.monotonic() - started
            if took_s < WAVE_AIM_S:
                size = min(4 * size, WAVE_CELLS_MOST)
            elif took_s > 2 * WAVE_AIM_S:
                size = max(WAVE_CELLS_FIRST, size // 2)
            if progress is not None:
                progress(min(1.0, begin / len(cells)))

    def _run_wave(self, cells: Sequence[Cell]) -> None:
        try:
            self._simulate(cells)
        except _spark_errors() as error:
            if was_interrupted(error):
                raise
            if len(cells) == 1:
                self.errors[cells[0].name] = _of_worker(error)
                return
            middle = len(cells) // 2
            self._run_wave(cells[:middle])
            self._run_wave(cells[middle:])

    def _simulate(self, cells: Sequence[Cell]) -> None:
        # A range of n numbers in n partitions: each task has exactly one cell.
        numbers = self._spark.range(0, len(cells), 1, len(cells))
        runs = numbers.mapInArrow(simulate_cells(self._base, cells), RUNS)
        for row in self._rows(runs):
            if row["error"] is None:
                self.rows[row["cell"]] = row
            else:
                self.errors[row["cell"]] = row["error"][:ERROR_MOST]

    def _rows(self, runs: "DataFrame") -> list[dict[str, Any]]:
        if self._store is None:
            return [row.asDict() for row in runs.select("cell", "error", *FIGURES).collect()]
        return self._store.add(runs)


def _require_possible(settings: Sequence[Setting], seeds: Sequence[int]) -> None:
    if not settings or not seeds:
        raise InputError("a sweep needs at least one setting and one seed")
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InputError("seeds are different whole numbers of 0 or more")
    if len(settings) * len(seeds) > CELLS_MAX:
        count = len(settings) * len(seeds)
        raise InputError(
            f"{len(settings):,} settings with {len(seeds):,} seeds are {count:,} cells; at most {CELLS_MAX:,}"
        )


def _require_package(spark: "SparkSession") -> None:
    """Raise unless a worker can run a simulation at all: then it is no cell's fault, and none need be tried."""
    try:
        spark.range(1).mapInArrow(_import_simulation, "id bigint").collect()
    except _spark_errors() as error:
        if was_interrupted(error):
            raise
        raise ConfigurationError(
            f"the workers cannot run a simulation: {_of_worker(error)}; give them a Python environment with tidings in "
            "it (--environment FILE, see docs/guide/spark-cluster.md)"
        ) from error


def _spark_errors() -> tuple[type[Exception], ...]:
    """What a failed job raises: PySpark's own errors, and those of the JVM that it has no class for."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def _import_simulation(batches: Any) -> Any:
    import tidings.simulation  # noqa: F401

    yield from batches


def _of_worker(error: Exception) -> str:
    """The line that says what happened, out of the pages that Spark wraps it in."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        name = line.partition(":")[0]
        if name.endswith(("Error", "Exception")) and " " not in name and not line.startswith(("at ", "org.", "java.")):
            return line[:ERROR_MOST]
    causes = [line for line in lines if "exited unexpectedly" in line or "crashed" in line or "Lost task" in line]
    return (causes or lines or [type(error).__name__])[0][:ERROR_MOST]
